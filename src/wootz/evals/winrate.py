"""Win rates with the length of the answers taken out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def length_controlled(
    wins: Sequence[float], length_differences: Sequence[float], *, pull: float = 1e-3
) -> tuple[float, Float[np.ndarray, " n"]]:
    """Returns the win rate at equal length, and each item's win with the effect of length taken out.

    Fits win ~ sigmoid(a + b * x) with x = tanh(length difference / its standard deviation) and returns sigmoid(a) (after
    Dubois et al. 2024, arXiv:2404.04475). Item values are win - sigmoid(a + b x) + sigmoid(a); by the maximum-likelihood
    condition for a their mean is the controlled win rate, so that intervals can be taken over items.

    Args:
        wins: 1 a win, 0 a loss, 0.5 a tie.
        length_differences: Own length less the other's, any unit.
        pull: Weight of b's squared penalty, an item's worth at 1; keeps b finite when length alone decides.

    Raises:
        ValueError: Different numbers of values, or none.
    """
    y, d = np.asarray(wins, dtype=float), np.asarray(length_differences, dtype=float)
    if y.shape != d.shape or not y.size:
        raise ValueError(f"{y.size} wins and {d.size} length differences")
    spread = d.std()
    x = np.tanh(d / spread) if spread > 0 else np.zeros_like(d)
    design = np.stack([np.ones_like(x), x], axis=1)
    # Half a win and half a loss at equal length keep a finite when every item is won.
    weights, penalty = np.zeros(2), np.diag([0.0, pull])
    prior = np.array([1.0, 0.0])
    for _ in range(100):
        p = _sigmoid(design @ weights)
        p0 = _sigmoid(weights[0])
        gradient = design.T @ (y - p) - penalty @ weights + pull * prior * (0.5 - p0)
        curvature = (
            (design * (p * (1 - p))[:, None]).T @ design + penalty + pull * np.outer(prior, prior) * p0 * (1 - p0)
        )
        curvature += 1e-12 * np.eye(2)
        change = np.clip(np.linalg.solve(curvature, gradient), -2, 2)
        weights += change
        if np.abs(change).max() < 1e-10:
            break
    rate = float(_sigmoid(weights[0]))
    return rate, y - _sigmoid(design @ weights) + rate


def _sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -50, 50)))
