"""From raw text to batches: corpora, tokenizers, token files, and an order that depends on seed and step alone."""
