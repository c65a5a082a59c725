"""What the suite runs over. A registered objective is found by itself; its ``needs.data`` says which rows it gets."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from tests.unit.training.bigram import Bigram, pairs, singles
from wootz.core.batch import GroupBatch
from wootz.core.records import Group
from wootz.objectives import OBJECTIVES

# Settings besides the defaults under which each objective must hold the same invariants.
SETTINGS: dict[str, list[dict]] = {
    "dpo": [
        {"beta": 2.0, "label_smoothing": 0.2},
        {"sft_weight": 0.7},
        {"use_margins": True, "use_weights": True},
    ],
    "f_dpo": [{"divergence": name} for name in ("forward_kl", "js")],
    "apo": [{"direction": "down"}],
    "aot": [{"label_smoothing": 0.2}],
    "ld_dpo": [{"alpha": 0.0}],
    "norm_dpo": [{"use_weights": True}],
    "orpo": [{"nll_over": "prompt_and_response"}, {"use_weights": True}],
    "simpo": [{"use_margins": True}, {"sft_weight": 0.5, "label_smoothing": 0.1}],
    "cpo": [{"sft_weight": 0.0, "label_smoothing": 0.1}],
    "kto": [{"desirable_weight": 2.0, "undesirable_weight": 0.5}, {"use_weights": True}],
    "mix": [{"parts": [{"objective": "dpo"}, {"objective": {"type": "bco_pair", "beta": 0.3}, "weight": 0.5}]}],
}


def holed(groups: list[Group], seed: int = 0) -> list[Group]:
    """The groups with some completion tokens out of the loss, but never all of them."""
    random = np.random.default_rng(seed)
    out = []
    for group in groups:
        completions = []
        for completion in group.completions:
            mask = random.random(len(completion.tokens)) < 0.6
            mask[random.integers(len(mask))] = True
            completions.append(completion.with_per_token(loss_mask=mask))
        out.append(replace(group, completions=tuple(completions)))
    return out


def with_columns(groups: list[Group], names: tuple[str, ...], seed: int) -> list[Group]:
    """The groups with margins, weights and scores drawn at random, and labels that alternate."""
    random = np.random.default_rng(seed)
    out = []
    for index, group in enumerate(groups):
        shared = {"margin": random.normal(), "weight": random.uniform(0.5, 2), "label": index % 2 == 0}
        scores = random.permutation(len(group.completions))
        completions = []
        for completion, score in zip(group.completions, scores, strict=True):
            columns = shared | {"score": int(score), "mismatched_ratio": random.normal()}
            completions.append(replace(completion, columns={name: columns[name] for name in names}))
        out.append(replace(group, completions=tuple(completions)))
    return out


def ranked(count: int, seed: int) -> list[Group]:
    """Groups of two to four answers."""
    rows = [pairs(count, seed), pairs(count, seed + 1)]
    return [
        replace(one, completions=(*one.completions, *other.completions[: index % 3]))
        for index, (one, other) in enumerate(zip(*rows, strict=True))
    ]


ROWS: dict[str, Callable[[int, int], list[Group]]] = {
    "preference": lambda count, seed: holed(pairs(count, seed), seed),
    "unpaired": lambda count, seed: holed(singles(count, seed), seed),
    "ranked": lambda count, seed: holed(ranked(count, seed), seed),
    "prompt_completion": lambda count, seed: holed(singles(count, seed), seed),
    "messages": lambda count, seed: holed(singles(count, seed), seed),
    "text": lambda count, seed: singles(count, seed),
}


def objective_cases() -> list:
    """Each registered objective at its defaults and at its other settings, as pytest parameters."""
    import pytest

    cases = []
    for name in OBJECTIVES:
        defaults = [] if OBJECTIVES.required(name) else [{}]
        for settings in (*defaults, *SETTINGS.get(name, [])):
            config = OBJECTIVES.validate({"type": name, **settings})
            cases.append(pytest.param(config, id="-".join([name, *map(str, settings)])))
    return cases


def rows_for(objective, count: int = 7, seed: int = 0) -> list[Group]:
    """Rows of the first data kind that the objective accepts."""
    needs = objective.needs
    names = (*needs.columns, *(name for name in needs.annotations if name == "mismatched_ratio"))
    return with_columns(ROWS[needs.data[0]](count, seed), names, seed)


def annotated(objective, groups: list[Group], seed: int = 11, total=lambda sums: sums) -> GroupBatch:
    """The prepared batch, with every annotation that the objective needs."""
    batch = GroupBatch(tuple(groups))
    models = {"ref_logp": Bigram(seed=seed), "old_logp": Bigram()}
    with torch.no_grad():
        values = {
            name: models[name].forward(batch, ("logp",))["logp"]
            for name in objective.needs.annotations
            if name in models
        }
    return objective.prepare(batch.with_per_token(**values), total)


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
