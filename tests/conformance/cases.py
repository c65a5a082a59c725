"""What the suite runs over. A registered objective is found by itself; its ``needs.data`` says which rows it gets."""

from collections.abc import Callable

import numpy as np
import torch

from tests.unit.training.bigram import Bigram, pairs, singles
from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group
from wootz.objectives import OBJECTIVES

# Settings besides the defaults under which each objective must hold the same invariants.
SETTINGS = {"dpo": [{"beta": 2.0, "label_smoothing": 0.2}, {"sft_weight": 0.7}]}


def holed(groups: list[Group], seed: int = 0) -> list[Group]:
    """The groups with some completion tokens out of the loss, but never all of them."""
    random = np.random.default_rng(seed)
    out = []
    for group in groups:
        completions = []
        for completion in group.completions:
            mask = random.random(len(completion.tokens)) < 0.6
            mask[random.integers(len(mask))] = True
            completions.append(Completion(completion.tokens, per_token={"loss_mask": mask}))
        out.append(Group(group.id, group.prompt, tuple(completions)))
    return out


ROWS: dict[str, Callable[[int, int], list[Group]]] = {
    "preference": lambda count, seed: holed(pairs(count, seed), seed),
    "prompt_completion": lambda count, seed: holed(singles(count, seed), seed),
    "messages": lambda count, seed: holed(singles(count, seed), seed),
    "text": lambda count, seed: singles(count, seed),
}


def objective_cases() -> list:
    """Each registered objective at its defaults and at its other settings, as pytest parameters."""
    import pytest

    cases = []
    for name in OBJECTIVES:
        for settings in ({}, *SETTINGS.get(name, [])):
            config = OBJECTIVES.validate({"type": name, **settings})
            cases.append(pytest.param(config, id="-".join([name, *map(str, settings)])))
    return cases


def rows_for(objective, count: int = 7, seed: int = 0) -> list[Group]:
    """Rows of the first data kind that the objective accepts."""
    return ROWS[objective.needs.data[0]](count, seed)


def annotated(objective, groups: list[Group], seed: int = 11) -> GroupBatch:
    """The prepared batch, with every annotation that the objective needs."""
    batch = GroupBatch(tuple(groups))
    reference = Bigram(seed=seed)
    with torch.no_grad():
        values = {name: reference.forward(batch, ("logp",))["logp"] for name in objective.needs.annotations}
    return objective.prepare(batch.with_per_token(**values))


def loss_and_gradient(objective, batch: GroupBatch, parts: list[GroupBatch] | None = None):
    """The loss and the gradient at the policy's table, the batch computed whole or in parts."""
    policy = Bigram()
    counts = objective.counts(batch)
    total = torch.zeros((), dtype=torch.float64)
    for part in parts or [batch]:
        sums = objective.sums(policy.forward(part, objective.needs.outputs), part)
        for name, weight in objective.weights.items():
            if counts[name]:
                total = total + weight * sums[name] / counts[name]
    total.backward()
    return total.detach(), policy.table.grad
