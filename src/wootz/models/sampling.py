"""How completions are sampled."""

from __future__ import annotations

from pydantic import Field

from wootz.core.config import Config


class Sampling(Config):
    """Temperature, truncation, length and stops of sampled completions."""

    temperature: float = Field(1.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens with this probability."""
    top_k: int = Field(0, ge=0)
    """Sample from this many likeliest tokens; 0 is all."""
    max_new_tokens: int = Field(256, gt=0)
    """Longest completion."""
    num_samples: int = Field(1, gt=0)
    """Completions a prompt."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; cut from its text."""
