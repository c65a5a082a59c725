"""Freed memory stays in the process: counted in page faults."""

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from wootz.models.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(2 ** 21), torch.ones(2 ** 23)  # 8 and 32 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
faults()
before = faults()
assert keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
def test_blocks_are_not_fetched_again():
    run = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    before, after = map(int, run.stdout.split())
    assert before > 20 * 2**25 / 2**21  # one for each 2 MB at the very least
    assert after < before / 20
