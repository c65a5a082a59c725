"""Reads and writes rows. Each remembers where a person finds it; a broken one is named by file and line."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from wootz.core.errors import DataError, MissingError, UsageError, nearest

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
_HUB = re.compile(r"^(?P<id>[\w.-]+/[\w.-]+)(:(?P<split>[\w.-]+))?$")
_GZIP = b"\x1f\x8b"
_FORMATS = ", ".join(SUFFIXES) + " (or .gz of a text one), a folder saved by `datasets`, or a Hub id owner/name:split"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as they were written.

    Attributes:
        source: Path or Hub id, as given.
        places: Where each row is: ``line 12`` in text files, ``row 12`` (from 1) elsewhere.
        typed: False when every value is a string because the format has no types (CSV).
    """

    source: str
    rows: tuple[dict[str, Any], ...]
    places: tuple[str, ...]
    typed: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, in order of first appearance."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.rows)))


def read(source: str | Path, *, max_rows: int | None = None) -> Table:
    """Returns the rows of a file, a folder saved by ``datasets``, or a Hub dataset.

    The container is told by the file's suffix, except that JSON and JSON lines, and gzip, are told by their contents.

    Raises:
        DataError: No such file, an unknown suffix, a broken row (with its line), no rows.
        MissingError: A Hub dataset that cannot be reached.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        table = _from_folder(path, str(source), max_rows)
    elif path.exists():
        table = _from_file(path, str(source), max_rows)
    elif (match := _HUB.match(str(source))) and not _suffix(path):
        table = _from_hub(match["id"], match["split"] or "train", max_rows)
    else:
        raise _no_such_file(path)
    if not table.rows:
        raise DataError("no rows", where=str(source), expected="at least one row")
    return table


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in SUFFIXES else ""


def _no_such_file(path: Path) -> DataError:
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = nearest(path.name, siblings)
    data = sorted(name for name in siblings if _suffix(Path(name)))
    return DataError(
        "no such file",
        where=str(path),
        found=f"in {path.parent}: {', '.join(data[:8])}" if data else None,
        expected=None if data else f"{_FORMATS}",
        fix=f"did you mean {path.parent / close}?" if close else None,
    )


def _from_file(path: Path, source: str, max_rows: int | None) -> Table:
    suffix = _suffix(path)
    if suffix in (".parquet", ".arrow"):
        return _numbered(source, map(_without_padding, _arrow_rows(path, suffix)), max_rows)
    if suffix in (".csv", ".tsv"):
        rows = _csv_rows(path, source, "\t" if suffix == ".tsv" else ",")
        return _placed(source, rows, max_rows, typed=False)
    if suffix:
        if _first_character(path, source) == "[":
            return _numbered(source, _json_rows(path, source), max_rows)
        return _placed(source, _jsonl_rows(path, source), max_rows, typed=True)
    raise DataError("cannot tell how this file is written", where=source, expected=_FORMATS, fix="rename or convert it")


def _open(path: Path) -> IO[str]:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    opener = gzip.open if packed else open
    return opener(path, "rt", encoding="utf-8-sig", newline="")


def _placed(source: str, rows: Iterable[tuple[int, dict[str, Any]]], max_rows: int | None, *, typed: bool) -> Table:
    taken = list(itertools.islice(rows, max_rows))
    return Table(source, tuple(row for _, row in taken), tuple(f"line {line}" for line, _ in taken), typed)


def _numbered(source: str, rows: Iterable[dict[str, Any]], max_rows: int | None) -> Table:
    taken = tuple(itertools.islice(rows, max_rows))
    return Table(source, taken, tuple(f"row {number}" for number in range(1, len(taken) + 1)))


def _lines(path: Path, source: str) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                yield number, line
    except UnicodeDecodeError as error:
        raise DataError(
            "not UTF-8 text", where=f"{source}:{number + 1}", found=error.reason, fix="save the file as UTF-8"
        ) from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError("the compressed file is cut off or damaged", where=source, found=str(error)) from error


def _first_character(path: Path, source: str) -> str:
    return next((line.lstrip()[0] for _, line in _lines(path, source) if line.strip()), "")


def _jsonl_rows(path: Path, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path, source):
        if not line.strip():
            continue
        where = f"{source}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"broken JSON: {error.msg} at column {error.colno}",
                where=where,
                found=_around(line, error.pos),
                expected="one JSON object a line",
                fix=f"mend or delete line {number}",
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                "a row must be a JSON object",
                where=where,
                found=f"{type(row).__name__}: {line.strip()[:60]}",
                expected='{"column": value, ...}',
            )
        yield number, row


def _around(line: str, position: int) -> str:
    start = max(0, position - 30)
    text = line[start : position + 30].strip()
    return ("..." if start else "") + text + ("..." if position + 30 < len(line.rstrip()) else "")


def _json_rows(path: Path, source: str) -> list[dict[str, Any]]:
    text = "".join(line for _, line in _lines(path, source))
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"broken JSON: {error.msg} at column {error.colno}",
            where=f"{source}:{error.lineno}",
            found=_around(text, error.pos),
            expected="a list of objects",
        ) from error
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DataError("a row must be a JSON object", where=f"{source} row {number}", found=type(row).__name__)
    return rows


def _csv_rows(path: Path, source: str, delimiter: str) -> Iterator[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader((line for _, line in _lines(path, source)), delimiter=delimiter)
    header = next(reader, None)
    if header is None:
        return
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise DataError(f"two columns are called {twice!r}", where=f"{source}:1")
    line = reader.line_num + 1
    for values in reader:
        if values and len(values) != len(header):
            raise DataError(
                "a row has another number of cells than the header",
                where=f"{source}:{line}",
                found=f"{len(values)} cells",
                expected=f"{len(header)}: {', '.join(header)}",
                fix="quote cells that hold the delimiter or a line break",
            )
        if values:
            yield line, dict(zip(header, values, strict=True))
        line = reader.line_num + 1


def _arrow_rows(path: Path, suffix: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield from batch.to_pylist()
            return
        with pa.memory_map(str(path)) as mapped:
            try:
                batches: Any = pa.ipc.open_stream(mapped)
            except pa.ArrowInvalid:
                opened = pa.ipc.open_file(mapped)
                batches = (opened.get_batch(index) for index in range(opened.num_record_batches))
            for batch in batches:
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        kind = "a Parquet" if suffix == ".parquet" else "an Arrow"
        raise DataError(f"not {kind} file, or damaged", where=str(path), found=str(error).splitlines()[0]) from error


def _without_padding(row: dict[str, Any]) -> dict[str, Any]:
    """Drops the nulls that Arrow puts into objects for keys that only other rows have."""

    def prune(value: Any) -> Any:
        if isinstance(value, list):
            return [prune(item) for item in value]
        if isinstance(value, dict):
            return {key: prune(item) for key, item in value.items() if item is not None}
        return value

    return {name: prune(value) for name, value in row.items()}


def _from_folder(path: Path, source: str, max_rows: int | None) -> Table:
    if not (path / "dataset_info.json").exists():
        inside = sorted(entry.name for entry in path.iterdir())
        raise DataError(
            "a folder, but not one saved by `datasets`",
            where=source,
            found=", ".join(inside[:8]) or "nothing",
            expected="dataset_info.json in it",
            fix=f"name a file or a split in it, such as {path / inside[0]}" if inside else None,
        )
    from datasets import load_from_disk

    return _numbered(source, map(_without_padding, load_from_disk(str(path))), max_rows)  # pyright: ignore[reportArgumentType]


def _from_hub(name: str, split: str, max_rows: int | None) -> Table:
    from datasets import load_dataset
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        rows = load_dataset(name, split=split)
    except (DatasetNotFoundError, HfHubHTTPError, OfflineModeIsEnabled, ConnectionError) as error:
        raise MissingError(
            f"neither a file nor a Hub dataset that can be reached: {name}",
            found=str(error).splitlines()[0],
            fix="check the name; for a gated dataset `hf auth login`; offline, give a local file",
        ) from error
    except ValueError as error:
        raise DataError(f"cannot read split {split!r}", where=name, found=str(error).splitlines()[0]) from error
    return _numbered(f"{name}:{split}", map(_without_padding, rows), max_rows)  # pyright: ignore[reportArgumentType]


def write(rows: Iterable[Mapping[str, Any]], path: str | Path) -> int:
    """Writes rows as JSONL, JSON, CSV or Parquet by the suffix (.gz of a text one too); returns how many.

    CSV has no types: values that are not strings, numbers or booleans are refused there.
    """
    path = Path(path)
    suffix, taken = _suffix(path), list(rows)
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Left to itself Arrow takes the columns of the first row only.
        columns = list(dict.fromkeys(itertools.chain.from_iterable(taken)))
        pq.write_table(pa.table({name: [row.get(name) for row in taken] for name in columns}), path)
        return len(taken)
    if suffix in (".csv", ".tsv"):
        text = _csv_text(taken, "\t" if suffix == ".tsv" else ",")
    elif suffix == ".json":
        text = json.dumps(taken, ensure_ascii=False, indent=1) + "\n"
    elif suffix in (".jsonl", ".ndjson"):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in taken)
    else:
        raise UsageError("cannot tell how to write this file", where=str(path), expected=", ".join(SUFFIXES[:-1]))
    data = text.encode("utf-8")
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return len(taken)


def _csv_text(rows: list[Mapping[str, Any]], delimiter: str) -> str:
    for row in rows:
        for name, value in row.items():
            if not isinstance(value, str | int | float | bool):
                raise UsageError(
                    f"column {name!r} holds {type(value).__name__}; CSV cannot", fix="write .jsonl instead"
                )
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, list(dict.fromkeys(itertools.chain.from_iterable(rows))), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
