"""What trials compute. Importing this package registers every work under its name."""

from boosted_attention.lab.work import finetune, language, retrieval, theory, timing

__all__ = ["finetune", "language", "retrieval", "theory", "timing"]
