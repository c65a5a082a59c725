"""Keeps freed memory in the process, where the C library would give it back and fetch it again page by page."""

from __future__ import annotations

import ctypes
import functools
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_NEVER, _STEP = 2**31 - 1, 64 * 2**20


@functools.cache
def keep_freed_memory() -> bool:
    """Returns whether the allocator now keeps what is freed; only glibc is asked.

    glibc maps large blocks afresh from the system and unmaps them when freed, so every large activation costs a page
    fault for each 4 KB, which can take longer than the arithmetic on it. The process's memory then stays at its peak.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    wishes = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _STEP))
    return all([library.mallopt(option, value) == 1 for option, value in wishes])
