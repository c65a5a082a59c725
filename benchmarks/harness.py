"""Runs sides of a benchmark as child processes, alternating, and measures their time and memory.

A side is a script that reads its settings as JSON on the command line and prints one JSON line last:
``{"seconds": ..., ...}``. Peak memory is read from outside, children included.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wootz.core.environment import describe_environment

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Side:
    """One contestant: which Python runs which script, with which settings."""

    name: str
    python: Path
    script: Path
    settings: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Runs the side once; keeps and returns what it printed."""
        command = [str(self.python), str(self.script), json.dumps(self.settings)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **self.environment}
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors)
            watch = _PeakMemory(child.pid)
            output, _ = child.communicate()
            peak = watch.stop()
            if child.returncode:
                errors.seek(0)
                raise SystemExit(f"{self.name} failed:\n{errors.read().decode()[-3000:]}")
        answer = json.loads(output.decode().strip().splitlines()[-1])
        self.seconds.append(answer["seconds"])
        self.peaks.append(peak)
        self.answers.append(answer)
        return answer

    def summary(self) -> dict[str, Any]:
        return {
            "median_s": statistics.median(self.seconds),
            "peak_mb": statistics.median(self.peaks),
            "runs": len(self.seconds),
            "all_s": [round(s, 3) for s in self.seconds],
            "settings": self.settings | {"environment": self.environment},
        }


class _PeakMemory:
    """Samples the resident memory of a process and its descendants until stopped; MiB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.is_set():
            self._peak = max(self._peak, sum(_resident_mb(pid) for pid in _family(self._pid)))
            time.sleep(0.05)

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self._peak


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(descendant for child in children for descendant in _family(int(child)))]


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def alternate(sides: list[Side], rounds: int) -> None:
    """Runs each side ``rounds`` times, taking turns so that a slow minute of the machine hits both."""
    for index in range(rounds):
        for side in sides if index % 2 == 0 else reversed(sides):
            answer = side.run()
            print(f"{side.name}: {answer['seconds']:.2f} s, peak {side.peaks[-1]:.0f} MB", file=sys.stderr)


def peer_python(name: str) -> Path:
    """The interpreter of a peer's environment, or an exit that says how to make it."""
    python = ROOT / ".peers" / name / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"no environment for {name}: run `make peers`")
    return python


def document(name: str, ours: Side, peer: Side, *, equal: bool, tolerance: str, **more: Any) -> dict[str, Any]:
    """The JSON document of a benchmark."""
    mine, theirs = ours.summary(), peer.summary()
    return {
        "name": name,
        "ratio": theirs["median_s"] / mine["median_s"],
        "memory_ratio": mine["peak_mb"] / theirs["peak_mb"],
        "ours": mine,
        "peer": theirs,
        "equal": equal,
        "tolerance": tolerance,
        "machine": {"host": platform.machine(), **describe_environment()},
        **more,
    }
