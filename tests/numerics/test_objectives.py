"""Objectives against closed forms, and gradients against finite differences in fp64."""

import math

import numpy as np
import pytest
import torch

from wootz.core.batch import GroupBatch
from wootz.core.errors import DataError
from wootz.core.records import Completion, Group, Sequence
from wootz.objectives import SINGLE
from wootz.objectives.preference import DPOConfig, dpo
from wootz.objectives.reducers import REDUCERS, entropy, logp
from wootz.objectives.supervised import SFTConfig


def pair(index: int, ref=(0.0, 0.0), lengths=(2, 3)) -> Group:
    completions = tuple(
        Completion(tuple(range(1, n + 1)), per_token={"ref_logp": np.full(n, total / n)})
        for n, total in zip(lengths, ref, strict=True)
    )
    return Group(str(index), Sequence((7, 8)), completions)


def total_loss(objective, batch, flat):
    sums, counts = objective.sums({"logp": flat}, batch), objective.counts(batch)
    return sum(weight * sums[name] / counts[name] for name, weight in objective.weights.items())


def test_dpo_is_log_two_when_policy_equals_reference():
    batch = GroupBatch((pair(0, (-3.0, -5.0)), pair(1, (-1.0, -9.0))))
    loss = total_loss(DPOConfig(beta=0.7).build(), batch, batch.per_token("ref_logp"))
    assert float(loss) == pytest.approx(math.log(2), abs=1e-12)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_dpo_closed_form(label_smoothing):
    # log pi: chosen -2, rejected -6; reference: -3, -5. margin = (1) - (-1) = 2.
    batch = GroupBatch((pair(0, (-3.0, -5.0)),))
    flat = torch.tensor([-1.0, -1.0, -2.0, -2.0, -2.0], dtype=torch.float64)
    objective = DPOConfig(beta=0.5, label_smoothing=label_smoothing).build()
    x = 0.5 * 2.0
    right, wrong = math.log1p(math.exp(-x)), math.log1p(math.exp(x))
    expected = (1 - label_smoothing) * right + label_smoothing * wrong
    assert float(total_loss(objective, batch, flat)) == pytest.approx(expected, abs=1e-12)
    sums = objective.sums({"logp": flat}, batch)
    assert float(sums["reward/chosen"]) == pytest.approx(0.5)
    assert float(sums["reward/rejected"]) == pytest.approx(-0.5)
    assert float(sums["reward/accuracy"]) == 1.0
    assert float(sums["logp/chosen"]) == pytest.approx(-2.0)


def test_dpo_with_likelihood_term_counts_chosen_tokens_only():
    batch = GroupBatch((pair(0), pair(1, lengths=(4, 1))))
    flat = torch.full((10,), -0.5, dtype=torch.float64)
    objective = DPOConfig(beta=0.1, sft_weight=2.0).build()
    margin = torch.tensor([-1.0 + 1.5, -2.0 + 0.5], dtype=torch.float64)
    expected = dpo(margin, beta=0.1).mean() + 2.0 * 0.5
    assert float(total_loss(objective, batch, flat)) == pytest.approx(float(expected), abs=1e-12)


def test_sft_is_the_mean_over_all_trained_tokens():
    mask = np.array([True, False, True])
    groups = (
        Group("a", Sequence((1,)), (Completion((2, 3, 4), per_token={"loss_mask": mask}),)),
        Group("b", Sequence((1,)), (Completion((5,)),)),
    )
    batch = GroupBatch(groups)
    flat = torch.tensor([-1.0, -2.0, -6.0], dtype=torch.float64)
    assert float(total_loss(SFTConfig().build(), batch, flat)) == pytest.approx(3.0)
    assert batch.targets.tolist() == [2, 4, 5]


@pytest.mark.parametrize(
    "config", [SFTConfig(), DPOConfig(), DPOConfig(beta=2.0, label_smoothing=0.1, sft_weight=0.3)], ids=repr
)
def test_gradients_match_finite_differences(config):
    torch.manual_seed(0)
    batch = GroupBatch((pair(0, (-3.0, -4.0)), pair(1, (-1.0, -2.0), lengths=(1, 4))))
    flat = (-torch.rand(10, dtype=torch.float64)).requires_grad_()
    objective = config.build()
    assert torch.autograd.gradcheck(lambda x: total_loss(objective, batch, x), (flat,), atol=1e-9)


@pytest.mark.parametrize("x", [0.0, -1e-30, -50.0, -5000.0])
def test_dpo_is_finite_at_the_edges(x):
    margin = torch.tensor([x, -x, 1e4], requires_grad=True)
    loss = dpo(margin, beta=1.0).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(margin.grad).all()


def test_a_pair_needs_two_completions():
    with pytest.raises(DataError, match="two completions"):
        DPOConfig().build().prepare(GroupBatch((Group("x", Sequence((1,)), (Completion((1,)),)),)), dict)


def test_every_registered_objective_states_its_parts():
    for name in SINGLE:
        objective = SINGLE.validate({"type": name}).build()
        assert objective.weights
        assert all(output in REDUCERS for output in objective.needs.outputs)


def test_reducers_against_closed_forms():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.1, 0.0]], dtype=torch.float64))
    assert logp(logits, torch.tensor([1, 0])).tolist() == pytest.approx([math.log(0.25), math.log(0.9)])
    expected = [1.5 * math.log(2), -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))]
    assert entropy(logits, torch.tensor([0, 0])).tolist() == pytest.approx(expected)


def test_reducers_do_not_depend_on_a_constant_shift():
    logits = torch.randn(4, 11, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = torch.tensor([0, 3, 10, 5])
    for reduce in REDUCERS.values():
        torch.testing.assert_close(reduce(logits, targets), reduce(logits + 1e3, targets), rtol=1e-9, atol=1e-9)
