"""The synthetic retrieval task: find the stored pattern behind a noisy query."""
