"""Token strips: text cut into its tokens, each shaded by a value."""

from __future__ import annotations

from collections.abc import Sequence

from wootz.figures.scale import finite, number
from wootz.figures.svg import element, escape

LEVELS = 8


def level(value: float, low: float, high: float) -> int:
    """Returns the shade of a value: 0 at ``low`` or under, ``LEVELS`` at ``high`` or over.

    Example:
        >>> [level(value, 0.0, 4.0) for value in (-1.0, 0.0, 1.0, 4.0, 9.0)]
        [0, 0, 2, 8, 8]
    """
    return round(LEVELS * min(1.0, max(0.0, (value - low) / (high - low))))


def token_strip(
    pieces: Sequence[str],
    values: Sequence[float | None] = (),
    *,
    low: float = 0.0,
    high: float = 1.0,
    name: str = "value",
    marked: Sequence[bool] = (),
) -> str:
    """Returns pieces of text that flow and wrap like text, each shaded by its value and telling it.

    It is HTML, not SVG: text must wrap, be found and be copied. Needs :data:`TOKEN_STYLE` in the page. A piece without
    a value (too few values, NaN) is left unshaded. Line ends show a sign; a piece that is part of a character, a dot.

    Args:
        pieces: Text of each token.
        values: One a piece.
        low: The value of the lightest shade.
        high: The value of the darkest; may be below ``low``.
        name: What a value is, for the tooltip.
        marked: Pieces to underline, such as the trained ones; the others are dimmed.
    """
    parts = []
    for index, piece in enumerate(pieces):
        value = finite(values[index]) if index < len(values) else None
        shade = "" if value is None else f" h{level(value, low, high)}"
        mark = "" if not marked else " on" if index < len(marked) and marked[index] else " off"
        title = f"{number(index)}: {piece!r}" + ("" if value is None else f" {name} {number(value)}")
        parts.append(element("span", _shown(piece), class_=f"tok{shade}{mark}", title=title))
    return element("span", "".join(parts) or " ", class_="toks", dir="auto")


def _shown(piece: str) -> str:
    if not piece:
        return element("span", "\u00b7", class_="nl", aria_hidden="true")
    sign = element("span", "\u21b5", class_="nl", aria_hidden="true")
    return escape(piece).replace("\n", f"{sign}\n")


def _style() -> str:
    rules = [
        ".toks{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate}",
        ".tok{border-radius:2px;box-shadow:inset -1px 0 0 color-mix(in srgb,var(--fig-muted) 22%,transparent)}",
        ".tok .nl{color:var(--fig-muted);opacity:.65;user-select:none}",
        ".tok.on{box-shadow:inset 0 -2px 0 var(--fig-s2)}.tok.off{color:var(--fig-muted)}",
    ]
    for shade in range(1, LEVELS + 1):
        share = round(6 + 54 * shade / LEVELS)
        rules.append(f".tok.h{shade}{{background:color-mix(in srgb,var(--fig-s1) {share}%,transparent)}}")
    return "\n".join(rules)


TOKEN_STYLE = _style()
"""CSS of token strips, to include once, after the figures' own."""
