"""Processes that share a run: one, or several under torchrun or accelerate.

Every process sees the same global batch and computes its share of the groups. Counts are summed before the first
backward pass and gradients after the last, so a step does not depend on the number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """This process's place among those that share the run."""

    rank: int = 0
    size: int = 1

    @classmethod
    def from_environment(cls) -> World:
        """Joins the group that torchrun's variables describe, or stands alone."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum_scalars(self, values: dict[str, float]) -> dict[str, float]:
        """Sums named numbers over processes in fp64. The names must be the same everywhere."""
        if self.size == 1 or not values:
            return values
        names = sorted(values)
        total = torch.tensor([float(values[name]) for name in names], dtype=torch.float64)
        if dist.get_backend() == "nccl":
            total = total.cuda()
        dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Sums gradients in place over processes; a missing gradient counts as zero."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    def any(self, flag: bool) -> bool:
        """Whether the flag is raised on any process."""
        return self.sum_scalars({"flag": float(flag)})["flag"] > 0

    def broadcast(self, value: str) -> str:
        """Returns the main process's value on every process."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        """Leaves the group together with the others: one that left earlier would cut off what they still wait for."""
        if self.size > 1 and dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
