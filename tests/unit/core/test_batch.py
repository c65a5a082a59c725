"""The flat view of a batch: order, masks, sums, splits."""

import numpy as np
import pytest
import torch

from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group, Sequence
from wootz.core.seeds import derive_seed


def make() -> GroupBatch:
    mask = np.array([True, False, True])
    a = Group(
        "a", Sequence((1, 2)), (Completion((3, 4, 5), per_token={"loss_mask": mask}), Completion((6,))), {"gold": "x"}
    )
    b = Group(
        "b",
        Sequence((7,)),
        (Completion((8, 9), columns={"mark": 1}), Completion((), columns={"mark": 2})),
        {"gold": "y"},
    )
    return GroupBatch((a, b))


def test_flat_view():
    batch = make()
    assert batch.targets.tolist() == [3, 5, 6, 8, 9]
    assert batch.lengths.tolist() == [2, 1, 2, 0]
    assert batch.completion_of_token.tolist() == [0, 0, 1, 2, 2]
    assert batch.group_of_completion.tolist() == [0, 0, 1, 1]
    assert batch.num_tokens == 2 + 4 + 1 + 2
    assert batch.group_column("gold") == ["x", "y"]
    assert batch.sum_by_completion(torch.tensor([1.0, 2, 4, 8, 16])).tolist() == [3, 4, 24, 0]


def test_per_token_values_keep_their_place_and_type():
    values = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    batch = make().with_per_token(ref_logp=values)
    assert torch.equal(batch.per_token("ref_logp"), values)
    first = batch.groups[0].completions[0].per_token["ref_logp"]
    assert first.tolist() == [0.1, 0.0, 0.2]
    assert batch.has_per_token("ref_logp")
    assert not make().has_per_token("ref_logp")
    with pytest.raises(KeyError):
        make().per_token("ref_logp")


def test_columns():
    batch = make().with_columns({"score": [1.0, 2.0, 3.0, 4.0]})
    assert batch.column("score") == [1.0, 2.0, 3.0, 4.0]
    assert batch.groups[1].completions[1].columns == {"mark": 2, "score": 4.0}
    with pytest.raises(ValueError, match="3 values for 4 completions"):
        make().with_columns({"score": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shards_hold_every_group_once(size):
    groups = tuple(Group(str(i), Sequence((1,)), (Completion((2,)),)) for i in range(5))
    shards = [GroupBatch(groups).shard(rank, size) for rank in range(size)]
    assert sorted(g.id for s in shards for g in s.groups) == [str(i) for i in range(5)]


@pytest.mark.parametrize("max_tokens", [1, 5, 9, 100, None])
def test_splits_hold_every_group_once_and_stay_in_the_budget(max_tokens):
    groups = tuple(Group(str(i), Sequence((1,) * (i + 1)), (Completion((2, 2)),)) for i in range(6))
    parts = GroupBatch(groups).split("group", max_tokens)
    assert sorted(g.id for p in parts for g in p.groups) == [str(i) for i in range(6)]
    if max_tokens:
        assert all(part.num_tokens <= max_tokens or part.num_units == 1 for part in parts)


def test_a_batch_unit_is_never_cut():
    groups = tuple(Group(str(i), Sequence((1,)), (Completion((2,)),)) for i in range(4))
    assert len(GroupBatch(groups).split("batch", 1)) == 1
    assert GroupBatch(()).split("group", 10) == []


def test_a_per_token_array_of_another_length_is_refused():
    with pytest.raises(AssertionError, match="2 values for 3 tokens"):
        Completion((1, 2, 3), per_token={"value": np.zeros(2)})


def test_seeds_depend_on_every_name_and_its_type():
    names = [(0, "a", 1), (0, "a", 2), (1, "a", 1), (0, "b", 1), (0, "a", "1"), (0, "a1"), (0, "a", 1, 0)]
    seeds = {derive_seed(*name) for name in names}
    assert len(seeds) == len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)
