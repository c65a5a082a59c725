"""Models: load, adapt, compute, generate, save. The only package that imports transformers or peft."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wootz.models.config import LoraConfig, ModelConfig
    from wootz.models.loading import load, load_tokenizer
    from wootz.models.model import LanguageModel
    from wootz.models.sampling import Sampling

__all__ = ["LanguageModel", "LoraConfig", "ModelConfig", "Sampling", "load", "load_tokenizer"]

_HOME = {
    "LanguageModel": "model",
    "LoraConfig": "config",
    "ModelConfig": "config",
    "Sampling": "sampling",
    "load": "loading",
    "load_tokenizer": "loading",
}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that reading a recipe's schema loads no model library."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"wootz.models.{_HOME[name]}"), name)
