import itertools
import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wootz.figures import svg
from wootz.figures.svg import element, escape, label, shorten, visible

any_text = st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, exclude_categories=()))


@given(any_text)
def test_any_text_makes_well_formed_markup_that_reads_back(text):
    root = ElementTree.fromstring(label(text, 0.0, 0.0))
    assert "".join(root.itertext()) == visible(text)


@given(any_text)
def test_any_attribute_is_well_formed(text):
    root = ElementTree.fromstring(element("g", data_x=text))
    assert root.get("data-x") == visible(text).replace("\n", " ").replace("\t", " ")


@given(any_text)
def test_visible_text_can_be_written_and_hides_nothing(text):
    shown = visible(text)
    shown.encode("utf-8")
    assert not set(shown) & set("\0\x1b\x7f\u202e\u2066\u2069\ufffe\U000e0041")
    assert visible(shown) == shown


def test_letters_of_all_scripts_stay():
    text = "naïve العربية עברית हिन्दी 日本語 👩\u200d🔬 \u200f"
    assert visible(text) == text


@pytest.mark.parametrize("hostile", ["<script>", '"onload="', "'", "&amp;", "]]>", "-->"])
def test_markup_in_text_is_text(hostile):
    assert "<" not in escape(hostile)
    assert '"' not in escape(hostile)
    assert ElementTree.fromstring(element("text", escape(hostile), title=hostile)).get("title") == hostile


def test_shortened_text_fits():
    assert shorten("abcdef", 1000) == "abcdef"
    cut = shorten("a" * 100, 60.0)
    assert cut.endswith("…")
    assert svg.text_width(cut) <= 60.0


def _linear(colour: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def _contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio."""
    light = [sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), _linear(x), strict=True)) for x in (one, other)]
    return (max(light) + 0.05) / (min(light) + 0.05)


# Machado, Oliveira and Fernandes 2009, full severity, in linear RGB.
VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def _oklab(rgb: list[float]) -> list[float]:
    """Ottosson's OKLab of linear RGB."""
    to_lms = ((0.4122215, 0.5363325, 0.0514460), (0.2119035, 0.6806995, 0.1073970), (0.0883025, 0.2817188, 0.6299787))
    lms = [max(0.0, sum(w * c for w, c in zip(row, rgb, strict=True))) ** (1 / 3) for row in to_lms]
    to_lab = (
        (0.2104543, 0.7936178, -0.0040720),
        (1.9779985, -2.4285922, 0.4505937),
        (0.0259040, 0.7827718, -0.8086758),
    )
    return [sum(w * c for w, c in zip(row, lms, strict=True)) for row in to_lab]


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("palette", [svg.SERIES, svg.SERIES_DARK], ids=["light", "dark"])
def test_series_are_told_apart_by_any_vision(palette, vision):
    seen = [
        [sum(w * c for w, c in zip(row, _linear(colour), strict=True)) for row in VISION[vision]] for colour in palette
    ]
    distances = [math.dist(_oklab(a), _oklab(b)) for a, b in itertools.combinations(seen[:5], 2)]
    assert min(distances) > 0.05, "0.02 is just noticeable"


@pytest.mark.parametrize(
    ("tones", "status"), [(svg.LIGHT, svg.STATUS), (svg.DARK, svg.STATUS_DARK)], ids=["light", "dark"]
)
def test_text_has_enough_contrast(tones, status):
    for colour in (tones["ink"], tones["muted"], *status.values()):
        assert _contrast(colour, tones["paper"]) >= 4.5


def test_the_style_follows_the_scheme():
    light, dark = svg.STYLE.split("@media (prefers-color-scheme:dark)")
    assert f"--fig-s0:{svg.SERIES[0]};" in light
    assert f"--fig-s0:{svg.SERIES_DARK[0]};" in dark
