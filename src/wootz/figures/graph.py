"""Small directed graphs in layers: circuits, pipelines, merge plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wootz.figures.scale import finite, number
from wootz.figures.svg import LIGHT, SERIES, element, empty, escape, figure, label, pixels, shorten

_BOX = (104.0, 28.0)
_GAP = (64.0, 18.0)
_SWEEPS = 4


@dataclass(frozen=True)
class Node:
    """A box. ``layer`` places it from left to right; None puts it one after its furthest source."""

    id: str
    text: str = ""
    layer: int | None = None


@dataclass(frozen=True)
class Edge:
    """An arrow; its weight's size is the width, its sign the hue and the dash."""

    source: str
    target: str
    weight: float = 1.0


def layers(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[str, int]:
    """Returns each node's layer: as given, else one after its furthest source; edges that close a cycle are ignored."""
    into: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        into[edge.target].append(edge.source)
    given = {node.id: node.layer for node in nodes}
    found: dict[str, int] = {}

    def settle(start: str) -> None:
        # A stack of its own: a long chain must not meet the recursion limit.
        stack, open_ = [start], set()
        while stack:
            name = stack[-1]
            if name in found or name not in given:
                stack.pop()
                continue
            open_.add(name)
            waiting = [one for one in into[name] if one not in found and one not in open_ and one in given]
            if waiting and given[name] is None:
                stack += waiting
                continue
            fixed, known = given[name], [found[one] for one in into[name] if one in found]
            found[name] = fixed if fixed is not None else 1 + max(known, default=-1)
            stack.pop()

    for node in nodes:
        settle(node.id)
    return found


def graph(nodes: Sequence[Node], edges: Sequence[Edge], *, title: str) -> str:
    """Returns the graph, layers from left to right, each ordered so that edges cross little (barycentre sweeps)."""
    if not nodes:
        return empty(240.0, 80.0, title=title)
    place = layers(nodes, edges)
    missing = [name for edge in edges for name in (edge.source, edge.target) if name not in place]
    assert not missing, f"edges name nodes that are not there: {missing}"
    columns = _columns(nodes, edges, place)
    tallest = max(len(column) for column in columns)
    height = 16 + tallest * (_BOX[1] + _GAP[1]) - _GAP[1]
    width = 16 + len(columns) * (_BOX[0] + _GAP[0]) - _GAP[0]
    corner: dict[str, tuple[float, float]] = {}
    for depth, column in enumerate(columns):
        free = height - (len(column) * (_BOX[1] + _GAP[1]) - _GAP[1])
        for row, name in enumerate(column):
            corner[name] = (8 + depth * (_BOX[0] + _GAP[0]), free / 2 + row * (_BOX[1] + _GAP[1]))
    top = max((abs(finite(edge.weight) or 0.0) for edge in edges), default=0.0) or 1.0
    parts = [_arrow(edge, corner, top) for edge in edges] + [_box(node, *corner[node.id]) for node in nodes]
    return figure("".join(parts), width, height, title=title, desc=f"{len(nodes)} nodes, {len(edges)} edges")


def _columns(nodes: Sequence[Node], edges: Sequence[Edge], place: Mapping[str, int]) -> list[list[str]]:
    """Names by layer, empty layers left out, in drawing order."""
    by_layer: dict[int, list[str]] = defaultdict(list)
    for node in nodes:
        by_layer[place[node.id]].append(node.id)
    columns = [by_layer[depth] for depth in sorted(by_layer)]
    near: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        near[edge.source].append(edge.target)
        near[edge.target].append(edge.source)
    for _ in range(_SWEEPS):
        rank = {name: (row + 0.5) / len(column) for column in columns for row, name in enumerate(column)}
        for column in columns:
            centre = {
                name: sum(rank[n] for n in near[name]) / len(near[name]) if near[name] else rank[name]
                for name in column
            }
            column.sort(key=lambda name: (centre[name], name))
            rank |= {name: (row + 0.5) / len(column) for row, name in enumerate(column)}
    return columns


def _arrow(edge: Edge, corner: Mapping[str, tuple[float, float]], top: float) -> str:
    (x1, y1), (x2, y2) = corner[edge.source], corner[edge.target]
    x1, y1, y2 = x1 + _BOX[0], y1 + _BOX[1] / 2, y2 + _BOX[1] / 2
    bend = max(24.0, (x2 - x1) / 2)
    points = ((x1, y1), (x1 + bend, y1), (x2 - bend, y2), (x2, y2))
    path = "M{} C{} {} {}".format(*(f"{pixels(x)} {pixels(y)}" for x, y in points))
    weight = finite(edge.weight) or 0.0
    colour = 0 if weight >= 0 else 1
    told = element("title", escape(f"{edge.source} to {edge.target}: {number(edge.weight)}"))
    style = {"class_": f"s{colour}", "stroke": SERIES[colour], "stroke_dasharray": "5 3" if weight < 0 else None}
    return element(
        "path", told, d=path, fill="none", stroke_width=1 + 4 * abs(weight) / top, stroke_opacity=0.6, **style
    )


def _box(node: Node, x: float, y: float) -> str:
    name = node.text or node.id
    box: dict[str, Any] = {"x": x, "y": y, "width": _BOX[0], "height": _BOX[1], "rx": 5.0}
    style = {"class_": "paper axis", "fill": LIGHT["paper"], "stroke": LIGHT["axis"]}
    text = label(
        shorten(name, _BOX[0] - 12), x + _BOX[0] / 2, y + 18, text_anchor="middle", class_="ink", fill=LIGHT["ink"]
    )
    return element("g", element("title", escape(name)) + element("rect", **style, **box) + text)
