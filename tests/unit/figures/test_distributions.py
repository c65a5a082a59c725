import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.figures.markup import find, number, parse, texts
from wootz.figures import heat_map, histogram
from wootz.figures.distributions import bin_edges


def test_bars_are_as_high_as_the_shares():
    values = [random.Random(0).gauss(0, 1) for _ in range(500)]
    edges = bin_edges(values)
    counts, _ = np.histogram(values, edges)
    bars = find(parse(histogram({"a": values}, title="t")), "rect")
    heights = np.array([number(bar, "height") for bar in bars])
    assert np.allclose(heights / heights.sum(), counts[counts > 0] / 500, atol=1e-3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_edges_cover_the_values_evenly(values):
    edges = bin_edges(values)
    slack = 1e-8 * (edges[-1] - edges[0])
    assert edges[0] <= min(values) + slack
    assert edges[-1] >= max(values) - slack
    assert np.allclose(np.diff(edges), edges[1] - edges[0], rtol=1e-6)
    assert len(edges) <= 60


def test_whole_numbers_get_whole_bins():
    edges = bin_edges([0, 1, 2, 3, 3, 2, 5, 4])
    assert all(edge == int(edge) for edge in edges)


def test_groups_are_shares_of_their_own():
    root = parse(histogram({"parent": [1.0] * 10, "child": [2.0] * 1000, "none": []}, title="t"))
    a, b = find(root, "g", "s0")[0], find(root, "g", "s1")[0]
    assert number(find(a, "rect")[0], "height") == pytest.approx(number(find(b, "rect")[0], "height"))


@pytest.mark.parametrize("groups", [{}, {"a": []}, {"a": [None, float("nan")]}])
def test_nothing_to_count_is_said(groups):
    assert texts(parse(histogram(groups, title="t"))) == ["No data"]


def test_values_that_are_not_numbers_are_counted():
    root = parse(histogram({"a": [1.0, 2.0, None, float("nan")]}, title="t"))
    assert "2 values are not numbers" in (find(root, "desc")[0].text or "")


def test_heat_is_opacity_by_magnitude_and_hue_by_sign():
    svg = heat_map([[1.0, -0.5], [None, 0.0]], rows=["a", "b"], columns=["x", "<y>"], title="t")
    root = parse(svg)
    full, negative = find(root, "rect", "s0-fill")[0], find(root, "rect", "s1-fill")[0]
    assert number(full, "fill-opacity") == pytest.approx(1.0)
    assert number(negative, "fill-opacity") == pytest.approx(0.06 + 0.94 / 2)
    assert number(negative, "x") - number(full, "x") == pytest.approx(28)
    titles = ["".join(one.itertext()) for one in find(root, "title")]
    assert {"a, x: 1", "a, <y>: −0.5", "b, x: n/a", "b, <y>: 0"} <= set(titles)


def test_an_empty_heat_map_is_said():
    assert texts(parse(heat_map([], rows=[], columns=[], title="t"))) == ["No data"]
