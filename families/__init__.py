"""Every causal family of transformers, boosted as a tiny model of random weights: what works and what is refused.

python -m families              tries those without a result, writes families/results.json and docs/families.md
python -m families llama bloom  tries these again
"""
