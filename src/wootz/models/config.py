"""How a model is named, loaded and adapted: the ``model`` section of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from wootz.core.config import Config

Allowed = Literal["pickle_weights"]


class LoraConfig(Config):
    """Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): y = W x + (alpha / rank) B A x; only A and B train."""

    rank: int = Field(default=16, gt=0, json_schema_extra={"aka": ["r", "lora_r"]})
    """Width of the update."""
    alpha: float | None = Field(default=None, gt=0, json_schema_extra={"aka": ["lora_alpha"]})
    """Scale of the update; by default twice the rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input."""
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Which linear layers get an update: all of the decoder's, or module names such as q_proj."""


class ModelConfig(Config):
    """A model, and whether an adapter or all of it trains."""

    base: str = Field(json_schema_extra={"aka": ["model_name_or_path", "path"]})
    """A folder, a Hub id, a .gguf file, a run directory, BASE+ADAPTER, http://HOST/v1#NAME, or smollm2-135m."""
    revision: str | None = None
    """Commit, tag or branch of a Hub id."""
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Type of the weights that compute; auto is bf16 where the hardware is fast at it. What trains is kept in fp32."""
    lora: LoraConfig | None = None
    """Train an adapter; without it all weights train."""
    allow: tuple[Allowed, ...] = ()
    """Risks taken by name: pickle_weights loads files that can run code."""
