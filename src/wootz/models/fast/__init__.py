"""Fused layers over a module's own weights, for decoders whose parts are recognised."""

from wootz.models.fast.layout import DecoderLayout, LayerLayout, describe

__all__ = ["DecoderLayout", "LayerLayout", "describe"]
