"""Trackers write what they are given, and a missing one is told with its pip line."""

import sys

import pytest

from wootz.core.errors import MissingError
from wootz.training.trackers import build_trackers, require_trackers


def _scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_every_metric_and_forgets_what_a_resumed_run_writes_again(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    for steps in ((1, 2, 3), (3, 4)):
        (tracker,) = build_trackers(["tensorboard"], tmp_path / "run")
        for step in steps:
            tracker.log(step, {"loss/total": 1.0 / step, "optim/lr": float(step)})
        tracker.close()
    read = _scalars(tmp_path / "run/tensorboard")
    assert read["optim/lr"] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert [value for _, value in read["loss/total"]] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_writes_where_its_variable_says(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "all"))
    (tracker,) = build_trackers(["tensorboard"], tmp_path / "run")
    tracker.log(1, {"a": 2.0})
    tracker.close()
    assert _scalars(tmp_path / "all/run") == {"a": [(1, 2.0)]}


def test_trackio_holds_every_metric_and_leaves_stdout_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))  # read when trackio is imported
    trackio = pytest.importorskip("trackio")
    (tracker,) = build_trackers(["trackio"], tmp_path / "run")
    tracker.log(1, {"loss/total": 0.5})
    tracker.close()
    assert capsys.readouterr().out == ""
    runs = trackio.Api().runs("wootz")
    assert [run.name for run in runs] == ["run"]


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_a_missing_extra_is_told_with_its_pip_line(tmp_path, monkeypatch, name):
    for module in ("tensorboard", "torch.utils.tensorboard", "trackio"):
        monkeypatch.setitem(sys.modules, module, None)
    for ask in (lambda: require_trackers([name]), lambda: build_trackers([name], tmp_path)):
        with pytest.raises(MissingError) as caught:
            ask()
        assert caught.value.exit_code == 4
        assert caught.value.fix == f"pip install 'wootz[{name}]'"
