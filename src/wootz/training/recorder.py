"""Writes what happens to the run directory, the trackers and the progress display. Only the main process records."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from wootz.core.protocols import Tracker
from wootz.core.rundir import RunDir


class Progress(Protocol):
    """A display of the run: a bar on a terminal, plain lines elsewhere."""

    def step(self, step: int, num_steps: int, metrics: Mapping[str, float]) -> None: ...
    def note(self, message: str) -> None: ...


class Recorder:
    """Metrics, samples and events of one run.

    Args:
        run: Where they are written; None records nothing on disk (dry runs, other processes).
        trackers: Further receivers of metrics.
        progress: A display.
    """

    def __init__(
        self, run: RunDir | None, *, trackers: Iterable[Tracker] = (), progress: Progress | None = None
    ) -> None:
        self.run = run
        self._trackers = tuple(trackers)
        self._progress = progress

    def metrics(self, step: int, num_steps: int, metrics: Mapping[str, float]) -> None:
        if self.run is not None:
            self.run.append("metrics.jsonl", {"step": step, "time": time.time(), **metrics})
        for tracker in self._trackers:
            tracker.log(step, metrics)
        if self._progress is not None:
            self._progress.step(step, num_steps, metrics)

    def sample(self, record: Mapping[str, Any]) -> None:
        if self.run is not None:
            self.run.append("samples.jsonl", dict(record))

    def event(self, kind: str, message: str, *, step: int | None = None, source: str = "", data: Any = None) -> None:
        if self.run is not None:
            self.run.event(kind, message, step=step, source=source, data=data)
        if self._progress is not None and kind != "checkpoint":
            self._progress.note(f"{kind}: {message}" if kind != "info" else message)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()


def peak_memory_mb() -> float:
    """Peak resident memory of this process, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
