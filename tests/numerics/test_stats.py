"""Intervals against closed forms, scipy and simulated coverage."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from wootz.core.stats import Estimate, bootstrap_mean, compare, holm, paired, paired_proportions, proportion, sign_flip


def test_paired_proportions_by_hand():
    # 30 gained, 10 lost of 100: d' = 20/102, variance = ((41/102) - d'^2) / 102.
    centre = 20 / 102
    half = 1.959963984540054 * np.sqrt((41 / 102 - centre**2) / 102)
    found = paired_proportions(30, 10, 100)
    assert found.mean == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))
    assert found.p_value == pytest.approx(2 * scipy_stats.binom.cdf(10, 40, 0.5))


def test_no_change_still_has_a_width():
    found = paired_proportions(0, 0, 50)
    assert found.low == pytest.approx(-found.high)
    assert 0.03 < found.high < 0.05
    assert found.p_value == 1.0


def test_paired_dispatches_on_the_values():
    assert paired([1.0, 0.0, 1.0], [0.0, 0.0, 1.0]) == paired_proportions(1, 0, 3)
    floats = paired([0.5, 0.7, 0.9, 0.2], [0.1, 0.3, 0.8, 0.4], seed=3)
    assert floats.mean == pytest.approx(0.175)
    # Differences 0.4, 0.4, 0.1, -0.2: of 16 ways to sign them, 6 are as far from 0 as their sum.
    assert floats.p_value == pytest.approx(6 / 16)
    assert floats.low <= 0 <= floats.high


@pytest.mark.parametrize("sizes", [(2, 3), (0, 0)])
def test_what_cannot_be_paired(sizes):
    with pytest.raises(ValueError, match="cannot be paired"):
        paired([1.0] * sizes[0], [1.0] * sizes[1])


@pytest.mark.parametrize(
    ("chance_up", "chance_down", "n"), [(0.3, 0.1, 60), (0.05, 0.05, 40), (0.6, 0.0, 30), (0.01, 0.02, 80)]
)
def test_coverage_of_paired_proportions(chance_up, chance_down, n):
    rng = np.random.default_rng(0)
    draws = rng.multinomial(n, [chance_up, chance_down, 1 - chance_up - chance_down], size=1500)
    truth = chance_up - chance_down
    inside = [f.low <= truth <= f.high for f in (paired_proportions(int(a), int(b), n) for a, b, _ in draws)]
    assert np.mean(inside) > 0.93


def test_coverage_of_the_bootstrap():
    rng = np.random.default_rng(1)
    inside = []
    for index in range(150):
        found = bootstrap_mean(rng.exponential(size=40), seed=index)
        inside.append(found.low <= 1.0 <= found.high)
    assert 0.88 <= np.mean(inside) <= 0.99


def test_bootstrap_agrees_with_the_normal_interval_on_many_values():
    x = np.random.default_rng(2).normal(3.0, 2.0, size=2000)
    found = bootstrap_mean(x)
    half = 1.96 * x.std(ddof=1) / np.sqrt(2000)
    assert (found.low, found.high) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.02)
    assert found == bootstrap_mean(x)


def test_equal_values():
    found = bootstrap_mean([2.0] * 9)
    assert (found.mean, found.low, found.high) == (2.0, 2.0, 2.0)
    assert bootstrap_mean([0.0] * 9).p_value == 1.0


def test_clusters_widen_the_interval_as_the_theory_says():
    # 25 clusters of 8 equal values: the spread is that of 25 values, sqrt(8) wider than that of 200.
    values = np.random.default_rng(4).normal(size=25)
    repeated, names = np.repeat(values, 8), np.repeat(np.arange(25), 8)
    alone, together = bootstrap_mean(values), bootstrap_mean(repeated, clusters=list(names))
    assert together.mean == pytest.approx(alone.mean)
    assert together.high - together.low == pytest.approx(alone.high - alone.low, rel=0.12)


def test_wilson_by_hand():
    z, p, n = 1.959963984540054, 0.8, 50
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    assert proportion(40, 50) == pytest.approx((centre - half, centre + half))


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_the_family_wise_error():
    rng = np.random.default_rng(5)
    p_values = rng.random((4000, 5))
    assert np.mean([min(holm(list(row))) <= 0.05 for row in p_values]) == pytest.approx(0.05, abs=0.012)


@pytest.mark.parametrize(
    ("low", "high", "margin", "higher", "verdict"),
    [
        (0.01, 0.2, 0.0, True, "better"),
        (-0.2, -0.01, 0.0, True, "worse"),
        (-0.2, -0.01, 0.0, False, "better"),
        (-0.01, 0.015, 0.02, True, "same"),
        (-0.03, 0.015, 0.02, True, "unclear"),
        (0.001, 0.01, 0.02, True, "better"),
        (0.0, 0.0, 0.0, True, "same"),
    ],
)
def test_compare(low, high, margin, higher, verdict):
    estimate = Estimate((low + high) / 2, low, high, 0.5, 10)
    assert compare(estimate, margin=margin, higher_is_better=higher) == verdict


def test_sign_flip_by_hand():
    # Of the eight ways to sign 1, 2, 3 the sum is as far from 0 as 6 in two, as far as 4 in four.
    assert sign_flip(np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / 8)
    assert sign_flip(np.array([-1.0, 2.0, 3.0, 0.0, 0.0])) == pytest.approx(4 / 8)
    assert sign_flip(np.zeros(5)) == 1.0
    assert sign_flip(np.full(200, 0.1)) < 2e-4


def test_sign_flip_agrees_with_the_t_test_on_many_values():
    x = np.random.default_rng(3).normal(0.15, 1, size=300)
    assert sign_flip(x) == pytest.approx(float(scipy_stats.ttest_1samp(x, 0).pvalue), abs=0.01)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.6])
def test_values_that_mostly_agree_raise_no_false_alarms(share):
    """Two draws of the same law, equal in most items: 0 is outside the interval in at most 5% of comparisons."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(400):
        a, b = (np.where(rng.random(60) < share, rng.normal(-1, 1, 60), 0.0) for _ in range(2))
        found = paired(a.tolist(), b.tolist(), right_or_wrong=False)
        alarms += found.low > 0 or found.high < 0
        assert found.low <= found.mean <= found.high
    assert alarms / 400 < 0.05 + 2.6 * (0.05 * 0.95 / 400) ** 0.5
