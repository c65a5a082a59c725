"""Paired comparisons: estimates with intervals, and what they say about a margin.

Differences are child less parent, item by item. Right-or-wrong items get a closed-form interval for a difference of
paired proportions, which does not collapse when no item changed; other values get the BCa bootstrap, held to an exact test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy import stats

Verdict = Literal["better", "worse", "same", "unclear"]
RESAMPLES = 4000
_EXACT, _FLIPS = 12, 10_000


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval at ``confidence``, a two-sided p-value against 0, and the number of items."""

    mean: float
    low: float
    high: float
    p_value: float
    n: int
    confidence: float = 0.95


def paired(
    child: Sequence[float],
    parent: Sequence[float],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    right_or_wrong: bool = True,
) -> Estimate:
    """Returns the mean difference of paired items with its interval.

    Items that are all 0 or 1: the Agresti-Min interval (2005, Statistics in Medicine 24:729) and McNemar's exact test.
    Otherwise :func:`bootstrap_mean` of the differences with the p-value of :func:`sign_flip`; where that does not reject 0
    the interval is widened to 0. Where few items differ (answers that mostly have one length) a bootstrap alone leaves 0
    out of a fifth of its 95% intervals though nothing changed.

    Args:
        right_or_wrong: False for values that are no verdicts on items, though they may all happen to be 0 (a distance).

    Raises:
        ValueError: No items, or different numbers of them.

    Example:
        >>> paired([1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]).mean
        0.5
    """
    if len(child) != len(parent) or not len(child):
        raise ValueError(f"{len(child)} and {len(parent)} items cannot be paired")
    a, b = np.asarray(child, dtype=float), np.asarray(parent, dtype=float)
    if right_or_wrong and np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all():
        gained, lost = int((a > b).sum()), int((a < b).sum())
        return paired_proportions(gained, lost, len(a), confidence=confidence)
    found, p_value = bootstrap_mean(a - b, confidence=confidence, seed=seed), sign_flip(a - b, seed=seed)
    if p_value > 1 - confidence:
        found = replace(found, low=min(found.low, 0.0), high=max(found.high, 0.0))
    return replace(found, p_value=p_value)


def sign_flip(differences: Float[np.ndarray, " n"], *, seed: int = 0) -> float:
    """Returns the two-sided p-value of the mean difference if each could as well have had the other sign (Fisher 1935).

    Exact under the null hypothesis that child and parent are exchangeable. All signs are tried up to 12 items that
    differ, 9,999 random ones beyond.
    """
    d = differences[differences != 0]
    if len(d) <= _EXACT:
        signs = 1 - 2 * (np.arange(2 ** len(d))[:, None] >> np.arange(len(d)) & 1)
    else:
        draws = 1 - 2 * np.random.default_rng(seed).integers(2, size=(_FLIPS - 1, len(d)))
        signs = np.vstack([np.ones(len(d), dtype=int), draws])
    sums = np.abs(signs @ d)
    return float(np.mean(sums >= np.abs(d.sum()) * (1 - 1e-12)))


def paired_proportions(gained: int, lost: int, n: int, *, confidence: float = 0.95) -> Estimate:
    """Returns (gained - lost) / n with the Agresti-Min interval and McNemar's exact two-sided p-value.

    The interval is Wald's with half an item added to each cell of the two-by-two table:
    d' = (gained - lost) / (n + 2), variance ((gained + lost + 1) / (n + 2) - d'^2) / (n + 2).
    """
    total = n + 2
    centre = (gained - lost) / total
    variance = ((gained + lost + 1) / total - centre**2) / total
    half = stats.norm.ppf(0.5 + confidence / 2) * np.sqrt(variance)
    p_value = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    return Estimate((gained - lost) / n, float(low), float(high), float(p_value), n, confidence)


def bootstrap_mean(
    values: Float[np.ndarray, " n"] | Sequence[float],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    clusters: Sequence[object] | None = None,
) -> Estimate:
    """Returns the mean of the values with a bootstrap interval (BCa: Efron 1987, JASA 82:171).

    Args:
        clusters: Values of one cluster are drawn together; the mean is over values.

    The p-value is Student's t-test of the mean (of cluster sums, with clusters) against 0. Equal values give an interval
    of width 0.
    """
    x = np.asarray(values, dtype=float)
    if x.size == 0:
        raise ValueError("no values")
    mean, n = float(x.mean()), x.size
    if clusters is None and np.ptp(x) == 0:
        return Estimate(mean, mean, mean, 0.0 if mean else 1.0, n, confidence)
    rng = np.random.default_rng(seed)
    if clusters is not None:
        return _clustered(x, list(clusters), rng, confidence)
    found = stats.bootstrap((x,), np.mean, n_resamples=RESAMPLES, confidence_level=confidence, method="BCa", rng=rng)
    low, high = float(found.confidence_interval.low), float(found.confidence_interval.high)
    if not (np.isfinite(low) and np.isfinite(high)):  # too few distinct values for the acceleration
        half = stats.t.ppf(0.5 + confidence / 2, n - 1) * x.std(ddof=1) / np.sqrt(n)
        low, high = mean - half, mean + half
    return Estimate(mean, low, high, _t_test(x), n, confidence)


def _clustered(x: np.ndarray, clusters: list[object], rng: np.random.Generator, confidence: float) -> Estimate:
    if len(clusters) != x.size:
        raise ValueError(f"{len(clusters)} cluster names for {x.size} values")
    names = {name: index for index, name in enumerate(dict.fromkeys(clusters))}
    owner = np.array([names[name] for name in clusters])
    sums, sizes = np.bincount(owner, x), np.bincount(owner)
    draws = rng.integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[draws].sum(1) / sizes[draws].sum(1)
    low, high = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    p_value = _t_test(sums) if len(sums) > 1 and np.ptp(sums) else 1.0
    return Estimate(float(x.mean()), float(low), float(high), p_value, x.size, confidence)


def _t_test(x: np.ndarray) -> float:
    found: Any = stats.ttest_1samp(x, 0.0)
    return float(found.pvalue)


def proportion(successes: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Returns Wilson's score interval of a proportion (1927, JASA 22:209)."""
    interval = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values adjusted for their number (Holm 1979), in the given order.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def compare(estimate: Estimate, *, margin: float = 0.0, higher_is_better: bool = True) -> Verdict:
    """Returns what an interval says: wholly above 0 ``better``, wholly below ``worse``, within +-margin ``same``.

    Above and below are turned round for a measure where lower is better. An interval that is wholly above 0 and within the
    margin is ``better``: the difference is real, if small.
    """
    low, high = (estimate.low, estimate.high) if higher_is_better else (-estimate.high, -estimate.low)
    if low > 0:
        return "better"
    if high < 0:
        return "worse"
    if -margin <= low and high <= margin:
        return "same"
    return "unclear"
