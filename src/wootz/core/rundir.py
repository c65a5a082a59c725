"""The run directory: the contract between training, gates and the report.

Machine-written files carry ``"schema": 1`` and are written to a temporary name, synced and renamed, so that a process
killed at any instant leaves either the old file or the new one. JSON-lines files grow by whole lines; a torn last line
is ignored by readers and cut by the next writer. One process writes a run's lines and checkpoints at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import shutil
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from wootz.core.errors import DataError, UsageError, WootzError

SCHEMA = 1
LINES = ("metrics.jsonl", "samples.jsonl", "events.jsonl")
IfExists = Literal["ask", "resume", "new", "fail"]
_STEP = re.compile(r"^step_(\d+)$")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXT = re.compile(r"No space left on device|Disk quota exceeded|File too large|\(os error (28|122|27)\)")


class DiskFullError(WootzError, OSError):
    """The disk is full; what was there before is intact."""

    exit_code = 3


class RunDir:
    """A run's files. :meth:`create` makes one to write, :meth:`open` one to read and to add results to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: str | Path, *, if_exists: IfExists = "fail") -> RunDir:
        """Makes the directory to write in, or does with an existing one as ``if_exists`` says.

        ``resume`` keeps it and repairs what a killed process left; ``new`` moves it aside to ``PATH.1`` (``.2``...);
        ``fail`` raises UsageError; ``ask`` asks on a terminal and fails elsewhere.

        Raises:
            UsageError: It exists, is a file, cannot be written, or another process is writing it.
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
                with _disk(path):
                    path.rename(_free_name(path))
        with _disk(path):
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path)
            run._lock()
            run._repair()
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """Opens an existing run directory and changes nothing in it: a run can be read while it is written."""
        path = Path(path)
        if not path.is_dir():
            raise UsageError("no such run directory", where=str(path))
        return cls(path)

    def _lock(self) -> None:
        """Held until this object or its process ends, however it ends."""
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return  # a file system without locks
            fix = "wait for it to end, or --out=OTHER"
            raise UsageError("another process is writing this run", where=str(self.path), fix=fix) from None

    def _repair(self) -> None:
        """Cuts torn last lines; removes unfinished checkpoints, putting back one that was being replaced."""
        for name in LINES:
            _cut_torn_line(self.path / name)
        root = self.path / "checkpoints"
        for folder in root.glob("old_step_*"):
            target = root / folder.name.removeprefix("old_")
            if target.exists():
                shutil.rmtree(folder)
            else:
                folder.rename(target)
        for folder in root.glob("tmp_*"):
            shutil.rmtree(folder)

    # Whole files

    def write_text(self, name: str, text: str) -> None:
        """Writes a file whole or not at all."""
        target = self.path / name
        with _disk(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            _sync(target.parent)

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes a JSON object with its schema version; numbers that are not finite become null."""
        self.write_text(name, json.dumps(_finite({"schema": SCHEMA, **content}), indent=1, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """Returns the file's object. Raises UsageError without the file, DataError when it is not JSON."""
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"the run has no {name}", where=str(self.path)) from None
        except ValueError as error:
            raise DataError("not valid JSON", where=str(path), found=str(error)) from None

    # Lines

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Appends one JSON line and hands it to the system; a line that does not fit on the disk is taken back."""
        line = (json.dumps(_finite(dict(record)), ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        path = self.path / name
        with _disk(path), path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(before)
                raise

    def event(self, kind: str, message: str, *, step: int | None = None, source: str = "", data: Any = None) -> None:
        """Appends to ``events.jsonl``."""
        record = {"time": time.time(), "step": step, "kind": kind, "source": source, "message": message, "data": data}
        self.append("events.jsonl", record)

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """Returns all whole records of a JSON-lines file; none when it does not exist.

        Raises:
            DataError: A line that is not JSON, other than a torn last one.
        """
        path = self.path / name
        if not path.exists():
            return []
        # Not splitlines: it would also cut at U+2028 and its like inside a string.
        *lines, _torn = path.read_bytes().split(b"\n")
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(json.loads(line))
            except ValueError as error:
                if number == len(lines):
                    break
                raise DataError("not valid JSON", where=f"{path}:{number}", found=str(error)) from None
        return records

    def truncate_after(self, step: int) -> None:
        """Drops metrics, samples and events past ``step``: what a resumed run will write again."""
        for name in LINES:
            records = self.read_lines(name)
            kept = [r for r in records if r.get("step") is None or r["step"] <= step]
            if len(kept) < len(records):
                self.write_text(name, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))

    # Checkpoints

    def checkpoints(self) -> list[Path]:
        """Returns the finished checkpoint folders, oldest first."""
        found = [(int(m[1]), p) for p in (self.path / "checkpoints").glob("step_*") if (m := _STEP.match(p.name))]
        return [path for _, path in sorted(found)]

    @contextlib.contextmanager
    def begin_checkpoint(self, step: int) -> Iterator[Path]:
        """Gives an empty folder that becomes ``checkpoints/step_N`` when the block ends without an exception."""
        root = self.path / "checkpoints"
        temporary, target, old = root / f"tmp_{step}", root / f"step_{step}", root / f"old_step_{step}"
        with _disk(target):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            try:
                yield temporary
                for path in (*temporary.rglob("*"), temporary):
                    _sync(path)
                if target.exists():
                    target.rename(old)
                temporary.rename(target)
                _sync(root)
                shutil.rmtree(old, ignore_errors=True)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def prune_checkpoints(self, keep: int) -> None:
        """Removes all but the newest ``keep`` checkpoints."""
        assert keep > 0, "a run keeps at least one checkpoint"
        for folder in self.checkpoints()[:-keep]:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turns a full disk or a folder that cannot be written into a clear error, whichever library met it."""
    try:
        yield
    except WootzError:
        raise
    except Exception as error:
        code = error.errno if isinstance(error, OSError) else None
        if code in _FULL or (code is None and _FULL_TEXT.search(str(error))):
            fix = "free some space, then: wootz resume RUN"
            raise DiskFullError(
                "the disk is full; what was written before is intact", where=str(path), fix=fix
            ) from error
        if code in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            where, reason = str(path), os.strerror(code)
            raise UsageError(
                "the folder cannot be written", where=where, found=reason, fix="--out=ANOTHER/FOLDER"
            ) from None
        raise


def _ask(path: Path) -> str:
    if not sys.stdin.isatty():
        return "fail"
    sys.stderr.write(f"{path} exists. [r]esume it, move it aside and start [n]ew, or [q]uit? ")
    sys.stderr.flush()
    return {"r": "resume", "n": "new"}.get(sys.stdin.readline().strip().lower()[:1], "fail")


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return candidate


def _cut_torn_line(path: Path) -> None:
    """Cuts what follows the last line that is whole JSON (after a crash of the machine it may be zeros)."""
    if not path.exists():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    while end and not _is_json(content[content.rfind(b"\n", 0, end - 1) + 1 : end]):
        end = content.rfind(b"\n", 0, end - 1) + 1
    if end < len(content):
        with path.open("rb+") as file:
            file.truncate(end)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _sync(path: Path) -> None:
    """Waits until a file's contents, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _finite(value: Any) -> Any:
    """Plain JSON values: NumPy's numbers become Python's, what is not finite becomes null."""
    if isinstance(value, Real) and not isinstance(value, int):
        value = float(value) if not isinstance(value, Integral) else int(value)
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
