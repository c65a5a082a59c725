"""Figures from plain numbers, as inline SVG (token strips: HTML). Pure functions, no dependency, same input same text.

A page that shows them includes :data:`STYLE` (and :data:`TOKEN_STYLE`) once to follow light and dark schemes.
"""

from wootz.figures.curves import Frame, Limit, Mark, Phase, Series, curves
from wootz.figures.distributions import heat_map, histogram
from wootz.figures.graph import Edge, Node, graph
from wootz.figures.intervals import Interval, Standing, forest, interval
from wootz.figures.scale import finite, measured, number
from wootz.figures.svg import STYLE, escape, visible
from wootz.figures.tokens import TOKEN_STYLE, token_strip

__all__ = [
    "STYLE",
    "TOKEN_STYLE",
    "Edge",
    "Frame",
    "Interval",
    "Limit",
    "Mark",
    "Node",
    "Phase",
    "Series",
    "Standing",
    "curves",
    "escape",
    "finite",
    "forest",
    "graph",
    "heat_map",
    "histogram",
    "interval",
    "measured",
    "number",
    "token_strip",
    "visible",
]
