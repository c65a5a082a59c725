"""Writes models so that ``from_pretrained`` reads them back bit for bit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wootz.models.model import REFERENCE_ADAPTER, LanguageModel

MAX_SHARD = "2GB"


def save(model: LanguageModel, path: Path, *, merged: bool) -> None:
    """Writes the model to ``path``, whole or not at all: temporary folder, sync, rename.

    An adapter is written in PEFT layout, unless ``merged``: then its update is added to the base in fp32 and a whole
    model is written in the base's type. Weights are sharded safetensors; the tokenizer goes beside them.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        module: Any = model.module
        if not model.has_adapter:
            module.save_pretrained(temporary, max_shard_size=MAX_SHARD, state_dict=_plain_state(module))
        elif merged:
            base = model._base()
            base.save_pretrained(temporary, max_shard_size=MAX_SHARD, state_dict=merged_state(model))
        else:
            module.save_pretrained(temporary, selected_adapters=["default"])
        model.tokenizer.save_pretrained(temporary)
        for file in temporary.rglob("*"):
            if file.is_file():
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@torch.no_grad()
def merged_state(model: LanguageModel) -> dict[str, Tensor]:
    """The base's state dict with the adapter's update added, W + scaling * B A, computed in fp32."""
    state: dict[str, Tensor] = {}
    layers = {name: layer for name, layer in model._base().named_modules() if hasattr(layer, "get_delta_weight")}
    for name, tensor in model._base().state_dict().items():
        if ".lora_" in name:
            continue
        if ".base_layer." in name:
            owner = name.split(".base_layer.")[0]
            plain = name.replace(".base_layer.", ".")
            if name.endswith(".weight"):
                update = layers[owner].get_delta_weight("default").float()
                tensor = (tensor.float() + update).to(tensor.dtype)
            state[plain] = tensor
        else:
            state[name] = tensor
    return _own_memory(state)


def _plain_state(module: Any) -> dict[str, Tensor]:
    return _own_memory(dict(module.state_dict()))


def _own_memory(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors that are views into a larger one, which the file format refuses."""
    return {
        name: tensor.clone() if tensor.untyped_storage().nbytes() != tensor.nbytes else tensor
        for name, tensor in state.items()
    }


__all__ = ["REFERENCE_ADAPTER", "merged_state", "save"]
