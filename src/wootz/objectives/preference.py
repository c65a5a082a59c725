"""Preference pairs with a reference: a pure function of the margin, and the objective that feeds it.

A group holds two completions, the chosen one first. With r = log pi(y|x) - log ref(y|x) summed over trained tokens
(nats), the margin of a pair is r_chosen - r_rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from wootz.core.batch import GroupBatch, Unit
from wootz.core.config import Config
from wootz.core.errors import DataError
from wootz.core.protocols import Needs


def dpo(margin: Float[Tensor, " B"], *, beta: float, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
    """Returns the DPO loss of each pair: -log sigmoid(beta * margin).

    With label smoothing e it is the conservative form, (1 - e) * loss + e * loss of the flipped pair: the right loss if
    a share e of the labels is wrong. Rafailov et al. 2023, arXiv:2305.18290; Mitchell 2023 for the smoothed form.

    Example:
        >>> dpo(torch.zeros(1), beta=0.1)
        tensor([0.6931])
    """
    loss = -F.logsigmoid(beta * margin)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * F.logsigmoid(-beta * margin)
    return loss


@dataclass(frozen=True)
class PairedPreference:
    """The objective of any loss that is a function of the margin against a reference.

    Parts: ``name`` (the pair loss, counted in pairs) and, with ``sft_weight``, ``nll`` (counted in chosen tokens). Metrics:
    implicit rewards beta * r of chosen and rejected, their margin, the share of pairs ranked right, and the summed
    log-probs themselves, all per pair.
    """

    name: str
    pair_loss: Callable[[Tensor], Tensor]
    beta: float
    sft_weight: float = 0.0
    needs: Needs = Needs(data=("preference",), annotations=("ref_logp",))
    unit: Unit = "group"

    @property
    def weights(self) -> Mapping[str, float]:
        weights = {self.name: 1.0}
        return weights | {"nll": self.sft_weight} if self.sft_weight else weights

    def prepare(self, batch: GroupBatch) -> GroupBatch:
        for group in batch.groups:
            if len(group.completions) != 2:
                raise DataError(
                    "a preference pair has two completions",
                    where=f"row {group.id}",
                    found=f"{len(group.completions)}",
                    expected="chosen, then rejected",
                )
        return batch

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        pairs = float(batch.num_units)
        metrics = (
            "reward/chosen",
            "reward/rejected",
            "reward/margin",
            "reward/accuracy",
            "logp/chosen",
            "logp/rejected",
        )
        counts = {self.name: pairs, **dict.fromkeys(metrics, pairs)}
        if self.sft_weight:
            counts["nll"] = float(batch.lengths[0::2].sum())
        return counts

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:
        seq_logp = batch.sum_by_completion(outputs["logp"])
        reward = seq_logp - batch.sum_by_completion(batch.per_token("ref_logp").to(seq_logp))
        chosen, rejected = reward[0::2], reward[1::2]
        margin = chosen - rejected
        parts = {self.name: self.pair_loss(margin).sum()}
        if self.sft_weight:
            parts["nll"] = -seq_logp[0::2].sum()
        with torch.no_grad():
            # A tie is half right, so that an untouched model scores 0.5.
            right = (margin > 0).to(margin) + 0.5 * (margin == 0).to(margin)
            parts |= {
                "reward/chosen": self.beta * chosen.sum(),
                "reward/rejected": self.beta * rejected.sum(),
                "reward/margin": self.beta * margin.sum(),
                "reward/accuracy": right.sum(),
                "logp/chosen": seq_logp[0::2].sum(),
                "logp/rejected": seq_logp[1::2].sum(),
            }
        return parts


class DPOConfig(Config):
    """Direct preference optimisation, with conservative label smoothing and an optional likelihood term."""

    type: Literal["dpo"] = "dpo"
    beta: float = Field(default=0.1, gt=0)
    """Inverse temperature: how much a margin counts; larger stays closer to the reference."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of labels taken to be flipped (conservative DPO)."""
    sft_weight: float = Field(default=0.0, ge=0)
    """Weight of the chosen answer's negative log-likelihood per token; keeps its probability from falling."""

    def build(self) -> PairedPreference:
        loss = partial(dpo, beta=self.beta, label_smoothing=self.label_smoothing)
        return PairedPreference("dpo", loss, self.beta, self.sft_weight)
