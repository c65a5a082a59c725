"""A batch of groups, and the flat view of it that objectives read.

The flat view counts *trained tokens* only: the completion tokens whose ``loss_mask`` is true, in the order group,
completion, token. N trained tokens, C completions, G groups. Everything a forward pass returns and an objective reads
has this order, so no padding ever enters a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from wootz.core.records import Group

Unit = Literal["group", "batch"]


@dataclass(frozen=True)
class GroupBatch:
    """Groups, with the indices that tie trained tokens to completions and completions to groups."""

    groups: tuple[Group, ...]
    device: torch.device = torch.device("cpu")

    @property
    def num_units(self) -> int:
        return len(self.groups)

    @cached_property
    def _completions(self) -> tuple:
        return tuple(completion for group in self.groups for completion in group.completions)

    @property
    def num_completions(self) -> int:
        return len(self._completions)

    @cached_property
    def num_tokens(self) -> int:
        """Tokens a forward pass must read when each prompt is read once: P + sum of R, over groups."""
        return sum(len(g.prompt.tokens) + sum(len(c.tokens) for c in g.completions) for g in self.groups)

    @cached_property
    def loss_mask(self) -> Bool[Tensor, " R"]:
        """Mask over all completion tokens, concatenated."""
        masks = [completion.loss_mask for completion in self._completions]
        return torch.from_numpy(np.concatenate(masks) if masks else np.zeros(0, dtype=bool)).to(self.device)

    @cached_property
    def lengths(self) -> Int64[Tensor, " C"]:
        """Trained tokens of each completion."""
        return torch.tensor([int(c.loss_mask.sum()) for c in self._completions], dtype=torch.long, device=self.device)

    @cached_property
    def completion_of_token(self) -> Int64[Tensor, " N"]:
        return torch.repeat_interleave(torch.arange(self.num_completions, device=self.device), self.lengths)

    @cached_property
    def group_of_completion(self) -> Int64[Tensor, " C"]:
        owners = [index for index, group in enumerate(self.groups) for _ in group.completions]
        return torch.tensor(owners, dtype=torch.long, device=self.device)

    @cached_property
    def targets(self) -> Int64[Tensor, " N"]:
        """Ids of the trained tokens."""
        ids = [np.asarray(c.tokens, dtype=np.int64)[c.loss_mask] for c in self._completions]
        return torch.from_numpy(np.concatenate(ids) if ids else np.zeros(0, dtype=np.int64)).to(self.device)

    def has_per_token(self, name: str) -> bool:
        return all(name in completion.per_token for completion in self._completions)

    def per_token(self, name: str) -> Float[Tensor, " N"]:
        """The named per-token values at trained tokens. Raises KeyError when a completion lacks them."""
        arrays = [np.asarray(c.per_token[name])[c.loss_mask] for c in self._completions]
        return torch.from_numpy(np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.float32)).to(self.device)

    def column(self, name: str) -> list[Any]:
        """One value a completion. Raises KeyError when a completion lacks the column."""
        return [completion.columns[name] for completion in self._completions]

    def group_column(self, name: str) -> list[Any]:
        """One value a group."""
        return [group.columns[name] for group in self.groups]

    def sum_by_completion(self, values: Float[Tensor, " N"]) -> Float[Tensor, " C"]:
        """Sums trained-token values over each completion (an empty one sums to 0)."""
        return values.new_zeros(self.num_completions).index_add(0, self.completion_of_token, values)

    def with_per_token(self, **values: Float[Tensor, " N"]) -> GroupBatch:
        """Returns a batch whose completions carry the given trained-token values (0 at masked tokens)."""
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in values.items()}
        start, groups = 0, []
        for group in self.groups:
            completions = []
            for completion in group.completions:
                mask = completion.loss_mask
                stop = start + int(mask.sum())
                filled = {}
                for name, flat in arrays.items():
                    filled[name] = np.zeros(len(completion.tokens), dtype=flat.dtype)
                    filled[name][mask] = flat[start:stop]
                completions.append(completion.with_per_token(**filled))
                start = stop
            groups.append(replace(group, completions=tuple(completions)))
        return replace(self, groups=tuple(groups))

    def with_columns(self, columns: Mapping[str, list[Any]]) -> GroupBatch:
        """Returns a batch whose completions carry the given columns, one value a completion in batch order."""
        for name, values in columns.items():
            if len(values) != self.num_completions:
                raise ValueError(f"column {name!r}: {len(values)} values for {self.num_completions} completions")
        position, groups = 0, []
        for group in self.groups:
            completions = []
            for completion in group.completions:
                added = {name: values[position] for name, values in columns.items()}
                completions.append(replace(completion, columns={**completion.columns, **added}))
                position += 1
            groups.append(replace(group, completions=tuple(completions)))
        return replace(self, groups=tuple(groups))

    def to(self, device: torch.device | str) -> GroupBatch:
        return replace(self, device=torch.device(device))

    def shard(self, rank: int, world_size: int) -> GroupBatch:
        """The groups that process ``rank`` of ``world_size`` computes."""
        return replace(self, groups=self.groups[rank::world_size])

    def split(self, unit: Unit, max_tokens: int | None) -> list[GroupBatch]:
        """Splits into micro-batches of at most ``max_tokens`` read tokens, never cutting a unit.

        Groups are bucketed by length so that a micro-batch pads little; order inside a batch changes no objective.
        A single group longer than ``max_tokens`` is a micro-batch of its own. For unit ``batch`` the batch is whole.
        """
        if unit == "batch" or max_tokens is None or self.num_tokens <= max_tokens:
            return [self] if self.groups else []
        sized = sorted(self.groups, key=lambda g: len(g.prompt.tokens) + sum(len(c.tokens) for c in g.completions))
        parts: list[list[Group]] = [[]]
        room = max_tokens
        for group in sized:
            size = len(group.prompt.tokens) + sum(len(c.tokens) for c in group.completions)
            if parts[-1] and size > room:
                parts.append([])
                room = max_tokens
            parts[-1].append(group)
            room -= size
        return [replace(self, groups=tuple(part)) for part in parts]
