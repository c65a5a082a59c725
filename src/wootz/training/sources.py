"""Offline sources: the order in which rows are served is a pure function of (seed, step)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wootz.core.batch import GroupBatch
from wootz.core.errors import DataError
from wootz.core.protocols import Role, State
from wootz.core.records import Group
from wootz.core.seeds import derive_seed
from wootz.training.config import DEFAULT_GROUPS_PER_STEP, TrainConfig


class DatasetSource:
    """Serves groups in a new random order each epoch, a batch an optimiser step.

    The last batch of an epoch is smaller rather than dropped or mixed with the next epoch. With ``tokens_per_step`` a
    batch takes groups while they fit; a single group that does not is a batch of its own.
    """

    def __init__(self, groups: list[Group], config: TrainConfig, *, seed: int) -> None:
        if not groups:
            raise DataError("no rows are left to train on", fix="see the findings of the data check")
        self._groups = groups
        self._config = config
        self._seed = seed
        self._position = 0
        self._plans: dict[int, list[np.ndarray]] = {}
        self.num_steps = self._count_steps()

    def _plan(self, epoch: int) -> list[np.ndarray]:
        """The batches of one epoch, as row indices."""
        if epoch not in self._plans:
            order = np.random.default_rng(derive_seed(self._seed, "order", epoch)).permutation(len(self._groups))
            if self._config.tokens_per_step is None:
                size = self._config.groups_per_step or DEFAULT_GROUPS_PER_STEP
                batches = [order[start : start + size] for start in range(0, len(order), size)]
            else:
                batches = self._fill(order, self._config.tokens_per_step)
            self._plans = {epoch: batches}
        return self._plans[epoch]

    def _fill(self, order: np.ndarray, budget: int) -> list[np.ndarray]:
        batches: list[list[int]] = [[]]
        room = budget
        for row in order:
            size = GroupBatch((self._groups[row],)).num_tokens
            if batches[-1] and size > room:
                batches.append([])
                room = budget
            batches[-1].append(int(row))
            room -= size
        return [np.array(batch) for batch in batches]

    def _count_steps(self) -> int:
        if self._config.max_steps is not None:
            return self._config.max_steps
        epochs = self._config.epochs or 1.0
        whole, part = int(epochs), epochs - int(epochs)
        steps = sum(len(self._plan(epoch)) for epoch in range(whole))
        if part:
            steps += max(1, round(part * len(self._plan(whole))))
        return steps

    def __iter__(self) -> Iterator[GroupBatch]:
        epoch, start = 0, 0
        while self._position < self.num_steps:
            while self._position >= start + len(self._plan(epoch)):
                start += len(self._plan(epoch))
                epoch += 1
            rows = self._plan(epoch)[self._position - start]
            self._position += 1
            yield GroupBatch(tuple(self._groups[row] for row in rows))

    def sync(self, policy: Role) -> None:
        """Nothing to do: the rows do not depend on the policy."""

    def state_dict(self) -> State:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position = int(state["position"])
