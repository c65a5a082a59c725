from __future__ import annotations

import gzip
import json

import pytest

from wootz.core.errors import DataError, MissingError, UsageError
from wootz.data import read, write

ROWS = [{"prompt": "a, b", "n": 1}, {"prompt": 'c\n"d" é😀', "n": 2}, {"prompt": "", "n": 3}]
TYPELESS = [{name: str(value) for name, value in row.items()} for row in ROWS]


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("rows.jsonl", True),
        ("rows.ndjson", True),
        ("rows.json", True),
        ("rows.jsonl.gz", True),
        ("rows.parquet", True),
        ("rows.csv", False),
        ("rows.tsv", False),
        ("rows.csv.gz", False),
    ],
)
def test_written_rows_are_read_back(tmp_path, name, typed):
    assert write(ROWS, tmp_path / name) == 3
    table = read(tmp_path / name)
    assert list(table.rows) == (ROWS if typed else TYPELESS)
    assert table.typed is typed
    assert table.columns == ("prompt", "n")
    assert read(tmp_path / name, max_rows=2).rows == table.rows[:2]


@pytest.mark.parametrize("stream", [True, False])
def test_arrow_streams_and_files(tmp_path, stream):
    import pyarrow as pa

    table = pa.Table.from_pylist(ROWS)
    path = tmp_path / "rows.arrow"
    with pa.OSFile(str(path), "wb") as sink:
        opener = pa.ipc.new_stream if stream else pa.ipc.new_file
        with opener(sink, table.schema) as writer:
            writer.write_table(table)
    assert list(read(path).rows) == ROWS


def test_a_folder_saved_by_datasets(tmp_path):
    from datasets import Dataset, DatasetDict

    Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    assert list(read(tmp_path / "one").rows) == ROWS
    DatasetDict({"train": Dataset.from_list(ROWS)}).save_to_disk(tmp_path / "several")
    with pytest.raises(DataError, match="not one saved") as caught:
        read(tmp_path / "several")
    assert "train" in str(caught.value)
    assert list(read(tmp_path / "several" / "train").rows) == ROWS


def test_objects_of_different_keys_survive_arrow(tmp_path):
    calls = [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {"y": "z"}}]
    rows = [{"tools": calls, "id": 1}, {"tools": [], "id": None}]
    write(rows, tmp_path / "a.parquet")
    assert list(read(tmp_path / "a.parquet").rows) == rows


def test_places_are_line_numbers_of_the_file(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"x": 1}\n\n{"x": 2}\n')
    assert read(tmp_path / "a.jsonl").places == ("line 2", "line 4")
    (tmp_path / "a.csv").write_text('x,y\n1,"two\nlines"\n3,4\n')
    table = read(tmp_path / "a.csv")
    assert table.places == ("line 2", "line 4")
    assert table.rows[0] == {"x": "1", "y": "two\nlines"}
    (tmp_path / "a.json").write_text('[{"x": 1}, {"x": 2}]')
    assert read(tmp_path / "a.json").places == ("row 1", "row 2")


def test_json_lines_and_gzip_are_told_by_contents(tmp_path):
    lines = "\ufeff" + "".join(json.dumps(row) + "\r\n" for row in ROWS)
    (tmp_path / "lines.json").write_text(lines, encoding="utf-8", newline="")
    assert list(read(tmp_path / "lines.json").rows) == ROWS
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(lines.encode()))
    assert list(read(tmp_path / "packed.jsonl").rows) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "where", "what"),
    [
        ("a.jsonl", b'{"x": 1}\n{"x": 2\n{"x": 3}\n', "a.jsonl:2", "broken JSON"),
        ("a.jsonl", b'{"x": 1}\n[1, 2]\n', "a.jsonl:2", "must be a JSON object"),
        ("a.jsonl", b'{"x": "\xff"}\n', "a.jsonl:1", "not UTF-8"),
        ("a.json", b'[{"x": 1},\n {"x": 2,,}]', "a.json:2", "broken JSON"),
        ("a.json", b'[{"x": 1}, 5]', "a.json row 2", "must be a JSON object"),
        ("a.csv", b"x,y\n1,2\n3\n", "a.csv:3", "number of cells"),
        ("a.csv", b"x,x\n1,2\n", "a.csv:1", "two columns"),
        ("a.jsonl", b"\n\n", "a.jsonl", "no rows"),
        ("a.csv", b"x,y\n", "a.csv", "no rows"),
        ("a.parquet", b"nothing", "a.parquet", "not a Parquet file"),
        ("a.arrow", b"nothing at all", "a.arrow", "not an Arrow file"),
        ("a.jsonl.gz", gzip.compress(b'{"x": 1}\n' * 500, mtime=0)[:-20], "a.jsonl.gz", "cut off or damaged"),
        ("a.xlsx", b"PK", "a.xlsx", "cannot tell"),
    ],
)
def test_broken_files_are_named_by_line(tmp_path, name, content, where, what):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=what) as caught:
        read(tmp_path / name)
    assert caught.value.where == str(tmp_path / where)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) <= 8


def test_a_missing_file_offers_its_neighbour(tmp_path):
    write(ROWS, tmp_path / "prefs.jsonl")
    with pytest.raises(DataError, match="no such file") as caught:
        read(tmp_path / "pref.jsonl")
    assert caught.value.fix == f"did you mean {tmp_path / 'prefs.jsonl'}?"


def test_a_hub_name_that_cannot_be_reached(monkeypatch):
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingError) as caught:
        read("nobody/has-this-data-set:train")
    assert caught.value.exit_code == 4
    assert "local file" in caught.value.fix


def test_csv_refuses_what_it_cannot_hold(tmp_path):
    with pytest.raises(UsageError, match="'messages' holds list"):
        write([{"messages": []}], tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()
