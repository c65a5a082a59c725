"""What every objective over preference pairs shares: the pair as its loss sees it, the sums, the metrics.

A group holds two completions, the chosen one first. A loss is a pure function of :class:`Pairs`; to add one, write it
beside its kin (``preference``: against a reference; ``reference_free``: without) with the configuration that binds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from wootz.core.batch import GroupBatch, Unit
from wootz.core.config import Config
from wootz.core.errors import DataError
from wootz.core.protocols import Needs, Total


@dataclass(frozen=True)
class Pairs:
    """B pairs, nats.

    Attributes:
        chosen, rejected: Log-ratios r = log pi(y|x) - log ref(y|x), or log pi(y|x) where there is no reference; summed over
            the trained tokens.
        chosen_logp, rejected_logp: log pi(y|x), summed.
        chosen_length, rejected_length: Trained tokens.
        margin: By how much the chosen answer should win (0 unless a column says so).
        shift: What rewards are compared with (BCO), else 0.
    """

    chosen: Float[Tensor, " B"]
    rejected: Float[Tensor, " B"]
    chosen_logp: Float[Tensor, " B"]
    rejected_logp: Float[Tensor, " B"]
    chosen_length: Float[Tensor, " B"]
    rejected_length: Float[Tensor, " B"]
    margin: Float[Tensor, " B"]
    shift: Float[Tensor, " B"]

    @property
    def difference(self) -> Float[Tensor, " B"]:
        """r_chosen - r_rejected."""
        return self.chosen - self.rejected

    @property
    def mean_difference(self) -> Float[Tensor, " B"]:
        """The difference of the means over tokens, nats a token."""
        return self.chosen / self.chosen_length - self.rejected / self.rejected_length


NUMBERS = frozenset({"margin", "weight", "score"})
"""Columns of completions that hold numbers."""
TokenWeights = Callable[[GroupBatch], Tensor]
PairWeights = Callable[[Mapping[str, Tensor], GroupBatch], Tensor]

_METRICS = ("reward/margin", "reward/accuracy", "reward/longer", "logp/chosen", "logp/rejected")
_WITH_REFERENCE = ("reward/chosen", "reward/rejected")


@dataclass(frozen=True)
class PairObjective:
    """A loss over pairs.

    Parts: ``name`` (the pair loss, counted in pairs, or in their weights) and, with ``sft_weight``, ``nll`` (counted in
    chosen tokens, times the weights). Metrics, a pair: the implicit rewards beta * r of chosen and rejected where there is a
    reference, their margin, the share of pairs ranked right, the share in which the longer answer has the higher reward,
    and the summed log-probs themselves.

    Attributes:
        loss: Pairs in, one loss a pair out.
        beta: Scale of the rewards that are shown.
        weight, sft_weight: Of the pair loss and of the chosen answers' likelihood.
        with_reference: Whether r is a log-ratio; else it is the log-prob.
        averaged: Whether the loss compares means over tokens; the metrics then do.
        use_margins, use_weights: Read the columns ``margin`` and ``weight``.
        shifted: Rewards are compared with their mean over the step (computed before it, from ``old_logp``).
        token_weights: Factors of the tokens of a batch, [N].
        pair_weights: Factors of the pairs from the forward pass, [B], without gradient.
    """

    name: str
    loss: Callable[[Pairs], Tensor]
    beta: float
    weight: float = 1.0
    sft_weight: float = 0.0
    with_reference: bool = True
    averaged: bool = False
    use_margins: bool = False
    use_weights: bool = False
    shifted: bool = False
    token_weights: TokenWeights | None = None
    pair_weights: PairWeights | None = None
    outputs: tuple[str, ...] = ("logp",)
    unit: Unit = "group"

    @property
    def needs(self) -> Needs:
        columns = [name for name, used in (("margin", self.use_margins), ("weight", self.use_weights)) if used]
        annotations = ["ref_logp"] if self.with_reference else []
        annotations += ["old_logp"] if self.shifted else []
        return Needs(("preference",), self.outputs, tuple(annotations), tuple(columns))

    @property
    def weights(self) -> Mapping[str, float]:
        weights = {self.name: self.weight}
        return weights | {"nll": self.sft_weight} if self.sft_weight else weights

    def prepare(self, batch: GroupBatch, total: Total) -> GroupBatch:
        check_pairs(batch)
        for column in self.needs.columns:
            check_numbers(batch, column)
        return self._with_shift(batch, total) if self.shifted else batch

    def _with_shift(self, batch: GroupBatch, total: Total) -> GroupBatch:
        reward = self.beta * batch.sum_by_completion(batch.per_token("old_logp") - batch.per_token("ref_logp"))
        sums = total({"reward": float(reward.double().sum()), "count": float(len(reward))})
        return batch.with_columns({f"{self.name}/shift": [sums["reward"] / sums["count"]] * len(reward)})

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        pairs = float(batch.num_units)
        weights = batch.column("weight")[0::2] if self.use_weights else [1.0] * batch.num_units
        metrics = (*_METRICS, *(_WITH_REFERENCE if self.with_reference else ()))
        counts = {self.name: float(sum(weights)), **dict.fromkeys(metrics, pairs)}
        if self.sft_weight:
            counts["nll"] = float(sum(w * n for w, n in zip(weights, batch.lengths[0::2].tolist(), strict=True)))
        return counts

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:
        pairs = self._pairs(outputs["logp"], batch)
        loss, likelihood = self.loss(pairs), -pairs.chosen_logp
        if self.use_weights:
            weights = _column(batch, "weight", loss)
            loss, likelihood = loss * weights, likelihood * weights
        if self.pair_weights is not None:
            loss = loss * self.pair_weights(outputs, batch)
        parts = {self.name: loss.sum()}
        if self.sft_weight:
            parts["nll"] = likelihood.sum()
        with torch.no_grad():
            return parts | self._metrics(pairs)

    def _pairs(self, logp: Float[Tensor, " N"], batch: GroupBatch) -> Pairs:
        reference = batch.per_token("ref_logp").to(logp) if self.with_reference else torch.zeros_like(logp)
        factors = 1.0 if self.token_weights is None else self.token_weights(batch).to(logp)
        summed = batch.sum_by_completion(logp)
        reward = batch.sum_by_completion((logp - reference) * factors)
        lengths = batch.lengths.to(logp).clamp(min=1)
        zeros = torch.zeros_like(summed[0::2])
        return Pairs(
            chosen=reward[0::2],
            rejected=reward[1::2],
            chosen_logp=summed[0::2],
            rejected_logp=summed[1::2],
            chosen_length=lengths[0::2],
            rejected_length=lengths[1::2],
            margin=_column(batch, "margin", zeros) if self.use_margins else zeros,
            shift=_column(batch, f"{self.name}/shift", zeros) if self.shifted else zeros,
        )

    def _metrics(self, pairs: Pairs) -> dict[str, Tensor]:
        margin = pairs.mean_difference if self.averaged else pairs.difference
        longer = pairs.chosen_length - pairs.rejected_length
        rewards = {"reward/chosen": self.beta * pairs.chosen.sum(), "reward/rejected": self.beta * pairs.rejected.sum()}
        return (rewards if self.with_reference else {}) | {
            "reward/margin": self.beta * margin.sum(),
            "reward/accuracy": _half_for_ties(margin).sum(),
            "reward/longer": _half_for_ties(margin * longer).sum(),
            "logp/chosen": pairs.chosen_logp.sum(),
            "logp/rejected": pairs.rejected_logp.sum(),
        }


def _half_for_ties(values: Tensor) -> Tensor:
    """1 above 0, 0 below, 0.5 at 0, so that an untouched model scores 0.5."""
    return (values.sign() + 1) / 2


def _column(batch: GroupBatch, name: str, like: Tensor) -> Float[Tensor, " B"]:
    return torch.tensor(batch.column(name)[0::2], dtype=like.dtype, device=like.device)


def check_pairs(batch: GroupBatch) -> None:
    """Raises DataError for a group that is not a pair."""
    for group in batch.groups:
        if len(group.completions) != 2:
            raise DataError(
                "a preference pair has two completions",
                where=f"row {group.id}",
                found=f"{len(group.completions)}",
                expected="chosen, then rejected",
            )


def check_numbers(batch: GroupBatch, column: str) -> None:
    """Raises DataError unless every completion has a finite number in the column; weights are not negative."""
    for group in batch.groups:
        for completion in group.completions:
            value: Any = completion.columns.get(column)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and abs(value) < float("inf") and (column != "weight" or value >= 0):
                continue
            raise DataError(
                f"the column {column!r} must hold a finite number{' from 0 up' if column == 'weight' else ''}",
                where=f"row {group.id}",
                found="nothing" if column not in completion.columns else repr(value),
                fix=f"give every row a {column}"
                + ("" if column == "score" else f", or objective.use_{column}s: false"),
            )


class PairConfig(Config):
    """What the recipes of all pair losses share."""

    use_weights: bool = False
    """Each pair counts as much as its column ``weight`` says; only relations between weights matter."""

    def objective(self, name: str, loss: Callable[[Pairs], Tensor], **more: Any) -> PairObjective:
        """Returns the objective of a loss, with the settings that every pair loss has."""
        shared = {"use_weights": self.use_weights, "use_margins": getattr(self, "use_margins", False)}
        return PairObjective(name, loss, **{"beta": getattr(self, "beta", 1.0), **shared, **more})


class BetaConfig(PairConfig):
    """A pair loss with an inverse temperature."""

    beta: float = Field(default=0.1, gt=0)
    """Inverse temperature: how much a difference of log-ratios counts; larger stays closer to the reference."""


class MarginConfig(BetaConfig):
    """A pair loss that can ask for more than being right."""

    use_margins: bool = False
    """The reward of the chosen answer must win by the column ``margin`` (nats of beta * r)."""
