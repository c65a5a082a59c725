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

    def logits(self, hidden: Float[Tensor, "n D"]) -> Float[Tensor, "n V"]:
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

    Several passes over [n, V] fewer than the recorded operations, which is most of the head's time off the matrix
    products.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight, targets)
        values = torch.empty(len(targets), dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
        start = 0
        for states, ids in _chunks(hidden, targets, weight):
            logits = (states @ weight.T).to(values.dtype)
            picked = logits.gather(1, ids[:, None])[:, 0]
            # In place; torch.logsumexp takes three times as long on a CPU.
            peak = logits.amax(1, keepdim=True)
            total = logits.sub_(peak).exp_().sum(1)
            values[start : start + len(ids)] = picked - peak[:, 0] - total.log_()
            start += len(ids)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, targets = ctx.saved_tensors
        (grad,) = grads
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        # Summed in fp32 over chunks: a low-precision sum would drop the small terms.
        grad_weight = torch.zeros(weight.shape, dtype=grad.dtype, device=weight.device) if needs_weight else None
        start = 0
        for states, ids in _chunks(hidden, targets, weight):
            stop = start + len(ids)
            scale = grad[start:stop, None]
            # In fp32 until the target's 1 is added: for a confident model 1 - p would drown in bf16 rounding.
            rows = torch.softmax(states @ weight.T, dim=1, dtype=grad.dtype)
            rows = rows.mul_(-scale).scatter_add_(1, ids[:, None], scale).to(weight.dtype)
            if grad_hidden is not None:
                torch.mm(rows, weight, out=grad_hidden[start:stop])
            if grad_weight is not None:
                grad_weight += rows.T @ states
            start = stop
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), None


def _chunks(hidden: Tensor, targets: Tensor, weight: Tensor) -> list[tuple[Tensor, Tensor]]:
    rows = _rows_per_chunk(len(weight))
    return list(zip(hidden.split(rows), targets.split(rows), strict=True))
