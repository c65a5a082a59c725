"""Packed projections with their adapters folded in: one matrix product for several layers, derivatives by hand.

T tokens, ``in`` and ``out`` widths, r rank.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from wootz.models.fast.layout import Adapter, Projection


class Gradients:
    """Gradients of parameters, collected by identity; only what is asked for is computed."""

    def __init__(self, parameters: tuple[Tensor, ...], needed: tuple[bool, ...]) -> None:
        self._parameters = parameters
        self._needed = {id(parameter) for parameter, wanted in zip(parameters, needed, strict=True) if wanted}
        self._found: dict[int, Tensor] = {}

    def wants(self, *parameters: Tensor) -> bool:
        return any(id(parameter) in self._needed for parameter in parameters)

    def add(self, parameter: Tensor, gradient: Tensor) -> None:
        if self.wants(parameter):
            self._found[id(parameter)] = gradient.to(parameter.dtype)

    def in_order(self) -> tuple[Tensor | None, ...]:
        return tuple(self._found.get(id(parameter)) for parameter in self._parameters)


class Linear:
    """A projection at one step: y = x W' + b + (x A') (scaling B)', part by part of the packed rows.

    Adapters keep fp32 masters; their copies here have the weights' type, because a mixed product would run at the
    rate of fp32.
    """

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self.weight, self._bias = projection.weight, projection.bias
        self.parameters = (*projection.weights, *projection.biases)
        # Adapter, scaled B, its rows of y, its columns of x A'.
        self._parts: list[tuple[Adapter, Tensor, slice, slice]] = []
        row = rank = 0
        for adapter, size in zip(projection.adapters(), projection.sizes, strict=True):
            if adapter is not None:
                width = len(adapter.a)
                scaled = (adapter.b.detach() * adapter.scaling).to(self.weight.dtype)
                self._parts.append((adapter, scaled, slice(row, row + size), slice(rank, rank + width)))
                self.parameters += (adapter.a, adapter.b)
                rank += width
            row += size
        stack = [adapter.a.detach().to(self.weight.dtype) for adapter, *_ in self._parts]
        self._a = torch.cat(stack) if stack else None

    def __call__(self, x: Float[Tensor, "T in"]) -> tuple[Float[Tensor, "T out"], Float[Tensor, "T r"] | None]:
        """Returns y, and x A' for the backward pass."""
        y = x @ self.weight.T if self._bias is None else torch.addmm(self._bias, x, self.weight.T)
        if self._a is None:
            return y, None
        low = x @ self._a.T
        for _, b, rows, ranks in self._parts:
            y[:, rows].addmm_(low[:, ranks], b.T)
        return y, low

    def input_gradient(
        self, grad: Float[Tensor, "T out"], *, wanted: bool = True
    ) -> tuple[Float[Tensor, "T in"] | None, Float[Tensor, "T r"] | None]:
        """Returns dL/dx (None unless ``wanted``), and dL/d(x A') for :meth:`parameter_gradients`."""
        grad_x = grad @ self.weight if wanted else None
        if self._a is None:
            return grad_x, None
        grad_low = grad.new_empty(len(grad), len(self._a))
        for _, b, rows, ranks in self._parts:
            torch.mm(grad[:, rows], b, out=grad_low[:, ranks])
        return grad_x if grad_x is None else grad_x.addmm_(grad_low, self._a), grad_low

    def parameter_gradients(
        self,
        grad: Float[Tensor, "T out"],
        grad_low: Float[Tensor, "T r"] | None,
        read_input: Callable[[], Float[Tensor, "T in"]],
        low: Float[Tensor, "T r"] | None,
        gradients: Gradients,
    ) -> None:
        """Adds the gradients of weights, biases and adapters. ``read_input`` gives x; called only if it is needed."""
        projection = self._projection
        if gradients.wants(*projection.biases):
            for bias, total in zip(projection.biases, grad.sum(0).split(projection.sizes), strict=True):
                gradients.add(bias, total)
        for adapter, _, rows, ranks in self._parts:
            if gradients.wants(adapter.b):
                assert low is not None
                gradients.add(adapter.b, (grad[:, rows].T @ low[:, ranks]).to(adapter.b.dtype) * adapter.scaling)
        due_weights = gradients.wants(*projection.weights)
        due_a = gradients.wants(*(adapter.a for adapter, *_ in self._parts))
        if not (due_weights or due_a):
            return
        x = read_input()
        if due_weights:
            for weight, total in zip(projection.weights, (grad.T @ x).split(projection.sizes), strict=True):
                gradients.add(weight, total)
        if due_a:
            assert grad_low is not None
            stacked = grad_low.T @ x
            for adapter, _, _, ranks in self._parts:
                gradients.add(adapter.a, stacked[ranks])
