"""The log-prob cache: what it keys on, and that its file serves another process."""

import numpy as np
import torch

from tests.unit.training.bigram import Bigram, pairs
from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group, Sequence
from wootz.training.annotators import DeferredRole, LogpCache, RoleLogp


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
