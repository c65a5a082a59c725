import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.figures.markup import find, number, parse, texts
from wootz.figures import Interval, forest, interval

ROW = Interval("city", 0.5, 0.25, 0.75, margin=0.1, limit=1.0, standing="good")


def test_estimate_interval_zero_and_limit_stand_on_one_scale():
    root = parse(interval(ROW))
    zero = number(find(root, "line", "axis")[0], "x1")
    whisker = find(root, "line", "good")[0]
    low, high = number(whisker, "x1"), number(whisker, "x2")
    [point] = find(root, "circle", "good-fill")
    limit = number(find(root, "line", "bad")[0], "x1")
    scale = (limit - zero) / 1.0
    assert low == pytest.approx(zero + 0.25 * scale, abs=0.02)
    assert high == pytest.approx(zero + 0.75 * scale, abs=0.02)
    assert number(point, "cx") == pytest.approx(zero + 0.5 * scale, abs=0.02)
    band = find(root, "rect", "muted")[0]
    assert number(band, "x") == pytest.approx(zero - 0.1 * scale, abs=0.02)
    assert number(band, "width") == pytest.approx(0.2 * scale, abs=0.02)


def test_standings_differ_in_shape():
    drawn = {
        standing: interval(Interval("m", 1.0, 0.5, 1.5, standing=standing)) for standing in ("good", "bad", "unclear")
    }
    assert len(find(parse(drawn["good"]), "circle")) == 1
    assert len(find(parse(drawn["bad"]), "rect", "bad-fill")) == 1
    assert len(find(parse(drawn["unclear"]), "path", "unclear-fill")) == 1


@pytest.mark.parametrize("value", [None, float("nan")])
def test_what_was_not_measured_is_said(value):
    assert texts(parse(interval(Interval("m", value)))) == ["not measured"]


def test_an_estimate_without_interval_is_a_point():
    root = parse(interval(Interval("m", 0.3)))
    assert not find(root, "line", "neutral")
    assert find(root, "path", "neutral-fill")


def test_a_forest_shares_one_axis():
    rows = [Interval("a", 1.0, 0.0, 2.0), Interval("b", 2.0, 1.0, 3.0), Interval("c", None)]
    root = parse(forest(rows, title="t"))
    first, second = [one for one in find(root, "line", "neutral") if one.get("y1") == one.get("y2")]
    unit = number(second, "x1") - number(first, "x1")
    assert number(first, "x2") - number(first, "x1") == pytest.approx(2 * unit, abs=0.03)
    assert number(second, "y1") - number(first, "y1") == pytest.approx(26)
    assert {"a", "b", "c", "+1.0", "+2.0", "n/a"} <= set(texts(root))


def test_an_empty_forest_is_said():
    assert texts(parse(forest([], title="t"))) == ["No data"]
    assert texts(parse(forest([Interval("a", None)], title="t"))) == ["No data"]


some = st.one_of(st.none(), st.floats())


@given(some, some, some, some, some, st.text(max_size=20))
def test_any_interval_is_well_formed_and_inside(value, low, high, margin, limit, name):
    row = Interval(name, value, low, high, margin, limit, "unclear")
    root = parse(interval(row, width=240.0))
    for one in find(root, "line"):
        assert -0.01 <= number(one, "x1") <= 240.01
        assert -0.01 <= number(one, "x2") <= 240.01
    parse(forest([row, row], title=name))
