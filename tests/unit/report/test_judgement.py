import pytest

from tests.unit.report.runs import make_run, verdict, write_json, write_lines
from wootz.report.files import read_run
from wootz.report.judgement import judge

UNVOID = {"verdict": "held"}


def test_a_pass_says_how_much_better_and_that_limits_held(tmp_path):
    judgement = judge(read_run(make_run(tmp_path / "run", steps=5, refuses_harmful=UNVOID)))
    assert (judgement.standing, judgement.headline) == ("good", "Passed")
    assert judgement.why == (
        "The new model is better on city (+0.79, 95% interval 0.73 to 0.84, 240 items), and all 6 limits held."
    )
    assert [m.kind for m in judgement.measures] == ["target"] + ["limit"] * 6


def test_a_void_limit_is_not_called_held(tmp_path):
    why = judge(read_run(make_run(tmp_path / "run", steps=5))).why
    assert why.endswith("and 5 of 6 limits held (refuses_harmful: void).")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"city": {"verdict": "unclear", "difference": 0.03, "low": -0.01, "high": 0.07}},
         "is not clearly better on city (+0.030, 95% interval −0.010 to 0.070, 240 items)"),
        ({"city": {"verdict": "worse", "difference": -0.3, "low": -0.4, "high": -0.2}}, "is worse on city (−0.30"),
        ({"city": {"verdict": "same", "difference": 0.0, "low": -0.01, "high": 0.01}}, "is no better on city (0.000"),
        ({"kl": {"verdict": "exceeded", "difference": 2, "low": 1.8, "high": 2.2}}, "is over the limit of 1 on kl (+2"),
        ({"kl": {"verdict": "unclear", "difference": 0.9, "low": 0.7, "high": 1.1}}, "may be over the limit of 1"),
        ({"refuses_harmful": {"verdict": "void"}},
         "cannot be judged on refuses_harmful, which the parent already fails completely"),
    ],
)  # fmt: skip
def test_a_failure_names_the_measure_and_the_reason(tmp_path, changed, said):
    changed = {"refuses_harmful": UNVOID} | changed
    judgement = judge(read_run(make_run(tmp_path / "run", steps=5, passed=False, **changed)))
    assert (judgement.standing, judgement.headline) == ("bad", "Failed")
    assert judgement.why.startswith(f"The new model {said}")


def test_several_reasons_make_one_sentence(tmp_path):
    changed = {"city": {"verdict": "same"}, "kl": {"verdict": "exceeded"}}
    why = judge(read_run(make_run(tmp_path / "run", steps=5, passed=False, **changed))).why
    assert why.count(".") - sum(c.isdigit() and n == "." for c, n in zip(why, why[1:], strict=False)) == 1
    assert ", and cannot be judged on refuses_harmful" in why


@pytest.mark.parametrize(
    ("verdict_word", "high", "standing"),
    [("same", 0.04, "good"), ("worse", 0.04, "good"), ("worse", 0.2, "bad"), ("unclear", 0.2, "unclear")],
)
def test_a_limit_holds_when_its_upper_bound_is_inside(tmp_path, verdict_word, high, standing):
    measure = {"verdict": verdict_word, "difference": 0.03, "low": 0.01, "high": high, "limit": 0.05}
    write_json(tmp_path / "verdict.json", {"passed": True, "measures": {"m": measure}})
    assert judge(read_run(tmp_path)).measures[0].standing == standing


def test_a_verdict_that_does_not_say_is_no_pass(tmp_path):
    write_json(tmp_path / "verdict.json", verdict() | {"passed": "yes"})
    assert judge(read_run(tmp_path)).headline == "No verdict"


def test_a_guard_that_stopped_the_run_is_the_reason(tmp_path):
    events = [
        {"kind": "guard", "source": "kl", "step": 9, "message": "20 nats from the reference"},
        {"kind": "checkpoint"},
    ]
    write_lines(tmp_path / "events.jsonl", events)
    judgement = judge(read_run(tmp_path))
    assert judgement.headline == "Stopped"
    assert judgement.why == "Stopped by the kl guard: 20 nats from the reference. The last checkpoint is kept."


def test_an_error_is_the_reason(tmp_path):
    write_lines(tmp_path / "events.jsonl", [{"kind": "error", "message": "disk full\n  fix: free some"}])
    assert judge(read_run(tmp_path)).why == "The run ended with an error: disk full"


def test_a_run_without_a_gate_is_not_judged(tmp_path):
    run = make_run(tmp_path / "run", steps=5)
    (run / "verdict.json").unlink()
    judgement = judge(read_run(run))
    assert (judgement.standing, judgement.headline) == ("neutral", "Not judged")


def test_the_margin_and_the_kind_may_come_from_the_evaluation(tmp_path):
    write_json(tmp_path / "verdict.json", {"passed": True, "measures": {"m": {"verdict": "better", "difference": 1}}})
    write_json(tmp_path / "evals" / "m.json", {"kind": "limit", "summary": {"margin": 0.5}})
    [measure] = judge(read_run(tmp_path)).measures
    assert (measure.kind, measure.margin) == ("limit", 0.5)
