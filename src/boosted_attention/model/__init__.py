"""The decoder language model around the attention layers: configuration, blocks, loss, generation."""
