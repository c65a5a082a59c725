"""Verdicts from made values of items: what passes, what does not, and why."""

from dataclasses import dataclass

import numpy as np
import pytest

from wootz.core.stats import paired
from wootz.evals.items import Result
from wootz.gates import GateConfig
from wootz.gates.decide import decide, judge


@dataclass
class Measure:
    name: str = "m"
    kind: str = "target"
    limit: float | None = None
    both_sides: bool = False
    against_parent: bool = False
    about: str = ""


def results(values) -> list[Result]:
    return [Result(str(index), value) for index, value in enumerate(values)]


def judged(child, parent, measure=None, margin=0.02):
    return judge(measure or Measure(), results(child), results(parent), against="p", margin=margin)


LIMIT = Measure(kind="limit", limit=0.15)
UP, SAME, DOWN = [1.0] * 60 + [0.0] * 40, [0.0] * 60 + [1.0] * 40, [0.0] * 100


def test_numbers_are_those_of_the_paired_estimate():
    one = judged(UP, SAME)
    estimate = paired(UP, SAME)
    assert (one.difference, one.low, one.high, one.p_value) == (
        estimate.mean,
        estimate.low,
        estimate.high,
        estimate.p_value,
    )
    assert (one.child, one.parent, one.n) == (0.6, 0.4, 100)


def test_items_are_paired_by_id_and_those_without_a_value_left_out():
    child = [Result("a", 1.0), Result("b", 0.0), Result("c", None), Result("d", 1.0)]
    parent = [Result("d", 1.0), Result("b", 1.0), Result("a", 0.0), Result("c", 1.0), Result("e", 0.0)]
    one = judge(Measure(), child, parent, against="p", margin=0.0)
    assert one.n == 3
    assert one.difference == pytest.approx(0.0)
    assert "1 of 4" in one.note


@pytest.mark.parametrize(
    ("child", "parent", "policy", "passed", "verdict"),
    [
        ([1.0] * 90 + [0.0] * 10, [0.0] * 60 + [1.0] * 40, "better", True, "better"),
        (DOWN, [1.0] * 30 + [0.0] * 70, "better", False, "worse"),
        ([1.0] * 3 + [0.0] * 97, [0.0] * 97 + [1.0] * 3, "better", False, "unclear"),
        ([0.5] * 10, [0.5] * 10, "better", False, "same"),
        ([0.5] * 10, [0.5] * 10, "not_worse", True, "same"),
        ([0.49] * 10, [0.5] * 10, "not_worse", True, "worse"),
        ([0.45] * 10, [0.5] * 10, "not_worse", False, "worse"),
    ],
)
def test_policies_of_a_target(child, parent, policy, passed, verdict):
    config = GateConfig(target="x.jsonl", policy=policy)
    found = decide({"target": judged(child, parent, margin=config.margin)}, config)
    assert found.measures["target"].verdict == verdict
    assert found.passed is passed


@pytest.mark.parametrize(
    ("child", "parent", "held"),
    [
        ([0.0] * 100, [0.0] * 100, True),
        ([1.0] * 5 + [0.0] * 95, [0.0] * 100, True),
        ([1.0] * 12 + [0.0] * 88, [0.0] * 100, False),
        ([1.0] * 40 + [0.0] * 60, [0.0] * 100, False),
        ([0.0] * 100, [1.0] * 40 + [0.0] * 60, True),
    ],
)
def test_a_limit_holds_when_its_upper_bound_is_inside(child, parent, held):
    one = judged(child, parent, LIMIT)
    assert one.held is held
    assert (one.high <= 0.15) is held


def test_a_two_sided_limit():
    both = Measure(kind="limit", limit=0.5, both_sides=True)
    noise = np.random.default_rng(0).normal(0, 0.1, 50)
    assert judged(list(noise), [0.0] * 50, both).held
    assert judged(list(noise - 1.0), [0.0] * 50, both).held is False
    assert judged(list(noise + 1.0), [0.0] * 50, both).held is False


def test_what_the_parent_fails_completely_is_void_and_must_be_allowed():
    one = judged([0.0] * 20, [1.0] * 20, LIMIT)
    assert (one.verdict, one.held) == ("void", None)
    config = GateConfig(suite="small")
    assert decide({"x": one}, config).passed is False
    assert decide({"x": one}, GateConfig(suite="small", allow=["void"])).passed is True


def test_an_unclear_limit_fails_unless_allowed():
    one = judged([1.0] * 12 + [0.0] * 88, [0.0] * 100, LIMIT)
    assert decide({"x": one}, GateConfig()).passed is False
    assert decide({"x": one}, GateConfig(allow=["unclear"])).passed is True
    far = judged([1.0] * 40 + [0.0] * 60, [0.0] * 100, LIMIT)
    assert decide({"x": far}, GateConfig(allow=["unclear"])).passed is False


def test_holm_over_several_targets():
    weak = judged([1.0] * 8 + [0.0] * 92, [0.0] * 99 + [1.0])
    assert weak.verdict == "better"
    assert 0.02 < weak.p_value < 0.05
    config = GateConfig(target="x.jsonl", policy="better")
    alone = decide({"a": weak}, config)
    assert alone.passed
    three = decide({"a": weak, "b": weak, "c": weak}, config)
    assert not three.passed
    assert three.measures["a"].p_value == pytest.approx(3 * weak.p_value)
    assert three.measures["a"].verdict == "unclear"


def test_verdict_json_has_the_promised_keys():
    found = decide({"target": judged(UP, SAME)}, GateConfig(target="x.jsonl")).to_json()
    assert {"passed", "policy", "measures"} <= set(found)
    keys = {"verdict", "against", "parent", "child", "difference", "low", "high", "n", "limit"}
    assert keys <= set(found["measures"]["target"])


@pytest.mark.parametrize(
    "settings",
    [
        {"suite": "none"},
        {"max_items": 3},
        {"suite": "none", "target": "x", "limits": {"kl": 1.0}},
        {"verifier": {"type": "contains"}},
        {"target": "x", "measures": [{"type": "verifier", "name": "a", "file": "f", "kind": "limit"}]},
        {"target": "x", "measures": [{"type": "verifier", "name": "a", "file": "f", "limit": 0.1}]},
    ],
)
def test_settings_that_would_do_nothing_are_refused(settings):
    with pytest.raises(ValueError):
        GateConfig(**settings)
