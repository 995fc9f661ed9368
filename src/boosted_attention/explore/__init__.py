"""A local page on which a trained run is looked into, patched and continued while a text is typed."""
