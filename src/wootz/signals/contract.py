"""What every signal owes: one score a completion, finite, in order. And a signal made of comparisons."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from wootz.core.errors import SignalError
from wootz.core.protocols import Comparer, Signal
from wootz.core.records import Comparison, Group, Score


def checked_score(signal: Signal, groups: list[Group]) -> list[list[Score]]:
    """Returns the signal's scores. Raises SignalError when a group or a completion lacks one, or one is not finite."""
    scores = signal.score(groups)
    name = type(signal).__name__
    if len(scores) != len(groups):
        raise SignalError(f"{name} scored {len(scores)} groups of {len(groups)}")
    for group, inner in zip(groups, scores, strict=True):
        if len(inner) != len(group.completions):
            raise SignalError(
                f"{name} gave {len(inner)} scores for {len(group.completions)} completions", where=f"group {group.id}"
            )
        for score in inner:
            if score.value is not None and not math.isfinite(score.value):
                raise SignalError(f"{name} gave {score.value}", where=f"group {group.id}")
    return scores


def as_signal(comparer: Comparer, how: Literal["win_rate", "bradley_terry"] = "win_rate") -> Signal:
    """Returns a signal made of comparisons.

    ``win_rate``: a completion's mean probability of winning its comparisons. ``bradley_terry``: the strengths whose logistic
    differences fit the comparisons best, centred in each group (Bradley and Terry 1952), with a weak pull to 0 that keeps
    them finite. A completion that was never compared has no score.
    """
    return _Compared(comparer, how)


class _Compared:
    def __init__(self, comparer: Comparer, how: str) -> None:
        self._comparer = comparer
        self._fit = {"win_rate": _win_rates, "bradley_terry": _strengths}[how]

    def score(self, groups: list[Group]) -> list[list[Score]]:
        compared = self._comparer.compare(groups)
        if len(compared) != len(groups):
            raise SignalError(f"the comparer answered for {len(compared)} groups of {len(groups)}")
        return [
            [Score(value) for value in self._fit(len(group.completions), comparisons)]
            for group, comparisons in zip(groups, compared, strict=True)
        ]


def _win_rates(count: int, comparisons: list[Comparison]) -> list[float | None]:
    won, played = np.zeros(count), np.zeros(count)
    for one in comparisons:
        won[one.i] += one.p_win
        won[one.j] += 1 - one.p_win
        played[[one.i, one.j]] += 1
    return [float(w / p) if p else None for w, p in zip(won, played, strict=True)]


def _strengths(count: int, comparisons: list[Comparison], pull: float = 1e-2, steps: int = 50) -> list[float | None]:
    """Newton's method on the penalised log-likelihood, which is concave."""
    seen = {index for one in comparisons for index in (one.i, one.j)}
    strength = np.zeros(count)
    for _ in range(steps):
        gradient, curvature = -pull * strength, pull * np.eye(count)
        for one in comparisons:
            p = 1 / (1 + np.exp(strength[one.j] - strength[one.i]))
            gradient[one.i] += one.p_win - p
            gradient[one.j] -= one.p_win - p
            w = p * (1 - p)
            for a, b, sign in ((one.i, one.i, 1), (one.j, one.j, 1), (one.i, one.j, -1), (one.j, one.i, -1)):
                curvature[a, b] += sign * w
        change = np.linalg.solve(curvature, gradient)
        strength += np.clip(change, -2, 2)
        if np.abs(change).max() < 1e-10:
            break
    centre = strength[sorted(seen)].mean() if seen else 0.0
    return [float(strength[index] - centre) if index in seen else None for index in range(count)]
