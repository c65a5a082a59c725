"""``wootz gate``."""

from __future__ import annotations

from wootz.cli.flags import Flags, verb


@verb()
def gate(flags: Flags) -> int:
    """Judge a model against the one it came from."""
    return 0
