"""A weighted sum of objectives over the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor

from wootz.core.batch import GroupBatch, Unit
from wootz.core.config import Config
from wootz.core.protocols import Needs, Objective, Total
from wootz.objectives import SINGLE
from wootz.objectives.reference_free import WithPrompt

Part = SINGLE.field


@dataclass(frozen=True)
class Mix:
    """Parts: those of every objective; metrics that several have are the first one's."""

    objectives: tuple[Objective, ...]
    factors: tuple[float, ...]

    @property
    def needs(self) -> Needs:
        each = [objective.needs for objective in self.objectives]
        data = tuple(kind for kind in each[0].data if all(kind in needs.data for needs in each))
        return Needs(
            data,
            *(
                tuple(dict.fromkeys(name for needs in each for name in getattr(needs, field)))
                for field in ("outputs", "annotations", "columns")
            ),
        )

    @property
    def unit(self) -> Unit:
        return "batch" if any(objective.unit == "batch" for objective in self.objectives) else "group"

    @property
    def weights(self) -> Mapping[str, float]:
        pairs = zip(self.objectives, self.factors, strict=True)
        return {name: factor * weight for one, factor in pairs for name, weight in one.weights.items()}

    def prepare(self, batch: GroupBatch, total: Total) -> GroupBatch:
        for objective in self.objectives:
            batch = objective.prepare(batch, total)
        return batch

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        return _first(objective.counts(batch) for objective in self.objectives)

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:
        return _first(objective.sums(outputs, batch) for objective in self.objectives)


def _first(documents) -> dict:
    merged: dict = {}
    for document in documents:
        merged = document | merged
    return merged


class MixPart(Config):
    """One objective of a mix."""

    objective: Part
    """The loss."""
    weight: float = Field(default=1.0, gt=0)
    """Its factor."""


class MixConfig(Config):
    """A weighted sum of objectives that read the same rows."""

    type: Literal["mix"] = "mix"
    parts: tuple[MixPart, ...] = Field(min_length=2)
    """Objectives with their weights: ``[{objective: {type: dpo}}, {objective: {type: ipo}, weight: 0.5}]``."""

    @model_validator(mode="after")
    def _can_be_added(self) -> MixConfig:
        built = [part.objective.build() for part in self.parts]  # pyright: ignore[reportAttributeAccessIssue]
        names = [name for objective in built for name in objective.weights]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two parts of the mix have a loss {twice!r}; add it once, with the sum of the weights")
        if any(isinstance(objective, WithPrompt) for objective in built):
            raise ValueError("nll_over: prompt_and_response adds rows that other objectives cannot read; use response")
        kinds = [objective.needs.data for objective in built]
        if not any(all(kind in other for other in kinds) for kind in kinds[0]):
            raise ValueError(f"the parts of the mix read other rows: {' and '.join(', '.join(k) for k in kinds)}")
        return self

    def build(self) -> Mix:
        built = tuple(part.objective.build() for part in self.parts)  # pyright: ignore[reportAttributeAccessIssue]
        return Mix(built, tuple(part.weight for part in self.parts))
