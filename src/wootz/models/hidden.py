"""Hidden states at a plan's predictors by a model's own forward: padded rows, prepared masks.

The reference for the fast layers, and the way for every model they do not know.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from wootz.models.plans import PaddedRows, Plan, padded_batches


def mask_windows(config: Any) -> dict[str, int | None] | int | None:
    """Returns what a prepared mask must look like: a window (None: no limit), or one for each layer type.

    Raises NotImplementedError for layer types whose masks are not made here (chunked or recurrent attention).
    """
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return window
    known = {"full_attention": None, "sliding_attention": window}
    if unknown := set(kinds) - set(known):
        raise NotImplementedError(f"layer types {', '.join(sorted(unknown))}")
    return {kind: known[kind] for kind in dict.fromkeys(kinds)}


def padded_hidden(
    model: nn.Module,
    plan: Plan,
    embedded: Float[Tensor, "T D"] | None = None,
    *,
    output: str = "last_hidden_state",
) -> Float[Tensor, "N D"]:
    """Returns the model's output at each predictor, in the batch's order.

    Flat rows go in with a plain padding mask, so the model makes its own masks; shared rows need a prepared one.

    Args:
        model: A Hugging Face decoder (or causal model, with ``output="logits"``).
        embedded: First hidden states to use in place of the plan's tokens.
    """
    pieces, order = [], []
    for rows in padded_batches(plan):
        result = getattr(model(**_inputs(model, rows, embedded), use_cache=False), output)
        pieces.append(result[torch.from_numpy(rows.valid).to(result.device)])
        order.append(rows.slots[rows.valid])
    place = np.empty(plan.num_slots, dtype=np.int64)
    place[np.concatenate(order)] = np.arange(plan.num_slots)
    states = torch.cat(pieces)
    return states.index_select(0, torch.from_numpy(place[plan.predictors]).to(states.device))


def _inputs(model: nn.Module, rows: PaddedRows, embedded: Tensor | None) -> dict[str, Any]:
    weight = next(model.parameters())
    device = weight.device
    inputs: dict[str, Any] = {"position_ids": rows.tensor(rows.plan.positions, device)}
    if embedded is None:
        inputs["input_ids"] = rows.tensor(rows.plan.tokens, device)
    else:
        inputs["inputs_embeds"] = embedded[torch.from_numpy(rows.slots).to(device)]
    if rows.plan.name == "flat":
        inputs["attention_mask"] = torch.from_numpy(rows.valid.astype(np.int64)).to(device)
        return inputs
    windows = mask_windows(model.config)
    dtype = weight.dtype if embedded is None else embedded.dtype
    if isinstance(windows, dict):
        inputs["attention_mask"] = {kind: rows.mask(window, dtype, device) for kind, window in windows.items()}
    else:
        inputs["attention_mask"] = rows.mask(windows, dtype, device)
    return inputs


def layer_list(decoder: nn.Module) -> tuple[str, nn.ModuleList]:
    """Returns the decoder's list of layers and the name it goes by. Raises LookupError when there is none."""
    for name, child in decoder.named_children():
        if isinstance(child, nn.ModuleList) and len(child) == decoder.config.num_hidden_layers:  # pyright: ignore
            return name, child
    raise LookupError(f"{type(decoder).__name__} has no list of its layers")


@contextlib.contextmanager
def layers_checkpointed(decoder: nn.Module, on: bool) -> Iterator[None]:
    """Inside, the model's own layers keep their inputs alone and run again in the backward pass.

    Not Hugging Face's switch: that acts only in training mode and leaves hooks on the embedding.
    """
    layers = list(layer_list(decoder)[1]) if on else []
    try:
        for layer in layers:
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        yield
    finally:
        for layer in layers:
            del layer.forward
