"""Losses of preference pairs without a reference, each a pure function, and the recipes that bind them.

a = log pi(y|x) averaged over trained tokens (nats a token), s the logistic function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from wootz.core.batch import GroupBatch, Unit
from wootz.core.protocols import Needs, Objective, Total
from wootz.core.records import Completion, Group, Sequence
from wootz.objectives.pairs import PairConfig, PairObjective
from wootz.objectives.preference import dpo

Values = Float[Tensor, " B"]
_LARGEST = -1e-6
"""Mean log-probs are cut here: at 0 the odds are infinite."""


def log_odds(mean_logp: Values) -> Values:
    """Returns log(p / (1 - p)) of p = exp(a), in fp32 finite up to a = 0.

    log(1 - e^a) is log(-expm1(a)) near 0 and log1p(-e^a) far from it. Maechler 2012.
    """
    a = mean_logp.clamp(max=_LARGEST)
    near = a > -math.log(2)
    # Each branch is fed values where it is exact, so that the other's gradient is finite too.
    complement = torch.where(
        near,
        torch.log(-torch.expm1(torch.where(near, a, -1.0))),
        torch.log1p(-torch.exp(torch.where(near, -1.0, a))),
    )
    return a - complement


def orpo(chosen_mean: Values, rejected_mean: Values) -> Values:
    """Returns -log s(log-odds of the chosen answer - log-odds of the rejected one). Hong et al. 2024, arXiv:2403.07691."""
    return -F.logsigmoid(log_odds(chosen_mean) - log_odds(rejected_mean))


def simpo(
    mean_difference: Values,
    *,
    beta: float,
    gamma_ratio: float,
    label_smoothing: float = 0.0,
    margin: Values | float = 0.0,
) -> Values:
    """Returns -log s(beta * (a_chosen - a_rejected) - gamma - margin), gamma = gamma_ratio * beta.

    Meng et al. 2024, arXiv:2405.14734. ``gamma_ratio`` is the margin asked for in nats a token.
    """
    return dpo(mean_difference, beta=beta, label_smoothing=label_smoothing, margin=gamma_ratio * beta + margin)


@dataclass(frozen=True)
class WithPrompt:
    """An objective over pairs whose likelihood term covers the prompt too.

    Prompts become rows of their own: the first token, then the rest as what is learned. Parts: those of ``pairs``, and in
    ``nll`` the prompts' tokens beside the chosen answers'.
    """

    pairs: PairObjective

    @property
    def needs(self) -> Needs:
        return self.pairs.needs

    @property
    def unit(self) -> Unit:
        return self.pairs.unit

    @property
    def weights(self) -> Mapping[str, float]:
        return self.pairs.weights

    def prepare(self, batch: GroupBatch, total: Total) -> GroupBatch:
        batch = self.pairs.prepare(batch, total)
        prompts = tuple(self._as_row(group) for group in batch.groups if len(group.prompt.tokens) > 1)
        return replace(batch, groups=batch.groups + prompts)

    def _as_row(self, group: Group) -> Group:
        first, rest = group.prompt.tokens[:1], group.prompt.tokens[1:]
        weight = group.completions[0].columns["weight"] if self.pairs.use_weights else 1.0
        row = Completion(rest, columns={"weight": weight})
        return Group(f"{group.id}:prompt", Sequence(first), (row,), {_PROMPT: True})

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        pairs, prompts = _parted(batch)
        counts = self.pairs.counts(pairs)
        lengths = zip(prompts.column("weight"), prompts.lengths.tolist(), strict=True)
        return counts | {"nll": counts["nll"] + float(sum(weight * length for weight, length in lengths))}

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:
        pairs, prompts = _parted(batch)
        is_prompt = [group.columns.get(_PROMPT, False) for group in batch.groups for _ in group.completions]
        of_prompts = torch.tensor(is_prompt, dtype=torch.bool, device=batch.device)[batch.completion_of_token]
        sums = self.pairs.sums({name: value[~of_prompts] for name, value in outputs.items()}, pairs)
        seq_logp = prompts.sum_by_completion(outputs["logp"][of_prompts])
        weights = torch.tensor(prompts.column("weight"), dtype=seq_logp.dtype, device=seq_logp.device)
        return sums | {"nll": sums["nll"] - (weights * seq_logp).sum()}


_PROMPT = "is_prompt"


def _parted(batch: GroupBatch) -> tuple[GroupBatch, GroupBatch]:
    """The pairs of a batch, and its prompts."""
    sides: tuple[list[Group], list[Group]] = ([], [])
    for group in batch.groups:
        sides[bool(group.columns.get(_PROMPT))].append(group)
    return replace(batch, groups=tuple(sides[0])), replace(batch, groups=tuple(sides[1]))


class ORPOConfig(PairConfig):
    """Likelihood of the chosen answer with an odds ratio against the rejected one; no reference."""

    type: Literal["orpo"] = "orpo"
    beta: float = Field(default=0.1, gt=0)
    """Weight of the odds ratio beside the likelihood."""
    nll_over: Literal["response", "prompt_and_response"] = "response"
    """Tokens of the likelihood term; published results differ in this."""

    def build(self) -> Objective:
        pairs = self.objective(
            "orpo",
            lambda p: orpo(p.chosen_logp / p.chosen_length, p.rejected_logp / p.rejected_length),
            with_reference=False,
            averaged=True,
            weight=self.beta,
            beta=1.0,
            sft_weight=1.0,
        )
        return pairs if self.nll_over == "response" else WithPrompt(pairs)


class SimPOConfig(PairConfig):
    """Length-normalised log-probs as rewards, with a margin; no reference."""

    type: Literal["simpo"] = "simpo"
    beta: float = Field(default=2.0, gt=0)
    """Scale of the rewards (the paper: 2 to 10)."""
    gamma_ratio: float = Field(default=0.5, ge=0)
    """Margin over beta, in nats a token (the paper: 0.3 to 0.5)."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of labels taken to be flipped."""
    sft_weight: float = Field(default=0.0, ge=0)
    """Weight of the chosen answer's negative log-likelihood per token."""
    use_margins: bool = False
    """The reward of the chosen answer must win by gamma plus the column ``margin``."""

    def build(self) -> PairObjective:
        loss = partial(simpo, beta=self.beta, gamma_ratio=self.gamma_ratio, label_smoothing=self.label_smoothing)
        return self.objective(
            "simpo",
            lambda p: loss(p.mean_difference, margin=p.margin),
            with_reference=False,
            averaged=True,
            sft_weight=self.sft_weight,
        )


class CPOConfig(PairConfig):
    """DPO without a reference, with the likelihood of the chosen answer. Xu et al. 2024, arXiv:2401.08417."""

    type: Literal["cpo"] = "cpo"
    beta: float = Field(default=0.1, gt=0)
    """Scale of the difference of summed log-probs."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of labels taken to be flipped."""
    sft_weight: float = Field(default=1.0, ge=0)
    """Weight of the chosen answer's negative log-likelihood per token."""

    def build(self) -> PairObjective:
        loss = partial(dpo, beta=self.beta, label_smoothing=self.label_smoothing)
        return self.objective("cpo", lambda p: loss(p.difference), with_reference=False, sft_weight=self.sft_weight)
