"""How completions are sampled: settings, the distribution they mean, and draws from it.

The distribution is softmax(z / temperature) over the ``top_k`` likeliest tokens, then over the smallest set of
likeliest tokens that holds ``top_p`` of *that*; tokens as likely as the last one kept are kept too, so the order of ids
decides nothing. B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from pydantic import Field
from torch import Tensor

from wootz.core.config import Config
from wootz.core.errors import ModelError


class Sampling(Config):
    """Temperature, truncation, length and stops of sampled completions."""

    temperature: float = Field(default=1.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with this probability."""
    top_k: int = Field(default=0, ge=0)
    """Sample from this many likeliest tokens; 0 is all."""
    max_new_tokens: int = Field(default=256, gt=0)
    """Longest completion."""
    num_samples: int = Field(default=1, gt=0)
    """Completions a prompt."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; cut from its text."""


_BLOCK = 256
"""Tokens of a block: near the square root of a vocabulary, so that both searches are short."""

_CHUNK_ELEMENTS = 1 << 19
"""Logits worked on at once on a CPU: 2 MB in fp32, inside its cache."""

_FIRST_CANDIDATES = 256
"""Likeliest tokens that are sorted first for ``top_p``; rows that need more sort sixteen times as many."""


def draw(
    logits: Float[Tensor, "B V"], sampling: Sampling, uniforms: Float64[Tensor, " B"]
) -> tuple[Int64[Tensor, " B"], Float[Tensor, " B"]]:
    """Returns a token of each row, and its log-prob under the distribution that it was drawn from (fp32, nats).

    Each row's token is a function of its own logits and uniform alone: the inverse of the cumulative distribution in
    the order of ids, found in two levels, blocks first (``torch.multinomial`` takes twenty times as long on a CPU).
    Greedy draws the likeliest token, the first of equals, from a distribution that has no other: log-prob 0.

    Args:
        uniforms: In [0, 1). Not read when greedy.

    Raises:
        ModelError: A row whose logits are not numbers.
    """
    rows = max(1, _CHUNK_ELEMENTS // logits.shape[1]) if logits.device.type == "cpu" else len(logits)
    parts = [
        _draw(some, sampling, chance)
        for some, chance in zip(logits.split(rows), uniforms.to(logits.device).split(rows), strict=True)
    ]
    tokens, logps = (torch.cat(values) for values in zip(*parts, strict=True))
    if not bool(torch.isfinite(logps).all()):
        raise ModelError(
            "the model's logits are not numbers",
            found=f"NaN or infinity in {int((~torch.isfinite(logps)).sum())} of {len(logps)} rows",
            fix="its weights are damaged, or their type is too narrow: try dtype: fp32",
        )
    return tokens, logps


def distribution(logits: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """Returns the probabilities that :func:`draw` draws from, fp32; exactly 0 outside the truncation."""
    if sampling.temperature == 0:
        return torch.zeros_like(logits, dtype=torch.float32).scatter_(1, logits.argmax(1, keepdim=True), 1.0)
    weights = _weights(logits, sampling)
    return weights / weights.sum(1, keepdim=True, dtype=torch.float64).float()


def _draw(logits: Tensor, sampling: Sampling, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    if sampling.temperature == 0:
        peak, tokens = logits.max(1)
        return tokens, peak.float() - peak.float()  # 0, or NaN for what is not a number
    weights = _weights(logits, sampling)
    tokens, total = _invert(weights, uniforms)
    logp = weights.gather(1, tokens[:, None])[:, 0].log() - total.log().float()
    return tokens, logp


def _weights(logits: Tensor, sampling: Sampling) -> Float[Tensor, "B V"]:
    """exp((z - max z) / temperature), 0 outside the truncation."""
    weights = logits.to(torch.float32, copy=True)
    weights.sub_(weights.amax(1, keepdim=True))
    if sampling.temperature != 1.0:
        weights.div_(sampling.temperature)
    weights.exp_()
    if 0 < sampling.top_k < weights.shape[1]:
        least = weights.topk(sampling.top_k, sorted=False).values.amin(1, keepdim=True)
        weights.masked_fill_(weights < least, 0.0)
    if sampling.top_p < 1.0:
        weights.masked_fill_(weights < _nucleus_edge(weights, sampling.top_p)[:, None], 0.0)
    return weights


def _nucleus_edge(weights: Float[Tensor, "B V"], top_p: float) -> Float[Tensor, " B"]:
    """The smallest weight inside the nucleus: a token is in if what is likelier than it has less than ``top_p``.

    Only as many tokens are sorted as a row needs.
    """
    edge = torch.empty(len(weights), dtype=weights.dtype, device=weights.device)
    wanted = weights.sum(1, dtype=torch.float64) * top_p
    rows, size = torch.arange(len(weights), device=weights.device), _FIRST_CANDIDATES
    while len(rows):
        size = min(size, weights.shape[1])
        best = weights[rows].topk(size).values
        reached = best.cumsum(1, dtype=torch.float64)
        # The first token that brings the mass to top_p is the last one in.
        last = (reached < wanted[rows, None]).sum(1)
        found = (last < size) | torch.tensor(size == weights.shape[1], device=weights.device)
        edge[rows[found]] = best[found].gather(1, last[found, None].clamp_(max=size - 1))[:, 0]
        rows, size = rows[~found], size * 16
    return edge


def _invert(weights: Float[Tensor, "B V"], uniforms: Float64[Tensor, " B"]) -> tuple[Tensor, Tensor]:
    """Returns the token in which uniform * total falls on the line of weights, and the total (fp64).

    Sums are fp64. A token of weight 0 is never returned, whatever rounding does at the ends of a block.
    """
    vocabulary = weights.shape[1]
    if vocabulary % _BLOCK:
        weights = torch.nn.functional.pad(weights, (0, _BLOCK - vocabulary % _BLOCK))
    blocks = weights.unflatten(1, (-1, _BLOCK))
    edges = blocks.sum(2).double().cumsum(1)
    total = edges[:, -1:]
    target = uniforms.double()[:, None] * total
    block = _position(edges, target)
    before = (edges.gather(1, (block - 1).clamp(min=0))).masked_fill(block == 0, 0.0)
    inside = blocks[torch.arange(len(blocks), device=blocks.device), block[:, 0]].double().cumsum(1)
    return (block * _BLOCK + _position(inside, target - before))[:, 0], total[:, 0]


def _position(edges: Float64[Tensor, "B n"], target: Float64[Tensor, "B 1"]) -> Int64[Tensor, "B 1"]:
    """The first place whose edge is above the target, and at most the last place of positive weight."""
    last = torch.searchsorted(edges, edges[:, -1:].contiguous())
    return torch.searchsorted(edges, target.clamp(min=0.0), right=True).minimum(last)
