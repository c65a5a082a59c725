"""Losses of single answers that are good or bad (``label``), against a reference.

r = log pi(y|x) - log ref(y|x) summed over trained tokens (nats), s the logistic function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from wootz.core.batch import GroupBatch, Unit
from wootz.core.config import Config
from wootz.core.errors import DataError
from wootz.core.protocols import Needs, Total
from wootz.objectives.pairs import check_numbers

Values = Float[Tensor, " C"]


def kto(
    ratio: Values,
    good: Bool[Tensor, " C"],
    baseline: Values | float,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Values:
    """Returns w_d * (1 - s(beta * (r - z))) of good answers and w_u * (1 - s(beta * (z - r))) of bad ones.

    z, ``baseline``, estimates KL(policy, reference) on answers to other prompts. Ethayarajh et al. 2024, arXiv:2402.01306.

    Example:
        >>> kto(torch.zeros(2), torch.tensor([True, False]), 0.0, beta=0.1)
        tensor([0.5000, 0.5000])
    """
    x = beta * (ratio - baseline)
    return torch.where(good, desirable_weight * torch.sigmoid(-x), undesirable_weight * torch.sigmoid(x))


def bco(ratio: Values, good: Bool[Tensor, " C"], baseline: Values | float, *, beta: float) -> Values:
    """Returns -log s(beta * r - shift) of good answers and -log s(shift - beta * r) of bad ones, shift = beta * baseline the
    mean reward of the step. Jung et al. 2024, arXiv:2404.04656."""
    x = beta * (ratio - baseline)
    return -F.logsigmoid(torch.where(good, x, -x))


@dataclass(frozen=True)
class UnpairedObjective:
    """A loss over labelled answers, compared with a baseline that is known before the step.

    Parts: ``name`` (counted in answers, or in their weights). Metrics: implicit rewards beta * r and summed log-probs of
    good and of bad answers, and the baseline.

    Attributes:
        loss: Log-ratios, labels, baseline in; one loss an answer out.
        baseline: What it is the mean of, over the whole step and all processes: ``mismatched_ratio`` (KTO; at least 0) or the
            answers' own log-ratios under the policy before the step (BCO).
    """

    name: str
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    beta: float
    baseline: Literal["mismatched_ratio", "own_ratio"]
    use_weights: bool = False
    unit: Unit = "group"

    @property
    def weights(self) -> Mapping[str, float]:
        return {self.name: 1.0}

    @property
    def needs(self) -> Needs:
        annotation = "mismatched_ratio" if self.baseline == "mismatched_ratio" else "old_logp"
        columns = ("label", "weight") if self.use_weights else ("label",)
        return Needs(("unpaired",), ("logp",), ("ref_logp", annotation), columns)

    def prepare(self, batch: GroupBatch, total: Total) -> GroupBatch:
        for group in batch.groups:
            labels = [completion.columns.get("label") for completion in group.completions]
            if len(labels) != 1 or not isinstance(labels[0], bool):
                raise DataError("one answer with a label, true or false", where=f"row {group.id}", found=f"{labels}")
        if self.use_weights:
            check_numbers(batch, "weight")
        if self.baseline == "mismatched_ratio":
            values = torch.tensor(batch.column("mismatched_ratio"), dtype=torch.float64)
        else:
            values = batch.sum_by_completion(batch.per_token("old_logp") - batch.per_token("ref_logp")).double()
        sums = total({"sum": float(values.sum()), "count": float(len(values))})
        mean = sums["sum"] / sums["count"]
        mean = max(0.0, mean) if self.baseline == "mismatched_ratio" else mean
        return batch.with_columns({f"{self.name}/baseline": [mean] * len(values)})

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        answers, good = float(batch.num_completions), float(sum(batch.column("label")))
        weight = float(sum(batch.column("weight"))) if self.use_weights else answers
        sides = {"chosen": good, "rejected": answers - good}
        metrics = {f"{what}/{side}": count for what in ("reward", "logp") for side, count in sides.items()}
        return {self.name: weight, "reward/baseline": answers, **metrics}

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:
        logp = batch.sum_by_completion(outputs["logp"])
        ratio = logp - batch.sum_by_completion(batch.per_token("ref_logp").to(logp))
        good = torch.tensor(batch.column("label"), dtype=torch.bool, device=logp.device)
        baseline = torch.tensor(batch.column(f"{self.name}/baseline"), dtype=logp.dtype, device=logp.device)
        loss = self.loss(ratio, good, baseline)
        if self.use_weights:
            loss = loss * torch.tensor(batch.column("weight"), dtype=logp.dtype, device=logp.device)
        logp, reward = logp.detach(), self.beta * ratio.detach()
        return {
            self.name: loss.sum(),
            "reward/baseline": self.beta * baseline.sum(),
            "reward/chosen": reward[good].sum(),
            "reward/rejected": reward[~good].sum(),
            "logp/chosen": logp[good].sum(),
            "logp/rejected": logp[~good].sum(),
        }


class UnpairedConfig(Config):
    """What the recipes of unpaired losses share."""

    beta: float = Field(default=0.1, gt=0)
    """Inverse temperature: how much a log-ratio counts; larger stays closer to the reference."""
    use_weights: bool = False
    """Each answer counts as much as its column ``weight`` says; only relations between weights matter."""


class KTOConfig(UnpairedConfig):
    """Kahneman-Tversky optimisation: good and bad answers, each against what the policy drifted on other prompts."""

    type: Literal["kto"] = "kto"
    desirable_weight: float = Field(default=1.0, gt=0)
    """Weight of good answers; weight times number should be 1 to 4/3 times that of bad ones."""
    undesirable_weight: float = Field(default=1.0, gt=0)
    """Weight of bad answers."""

    def build(self) -> UnpairedObjective:
        weights = {"desirable_weight": self.desirable_weight, "undesirable_weight": self.undesirable_weight}
        loss = partial(kto, beta=self.beta, **weights)
        return UnpairedObjective("kto", loss, self.beta, "mismatched_ratio", self.use_weights)


class BCOConfig(UnpairedConfig):
    """Binary classification of answers, rewards compared with their mean over the step."""

    type: Literal["bco"] = "bco"

    def build(self) -> UnpairedObjective:
        return UnpairedObjective("bco", partial(bco, beta=self.beta), self.beta, "own_ratio", self.use_weights)
