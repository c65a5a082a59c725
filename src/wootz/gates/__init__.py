"""Decisions: is the new model better than what it came from, and no worse in what must not change?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wootz.gates.config import GateConfig
    from wootz.gates.decide import Verdict
    from wootz.gates.run import Parent, gate, measure_model

__all__ = ["GateConfig", "Parent", "Verdict", "gate", "measure_model"]

_HOME = {"GateConfig": "config", "Verdict": "decide", "Parent": "run", "gate": "run", "measure_model": "run"}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that a recipe's schema loads no model library."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"wootz.gates.{_HOME[name]}"), name)
