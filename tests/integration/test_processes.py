"""One process = two processes = three (gloo); the last batch of an epoch holds one group, so some shares are empty."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integration.processes import train
from wootz.training.distribution import World

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("size", "objective"), [(2, "dpo"), (3, "dpo"), (3, "kto"), (2, "bco_pair")])
def test_result_does_not_depend_on_the_number_of_processes(tmp_path, size, objective):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command += [str(Path(__file__).with_name("processes.py")), str(tmp_path), objective]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    tables = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(size)]
    alone = train(World(), objective).table.detach()
    for table in tables:
        torch.testing.assert_close(table, alone, rtol=1e-9, atol=1e-11)
