"""Guards that hold one measured quantity under a limit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from wootz.core.config import Config
from wootz.core.protocols import GuardVerdict

CONTINUE = GuardVerdict("continue")
Limit = tuple[Literal["stop", "warn"], float | None]


class KLGuard:
    """Watches ``kl/reference``: KL(policy, reference) of sampled answers, in nats an answer."""

    name = "kl"
    needs = ("kl/reference",)

    def __init__(self, config: KLGuardConfig) -> None:
        self._config = config

    def check(self, step: int, metrics: Mapping[str, float]) -> GuardVerdict:  # noqa: ARG002
        kl = metrics.get("kl/reference")
        if kl is None:
            return CONTINUE
        limits: tuple[Limit, Limit] = (("stop", self._config.stop_above), ("warn", self._config.warn_above))
        for action, limit in limits:
            if limit is not None and kl > limit:
                message = f"answers are {kl:.2f} nats from the reference, above {action}_above {limit:g}"
                return GuardVerdict(action, message, {"kl": kl, "limit": limit})
        return CONTINUE

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """It remembers nothing."""


class KLGuardConfig(Config):
    """Stops a policy that drifts too far from its reference, measured on sampled answers (needs eval.samples)."""

    type: Literal["kl"] = "kl"
    stop_above: float = Field(gt=0)
    """Nats an answer at which the run stops."""
    warn_above: float | None = Field(default=None, gt=0)
    """Nats an answer at which an event is written."""

    def build(self) -> KLGuard:
        return KLGuard(self)


class LengthGuard:
    """Watches ``rollout/length``, tokens a sampled answer, against its value at the start of the run."""

    name = "length"
    needs = ("rollout/length",)

    def __init__(self, config: LengthGuardConfig) -> None:
        self._config = config
        self._first: float | None = None

    def check(self, step: int, metrics: Mapping[str, float]) -> GuardVerdict:  # noqa: ARG002
        length = metrics.get("rollout/length")
        if length is None:
            return CONTINUE
        if self._first is None:
            self._first = length
        ratio = length / max(self._first, 1.0)
        evidence = {"length": length, "start": self._first, "ratio": ratio}
        limits: tuple[Limit, Limit] = (("stop", self._config.stop_ratio), ("warn", self._config.warn_ratio))
        for action, limit in limits:
            if limit is not None and ratio > limit:
                message = f"answers are {ratio:.2f} times as long as at the start, above {action}_ratio {limit:g}"
                return GuardVerdict(action, message, evidence)
        return CONTINUE

    def state_dict(self) -> dict[str, Any]:
        return {"first": self._first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._first = state["first"]


class LengthGuardConfig(Config):
    """Warns, or stops, when sampled answers grow: the commonest way to please a signal without being better."""

    type: Literal["length"] = "length"
    warn_ratio: float | None = Field(default=1.5, gt=1)
    """Growth over the start at which an event is written."""
    stop_ratio: float | None = Field(default=None, gt=1)
    """Growth over the start at which the run stops."""

    def build(self) -> LengthGuard:
        return LengthGuard(self)


class BudgetGuard:
    """Stops after a number of minutes of training, resumed time included."""

    name = "budget"
    needs: tuple[str, ...] = ()

    def __init__(self, config: BudgetGuardConfig) -> None:
        self._config = config
        self._spent = 0.0
        self._since = time.monotonic()

    def check(self, step: int, metrics: Mapping[str, float]) -> GuardVerdict:  # noqa: ARG002
        minutes = (self._spent + time.monotonic() - self._since) / 60
        if minutes <= self._config.minutes:
            return CONTINUE
        return GuardVerdict(
            "stop", f"{minutes:.1f} minutes are spent, of {self._config.minutes:g}", {"minutes": minutes}
        )

    def state_dict(self) -> dict[str, Any]:
        return {"spent": self._spent + time.monotonic() - self._since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._spent = state["spent"]
        self._since = time.monotonic()


class BudgetGuardConfig(Config):
    """Ends a run when its time is spent; the checkpoint is kept."""

    type: Literal["budget"] = "budget"
    minutes: float = Field(gt=0)
    """Minutes of training."""

    def build(self) -> BudgetGuard:
        return BudgetGuard(self)
