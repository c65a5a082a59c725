"""Axes: nice ticks, their labels, and the map from values to pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HUGE = 1e150
"""Larger magnitudes are treated as not finite: ranges and paddings of them would overflow."""
_SUFFIXES = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
MINUS = "\u2212"


def finite(value: object) -> float | None:
    """Returns the value as a float that can be drawn, or None (not a number, NaN, infinite, a bool).

    Example:
        >>> finite(2), finite(float("nan")), finite("2")
        (2.0, None, None)
    """
    if getattr(value, "ndim", None) == 0:  # a NumPy or torch scalar
        value = getattr(value, "item", lambda: None)()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -HUGE < value < HUGE else None


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Returns about ``count`` multiples of 1, 2, 2.5 or 5 times a power of ten inside ``[low, high]``.

    Example:
        >>> nice_ticks(0.0, 1.0)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        >>> nice_ticks(-3.0, 11.0, 3)
        [0.0, 5.0, 10.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / max(count, 1)
    power = math.floor(math.log10(raw))
    factor = next((f for f in (1.0, 2.0, 2.5, 5.0) if f * 10.0**power >= raw * (1 - 1e-9)), 10.0)
    step = factor * 10.0**power
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, 1 - power)
    return [round(k * step, digits) + 0.0 for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns powers of ten inside ``[low, high]``; twos and fives too when fewer than three powers fit.

    Example:
        >>> log_ticks(0.01, 100.0)
        [0.01, 0.1, 1.0, 10.0, 100.0]
        >>> log_ticks(1.0, 12.0)
        [1.0, 2.0, 5.0, 10.0]
    """
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    stride = max(1, math.ceil((last - first) / 6))
    for factors in ((1,), (1, 2, 5), range(1, 10)):
        powers = range(first, last + 1, stride if factors == (1,) else 1)
        ticks = [f * 10.0**p if p >= 0 else f / 10.0**-p for p in powers for f in factors]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) >= 3:
            return ticks
    return ticks or [low]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Returns one label a tick, all with the same number of decimals and the same unit.

    Example:
        >>> tick_labels([0.0, 0.25, 0.5])
        ['0.00', '0.25', '0.50']
        >>> tick_labels([0.0, 20000.0])
        ['0', '20k']
    """
    top = max((abs(tick) for tick in ticks), default=0.0)
    if top >= 1e12 or 0 < top < 1e-3:
        return [_scientific(tick) for tick in ticks]
    scale, suffix = next(((s, name) for s, name in _SUFFIXES if top >= 10 * s), (1.0, ""))
    scaled = [tick / scale for tick in ticks]
    decimals = next((d for d in range(6) if all(abs(round(v, d) - v) <= 1e-9 * max(1, abs(v)) for v in scaled)), 6)
    return [(f"{v:.{decimals}f}{suffix}" if v else f"{0:.{decimals}f}").replace("-", MINUS) for v in scaled]


def number(value: object, digits: int = 3) -> str:
    """Returns a value as a person would write it, to ``digits`` significant digits; ``n/a`` for what is not a number.

    Example:
        >>> number(0.123456), number(0.5), number(1234567), number(0.00000321), number(None)
        ('0.123', '0.5', '1,234,567', '3.21e\u22126', 'n/a')
    """
    known = finite(value)
    if known is None:
        return "n/a"
    if known == 0:
        return "0"
    size = abs(known)
    if size < 1e-4 or size >= 1e12:
        return _scientific(known, digits)
    if size >= 10.0**digits or known == int(known):
        return f"{known:,.0f}".replace("-", MINUS)
    text = f"{known:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", MINUS)


def measured(value: object, low: object, high: object) -> tuple[str, str]:
    """Returns a signed estimate and its interval as text, to the decimals that the interval's width supports.

    Without an interval the second text is empty.

    Example:
        >>> measured(0.7881, 0.729, 0.838)
        ('+0.79', '0.73 to 0.84')
        >>> measured(2.0, None, None)
        ('+2', '')
    """
    known, bottom, top = finite(value), finite(low), finite(high)
    if known is None or bottom is None or top is None:
        text = number(known)
        return (f"+{text}" if known is not None and known > 0 else text), ""
    width = top - bottom
    if not 1e-6 < width < 1e6 or max(abs(bottom), abs(top)) >= 1e9:
        return ("+" if known > 0 else "") + number(known), f"{number(bottom)} to {number(top)}"
    decimals = max(0, 1 - math.floor(math.log10(width)))
    shown = [f"{v:,.{decimals}f}" for v in (known, bottom, top)]
    plain = [v[1:] if v.startswith("-") and not v.strip("-0.,") else v for v in shown]
    estimate, start, stop = (v.replace("-", MINUS) for v in plain)
    return ("+" if known > 0 and estimate.strip("0.,") else "") + estimate, f"{start} to {stop}"


def _scientific(value: float, digits: int = 3) -> str:
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}".replace("-", MINUS)


@dataclass(frozen=True)
class Axis:
    """A map from ``[low, high]`` to the pixels ``[start, stop]``, linear or logarithmic."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, value: float) -> float:
        """Returns the pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def clamp(self, value: float) -> float:
        """Returns the pixel of a value, or of the nearer end for one outside."""
        return self.at(min(max(value, self.low), self.high))

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Returns tick values inside the axis with their labels."""
        values = log_ticks(self.low, self.high) if self.log else nice_ticks(self.low, self.high, count)
        labels = (
            [_scientific(v) if v >= 1e4 or v < 1e-2 else number(v) for v in values] if self.log else tick_labels(values)
        )
        return list(zip(values, labels, strict=True))


def span(values: Iterable[float], *, log: bool = False, pad: float = 0.06) -> tuple[float, float]:
    """Returns the lowest and highest value, moved apart by a share ``pad``; never equal.

    Example:
        >>> span([0.0, 10.0], pad=0.1)
        (-1.0, 11.0)
        >>> span([])
        (0.0, 1.0)
    """
    known = [math.log10(v) if log else v for v in values]
    if not known:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    room = (high - low) * pad
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = 0.15 if log else (abs(low) * 0.1 or 1.0)
    return (10 ** (low - room), 10 ** (high + room)) if log else (low - room, high + room)
