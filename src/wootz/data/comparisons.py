"""Better against worse: the comparisons that preference, ranked and unpaired data make, and how well numbers tell them.

A comparison is a difference, better minus worse, so a judge of differences has no intercept: it says the opposite when
the two are swapped. Prompts are ordered by a hash and cut into blocks; each block is judged by a classifier fitted to
the blocks before it. Without a signal every judgement is then a fair coin, whatever the classifier has seen, and a
binomial interval holds. Under ordinary cross-validation it does not: the fits share rows, and over five folds of coin
flips the variance of one cue's accuracy is about twice the binomial.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from wootz.core.records import Completion, Group
from wootz.data.checks import normalised
from wootz.data.cues import Answer, words_of

BLOCKS = 10
_UNJUDGED = 2
MOST = 20_000
"""Comparisons looked at; of more, those whose prompts come first by hash."""


@dataclass(frozen=True)
class Comparisons:
    """N comparisons between answers.

    Attributes:
        answers: All answers that are compared.
        places: Group and completion of each of them, by position.
        better: Position of the better answer of each comparison.
        worse: Position of the worse one.
        rows: Position of the better answer's group.
        block: 0 to ``BLOCKS - 1``; the comparisons of one prompt are in one block.
        prompts: A number a prompt.
    """

    answers: list[Answer]
    places: list[tuple[int, int]]
    better: Int[np.ndarray, " N"]
    worse: Int[np.ndarray, " N"]
    rows: Int[np.ndarray, " N"]
    block: Int[np.ndarray, " N"]
    prompts: Int[np.ndarray, " N"]

    def __len__(self) -> int:
        return len(self.better)

    def differences(self, values: Float[np.ndarray, "answers parts"]) -> Float[np.ndarray, "N parts"]:
        """Returns better minus worse."""
        return values[self.better] - values[self.worse]


@dataclass(frozen=True)
class Told:
    """How often held-out comparisons are told, a tie counting half, with the 95% interval; over ``n`` comparisons."""

    accuracy: float
    low: float
    high: float
    n: int


def compare_answers(kind: str, groups: Sequence[Group]) -> Comparisons:
    """Returns the comparisons of a kind of data; none for kinds that compare nothing.

    Preference: chosen against rejected. Ranked: the best against the worst of each prompt. Unpaired: good against bad
    answers, each used once, drawn together within a block of prompts.
    """
    keys = [normalised(group.prompt.text) for group in groups]
    block, prompts = blocks(keys)
    if kind == "unpaired":
        found = list(_drawn_together(groups, block, prompts))
    else:
        ends = ((row, _ends(kind, group)) for row, group in enumerate(groups))
        found = [((row, pair[0]), (row, pair[1])) for row, pair in ends if pair is not None]
    if len(found) > MOST:
        found = sorted(found, key=lambda pair: (block[pair[0][0]], prompts[pair[0][0]]))[:MOST]
    places = list(dict.fromkeys(place for pair in found for place in pair))
    at = {place: position for position, place in enumerate(places)}
    asked = {row: asked_text(groups[row]) for row, _ in places}
    words = {row: words_of(text) for row, text in asked.items()}
    rows = np.array([pair[0][0] for pair in found], dtype=np.int64)
    return Comparisons(
        [_answer(groups[row].completions[index], asked[row], words[row]) for row, index in places],
        places,
        np.array([at[better] for better, _ in found], dtype=np.int64),
        np.array([at[worse] for _, worse in found], dtype=np.int64),
        rows,
        block[rows],
        prompts[rows],
    )


def _answer(completion: Completion, asked: str, words: tuple[str, ...]) -> Answer:
    return Answer(words, words_of(completion.text), int(completion.loss_mask.sum()), completion.text, asked)


def asked_text(group: Group) -> str:
    """Returns the prompt without what every prompt of its kind has: the template's marks and a system turn."""
    messages = group.columns.get("prompt_messages")
    if not messages:
        return group.prompt.text
    return "\n".join(message["content"] for message in messages if message["role"] not in ("system", "developer"))


def _ends(kind: str, group: Group) -> tuple[int, int] | None:
    """The positions of the better and the worse answer."""
    if kind == "preference":
        return 0, 1
    if kind != "ranked":
        return None
    scores = [completion.columns["score"] for completion in group.completions]
    best, worst = scores.index(max(scores)), scores.index(min(scores))
    return None if scores[best] == scores[worst] else (best, worst)


def _drawn_together(groups: Sequence[Group], block: np.ndarray, prompts: np.ndarray) -> Iterable[Any]:
    for number in range(BLOCKS):
        inside = sorted(np.flatnonzero(block == number).tolist(), key=lambda row: prompts[row])
        good, bad = (
            [row for row in inside if groups[row].completions[0].columns["label"] is label] for label in (True, False)
        )
        yield from (((a, 0), (b, 0)) for a, b in zip(good, bad, strict=False))


def blocks(keys: Sequence[str]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Returns each key's block and its number in the order of hashes; equal keys share both, blocks are about equal."""
    counts = Counter(keys)
    order = sorted(counts, key=lambda key: hashlib.blake2b(key.encode("utf-8", "surrogatepass")).digest())
    number = {key: position for position, key in enumerate(order)}
    before = np.cumsum([0, *(counts[key] for key in order)])[:-1]
    block = before * BLOCKS // max(len(keys), 1)
    prompts = np.array([number[key] for key in keys], dtype=np.int64)
    return block[prompts].astype(np.int64), prompts


def held_out_margins(
    differences: Any, block: Int[np.ndarray, " N"], fit: Callable[[Any], Callable[[Any], np.ndarray]]
) -> Float[np.ndarray, " N"]:
    """Returns the margin of each comparison under a fit to earlier blocks; NaN in the first two, which are only learned.

    Args:
        differences: Rows to fit, an array or a sparse matrix, [N, features].
        fit: Takes rows, returns a function from rows to margins, positive where the better answer is preferred.
    """
    margins = np.full(len(block), np.nan)
    for number in range(_UNJUDGED, BLOCKS):
        before, now = block < number, block == number
        if before.any() and now.any():
            margins[now] = fit(differences[before])(differences[now])
    return margins


def logistic(rows: Any, *, strength: float = 1.0) -> Callable[[Any], np.ndarray]:
    """Returns the margins of a logistic classifier fitted to differences, each of them and its mirror image one row.

    The loss of a difference d under weights w is log(1 + exp(-w.d)) with either sign of d, so half of the rows are
    turned round to give the classifier two classes, and nothing depends on which.

    Args:
        rows: Better minus worse, an array or a sparse matrix, [n, features], n at least 2.
        strength: Inverse of the L2 penalty.
    """
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    sides = np.arange(rows.shape[0]) % 2
    signs = 2.0 * sides - 1.0
    turned = sparse.csr_array(rows.multiply(signs[:, None])) if sparse.issparse(rows) else rows * signs[:, None]
    model = LogisticRegression(C=strength, fit_intercept=False, max_iter=1000)
    weights = model.fit(turned, sides).coef_[0]
    return lambda asked: np.asarray(asked @ weights).ravel()


def scaled_logistic(rows: Float[np.ndarray, "n parts"]) -> Callable[[Any], np.ndarray]:
    """Returns :func:`logistic` on columns brought to a root mean square of 1; columns are not centred."""
    scale = np.sqrt(np.mean(np.square(rows), axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    judge = logistic(rows / scale)
    return lambda asked: judge(asked / scale)


def told(margins: Float[np.ndarray, " N"], prompts: Int[np.ndarray, " N"]) -> Told:
    """Returns the share of positive margins, a zero counting half; NaN is left out.

    The interval is Wilson's over the margins that are not zero, moved by the share that is. Where comparisons of one
    prompt agree more than chance, the number of items is divided by the design effect (Kish 1965), which is at least 1.
    """
    from wootz.core.stats import proportion  # it brings scipy.stats, half a second

    judged = np.isfinite(margins)
    n = int(judged.sum())
    if not n:
        return Told(0.5, 0.0, 1.0, 0)
    decided = judged & (margins != 0)
    right = (margins[decided] > 0).astype(float)
    if not len(right):
        return Told(0.5, 0.5, 0.5, n)
    items = max(1, round(len(right) / _design_effect(right, prompts[decided])))
    low, high = proportion(round(float(right.mean()) * items), items)
    mean, low, high = (0.5 + (value - 0.5) * len(right) / n for value in (float(right.mean()), low, high))
    return Told(mean, min(low, mean), max(high, mean), n)


def _design_effect(values: Float[np.ndarray, " n"], owners: Int[np.ndarray, " n"]) -> float:
    _, owner = np.unique(owners, return_inverse=True)
    rest = values - values.mean()
    apart, together = np.square(rest).sum(), np.square(np.bincount(owner, rest)).sum()
    return max(1.0, together / apart) if apart else len(values) / (owner.max() + 1)
