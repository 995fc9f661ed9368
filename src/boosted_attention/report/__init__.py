"""One self-contained page from results, and the figures in it; nothing here computes a result."""
