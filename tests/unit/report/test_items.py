import math
import statistics

import pytest

from tests.unit.report.runs import evaluation, target_items, write_json
from wootz.report.files import read_run
from wootz.report.items import MOST_FLIPPED, changes, slices
from wootz.report.samples import prompt_text


def run_with(tmp_path, items, kind="target", summary=None):
    write_json(tmp_path / "evals" / "m.json", evaluation("m", kind, items) | {"summary": summary or {}})
    return read_run(tmp_path)


def item(parent, child, **columns):
    return {"id": "i", "prompt": "p", "gold": None, "columns": columns, "parent": {"output": "a", "value": parent},
            "child": {"output": "b", "value": child}}  # fmt: skip


def test_items_are_counted_by_what_became_of_them(tmp_path):
    items = [item(1, 1)] * 4 + [item(0, 1)] * 3 + [item(1, 0)] * 2 + [item(0, 0)] + [item(None, 1), item("x", 0)]
    [found] = changes(run_with(tmp_path, items))
    assert found.counts == (4, 3, 2, 1)
    assert found.n == 10
    assert [one.change for one in found.items] == ["broken"] * 2 + ["fixed"] * 3


def test_counts_agree_with_the_items_of_a_real_sized_evaluation(tmp_path):
    items = target_items(240)
    [found] = changes(run_with(tmp_path, items))
    pairs = [(one["parent"]["value"], one["child"]["value"]) for one in items]
    assert found.counts == tuple(pairs.count(kind) for kind in ((1, 1), (0, 1), (1, 0), (0, 0)))
    assert found.total == found.counts[1] + found.counts[2]
    assert len(found.items) == min(MOST_FLIPPED, found.counts[1]) + min(MOST_FLIPPED, found.counts[2])


def test_true_and_false_are_right_and_wrong(tmp_path):
    [found] = changes(run_with(tmp_path, [item(True, False), item(False, True)]))
    assert found.counts == (0, 1, 1, 0)


def test_on_a_limit_more_is_not_called_better(tmp_path):
    [found] = changes(run_with(tmp_path, [item(0, 1), item(1, 0)], kind="limit"))
    assert sorted(one.change for one in found.items) == ["down", "up"]


def test_other_values_show_the_largest_changes(tmp_path):
    [found] = changes(run_with(tmp_path, [item(10.0, 10.0 + d) for d in range(-30, 31)]))
    assert found.counts is None
    assert found.total == 60
    moved = [one.child_value - one.parent_value for one in found.items]
    assert moved == [*range(-30, -22), *range(30, 22, -1)]
    assert "<svg" in found.figure


def test_an_evaluation_of_one_model_has_no_changes(tmp_path):
    assert changes(run_with(tmp_path, [{"id": "a", "child": {"output": "x", "value": 1}}])) == []


def test_slices_are_means_of_paired_differences(tmp_path):
    left = [item(0, 1, side="left")] * 6 + [item(0, 0, side="left")] * 4
    right = [item(1, 0, side="right")] * 3 + [item(1, 1, side="right")] * 9
    [found] = slices(run_with(tmp_path, left + right), [])
    assert (found.measure, found.column) == ("m", "side")
    differences = [1.0] * 6 + [0.0] * 4
    half = 1.96 * statistics.stdev(differences) / math.sqrt(10)
    assert f"left (10): +0.60, {0.6 - half:.2f} to {0.6 + half:.2f}" in found.svg
    assert "right (12): −0.25" in found.svg


def test_small_and_numerous_groups_are_no_slices(tmp_path):
    items = [item(0, 1, id=index, few="a" if index < 3 else "b") for index in range(40)]
    assert slices(run_with(tmp_path, items), []) == []


def test_prompts_of_different_lengths_are_sliced_by_quarter(tmp_path):
    items = [item(0, int(length > 50)) | {"prompt": "x" * length} for length in range(1, 101)]
    [found] = slices(run_with(tmp_path, items), [])
    assert found.column == "characters in the prompt"
    assert "up to 26 (26): 0, 0 to 0" in found.svg
    assert "longer (24): +1" in found.svg


def test_slices_that_the_evaluation_brings_are_shown_as_they_are(tmp_path):
    brought = {"topic": {"a": {"n": 5, "difference": 0.5, "low": 0.25, "high": 0.75}, "b": {"n": 6, "difference": 0.1}}}
    [found] = slices(run_with(tmp_path, [item(0, 1)], summary={"slices": brought}), [])
    assert "a (5): +0.50, 0.25 to 0.75" in found.svg


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("plain", "plain"),
        ([{"role": "user", "content": "only"}], "only"),
        ([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "system: s\nuser: u"),
        ([{"role": "user", "content": None}], ""),
        (None, ""),
        (3, "3"),
    ],
)
def test_prompts_as_text(prompt, text):
    assert prompt_text(prompt) == text
