"""How long, how fast and how much at a time a run trains."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from wootz.core.config import Config

DEFAULT_GROUPS_PER_STEP = 16


class OptimConfig(Config):
    """AdamW and its schedule."""

    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Shape of the learning rate after warm-up; linear and cosine end at 0."""
    warmup: float = Field(default=0.05, ge=0, lt=1, json_schema_extra={"aka": ["warmup_ratio"]})
    """Share of the steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay; vectors (norms, biases) are left out."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the gradient's running mean."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the squared gradient's running mean."""
    clip_norm: float = Field(default=1.0, gt=0, json_schema_extra={"aka": ["max_grad_norm"]})
    """Largest L2 norm of the whole gradient; a larger one is scaled down."""


class TrainConfig(Config):
    """The ``train`` section of a recipe. Batch size is what one optimiser step sees, said once."""

    lr: float = Field(default=1e-5, gt=0, json_schema_extra={"aka": ["learning_rate"]})
    """Peak learning rate. LoRA wants about ten times that of full fine-tuning."""
    epochs: float | None = Field(default=None, gt=0, json_schema_extra={"aka": ["num_train_epochs"]})
    """Passes over the data (default 1, unless max_steps is given)."""
    max_steps: int | None = Field(default=None, gt=0)
    """Optimiser steps, however many passes that takes."""
    tokens_per_step: int | None = Field(default=None, gt=0)
    """Prompt and completion tokens per optimiser step."""
    groups_per_step: int | None = Field(default=None, gt=0, json_schema_extra={"aka": ["batch_size"]})
    """Rows (pairs, prompts) per optimiser step (default 16, unless tokens_per_step is given)."""
    max_length: int = Field(default=1024, gt=1, json_schema_extra={"aka": ["max_seq_length", "cutoff_len"]})
    """Longest prompt plus completion, in tokens."""
    micro_tokens: int = Field(default=4096, gt=0)
    """Tokens computed at once; memory grows with it, results do not change."""
    gradient_checkpointing: bool = False
    """Recompute each layer in the backward pass: less memory, about a third more time."""
    checkpoint_every: int | None = Field(default=None, gt=0)
    """Steps between checkpoints (default: ten over the run). The last step is always kept."""
    keep_checkpoints: int = Field(default=2, gt=0)
    """How many checkpoints stay on disk."""
    optim: OptimConfig = OptimConfig()
    """The optimiser and its schedule."""

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self.epochs is not None and self.max_steps is not None:
            raise ValueError("epochs and max_steps both say how long to train; keep one")
        if self.tokens_per_step is not None and self.groups_per_step is not None:
            raise ValueError("tokens_per_step and groups_per_step both say the batch size; keep one")
        return self


class EvalConfig(Config):
    """What is measured on held-out rows while training."""

    every: int | None = Field(default=None, gt=0)
    """Steps between evaluations (default: ten over the run). The first and the last step are always evaluated."""
    max_groups: int = Field(default=64, gt=0)
    """Held-out rows used."""
    samples: int = Field(default=0, ge=0)
    """Held-out prompts answered by the policy at each evaluation: KL to the reference, length, and samples.jsonl."""
    max_new_tokens: int = Field(default=64, gt=0)
    """Longest sampled answer."""
