"""What the answers give away, and what pairs really teach.

groups -> comparisons -> cues -> each cue alone, all together: held-out accuracy
                      -> wordings -> share of labels that look turned round
       -> shingles -> rows that nearly repeat or contradict others
       -> what to do about it, and which rows to keep
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wootz.core.records import Group
from wootz.data.advice import remedies, sayings
from wootz.data.balance import Subset, balanced
from wootz.data.comparisons import (
    BLOCKS,
    Comparisons,
    Told,
    asked_text,
    compare_answers,
    held_out_margins,
    scaled_logistic,
    told,
)
from wootz.data.cues import Detector, cue_values, words_of
from wootz.data.label_noise import label_noise
from wootz.data.near import Near, near_rows
from wootz.data.prepare import Prepared
from wootz.data.token_checks import length_auc

ENOUGH = 30
"""Fewest comparisons whose cues are judged."""
MOST_NEAR = 20_000
"""Rows looked at for near-duplicates, from the first."""
_NAMED_ROWS = 100


def tally(prepared: Prepared) -> dict[str, Any]:
    """Returns what can be counted about the training groups without fitting anything.

    Keys: ``kind``, ``groups``, ``unused`` (rows that were dropped or that checks refuse), ``length_auc`` (how often the
    better answer is the longer one; 0.5 says nothing; None where there is nothing to compare) over ``length_pairs``
    comparisons, ``truncated``, ``duplicates``, ``contradictions`` and ``overlap`` (rows), and for preference data
    ``identical``, ``chosen_length`` and ``rejected_length`` (mean tokens).
    """
    groups, kind = prepared.train, prepared.kind
    named = Counter[str]()
    for found in prepared.findings:
        named[found.check] += len(found.rows)
    auc, pairs = length_auc(kind, groups)
    counted: dict[str, Any] = {
        "kind": kind,
        "groups": len(groups),
        "unused": prepared.counts["train/rows"] - prepared.counts["train/used"],
        "length_auc": auc,
        "length_pairs": pairs,
        "truncated": prepared.counts["train/truncated"],
        "duplicates": named["duplicate_rows"],
        "contradictions": named["contradictions"],
        "overlap": named["overlap"],
    }
    if kind == "preference" and groups:
        lengths = [[int(c.loss_mask.sum()) for c in group.completions] for group in groups]
        counted |= {
            "identical": len(_identical(groups)),
            "chosen_length": sum(chosen for chosen, _ in lengths) / len(groups),
            "rejected_length": sum(rejected for _, rejected in lengths) / len(groups),
        }
    return counted


def audit(prepared: Prepared, *, is_refusal: Detector | None = None) -> dict[str, Any]:
    """Returns :func:`tally` and what the training groups teach.

    Further keys: ``near_duplicates`` and ``near_contradictions`` (rows that nearly repeat an earlier one, with the same
    verdict or the opposite; :mod:`wootz.data.near`); where answers are compared ``cues`` and ``label_noise``; for
    preference data ``balanced_rows``, how many rows :func:`keep` would keep; ``says`` and ``remedies``, sentences.

    ``cues`` has an entry a cue and one for ``all`` of them: ``accuracy``, how often the cue alone tells the better answer
    on held-out prompts, with ``low`` and ``high``, its 95% interval, over ``n`` comparisons; ``differs``, the share of
    comparisons in which the cue differs at all; ``chosen_has_more``, in how many of those the better answer has more.
    ``cues`` is None, with ``cues_why``, when comparisons or prompts are too few.

    ``label_noise``: ``rate`` (None when it cannot be told, with ``why``), ``low``, ``high``, ``accuracy``, ``n``, and
    ``suspects``, source positions of rows most likely turned round. See :mod:`wootz.data.label_noise`.

    Args:
        is_refusal: Tells answers that decline; without it there is no such cue.
    """
    groups = prepared.train
    near = _near(prepared)
    found = tally(prepared) | {
        "near_duplicates": sum(not one.swapped for one in near),
        "near_contradictions": sum(one.swapped for one in near),
    }
    compared = compare_answers(prepared.kind, groups)
    if len(compared) or prepared.kind in ("preference", "ranked", "unpaired"):
        found |= _judged(compared, prepared, is_refusal)
    if prepared.kind == "preference":
        found["balanced_rows"] = len(_keep(prepared, near).rows)
    return found | {"says": sayings(found), "remedies": remedies(found)}


def keep(prepared: Prepared) -> Subset:
    """Returns the preference pairs among which length does not tell chosen from rejected, without duplicates,
    near-duplicates (the first stays), contradictions and near-contradictions (none stays) and identical answers.
    """
    return _keep(prepared, _near(prepared))


def _keep(prepared: Prepared, near: Sequence[Near]) -> Subset:
    groups = prepared.train
    named = {check: set[int]() for check in ("duplicate_rows", "contradictions")}
    for found in prepared.findings:
        if found.check in named and found.source == prepared.source:
            named[found.check] |= set(found.rows)
    index = [row_of(group) for group in groups]
    against = {row for row, place in enumerate(index) if place in named["contradictions"]}
    against |= {row for one in near if one.swapped for row in (one.earlier, one.later)}
    drop = {
        "identical": _identical(groups),
        "contradictions": against,
        "duplicates": {row for row, place in enumerate(index) if place in named["duplicate_rows"]},
        "near_duplicates": {one.later for one in near if not one.swapped},
    }
    return balanced(groups, drop)


def row_of(group: Group) -> int:
    """Returns the position of a group's row in its source, from 0."""
    return int(group.id.partition(":")[0])


def _identical(groups: Sequence[Group]) -> set[int]:
    return {row for row, g in enumerate(groups) if g.completions[0].tokens == g.completions[1].tokens}


def _near(prepared: Prepared) -> list[Near]:
    """Rows that nearly repeat an earlier one; those that repeat it exactly are counted elsewhere."""
    exact = {
        row
        for found in prepared.findings
        if found.check == "duplicate_rows" and found.source == prepared.source
        for row in found.rows
    }
    rows = [row for row, g in enumerate(prepared.train) if g.completions and row_of(g) not in exact][:MOST_NEAR]
    texts = []
    for row in rows:
        group = prepared.train[row]
        texts.append([words_of(asked_text(group)), *(words_of(c.text) for c in group.completions)])
    found = []
    for one in near_rows(texts):
        earlier, later = rows[one.earlier], rows[one.later]
        first, second = (prepared.train[row].completions[0].columns.get("label") for row in (earlier, later))
        if prepared.kind == "ranked" and one.swapped:
            continue
        found.append(Near(earlier, later, one.swapped or first is not second))
    return found


def _judged(compared: Comparisons, prepared: Prepared, is_refusal: Detector | None) -> dict[str, Any]:
    """The cues and the label noise of comparisons."""
    if len(compared) < ENOUGH:
        why = f"{len(compared):,} comparisons; {ENOUGH} are needed to judge cues"
        return {"cues": None, "cues_why": why, "label_noise": _unknown(why)}
    if (asked := len(np.unique(compared.prompts))) < BLOCKS:
        why = f"{asked} different prompts; {BLOCKS} are needed to hold some out"
        return {"cues": None, "cues_why": why, "label_noise": _unknown(why)}
    values = {name: compared.differences(one) for name, one in cue_values(compared.answers, is_refusal).items()}
    everything = np.hstack(list(values.values()))
    cues = {name: _cue(differences, compared) for name, differences in values.items()}
    cues["all"] = _accuracy(_told_by(everything, compared))
    if prepared.kind == "unpaired":  # one wrong label of two makes a comparison void, not turned round
        return {"cues": cues, "label_noise": _unknown("estimated where answers to one prompt are compared")}
    noise = label_noise(compared, everything)
    suspects = [row_of(prepared.train[compared.rows[position]]) for position in noise.suspects[:_NAMED_ROWS]]
    return {
        "cues": cues,
        "label_noise": {"rate": noise.rate, "low": noise.low, "high": noise.high, "accuracy": noise.told.accuracy}
        | {"n": noise.told.n, "why": noise.why, "suspects": suspects},
    }


def _unknown(why: str) -> dict[str, Any]:
    return {"rate": None, "low": None, "high": None, "accuracy": None, "n": 0, "why": why, "suspects": []}


def _cue(differences: np.ndarray, compared: Comparisons) -> dict[str, Any]:
    differing = (differences != 0).any(1)
    lean = differences[differences[:, 0] != 0, 0]
    return _accuracy(_told_by(differences, compared)) | {
        "differs": float(differing.mean()),
        "chosen_has_more": float((lean > 0).mean()) if len(lean) else None,
    }


def _told_by(differences: np.ndarray, compared: Comparisons) -> Told:
    return told(held_out_margins(differences, compared.block, scaled_logistic), compared.prompts)


def _accuracy(one: Told) -> dict[str, Any]:
    return {"accuracy": one.accuracy, "low": one.low, "high": one.high, "n": one.n}


def log_prob_facts(kind: str, groups: Sequence[Group], name: str) -> dict[str, Any] | None:
    """Returns how likely a model finds the better and the worse answers, or None where nothing is compared.

    Keys: ``chosen`` and ``rejected`` (the better and the worse answer, whatever the kind), each with ``mean`` and
    ``median`` over answers of the log-prob per trained token (nats); ``chosen_likelier``, the share of comparisons in
    which the chosen answer has the higher one (a tie counts half), with ``low`` and ``high``, its 95% interval; ``n``.

    Args:
        name: The per-token array that holds the log-probs.
    """
    compared = compare_answers(kind, groups)
    if not len(compared):
        return None
    means = [[float(np.mean(c.per_token[name][c.loss_mask])) for c in group.completions] for group in groups]
    values = np.array([means[row][index] for row, index in compared.places])
    better, worse = values[compared.better], values[compared.worse]
    likelier = told(better - worse, compared.prompts)
    sides: Mapping[str, np.ndarray] = {"chosen": better, "rejected": worse}
    return {
        **{side: {"mean": float(v.mean()), "median": float(np.median(v))} for side, v in sides.items()},
        "chosen_likelier": likelier.accuracy,
        "low": likelier.low,
        "high": likelier.high,
        "n": likelier.n,
    }
