"""Each guard on made metrics: when it is quiet, warns, stops, and what a resume remembers."""

import pytest

from wootz.guards import GUARDS
from wootz.guards import limits as limits_module


def build(**settings):
    return GUARDS.validate(settings).build()


@pytest.mark.parametrize(("kl", "action"), [(None, "continue"), (1.0, "continue"), (6.0, "warn"), (11.0, "stop")])
def test_kl(kl, action):
    guard = build(type="kl", stop_above=10, warn_above=5)
    metrics = {} if kl is None else {"kl/reference": kl}
    verdict = guard.check(3, metrics)
    assert verdict.action == action
    if action != "continue":
        assert verdict.evidence["kl"] == kl
        assert f"{kl:.2f}" in verdict.message


def test_length_is_measured_against_the_start_even_after_a_resume():
    guard = build(type="length", warn_ratio=1.5, stop_ratio=3)
    actions = [guard.check(step, {"rollout/length": value}).action for step, value in enumerate((20.0, 29.0, 31.0))]
    assert actions == ["continue", "continue", "warn"]
    again = build(type="length", warn_ratio=1.5, stop_ratio=3)
    again.load_state_dict(guard.state_dict())
    assert again.check(9, {"rollout/length": 61.0}).action == "stop"
    assert again.check(9, {"loss/total": 1.0}).action == "continue"


def test_budget_counts_the_time_before_a_resume(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(limits_module.time, "monotonic", lambda: now[0])
    guard = build(type="budget", minutes=10)
    now[0] += 9 * 60
    assert guard.check(1, {}).action == "continue"
    state = guard.state_dict()
    now[0] += 10_000
    again = build(type="budget", minutes=10)
    again.load_state_dict(state)
    now[0] += 30
    assert again.check(2, {}).action == "continue"
    now[0] += 60
    assert again.check(3, {}).action == "stop"


def test_spike():
    guard = build(type="spike", factor=5, window=5, action="stop")
    quiet = [guard.check(step, {"optim/grad_norm": 1.0 + 0.1 * step}).action for step in range(5)]
    assert quiet == ["continue"] * 5
    assert guard.check(5, {"optim/grad_norm": 5.9}).action == "continue"  # the median is 1.2
    copy = build(type="spike", factor=5, window=5, action="stop")
    copy.load_state_dict(guard.state_dict())
    for one in (guard, copy):
        verdict = one.check(6, {"optim/grad_norm": 40.0})
        assert verdict.action == "stop"
        assert verdict.evidence["median"] == pytest.approx(1.3)


def test_a_spike_in_the_first_steps_is_not_judged():
    guard = build(type="spike", window=20)
    assert guard.check(1, {"optim/grad_norm": 1e6}).action == "continue"


@pytest.mark.parametrize(
    "settings", [{"type": "kl"}, {"type": "kl", "stop_above": 0}, {"type": "length", "warn_ratio": 1}]
)
def test_bad_settings(settings):
    with pytest.raises(ValueError):
        GUARDS.validate(settings)


def steps(guard, count, **metrics):
    values = {name.replace("__", "/"): value for name, value in metrics.items()}
    noise = lambda step: 0.01 * (-1) ** step  # noqa: E731
    return [guard.check(step, {name: value + noise(step) for name, value in values.items()}) for step in range(count)]


def test_drift_warns_once_when_chosen_answers_fall():
    guard = build(type="drift", window=5)
    verdicts = steps(guard, 9, reward__chosen=-0.3, reward__margin=0.5, reward__longer=0.5)
    assert [v.action for v in verdicts] == ["continue"] * 4 + ["warn"] + ["continue"] * 4
    assert "chosen answers lose probability" in verdicts[4].message
    assert verdicts[4].evidence["reward/chosen"] == pytest.approx(-0.3, abs=0.01)


@pytest.mark.parametrize(("chosen", "margin"), [(0.3, 0.5), (-0.3, -0.1), (0.0, 0.5)])
def test_drift_is_quiet_when_nothing_is_wrong(chosen, margin):
    verdicts = steps(build(type="drift", window=6), 12, reward__chosen=chosen, reward__margin=margin)
    assert {v.action for v in verdicts} == {"continue"}


@pytest.mark.parametrize(("longer", "word"), [(0.97, "longer"), (0.04, "shorter")])
def test_drift_says_when_length_explains_the_margin(longer, word):
    guard = build(type="drift", window=4)
    state_of = build(type="drift", window=4)
    first = steps(guard, 3, reward__chosen=0.2, reward__margin=0.5, reward__longer=longer)
    assert {v.action for v in first} == {"continue"}
    state_of.load_state_dict(guard.state_dict())
    verdict = state_of.check(3, {"reward/chosen": 0.2, "reward/margin": 0.5, "reward/longer": longer})
    assert verdict.action == "warn"
    assert f"the {word} answer" in verdict.message


def test_early_stop_counts_evaluations_and_not_steps():
    guard = build(type="early_stop", patience=2)
    losses = [0.69, None, 0.60, None, 0.61, None, 0.605]
    actions = [
        guard.check(step, {} if loss is None else {"eval/total": loss}).action for step, loss in enumerate(losses)
    ]
    assert actions == ["continue"] * 6 + ["finish"]
    again = build(type="early_stop", patience=2)
    again.load_state_dict({"best": [2, 0.60], "waited": 1})
    verdict = again.check(9, {"eval/total": 0.61})
    assert verdict.action == "finish"
    assert "step 2, 0.6000" in verdict.message
