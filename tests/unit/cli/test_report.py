"""``wootz report``, ``wootz card`` and ``wootz doctor``."""

import json

import pytest

from wootz.cli.app import main
from wootz.core.rundir import RunDir


@pytest.fixture
def run(tmp_path):
    run = RunDir.create(tmp_path / "runs/small")
    recipe = {
        "name": "small",
        "model": {"base": "m"},
        "data": {"train": "d"},
        "objective": {"type": "dpo"},
        "train": {},
    }
    run.write_json("resolved.json", {"recipe": recipe})
    run.write_text("recipe.yaml", "model: {base: m}\n")
    for step in range(1, 4):
        run.append("metrics.jsonl", {"step": step, "time": 1.0 * step, "loss/total": 0.7 / step})
    run.event("warning", "something <odd> happened", step=2)
    return run.path


def test_report_of_a_run(run, capsys):
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    page = (run / "report.html").read_text()
    assert "something &lt;odd&gt; happened" in page
    assert main(["report", str(run), "--out", str(run.parent / "elsewhere/page.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(run.parent / "elsewhere/page.html")}
    assert (run.parent / "elsewhere/page.html").read_text() == page


def test_card_of_a_run(run, capsys):
    assert main(["card", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'README.md'}\n"
    text = (run / "README.md").read_text()
    assert text.startswith("---\n")
    assert main(["card", str(run), "--out", str(run.parent / "card.md")]) == 0
    assert (run.parent / "card.md").read_text() == text


@pytest.mark.parametrize("verb", ["report", "card", "resume"])
def test_no_such_run(verb, tmp_path, capsys):
    assert main([verb, str(tmp_path / "absent")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no such" in err
    assert not (tmp_path / "absent").exists()


def test_doctor(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("WOOTZ_HOME", str(tmp_path))
    code = main(["doctor", "--device", "cpu", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["ok"] else 4)
    checks = {check["name"]: check for checks in found["sections"].values() for check in checks}
    assert checks["torch"]["ok"] is True
    assert "GFLOP/s" in checks["matrix multiply"]["says"]
    assert checks["trackio"]["ok"] or checks["trackio"]["fix"] == "pip install 'wootz[trackio]'"
    assert all(check["fix"] for check in checks.values() if check["ok"] is False)


def test_doctor_says_which_device_is_missing(capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert main(["doctor", "--device", "cuda"]) == 4
    out = capsys.readouterr().out
    assert "no cuda device" in out
    assert out.splitlines()[-1] == "not ready"


def test_doctor_tells_of_an_old_or_absent_package(monkeypatch):
    from wootz.api import doctor

    monkeypatch.setattr(doctor, "requires", lambda name: ["torch>=99", "nonesuch>=1", "pytest>=1; extra == 'dev'"])
    by_name = {check["name"]: check for check in doctor._packages()}
    assert by_name["torch"]["ok"] is False
    assert by_name["torch"]["fix"] == "pip install 'torch>=99'"
    assert by_name["nonesuch"]["ok"] is False
    assert "pytest" not in by_name
