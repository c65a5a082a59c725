import json

import pytest

from tests.unit.figures.markup import find, parse
from tests.unit.report.runs import make_hostile_run, make_run, write_json
from tests.unit.report.test_page import Page
from wootz.core.errors import UsageError
from wootz.report import render_many
from wootz.report.compare import _named, _rows, differences
from wootz.report.files import read_run
from wootz.report.judgement import judge


@pytest.fixture
def two(tmp_path):
    first = make_run(tmp_path / "first", steps=10)
    second = make_run(tmp_path / "second", steps=20, passed=False, city={"verdict": "same", "difference": 0.1})
    resolved = json.loads((second / "resolved.json").read_text())
    resolved["recipe"]["train"]["lr"] = 0.25
    write_json(second / "resolved.json", resolved)
    return [first, second]


def test_the_page_tells_which_passed_and_what_differs(two, tmp_path):
    page = Page(render_many(two, tmp_path / "out" / "compare.html").read_text())
    assert "1 of 2 passed: first." in page.text
    assert "train.lr" in page.text
    assert "0.25" in page.text
    assert "train.max_length" not in page.text


def test_a_measure_has_one_axis_for_all_runs(two):
    judgements = {path.name: judge(read_run(path)) for path in two}
    city = _rows(judgements)[0]
    first, second = [one for one in find(parse(city.svg), "g") if len(find(one, "title")) == 1]
    assert (city.name, list(city.cells)) == ("city", ["first", "second"])
    assert "first: +0.79" in "".join(first.itertext())
    assert "second: +0.10" in "".join(second.itertext())


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [make_run(tmp_path / place / "run", steps=5) for place in ("a", "b", "c")]
    assert list(_named([read_run(path) for path in paths])) == ["run", "run (run)", "run (3)"]


def test_missing_settings_count_as_different():
    assert differences({"a": {"x": "1"}, "b": {}}) == [("x", ["1", ""])]


def test_one_run_or_an_empty_one_may_be_compared(two, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "Every setting is the same" in render_many(two[:1], tmp_path / "one.html").read_text()
    assert "Nothing yet" in render_many([two[0], tmp_path / "empty"], tmp_path / "two.html").read_text()


@pytest.mark.parametrize("count", [0, 13])
def test_no_run_or_too_many_are_refused(two, tmp_path, count):
    with pytest.raises(UsageError, match="1 to 12 runs"):
        render_many(two[:1] * count, tmp_path / "x.html")


def test_hostile_runs_stay_text(two, tmp_path):
    hostile = make_hostile_run(tmp_path / "hostile")
    page = Page(render_many([hostile, two[0]], tmp_path / "x.html").read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    assert page.tags.count("h1") == 1
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
