"""The records that every language-model method shares.

A :class:`Group` is a prompt with its completions: one for supervised tuning, two for a preference pair (chosen first),
K for ranked data, G for sampled rollouts. Token ids are carried from where they were made; they are never re-tokenised.
Records are frozen and torch-free; per-token arrays are NumPy, one value a completion token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

PER_TOKEN = ("loss_mask", "sample_logp", "old_logp", "ref_logp", "value", "advantage")


@dataclass(frozen=True, slots=True)
class Sequence:
    """Token ids and the text they stand for."""

    tokens: tuple[int, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer to a prompt.

    Attributes:
        tokens: Token ids, the end-of-turn token included when it was produced or is to be learned.
        text: The readable answer, special tokens left out.
        per_token: Arrays of ``len(tokens)``. ``loss_mask`` (bool; absent means all true) says which tokens are trained;
            tool and environment tokens stay with mask false. Also ``sample_logp``, ``old_logp``, ``ref_logp``,
            ``value``, ``advantage`` (float32, nats).
        columns: One value a completion (``label``, ``weight``, ``margin``, ``score``).
        finished: Whether the completion ended by itself (end-of-sequence or a stop string).
    """

    tokens: tuple[int, ...]
    text: str = ""
    per_token: Mapping[str, np.ndarray] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = True

    def __post_init__(self) -> None:
        for name, array in self.per_token.items():
            assert len(array) == len(self.tokens), f"{name}: {len(array)} values for {len(self.tokens)} tokens"

    @property
    def loss_mask(self) -> np.ndarray:
        """Which tokens are trained, bool of ``len(tokens)``."""
        mask = self.per_token.get("loss_mask")
        return np.ones(len(self.tokens), dtype=bool) if mask is None else np.asarray(mask, dtype=bool)

    def with_per_token(self, **arrays: np.ndarray) -> Completion:
        """Returns a copy with per-token arrays added or replaced."""
        return replace(self, per_token={**self.per_token, **arrays})


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt and its completions.

    Attributes:
        id: Names the row; stable across epochs and processes.
        columns: One value a prompt (gold answer, source row, topic).
    """

    id: str
    prompt: Sequence
    completions: tuple[Completion, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """What a signal says about one completion.

    ``value`` None without ``error``: not applicable, left out of baselines. ``error``: the signal failed; counted.
    """

    value: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[tuple[int, float], ...] = ()
    evidence: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How likely completion ``i`` beats completion ``j`` of the same group."""

    i: int
    j: int
    p_win: float
    evidence: str = ""
