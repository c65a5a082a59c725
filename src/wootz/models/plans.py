"""How the tokens of a batch are laid out for one forward pass.

Both plans are a line of *slots*, one token each, cut into rows; rows never see each other.

- *flat*: one row a completion, ``[prompt | completion]``.
- *shared*: one row a group, ``[prompt | completion 1 | completion 2 ...]``; groups with one long prompt share a row too.
  Positions restart after the prompt, and a completion sees the prompt and itself: a tree, of cost P + sum of R where flat
  has G P + sum of R.

What a slot sees follows from three numbers a slot (its segment, the segment of its prompt, its position), so dense
masks and the blocks of the fast layers are made from one rule (:func:`sees`), and equal each other by construction.
Tokens after the last trained one are left out, and so is that one: nothing reads what they would compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from wootz.core.batch import GroupBatch
from wootz.core.errors import DataError

PlanName = Literal["auto", "shared", "flat"]

_SHARED_FROM = 32
"""Prompt tokens from which groups of one prompt share a row: fewer save less than a longer row costs in attention."""


@dataclass(frozen=True)
class Plan:
    """T slots in rows, and the N slots whose outputs predict the batch's trained tokens.

    Attributes:
        tokens: Id of each slot.
        positions: Position of each slot in its own text.
        segments: Which run of text a slot is in; runs are numbered from 0 along the line.
        prompts: The segment that a slot sees besides its own: its prompt's, or its own.
        row_lengths: Slots of each row, in order.
        predictors: For each trained token, in batch order, the slot before it.
    """

    name: Literal["shared", "flat"]
    tokens: Int64[np.ndarray, " T"]
    positions: Int64[np.ndarray, " T"]
    segments: Int64[np.ndarray, " T"]
    prompts: Int64[np.ndarray, " T"]
    row_lengths: tuple[int, ...]
    predictors: Int64[np.ndarray, " N"]

    @property
    def num_slots(self) -> int:
        return len(self.tokens)

    @cached_property
    def row_starts(self) -> Int64[np.ndarray, " rows"]:
        return np.cumsum([0, *self.row_lengths])[:-1]

    def sees(self, queries: np.ndarray, keys: np.ndarray, window: int | None) -> Bool[np.ndarray, "q k"]:
        """Which of the slots ``keys`` each of the slots ``queries`` attends to.

        Its own segment and its prompt's, never ahead, and less than ``window`` positions behind.
        """
        own, prompt, place = self.segments[queries][:, None], self.prompts[queries][:, None], queries[:, None]
        allowed = (self.segments[keys] == own) | (self.segments[keys] == prompt)
        allowed &= keys <= place
        if window is not None:
            allowed &= self.positions[queries][:, None] - self.positions[keys] < window
        return allowed

    def pairs(self) -> int:
        """Query-key pairs of all slots, were every row a square."""
        return sum(length * length for length in self.row_lengths)


@dataclass(frozen=True)
class PaddedRows:
    """Some rows of a plan, padded on the right to one length; what a Hugging Face forward takes.

    Attributes:
        valid: False at padding.
        slots: The plan's slot at each place; 0 at padding.
    """

    plan: Plan
    valid: Bool[np.ndarray, "B S"]
    slots: Int64[np.ndarray, "B S"]

    def tensor(self, values: np.ndarray, device: torch.device) -> Int64[Tensor, "B S"]:
        """The plan's values at each place, 0 at padding."""
        return torch.from_numpy(np.where(self.valid, values[self.slots], 0)).to(device)

    def mask(self, window: int | None, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "B 1 S S"]:
        """The additive mask: 0 where a query attends, the type's minimum elsewhere. Padding attends to itself."""
        size = self.slots.shape[1]
        allowed = np.zeros((len(self.slots), size, size), dtype=bool)
        for row, (slots, valid) in enumerate(zip(self.slots, self.valid, strict=True)):
            real = slots[valid]
            allowed[row, : len(real), : len(real)] = self.plan.sees(real, real, window)
        allowed |= np.eye(size, dtype=bool)
        hidden = torch.from_numpy(~allowed[:, None]).to(device)
        return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, torch.finfo(dtype).min)


def padded_batches(plan: Plan, *, max_waste: float = 0.15) -> list[PaddedRows]:
    """Returns all rows, those of like length together, so that padding stays below ``max_waste`` of each batch."""
    order = sorted(range(len(plan.row_lengths)), key=lambda row: plan.row_lengths[row])
    batches: list[list[int]] = []
    for row in order:
        joined = [plan.row_lengths[other] for other in (batches[-1] if batches else [])] + [plan.row_lengths[row]]
        if batches and sum(joined) >= (1 - max_waste) * len(joined) * max(joined):
            batches[-1].append(row)
        else:
            batches.append([row])
    return [_pad(plan, rows) for rows in batches]


def make_plan(batch: GroupBatch, name: Literal["shared", "flat"], *, merge: bool = True) -> Plan:
    """Returns the plan of a batch.

    Args:
        merge: Groups of one long prompt share a row of the shared plan.

    Raises:
        DataError: A trained token that nothing precedes (an empty prompt).
    """
    build, rows = _Builder(), {}
    index = 0
    for place, group in enumerate(batch.groups):
        prompt = group.prompt.tokens
        answers = []
        for completion in group.completions:
            tokens, mask = _needed(completion.tokens, completion.loss_mask)
            answers.append(_Answer(index, tokens, mask))
            index += 1
        trained = [answer for answer in answers if answer.mask.any()]
        if trained and not prompt:
            raise DataError(
                "a completion needs at least one prompt token to be predicted from",
                where=f"row {group.id}",
                found="an empty prompt",
                expected="a BOS token, or text before the first trained token",
            )
        if name == "flat":
            rows |= {(answer.index,): (prompt, [answer]) for answer in trained}
        elif trained:
            key = prompt if merge and len(prompt) >= _SHARED_FROM else (-1, place)
            rows.setdefault(key, (prompt, []))[1].extend(answers)
    for prompt, answers in rows.values():
        build.add_row(prompt, answers)
    return build.finish(name)


def cheapest(plans: Sequence[Plan], width: int) -> Plan:
    """Returns the plan that costs least when attention computes whole squares of each row, as with a prepared mask.

    A token costs about 12 width^2 multiply-adds a layer and a query-key pair 2 width; a pair's softmax, mask and memory
    traffic make it worth about twice that (measured), so 1 token is as dear as 2.5 width pairs.
    """
    return min(plans, key=lambda plan: plan.num_slots + plan.pairs() / (2.5 * width))


def _needed(tokens: tuple[int, ...], mask: Bool[np.ndarray, " R"]) -> tuple[tuple[int, ...], Bool[np.ndarray, " S"]]:
    last = int(np.flatnonzero(mask)[-1]) + 1 if mask.any() else 0
    return tokens[:last], mask[:last]


def _pad(plan: Plan, rows: list[int]) -> PaddedRows:
    lengths = np.array([plan.row_lengths[row] for row in rows])
    places = np.arange(lengths.max())
    valid = places < lengths[:, None]
    slots = np.where(valid, plan.row_starts[rows][:, None] + places, 0)
    return PaddedRows(plan, valid, slots)


@dataclass(frozen=True)
class _Answer:
    """A completion up to its last trained token; ``index``: its place among the batch's completions."""

    index: int
    tokens: tuple[int, ...]
    mask: Bool[np.ndarray, " S"]


class _Builder:
    """Appends rows; a completion's last token is read by nothing and gets no slot."""

    def __init__(self) -> None:
        # Tokens, position of the first, and by how many pieces they follow their prompt.
        self._pieces: list[tuple[tuple[int, ...], int, int]] = []
        self._row_lengths: list[int] = []
        self._predictors: dict[int, np.ndarray] = {}
        self._end = 0

    def add_row(self, prompt: tuple[int, ...], answers: list[_Answer]) -> None:
        start = self._end
        self._append(prompt, 0, 0)
        last_of_prompt = self._end - 1
        for place, answer in enumerate(answers):
            before = np.concatenate([[last_of_prompt], self._end + np.arange(max(len(answer.tokens) - 1, 0))])
            self._predictors[answer.index] = before[: len(answer.tokens)][answer.mask]
            # Also when empty, so that the answer at `place` is always the piece `place + 1` after its prompt.
            self._append(answer.tokens[:-1], len(prompt), place + 1)
        self._row_lengths.append(self._end - start)

    def _append(self, tokens: tuple[int, ...], position: int, offset: int) -> None:
        self._pieces.append((tokens, position, offset))
        self._end += len(tokens)

    def finish(self, name: Literal["shared", "flat"]) -> Plan:
        sizes = np.array([len(tokens) for tokens, _, _ in self._pieces], dtype=np.int64)
        segments = np.repeat(np.arange(len(sizes)), sizes)
        offsets = np.array([offset for _, _, offset in self._pieces], dtype=np.int64)
        positions = [np.arange(first, first + len(tokens)) for tokens, first, _ in self._pieces]
        tokens = [np.asarray(tokens, dtype=np.int64) for tokens, _, _ in self._pieces]
        empty = np.zeros(0, dtype=np.int64)
        return Plan(
            name=name,
            tokens=np.concatenate([empty, *tokens]),
            positions=np.concatenate([empty, *positions]),
            segments=segments,
            prompts=segments - np.repeat(offsets, sizes),
            row_lengths=tuple(self._row_lengths),
            predictors=np.concatenate([empty, *(self._predictors[index] for index in sorted(self._predictors))]),
        )
