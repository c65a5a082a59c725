"""What is measured: items, measures, and the suites that bring them together."""

from wootz.evals.items import Item, Result, built_in, items_of, read_rows
from wootz.evals.subject import Subject
from wootz.evals.suites import MEASURES, suite_measures

__all__ = ["MEASURES", "Item", "Result", "Subject", "built_in", "items_of", "read_rows", "suite_measures"]
