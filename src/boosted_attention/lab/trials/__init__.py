"""Trials: units of the lab, where their records are kept, and what carries them out."""
