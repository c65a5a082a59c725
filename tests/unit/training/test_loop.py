"""The loop's arithmetic: gradients do not depend on how a step is cut up, and it stops when and as it should."""

import copy
import math
import os
import signal

import pytest
import torch

from tests.unit.training.bigram import Bigram, pairs, singles
from wootz.core.batch import GroupBatch
from wootz.core.errors import GuardStop, Interrupted
from wootz.core.protocols import GuardVerdict
from wootz.objectives.preference import DPOConfig
from wootz.objectives.supervised import SFTConfig
from wootz.training import OptimConfig, TrainConfig
from wootz.training.annotators import RoleLogp
from wootz.training.loop import Loop
from wootz.training.recorder import Recorder
from wootz.training.sources import DatasetSource

FLAT = OptimConfig(schedule="constant", warmup=0.0, clip_norm=1e9)


class Kept(Recorder):
    """Keeps what is recorded in memory."""

    def __init__(self):
        super().__init__(None)
        self.rows, self.events = [], []

    def metrics(self, step, num_steps, metrics):
        self.rows.append((step, dict(metrics)))

    def event(self, kind, message, **fields):
        self.events.append((kind, message))


def make_loop(objective, groups, *, policy=None, guards=(), recorder=None, **train) -> Loop:
    policy = policy or Bigram()
    reference = Bigram(seed=5)
    config = TrainConfig(lr=0.05, optim=FLAT, **train)
    return Loop(
        roles={"policy": policy, "reference": reference},
        source=DatasetSource(groups, config, seed=3),
        objective=objective,
        config=config,
        recorder=recorder or Kept(),
        seed=3,
        annotators=[RoleLogp("reference", "ref_logp", max_tokens=20)],
        guards=guards,
        checkpoints=False,
    )


def gradient(objective, groups, **train) -> torch.Tensor:
    loop = make_loop(objective, groups, **train)
    batch = GroupBatch(tuple(groups))
    for annotator in loop.annotators:
        batch = annotator.annotate(batch, loop.roles)
    loop._backward(batch, objective.counts(batch))
    return loop.policy.table.grad


@pytest.mark.parametrize(
    ("config", "make"),
    [(SFTConfig(), singles), (DPOConfig(), pairs), (DPOConfig(beta=1.0, label_smoothing=0.1, sft_weight=0.5), pairs)],
    ids=["sft", "dpo", "dpo+sft"],
)
def test_gradient_does_not_depend_on_the_split_or_the_order(config, make):
    groups = make(9)
    whole = gradient(config.build(), groups, micro_tokens=10_000)
    for micro_tokens in (1, 15, 40):
        torch.testing.assert_close(
            gradient(config.build(), groups, micro_tokens=micro_tokens), whole, rtol=1e-9, atol=1e-12
        )
    torch.testing.assert_close(gradient(config.build(), groups[::-1], micro_tokens=20), whole, rtol=1e-9, atol=1e-12)


def test_sft_gradient_is_the_global_token_mean():
    groups = singles(8)
    policy = Bigram()
    total = sum(policy.forward(GroupBatch((g,)), ("logp",))["logp"].sum() for g in groups)
    (-total / sum(len(g.completions[0].tokens) for g in groups)).backward()
    torch.testing.assert_close(gradient(SFTConfig().build(), groups, micro_tokens=7), policy.table.grad)


def test_first_update_is_adamw_by_hand():
    groups = singles(4)
    loop = make_loop(SFTConfig().build(), groups, groups_per_step=4)
    before = loop.policy.table.detach().clone()
    g = gradient(SFTConfig().build(), groups)
    loop.update(next(iter(loop.source)))
    torch.testing.assert_close(loop.policy.table.detach(), before - 0.05 * g / (g.abs() + 1e-8), rtol=1e-6, atol=1e-9)


def test_loss_falls_and_steps_are_counted():
    recorder = Kept()
    make_loop(SFTConfig().build(), singles(12), recorder=recorder, epochs=5, groups_per_step=5).run()
    losses = [row["loss/total"] for _, row in recorder.rows]
    assert len(losses) == 15  # 3 batches (5, 5, 2) an epoch
    assert losses[-1] < losses[0]
    assert recorder.rows[2][1]["data/units"] == 2


def test_metrics_of_a_fresh_dpo_run():
    recorder = Kept()
    loop = make_loop(DPOConfig().build(), pairs(4), recorder=recorder, groups_per_step=4)
    loop.roles["reference"].table = loop.policy.table.detach().clone()
    loop.run()
    first = recorder.rows[0][1]
    assert first["loss/dpo"] == pytest.approx(math.log(2), abs=1e-12)
    assert first["reward/margin"] == pytest.approx(0, abs=1e-12)
    assert first["reward/accuracy"] == pytest.approx(0.5)


def test_clipping_bounds_the_step_and_reports_the_norm_before():
    loop = make_loop(SFTConfig().build(), singles(4), groups_per_step=4)
    expected = float(gradient(SFTConfig().build(), singles(4)).norm())
    loop.optimiser._config = OptimConfig(clip_norm=1e-3)
    seen = {}
    step = loop.optimiser.step
    loop.optimiser.step = lambda lr: (seen.update(norm=float(loop.policy.table.grad.norm())), step(lr))
    metrics = loop.update(next(iter(loop.source)))
    assert metrics["optim/grad_norm"] == pytest.approx(expected)
    assert seen["norm"] == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_before_the_update(bad):
    loop = make_loop(SFTConfig().build(), singles(6), groups_per_step=2)
    batches = iter(loop.source)
    loop.update(next(batches))
    good = loop.policy.table.detach().clone()
    forward = loop.policy.forward
    loop.policy.forward = lambda batch, outputs: {k: v * bad for k, v in forward(batch, outputs).items()}
    with pytest.raises(GuardStop, match="step 2"):
        loop.update(next(batches))
    assert torch.equal(loop.policy.table.detach(), good)
    assert loop._source_state == {"position": 1}
    assert "guard" in [kind for kind, _ in loop.recorder.events]


def test_a_guard_stops_and_another_warns():
    class Fussy:
        name, needs = "fussy", ()

        def check(self, step, metrics):
            return GuardVerdict("stop" if step == 3 else "warn", f"step {step}")

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    loop = make_loop(SFTConfig().build(), singles(10), guards=[Fussy()], groups_per_step=2)
    with pytest.raises(GuardStop, match="step 3"):
        loop.run()
    assert loop.step == 3
    assert [m for kind, m in loop.recorder.events if kind == "warning"] == ["step 1", "step 2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_request_finishes_the_step(number):
    class Sender:
        name, needs = "sender", ()

        def check(self, step, metrics):
            if step == 2:
                os.kill(os.getpid(), number)
            return GuardVerdict("continue")

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    before = signal.getsignal(number)
    loop = make_loop(SFTConfig().build(), singles(10), guards=[Sender()], groups_per_step=2)
    with pytest.raises(Interrupted):
        loop.run()
    assert loop.step == 2
    assert signal.getsignal(number) == before


def test_regulariser_gradient_joins_once():
    class L2:
        def __call__(self, named):
            return sum(((p - 1.0) ** 2).sum() for _, p in named), 2.0

    loop = make_loop(SFTConfig().build(), singles(4), groups_per_step=4)
    plain = gradient(SFTConfig().build(), singles(4))
    loop.regularisers = {"l2": (0.3, L2())}
    seen = {}
    loop.optimiser.clip = lambda: (seen.update(grad=loop.policy.table.grad.clone()), 1.0)[1]
    table = copy.deepcopy(loop.policy.table.detach())
    metrics = loop.update(next(iter(loop.source)))
    torch.testing.assert_close(seen["grad"], plain + 0.3 * (table - 1.0))
    assert metrics["loss/l2"] == pytest.approx(float(((table - 1) ** 2).sum() / 2))
