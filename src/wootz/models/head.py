"""From hidden states to one value a trained token, without a [tokens x vocabulary] tensor.

Positions that carry loss go through the head in chunks; a chunk's logits are dropped after its reducers have read them
and computed again in the backward pass. n tokens in a chunk, N in all, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from wootz.core.errors import UsageError, nearest
from wootz.objectives.reducers import REDUCERS

CHUNK_ELEMENTS = 128 * 49152
"""Logits of a chunk, at most: 25 MB in fp32, inside a large cache, and rows enough for a fast matrix product."""


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

    Where only the hidden states train, the gradient of each value for its state is a row of known slopes: they are made
    while the logits are there, and nothing is computed again. A weight's gradient mixes rows by what arrives from
    above, so it makes the logits a second time.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        values = torch.empty(len(targets), dtype=wide, device=hidden.device)
        keeps_slopes = ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]
        slopes = torch.empty_like(hidden) if keeps_slopes else None
        for rows in _chunks(len(targets), len(weight)):
            logits = (hidden[rows] @ weight.T).to(wide)
            probabilities = torch.softmax(logits, dim=1)
            # The largest probability is at least 1/V, so its logarithm gives the log-sum-exp exactly; the operation of
            # that name takes several times as long.
            logsumexp = logits.amax(1) - probabilities.amax(1).log()
            ids = targets[rows, None]
            values[rows] = logits.gather(1, ids)[:, 0] - logsumexp
            if slopes is not None:
                torch.mm(_derivative(probabilities, ids, weight.dtype), weight, out=slopes[rows])
        ctx.save_for_backward(slopes, hidden, weight, targets)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        slopes, hidden, weight, targets = ctx.saved_tensors
        grad = grads[0][:, None]
        if slopes is not None:
            return (slopes * grad).to(hidden.dtype), None, None
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        # Summed in fp32 over chunks: a low-precision sum would drop the small terms.
        grad_weight = torch.zeros(weight.shape, dtype=grad.dtype, device=weight.device)
        for rows in _chunks(len(targets), len(weight)):
            probabilities = torch.softmax(hidden[rows] @ weight.T, dim=1, dtype=grad.dtype)
            grad_logits = _derivative(probabilities, targets[rows, None], weight.dtype, grad[rows])
            if grad_hidden is not None:
                torch.mm(grad_logits, weight, out=grad_hidden[rows])
            grad_weight += grad_logits.T @ hidden[rows]
        return grad_hidden, grad_weight.to(weight.dtype), None


def _derivative(
    probabilities: Float[Tensor, "n V"],
    ids: Int64[Tensor, "n 1"],
    dtype: torch.dtype,
    grad: Float[Tensor, "n 1"] | None = None,
) -> Float[Tensor, "n V"]:
    """grad * (onehot - probabilities), the probabilities overwritten.

    Rounded after the subtraction: for a confident model 1 - p would drown in the rounding of p.
    """
    rows = probabilities.neg_()
    rows.scatter_add_(1, ids, torch.ones_like(ids, dtype=rows.dtype))
    return (rows if grad is None else rows.mul_(grad)).to(dtype)


def _chunks(tokens: int, vocabulary: int) -> list[slice]:
    rows = _rows_per_chunk(vocabulary)
    return [slice(start, start + rows) for start in range(0, tokens, rows)]
