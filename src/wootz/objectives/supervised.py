"""Supervised fine-tuning: the negative log-likelihood of the trained tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from wootz.core.batch import GroupBatch, Unit
from wootz.core.config import Config
from wootz.core.protocols import Needs, Total

SFT_DATA = ("text", "messages", "prompt_completion")


@dataclass(frozen=True)
class SFT:
    """Token cross-entropy. Part ``nll``: the sum of -log p over trained tokens; its count is those tokens, so the loss
    is a mean over the tokens of the whole optimiser step, whatever the micro-batches (nats per token)."""

    needs: Needs = Needs(data=SFT_DATA)
    unit: Unit = "group"
    weights: Mapping[str, float] = field(default_factory=lambda: {"nll": 1.0})

    def prepare(self, batch: GroupBatch, total: Total) -> GroupBatch:  # noqa: ARG002
        return batch

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        return {"nll": float(batch.lengths.sum())}

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:  # noqa: ARG002
        return {"nll": -outputs["logp"].sum()}


class SFTConfig(Config):
    """Supervised fine-tuning on prompt-completion, messages or plain text."""

    type: Literal["sft"] = "sft"
    """Negative log-likelihood of the completion."""

    def build(self) -> SFT:
        return SFT()
