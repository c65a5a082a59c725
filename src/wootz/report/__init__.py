"""A run directory as one self-contained page, and as a model card. Reads files only; imports no model library."""

from wootz.report.card import card
from wootz.report.page import render

__all__ = ["card", "render"]
