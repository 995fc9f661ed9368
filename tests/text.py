"""Text made on the spot, the same every time."""

import random


def sample_text(n_words: int, seed: int = 0) -> str:
    """Sentences of made-up words, some often and some rarely, so that there is something to learn."""
    draw = random.Random(seed)
    syllables = [a + b for a in "bdgklmnprst" for b in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(200)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    chosen = draw.choices(words, weights, k=n_words)
    lines = [" ".join(chosen[i : i + 12]) + ".\n" for i in range(0, n_words, 12)]
    return "".join(lines)
