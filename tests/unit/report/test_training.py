import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.figures.markup import find, parse, texts
from tests.unit.report.runs import make_run, write_json, write_lines
from wootz.report.files import read_run
from wootz.report.training import MOST_PLOTS, MOST_POINTS, columns, plots, smooth, thin

maybe = st.one_of(st.none(), st.floats(-1e6, 1e6))


def test_columns_are_in_step_order_and_the_last_of_a_step_counts():
    records = [
        {"step": 2, "a": 2.0},
        {"step": 1, "a": 1.0, "b": "x"},
        {"step": 2, "a": 3.0},
        {"a": 9.0},
        {"step": 3, "a": None},
    ]
    assert columns(records) == {"a": ([1, 2, 3], [1.0, 3.0, None])}


def test_a_metric_without_any_number_is_no_column():
    assert columns([{"step": 1, "a": None}, {"step": 2, "a": float("nan")}]) == {}


@given(st.lists(maybe, min_size=1, max_size=2000))
def test_thinning_keeps_extremes_ends_and_order(y):
    x = list(range(len(y)))
    kept_x, kept_y = thin(x, y, 40)
    known = [value for value in y if value is not None]
    assert len(kept_x) <= 42
    assert kept_x == sorted(set(kept_x))
    assert (kept_x[0], kept_x[-1]) == (0, len(y) - 1)
    assert all(y[a] == b for a, b in zip(kept_x, kept_y, strict=True))
    if known:
        shown = [value for value in kept_y if value is not None]
        assert (min(shown), max(shown)) == (min(known), max(known))


@given(st.lists(maybe, min_size=1, max_size=60), st.sampled_from([1, 3, 5, 9]))
def test_smoothing_is_the_mean_of_what_is_near(y, window):
    array = np.array([np.nan if value is None else value for value in y])
    for index, value in enumerate(smooth(y, window)):
        near = array[max(0, index - window // 2) : index + window // 2 + 1]
        if y[index] is None:
            assert value is None
        else:
            assert np.isclose(value, np.nanmean(near), rtol=1e-9, atol=1e-6)


def test_known_metrics_share_plots_and_the_rest_are_folded_away(tmp_path):
    made, left_out = plots(read_run(make_run(tmp_path / "run", steps=60)))
    titles = [plot.title for plot in made]
    assert titles[:3] == ["Loss", "Ranked right", "Implicit reward"]
    assert [plot.title for plot in made if plot.minor] == [
        "Learning rate",
        "Seconds a step",
        "Peak memory",
        "data/tokens",
    ]
    assert left_out == 0
    loss = next(plot for plot in made if plot.title == "Loss")
    assert {"training", "held out"} <= set(texts(parse(loss.svg)))
    assert "mean of 5 steps" in loss.about


def test_guard_limits_and_events_stand_in_the_plots(tmp_path):
    made, _ = plots(read_run(make_run(tmp_path / "run", steps=120)))
    kl = parse(next(plot for plot in made if plot.title == "Distance from the reference").svg)
    assert {"warn above 8", "stop above 15"} <= set(texts(kl))
    marks = [group.get("data-mark") for group in find(kl, "g") if group.get("data-mark")]
    assert marks == ["40", "105"]


def test_phases_are_shaded(tmp_path):
    run = make_run(tmp_path / "run", steps=20)
    phases = [{"name": "warm", "start": 0, "stop": 10}, {"name": "main", "start": 10, "stop": 20}, {"name": "bad"}]
    resolved = json.loads((run / "resolved.json").read_text())
    write_json(run / "resolved.json", resolved | {"phases": phases})
    made, _ = plots(read_run(run))
    assert {"warm", "main"} <= set(texts(parse(made[0].svg)))


def test_long_runs_and_many_metrics_stay_bounded(tmp_path):
    record = {f"custom/{k}": 1.0 for k in range(200)}
    write_lines(tmp_path / "metrics.jsonl", [{"step": step, "loss/total": step % 7, **record} for step in range(2000)])
    made, left_out = plots(read_run(tmp_path))
    assert len(made) == MOST_PLOTS
    assert left_out == 201 - MOST_PLOTS
    points = [line.get("points", "").count(",") for line in find(parse(made[0].svg), "polyline")]
    assert max(points) <= MOST_POINTS + 2
