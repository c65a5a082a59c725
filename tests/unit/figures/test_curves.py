import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.figures.markup import find, number, parse, points, texts
from wootz.figures import Frame, Limit, Mark, Phase, Series, curves

NAN = float("nan")


def drawn(svg: str, name: str) -> list[list[tuple[float, float]]]:
    """The stretches of a named line, back in its own numbers."""
    root = parse(svg)
    x_low, x_high, x_start, x_stop = map(float, root.get("data-x", "").split())
    y_low, y_high, y_start, y_stop = map(float, root.get("data-y", "").split())
    log = root.get("data-log") == "y"
    group = next(g for g in find(root, "g") if g.get("data-series") == name)

    def back(px: float, py: float) -> tuple[float, float]:
        share = (py - y_start) / (y_stop - y_start)
        y = 10 ** (math.log10(y_low) + share * math.log10(y_high / y_low)) if log else y_low + share * (y_high - y_low)
        return x_low + (px - x_start) / (x_stop - x_start) * (x_high - x_low), y

    return [[back(*point) for point in points(line)] for line in find(group, "polyline")]


def test_points_are_where_the_numbers_say():
    svg = curves([Series("loss", [0, 5, 10], [4.0, 1.0, 2.0])], Frame(y_range=(0.0, 4.0)), title="Loss")
    [line] = drawn(svg, "loss")
    assert np.allclose(line, [(0, 4), (5, 1), (10, 2)], atol=0.05)
    root = parse(svg)
    [(x1, y1), (x2, y2), _] = points(next(p for p in find(root, "polyline")))
    assert (x1, y1) == (14 + 11 * 0.56, 15.0)  # one character of tick labels; top of the plot
    assert y2 == pytest.approx(162 - (162 - 15) / 4, abs=0.01)
    assert x2 == pytest.approx((x1 + 330 - 14) / 2, abs=0.01)


def test_the_axis_of_positive_numbers_starts_at_zero():
    root = parse(curves([Series("a", [1, 2], [0.2, 4.0])], title="a"))
    assert root.get("data-y", "").split()[0] == "0"


@pytest.mark.parametrize("gap", [NAN, None, math.inf])
def test_what_is_not_finite_is_a_gap(gap):
    svg = curves([Series("a", range(6), [1, 2, gap, 3, 4, 5])], title="a")
    assert [len(line) for line in drawn(svg, "a")] == [2, 3]


def test_a_lone_point_is_a_dot():
    root = parse(curves([Series("a", [3], [7.0])], title="a"))
    assert not find(root, "polyline")
    [dot] = find(root, "circle")
    x_low, x_high, x_start, x_stop = map(float, root.get("data-x", "").split())
    assert number(dot, "cx") == pytest.approx(x_start + (3 - x_low) / (x_high - x_low) * (x_stop - x_start), abs=0.01)


@pytest.mark.parametrize("series", [[], [Series("a", [], [])], [Series("a", [1, 2], [NAN, None])]])
def test_nothing_to_draw_is_said(series):
    assert texts(parse(curves(series, title="a"))) == ["No data"]


def test_a_log_axis_maps_powers_evenly_and_counts_what_it_cannot_show():
    svg = curves([Series("a", range(5), [1.0, 10.0, 100.0, 0.0, -3.0])], Frame(log_y=True), title="a")
    [line] = drawn(svg, "a")
    assert np.allclose([y for _, y in line], [1, 10, 100], rtol=0.02)
    [stretch] = [points(p) for p in find(parse(svg), "polyline")]
    assert stretch[0][1] - stretch[1][1] == pytest.approx(stretch[1][1] - stretch[2][1], abs=0.02)
    assert "2 values of 0 or less are not shown" in texts(parse(svg))


def test_marks_phases_and_limits_stand_at_their_values():
    svg = curves(
        [Series("kl", [0, 100], [0.0, 10.0])],
        Frame(y_range=(0.0, 20.0)),
        title="KL",
        marks=[Mark(50, "too far", "bad"), Mark(500, "outside")],
        phases=[Phase("sft", 0, 25), Phase("dpo", 25, 100)],
        limits=[Limit(15.0, "stop above"), Limit(1e9)],
    )
    root = parse(svg)
    _, _, x_start, x_stop = map(float, root.get("data-x", "").split())
    _, _, y_start, y_stop = map(float, root.get("data-y", "").split())
    [mark] = [g for g in find(root, "g") if g.get("data-mark")]
    assert number(find(mark, "line")[0], "x1") == pytest.approx((x_start + x_stop) / 2, abs=0.01)
    assert "too far (50)" in "".join(mark.itertext())
    first, second = find(root, "rect")
    assert number(first, "width") * 3 == pytest.approx(number(second, "width"), abs=0.05)
    [rule] = find(root, "line", "bad")[:1]
    assert "stop above 15" in texts(root)
    limit = next(one for one in find(root, "line", "bad") if one.get("y1") == one.get("y2"))
    assert number(limit, "y1") == pytest.approx(y_start + 0.75 * (y_stop - y_start), abs=0.01)
    assert rule is not None


def test_a_limit_far_away_does_not_flatten_the_curve():
    near = parse(curves([Series("a", [0, 1], [0.0, 10.0])], title="a", limits=[Limit(15.0)]))
    far = parse(curves([Series("a", [0, 1], [0.0, 10.0])], title="a", limits=[Limit(1e6)]))
    assert float(near.get("data-y", "").split()[1]) > 15
    assert float(far.get("data-y", "").split()[1]) < 12


def test_the_legend_names_lines_but_not_faint_ones():
    series = [Series("raw", [0, 1], [0, 1], faint=True), Series("a", [0, 1], [0, 1]), Series("b", [0, 1], [1, 0])]
    found = texts(parse(curves(series, title="t")))
    assert "a" in found
    assert "b" in found
    assert "raw" not in found


def test_the_same_numbers_give_the_same_text():
    series = [Series(name, range(100), [math.sin(k * i) for i in range(100)]) for k, name in enumerate("abcdefghij")]
    assert curves(series, title="t") == curves(series, title="t")


@given(
    st.lists(st.tuples(st.floats(), st.one_of(st.none(), st.floats())), max_size=12),
    st.booleans(),
    st.text(max_size=30),
)
def test_any_numbers_and_names_give_well_formed_figures_inside_their_frame(pairs, log, name):
    series = Series(name, [x for x, _ in pairs], [y for _, y in pairs])
    root = parse(curves([series, series], Frame(log_y=log), title=name, marks=[Mark(1.0, name)], limits=[Limit(2.0)]))
    for line in find(root, "polyline"):
        for x, y in points(line):
            assert 0 <= x <= 330
            assert 0 <= y <= 196
