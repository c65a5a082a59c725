"""Line curves: several series over one axis, with gaps, limits, phases and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from wootz.figures.scale import HUGE, Axis, finite, number, span
from wootz.figures.svg import (
    DASHES,
    LIGHT,
    SERIES,
    SIZE,
    STATUS,
    element,
    empty,
    escape,
    figure,
    label,
    line,
    pixels,
    shorten,
    text_width,
)

Point = tuple[float, float]
_MARKED = 40
"""A series of at most so many points shows each with a dot that tells its value."""


@dataclass(frozen=True)
class Series:
    """One line: ``y`` over ``x``; what is not finite is a gap.

    Attributes:
        faint: Drawn thin, behind the others, and without a legend entry.
        colour: Another place in the palette than the position among the series.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    faint: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Mark:
    """An event at ``x``: a dashed vertical line with a flag that tells ``text``."""

    x: float
    text: str
    kind: Literal["bad", "unclear", "neutral"] = "neutral"


@dataclass(frozen=True)
class Phase:
    """A named stretch of the horizontal axis, shaded in turn."""

    name: str
    start: float
    stop: float


@dataclass(frozen=True)
class Limit:
    """A horizontal line at ``y`` that the curve should stay under (or over)."""

    y: float
    name: str = "limit"


@dataclass(frozen=True)
class Frame:
    """Size and axes of the plot, in pixels; ``y_range`` fixes the vertical axis."""

    x_label: str = "step"
    y_label: str = ""
    log_y: bool = False
    y_range: tuple[float, float] | None = None
    width: float = 330.0
    height: float = 196.0


def curves(
    series: Sequence[Series],
    frame: Frame | None = None,
    *,
    title: str,
    marks: Sequence[Mark] = (),
    phases: Sequence[Phase] = (),
    limits: Sequence[Limit] = (),
) -> str:
    """Returns the SVG of one plot.

    The axes fit the finite points, and the limits where these are near. On a logarithmic axis values that are not
    positive are gaps, and the figure says how many there were. ``data-x`` and ``data-y`` hold low, high, start pixel
    and stop pixel of each axis, so that a script can read values back.
    """
    frame = frame or Frame()
    lines = [_clean(one, frame.log_y) for one in series]
    points = [point for segments in lines for segment in segments for point in segment]
    if not points:
        return empty(frame.width, frame.height, title=title)
    x_low, x_high = span([x for x, _ in points], pad=0.0)
    y_low, y_high = frame.y_range or _y_span([y for _, y in points], limits, log=frame.log_y)
    y_ticks = Axis(y_low, y_high, 0, 1, log=frame.log_y).ticks(4)
    left = 14 + max(text_width(text) for _, text in y_ticks)
    named = [(index, one) for index, one in enumerate(series) if not one.faint and one.name]
    legend, top = _legend(named, frame.width)
    top += SIZE + 6 if phases else 0
    x_axis = Axis(x_low, x_high, left, frame.width - 14)
    y_axis = Axis(y_low, y_high, frame.height - 34, top + 4, log=frame.log_y)
    parts = [
        *(_phase(phase, index, x_axis, y_axis) for index, phase in enumerate(phases)),
        _axes(x_axis, y_axis, frame),
        *(_limit(limit, x_axis, y_axis) for limit in limits),
        *(_mark(mark, x_axis, y_axis) for mark in marks),
    ]
    order = sorted(range(len(series)), key=lambda index: not series[index].faint)
    parts += [_line(series[index], index, lines[index], x_axis, y_axis) for index in order]
    parts += [legend, _notes(series, frame)]
    ranges = {name: " ".join(f"{value:.10g}" for value in (a.low, a.high, a.start, a.stop)) for name, a in
              (("data_x", x_axis), ("data_y", y_axis))}  # fmt: skip
    desc = "; ".join(
        f"{one.name}: {_told(segments)}" for one, segments in zip(series, lines, strict=True) if not one.faint
    )
    data = ranges | {"data_log": "y" if frame.log_y else None, "data_label": frame.x_label, "data_role": "curves"}
    return figure("".join(parts), frame.width, frame.height, title=title, desc=desc, **data)


def _clean(series: Series, log: bool) -> list[list[Point]]:
    """The line's unbroken stretches."""
    segments: list[list[Point]] = [[]]
    for given_x, given_y in zip(series.x, series.y, strict=True):
        x, y = finite(given_x), finite(given_y)
        if x is None:
            continue
        if y is None or (log and y < 1 / HUGE):
            segments.append([])
        else:
            segments[-1].append((x, y))
    return [segment for segment in segments if segment]


def _y_span(values: list[float], limits: Iterable[Limit], *, log: bool) -> tuple[float, float]:
    low, high = span(values, log=log)
    axis = Axis(low, high, 0.0, 1.0, log=log)
    # A limit far outside would flatten the curve: its absence from the plot then says that all is well.
    near = [limit.y for limit in limits if (not log or limit.y >= 1 / HUGE) and -2 < axis.at(limit.y) < 3]
    if near:
        low, high = span([*values, *near], log=log)
    if not log and min(values) >= 0 and low < 0.35 * high:
        low = 0.0
    return low, high


def _axes(x_axis: Axis, y_axis: Axis, frame: Frame) -> str:
    parts = []
    for value, text in y_axis.ticks(4):
        y = y_axis.at(value)
        parts += [line(x_axis.start, y, x_axis.stop, y), label(text, x_axis.start - 6, y + 3.5, text_anchor="end")]
    bottom = y_axis.start
    parts.append(line(x_axis.start, bottom, x_axis.stop, bottom, class_="axis", stroke=LIGHT["axis"]))
    for value, text in x_axis.ticks(5):
        x = x_axis.at(value)
        parts.append(line(x, bottom, x, bottom + 4, class_="axis", stroke=LIGHT["axis"]))
        anchor = "end" if x + text_width(text) / 2 > frame.width - 2 else "middle"
        parts.append(label(text, min(x, frame.width - 2), bottom + 16, text_anchor=anchor))
    middle = (x_axis.start + x_axis.stop) / 2
    parts.append(label(frame.x_label, middle, frame.height - 4, text_anchor="middle"))
    return element("g", "".join(parts))


def _legend(named: Sequence[tuple[int, Series]], width: float) -> tuple[str, float]:
    """The legend's marks, and the height they take; none for a single line, which the title names."""
    if len(named) < 2:
        return "", SIZE
    parts, x, y = [], 0.0, float(SIZE)
    for index, one in named:
        text = shorten(one.name, width - 30)
        if x and x + 24 + text_width(text) > width:
            x, y = 0.0, y + SIZE + 6
        colour = _colour(one, index)
        parts.append(_stroke([(x, y - 3.5), (x + 16, y - 3.5)], colour, width=2.2))
        parts.append(label(text, x + 21, y, class_="ink", fill=LIGHT["ink"]))
        x += 21 + text_width(text) + 16
    return element("g", "".join(parts)), y + 10


def _colour(series: Series, index: int) -> int:
    return (index if series.colour is None else series.colour) % len(SERIES)


def _line(series: Series, index: int, segments: list[list[Point]], x_axis: Axis, y_axis: Axis) -> str:
    colour = _colour(series, index)
    count = sum(len(segment) for segment in segments)
    parts = []
    for segment in segments:
        path = [(x_axis.at(x), y_axis.clamp(y)) for x, y in segment]
        if len(path) > 1:
            parts.append(_stroke(path, colour, width=1.0 if series.faint else 2.0, faint=series.faint))
        if len(path) == 1 or (count <= _MARKED and not series.faint):
            for (px, py), (x, y) in zip(path, segment, strict=True):
                told = element("title", f"{number(x, 6)}: {number(y, 4)}")
                style = {"class_": f"s{colour}-fill", "fill": SERIES[colour]}
                parts.append(element("circle", told, cx=px, cy=py, r=2.2 if len(path) > 1 else 3.0, **style))
    name = None if series.faint else series.name
    return element("g", "".join(parts), data_series=name) if parts else ""


def _stroke(path: Sequence[Point], colour: int, *, width: float, faint: bool = False) -> str:
    return element(
        "polyline",
        points=" ".join(f"{pixels(x)},{pixels(y)}" for x, y in path),
        class_=f"s{colour}",
        fill="none",
        stroke=SERIES[colour],
        stroke_width=width,
        stroke_opacity=0.32 if faint else None,
        stroke_dasharray=DASHES[colour] or None,
        stroke_linejoin="round",
        stroke_linecap="round",
    )


def _phase(phase: Phase, index: int, x_axis: Axis, y_axis: Axis) -> str:
    start, stop = x_axis.clamp(phase.start), x_axis.clamp(phase.stop)
    box = element(
        "rect",
        x=start,
        y=y_axis.stop,
        width=stop - start,
        height=y_axis.start - y_axis.stop,
        class_="muted",
        fill=LIGHT["muted"],
        fill_opacity=0.04 if index % 2 else 0.09,
    )
    name = shorten(phase.name, stop - start)
    return box + label(name, (start + stop) / 2, y_axis.stop - 5, text_anchor="middle")


def _limit(limit: Limit, x_axis: Axis, y_axis: Axis) -> str:
    if not y_axis.low <= limit.y <= y_axis.high:
        return ""
    y = y_axis.at(limit.y)
    rule = line(x_axis.start, y, x_axis.stop, y, class_="bad", stroke=STATUS["bad"], stroke_dasharray="5 3")
    text = f"{limit.name} {number(limit.y)}"
    return rule + label(text, x_axis.start + 4, y - 4, font_size=10, class_="bad-fill", fill=STATUS["bad"])


def _mark(mark: Mark, x_axis: Axis, y_axis: Axis) -> str:
    if not x_axis.low <= mark.x <= x_axis.high:
        return ""
    x, style = x_axis.at(mark.x), {"class_": mark.kind, "stroke": STATUS[mark.kind]}
    rule = line(x, y_axis.start, x, y_axis.stop, stroke_dasharray="3 3", **style)
    path = f"M{pixels(x)} {pixels(y_axis.stop)}h7l-2.5 3.5 2.5 3.5h-7z"
    flag = element("path", d=path, class_=f"{mark.kind}-fill", fill=STATUS[mark.kind])
    told = element("title", f"{escape(mark.text)} ({number(mark.x, 6)})")
    return element("g", told + rule + flag, data_mark=number(mark.x, 6))


def _notes(series: Sequence[Series], frame: Frame) -> str:
    """How many values a logarithmic axis cannot show."""
    if not frame.log_y:
        return ""
    left_out = sum(1 for one in series for y in one.y if (value := finite(y)) is not None and value < 1 / HUGE)
    text = f"{left_out} values of 0 or less are not shown"
    return label(text, frame.width - 14, frame.height - 4, text_anchor="end", font_size=9) if left_out else ""


def _told(segments: list[list[Point]]) -> str:
    if not segments:
        return "no data"
    first, last = segments[0][0][1], segments[-1][-1][1]
    return f"{number(first)} at first, {number(last)} at last"
