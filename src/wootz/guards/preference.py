"""Watches what preference training does to the answers: the known ways in which a falling loss is no good news."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from wootz.core.config import Config
from wootz.core.protocols import GuardVerdict

_ONE_SIDED = 0.9


class DriftGuard:
    """Warns, once each, when over the last ``window`` steps

    - the chosen answers became less likely than under the reference while the margin grew (both by more than two standard
      errors of their mean over steps): the loss falls by pushing the rejected ones down faster;
    - in nine of ten pairs or more the higher reward went to the longer answer (or to the shorter one): length explains the
      margin.
    """

    name = "drift"
    needs = ("reward/chosen", "reward/margin")

    def __init__(self, config: DriftGuardConfig) -> None:
        self._window = config.window
        self._seen: dict[str, list[float]] = {"reward/chosen": [], "reward/margin": [], "reward/longer": []}
        self._said: list[str] = []

    def check(self, step: int, metrics: Mapping[str, float]) -> GuardVerdict:
        if "reward/margin" not in metrics:
            return GuardVerdict("continue")
        for name, values in self._seen.items():
            if name in metrics:
                self._seen[name] = [*values, metrics[name]][-self._window :]
        if len(self._seen["reward/margin"]) < self._window:
            return GuardVerdict("continue")
        for what, message in (("chosen", self._falling()), ("length", self._one_sided())):
            if message and what not in self._said:
                self._said.append(what)
                evidence = {name: statistics.fmean(values) for name, values in self._seen.items() if values}
                return GuardVerdict("warn", f"step {step}: {message}", evidence)
        return GuardVerdict("continue")

    def _falling(self) -> str:
        chosen, margin = self._seen["reward/chosen"], self._seen["reward/margin"]
        if _from_zero(chosen) > -2 or _from_zero(margin) < 2:
            return ""
        return (
            f"the margin grows ({statistics.fmean(margin):.3g}) while chosen answers lose probability "
            f"(reward {statistics.fmean(chosen):.3g}); objective.sft_weight or dpo_positive holds them"
        )

    def _one_sided(self) -> str:
        longer = self._seen["reward/longer"]
        if len(longer) < self._window or _from_zero(self._seen["reward/margin"]) < 2:
            return ""
        share = statistics.fmean(longer)
        if 1 - _ONE_SIDED < share < _ONE_SIDED:
            return ""
        side = "longer" if share > 0.5 else "shorter"
        share = max(share, 1 - share)
        return f"length explains the margin: in {share:.0%} of pairs the {side} answer has the higher reward"

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self._seen, "said": self._said}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seen = {name: list(values) for name, values in state["seen"].items()}
        self._said = list(state["said"])


def _from_zero(values: list[float]) -> float:
    """The mean in units of its standard error."""
    mean, error = statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5
    if not mean:
        return 0.0
    return mean / error if error else math.copysign(math.inf, mean)


class DriftGuardConfig(Config):
    """Warns when chosen answers lose probability, or length explains the margin. On by itself where it can be."""

    type: Literal["drift"] = "drift"
    window: int = Field(default=10, ge=3)
    """Steps looked back on; quiet until so many have passed."""

    def build(self) -> DriftGuard:
        return DriftGuard(self)


class EarlyStopGuard:
    """Ends training, as if its steps were done, when the held-out loss has not fallen for ``patience`` evaluations."""

    name = "early_stop"
    needs = ("eval/total",)

    def __init__(self, config: EarlyStopGuardConfig) -> None:
        self._config = config
        self._best: tuple[int, float] | None = None
        self._waited = 0

    def check(self, step: int, metrics: Mapping[str, float]) -> GuardVerdict:
        loss = metrics.get("eval/total")
        if loss is None:
            return GuardVerdict("continue")
        if self._best is None or loss < self._best[1] - self._config.min_improvement:
            self._best, self._waited = (step, loss), 0
            return GuardVerdict("continue")
        self._waited += 1
        if self._waited < self._config.patience:
            return GuardVerdict("continue")
        best_step, best = self._best
        message = f"step {step}: the held-out loss is {loss:.4f} and was best at step {best_step}, {best:.4f}"
        return GuardVerdict("finish", message, {"loss": loss, "best": best, "best_step": float(best_step)})

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "waited": self._waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best = None if state["best"] is None else (int(state["best"][0]), float(state["best"][1]))
        self._waited = int(state["waited"])


class EarlyStopGuardConfig(Config):
    """Ends training when the held-out loss no longer falls; the gate then judges what was reached."""

    type: Literal["early_stop"] = "early_stop"
    patience: int = Field(default=2, ge=1)
    """Evaluations without an improvement that end the run."""
    min_improvement: float = Field(default=0.0, ge=0)
    """Less than this is no improvement."""

    def build(self) -> EarlyStopGuard:
        return EarlyStopGuard(self)
