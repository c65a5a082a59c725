"""Trials of a decoder before it is trusted: does another way to compute its hidden states give the same?

The trial runs in fp32 whatever the weights are, on a copy that has one layer of each kind, the model's own weights, a
window short enough to act, and adapters that are not zero. What it compares with is the model's own forward, one
completion at a time, with no mask and no padding: values to 1e-5 and every gradient to 1e-4, relative.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group, Sequence
from wootz.models.hidden import layer_list
from wootz.models.plans import Plan, make_plan

TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
_WINDOW = 3
_SHAPES = ((7, (4, 6)), (1, (5, 1, 3)), (4, (2,)))  # prompt length, completion lengths

HiddenStates = Callable[[Plan, Tensor], Tensor]


@dataclass
class Trial:
    """A small fp32 copy of a causal model (embedding and head left out) and what it should compute."""

    causal_lm: Any
    batch: GroupBatch
    _embed: Callable[[Tensor], Tensor]

    @property
    def decoder(self) -> Any:
        return self.causal_lm.get_decoder()

    def difference(self, name: Literal["shared", "flat"], hidden: HiddenStates) -> str | None:
        """Returns how ``hidden`` differs on the plan of that name, or None if it does not.

        Args:
            hidden: (plan, embedded tokens) to the states at the plan's predictors.
        """
        with torch.inference_mode(False), torch.enable_grad():
            reference, reference_gradients = self._measure(make_plan(self.batch, "flat"), self._one_by_one)
            states, gradients = self._measure(make_plan(self.batch, name), hidden)
        error = _relative(states, reference)
        if not error <= TOLERANCE:
            return f"values differ by {error:.1e}"
        # A gradient that is zero but for rounding is compared on the scale of the others.
        floor = 1e-3 * max(float(gradient.norm()) for gradient in reference_gradients.values())
        for key, expected in reference_gradients.items():
            error = float((gradients[key] - expected).norm()) / max(float(expected.norm()), floor)
            if not error <= GRADIENT_TOLERANCE:
                return f"the gradient of {key} differs by {error:.1e}"
        return None

    def _measure(self, plan: Plan, hidden: HiddenStates) -> tuple[Tensor, dict[str, Tensor]]:
        self.decoder.zero_grad()
        states = hidden(plan, self._embed(torch.from_numpy(plan.tokens)))
        weights = torch.rand(states.shape, generator=torch.Generator().manual_seed(1)).to(states)
        (states * weights).sum().backward()
        gradients = {name: p.grad for name, p in self.decoder.named_parameters() if p.grad is not None}
        return states.detach(), gradients

    def _one_by_one(self, plan: Plan, embedded: Float[Tensor, "T D"]) -> Float[Tensor, "N D"]:
        rows = embedded.split(plan.row_lengths)
        states = torch.cat([self.decoder(inputs_embeds=row[None], use_cache=False)[0][0] for row in rows])
        return states[torch.from_numpy(plan.predictors).to(states.device)]


def make_trial(causal_lm: Any) -> Trial:
    """Returns a trial of a Hugging Face causal model; whatever its copy cannot do raises."""
    embedding = causal_lm.get_input_embeddings()
    vocabulary = int(embedding.weight.shape[0])

    def embed(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            return embedding(tokens.to(embedding.weight.device)).float().clone()

    return Trial(_small_copy(causal_lm), _synthetic_batch(vocabulary), embed)


def _small_copy(causal_lm: Any) -> Any:
    decoder = causal_lm.get_decoder()
    name, layers = layer_list(decoder)
    kinds = list(getattr(decoder.config, "layer_types", None) or ["layer"] * len(layers))
    kept = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    left_out = [layer for index, layer in enumerate(layers) if index not in kept]
    left_out += [causal_lm.get_input_embeddings(), causal_lm.get_output_embeddings()]
    # What the memo names is replaced, not copied: the copy costs one layer of each kind.
    small = copy.deepcopy(causal_lm, {id(module): nn.Identity() for module in left_out})
    small_decoder = small.get_decoder()
    setattr(small_decoder, name, nn.ModuleList(getattr(small_decoder, name)[index] for index in kept))
    config = small_decoder.config
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
        config.layer_types = [kinds[index] for index in kept]
    if getattr(config, "sliding_window", None):
        config.sliding_window = _WINDOW
    small.float().eval().requires_grad_(True)
    _wake_adapters(small)
    return small


def _wake_adapters(module: nn.Module) -> None:
    """Adapters start at zero, and may be switched off at the moment; a trial must see them act."""
    generator = torch.Generator().manual_seed(2)
    layer: Any
    for layer in module.modules():
        if hasattr(layer, "lora_B") and hasattr(layer, "enable_adapters"):
            layer.enable_adapters(True)
            layer.requires_grad_(True)
            with torch.no_grad():
                for b in layer.lora_B.values():
                    b.weight.copy_(0.1 * torch.randn(b.weight.shape, generator=generator))


def _synthetic_batch(vocabulary: int) -> GroupBatch:
    random = np.random.default_rng(0)

    def some(length: int) -> tuple[int, ...]:
        return tuple(random.integers(vocabulary, size=length).tolist())

    groups = []
    for index, (prompt, lengths) in enumerate(_SHAPES):
        completions = tuple(Completion(some(length)) for length in lengths)
        groups.append(Group(str(index), Sequence(some(prompt)), completions))
    return GroupBatch(tuple(groups))


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
