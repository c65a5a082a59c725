"""Progress: lines with the time left where there is no terminal, a bar where there is one, nothing when quiet."""

import io
import os
import pty

import pytest

from wootz.cli import display as module
from wootz.cli.display import Bar, Lines, display
from wootz.cli.flags import Flags


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_at_the_ends_and_every_ten_seconds(clock, capsys):
    lines = Lines()
    for step in range(101):
        lines.step(step, 100, {"loss/total": 1 / (step + 1), "optim/lr": 0.5})
        clock[0] += 3
    out, err = capsys.readouterr()
    assert out == ""
    shown = err.splitlines()
    assert shown[0] == "step 0/100  loss 1  lr 0.5"
    assert shown[1] == "step 4/100  loss 0.2  lr 0.5  4:48 left"
    assert shown[-1] == "step 100/100  loss 0.009901  lr 0.5"
    assert [int(line.split()[1].split("/")[0]) for line in shown] == [*range(0, 100, 4), 100]


def test_time_left_counts_from_where_a_resumed_run_began(clock, capsys):
    lines = Lines()
    lines.step(600, 1000, {})
    clock[0] += 20
    lines.step(610, 1000, {})
    assert capsys.readouterr().err.splitlines()[-1] == "step 610/1000  13:00 left"


def test_a_second_phase_begins_anew(clock, capsys):
    lines = Lines()
    for step in (0, 5, 10):
        lines.step(step, 10, {})
        clock[0] += 60
    lines.step(0, 4, {})
    clock[0] += 3600
    lines.step(1, 4, {})
    assert capsys.readouterr().err.splitlines()[-1] == "step 1/4  3:00:00 left"


def test_verbose_shows_every_step_and_measure(clock, capsys):
    lines = Lines(verbose=True)
    for step in (1, 2, 3):
        lines.step(step, 9, {"loss/total": 1.0, "mem/peak_mb": 5.0})
    lines.note("something")
    assert capsys.readouterr().err.splitlines() == [
        "step 1/9  loss 1  mem/peak_mb 5",
        "step 2/9  loss 1  mem/peak_mb 5  0:00 left",
        "step 3/9  loss 1  mem/peak_mb 5  0:00 left",
        "something",
    ]


def test_quiet_shows_nothing():
    with display(Flags(quiet=True)) as shown:
        assert shown is None


def test_a_pipe_gets_lines(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with display(Flags()) as shown:
        assert isinstance(shown, Lines)


@pytest.mark.parametrize(("variables", "kind"), [({}, Bar), ({"CI": "1"}, Lines), ({"TERM": "dumb"}, Lines)])
@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_a_bar(variables, kind, colour, monkeypatch):
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    terminal, other_end = pty.openpty()
    with os.fdopen(other_end, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with display(Flags()) as shown:
            assert isinstance(shown, kind)
            for step in range(8):
                shown.step(step, 7, {"loss/total": 0.25})
            shown.note("[bold]as it is[/bold]")
        monkeypatch.undo()
    text = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "7/7" in text
    assert "loss 0.25" in text
    assert "[bold]as it is[/bold]" in text
    assert ("\x1b[3" in text) == (colour and kind is Bar)
