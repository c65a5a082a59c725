"""Which pairs to keep so that length no longer tells chosen from rejected, and nothing is said twice or both ways."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wootz.core.records import Group
from wootz.data.checks import normalised
from wootz.data.comparisons import BLOCKS, blocks
from wootz.data.kinds import digest

_CALIPER = 0.2
_A_PART = 50


@dataclass(frozen=True)
class Subset:
    """What is kept of preference pairs.

    Attributes:
        rows: Positions of the groups kept, in order.
        dropped: How many of the others were left out, by reason: those that were given, then ``length``; each group is
            counted once, under the first that holds.
    """

    rows: tuple[int, ...]
    dropped: dict[str, int]


def balanced(groups: Sequence[Group], drop: Mapping[str, set[int]]) -> Subset:
    """Returns the pairs to keep.

    How far the lengths of a pair are apart is the log of their ratio, in trained tokens. Every pair of the rarer direction
    is matched with one of the other direction that is as far apart, within 0.2; what is not matched leaves, pairs of
    equal length stay. So the log-ratio is distributed symmetrically around zero, and no function of the two lengths tells
    which is chosen. With enough pairs this is done within blocks of prompts: were only the total in balance, an excess
    in one part of the prompts would be a lack in the rest, and what is learned on one part would be wrong on the other.

    Args:
        groups: Preference pairs, chosen first.
        drop: Positions that leave before, by reason.
    """
    dropped: dict[str, int] = {}
    left = set(range(len(groups)))
    for reason, rows in drop.items():
        dropped[reason] = len(rows & left)
        left -= rows
    before = sorted(left)
    apart = {row: _apart(groups[row]) for row in before}
    fewer = min(sum(apart[row] * sign > 0 for row in before) for sign in (1, -1))
    parts = max(1, min(BLOCKS, fewer // _A_PART))
    block, _ = blocks([normalised(groups[row].prompt.text) for row in before])
    part = dict(zip(before, (block * parts // BLOCKS).tolist(), strict=True))
    kept = {row for row in before if apart[row] == 0}
    for number in range(parts):
        inside = [row for row in before if part[row] == number]
        directions = ({row: abs(apart[row]) for row in inside if apart[row] * sign > 0} for sign in (1, -1))
        rarer, other = sorted(directions, key=len)
        order = sorted(rarer, key=lambda row: digest(groups[row].id))
        kept |= set(_matched(order, rarer, other))
    dropped["length"] = len(before) - len(kept)
    return Subset(tuple(sorted(kept)), dropped)


def _matched(order: Iterable[int], rarer: Mapping[int, float], other: Mapping[int, float]) -> Iterable[int]:
    """Rows of the rarer side, in the given order, each with the nearest row of the other side that is still free."""
    free = sorted((value, row) for row, value in other.items())
    for row in order:
        place = bisect(free, (rarer[row], -1))
        near = [index for index in (place - 1, place) if 0 <= index < len(free)]
        best = min(near, key=lambda index: abs(free[index][0] - rarer[row]), default=None)
        if best is not None and abs(free[best][0] - rarer[row]) <= _CALIPER:
            yield from (row, free.pop(best)[1])


def _apart(group: Group) -> float:
    chosen, rejected = (int(completion.loss_mask.sum()) for completion in group.completions)
    return 0.0 if chosen == rejected else math.log(chosen / rejected)
