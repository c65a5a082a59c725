"""Losses of preference pairs against a reference, each a pure function, and the recipes that bind them.

r = log pi(y|x) - log ref(y|x) summed over trained tokens (nats), d = r_chosen - r_rejected, s the logistic function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from wootz.core.batch import GroupBatch
from wootz.objectives.pairs import BetaConfig, MarginConfig, PairObjective

Values = Float[Tensor, " B"]
_LARGEST_EXPONENT = 20.0
"""Exponents are cut here: e^20 in a loss or a gradient is as good as infinite, and infinity is not a number to train on."""


def dpo(difference: Values, *, beta: float, label_smoothing: float = 0.0, margin: Values | float = 0.0) -> Values:
    """Returns the DPO loss of each pair: -log s(beta * d - margin).

    With label smoothing e it is the conservative form, -(1 - e) * log s(x) - e * log s(-x): the right loss if a share e of
    the labels is wrong. Rafailov et al. 2023, arXiv:2305.18290; Mitchell 2023 for the smoothed form; Amini
    et al. 2024, arXiv:2402.10571, for the margin (an offset).

    Example:
        >>> dpo(torch.zeros(1), beta=0.1)
        tensor([0.6931])
    """
    x = beta * difference - margin
    loss = -F.logsigmoid(x)
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * F.logsigmoid(-x)
    return loss


def robust_dpo(difference: Values, *, beta: float, label_noise: float) -> Values:
    """Returns the loss whose mean over labels flipped with probability e is DPO's on the true labels:
    ((1 - e) * loss(d) - e * loss(-d)) / (1 - 2e). It has no lower bound: pairs that are right keep a slope of
    e / (1 - 2e). Chowdhury et al. 2024, arXiv:2403.00409.
    """
    right, flipped = dpo(difference, beta=beta), dpo(-difference, beta=beta)
    return ((1 - label_noise) * right - label_noise * flipped) / (1 - 2 * label_noise)


def ipo(mean_difference: Values, *, beta: float) -> Values:
    """Returns (d - 1 / (2 beta))^2 with d a difference of means over tokens. Azar et al. 2023, arXiv:2310.12036.

    The mean, because the target 1 / (2 beta) is one number for answers of all lengths: a sum would ask a long answer for
    less a token, and beta would mean another thing for each data set.
    """
    return (mean_difference - 1 / (2 * beta)).square()


def hinge(difference: Values, *, beta: float, margin: Values | float = 0.0) -> Values:
    """Returns max(0, 1 + margin - beta * d). Liu et al. 2023 (RSO), arXiv:2309.06657, after the hinge of Zhao et al. 2023
    (SLiC), arXiv:2305.10425."""
    return torch.relu(1 + margin - beta * difference)


def f_dpo(chosen: Values, rejected: Values, *, beta: float, divergence: str) -> Values:
    """Returns -log s(beta * (f'(u_chosen) - f'(u_rejected))), u = exp(r), for another divergence than the reverse KL.

    ``forward_kl``: f' = -1/u; ``js``: log(2u / (1 + u)). Wang et al. 2023, arXiv:2309.16240. ``chi_squared``: u + log u,
    which keeps the policy near the data. Huang et al. 2024, arXiv:2407.13399.
    """
    f = _DERIVATIVES[divergence]
    return -F.logsigmoid(beta * (f(chosen) - f(rejected)))


def _exp(x: Tensor) -> Tensor:
    return x.clamp(max=_LARGEST_EXPONENT).exp()


_DERIVATIVES = {
    "forward_kl": lambda r: -_exp(-r),
    "js": lambda r: math.log(2) + r - F.softplus(r),
    "chi_squared": lambda r: _exp(r) + r,
}


def exo(difference: Values, *, beta: float, label_smoothing: float) -> Values:
    """Returns KL(q, p) of the pair's distribution under the policy, q = (s(x), s(-x)) with x = beta * d, from the labels'
    p = (1 - e, e). Ji et al. 2024, arXiv:2402.00856."""
    x = beta * difference
    right = F.logsigmoid(x) - math.log(1 - label_smoothing)
    wrong = F.logsigmoid(-x) - math.log(label_smoothing)
    return torch.sigmoid(x) * right + torch.sigmoid(-x) * wrong


def apo_zero(chosen: Values, rejected: Values, *, beta: float) -> Values:
    """Returns 1 - s(beta * r_chosen) + s(beta * r_rejected): the chosen answer up, the rejected one down; for data better
    than the model. D'Oosterlinck et al. 2024, arXiv:2408.06266."""
    return torch.sigmoid(-beta * chosen) + torch.sigmoid(beta * rejected)


def apo_down(chosen: Values, rejected: Values, *, beta: float) -> Values:
    """Returns s(beta * r_chosen) + 1 - s(beta * d): both down, the rejected one more; for a model better than the data.
    D'Oosterlinck et al. 2024, arXiv:2408.06266."""
    return torch.sigmoid(beta * chosen) + torch.sigmoid(-beta * (chosen - rejected))


def nca(chosen: Values, rejected: Values, *, beta: float) -> Values:
    """Returns -log s(x_chosen) - (log s(-x_chosen) + log s(-x_rejected)) / 2, x = beta * r: the reward itself is fitted, not
    only its difference. Chen et al. 2024, arXiv:2402.05369."""
    x, y = beta * chosen, beta * rejected
    return -F.logsigmoid(x) - 0.5 * (F.logsigmoid(-x) + F.logsigmoid(-y))


def bco_pair(chosen: Values, rejected: Values, shift: Values, *, beta: float) -> Values:
    """Returns -log s(beta * r_chosen - shift) - log s(shift - beta * r_rejected), shift the mean reward of the step.
    Jung et al. 2024, arXiv:2404.04656."""
    return -F.logsigmoid(beta * chosen - shift) - F.logsigmoid(shift - beta * rejected)


def sppo(chosen: Values, rejected: Values, *, beta: float) -> Values:
    """Returns (r_chosen - 1 / (2 beta))^2 + (r_rejected + 1 / (2 beta))^2, the pair's winner taken to win surely.
    Wu et al. 2024, arXiv:2405.00675."""
    target = 1 / (2 * beta)
    return (chosen - target).square() + (rejected + target).square()


def discopop(difference: Values, *, beta: float, temperature: float) -> Values:
    """Returns DPO's loss and an exponential one mixed by s(x / temperature), x = beta * d. Lu et al. 2024, arXiv:2406.08414."""
    x = beta * difference
    share = torch.sigmoid(x / temperature)
    return (1 - share) * -F.logsigmoid(x) + share * _exp(-x)


def dpo_positive(chosen: Values, rejected: Values, *, beta: float, penalty: float) -> Values:
    """Returns -log s(beta * (d - penalty * max(0, -r_chosen))): falling chosen probability costs more than a margin
    earns. Pal et al. 2024, arXiv:2402.13228."""
    return -F.logsigmoid(beta * (chosen - rejected - penalty * torch.relu(-chosen)))


def aot(chosen: Values, rejected: Values, *, beta: float, label_smoothing: float = 0.0) -> Values:
    """Returns DPO's loss between the k-th smallest reward of chosen and of rejected answers, over the whole step: the one
    distribution is to dominate the other. Melnyk et al. 2024, arXiv:2406.05882."""
    return dpo(chosen.sort().values - rejected.sort().values, beta=beta, label_smoothing=label_smoothing)


def long_tail(batch: GroupBatch, *, alpha: float) -> Float[Tensor, " N"]:
    """Returns each token's factor: 1 up to the length of the pair's shorter answer, alpha beyond. Liu et al. 2024
    (LD-DPO), arXiv:2409.06411."""
    lengths = batch.lengths
    shorter = torch.minimum(lengths[0::2], lengths[1::2]).repeat_interleave(2)
    starts = lengths.cumsum(0) - lengths
    place = torch.arange(int(lengths.sum()), device=lengths.device) - starts[batch.completion_of_token]
    return torch.where(place < shorter[batch.completion_of_token], 1.0, alpha)


def policy_weights(outputs: Mapping[str, Tensor], batch: GroupBatch) -> Values:
    """Returns how likely the policy is to have said a pair itself: exp of the sum over both answers of the mean over tokens
    of log p(token) - log sum_v p(v)^2, at most 1; without gradient. Zhou et al. 2024 (WPO), arXiv:2406.11827.
    """
    relative = (outputs["logp"] - outputs["log_collision"]).detach()
    mean = batch.sum_by_completion(relative) / batch.lengths.to(relative).clamp(min=1)
    return (mean[0::2] + mean[1::2]).clamp(max=0).exp()


class DPOConfig(MarginConfig):
    """Direct preference optimisation, with conservative label smoothing and an optional likelihood term."""

    type: Literal["dpo"] = "dpo"
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of labels taken to be flipped (conservative DPO)."""
    sft_weight: float = Field(default=0.0, ge=0)
    """Weight of the chosen answer's negative log-likelihood per token; keeps its probability from falling."""

    def build(self) -> PairObjective:
        loss = partial(dpo, beta=self.beta, label_smoothing=self.label_smoothing)
        return self.objective("dpo", lambda p: loss(p.difference, margin=p.margin), sft_weight=self.sft_weight)


class RobustDPOConfig(BetaConfig):
    """DPO that is right on average over labels flipped with a known probability."""

    type: Literal["robust_dpo"] = "robust_dpo"
    label_noise: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of labels that are flipped; `wootz data audit` estimates it."""

    def build(self) -> PairObjective:
        loss = partial(robust_dpo, beta=self.beta, label_noise=self.label_noise)
        return self.objective("robust_dpo", lambda p: loss(p.difference))


class IPOConfig(BetaConfig):
    """A squared loss with a target, which does not push separable pairs apart for ever."""

    type: Literal["ipo"] = "ipo"

    def build(self) -> PairObjective:
        return self.objective("ipo", lambda p: ipo(p.mean_difference, beta=self.beta), averaged=True)


class HingeConfig(MarginConfig):
    """A hinge: pairs that are right by enough teach nothing more."""

    type: Literal["hinge"] = "hinge"

    def build(self) -> PairObjective:
        return self.objective("hinge", lambda p: hinge(p.difference, beta=self.beta, margin=p.margin))


class NormDPOConfig(MarginConfig):
    """DPO on means over tokens, so that a long answer does not win by its length. Lambert et al. 2024, arXiv:2411.15124."""

    type: Literal["norm_dpo"] = "norm_dpo"
    beta: float = Field(default=5.0, gt=0)
    """Inverse temperature, of nats a token."""

    def build(self) -> PairObjective:
        loss = partial(dpo, beta=self.beta)
        return self.objective("norm_dpo", lambda p: loss(p.mean_difference, margin=p.margin), averaged=True)


class FDPOConfig(BetaConfig):
    """DPO under another divergence from the reference."""

    type: Literal["f_dpo"] = "f_dpo"
    divergence: Literal["forward_kl", "js", "chi_squared"] = "chi_squared"
    """What holds the policy near the reference."""

    def build(self) -> PairObjective:
        loss = partial(f_dpo, beta=self.beta, divergence=self.divergence)
        return self.objective("f_dpo", lambda p: loss(p.chosen, p.rejected))


class EXOConfig(BetaConfig):
    """Reverse KL from the policy's choice to smoothed labels."""

    type: Literal["exo"] = "exo"
    label_smoothing: float = Field(default=1e-3, gt=0, lt=0.5)
    """Probability given to the rejected answer; 0 would make the loss infinite."""

    def build(self) -> PairObjective:
        loss = partial(exo, beta=self.beta, label_smoothing=self.label_smoothing)
        return self.objective("exo", lambda p: loss(p.difference))


class APOConfig(BetaConfig):
    """Anchored preferences: says where the chosen probability itself should go."""

    type: Literal["apo"] = "apo"
    direction: Literal["zero", "down"] = "zero"
    """``zero``: chosen up, rejected down; ``down``: both down, rejected more."""

    def build(self) -> PairObjective:
        loss = partial({"zero": apo_zero, "down": apo_down}[self.direction], beta=self.beta)
        return self.objective("apo", lambda p: loss(p.chosen, p.rejected))


class NCAConfig(BetaConfig):
    """Noise-contrastive alignment: fits the reward itself."""

    type: Literal["nca"] = "nca"

    def build(self) -> PairObjective:
        return self.objective("nca", lambda p: nca(p.chosen, p.rejected, beta=self.beta))


class BCOPairConfig(BetaConfig):
    """Binary classification of pairs, rewards compared with their mean over the step."""

    type: Literal["bco_pair"] = "bco_pair"

    def build(self) -> PairObjective:
        loss = partial(bco_pair, beta=self.beta)
        return self.objective("bco_pair", lambda p: loss(p.chosen, p.rejected, p.shift), shifted=True)


class SPPOConfig(BetaConfig):
    """Self-play preferences with hard labels: a target for each log-ratio."""

    type: Literal["sppo"] = "sppo"

    def build(self) -> PairObjective:
        return self.objective("sppo", lambda p: sppo(p.chosen, p.rejected, beta=self.beta))


class DiscoPOPConfig(BetaConfig):
    """The loss that a search over losses found."""

    type: Literal["discopop"] = "discopop"
    temperature: float = Field(default=0.05, gt=0)
    """How sharply it changes from the logistic to the exponential loss."""

    def build(self) -> PairObjective:
        loss = partial(discopop, beta=self.beta, temperature=self.temperature)
        return self.objective("discopop", lambda p: loss(p.difference))


class DPOPositiveConfig(BetaConfig):
    """DPO that does not let the chosen answer's probability fall."""

    type: Literal["dpo_positive"] = "dpo_positive"
    penalty: float = Field(default=50.0, gt=0)
    """Nats of margin that a nat of fallen chosen log-prob costs."""

    def build(self) -> PairObjective:
        loss = partial(dpo_positive, beta=self.beta, penalty=self.penalty)
        return self.objective("dpo_positive", lambda p: loss(p.chosen, p.rejected))


class AOTConfig(BetaConfig):
    """Alignment by optimal transport: the distribution of chosen rewards dominates that of rejected ones."""

    type: Literal["aot"] = "aot"
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of labels taken to be flipped."""
    use_weights: Literal[False] = False
    """Sorted rewards belong to no pair, so weights have no meaning here."""

    def build(self) -> PairObjective:
        loss = partial(aot, beta=self.beta, label_smoothing=self.label_smoothing)
        return self.objective("aot", lambda p: loss(p.chosen, p.rejected), unit="batch")


class LDDPOConfig(MarginConfig):
    """DPO in which the part of an answer beyond the other's length counts less."""

    type: Literal["ld_dpo"] = "ld_dpo"
    alpha: float = Field(default=0.5, ge=0, lt=1)
    """Factor of the tokens beyond the shorter answer's length."""

    def build(self) -> PairObjective:
        weights = partial(long_tail, alpha=self.alpha)
        loss = partial(dpo, beta=self.beta)
        return self.objective("ld_dpo", lambda p: loss(p.difference, margin=p.margin), token_weights=weights)


class WPOConfig(BetaConfig):
    """DPO that weighs pairs by how likely the policy itself would say them."""

    type: Literal["wpo"] = "wpo"

    def build(self) -> PairObjective:
        loss = partial(dpo, beta=self.beta)
        more = {"pair_weights": policy_weights, "outputs": ("logp", "log_collision")}
        return self.objective("wpo", lambda p: loss(p.difference), **more)
