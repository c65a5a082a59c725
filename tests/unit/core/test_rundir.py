"""The run directory: whole files, whole lines, whole checkpoints, whatever happens to the process or the disk."""

import io
import json
import os
import pty
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from wootz.core.errors import DataError, UsageError
from wootz.core.rundir import DiskFullError, RunDir

SIZE = 20_000
ROOT = Path(__file__).parents[3]


def check_whole(path: Path) -> int:
    """Everything a reader can see is whole; returns the number of metrics."""
    run = RunDir.open(path)
    metrics = run.read_lines("metrics.jsonl")
    assert [m["step"] for m in metrics] == list(range(len(metrics)))
    assert all(m["step"] == m["end"] and len(m["filler"]) == 5000 for m in metrics)
    events = run.read_lines("events.jsonl")
    assert all(e["step"] == e["data"]["end"] for e in events)
    assert [e["step"] for e in events] == sorted(e["step"] for e in events)
    if (path / "verdict.json").exists():
        verdict = run.read_json("verdict.json")
        assert verdict["schema"] == 1
        assert verdict["begin"] == verdict["end"]
    for folder in run.checkpoints():
        step = (folder / "step").read_text()
        for name in ("a", "model/b"):
            assert (folder / name).read_text() == f"{step}\n" + "z" * SIZE + f"\n{step}"
    return len(metrics)


def test_killed_at_any_instant(tmp_path):
    run, chance = tmp_path / "run", random.Random(1)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    counts, seen = [], 0
    for _ in range(12):
        command = [sys.executable, str(Path(__file__).with_name("writer.py")), str(run)]
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.001, 0.06))
        child.kill()
        assert child.wait() == -9
        child.stdout.close()
        counts.append(check_whole(run))
        # A checkpoint that was finished once is never lost, even when killed while it is replaced.
        RunDir.create(run, if_exists="resume")
        assert len(RunDir.open(run).checkpoints()) >= seen
        seen = len(RunDir.open(run).checkpoints())
        assert not list((run / "checkpoints").glob("tmp_*"))
        assert not list((run / "checkpoints").glob("old_*"))
    assert counts == sorted(counts)
    assert counts[-1] > 12
    assert seen == 3


def test_killed_between_the_two_renames_of_a_replacement(tmp_path):
    run = RunDir.create(tmp_path / "run")
    with run.begin_checkpoint(4) as folder:
        (folder / "weights").write_text("first")
    (run.path / "checkpoints/step_4").rename(run.path / "checkpoints/old_step_4")
    (run.path / "checkpoints/tmp_4").mkdir()
    run = RunDir.create(run.path, if_exists="resume")
    assert [p.name for p in (run.path / "checkpoints").iterdir()] == ["step_4"]
    assert (run.checkpoints()[0] / "weights").read_text() == "first"


@pytest.mark.parametrize(
    "tail", [b'{"step": 2, "loss"', b"\x00" * 300, b'{"step"\n\n', b"\x00\x00\n", b'{"a": "\xe2\x80']
)
def test_a_torn_end_is_ignored_by_readers_and_cut_by_the_next_writer(tmp_path, tail):
    run = RunDir.create(tmp_path / "run")
    for step in range(2):
        run.append("metrics.jsonl", {"step": step})
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + tail)
    if tail.count(b"\n") < 2:
        assert [r["step"] for r in RunDir.open(run.path).read_lines("metrics.jsonl")] == [0, 1]
        assert file.read_bytes() == whole + tail, "a reader changes nothing"
    again = RunDir.create(run.path, if_exists="resume")
    assert file.read_bytes() == whole
    again.append("metrics.jsonl", {"step": 2})
    assert [r["step"] for r in again.read_lines("metrics.jsonl")] == [0, 1, 2]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    run = RunDir.create(tmp_path / "run")
    (run.path / "metrics.jsonl").write_text('{"step": 0}\n{"step": \n{"step": 2}\n')
    with pytest.raises(DataError, match=r"metrics.jsonl:2: not valid JSON"):
        run.read_lines("metrics.jsonl")


@pytest.mark.parametrize(
    "text", ["line\u2028separator\u2029\x85\x0b\x0c\x1c", "\ud83d alone", 'quote " \\ \n\r\n', "𝕎\x00"]
)
def test_any_text_survives_as_one_line(tmp_path, text):
    run = RunDir.create(tmp_path / "run")
    for step in range(3):
        run.append("samples.jsonl", {"step": step, "completion": text})
    assert [r["completion"] for r in run.read_lines("samples.jsonl")] == [text] * 3
    run.truncate_after(1)
    assert [r["completion"] for r in run.read_lines("samples.jsonl")] == [text] * 2
    run.write_json("x.json", {"completion": text})
    assert run.read_json("x.json") == {"schema": 1, "completion": text}


def test_numbers_are_plain_json(tmp_path):
    run = RunDir.create(tmp_path / "run")
    run.write_json("x.json", {"a": float("nan"), "b": [np.float32(0.5), np.int64(3), True], "c": {1: float("-inf")}})

    def refuse(text):
        raise AssertionError(text)

    read = json.loads((run.path / "x.json").read_text(), parse_constant=refuse)
    assert read == {"schema": 1, "a": None, "b": [0.5, 3, True], "c": {"1": None}}


def test_truncate_after_keeps_what_has_no_step(tmp_path):
    run = RunDir.create(tmp_path / "run")
    run.event("info", "before")
    for step in (1, 2, 3):
        run.append("metrics.jsonl", {"step": step})
        run.append("samples.jsonl", {"step": step})
        run.event("info", "at", step=step)
    run.truncate_after(2)
    assert [r["step"] for r in run.read_lines("metrics.jsonl")] == [1, 2]
    assert [r["step"] for r in run.read_lines("samples.jsonl")] == [1, 2]
    assert [r["step"] for r in run.read_lines("events.jsonl")] == [None, 1, 2]


class TestAnExistingFolder:
    @pytest.fixture
    def run(self, tmp_path):
        run = RunDir.create(tmp_path / "run")
        run.write_text("note", "kept")
        return run

    @pytest.mark.parametrize("choice", ["fail", "ask"])
    def test_is_refused_when_nobody_can_be_asked(self, run, choice, monkeypatch):
        monkeypatch.setattr("sys.stdin", io.StringIO("r\n"))
        with pytest.raises(UsageError, match="the output folder exists") as caught:
            RunDir.create(run.path, if_exists=choice)
        assert caught.value.exit_code == 2
        assert "--if-exists=new" in caught.value.fix

    @pytest.mark.parametrize(("answer", "kept"), [("r", True), ("Resume", True), ("n", False), ("q", None), ("", None)])
    def test_asks_on_a_terminal(self, run, answer, kept, monkeypatch, capfd):
        terminal, other_end = pty.openpty()
        os.write(terminal, answer.encode() + b"\n")
        with os.fdopen(other_end) as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            if kept is None:
                with pytest.raises(UsageError, match="the output folder exists"):
                    RunDir.create(run.path, if_exists="ask")
            else:
                assert (RunDir.create(run.path, if_exists="ask").path / "note").exists() == kept
            monkeypatch.undo()
        os.close(terminal)
        out, err = capfd.readouterr()
        assert out == "", "stdout holds results only"
        assert "[r]esume" in err

    def test_is_moved_aside(self, run):
        for number in (1, 2):
            fresh = RunDir.create(run.path, if_exists="new")
            assert fresh.read_lines("metrics.jsonl") == []
            assert not (run.path / "note").exists()
            assert (run.path.with_name(f"run.{number}")).is_dir()
            fresh.write_text("other", "")
        assert (run.path.with_name("run.1") / "note").read_text() == "kept"

    def test_is_taken_up(self, run):
        assert (RunDir.create(run.path, if_exists="resume").path / "note").read_text() == "kept"

    def test_an_empty_one_is_used(self, tmp_path):
        (tmp_path / "empty").mkdir()
        RunDir.create(tmp_path / "empty", if_exists="fail").write_text("a", "b")

    def test_a_file_in_its_place(self, tmp_path):
        (tmp_path / "file").write_text("")
        for path in (tmp_path / "file", tmp_path / "file/run"):
            with pytest.raises(UsageError) as caught:
                RunDir.create(path)
            assert "--out=" in caught.value.fix

    def test_missing_for_reading(self, tmp_path):
        with pytest.raises(UsageError, match="no such run directory"):
            RunDir.open(tmp_path / "absent")
        with pytest.raises(UsageError, match=r"no verdict\.json"):
            RunDir.create(tmp_path / "run").read_json("verdict.json")


def test_one_writer_at_a_time(tmp_path):
    run = RunDir.create(tmp_path / "run")
    code = "import sys; from wootz.core.rundir import RunDir; RunDir.create(sys.argv[1], if_exists='resume')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def second() -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", code, str(run.path)]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    refused = second()
    assert refused.returncode == 1
    assert "another process is writing this run" in refused.stderr
    path = run.path
    del run
    run = RunDir.open(path)
    assert second().returncode == 0


FULL = """
    import sys
    from pathlib import Path
    import torch
    from safetensors.torch import save_file
    from wootz.core.rundir import DiskFullError, RunDir

    LIMIT, HOW, path = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    if HOW == "limit":
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    run = RunDir.create(path, if_exists="resume")
    writers = {
        "append": lambda: run.append("metrics.jsonl", {"step": 9, "filler": "x" * (2 * LIMIT)}),
        "json": lambda: run.write_json("verdict.json", {"filler": "x" * (2 * LIMIT)}),
        "plain": lambda: (folder / "weights").write_bytes(b"x" * (2 * LIMIT)),
        "safetensors": lambda: save_file({"a": torch.zeros(2 * LIMIT // 4)}, folder / "weights"),
    }
    for name, write in writers.items():
        try:
            if name in ("append", "json"):
                write()
            else:
                with run.begin_checkpoint(2) as folder:
                    write()
        except DiskFullError as error:
            assert error.exit_code == 3 and "intact" in error.what, error
            print(name)
    run.append("metrics.jsonl", {"step": 1})
"""


def _fill(path: Path, how: str, limit: int) -> None:
    before = RunDir.create(path, if_exists="resume")
    before.append("metrics.jsonl", {"step": 0})
    before.write_json("verdict.json", {"passed": True})
    with before.begin_checkpoint(2) as folder:
        (folder / "weights").write_text("first")
    del before, folder
    command = [sys.executable, "-c", textwrap.dedent(FULL), str(limit), how, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["append", "json", "plain", "safetensors"]
    after = RunDir.open(path)
    assert [r["step"] for r in after.read_lines("metrics.jsonl")] == [0, 1]
    assert after.read_json("verdict.json") == {"schema": 1, "passed": True}
    assert [p.name for p in (path / "checkpoints").iterdir()] == ["step_2"]
    assert (after.checkpoints()[0] / "weights").read_text() == "first"
    assert not [p for p in path.iterdir() if p.name.startswith(".verdict")]


def test_a_file_that_may_not_grow_loses_nothing(tmp_path):
    _fill(tmp_path / "run", "limit", 100_000)


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system can be mounted by root only")
def test_a_full_disk_loses_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", disk], capture_output=True).returncode:
        pytest.skip("no mounts in this container")
    try:
        _fill(disk / "run", "disk", 200_000)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_disk_full_is_both_families():
    error = DiskFullError("full")
    assert isinstance(error, OSError)
    assert error.exit_code == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UsageError, match="cannot be written"):
            RunDir.create(tmp_path / "run")
    finally:
        tmp_path.chmod(0o700)


def test_a_replacement_that_fails_leaves_the_checkpoint(tmp_path):
    run = RunDir.create(tmp_path / "run")
    with run.begin_checkpoint(1) as folder:
        (folder / "weights").write_text("first")

    def interrupted():
        with run.begin_checkpoint(1) as folder:
            (folder / "weights").write_text("sec")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (run.checkpoints()[0] / "weights").read_text() == "first"
    with run.begin_checkpoint(1) as folder:
        (folder / "weights").write_text("third")
    assert (run.checkpoints()[0] / "weights").read_text() == "third"
    assert [p.name for p in (run.path / "checkpoints").iterdir()] == ["step_1"]


def test_checkpoints_are_ordered_by_number_and_pruned(tmp_path):
    run = RunDir.create(tmp_path / "run")
    for step in (9, 10, 100, 2):
        with run.begin_checkpoint(step):
            pass
    (run.path / "checkpoints/step_7.bak").mkdir()
    assert [p.name for p in run.checkpoints()] == ["step_2", "step_9", "step_10", "step_100"]
    run.prune_checkpoints(2)
    assert [p.name for p in run.checkpoints()] == ["step_10", "step_100"]
