"""Training that resumes exactly, checkpoints without pickles, and evaluation over every token."""
