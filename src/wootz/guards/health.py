"""Guards against numerical trouble. A loss that is not a number stops every run, without a guard."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from wootz.core.config import Config
from wootz.core.protocols import GuardVerdict


class SpikeGuard:
    """Compares each step's gradient norm (before clipping) with the median of the last ``window`` steps."""

    name = "spike"
    needs = ("optim/grad_norm",)

    def __init__(self, config: SpikeGuardConfig) -> None:
        self._config = config
        self._norms: list[float] = []

    def check(self, step: int, metrics: Mapping[str, float]) -> GuardVerdict:
        norm = metrics.get("optim/grad_norm")
        if norm is None:
            return GuardVerdict("continue")
        seen = self._norms
        self._norms = [*seen, norm][-self._config.window :]
        median = statistics.median(seen) if seen else 0.0
        if len(seen) < self._config.window or norm <= self._config.factor * median:
            return GuardVerdict("continue")
        message = f"step {step}: the gradient's norm {norm:.3g} is {norm / max(median, 1e-30):.0f} times its median"
        return GuardVerdict(self._config.action, message, {"grad_norm": norm, "median": median})

    def state_dict(self) -> dict[str, Any]:
        return {"norms": self._norms}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._norms = list(state["norms"])


class SpikeGuardConfig(Config):
    """Warns, or stops, when a gradient is far larger than those before it."""

    type: Literal["spike"] = "spike"
    factor: float = Field(default=10.0, gt=1)
    """Multiple of the median norm that counts as a spike."""
    window: int = Field(default=20, ge=5)
    """Steps the median is taken over; quiet until so many have passed."""
    action: Literal["warn", "stop"] = "warn"
    """What follows a spike."""

    def build(self) -> SpikeGuard:
        return SpikeGuard(self)
