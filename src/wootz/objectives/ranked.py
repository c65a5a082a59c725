"""Losses of several answers to one prompt that carry scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from wootz.core.batch import GroupBatch, Unit
from wootz.core.config import Config
from wootz.core.errors import DataError
from wootz.core.protocols import Needs, Total
from wootz.objectives.pairs import check_numbers


def plackett_luce(
    reward: Float[Tensor, " C"], score: Float[Tensor, " C"], group: Int64[Tensor, " C"]
) -> Float[Tensor, " C"]:
    """Returns, for each answer, -log of the share of exp(reward) it takes among itself and all that are scored below it.

    Summed over a group this is -log of the Plackett-Luce probability of its order; two answers give DPO's loss. Answers of
    one score stand in no order, so neither competes with the other. Plackett 1975; Rafailov et al. 2023, appendix A.3.

    Example:
        >>> plackett_luce(torch.zeros(3), torch.tensor([3.0, 1.0, 2.0]), torch.zeros(3, dtype=torch.long))
        tensor([1.0986, 0.0000, 0.6931])
    """
    rival = (group[:, None] == group[None, :]) & (score[:, None] > score[None, :])
    rival |= torch.eye(len(reward), dtype=torch.bool, device=reward.device)
    return reward.expand(len(reward), -1).masked_fill(~rival, -torch.inf).logsumexp(1) - reward


@dataclass(frozen=True)
class Ranked:
    """Plackett-Luce over implicit rewards beta * r. Part ``ranked``, counted in groups; metrics: the reward of the best
    and of the worst answer, and the share of its comparisons that a group gets right."""

    beta: float
    unit: Unit = "group"
    needs: Needs = Needs(("ranked",), ("logp",), ("ref_logp",), ("score",))

    @property
    def weights(self) -> Mapping[str, float]:
        return {"ranked": 1.0}

    def prepare(self, batch: GroupBatch, total: Total) -> GroupBatch:  # noqa: ARG002
        check_numbers(batch, "score")
        for group in batch.groups:
            if len({completion.columns["score"] for completion in group.completions}) < 2:
                raise DataError("a ranked row needs two answers of different scores", where=f"row {group.id}")
        return batch

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        names = ("ranked", "reward/best", "reward/worst", "reward/accuracy")
        return dict.fromkeys(names, float(batch.num_units))

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:
        ratio = batch.sum_by_completion(outputs["logp"] - batch.per_token("ref_logp").to(outputs["logp"]))
        score = torch.tensor(batch.column("score"), dtype=torch.float64, device=ratio.device)
        owner, reward = batch.group_of_completion, self.beta * ratio
        with torch.no_grad():
            above = (owner[:, None] == owner[None, :]) & (score[:, None] > score[None, :])
            right = ((reward[:, None] - reward[None, :]).sign() + 1) / 2 * above
            per_group = torch.zeros(batch.num_units, dtype=right.dtype, device=right.device)
            share = per_group.index_add(0, owner, right.sum(1)) / per_group.index_add(0, owner, above.sum(1).to(right))
            ends = {"reward/best": ~above.any(0), "reward/worst": ~above.any(1)}
            metrics = {name: _mean_of(reward, picked, owner, batch.num_units) for name, picked in ends.items()}
        return {"ranked": plackett_luce(reward, score, owner).sum(), "reward/accuracy": share.sum(), **metrics}


def _mean_of(values: Tensor, picked: Tensor, owner: Tensor, groups: int) -> Tensor:
    """The sum over groups of the mean over the group's picked answers (several where scores tie)."""
    zeros = torch.zeros(groups, dtype=values.dtype, device=values.device)
    picked = picked.to(values.dtype)
    return (zeros.index_add(0, owner, values * picked) / zeros.index_add(0, owner, picked)).sum()


class RankedConfig(Config):
    """DPO over whole rankings: several answers with scores, in the order of their scores."""

    type: Literal["ranked"] = "ranked"
    beta: float = Field(default=0.1, gt=0)
    """Inverse temperature: how much a difference of log-ratios counts."""

    def build(self) -> Ranked:
        return Ranked(self.beta)
