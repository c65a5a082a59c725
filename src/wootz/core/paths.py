"""Where things outside a run directory lie."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The folder for converted models and caches: ``WOOTZ_HOME``, by default ``~/.cache/wootz``."""
    return Path(os.environ.get("WOOTZ_HOME") or Path.home() / ".cache" / "wootz")
