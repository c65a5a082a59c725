"""The invariants, as functions that raise AssertionError. ``test_seeded_bugs`` runs the same ones against planted bugs."""

import math
from dataclasses import replace

import numpy as np
import torch

from tests.conformance.cases import annotated, loss_and_gradient, rows_for
from tests.unit.training.bigram import Bigram
from wootz.core.records import Completion, Sequence
from wootz.objectives.reference_free import WithPrompt

TIGHT = {"rtol": 1e-9, "atol": 1e-11}


def parts_are_named_once(objective) -> None:
    batch = annotated(objective, rows_for(objective))
    sums = objective.sums(Bigram().forward(batch, objective.needs.outputs), batch)
    counts = objective.counts(batch)
    assert set(sums) == set(counts), "sums and counts name other parts"
    assert set(objective.weights) <= set(sums), "a weighted part is never computed"
    assert all(value.ndim == 0 for value in sums.values()), "a sum is a scalar"
    metrics = set(sums) - set(objective.weights)
    assert not any(sums[name].requires_grad for name in metrics), "a metric carries gradient"


def split_changes_nothing(objective) -> None:
    """Any cut into micro-batches gives the same loss and gradient."""
    batch = annotated(objective, rows_for(objective))
    loss, gradient = loss_and_gradient(objective, batch)
    assert gradient.abs().max() > 1e-6, "the loss has no gradient at all"
    for max_tokens in (1, 12, 25):
        cut_loss, cut_gradient = loss_and_gradient(objective, batch, batch.split(objective.unit, max_tokens))
        torch.testing.assert_close(cut_loss, loss, **TIGHT)
        torch.testing.assert_close(cut_gradient, gradient, **TIGHT)


def order_changes_nothing(objective) -> None:
    rows = rows_for(objective)
    expected = loss_and_gradient(objective, annotated(objective, rows))
    for order in (rows[::-1], rows[3:] + rows[:3]):
        torch.testing.assert_close(loss_and_gradient(objective, annotated(objective, order)), expected, **TIGHT)


def processes_change_nothing(objective) -> None:
    """Shards of two or three processes, counts summed, add up to the whole."""
    if objective.unit == "batch":
        return  # refused in several processes
    batch = annotated(objective, rows_for(objective))
    loss, gradient = loss_and_gradient(objective, batch)
    for size in (2, 3):
        shards = [batch.shard(rank, size) for rank in range(size)]
        assert sorted(g.id for s in shards for g in s.groups) == sorted(g.id for g in batch.groups)
        summed = {name: sum(objective.counts(shard)[name] for shard in shards) for name in objective.counts(batch)}
        expected = objective.counts(batch)
        assert set(summed) == set(expected)
        assert all(math.isclose(summed[n], expected[n]) for n in expected), "counts do not add up over processes"
        torch.testing.assert_close(loss_and_gradient(objective, batch, shards), (loss, gradient), **TIGHT)


def prepared_alike_in_processes(objective) -> None:
    """Means over the step are over all processes: shards prepared apart are the whole, prepared at once."""
    if objective.unit == "batch":
        return
    rows = rows_for(objective)
    expected = loss_and_gradient(objective, annotated(objective, rows))
    locals_: list[dict[str, float]] = []

    def remember(sums):
        locals_.append(dict(sums))
        return sums

    shards = [rows[rank::2] for rank in range(2)]
    for shard in shards:
        annotated(objective, shard, total=remember)
    summed = {name: sum(one[name] for one in locals_) for name in (locals_ or [{}])[0]}
    prepared = [annotated(objective, shard, total=lambda _: summed) for shard in shards]
    whole = replace(prepared[0], groups=tuple(group for batch in prepared for group in batch.groups))
    torch.testing.assert_close(loss_and_gradient(objective, whole, prepared), expected, **TIGHT)


def masked_tokens_weigh_nothing(objective) -> None:
    """A token out of the loss changes the loss only through the tokens after it, never by being counted."""
    rows = rows_for(objective)
    batch = annotated(objective, rows)
    counts = objective.counts(batch)
    longer = []
    for group in rows:
        completions = []
        for completion in group.completions:
            # Tokens appended out of the loss come after every trained one: nothing may move.
            mask = np.concatenate([completion.loss_mask, [False, False]])
            completions.append(replace(completion, tokens=(*completion.tokens, 1, 2), per_token={"loss_mask": mask}))
        longer.append(replace(group, completions=tuple(completions)))
    padded = annotated(objective, longer)
    assert objective.counts(padded) == counts
    torch.testing.assert_close(loss_and_gradient(objective, padded), loss_and_gradient(objective, batch), **TIGHT)


def edges_are_finite(objective) -> None:
    """Log-prob 0, very unlikely tokens, one-token completions and masks that are all false."""
    rows = rows_for(objective)
    short = [
        replace(g, completions=tuple(Completion(c.tokens[:1], columns=c.columns) for c in g.completions))
        for g in rows[:2]
    ]
    off = [
        replace(
            g,
            id=f"off{g.id}",
            completions=tuple(c.with_per_token(loss_mask=np.zeros(len(c.tokens), dtype=bool)) for c in g.completions),
        )
        for g in rows[2:3]
    ]
    batch = annotated(objective, [*short, *off])
    for value in (0.0, -1e-12, -1e4):
        # One of two tokens takes the extreme, so that one-token pairs are far apart in both directions.
        extreme = torch.arange(int(batch.lengths.sum())) % 4 % 3 != 0
        logp = torch.where(extreme, value, 0.0).requires_grad_()
        outputs = dict.fromkeys(objective.needs.outputs, logp)
        sums = objective.sums(outputs, batch)
        total = sum(weight * sums[name] for name, weight in objective.weights.items())
        total.backward()
        assert all(math.isfinite(float(value.detach())) for value in sums.values()), sums
        assert torch.isfinite(logp.grad).all()


def single_precision_agrees(objective) -> None:
    batch = annotated(objective, rows_for(objective))
    outputs = Bigram().forward(batch, objective.needs.outputs)
    double = objective.sums(outputs, batch)
    single = objective.sums({name: value.float() for name, value in outputs.items()}, batch)
    for name in double:
        torch.testing.assert_close(single[name].double(), double[name], rtol=1e-4, atol=1e-4)


def gradient_matches_differences(objective) -> None:
    if getattr(objective, "pair_weights", None) is not None:
        return  # weights follow the policy and carry no gradient on purpose
    batch = annotated(objective, rows_for(objective, count=3))
    outputs = {k: v.detach().requires_grad_() for k, v in Bigram().forward(batch, objective.needs.outputs).items()}
    names = list(outputs)

    def loss(*values):
        sums = objective.sums(dict(zip(names, values, strict=True)), batch)
        return sum(weight * sums[name] for name, weight in objective.weights.items())

    assert torch.autograd.gradcheck(loss, tuple(outputs.values()), atol=1e-7)


def reference_identity_at_step_zero(objective) -> None:
    """With policy = reference, rewards and margins are 0, and DPO's loss is log 2."""
    if "ref_logp" not in objective.needs.annotations:
        return
    batch = annotated(objective, rows_for(objective), seed=0)
    sums = objective.sums(Bigram(seed=0).forward(batch, objective.needs.outputs), batch)
    for name, value in sums.items():
        if name in ("reward/chosen", "reward/rejected", "reward/margin"):
            assert abs(float(value)) < 1e-9, f"{name} is {float(value)} at step 0"
    if "dpo" in sums and not getattr(objective, "use_margins", False):
        assert abs(float(sums["dpo"].detach()) / batch.num_units - math.log(2)) < 1e-9


def prompt_is_not_trained(objective) -> None:
    """Only the last prompt token can move a bigram policy; other prompt tokens change nothing."""
    if isinstance(objective, WithPrompt):
        return
    rows = rows_for(objective)
    changed = [replace(g, prompt=Sequence((3, 3, 3, g.prompt.tokens[-1]))) for g in rows]
    torch.testing.assert_close(
        loss_and_gradient(objective, annotated(objective, changed)),
        loss_and_gradient(objective, annotated(objective, rows)),
        **TIGHT,
    )


OBJECTIVE_CHECKS = (
    parts_are_named_once,
    split_changes_nothing,
    order_changes_nothing,
    processes_change_nothing,
    prepared_alike_in_processes,
    masked_tokens_weigh_nothing,
    edges_are_finite,
    single_precision_agrees,
    gradient_matches_differences,
    reference_identity_at_step_zero,
    prompt_is_not_trained,
)
