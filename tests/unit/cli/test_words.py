"""Results as text."""

from wootz.cli.words import plan_text, table, verdict_text

VERDICT = {
    "passed": False,
    "policy": "better",
    "measures": {
        "target": {
            "verdict": "better",
            "against": "base",
            "parent": 0.081,
            "child": 0.7,
            "difference": 0.6190001,
            "low": 0.55,
            "high": 0.68,
            "n": 200,
            "limit": None,
        },
        "length": {
            "verdict": "void",
            "parent": None,
            "child": None,
            "difference": None,
            "low": None,
            "high": None,
            "n": 3,
        },
    },
}


def test_a_verdict_comes_first_and_its_numbers_are_aligned():
    assert verdict_text(VERDICT).splitlines() == [
        "NOT PASSED",
        "  measure  verdict  parent  child  difference  95% interval      n",
        "  target   better    0.081    0.7      +0.619  [+0.55, +0.68]  200",
        "  length   void                                                  3",
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
