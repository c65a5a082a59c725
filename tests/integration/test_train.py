"""The whole road on tiny models: recipe to verdict, dry runs, resume, several processes, bad ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from wootz.api.train import Run, resume, train
from wootz.cli.app import main
from wootz.core.errors import DataError, GuardStop, Interrupted, MissingError, RecipeError, UsageError
from wootz.core.rundir import RunDir

ROOT = Path(__file__).parents[2]


def write_rows(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def cats_over_dogs(count: int = 24) -> list[dict]:
    """Pairs that a tiny model can learn, of uneven lengths."""
    return [
        {
            "prompt": f"what is cat {i}? ",
            "chosen": f"the cat {i} is it.",
            "rejected": f"the dog {'and the house ' * (i % 3)}",
        }
        for i in range(count)
    ]


@pytest.fixture
def pairs(tmp_path) -> str:
    return write_rows(tmp_path / "prefs.jsonl", cats_over_dogs())


@pytest.fixture
def recipe(tiny_llama, pairs, tmp_path) -> dict:
    held = write_rows(tmp_path / "held.jsonl", [{"prompt": f"q{i}?", "gold": "cat"} for i in range(12)])
    return {
        "name": "tiny",
        "model": {"base": tiny_llama, "dtype": "fp32", "lora": {"rank": 4}},
        "data": {"train": pairs, "held_out_fraction": 0.25, "chat": True},
        "objective": {"type": "dpo", "beta": 0.2},
        "train": {"lr": 0.01, "epochs": 2, "groups_per_step": 4, "max_length": 128, "checkpoint_every": 2},
        "eval": {"every": 2, "samples": 4, "max_new_tokens": 8},
        "guards": [{"type": "kl", "stop_above": 1e9}, {"type": "length", "warn_ratio": 1e9}],
        "gate": {"target": held, "suite": "none", "max_new_tokens": 4},
    }


def test_recipe_to_verdict(recipe, tmp_path):
    run = train(recipe, out=tmp_path / "run")
    assert isinstance(run, Run)
    files = {path.name for path in run.path.iterdir()}
    assert {"recipe.yaml", "resolved.json", "env.json", "data.json", "metrics.jsonl", "samples.jsonl"} <= files
    assert {"events.jsonl", "model", "evals", "verdict.json", "README.md", "report.html"} <= files
    metrics = RunDir.open(run.path).read_lines("metrics.jsonl")
    steps = [row for row in metrics if "loss/dpo" in row]
    assert steps[0]["loss/dpo"] == pytest.approx(0.693147, abs=1e-5)
    assert steps[-1]["loss/dpo"] < 0.6
    first = next(row for row in metrics if "kl/reference" in row)
    assert first["kl/reference"] == pytest.approx(0.0, abs=1e-5)
    verdict = json.loads((run.path / "verdict.json").read_text())
    assert verdict["passed"] is run.passed
    assert verdict["measures"]["target"]["n"] == 12
    assert not run.passed  # a random model answers nothing right
    # What was saved is what was trained: the merged model gives the adapter's log-probs.
    from tests.batches import random_batch
    from wootz.models import load

    newest = RunDir.open(run.path).checkpoints()[-1]
    merged, adapter = (
        load(str(run.path), dtype="fp32"),
        load(f"{recipe['model']['base']}+{newest / 'model'}", dtype="fp32"),
    )
    batch = random_batch()
    with torch.no_grad():
        torch.testing.assert_close(merged.forward(batch)["logp"], adapter.forward(batch)["logp"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("full", [False, True], ids=["lora", "full"])
def test_interrupted_and_resumed_is_bit_equal(recipe, tmp_path, full):
    if full:
        recipe["model"] |= {"lora": None, "dtype": "bf16"}
        recipe["eval"] = {"every": 3}
        recipe["guards"] = []
    whole = train(recipe, out=tmp_path / "whole")

    class Interrupting:
        def step(self, step, num_steps, metrics):
            if step == 5 and "loss/total" in metrics:
                os.kill(os.getpid(), signal.SIGINT)

        def note(self, message):
            pass

    with pytest.raises(Interrupted, match="step 5"):
        train(recipe, out=tmp_path / "cut", progress=Interrupting())
    done = resume(tmp_path / "cut")
    last = max(int(p.name.split("_")[1]) for p in (done.path / "checkpoints").iterdir())
    a, b = (load_file(r.path / f"checkpoints/step_{last}/training.safetensors") for r in (whole, done))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    steps = [[r["step"] for r in RunDir.open(p.path).read_lines("metrics.jsonl")] for p in (whole, done)]
    assert steps[0] == steps[1]


def test_a_run_is_not_taken_up_with_another_recipe_or_other_rows(recipe, pairs, tmp_path):
    done = train(recipe, out=tmp_path / "run")
    verdict = (done.path / "verdict.json").read_text()
    for change in ({"seed": 5}, {"train": recipe["train"] | {"lr": 0.02}}):
        with pytest.raises(UsageError, match="another recipe") as caught:
            train(recipe | change, out=done.path, if_exists="resume")
        assert next(iter(change)) in caught.value.found
    again = train(recipe, out=done.path, if_exists="resume")  # nothing is left to train; the gate is the same
    assert json.loads((again.path / "verdict.json").read_text()) == json.loads(verdict)
    rows = Path(pairs).read_text().splitlines()
    Path(pairs).write_text("\n".join([*rows[1:], rows[1].replace("cat 1", "cat 77")]) + "\n")
    with pytest.raises(UsageError, match="another recipe") as caught:
        resume(done.path)
    assert "rows" in caught.value.found


def test_sft_lowers_the_loss(recipe, tmp_path):
    recipe["objective"] = {"type": "sft"}
    rows = [
        {"messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": "the cat"}]}
        for i in range(16)
    ]
    recipe["data"] = {"train": write_rows(tmp_path / "chat.jsonl", rows), "held_out_fraction": 0.25}
    recipe |= {"guards": [], "eval": None, "gate": None, "model": recipe["model"] | {"lora": None}}
    recipe["train"] |= {"epochs": 6}
    run = train(recipe, out=tmp_path / "run")
    losses = [r["loss/nll"] for r in RunDir.open(run.path).read_lines("metrics.jsonl")]
    assert losses[-1] < 0.6 * losses[0]
    assert run.verdict is None


@pytest.mark.parametrize("stage", ["plan", "data", "step"])
def test_dry_runs_write_nothing(recipe, tmp_path, monkeypatch, stage):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    found = train(recipe, dry_run=stage)
    assert sorted(tmp_path.iterdir()) == before
    if stage != "plan":
        assert found["steps"] == 2 * -(-found["data"]["counts"]["train/used"] // 4)
    if stage == "step":
        step = next(row for row in found["step"] if "loss/dpo" in row)
        assert step["loss/dpo"] == pytest.approx(0.693147, abs=1e-5)


def bad_guard(recipe, _):
    recipe["eval"] = None


def bad_kind(recipe, _):
    recipe["objective"] = {"type": "sft"}


def bad_data(recipe, _):
    recipe["data"] |= {"train": "absent.jsonl"}


def bad_model(recipe, tmp_path):
    (tmp_path / "empty").mkdir()
    recipe["model"] |= {"base": str(tmp_path / "empty")}


def same_pairs(recipe, tmp_path):
    rows = [{"prompt": f"p{i}", "chosen": "same", "rejected": "same"} for i in range(4)]
    recipe["data"] |= {"train": write_rows(tmp_path / "same.jsonl", rows)}


def bad_target(recipe, tmp_path):
    recipe["gate"] |= {"target": write_rows(tmp_path / "nogold.jsonl", [{"prompt": "a"}])}


def no_target(recipe, _):
    recipe["gate"] |= {"target": "absent.jsonl"}


@pytest.mark.parametrize("spoil", [bad_guard, bad_kind, bad_data, bad_model, same_pairs, bad_target, no_target])
@pytest.mark.parametrize("dry", [None, "data"])
def test_bad_input_is_refused_before_anything_is_trained(recipe, tmp_path, spoil, dry):
    spoil(recipe, tmp_path)
    with pytest.raises((RecipeError, DataError, UsageError, ValueError)) as caught:
        train(recipe, out=tmp_path / "run", dry_run=dry)
    assert len(str(caught.value).splitlines()) <= 24
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_where_there_is_none(recipe, tmp_path):
    for dry in (None, "plan"):
        with pytest.raises(MissingError) as caught:
            train(recipe, out=tmp_path / "run", device="cuda", dry_run=dry)
        assert caught.value.exit_code == 4


def test_a_loss_that_is_not_a_number_keeps_the_checkpoint(recipe, tmp_path):
    # Finite rates cannot make this model's loss infinite; weights that are not numbers can.
    from wootz.models.model import LanguageModel

    recipe["guards"], recipe["eval"] = [], None
    refresh, count = LanguageModel.refresh, []

    def spoil(model):
        refresh(model)
        count.append(1)
        if len(count) == 3:
            with torch.no_grad():
                next(iter(model.masters().values())).fill_(float("nan"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageModel, "refresh", spoil)
        with pytest.raises(GuardStop) as caught:
            train(recipe, out=tmp_path / "run")
    assert caught.value.exit_code == 3
    assert [p.name for p in RunDir.open(tmp_path / "run").checkpoints()][0] == "step_2"


def test_an_output_that_exists(recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep me")
    with pytest.raises(UsageError, match="exists"):
        train(recipe, out=tmp_path / "run")
    assert (tmp_path / "run" / "mine.txt").read_text() == "keep me"
    run = train(recipe, out=tmp_path / "run", if_exists="new")
    assert (tmp_path / "run.1" / "mine.txt").read_text() == "keep me"
    assert not (run.path / "mine.txt").exists()


def command_line(recipe, tmp_path) -> list[str]:
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    return ["train", str(path), f"--out={tmp_path / 'run'}"]


def test_exit_codes(recipe, tmp_path, capsys):
    command = command_line(recipe, tmp_path)
    assert main(command) == 1  # trained, and the gate does not pass
    assert "NOT PASSED" in capsys.readouterr().out
    assert main(["gate", str(tmp_path / "run"), "--parent", recipe["model"]["base"], "suite=none",
                 f"target={recipe['gate']['target']}", "policy=not_worse", "margin=1", "--json"]) == 0  # fmt: skip
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["passed"]
    assert main(["eval", str(tmp_path / "run"), "suite=none", f"target={recipe['gate']['target']}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measures"]["target"]["n"] == 12
    assert main([*command, "train.learnign_rate=1", "--if-exists=new"]) == 2
    assert "train.lr" in capsys.readouterr().err


def test_ctrl_c_exits_130_and_resume_finishes(recipe, tmp_path):
    recipe["train"] |= {"epochs": 400}
    recipe["eval"] |= {"every": 1000}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "import sys; from wootz.cli.app import main; sys.exit(main())"]
    child = subprocess.Popen(
        [*command, *command_line(recipe, tmp_path)], env=environment, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and len(metrics.read_bytes()) > 2000):
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert "checkpoint" in said
    kept = RunDir.open(tmp_path / "run").checkpoints()
    assert kept
    assert (kept[-1] / "state.json").exists()


def test_one_process_is_two(recipe, tmp_path):
    recipe |= {"gate": None, "eval": None, "guards": []}
    alone = train(recipe, out=tmp_path / "alone")
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    script = tmp_path / "go.py"
    script.write_text(f"import wootz\nwootz.train({str(path)!r}, out={str(tmp_path / 'two')!r})\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    last = max(int(p.name.split("_")[1]) for p in (alone.path / "checkpoints").iterdir())
    a, b = (load_file(tmp_path / run / f"checkpoints/step_{last}/training.safetensors") for run in ("alone", "two"))
    for name in a:
        if name.startswith("master/"):
            torch.testing.assert_close(b[name], a[name], rtol=1e-3, atol=1e-5)


def test_full_tuning_reads_its_reference_from_disk(recipe, tmp_path):
    """The cache is filled before the first update: the second run asks nothing, and step 0 is log 2 in both."""
    recipe |= {"gate": None, "eval": None, "guards": []}
    recipe["model"] |= {"lora": None}
    losses = []
    for name in ("one", "two"):
        run = train(recipe, out=tmp_path / name)
        losses.append([r["loss/dpo"] for r in RunDir.open(run.path).read_lines("metrics.jsonl")])
    assert losses[0] == losses[1]
    assert losses[0][0] == pytest.approx(0.693147, abs=1e-5)


def test_continued_adapter_starts_from_itself(recipe, tmp_path):
    recipe |= {"gate": None}
    first = train(recipe, out=tmp_path / "one")
    newest = RunDir.open(first.path).checkpoints()[-1] / "model"
    recipe["model"] |= {"base": f"{recipe['model']['base']}+{newest}", "lora": {"rank": 4}}
    second = train(recipe, out=tmp_path / "two")
    metrics = RunDir.open(second.path).read_lines("metrics.jsonl")
    assert next(r for r in metrics if "loss/dpo" in r)["loss/dpo"] == pytest.approx(0.693147, abs=1e-5)
