"""The recipe of the checkpoints that lie in the repository, beside what it makes: `make tiny`.

In: a seed.
Out: `artifacts/checkpoints/smollm3-tiny/`, a SmolLM3 checkpoint in Hugging Face's layout, with its exam and its card.
"""
