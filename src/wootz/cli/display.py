"""The progress of a run on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from wootz.cli.flags import Flags, speaks

_SECONDS_BETWEEN_LINES = 10.0
_SHOWN = {
    "loss/total": "loss",
    "eval/total": "held-out loss",
    "reward/accuracy": "accuracy",
    "kl/reference": "kl",
    "optim/lr": "lr",
}


@contextmanager
def display(flags: Flags) -> Iterator[Lines | Bar | None]:
    """Gives the display to hand to what reports progress; None when quiet."""
    if flags.quiet or not speaks():
        yield None
        return
    console = Console(stderr=True, highlight=False)
    if console.is_terminal and not os.environ.get("CI") and os.environ.get("TERM") != "dumb":
        with Bar(console, verbose=flags.verbose) as bar:
            yield bar
    else:
        yield Lines(verbose=flags.verbose)


def summary(metrics: Mapping[str, float], *, verbose: bool = False) -> str:
    """Returns the measures worth a line: ``loss 0.6931  accuracy 0.5``; all of them when verbose."""
    named = metrics if verbose else {name: metrics[name] for name in _SHOWN if name in metrics}
    return "  ".join(f"{_SHOWN.get(name, name)} {value:.4g}" for name, value in named.items())


class Lines:
    """One plain line for the first and the last step and every ten seconds between."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._began: tuple[int, float] | None = None
        self._printed = 0.0
        self._num_steps = 0

    def step(self, step: int, num_steps: int, metrics: Mapping[str, float]) -> None:
        now = time.monotonic()
        if self._began is None or step < self._began[0] or num_steps != self._num_steps:
            self._began, self._printed, self._num_steps = (step, now), 0.0, num_steps
        if not (self._verbose or step in (0, num_steps) or now - self._printed >= _SECONDS_BETWEEN_LINES):
            return
        self._printed = now
        done = step - self._began[0]
        left = (now - self._began[1]) / done * (num_steps - step) if done > 0 else None
        eta = f"  {_clock(left)} left" if left is not None and step < num_steps else ""
        shown = summary(metrics, verbose=self._verbose)
        _write(f"step {step}/{num_steps}{'  ' if shown else ''}{shown}{eta}")

    def note(self, message: str) -> None:
        _write(message)


class Bar:
    """A bar with counts, time spent and time left; notes scroll above it."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"))
        measures = TextColumn("{task.fields[measures]}", markup=False)
        self._progress = Progress(*columns, TimeRemainingColumn(), measures, console=console, transient=False)
        self._task = None
        self._shown: dict[str, float] = {}

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._progress.stop()

    def step(self, step: int, num_steps: int, metrics: Mapping[str, float]) -> None:
        task = next((task for task in self._progress.tasks if task.id == self._task), None)
        if task is None or task.total != num_steps or step < task.completed:
            self._task = self._progress.add_task("", total=num_steps, measures="")
            self._shown = {}
        self._shown |= metrics
        measures = summary(self._shown, verbose=self._verbose)
        assert self._task is not None
        self._progress.update(self._task, completed=step, measures=measures)

    def note(self, message: str) -> None:
        self._progress.console.print(message, markup=False)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _write(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
