"""Attention over the slots of a plan, in blocks of queries: grouped-query, causal, tree-shaped, windowed.

A block holds consecutive queries and exactly the keys that some of them see, so shared prompts, windows and causality
save work and no row is padded. Scores live for one block at a time and are computed again in the backward pass:
memory grows with tokens, never with their square.

T slots, K key-value heads of G query heads each, E head width. Queries are laid out [K, T * G, E], slot by slot and
head by head in each, so a block of queries is one strided matrix for each key-value head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from wootz.models.plans import Plan

BLOCK = 256
"""Queries of a block: fewer save more of the causal half, more make larger products (64 to 256 measured, 5% apart)."""


@dataclass(frozen=True)
class Block:
    """Queries ``start:stop`` and the keys they see.

    Attributes:
        keys: A slice where the keys lie together, else their slots.
        bias: [(stop - start) * G, keys]: 0 where a query sees a key, minus infinity elsewhere.
    """

    start: int
    stop: int
    keys: slice | Tensor
    bias: Float[Tensor, "qG k"]


def make_blocks(plan: Plan, window: int | None, *, group: int, dtype: torch.dtype, device: torch.device) -> list[Block]:
    """Returns the blocks that cover every slot of the plan."""
    blocks = []
    for start, stop in _query_runs(plan):
        queries = np.arange(start, stop)
        candidates = _candidate_keys(plan, queries)
        allowed = plan.sees(queries, candidates, window)
        used = allowed.any(axis=0)
        keys, allowed = candidates[used], allowed[:, used]
        together = keys[-1] - keys[0] + 1 == len(keys)
        hidden = torch.from_numpy(np.repeat(~allowed, group, axis=0)).to(device)
        blocks.append(
            Block(
                start=start,
                stop=stop,
                keys=slice(int(keys[0]), int(keys[-1]) + 1) if together else torch.from_numpy(keys).to(device),
                bias=torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -torch.inf),
            )
        )
    return blocks


def _query_runs(plan: Plan) -> Iterator[tuple[int, int]]:
    """Cuts the line of slots into runs of about BLOCK queries: short rows share a run, long ones are cut evenly."""
    waiting, start = 0, 0
    for length in plan.row_lengths:
        end = start + length
        if start > waiting and (length > BLOCK or end - waiting > BLOCK):
            yield waiting, start
            waiting = start
        if length > BLOCK:
            edges = np.linspace(start, end, round(length / BLOCK) + 1).astype(int).tolist()
            yield from zip(edges[:-1], edges[1:], strict=True)
            waiting = end
        start = end
    if waiting < start:
        yield waiting, start


def _candidate_keys(plan: Plan, queries: np.ndarray) -> np.ndarray:
    """The slots, in order, of the segments and prompts of the queries, up to the last query."""
    segments = np.union1d(plan.segments[queries], plan.prompts[queries])
    before = slice(0, int(queries[-1]) + 1)
    return np.flatnonzero(np.isin(plan.segments[before], segments))


def _take(tensor: Tensor, keys: slice | Tensor) -> Tensor:
    return tensor[:, keys] if isinstance(keys, slice) else tensor.index_select(1, keys)


def attention(
    queries: Float[Tensor, "K TG E"],
    keys: Float[Tensor, "K T E"],
    values: Float[Tensor, "K T E"],
    *,
    blocks: list[Block],
    scale: float,
) -> Float[Tensor, "K TG E"]:
    """Returns softmax(scale * q k' + bias) v for every query."""
    group = queries.shape[1] // keys.shape[1]
    output = torch.empty_like(queries)
    for block in blocks:
        rows = slice(block.start * group, block.stop * group)
        weights = _weights(queries[:, rows], _take(keys, block.keys), block.bias, scale)
        torch.bmm(weights, _take(values, block.keys), out=output[:, rows])
    return output


def attention_backward(
    grad: Float[Tensor, "K TG E"],
    queries: Float[Tensor, "K TG E"],
    keys: Float[Tensor, "K T E"],
    values: Float[Tensor, "K T E"],
    *,
    blocks: list[Block],
    scale: float,
) -> tuple[Float[Tensor, "K TG E"], Float[Tensor, "K T E"], Float[Tensor, "K T E"]]:
    """Returns the gradients of queries, keys and values."""
    group = queries.shape[1] // keys.shape[1]
    grad_queries, grad_keys, grad_values = torch.empty_like(queries), torch.zeros_like(keys), torch.zeros_like(keys)
    for block in blocks:
        rows = slice(block.start * group, block.stop * group)
        some_queries, some_keys, some_grad = queries[:, rows], _take(keys, block.keys), grad[:, rows]
        weights = _weights(some_queries, some_keys, block.bias, scale)
        _accumulate(grad_values, block.keys, weights, some_grad, 1.0)
        grad_weights = torch.bmm(some_grad, _take(values, block.keys).transpose(1, 2))
        grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
        torch.bmm(grad_scores, some_keys, out=grad_queries[:, rows])
        _accumulate(grad_keys, block.keys, grad_scores, some_queries, scale)
    return grad_queries.mul_(scale), grad_keys, grad_values


def _weights(queries: Tensor, keys: Tensor, bias: Tensor, scale: float) -> Tensor:
    scores = torch.baddbmm(bias.expand(len(queries), -1, -1), queries, keys.transpose(1, 2), alpha=scale)
    return torch.softmax(scores, dim=-1)


def _accumulate(total: Tensor, keys: slice | Tensor, left: Tensor, right: Tensor, scale: float) -> None:
    """total[:, keys] += scale * left' right."""
    if isinstance(keys, slice):
        total[:, keys].baddbmm_(left.transpose(1, 2), right, alpha=scale)
    else:
        total.index_add_(1, keys, torch.bmm(left.transpose(1, 2), right), alpha=scale)
