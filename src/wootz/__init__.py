"""Shape a language model, see inside it, prove what changed."""

__version__ = "0.1.0"
