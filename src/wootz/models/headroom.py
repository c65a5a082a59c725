"""How much memory is free."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def available_memory(device: torch.device) -> int:
    """Returns the bytes that this process could still take on the device, a container's limit respected."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(_free_on_host(), _free_in_container(Path("/sys/fs/cgroup")))


def _free_on_host() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        # No such file on macOS; a quarter of the whole is a careful guess.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def _free_in_container(group: Path) -> int:
    try:
        limit, used = (group / "memory.max").read_text().strip(), int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except OSError:
        return 1 << 62
    # File pages count as used but are given up when memory is asked for.
    return 1 << 62 if limit == "max" else int(limit) - used + int(stat.get("inactive_file", 0))
