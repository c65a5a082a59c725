"""Plans: slots, what they see, padding and blocks, each against the definition."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.batches import random_batch, relative_error, slow_logp, tiny_language_model, value_and_gradients
from wootz.core.batch import GroupBatch
from wootz.core.errors import DataError
from wootz.core.records import Completion, Group, Sequence
from wootz.models.fast.attention import make_blocks
from wootz.models.forward import forward_groups
from wootz.models.plans import cheapest, make_plan, padded_batches

PAIR = Group("0", Sequence((10, 11, 12)), (Completion((20, 21, 22)), Completion((30, 31))))

shapes = st.lists(
    st.tuples(st.integers(1, 150), st.lists(st.integers(1, 60), min_size=1, max_size=4)), min_size=1, max_size=4
)


def visible(plan, batch, window):
    """The mask by its definition: walk the text that each slot continues. Rows in the plan's order."""
    seen = np.zeros((plan.num_slots, plan.num_slots), dtype=bool)
    slot = 0
    for group in batch.groups:
        answers = [c.tokens[: int(np.flatnonzero(c.loss_mask)[-1])] for c in group.completions if c.loss_mask.any()]
        rows = [answers] if plan.name == "shared" else [[answer] for answer in answers]
        for row in rows if answers else []:
            prompt = list(range(slot, slot + len(group.prompt.tokens)))
            slot += len(prompt)
            texts = [prompt]
            for answer in row:
                texts.append([*prompt, *range(slot, slot + len(answer))])
                slot += len(answer)
            for text in texts:
                for place, query in enumerate(text):
                    behind = text[: place + 1] if window is None else text[max(0, place + 1 - window) : place + 1]
                    seen[query, behind] = True
    assert slot == plan.num_slots
    return seen


def test_shared_rows_restart_positions_after_the_prompt():
    plan = make_plan(GroupBatch((PAIR,)), "shared")
    # The last token of a completion is predicted, and predicts nothing.
    assert plan.tokens.tolist() == [10, 11, 12, 20, 21, 30]
    assert plan.positions.tolist() == [0, 1, 2, 3, 4, 3]
    assert plan.predictors.tolist() == [2, 3, 4, 2, 5]
    assert plan.row_lengths == (6,)


def test_flat_rows_repeat_the_prompt():
    plan = make_plan(GroupBatch((PAIR,)), "flat")
    assert plan.tokens.tolist() == [10, 11, 12, 20, 21, 10, 11, 12, 30]
    assert plan.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert plan.predictors.tolist() == [2, 3, 4, 7, 8]
    assert plan.row_lengths == (5, 4)


@pytest.mark.parametrize("name", ["shared", "flat"])
def test_what_no_trained_token_needs_gets_no_slot(name):
    half = Completion((20, 21, 22, 23), per_token={"loss_mask": np.array([False, True, False, False])})
    none = Completion((30, 31), per_token={"loss_mask": np.zeros(2, dtype=bool)})
    batch = GroupBatch((Group("0", Sequence((10,)), (half, none)), Group("1", Sequence((11, 12)), (none,))))
    plan = make_plan(batch, name)
    assert plan.tokens.tolist() == [10, 20]
    assert plan.predictors.tolist() == [1]


@pytest.mark.parametrize("name", ["shared", "flat"])
def test_nothing_predicts_the_first_token_of_all(name):
    batch = GroupBatch((PAIR, Group("7:ab", Sequence(()), (Completion((1, 2)),))))
    with pytest.raises(DataError, match="at least one prompt token") as caught:
        make_plan(batch, name)
    assert caught.value.where == "row 7:ab"


@settings(max_examples=25, deadline=None)
@given(shapes, st.sampled_from(["shared", "flat"]), st.sampled_from([None, 1, 3, 40]), st.integers(0, 99))
def test_masks_and_blocks_show_what_the_text_shows(shape, name, window, seed):
    batch = random_batch(shape, seed=seed)
    plan = make_plan(batch, name)
    if plan.num_slots == 0:
        return
    expected = visible(plan, batch, window)
    every = np.arange(plan.num_slots)
    assert (plan.sees(every, every, window) == expected).all()

    shown = np.zeros_like(expected)
    blocks = make_blocks(plan, window, group=2, dtype=torch.float32, device=torch.device("cpu"))
    covered = np.concatenate([np.arange(block.start, block.stop) for block in blocks])
    assert covered.tolist() == every.tolist()
    for block in blocks:
        keys = np.arange(plan.num_slots)[block.keys]
        bias = block.bias.numpy().reshape(-1, 2, len(keys))
        assert set(np.unique(bias)) <= {0.0, -np.inf}
        assert (bias[:, 0] == bias[:, 1]).all()
        assert (bias == 0).any(axis=(0, 1)).all(), "a key that no query of the block sees"
        shown[block.start : block.stop, keys] = bias[:, 0] == 0
    assert (shown == expected).all()

    slots = []
    for rows in padded_batches(plan, max_waste=0.15):
        assert rows.valid.mean() >= 0.85
        dense = rows.mask(window, torch.float32, torch.device("cpu"))[:, 0] == 0
        for allowed, places, valid in zip(dense.numpy(), rows.slots, rows.valid, strict=True):
            slots += places[valid].tolist()
            assert (allowed[np.ix_(valid, valid)] == expected[np.ix_(places[valid], places[valid])]).all()
            assert not allowed[np.ix_(valid, ~valid)].any()
            assert allowed.any(axis=1).all(), "a row that attends to nothing is not a number"
    assert sorted(slots) == every.tolist()


def test_the_blocks_of_a_tree_are_less_than_its_square():
    plan = make_plan(random_batch([(200, [300] * 4)], holes=False), "shared")
    blocks = make_blocks(plan, None, group=1, dtype=torch.float32, device=torch.device("cpu"))
    assert sum(block.bias.numel() for block in blocks) < 0.4 * plan.num_slots**2


def test_cost_takes_the_tree_until_its_square_is_dearer():
    long_prompt, many_answers = random_batch([(300, [20, 20])]), random_batch([(5, [400] * 8)])
    for batch, expected in ((long_prompt, "shared"), (many_answers, "flat")):
        plans = [make_plan(batch, "shared"), make_plan(batch, "flat")]
        assert cheapest(plans, width=64).name == expected
        assert plans[0].num_slots < plans[1].num_slots


def _one_prompt_three_times(length: int) -> GroupBatch:
    prompt, other = tuple(range(1, length + 1)), tuple(range(2, length + 2))
    answers = [((7, 8, 9), (5,)), ((6, 6),), ((4, 3, 2, 1),), ((8, 8),)]
    prompts = (prompt, other, prompt, prompt)
    return GroupBatch(
        tuple(
            Group(str(index), Sequence(asked), tuple(Completion(tokens) for tokens in some))
            for index, (asked, some) in enumerate(zip(prompts, answers, strict=True))
        )
    )


def test_groups_with_one_long_prompt_share_a_row():
    batch = _one_prompt_three_times(40)
    plan = make_plan(batch, "shared")
    # Two prompts of 40; a completion's last token gets no slot: 2 + 0 + 3 + 1, and 1.
    assert plan.row_lengths == (40 + 6, 40 + 1)
    assert plan.tokens[plan.predictors[:3]].tolist() == [40, 7, 8]
    assert plan.tokens[plan.predictors[4:6]].tolist() == [41, 6]
    assert len(plan.predictors) == len(batch.targets)
    assert len(make_plan(_one_prompt_three_times(8), "shared").row_lengths) == 4


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_shared_row_gives_what_rows_apart_give(kind):
    batch = _one_prompt_three_times(40)
    model = tiny_language_model(kind, "full")
    values, gradients = value_and_gradients(model, lambda: forward_groups(model, batch, plan="shared")["logp"])
    apart, apart_gradients = value_and_gradients(model, lambda: forward_groups(model, batch, plan="flat")["logp"])
    torch.testing.assert_close(values, apart, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(values, slow_logp(model.base, batch), rtol=1e-5, atol=1e-5)
    assert relative_error(gradients, apart_gradients) < 1e-4
