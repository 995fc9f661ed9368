"""Benchmarks: every claim of speed lives here, as a ratio of things measured side by side in one process.

``python -m benchmarks`` measures into one JSON file, and ``page.py`` makes docs/benchmarks.md of that file alone.
"""
