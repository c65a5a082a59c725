"""``wootz gate`` and ``wootz eval``: what is measured, where it is written, how it ends."""

import json

import pytest

from wootz.api.gate import gate
from wootz.cli.app import main
from wootz.core.errors import UsageError
from wootz.core.rundir import RunDir

FAST = ["suite=none", "max_new_tokens=3"]


@pytest.fixture
def target(tmp_path):
    rows = [{"prompt": f"what is {word}?", "gold": word} for word in ("cat", "dog", "house", "mat")]
    (tmp_path / "target.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"target={tmp_path / 'target.jsonl'}"


@pytest.fixture
def run(tmp_path, tiny_llama):
    """A run directory whose model is the one that it started from."""
    from wootz.models import load

    run = RunDir.create(tmp_path / "run")
    recipe = {"model": {"base": tiny_llama}, "data": {"train": "d"}, "objective": {"type": "dpo"}}
    run.write_json("resolved.json", {"recipe": recipe | {"gate": {"suite": "none", "target": "replaced below"}}})
    load(tiny_llama, dtype="fp32").save(run.path / "model")
    return run.path


def test_a_model_against_itself_does_not_get_better(tiny_llama, target, tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["gate", tiny_llama, "--parent", tiny_llama, target, *FAST, "--out", str(out)]
    assert main([*arguments, "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["passed"] is False
    assert verdict["measures"]["target"]["difference"] == 0.0
    assert verdict["measures"]["target"]["n"] == 4
    assert json.loads((out / "verdict.json").read_text()) == {"schema": 1, **verdict}
    assert len(json.loads((out / "evals/target.json").read_text())["items"]) == 4
    assert (out / "report.html").is_file()
    assert main([*arguments, "policy=not_worse", "margin=1"]) == 0
    assert capsys.readouterr().out.startswith("PASSED\n")


def test_a_run_is_judged_against_what_it_came_from(run, target, capsys):
    assert main(["gate", str(run), target, *FAST, "policy=not_worse", "margin=1"]) == 0
    assert json.loads((run / "verdict.json").read_text())["passed"] is True
    assert (run / "report.html").is_file()
    capsys.readouterr()


def test_another_parent_leaves_the_runs_own_verdict_alone(run, tiny_llama, target, capsys):
    main(["gate", str(run), "--parent", tiny_llama, target, *FAST])
    assert not (run / "verdict.json").exists()
    assert "measure" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a gate needs a parent"),
        (["--parent", "MODEL", "suit=none"], "suit is not a key. Did you mean suite?"),
        (["--parent", "MODEL", "suite=none"], "the gate measures nothing"),
        (["--parent", "MODEL", "target=absent.jsonl", "suite=none"], "absent.jsonl: no such file"),
        (["--parent", "MODEL", "suite=smal"], "smal: no such suite"),
        (["--parent", "absent/folder"], "absent/folder"),
        (["--parent", "MODEL", "limits.kk=1"], "no measure 'kk' in the suite"),
    ],
)
def test_what_cannot_be_judged(arguments, said, tiny_llama, capsys):
    code = main(["gate", tiny_llama, *(tiny_llama if word == "MODEL" else word for word in arguments)])
    out, err = capsys.readouterr()
    assert code == (4 if said == "absent/folder" else 2), err
    assert out == ""
    assert said in err
    assert len(err.splitlines()) <= 24


def test_in_python(tiny_llama, target):
    from wootz.models import load

    model = load(tiny_llama, dtype="fp32")
    config = {"target": target.removeprefix("target="), "suite": "none", "max_new_tokens": 3}
    assert gate(model, model, config).measures["target"].difference == 0.0
    names = list(gate(model, [model, model], config).measures)
    assert len(names) == 2
    assert len({name.rsplit("/", 1)[-1] for name in names}) == 1
    with pytest.raises(UsageError, match="needs a parent"):
        gate(model)


def test_eval_measures_one_model(tiny_llama, target, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["eval", tiny_llama, target, *FAST, "--json", "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == tiny_llama
    measure = told["measures"]["target"]
    assert measure["n"] == 4
    assert measure["low"] <= measure["mean"] <= measure["high"]
    items = json.loads((out / "evals/target.json").read_text())["items"]
    assert [item["gold"] for item in items] == ["cat", "dog", "house", "mat"]
    assert sum(item["child"]["value"] for item in items) / 4 == measure["mean"]


@pytest.mark.parametrize("setting", ["policy=not_worse", "margin=0.1", "limits.kl=3", "allow=[void]"])
def test_eval_refuses_what_only_compares(setting, tiny_llama, target, capsys):
    assert main(["eval", tiny_llama, target, *FAST, setting]) == 2
    assert "is not a key" in capsys.readouterr().err
