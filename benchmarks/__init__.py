"""Benchmarks: every claim of speed lives here, as a ratio of things measured side by side in one process."""
