"""From hidden states to one value a trained token, without a [tokens x vocabulary] tensor.

Positions that carry loss go through the head in chunks; a chunk's logits are dropped after its reducers have read them
and computed again in the backward pass. n tokens in a chunk, N in all, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from wootz.core.errors import UsageError, nearest
from wootz.objectives.reducers import REDUCERS

CHUNK_ELEMENTS = 128 * 49152
"""Logits of a chunk of whole rows, at most: 25 MB in fp32."""
ROWS, COLUMNS = 512, 4096
"""A block of logits: 8 MB in fp32, inside a cache, and large enough for a fast matrix product."""


@dataclass(frozen=True)
class Head:
    """The output projection of a causal model.

    Attributes:
        module: Called with [n, D] it gives logits [n, V].
        softcap: Logits z become softcap * tanh(z / softcap) (Gemma 2); None for none.
    """

    module: nn.Module
    softcap: float | None = None

    def logits(self, hidden: Float[Tensor, "*n D"]) -> Float[Tensor, "*n V"]:
        logits = self.module(hidden)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    @property
    def is_plain(self) -> bool:
        return type(self.module) is nn.Linear and self.module.bias is None and self.softcap is None


def reduce_tokens(
    hidden: Float[Tensor, "N D"], targets: Int64[Tensor, " N"], head: Head, outputs: Sequence[str]
) -> dict[str, Float[Tensor, " N"]]:
    """Returns the named reductions of the logits at each hidden state, fp32.

    Gradients reach ``hidden`` and the head's weight where they are asked for.
    """
    unknown = [name for name in outputs if name not in REDUCERS]
    if unknown:
        close = nearest(unknown[0], REDUCERS)
        raise UsageError(f"no token reducer {unknown[0]!r}", expected=", ".join(REDUCERS), fix=close)
    if head.is_plain and tuple(outputs) == ("logp",):
        return {"logp": _LogProb.apply(hidden, head.module.weight, targets)}  # pyright: ignore[reportReturnType]
    reducers = [REDUCERS[name] for name in outputs]

    def reduce(states: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        logits = head.logits(states)
        return tuple(reducer(logits, ids) for reducer in reducers)

    rows = _rows_per_chunk(getattr(head.module, "out_features", 49152))
    chunks = list(zip(hidden.split(rows), targets.split(rows), strict=True))
    values = [checkpoint(reduce, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    return {name: torch.cat([value[i] for value in values]) for i, name in enumerate(outputs)}  # pyright: ignore


def _rows_per_chunk(vocabulary: int) -> int:
    return max(1, CHUNK_ELEMENTS // vocabulary)


class _LogProb(torch.autograd.Function):
    """log p(target) by the closed form of its gradient: d logp / d logits = onehot(target) - softmax(logits).

    The vocabulary is read block by block with a running maximum and sum, so a block's logits stay in cache. Where only the
    hidden states train, the gradient of each value for its state is a row of known slopes, summed along the way: nothing
    is computed again. A weight's gradient mixes rows by what arrives from above, so it makes the logits a second time.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        keeps_slopes = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        wide = torch.promote_types(hidden.dtype, torch.float32)
        values = torch.empty(len(targets), dtype=wide, device=hidden.device)
        logsumexps, slopes = torch.empty_like(values), torch.empty_like(hidden) if keeps_slopes else None
        for rows in _blocks(len(targets), ROWS):
            values[rows], logsumexps[rows] = _log_prob(
                hidden[rows], weight, targets[rows], slopes=None if slopes is None else slopes[rows]
            )
        if keeps_slopes:
            ctx.save_for_backward(slopes)
        else:
            ctx.save_for_backward(None, hidden, weight, targets, values, logsumexps)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        slopes, *saved = ctx.saved_tensors
        if slopes is not None:
            return slopes * grads[0][:, None].to(slopes), None, None
        hidden, weight, targets, values, logsumexps = saved
        grad_target = -torch.expm1(values) * grads[0]
        # Summed in fp32 over blocks: a low-precision sum would drop the small terms.
        grad_hidden = torch.zeros_like(hidden, dtype=values.dtype) if ctx.needs_input_grad[0] else None
        grad_weight = torch.empty_like(weight)
        for words in _blocks(len(weight), COLUMNS):
            some_weight, total = weight[words], torch.zeros_like(weight[words], dtype=values.dtype)
            for rows in _blocks(len(targets), ROWS):
                logits = hidden[rows] @ some_weight.T
                grad_logits = (logits - logsumexps[rows, None]).exp_().mul_(-grads[0][rows, None])
                _put(grad_logits, targets[rows], words, grad_target[rows])
                grad_logits = grad_logits.to(weight.dtype)
                if grad_hidden is not None:
                    grad_hidden[rows] += grad_logits @ some_weight
                total += grad_logits.T @ hidden[rows]
            grad_weight[words] = total
        return None if grad_hidden is None else grad_hidden.to(hidden.dtype), grad_weight, None


def _log_prob(
    hidden: Float[Tensor, "n D"],
    weight: Float[Tensor, "V D"],
    targets: Int64[Tensor, " n"],
    *,
    slopes: Float[Tensor, "n D"] | None,
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Returns log p(target) and the log-sum-exp; writes d log p / d hidden to ``slopes``.

    The slope is (1 - p_t) w_t less the mean of the other rows under p, with 1 - p_t from the sum over the others: for a
    confident model it would drown in the rounding of p_t.
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    maximum = torch.full((len(hidden), 1), -torch.inf, dtype=wide, device=hidden.device)
    others, picked = torch.zeros_like(maximum), torch.zeros_like(maximum)
    drift = torch.zeros_like(hidden, dtype=wide) if slopes is not None else None
    for words in _blocks(len(weight), COLUMNS):
        logits = hidden @ weight[words].T
        inside, column = _place(targets, words)
        picked = torch.where(inside, logits.gather(1, column).to(wide), picked)
        higher = torch.maximum(maximum, logits.amax(1, keepdim=True).to(wide))
        shrink = (maximum - higher).exp_()
        maximum = higher
        shares = (logits - maximum).exp_()
        _put(shares, targets, words, torch.zeros_like(picked[:, 0]))
        others.mul_(shrink).add_(shares.sum(1, keepdim=True))
        if drift is not None:
            drift.mul_(shrink).add_(shares.to(weight.dtype) @ weight[words])
    total = others + (picked - maximum).exp()
    logsumexp = maximum + total.log()
    if slopes is not None and drift is not None:
        slopes.copy_((weight[targets] * (others / total)).sub_(drift.div_(total)))
    return (picked - logsumexp)[:, 0], logsumexp[:, 0]


def _place(targets: Int64[Tensor, " n"], words: slice) -> tuple[Bool[Tensor, "n 1"], Int64[Tensor, "n 1"]]:
    """Whether each row's target lies in the block, and its column there (some column where it does not)."""
    column = targets[:, None] - words.start
    width = words.stop - words.start
    return (column >= 0) & (column < width), column.clamp(0, width - 1)


def _put(block: Float[Tensor, "n C"], targets: Int64[Tensor, " n"], words: slice, values: Float[Tensor, " n"]) -> None:
    """Writes each row's value at its target, where that lies in the block. No wait for an accelerator."""
    inside, column = _place(targets, words)
    block.scatter_(1, column, torch.where(inside, values[:, None].to(block.dtype), block.gather(1, column)))


def _blocks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
