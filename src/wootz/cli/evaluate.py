"""``wootz eval``."""

from __future__ import annotations

from wootz.cli.flags import Flags, verb


@verb()
def evaluate(flags: Flags) -> int:
    """Measure a model."""
    return 0
