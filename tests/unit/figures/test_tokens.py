from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wootz.figures import token_strip, visible


class Tokens(HTMLParser):
    """Collects the outermost token spans: class, title and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.text = ""
        self.tags: set[str] = set()
        self._depth, self._hidden = 0, 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        given = dict(attrs)
        self._depth += 1
        if "tok" in (given.get("class") or "").split():
            self.found.append({"class": given["class"] or "", "title": given["title"] or "", "text": ""})
        if given.get("aria-hidden"):
            self._hidden = self._depth

    def handle_endtag(self, tag):
        if self._hidden == self._depth:
            self._hidden = 0
        self._depth -= 1

    def handle_data(self, data):
        if self.found and not self._hidden:
            self.found[-1]["text"] += data


def test_shades_follow_values():
    found = Tokens(token_strip(["a", " b", "c", "d"], [0.0, 2.5, 5.0, None], high=5.0, name="surprise")).found
    assert [one["class"] for one in found] == ["tok h0", "tok h4", "tok h8", "tok"]
    assert found[1]["title"] == "1: ' b' surprise 2.5"


def test_a_scale_may_run_downwards():
    found = Tokens(token_strip(["a", "b"], [0.0, -4.0], low=0.0, high=-4.0)).found
    assert [one["class"] for one in found] == ["tok h0", "tok h8"]


def test_marked_pieces_are_told_from_the_others():
    found = Tokens(token_strip(["a", "b", "c"], marked=[False, True])).found
    assert [one["class"] for one in found] == ["tok off", "tok on", "tok off"]


@pytest.mark.parametrize("values", [[1.0], [float("nan"), None], []])
def test_pieces_without_values_are_shown_all_the_same(values):
    assert [one["text"] for one in Tokens(token_strip(["x", "y"], values)).found] == ["x", "y"]


@given(st.lists(st.text(st.characters(exclude_categories=()), min_size=1, max_size=8), min_size=1, max_size=12))
def test_the_text_reads_back_and_holds_no_markup(pieces):
    parsed = Tokens(token_strip(pieces, [0.5] * len(pieces)))
    assert "".join(one["text"] for one in parsed.found) == "".join(visible(piece) for piece in pieces)
    assert parsed.tags == {"span"}


def test_no_pieces_make_an_empty_strip():
    assert Tokens(token_strip([])).found == []
