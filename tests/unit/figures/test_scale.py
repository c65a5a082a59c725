import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wootz.figures.scale import Axis, finite, log_ticks, measured, nice_ticks, number, span, tick_labels

ordinary = st.floats(-1e12, 1e12)


@given(ordinary, st.floats(1e-9, 1e9), st.integers(2, 8))
def test_ticks_are_inside_evenly_spaced_and_nice(low, width, count):
    high = low + width * max(1.0, abs(low))
    ticks = nice_ticks(low, high, count)
    slack = 1e-9 * (high - low) + 1e-9 * abs(low)
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    assert 1 <= len(ticks) <= count + 1
    if len(ticks) > 2:
        steps = np.diff(ticks)
        assert np.allclose(steps, steps[0], rtol=1e-6)
        mantissa = steps[0] / 10.0 ** math.floor(math.log10(steps[0]) + 1e-9)
        assert min(abs(mantissa - nice) for nice in (1, 2, 2.5, 5, 10)) < 1e-4


@given(st.floats(-250, 250), st.floats(0.5, 40))
def test_log_ticks_are_inside_and_rise(start, decades):
    low, high = 10**start, 10 ** (start + decades)
    ticks = log_ticks(low, high)
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= 9


def test_ticks_of_a_single_value():
    assert nice_ticks(3.0, 3.0) == [3.0]


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([0.0, 0.5, 1.0], ["0.0", "0.5", "1.0"]),
        ([-0.25, 0.0, 0.25], ["−0.25", "0.00", "0.25"]),
        ([0.0, 5e-6, 1e-5], ["0", "5e−6", "1e−5"]),
        ([0.0, 50_000.0], ["0", "50k"]),
        ([1e7, 2.5e7], ["10M", "25M"]),
        ([100.0, 2000.0], ["100", "2000"]),
    ],
)
def test_tick_labels(ticks, labels):
    assert tick_labels(ticks) == labels


@given(st.lists(ordinary, min_size=1, max_size=20), st.booleans())
def test_the_span_holds_every_value_and_is_never_empty(values, log):
    values = [abs(value) + 1e-3 for value in values] if log else values
    low, high = span(values, log=log)
    assert low < high
    assert low <= min(values)
    assert max(values) <= high
    assert not log or low > 0


def test_an_axis_maps_ends_and_middle():
    axis = Axis(-1.0, 3.0, 100.0, 20.0)
    assert [axis.at(value) for value in (-1.0, 1.0, 3.0)] == [100.0, 60.0, 20.0]
    assert axis.clamp(99.0) == 20.0
    log = Axis(0.01, 100.0, 0.0, 400.0, log=True)
    assert log.at(1.0) == pytest.approx(200.0)
    assert log.at(10.0) == pytest.approx(300.0)


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (1, 1.0),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7.0),
        (np.array(2.0), 2.0),
        (None, None),
        ("1", None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
        (1e308, None),
        (10**400, None),
        ([], None),
        ({}, None),
        (np.array([1.0, 2.0]), None),
    ],
)
def test_finite(value, known):
    assert finite(value) == known


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (1234.5, "1,234"),
        (-1234567.0, "−1,234,567"),
        (99.96, "100"),
        (0.00001234, "1.23e−5"),
        (3e15, "3e15"),
        (float("nan"), "n/a"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        ((0.12345, 0.1, 0.15), ("+0.123", "0.100 to 0.150")),
        ((-0.5, -1.0, 0.0), ("−0.5", "−1.0 to 0.0")),
        ((1234.5, 1200.0, 1300.0), ("+1,234", "1,200 to 1,300")),
        ((0.0001, -0.2, 0.2), ("0.00", "−0.20 to 0.20")),
        ((-0.001, -0.2, 0.2), ("0.00", "−0.20 to 0.20")),
        ((1.0, 1.0, 1.0), ("+1", "1 to 1")),
        ((None, 0.0, 1.0), ("n/a", "")),
        ((0.25, None, 1.0), ("+0.25", "")),
    ],
)
def test_an_estimate_has_the_decimals_its_interval_supports(estimate, shown):
    assert measured(*estimate) == shown
