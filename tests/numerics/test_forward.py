"""The forward pass against the model's own, one unpadded row at a time: values to 1e-5, gradients to 1e-4."""

import dataclasses

import pytest
import torch
from tests.batches import (
    random_batch,
    relative_error,
    slow_logp,
    tiny_language_model,
    value_and_gradients,
)
from tests.tiny import KINDS

from wootz.core.batch import GroupBatch
from wootz.core.records import Completion
from wootz.models.forward import engine_of, forward_groups

LONG = ((150, (6, 30, 3)), (3, (140,)), (2, (1,)))
"""Rows longer than a block of queries, and rows that share one."""


def logp(model, batch, plan="auto"):
    return forward_groups(model, batch, ("logp",), plan=plan)["logp"]


def use_own_layers(model) -> None:
    engine_of(model).layout = None


@pytest.mark.parametrize("train", ["no", "lora", "full"])
@pytest.mark.parametrize("layers", ["fast", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_plans_equal_one_row_at_a_time(kind, layers, train):
    model = tiny_language_model(kind, train)
    if layers == "own":
        use_own_layers(model)
    elif kind == "gpt2":
        pytest.skip("the fast layers do not know learned positions")
    else:
        assert engine_of(model).layout is not None
    batch = random_batch()
    expected, expected_gradients = value_and_gradients(model, lambda: slow_logp(model.module, batch))
    assert bool(expected_gradients) == (train != "no")
    for plan in ("shared", "flat"):
        for model.checkpointing in (False, True):
            found, gradients = value_and_gradients(model, lambda plan=plan: logp(model, batch, plan))
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            assert found.dtype == torch.float32
            if train != "no":
                assert relative_error(gradients, expected_gradients) < 1e-4


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_rows_longer_than_a_block(kind):
    model = tiny_language_model(kind, "full", max_position_embeddings=512)
    batch = random_batch(LONG)
    expected, expected_gradients = value_and_gradients(model, lambda: slow_logp(model.module, batch))
    for plan in ("shared", "flat"):
        found, gradients = value_and_gradients(model, lambda plan=plan: logp(model, batch, plan))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert relative_error(gradients, expected_gradients) < 1e-4


@pytest.mark.parametrize("layers", ["fast", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_moves_no_other(kind, layers):
    """Other tokens in one completion change its own values alone, to the last bit where nothing else moved."""
    model = tiny_language_model(kind)
    if layers == "own":
        use_own_layers(model)
    batch = random_batch(holes=False)
    group = batch.groups[1]
    moved = Completion(tuple((token + 1) % 288 for token in group.completions[1].tokens))
    changed = dataclasses.replace(group, completions=(group.completions[0], moved, *group.completions[2:]))
    other = GroupBatch((batch.groups[0], changed, *batch.groups[2:]))
    own = batch.completion_of_token == 3
    for plan in ("shared", "flat"):
        before, after = logp(model, batch, plan), logp(model, other, plan)
        assert torch.equal(before[~own], after[~own])
        assert (before[own] - after[own]).abs().min() > 1e-3


@pytest.mark.parametrize("layers", ["fast", "own"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_do_not_depend_on_the_rest_of_the_batch(kind, layers):
    model = tiny_language_model(kind)
    if layers == "own":
        use_own_layers(model)
    batch = random_batch()
    for plan in ("shared", "flat"):
        whole = logp(model, batch, plan)
        alone = torch.cat([logp(model, GroupBatch((group,)), plan) for group in batch.groups])
        torch.testing.assert_close(whole, alone, rtol=1e-5, atol=1e-5)
        backwards = GroupBatch(batch.groups[::-1])
        pieces = logp(model, backwards, plan).split([int(GroupBatch((g,)).lengths.sum()) for g in backwards.groups])
        torch.testing.assert_close(torch.cat(pieces[::-1]), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3"])
def test_bf16_errs_no_more_than_the_model_itself(kind, train):
    """Rounding of one small random model is luck, so distances from fp32 are summed over batches, with room of half."""
    exact = tiny_language_model(kind, train)
    # The same rounded weights in both, so that only the arithmetic differs.
    rounded = tiny_language_model(kind, train, dtype=torch.bfloat16)
    exact.base.load_state_dict({name: value.float() for name, value in rounded.base.state_dict().items()})
    ours = own = ours_gradient = own_gradient = 0.0
    for seed in range(4):
        batch = random_batch(seed=seed)
        truth, true_gradients = value_and_gradients(exact, lambda batch=batch: slow_logp(exact.module, batch))
        fast, fast_gradients = value_and_gradients(rounded, lambda batch=batch: logp(rounded, batch))
        slow, slow_gradients = value_and_gradients(rounded, lambda batch=batch: slow_logp(rounded.module, batch))
        assert fast.dtype == torch.float32
        ours += float((fast - truth).square().sum())
        own += float((slow - truth).square().sum())
        for name, true in true_gradients.items():
            ours_gradient += float((fast_gradients[name] - true).square().sum())
            own_gradient += float((slow_gradients[name] - true).square().sum())
    assert 0 < ours < 1.5**2 * own
    assert 0 < ours_gradient < 1.5**2 * own_gradient
