"""Fused layers over a module's own weights, for decoders whose parts are recognised."""

from wootz.models.fast.layer import run_layers
from wootz.models.fast.layout import DecoderLayout, LayerLayout, causal_lm_of, describe

__all__ = ["DecoderLayout", "LayerLayout", "causal_lm_of", "describe", "run_layers"]
