"""SVG as text: escaping, elements, the colours that all figures share.

A figure is a whole ``<svg>`` element. It looks right alone, in any viewer, because every mark carries its light colour
as an attribute; where a page includes :data:`STYLE` the classes win, and it follows the light or dark scheme.
"""

from __future__ import annotations

import html
import re

FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
CHARACTER = 0.56
"""Mean width of a character, as a share of the font size: SVG text cannot be measured before it is drawn."""
SIZE = 11
"""Font size of labels, in pixels."""

# Okabe and Ito's colours (https://jfly.uni-koeln.de/color/), told apart by all common kinds of colour vision, without
# the yellow, which vanishes on white. Dark: the same hues, lighter.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5a5a5a")
SERIES_DARK = ("#5ab1ef", "#ff8c42", "#35c79b", "#e59cc3", "#f0b93a", "#8fd0f7", "#b5b5b5")
DASHES = ("", "6 3", "2 2.5", "8 3 2 3", "1.5 3.5", "10 4", "4 1.5")
LIGHT = {"ink": "#1f1e1b", "muted": "#66625a", "grid": "#e6e2d9", "axis": "#b9b3a7", "paper": "#ffffff"}
DARK = {"ink": "#ece8e0", "muted": "#a39d92", "grid": "#33312d", "axis": "#5d5951", "paper": "#1b1a18"}
STATUS = {"good": "#1b7f4d", "bad": "#b3361f", "unclear": "#946200", "neutral": "#66625a"}
STATUS_DARK = {"good": "#4cc38a", "bad": "#ff8f73", "unclear": "#e5b34c", "neutral": "#a39d92"}

# What could hide, reorder or break what surrounds it: control characters, bidirectional overrides and isolates,
# invisible tags, lone surrogates, noncharacters. They are made visible; the rest of Unicode stays as it is.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: object) -> str:
    r"""Returns text in which nothing acts unseen: ``\\x00`` becomes ``⟨U+0000⟩``, carriage returns newlines.

    Example:
        >>> visible("a\x00b\u202ec")
        'a⟨U+0000⟩b⟨U+202E⟩c'
    """
    plain = str(text).replace("\r\n", "\n").replace("\r", "\n")
    return _HIDDEN.sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", plain)


def escape(text: object) -> str:
    """Returns text for an element's content or a quoted attribute, of HTML or XML."""
    return html.escape(visible(text), quote=True)


def element(tag: str, content: str = "", **attributes: object) -> str:
    """Returns ``<tag ...>content</tag>``; attributes escaped, underscores become hyphens, None leaves one out.

    ``content`` is markup and goes in as it is: pass text through :func:`escape`.

    Example:
        >>> element("text", escape("a < b"), x=1.5, text_anchor="end")
        '<text x="1.5" text-anchor="end">a &lt; b</text>'
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is not None:
            shown = pixels(value) if isinstance(value, float) else escape(value)
            parts.append(f'{name.rstrip("_").replace("_", "-")}="{shown}"')
    opening = " ".join(parts)
    return f"<{opening}>{content}</{tag}>" if content else f"<{opening}/>"


def pixels(value: float) -> str:
    """Returns a coordinate to a hundredth of a pixel, as short as it goes."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def label(text: object, x: float, y: float, **attributes: object) -> str:
    """Returns a muted text mark; ``class_`` and the rest as attributes."""
    given = {"class_": "muted", "fill": LIGHT["muted"], "font_size": SIZE, **attributes}
    return element("text", escape(text), x=x, y=y, **given)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> str:
    """Returns a straight line, by default one of the grid."""
    given = {"class_": "grid", "stroke": LIGHT["grid"], "stroke_width": 1, **attributes}
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **given)


def text_width(text: str, size: float = SIZE) -> float:
    """Returns about how wide a text will be, in pixels."""
    return len(text) * size * CHARACTER


def shorten(text: object, room: float, size: float = SIZE) -> str:
    """Returns the text, cut with an ellipsis where it would be wider than ``room`` pixels."""
    plain = visible(text)
    most = max(1, int(room / (size * CHARACTER)))
    return plain if len(plain) <= most else plain[: max(1, most - 1)] + "\u2026"


def figure(content: str, width: float, height: float, *, title: str, desc: str = "", **attributes: object) -> str:
    """Returns the whole ``<svg>``: shrinks with its container, and is read out by its title and description."""
    told = element("title", escape(title)) + (element("desc", escape(desc)) if desc else "")
    return element(
        "svg",
        told + content,
        xmlns="http://www.w3.org/2000/svg",
        class_="fig",
        viewBox=f"0 0 {pixels(width)} {pixels(height)}",
        width=width,
        height=height,
        role="img",
        font_family=FONT,
        **attributes,
    )


def empty(width: float, height: float, *, title: str, message: str = "No data") -> str:
    """Returns a figure that says that there is nothing to draw."""
    text = label(message, width / 2, height / 2, text_anchor="middle")
    return figure(text, width, height, title=title, desc=message)


def _rules(series: tuple[str, ...], tones: dict[str, str], status: dict[str, str]) -> str:
    names = {f"s{i}": colour for i, colour in enumerate(series)} | tones | status
    return "".join(f"--fig-{name}:{colour};" for name, colour in names.items())


def _style() -> str:
    lines = [
        f":root{{{_rules(SERIES, LIGHT, STATUS)}}}",
        f"@media (prefers-color-scheme:dark){{:root{{{_rules(SERIES_DARK, DARK, STATUS_DARK)}}}}}",
        ".fig{display:block;max-width:100%;height:auto}",
        ".fig .ink{fill:var(--fig-ink)}.fig .muted{fill:var(--fig-muted)}.fig .paper{fill:var(--fig-paper)}",
        ".fig .grid{stroke:var(--fig-grid)}.fig .axis{stroke:var(--fig-axis)}.fig .edge{stroke:var(--fig-paper)}",
    ]
    for name in [f"s{i}" for i in range(len(SERIES))] + list(STATUS):
        lines.append(f".fig .{name}{{stroke:var(--fig-{name})}}.fig .{name}-fill{{fill:var(--fig-{name})}}")
    return "\n".join(lines)


STYLE = _style()
"""CSS to include once in a page that shows figures."""
