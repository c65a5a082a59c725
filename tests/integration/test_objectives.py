"""Every objective through the whole road on a tiny model: it learns what its rows say, and survives a resume."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.integration.test_train import cats_over_dogs, write_rows
from wootz.api.train import resume, train
from wootz.core.errors import DataError, GuardStop, RecipeError, UsageError
from wootz.core.rundir import RunDir
from wootz.objectives import OBJECTIVES

MIX = {"type": "mix", "parts": [{"objective": "dpo"}, {"objective": "ipo", "weight": 0.1}]}
PAIRED = [name for name in OBJECTIVES if name not in ("sft", "kto", "bco", "ranked", "mix")]


@pytest.fixture
def prefs(tmp_path) -> str:
    rows = [row | {"margin": 0.1 * (i % 4), "weight": 1 + i % 2} for i, row in enumerate(cats_over_dogs())]
    return write_rows(tmp_path / "prefs.jsonl", rows)


@pytest.fixture
def base(tiny_llama, prefs) -> dict:
    return {
        "name": "tiny",
        "model": {"base": tiny_llama, "dtype": "fp32", "lora": {"rank": 4}},
        "data": {"train": prefs, "held_out_fraction": 0.25, "chat": True},
        "train": {"lr": 0.01, "epochs": 2, "groups_per_step": 6, "max_length": 128},
    }


def metrics_of(run) -> list[dict]:
    return RunDir.open(run.path).read_lines("metrics.jsonl")


def learned(run) -> tuple[float, float]:
    """The loss at the first step and at the last."""
    losses = [row["loss/total"] for row in metrics_of(run) if "loss/total" in row]
    return losses[0], losses[-1]


@pytest.mark.parametrize("objective", [*PAIRED, MIX], ids=lambda o: o if isinstance(o, str) else o["type"])
def test_paired(base, objective, tmp_path):
    run = train(base | {"objective": objective}, out=tmp_path / "run")
    first, last = learned(run)
    assert last < first
    rows = [row for row in metrics_of(run) if "reward/accuracy" in row]
    # DiscoPOP falls from a margin of 0 towards the rejected answer; CPO compares sums, which the lengths here decide.
    least = {"discopop": 0.0, "cpo": rows[0]["reward/accuracy"]}
    assert rows[-1]["reward/accuracy"] >= least.get(str(objective), 0.9)
    assert {"logp/chosen", "logp/rejected", "reward/longer", "reward/margin"} <= set(rows[-1])


@pytest.mark.parametrize("name", ["kto", "bco"])
@pytest.mark.parametrize("lora", [{"rank": 4}, None])
def test_unpaired_by_a_recipe_key(base, name, lora, tmp_path):
    base["data"] |= {"kind": "unpaired"}
    base["model"] |= {"lora": lora}
    base["train"] |= {"lr": 0.01 if lora else 0.002}
    run = train(base | {"objective": name}, out=tmp_path / "run")
    first, last = learned(run)
    assert last < first
    rows = [row for row in metrics_of(run) if "reward/chosen" in row]
    assert rows[-1]["reward/chosen"] > rows[-1]["reward/rejected"]
    data = json.loads((run.path / "data.json").read_text())
    assert data["kind"] == "unpaired"
    if name == "kto":
        assert rows[0]["loss/kto"] == pytest.approx(0.5, abs=1e-5)  # policy = reference, baseline 0


def ranked_rows(tmp_path) -> str:
    rows = [
        {
            "prompt": f"what is cat {i}? ",
            "completions": [f"the dog {i}", f"the cat {i} is it.", "no"],
            "scores": [0.5, 1.0, -1.0],
        }
        for i in range(18)
    ]
    return write_rows(tmp_path / "ranked.jsonl", rows)


def test_ranked(base, tmp_path):
    base["data"] |= {"train": ranked_rows(tmp_path)}
    run = train(base | {"objective": "ranked"}, out=tmp_path / "run")
    rows = [row for row in metrics_of(run) if "reward/accuracy" in row]
    assert rows[0]["loss/ranked"] == pytest.approx(1.791759, abs=1e-5)  # log 3! at the reference
    assert rows[-1]["reward/best"] > rows[-1]["reward/worst"]
    assert rows[-1]["reward/accuracy"] > 0.8


@pytest.mark.parametrize(("pairs", "count"), [("best_worst", 1), ("adjacent", 2), ("all", 3)])
def test_ranked_rows_become_pairs_with_margins(base, pairs, count, tmp_path):
    base["data"] |= {"train": ranked_rows(tmp_path), "kind": "preference", "pairs": pairs, "held_out_fraction": 0.2}
    plan = train(base | {"objective": {"type": "dpo", "use_margins": True}}, dry_run="data")
    counts = plan["data"]["counts"]
    assert counts["train/rows"] + counts["held_out/rows"] == 18 * count
    assert plan["data"]["kind"] == "preference"


def test_resume_is_exact_with_a_baseline_over_the_step(base, tmp_path):
    base["data"] |= {"kind": "unpaired"}
    base["train"] |= {"checkpoint_every": 1, "keep_checkpoints": 9}
    whole = train(base | {"objective": "kto"}, out=tmp_path / "whole")
    steps = RunDir.open(whole.path).checkpoints()
    part = train(base | {"objective": "kto"}, out=tmp_path / "part")
    for folder in RunDir.open(part.path).checkpoints()[2:]:
        for file in sorted(folder.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        folder.rmdir()
    train(base | {"objective": "kto"}, out=tmp_path / "part", if_exists="resume")
    a, b = (
        load_file(tmp_path / name / "checkpoints" / steps[-1].name / "training.safetensors")
        for name in ("whole", "part")
    )
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_early_stop_ends_the_run_and_the_gate_still_judges(base, tmp_path):
    """A learning rate far too high: the held-out loss never falls again."""
    base["train"] |= {"lr": 3.0, "epochs": 20}
    base |= {"objective": "dpo", "eval": {"every": 1}, "guards": [{"type": "early_stop", "patience": 2}]}
    held = write_rows(tmp_path / "held.jsonl", [{"prompt": f"q{i}?", "gold": "cat"} for i in range(8)])
    base |= {"gate": {"target": held, "suite": "none", "max_new_tokens": 4}}
    run = train(base, out=tmp_path / "run")
    assert max(row["step"] for row in metrics_of(run)) < 20
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    assert any(event.get("source") == "early_stop" for event in events)
    assert (run.path / "verdict.json").exists()
    last = RunDir.open(run.path).checkpoints()[-1].name
    resume(run.path)  # it had ended: nothing more is trained
    assert RunDir.open(run.path).checkpoints()[-1].name == last


def test_other_labels_are_other_rows(base, tmp_path):
    """The same answers with labels turned round are not the run that was begun."""
    rows = [{"prompt": f"what is cat {i}? ", "completion": "the cat", "label": i % 2 == 0} for i in range(24)]
    base["data"] |= {"train": write_rows(tmp_path / "labels.jsonl", rows)}
    done = train(base | {"objective": "bco"}, out=tmp_path / "run")
    write_rows(tmp_path / "labels.jsonl", [row | {"label": not row["label"]} for row in rows])
    with pytest.raises(UsageError, match="another recipe"):
        train(base | {"objective": "bco"}, out=done.path, if_exists="resume")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"objective": "kto"}, DataError, "data.kind: unpaired"),
        ({"objective": {"type": "dpo", "beta": 0}}, RecipeError, "beta"),
        ({"objective": {"type": "ipo", "label_smoothing": 0.1}}, RecipeError, "label_smoothing"),
        ({"objective": {"type": "aot", "use_weights": True}}, RecipeError, "use_weights"),
        ({"objective": {"type": "kpo"}}, RecipeError, "kto"),
        ({"objective": "ranked"}, DataError, "ranked"),
        ({"objective": "bco_pair", "train": {"groups_per_step": 1}}, RecipeError, "one row"),
        ({"objective": "simpo", "guards": [{"type": "drift"}]}, RecipeError, "reward/chosen"),
    ],
)
def test_wrong_objectives_are_refused_with_the_fix(base, change, error, message, tmp_path):
    with pytest.raises(error, match=message):
        train(base | change, out=tmp_path / "run")


def test_pairs_without_a_conversion(base, tmp_path):
    base["data"] |= {"pairs": "all"}
    with pytest.raises(RecipeError, match="kind: preference"):
        train(base | {"objective": "dpo"}, out=tmp_path / "run")


def test_nan_margins_are_refused(base, tmp_path):
    rows = [{"prompt": f"q{i}? ", "chosen": "yes", "rejected": "no", "margin": float("nan")} for i in range(12)]
    base["data"] |= {"train": write_rows(tmp_path / "nan.jsonl", rows)}
    with pytest.raises((DataError, GuardStop), match="margin"):
        train(base | {"objective": {"type": "dpo", "use_margins": True}}, out=tmp_path / "run")
