"""The elementwise parts of a decoder layer and their derivatives.

T tokens, D width, F width of the MLP, K key-value heads of G query heads of width E. Plain PyTorch operations: in the
weights' type where the operation computes in fp32 inside, through fp32 where it does not. They are not compiled: matrix
products are two thirds of a step, and compilation takes longer than a short run could save.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from wootz.models.fast.layout import ACTIVATIONS, Norm

_ops: Any = torch.ops.aten


def _wide_type(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _wide(x: Tensor) -> Tensor:
    return x.to(_wide_type(x))


def _gain(norm: Norm) -> Tensor:
    weight = _wide(norm.weight.detach())
    return weight + norm.offset if norm.offset else weight


def rms_norm(
    x: Float[Tensor, "*T D"], norm: Norm, dtype: torch.dtype | None = None
) -> tuple[Float[Tensor, "*T D"], Float[Tensor, "*T 1"]]:
    """Returns the normed input (in ``dtype``, by default its own) and each row's reciprocal root mean square.

    The latter is fp32; the derivative needs it.
    """
    # In place wherever it can be: a fresh megabyte costs more than the arithmetic on it.
    wide = x.to(_wide_type(x), copy=True)
    mean_square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_().div_(x.shape[-1])
    scale = mean_square.add_(norm.eps).rsqrt_()
    return wide.mul_(scale).mul_(_gain(norm)).to(dtype or x.dtype), scale


def rms_norm_backward(
    grad: Float[Tensor, "*T D"], x: Float[Tensor, "*T D"], scale: Float[Tensor, "*T 1"], norm: Norm
) -> Float[Tensor, "*T D"]:
    """Returns dL/dx in fp32: scale * (g - xhat * mean(g * xhat)), with g = grad * gain and xhat = x * scale."""
    wide = x.to(scale.dtype)
    inner = grad.to(scale.dtype, copy=True).mul_(_gain(norm))
    share = (inner * wide).sum(-1, keepdim=True).mul_(scale.square()).div_(-x.shape[-1])
    return inner.addcmul_(wide, share).mul_(scale)


def rms_norm_weight_grad(
    grad: Float[Tensor, "*T D"], x: Float[Tensor, "*T D"], scale: Float[Tensor, "*T 1"], norm: Norm
) -> Float[Tensor, " D"]:
    """Returns dL/dweight: sum over rows of grad * xhat."""
    return (_wide(grad) * _wide(x) * scale).flatten(0, -2).sum(0).to(norm.weight.dtype)


def rotate(x: Float[Tensor, "T K G E"], cos: Tensor, sin: Tensor, *, out: Float[Tensor, "T K G E"]) -> None:
    """Writes rotary-embedded ``x`` to ``out``: halves (a, b) become (a cos - b sin, b cos + a sin).

    With ``-sin`` it is its own derivative's transpose. ``cos``, ``sin`` [T, 1, 1, E/2], fp32.
    """
    half = x.shape[-1] // 2
    a, b = _wide(x[..., :half]), _wide(x[..., half:])
    out[..., :half] = torch.addcmul(a * cos, b, sin, value=-1)
    out[..., half:] = torch.addcmul(b * cos, a, sin)


# (gradient of the output, input, grad_input=where to write the gradient of the input)
_DERIVATIVES: dict[str, Callable[..., Tensor]] = {
    "silu": _ops.silu_backward.grad_input,
    "gelu": functools.partial(_ops.gelu_backward.grad_input, approximate="none"),
    "gelu_tanh": functools.partial(_ops.gelu_backward.grad_input, approximate="tanh"),
}


def gated(gate_up: Float[Tensor, "T two_F"], activation: str) -> Float[Tensor, "T F"]:
    """Returns activation(gate) * up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return ACTIVATIONS[activation](gate).mul_(up)


def gated_backward(
    grad: Float[Tensor, "T F"], gate_up: Float[Tensor, "T two_F"], activation: str
) -> tuple[Float[Tensor, "T two_F"], Float[Tensor, "T F"]]:
    """Returns dL/d(gate, up), and the gated values themselves (the next weight's gradient reads them)."""
    gate, up = gate_up.chunk(2, dim=-1)
    active = ACTIVATIONS[activation](gate)
    grad_gate_up = torch.empty_like(gate_up)
    to_gate, to_up = grad_gate_up.chunk(2, dim=-1)
    torch.mul(grad, active, out=to_up)
    _DERIVATIVES[activation](grad * up, gate, grad_input=to_gate)
    return grad_gate_up, active.mul_(up)
