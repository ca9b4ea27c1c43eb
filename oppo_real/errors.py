"""What a user or a model did wrong, in one line."""

from __future__ import annotations


class ModelError(ValueError):
    """A model, tokenizer, prompt, reward or rule that cannot be used: field, value, remedy."""
