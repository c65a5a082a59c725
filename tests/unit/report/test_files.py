"""A report is made of whatever is there: each file missing, broken, or full of values that nobody expects."""

import json
import random

import pytest

from tests.unit.report.runs import EVENTS, make_run, write_json, write_lines
from wootz.core.errors import UsageError
from wootz.report import card, render
from wootz.report.files import read_run
from wootz.report.page import page

FILES = (
    "resolved.json",
    "recipe.yaml",
    "env.json",
    "data.json",
    "verdict.json",
    "metrics.jsonl",
    "samples.jsonl",
    "events.jsonl",
    "evals/city.json",
)
CONTENTS = {
    "empty": "",
    "garbage": "\x00\x01{not json",
    "list": "[1, 2, 3]\n",
    "number": "7\n",
    "null": "null\n",
    "no keys": "{}\n",
    "deep": "[" * 100_000,
    "odd keys": '{"step": "x", "measures": [], "items": {"a": 1}, "findings": 3, "recipe": [], "": {}}\n',
}


def test_no_directory_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no such run directory"):
        render(tmp_path / "none")


def test_an_empty_directory_has_a_page_and_a_card(tmp_path):
    assert "Nothing yet" in render(tmp_path).read_text()
    assert "No gate ran" in card(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_each_file_may_be_missing(tmp_path, name):
    run = make_run(tmp_path / "run", steps=10)
    (run / name).unlink()
    assert "<h2>Recipe and environment</h2>" in render(run).read_text()
    card(run)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", FILES)
def test_each_file_may_be_broken(tmp_path, name, content):
    run = make_run(tmp_path / "run", steps=10)
    (run / name).write_text(content)
    text = render(run).read_text()
    card(run)
    broken = content[:1] in ("\x00", "[", "7", "n") and name != "recipe.yaml"
    # The last line of a JSON-lines file without a line end is a run that is still writing.
    torn = name.endswith(".jsonl") and not content.endswith("\n")
    assert ("Not all of this run could be read" in text) == (broken and not torn)


def test_what_cannot_be_read_is_named(tmp_path):
    run = make_run(tmp_path / "run", steps=10)
    (run / "metrics.jsonl").write_text('{"step": 1, "loss/total": 2.0}\noops\n{"step": 2, "loss/total": 1.0}\n{"torn')
    files = read_run(run)
    assert [record["step"] for record in files.metrics] == [1, 2]
    assert files.problems == ("metrics.jsonl: 1 lines are not JSON objects",)


def test_lines_are_cut_at_line_ends_only(tmp_path):
    (tmp_path / "samples.jsonl").write_text('{"completion": "a\u2028b\x85c"}\n', encoding="utf-8")
    assert read_run(tmp_path).samples == [{"completion": "a\u2028b\x85c"}]


def test_stages_are_read_in_order_and_the_run_comes_last(tmp_path):
    files = read_run(make_run(tmp_path / "run", steps=10, stages=True))
    assert [(name, len(part.metrics) > 0) for name, part in files.parts()] == [("SFT", True), ("DPO", True)]


@pytest.mark.parametrize("place", ["missing", "../run", ".", None, 3, "a\0b"])
def test_a_stage_that_cannot_be_read_or_leads_in_a_circle_is_told(tmp_path, place):
    run = make_run(tmp_path / "run", steps=10)
    resolved = json.loads((run / "resolved.json").read_text())
    write_json(run / "resolved.json", resolved | {"stages": [{"name": "first", "path": place}]})
    assert "Training" in render(run).read_text()


def leaves(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from leaves(child, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


ODD = (None, True, -1, 10**400, 1e308, "text", "\x00<script>", [], [[]], {}, {"x": {"y": []}}, [None, 1, "a", {}])


@pytest.mark.parametrize("seed", range(4))
def test_any_value_may_be_anything(tmp_path, seed):
    """Replaces values anywhere in any file with values of any kind."""
    rng = random.Random(seed)
    run = make_run(tmp_path / "run", steps=6, stages=True)
    originals = {name: (run / name).read_text() for name in FILES if name != "recipe.yaml"}
    for _ in range(25):
        name = rng.choice(list(originals))
        lines = originals[name].splitlines()
        index = rng.randrange(len(lines))
        record = json.loads(lines[index])
        paths = list(leaves(record))
        lines[index] = json.dumps(replaced(record, rng.choice(paths), rng.choice(ODD)))
        (run / name).write_text("\n".join(lines) + "\n")
        page(read_run(run))
        card(run)
        if rng.random() < 0.5:
            (run / name).write_text(originals[name])


def test_unknown_keys_are_let_be(tmp_path):
    run = make_run(tmp_path / "run", steps=10)
    write_lines(run / "events.jsonl", [event | {"unknown": {"deep": [1]}} for event in EVENTS])
    write_lines(run / "metrics.jsonl", [{"step": 1, "time": 1.0, "new/metric": 3.0, "new/text": "x", "new/list": [1]}])
    text = render(run).read_text()
    assert "<b>new/metric</b>" in text
    assert "new/text" not in text
