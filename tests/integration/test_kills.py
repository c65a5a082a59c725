"""Killed at random moments, resumed: the end is bit-equal and every step is recorded once."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.integration.killable import build, main
from wootz.core.errors import Interrupted
from wootz.core.rundir import RunDir
from wootz.training.checkpoint import newest_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> torch.Tensor:
    return main(str(tmp_path_factory.mktemp("whole") / "run"))


def test_killed_at_random_moments(tmp_path, uninterrupted):
    run, chance = tmp_path / "run", random.Random(0)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    kills = 0
    while not (run / "final.pt").exists():
        command = [sys.executable, str(Path(__file__).with_name("killable.py")), str(run)]
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
        child.stdout.readline()
        if kills < 5:
            time.sleep(chance.uniform(0.05, 0.6))
            child.kill()
            kills += child.wait() < 0
        else:
            assert child.wait(timeout=120) == 0
        child.stdout.close()
    assert torch.equal(torch.load(run / "final.pt"), uninterrupted)
    assert kills == 5
    steps = [row["step"] for row in RunDir.open(run).read_lines("metrics.jsonl")]
    assert steps == list(range(1, 29))


def test_a_damaged_checkpoint_is_passed_over(tmp_path, uninterrupted):
    run = RunDir.create(tmp_path / "run")
    loop = build(run)

    def stop(step, metrics):
        if step == 9:
            raise Interrupted("enough")

    loop._guard = lambda metrics: stop(loop.step, metrics)
    with pytest.raises(Interrupted):
        loop.run()
    newest = run.checkpoints()[-1]
    assert newest.name == "step_8"
    file = newest / "training.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    folder, problems = newest_checkpoint(run)
    assert folder.name == "step_6"
    assert "training.safetensors is damaged" in problems[0]
    assert torch.equal(main(str(run.path)), uninterrupted)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    from wootz.core import rundir

    run = RunDir.create(tmp_path / "run")
    loop = build(run)
    batches = iter(loop.source)
    loop.update(next(batches))
    loop.save()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    loop.update(next(batches))
    monkeypatch.setattr(rundir.os, "fsync", full)
    with pytest.raises(rundir.DiskFullError, match="disk is full"):
        loop.save()
    monkeypatch.undo()
    assert [path.name for path in RunDir.open(run.path).checkpoints()] == ["step_1"]
    assert newest_checkpoint(run)[1] == []
