"""Trackers besides the JSON lines: TensorBoard and trackio, both local. Each is imported only inside its own adapter.

Nothing is sent anywhere unless the tracker's own environment variables say so (``TRACKIO_SPACE_ID``...).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from wootz.core.errors import MissingError
from wootz.core.protocols import Tracker

TrackerName = Literal["tensorboard", "trackio"]


class TensorBoardTracker:
    """Writes event files to ``RUN/tensorboard``, or ``TENSORBOARD_LOGGING_DIR/NAME`` where that is set."""

    def __init__(self, run: Path) -> None:
        self._module = _extra("torch.utils.tensorboard", "tensorboard")
        shared = os.environ.get("TENSORBOARD_LOGGING_DIR")
        self._folder = Path(shared) / run.name if shared else run / "tensorboard"
        self._writer: Any = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:
            # What an interrupted run wrote from this step on is written again.
            self._writer = self._module.SummaryWriter(str(self._folder), purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class TrackioTracker:
    """Logs to trackio's local store, under the project ``TRACKIO_PROJECT`` (default ``wootz``)."""

    def __init__(self, run: Path) -> None:
        self._module = _extra("trackio", "trackio")
        project = os.environ.get("TRACKIO_PROJECT", "wootz")
        options = {"resume": "allow", "embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
        with contextlib.redirect_stdout(sys.stderr):  # it chats, and stdout is for results
            self._run = self._module.init(project=project, name=run.name, **options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._module.finish()


TRACKERS = {"tensorboard": TensorBoardTracker, "trackio": TrackioTracker}


def build_trackers(names: Iterable[TrackerName], run: Path) -> tuple[Tracker, ...]:
    """Returns the named trackers of a run directory. Raises MissingError, with the pip line, for a missing extra."""
    return tuple(TRACKERS[name](run) for name in names)


def require_trackers(names: Collection[TrackerName]) -> None:
    """Raises the MissingError that :func:`build_trackers` would, without opening anything: for dry runs."""
    for name, module in (("tensorboard", "tensorboard"), ("trackio", "trackio")):
        if name in names:
            _extra(module, name)


def _extra(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        fix = f"pip install 'wootz[{extra}]'"
        raise MissingError(f"the tracker {extra} is not installed", where="track", found=str(error), fix=fix) from error
