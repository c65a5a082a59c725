"""Run directories as self-contained pages, and as model cards. Reads files only; imports no model library."""

from wootz.report.card import card
from wootz.report.compare import render_many
from wootz.report.page import render

__all__ = ["card", "render", "render_many"]
