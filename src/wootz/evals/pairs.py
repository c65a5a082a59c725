"""Measures that compare the answers of two models with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wootz.core.protocols import Signal
from wootz.evals.items import Item, Result
from wootz.evals.measures import _Common
from wootz.evals.subject import Subject
from wootz.evals.winrate import length_controlled
from wootz.signals import checked_score


@dataclass(frozen=True)
class WinRate(_Common):
    """Length-controlled win rate against the parent, less one half: 0 is a draw. A lower score loses, an equal one ties."""

    items: Sequence[Item] = ()
    signal: Signal = field(kw_only=True)
    max_new_tokens: int = 128
    against_parent: bool = True

    def measure(self, subject: Subject, parent: Subject | None) -> list[Result]:
        mine = subject.answer(self.items, name=self.name, max_new_tokens=self.max_new_tokens)
        outputs = [group.completions[0].text for group in mine]
        if parent is None:
            return [Result(i.id, 0.0, o, i.prompt, i.gold, i.columns) for i, o in zip(self.items, outputs, strict=True)]
        theirs = parent.answer(self.items, name=self.name, max_new_tokens=self.max_new_tokens)
        scores = [[inner[0].value for inner in checked_score(self.signal, groups)] for groups in (mine, theirs)]
        kept = [index for index, pair in enumerate(zip(*scores, strict=True)) if None not in pair]
        won = [_win(scores[0][index], scores[1][index]) for index in kept]
        longer = [len(mine[i].completions[0].tokens) - len(theirs[i].completions[0].tokens) for i in kept]
        _, values = length_controlled(won, longer)
        at = dict(zip(kept, values.tolist(), strict=True))
        return [
            Result(i.id, at[n] - 0.5 if n in at else None, o, i.prompt, i.gold, i.columns)
            for n, (i, o) in enumerate(zip(self.items, outputs, strict=True))
        ]


def _win(mine: float | None, theirs: float | None) -> float:
    assert mine is not None
    assert theirs is not None
    return 0.5 if mine == theirs else float(mine > theirs)
