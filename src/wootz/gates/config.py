"""How a model is judged: the ``gate`` section of a recipe."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from wootz.core.config import Config
from wootz.evals.suites import MEASURES
from wootz.signals import SIGNALS
from wootz.signals.text import ExactConfig

Allowed = Literal["unclear", "void"]
Verifier = SIGNALS.field
Measured = MEASURES.field


class GateConfig(Config):
    """A target that must get better, and limits that must hold."""

    target: str | None = None
    """Held-out rows: prompt and gold (answered and verified), prompt, chosen and rejected (which is likelier), or
    prompt and completion (how likely)."""
    verifier: Verifier = ExactConfig()
    """Decides whether an answer to the target is right."""
    policy: Literal["better", "not_worse"] = "better"
    """What targets must be: better, or at least not worse than the margin."""
    margin: float = Field(default=0.02, ge=0)
    """Differences of a target inside +-margin count as the same."""
    suite: str = "small"
    """Limit measures: small, full, none, or a folder of prompt sets."""
    limits: dict[str, float] = {}
    """Other limits for the suite's measures, by name."""
    measures: tuple[Measured, ...] = ()
    """Further targets and limits."""
    allow: tuple[Allowed, ...] = ()
    """What may pass though it is not shown: unclear limits, or void ones (the parent fails them completely, or they
    cannot be measured)."""
    max_items: int | None = Field(default=None, gt=0)
    """At most this many rows of the target."""
    max_new_tokens: int = Field(default=64, gt=0)
    """Longest answer to the target."""
    temperature: float = Field(default=0.0, ge=0)
    """Of all answers; 0 is greedy, so that models differ by their weights alone."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Of every interval."""

    @model_validator(mode="after")
    def _judges_something(self) -> Self:
        if self.target is None and self.suite == "none" and not self.measures:
            raise ValueError("the gate measures nothing; give a target, a suite or measures")
        if self.target is None and self.max_items is not None:
            raise ValueError("max_items does nothing without a target")
        if self.suite == "none" and self.limits:
            raise ValueError("limits do nothing without a suite")
        if self.target is None and self.verifier != type(self).model_fields["verifier"].default:
            raise ValueError("verifier does nothing without a target")
        return self
