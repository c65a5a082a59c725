"""The quickstart's orchestration on a tiny model: files, resumption, what a second run does with the first."""

import json

import pytest

from wootz.api.quickstart.job import KEEP, REFUSE
from wootz.api.quickstart.run import Size, quickstart
from wootz.core.errors import UsageError

SMALL = Size(train=6, samples=1, held_out=5, max_new_tokens=6)
TINY = ("gate.suite=none", "train.max_length=1500", "train.epochs=1", "model.lora.rank=2", "data.held_out_fraction=0.3")


@pytest.fixture
def run(tiny_llama, tmp_path):
    def start(**options):
        given = {"out": tmp_path / "quickstart", "model": tiny_llama, "size": SMALL, "overrides": TINY}
        return quickstart(**(given | options))

    return start


def test_files_and_what_a_second_run_does(run, tmp_path):
    said = []

    class Progress:
        def step(self, step, num_steps, metrics):
            pass

        def note(self, message):
            said.append(message)

    done = run(progress=Progress())
    names = {path.name for path in done.path.iterdir()}
    assert {"prefs.jsonl", "held_out.jsonl", "control.json", "verdict.json", "report.html", "model"} <= names
    rows = [json.loads(line) for line in (done.path / "prefs.jsonl").read_text().splitlines()]
    assert len(rows) <= 6 + len(KEEP) + len(REFUSE)
    assert {row["chosen"][0]["content"] for row in rows} & {"I'm sorry, but I can't help with that."}
    control = json.loads((done.path / "control.json").read_text())
    assert control["parent"] == pytest.approx({"mean": 0.0, "low": 0.0, "high": control["parent"]["high"], "n": 5})
    assert json.loads((done.path / "verdict.json").read_text())["measures"]["target"]["n"] == 5
    assert done.passed is False  # a tiny random model learns no cities
    assert any("audit:" in line for line in said)
    assert any("control" in line for line in said)
    with pytest.raises(UsageError, match="exists"):
        run(if_exists="fail")
    again = run(if_exists="new", seed=1)
    assert (tmp_path / "quickstart.1" / "verdict.json").exists()
    other = (again.path / "held_out.jsonl").read_text()
    assert other != (tmp_path / "quickstart.1" / "held_out.jsonl").read_text()
