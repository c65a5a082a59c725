"""The log-prob cache: what it keys on, and that its file serves another process."""

import numpy as np
import pytest
import torch

from tests.unit.training.bigram import Bigram, pairs, singles
from wootz.core.batch import GroupBatch
from wootz.core.errors import DataError
from wootz.core.records import Completion, Group, Sequence
from wootz.training.annotators import DeferredRole, LogpCache, MismatchedRatio, RoleLogp, mismatched


class Counting(Bigram):
    def __init__(self, **options):
        super().__init__(**options)
        self.asked = 0

    def forward(self, batch, outputs):
        self.asked += batch.num_units
        return super().forward(batch, outputs)


def test_the_file_serves_another_run_and_no_other_weights(tmp_path):
    rows, role = pairs(6), Counting()
    first = RoleLogp("reference", "ref_logp", max_tokens=30, cache=LogpCache("weights-a", tmp_path))
    expected = first.annotate(GroupBatch(tuple(rows)), {"reference": role}).per_token("ref_logp")
    assert role.asked == 6
    cache = LogpCache("weights-a", tmp_path)
    again = RoleLogp("reference", "ref_logp", max_tokens=30, cache=cache)
    served = again.annotate(GroupBatch(tuple(rows[::-1])), {"reference": role})
    assert role.asked == 6
    assert torch.equal(GroupBatch(served.groups[::-1]).per_token("ref_logp"), expected)
    cache.close()
    other = RoleLogp("reference", "ref_logp", max_tokens=30, cache=LogpCache("weights-b", tmp_path))
    other.annotate(GroupBatch(tuple(rows)), {"reference": role})
    assert role.asked == 12


def test_the_key_is_tokens_and_masks_not_the_row():
    group = Group("a", Sequence((1, 2)), (Completion((3, 4)),))
    same = Group("b", Sequence((1, 2)), (Completion((3, 4), text="other text"),))
    masked = Group("a", Sequence((1, 2)), (Completion((3, 4), per_token={"loss_mask": np.array([True, False])}),))
    moved = Group("a", Sequence((1,)), (Completion((2, 3, 4)),))
    split = Group("a", Sequence((1, 2)), (Completion((3,)), Completion((4,))))
    keys = [LogpCache.key(one) for one in (group, same, masked, moved, split)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_a_deferred_role_is_loaded_once_and_only_when_asked():
    loads = []

    def load():
        loads.append(1)
        return Bigram()

    role = DeferredRole(load)
    assert role.masters() == {}
    assert loads == []
    batch = GroupBatch(tuple(pairs(2)))
    for _ in range(2):
        torch.testing.assert_close(role.forward(batch, ("logp",))["logp"], Bigram().forward(batch, ("logp",))["logp"])
    assert loads == [1]


def test_a_mismatched_answer_is_another_rows_and_never_for_the_same_prompt():
    """Rows in pairs with one prompt, as unpaired preference data has them, and one answer that many rows share."""
    rows = []
    for index in range(6):
        prompt, answer = Sequence((1 + index // 2,)), (9,) if index % 3 == 0 else (10 + index,)
        rows.append(Group(f"r{index}", prompt, (Completion(answer),)))
    for row, other in zip(rows, mismatched(rows), strict=True):
        assert other.prompt == row.prompt
        answer = other.completions[0].tokens
        assert answer != row.completions[0].tokens
        owners = [r for r in rows if r.completions[0].tokens == answer]
        assert any(owner.prompt != row.prompt for owner in owners)


@pytest.mark.parametrize("rows", [singles(1), [Group(f"{i}", Sequence((1,)), (Completion((i,)),)) for i in range(4)]])
def test_rows_without_another_prompt_are_refused(rows):
    with pytest.raises(DataError, match="none"):
        mismatched(rows)


def test_mismatched_ratio_is_policy_less_reference_on_the_partners_answer():
    rows = singles(5)
    policy, reference = Bigram(seed=3), Counting(seed=4)
    ask = RoleLogp("reference", "ref_logp", max_tokens=8, cache=LogpCache("w"))
    annotator = MismatchedRatio(rows, reference=ask, max_tokens=8)
    roles = {"policy": policy, "reference": reference}
    found = annotator.annotate(GroupBatch(tuple(rows[::-1])), roles).column("mismatched_ratio")[::-1]
    partners = GroupBatch(tuple(mismatched(rows)))
    with torch.no_grad():
        difference = policy.forward(partners, ("logp",))["logp"] - reference.forward(partners, ("logp",))["logp"]
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), partners.sum_by_completion(difference))
    asked = reference.asked
    annotator.annotate(GroupBatch(tuple(rows)), roles)
    assert reference.asked == asked


def test_partners_are_good_and_bad_as_often_as_the_file():
    """Pairs split into good and bad answers alternate in the file; partners must not all be good."""
    rows = [Group(f"{i}", Sequence((i // 2,)), (Completion((1000 + i,)),)) for i in range(400)]
    good = sum((group.completions[0].tokens[0] - 1000) % 2 == 0 for group in mismatched(rows))
    assert 160 < good < 240
