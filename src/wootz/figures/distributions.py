"""Distributions and tables of numbers: histograms and heat maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from wootz.figures.scale import Axis, finite, nice_ticks, number, span
from wootz.figures.svg import LIGHT, SERIES, element, empty, escape, figure, label, line, pixels, shorten, text_width

_MOST_BINS = 40


def bin_edges(values: Sequence[float], bins: int | None = None) -> list[float]:
    """Returns equally wide nice edges that cover the values; about ``2 n^(1/3)`` bins (Rice's rule) unless said.

    Whole numbers get whole-number bins, so that counts do not beat against the edges.
    """
    low, high = min(values), max(values)
    if low == high:
        room = abs(low) * 0.1 or 0.5
        return [low - room, low + room]
    count = min(_MOST_BINS, bins or max(4, round(2 * len(values) ** (1 / 3))))
    ticks = nice_ticks(low, high, count)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high - low
    if all(value == int(value) for value in values):
        step = max(1.0, round(step))
    first, last = math.floor(low / step + 1e-9), math.floor(high / step + 1e-9) + 1
    return [k * step for k in range(first, last + 1)]


def histogram(
    groups: Mapping[str, Sequence[float | None]],
    *,
    title: str,
    x_label: str = "",
    bins: int | None = None,
    width: float = 400.0,
    height: float = 190.0,
) -> str:
    """Returns histograms of named groups over common bins, as shares of each group, drawn as overlaid steps.

    Values that are not finite are left out and counted in the description.
    """
    known = {name: [v for value in values if (v := finite(value)) is not None] for name, values in groups.items()}
    pooled = [value for values in known.values() for value in values]
    if not pooled:
        return empty(width, height, title=title)
    edges = bin_edges(pooled, bins)
    shares = {name: _shares(values, edges) for name, values in known.items() if values}
    top_share = max(max(share) for share in shares.values())
    x_axis = Axis(edges[0], edges[-1], 44.0, width - 12.0)
    y_axis = Axis(0.0, top_share * 1.08, height - 34.0, 26.0 if len(shares) > 1 else 10.0)
    parts = [_shares_axes(x_axis, y_axis, x_label, height)]
    legend_x = 0.0
    for index, (name, share) in enumerate(shares.items()):
        colour = index % len(SERIES)
        parts.append(_steps(share, edges, colour, x_axis, y_axis))
        if len(shares) > 1:
            box = {"class_": f"s{colour}-fill", "fill": SERIES[colour], "fill_opacity": 0.7}
            parts.append(element("rect", x=legend_x, y=2.0, width=11.0, height=11.0, rx=2.0, **box))
            parts.append(label(name, legend_x + 16, 11, class_="ink", fill=LIGHT["ink"]))
            legend_x += 16 + text_width(name) + 18
    missing = sum(len(values) for values in groups.values()) - len(pooled)
    told = "; ".join(f"{name}: n {len(v)}, mean {number(sum(v) / len(v))}" for name, v in known.items() if v)
    desc = told + (f"; {missing} values are not numbers" if missing else "")
    return figure("".join(parts), width, height, title=title, desc=desc)


def _shares(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    counts, step = [0] * (len(edges) - 1), edges[1] - edges[0]
    for value in values:
        counts[min(len(counts) - 1, max(0, math.floor((value - edges[0]) / step + 1e-9)))] += 1
    return [count / len(values) for count in counts]


def _shares_axes(x_axis: Axis, y_axis: Axis, x_label: str, height: float) -> str:
    parts, bottom = [], y_axis.start
    for value in nice_ticks(0.0, y_axis.high, 3):
        y = y_axis.at(value)
        parts.append(line(x_axis.start, y, x_axis.stop, y))
        parts.append(label(f"{number(100 * value)}%", x_axis.start - 6, y + 3.5, text_anchor="end"))
    parts.append(line(x_axis.start, bottom, x_axis.stop, bottom, class_="axis", stroke=LIGHT["axis"]))
    for value, text in x_axis.ticks(5):
        parts.append(label(text, x_axis.at(value), bottom + 16, text_anchor="middle"))
    parts.append(label(x_label, (x_axis.start + x_axis.stop) / 2, height - 4, text_anchor="middle"))
    return element("g", "".join(parts))


def _steps(share: Sequence[float], edges: Sequence[float], colour: int, x_axis: Axis, y_axis: Axis) -> str:
    bars = []
    for index, value in enumerate(share):
        if not value:
            continue
        x1, x2, y = x_axis.at(edges[index]), x_axis.at(edges[index + 1]), y_axis.at(value)
        told = element("title", f"{number(edges[index])} to {number(edges[index + 1])}: {number(100 * value)}%")
        box = {"x": x1 + 0.5, "y": y, "width": max(0.5, x2 - x1 - 1), "height": y_axis.start - y}
        bars.append(element("rect", told, **box))
    style = {"class_": f"s{colour}-fill s{colour}", "fill": SERIES[colour], "stroke": SERIES[colour]}
    return element("g", "".join(bars), fill_opacity=0.35, **style)


def heat_map(
    values: Sequence[Sequence[float | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    cell: float = 28.0,
) -> str:
    """Returns a matrix as coloured cells; each tells its value.

    Strength is opacity, so that it reads on light and dark paper: full at the largest magnitude. Negative values take
    another hue and a bar at the foot; what is not finite is a cross.
    """
    known = [v for row in values for value in row if (v := finite(value)) is not None]
    if not known:
        return empty(240.0, 80.0, title=title)
    top_value = max(abs(value) for value in known) or 1.0
    left = 12 + min(160.0, max((text_width(name) for name in rows), default=0.0))
    top = 10 + min(110.0, max((text_width(name) for name in columns), default=0.0)) * 0.72
    parts = []
    for i, name in enumerate(rows):
        y = top + cell * (i + 0.5) + 4
        parts.append(label(shorten(name, left - 12), left - 6, y, text_anchor="end"))
    for j, name in enumerate(columns):
        x, y = left + cell * (j + 0.5), top - 6
        turn = f"rotate(-45 {x:.2f} {y:.2f})"
        parts.append(label(shorten(name, 110), x, y, transform=turn))
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            name = f"{rows[i]}, {columns[j]}"
            parts.append(_cell(finite(value), top_value, left + cell * j, top + cell * i, cell, name))
    low, high = span(known, pad=0.0)
    width = left + cell * len(columns) + 0.72 * max((text_width(name) for name in columns[-3:]), default=0.0) + 8
    desc = f"{len(rows)} by {len(columns)} values from {number(low)} to {number(high)}"
    return figure("".join(parts), width, top + cell * len(rows) + 6, title=title, desc=desc)


def _cell(value: float | None, top: float, x: float, y: float, size: float, name: str) -> str:  # noqa: PLR0913
    told = element("title", escape(f"{name}: {number(value)}"))
    box: dict[str, Any] = {"x": x + 0.5, "y": y + 0.5, "width": size - 1, "height": size - 1, "rx": 2.0}
    if value is None:
        room = pixels(size - 12)
        cross = f"M{pixels(x + 6)} {pixels(y + 6)}l{room} {room}m0 -{room}l-{room} {room}"
        drawn = element("path", d=cross, class_="axis", stroke=LIGHT["axis"])
        return element("g", told + element("rect", class_="grid", fill="none", stroke=LIGHT["grid"], **box) + drawn)
    colour = 0 if value >= 0 else 1
    strength = 0.06 + 0.94 * abs(value) / top if value else 0.03
    style = {"class_": f"s{colour}-fill", "fill": SERIES[colour]}
    drawn = element("rect", told, fill_opacity=strength, **style, **box)
    if value < 0:
        drawn += element(
            "rect", x=x + 4, y=y + size - 5, width=size - 8, height=2.0, class_="paper", fill=LIGHT["paper"]
        )
    return drawn
