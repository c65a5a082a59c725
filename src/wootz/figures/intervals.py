"""Intervals: an estimate with its confidence interval against zero, a margin and a limit; one row or many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wootz.figures.scale import Axis, finite, measured, number, span
from wootz.figures.svg import LIGHT, SIZE, STATUS, element, empty, escape, figure, label, line, pixels, shorten

Standing = Literal["good", "bad", "unclear", "neutral"]


@dataclass(frozen=True)
class Interval:
    """An estimate and what it is held against; what is None, or not finite, is not drawn.

    Attributes:
        name: What was estimated.
        value: The estimate.
        low: Lower end of its interval.
        high: Upper end.
        margin: Differences within ``±margin`` count as none: a grey band around zero.
        limit: A bound the interval should stay under: a dashed line, shaded beyond.
        standing: Picks the colour and the shape of the point.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    limit: float | None = None
    standing: Standing = "neutral"


def interval(row: Interval, *, width: float = 240.0, height: float = 44.0) -> str:
    """Returns one interval over its own axis, zero always in view: what goes into a table's cell."""
    title = row.name
    if finite(row.value) is None:
        return empty(width, height, title=title, message="not measured")
    axis = _axis([row], 8.0, width - 8.0)
    bottom = height - SIZE - 5
    content = _behind(row, axis, 2, bottom) + _zero(axis, 2, bottom) + _ticks(axis, bottom, 3)
    return figure(content + _estimate(row, axis, bottom / 2 + 1), width, height, title=title, desc=_told(row))


def forest(rows: Sequence[Interval], *, title: str, x_label: str = "difference", width: float = 340.0) -> str:
    """Returns intervals of one unit, a row each over a common axis, with the estimates written out at the right."""
    if not any(finite(row.value) is not None for row in rows):
        return empty(width, 80.0, title=title)
    left, right, pitch, top = width * 0.34, width * 0.16, 26, 8
    axis = _axis(rows, left, width - right)
    bottom = top + pitch * len(rows)
    parts = [_behind(rows[0], axis, top, bottom) if _alike(rows) else "", _zero(axis, top, bottom)]
    for index, row in enumerate(rows):
        y = top + pitch * (index + 0.5)
        known = finite(row.value) is not None
        value = measured(row.value, row.low, row.high)[0] if known else "n/a"
        ink = {"class_": "ink", "fill": LIGHT["ink"]}
        parts.append(label(shorten(row.name, left - 10), left - 10, y + 4, text_anchor="end", **ink))
        parts.append(label(value, width, y + 4, text_anchor="end"))
        parts.append(_estimate(row, axis, y) if known else "")
    parts += [_ticks(axis, bottom, 4), label(x_label, (left + width - right) / 2, bottom + 32, text_anchor="middle")]
    desc = "; ".join(f"{row.name}: {_told(row)}" for row in rows)
    return figure("".join(parts), width, bottom + 38, title=title, desc=desc)


def _axis(rows: Sequence[Interval], start: float, stop: float) -> Axis:
    marks = [0.0]
    for row in rows:
        marks += [value for v in (row.value, row.low, row.high, row.limit) if (value := finite(v)) is not None]
        marks += [-abs(row.margin), abs(row.margin)] if finite(row.margin) is not None and row.margin else []
    return Axis(*span(marks, pad=0.08), start, stop)


def _alike(rows: Sequence[Interval]) -> bool:
    return len({(row.margin, row.limit) for row in rows}) == 1


def _behind(row: Interval, axis: Axis, top: float, bottom: float) -> str:
    """The margin's band, and the limit with what lies beyond it."""
    parts, margin, limit = [], finite(row.margin), finite(row.limit)
    if margin:
        low, high = axis.at(-abs(margin)), axis.at(abs(margin))
        box = {"x": low, "y": float(top), "width": high - low, "height": float(bottom - top)}
        told = element("title", f"margin \u00b1{number(abs(margin))}: counts as the same")
        parts.append(element("rect", told, class_="muted", fill=LIGHT["muted"], fill_opacity=0.16, **box))
    if limit is not None:
        x = axis.at(limit)
        box = {"x": x, "y": float(top), "width": axis.stop + 6 - x, "height": float(bottom - top)}
        told = element("title", f"limit {number(limit)}")
        parts.append(element("rect", told, class_="bad-fill", fill=STATUS["bad"], fill_opacity=0.1, **box))
        parts.append(
            line(x, top, x, bottom, class_="bad", stroke=STATUS["bad"], stroke_dasharray="4 2.5", stroke_width=1.5)
        )
    return "".join(parts)


def _zero(axis: Axis, top: float, bottom: float) -> str:
    x = axis.at(0.0)
    return line(x, top, x, bottom, class_="axis", stroke=LIGHT["axis"], stroke_width=1.25)


def _ticks(axis: Axis, bottom: float, count: int) -> str:
    parts = [line(axis.start, bottom, axis.stop, bottom, class_="axis", stroke=LIGHT["axis"])]
    for value, text in axis.ticks(count):
        x = axis.at(value)
        half = len(text) * 9.5 * 0.28
        x_text = min(max(x, half), axis.stop + 8 - half)
        parts.append(line(x, bottom, x, bottom + 3, class_="axis", stroke=LIGHT["axis"]))
        parts.append(label(text, x_text, bottom + 14, text_anchor="middle", font_size=9.5))
    return element("g", "".join(parts))


def _estimate(row: Interval, axis: Axis, y: float) -> str:
    value, low, high = finite(row.value), finite(row.low), finite(row.high)
    assert value is not None, "only what was measured is drawn"
    stroke = {"class_": row.standing, "stroke": STATUS[row.standing]}
    parts = [element("title", escape(f"{row.name}: {_told(row)}"))]
    if low is not None and high is not None:
        x1, x2 = axis.at(low), axis.at(high)
        parts.append(line(x1, y, x2, y, stroke_width=2.5, **stroke))
        parts += [line(x, y - 4.5, x, y + 4.5, stroke_width=2, **stroke) for x in (x1, x2)]
    parts.append(_point(row.standing, axis.at(value), y))
    return element("g", "".join(parts))


def _point(standing: Standing, x: float, y: float) -> str:
    """Another shape a standing, so that colour is not the only sign."""
    style = {"class_": f"{standing}-fill", "fill": STATUS[standing]}
    if standing == "good":
        return element("circle", cx=x, cy=y, r=5.0, **style)
    if standing == "bad":
        return element("rect", x=x - 4.5, y=y - 4.5, width=9.0, height=9.0, **style)
    px, py = pixels(x), pixels(y - 6)
    return element("path", d=f"M{px} {py}l6 6-6 6-6-6z", **style)


def _value(row: Interval) -> str:
    estimate, ends = measured(row.value, row.low, row.high)
    return f"{estimate}, {ends}" if ends else estimate


def _told(row: Interval) -> str:
    if finite(row.value) is None:
        return "not measured"
    text = _value(row)
    if finite(row.margin):
        text += f", margin {number(row.margin)}"
    return f"{text}, limit {number(row.limit)}" if finite(row.limit) is not None else text
