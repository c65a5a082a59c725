"""The run directory: the contract between training, gates and the report.

Machine-written files carry ``"schema": 1`` and are written to a temporary name, synced and renamed, so that a process killed at
any instant leaves either the old file or the new one. JSON-lines files are appended a whole line at a time; a torn last
line is cut when the directory is opened.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from wootz.core.errors import DataError, UsageError, WootzError

SCHEMA = 1
LINES = ("metrics.jsonl", "samples.jsonl", "events.jsonl")
IfExists = Literal["ask", "resume", "new", "fail"]
_STEP = re.compile(r"step_(\d+)$")


class DiskFullError(WootzError, OSError):
    """The disk is full; what was there before is intact."""

    exit_code = 3


class RunDir:
    """A run's files. Make one with :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: str | Path, *, if_exists: IfExists = "fail") -> RunDir:
        """Makes the directory, or does with an existing one as ``if_exists`` says.

        ``resume`` keeps it; ``new`` moves it aside to ``PATH.1`` (``.2``...); ``fail`` raises UsageError; ``ask`` asks on a
        terminal and fails elsewhere.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise UsageError("the output is a file, not a folder", where=str(path), fix="--out=ANOTHER/FOLDER")
        if path.is_dir() and any(path.iterdir()):
            choice = _ask(path) if if_exists == "ask" else if_exists
            if choice == "fail":
                raise UsageError(
                    "the output folder exists",
                    where=str(path),
                    fix="--if-exists=new moves it aside, --if-exists=resume goes on, --out=OTHER writes elsewhere",
                )
            if choice == "new":
                path.rename(_free_name(path))
        with _disk(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """Opens an existing run directory: removes unfinished checkpoints and cuts torn last lines."""
        path = Path(path)
        if not path.is_dir():
            raise UsageError("no such run directory", where=str(path))
        for name in LINES:
            _cut_torn_line(path / name)
        for folder in (path / "checkpoints").glob("tmp_*"):
            shutil.rmtree(folder)
        return cls(path)

    # Whole files

    def write_text(self, name: str, text: str) -> None:
        """Writes a file whole or not at all."""
        target = self.path / name
        with _disk(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                with temporary.open("w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes a JSON object with its schema version; numbers that are not finite become null."""
        self.write_text(name, json.dumps(_finite({"schema": SCHEMA, **content}), indent=1, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"the run has no {name}", where=str(self.path)) from None
        except json.JSONDecodeError as error:
            raise DataError(f"{name} is not JSON ({error})", where=str(self.path)) from None

    # Lines

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Appends one JSON line and hands it to the system."""
        line = json.dumps(_finite(dict(record)), ensure_ascii=False) + "\n"
        with _disk(self.path / name), (self.path / name).open("a", encoding="utf-8") as file:
            file.write(line)

    def event(self, kind: str, message: str, *, step: int | None = None, source: str = "", data: Any = None) -> None:
        """Appends to ``events.jsonl``."""
        record = {"time": time.time(), "step": step, "kind": kind, "source": source, "message": message, "data": data}
        self.append("events.jsonl", record)

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """All records of a JSON-lines file; empty when it does not exist."""
        path = self.path / name
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]

    def truncate_after(self, step: int) -> None:
        """Drops metrics, samples and events past ``step``: what a resumed run will write again."""
        for name in LINES:
            records = self.read_lines(name)
            kept = [r for r in records if r.get("step") is None or r["step"] <= step]
            if len(kept) < len(records):
                self.write_text(name, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))

    # Checkpoints

    def checkpoints(self) -> list[Path]:
        """Checkpoint folders, oldest first."""
        found = [(int(m[1]), p) for p in (self.path / "checkpoints").glob("step_*") if (m := _STEP.search(p.name))]
        return [path for _, path in sorted(found)]

    @contextlib.contextmanager
    def begin_checkpoint(self, step: int) -> Iterator[Path]:
        """Gives an empty folder that becomes ``checkpoints/step_N`` when the block ends without an exception."""
        root = self.path / "checkpoints"
        temporary, target = root / f"tmp_{step}", root / f"step_{step}"
        with _disk(target):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            try:
                yield temporary
                for path in temporary.rglob("*"):
                    if path.is_file():
                        with path.open("rb") as file:
                            os.fsync(file.fileno())
                shutil.rmtree(target, ignore_errors=True)
                temporary.rename(target)
                _sync_folder(root)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def prune_checkpoints(self, keep: int) -> None:
        """Removes all but the newest ``keep`` checkpoints."""
        for folder in self.checkpoints()[:-keep]:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turns a full disk or a read-only folder into a clear error."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = "free some space, then: wootz resume RUN"
            raise DiskFullError("the disk is full; what was written before is intact", where=str(path), fix=free) from None
        if error.errno in (errno.EACCES, errno.EROFS):
            raise UsageError("the folder cannot be written", where=str(path), fix="--out=ANOTHER/FOLDER") from None
        raise


def _ask(path: Path) -> str:
    if not sys.stdin.isatty():
        return "fail"
    answer = input(f"{path} exists. [r]esume it, move it aside and start [n]ew, or [q]uit? ").strip().lower()
    return {"r": "resume", "n": "new"}.get(answer[:1], "fail")


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return candidate


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("rb+") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
