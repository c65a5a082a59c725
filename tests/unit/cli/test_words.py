"""Results as text."""

from wootz.cli.words import measures_text, plan_text, table, verdict_text

VERDICT = {
    "passed": False,
    "policy": {"target": "better"},
    "measures": {
        "target": {
            "verdict": "better",
            "kind": "target",
            "held": True,
            "parent": 0.081,
            "child": 0.7,
            "difference": 0.6190001,
            "low": 0.55,
            "high": 0.68,
            "n": 200,
            "limit": None,
        },
        "kl": {
            "verdict": "worse",
            "kind": "limit",
            "held": False,
            "parent": 0.0,
            "child": 0.9,
            "difference": 0.9,
            "low": 0.7,
            "high": 1.1,
            "n": 24,
            "limit": 0.5,
        },
        "length": {"verdict": "void", "kind": "limit", "held": None, "n": 3, "note": "it needs weights"},
    },
}


def test_a_verdict_comes_first_and_its_numbers_are_aligned():
    assert verdict_text(VERDICT).splitlines() == [
        "NOT PASSED",
        "  measure  verdict           parent  child  difference  interval        limit    n",
        "  target   better             0.081    0.7      +0.619  [+0.55, +0.68]         200",
        "  kl       not held (worse)       0    0.9        +0.9  [+0.7, +1.1]      0.5   24",
        "  length   void                                                                  3",
        "  length: it needs weights",
    ]


def test_measures_of_one_model():
    told = {
        "target": {"mean": 0.25, "low": 0.1, "high": 0.4, "n": 40},
        "x": {"mean": None, "low": None, "high": None, "n": 0},
    }
    assert measures_text(told).splitlines() == [
        "  measure  mean  interval     n",
        "  target   0.25  [0.1, 0.4]  40",
        "  x                           0",
    ]


def test_a_table_of_nothing():
    assert table([]) == ""


def test_a_plan():
    found = {
        "recipe": {"model": {"base": "x", "lora": {"rank": 4}}, "objective": {"type": "dpo"}},
        "out": "runs/x",
        "steps": 1200,
        "data": {
            "findings": [
                {"severity": "warning", "check": "length", "source": "a.jsonl", "message": "long", "fix": "cut"}
            ],
            "counts": {"train/rows": 40000},
        },
        "step": [{"loss/total": 0.6931, "time/step": 1.5}],
    }
    text = plan_text(found)
    assert "x, LoRA rank 4" in text
    assert "1,200" in text
    assert "  warning [length] a.jsonl: long\n    fix: cut" in text
    assert "40,000" in text
    assert "loss/total 0.6931, time/step 1.5" in text
