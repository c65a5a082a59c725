"""How many labels go against what the rest of the data teaches.

A classifier of wordings (TF-IDF of the answers, and their cues) is cross-validated by prompts. Let m be the held-out
margin of a comparison, better minus worse. If labels are right with odds that grow with the margin, and a share r of
them was then turned round, the label that was given agrees with the margin with probability

    p(m) = r + (1 - 2 r) sigmoid(a m)

(Bootkrajang and Kaban 2012, Label-noise robust logistic regression). Where margins are large, p levels off at 1 - r and
not at 1: this is what r is read from. Both r and a are fitted by maximum likelihood on held-out margins; the interval is
the profile likelihood's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from wootz.data.comparisons import BLOCKS, Comparisons, Told, logistic, told

ENOUGH = 200
"""Fewest comparisons to estimate from."""
_WORDS = 2**15
_STRENGTH = 0.1  # of 0.01 to 10 the one whose rates were nearest to planted ones
_TELLING = 0.55
_WIDEST = 0.1
_SUSPECT = 0.9
_DROP = 1.9207  # of log-likelihood, at the ends of a 95% interval: half of chi-squared's point at 1 degree of freedom
_RATES = np.round(np.linspace(0.0, 0.49, 99), 3)
_SLOPES = np.geomspace(0.02, 50.0, 80)


@dataclass(frozen=True)
class LabelNoise:
    """The share of labels that look turned round.

    Attributes:
        rate: The estimate; None when it is not known to 5 points either way.
        low: Lower end of its 95% interval; None when nothing could be fitted.
        high: Upper end.
        told: How often held-out comparisons are told by their wording.
        why: Why there is no estimate; empty when there is one.
        suspects: Positions of comparisons that are turned round with probability 0.9 or more, the surest first.
    """

    rate: float | None
    low: float | None
    high: float | None
    told: Told
    why: str = ""
    suspects: tuple[int, ...] = ()


def label_noise(compared: Comparisons, cues: Float[np.ndarray, "N parts"]) -> LabelNoise:
    """Returns the estimate for comparisons, with their differences in cues; None as its rate, with the reason, when the
    comparisons are too few, or wording tells too little, or rates far apart fit equally well.

    It is an estimate of disagreement with the wording: a label given for a reason that words do not show, such as a wrong
    number in fluent text, counts as turned round when the words speak clearly for the other side. The interval of the
    accuracy is a little narrow (the folds share rows); it only decides whether to estimate at all.
    """
    if len(compared) < ENOUGH:
        nothing = Told(0.5, 0.0, 1.0, 0)
        return LabelNoise(None, None, None, nothing, f"{len(compared):,} comparisons; {ENOUGH} are needed")
    margins = _margins(_features(compared, cues), compared.block)
    found = told(margins, compared.prompts)
    if found.low < _TELLING:
        why = (
            f"wording tells {found.accuracy:.0%} of held-out pairs ({found.low:.0%} to {found.high:.0%}): too few to "
            "know wrong labels from hard pairs"
        )
        return LabelNoise(None, None, None, found, why)
    rate, low, high, slope = fit_rate(margins)
    if high - low > _WIDEST:
        why = f"any rate from {low:.0%} to {high:.0%} fits: wording tells {found.accuracy:.0%} of held-out pairs"
        return LabelNoise(None, low, high, found, why)
    right = _sigmoid(slope * margins)
    turned = rate * (1 - right) / (rate + (1 - 2 * rate) * right)
    surest = np.argsort(-turned, kind="stable")
    suspects = tuple(int(position) for position in surest if turned[position] >= _SUSPECT)
    return LabelNoise(rate, low, high, found, suspects=suspects)


def fit_rate(margins: Float[np.ndarray, " N"]) -> tuple[float, float, float, float]:
    """Returns rate, the ends of its 95% interval, and slope, by likelihood on a grid; margins are brought to scale 1."""
    scale = float(np.sqrt(np.mean(np.square(margins)))) or 1.0
    right = _sigmoid(_SLOPES[:, None] * (margins / scale)[None, :])
    best = np.array([np.log(rate + (1 - 2 * rate) * right + 1e-12).sum(1) for rate in _RATES])
    profile = best.max(1)
    top = int(profile.argmax())
    inside = _RATES[profile >= profile[top] - _DROP]
    return float(_RATES[top]), float(inside.min()), float(inside.max()), float(_SLOPES[best[top].argmax()]) / scale


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * values))


def _features(compared: Comparisons, cues: Float[np.ndarray, "N parts"]) -> Any:
    """Differences in TF-IDF of words (hashed, so that no vocabulary can be empty) and in cues, [N, features], sparse."""
    from scipy import sparse
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    counting: Any = HashingVectorizer
    counter = counting(analyzer=_words, n_features=_WORDS, alternate_sign=False, norm=None)
    counts = counter.transform([answer.words for answer in compared.answers])
    weighted: Any = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    scale = np.sqrt(np.mean(np.square(cues), axis=0))
    scaled = cues / np.where(scale > 0, scale, 1.0)
    return sparse.csr_array(sparse.hstack([weighted[compared.better] - weighted[compared.worse], scaled]))


def _words(words: Sequence[str]) -> Sequence[str]:
    return words


def _margins(features: Any, block: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Held-out margins of all comparisons, each block of prompts judged by a fit to all others."""
    margins = np.zeros(len(block))
    for number in range(BLOCKS):
        now = block == number
        if now.any() and not now.all():
            margins[now] = logistic(features[~now], strength=_STRENGTH)(features[now])
    return margins
