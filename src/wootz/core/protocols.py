"""The plug points: what the loop and the packages ask of each other.

Each is a Protocol with few methods, a registry open through entry points (:mod:`wootz.core.registry`), and a
conformance suite in ``tests/conformance``. There is no base class to inherit from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from wootz.core.records import Comparison, Group, Score

if TYPE_CHECKING:
    from torch import Tensor

    from wootz.core.batch import GroupBatch, Unit

State = dict[str, Any]
Total = Callable[[dict[str, float]], dict[str, float]]
"""Named numbers of this process in, their sums over all processes out."""


@runtime_checkable
class Tokenizer(Protocol):
    """What this project asks of a Hugging Face tokenizer."""

    eos_token_id: int | None
    pad_token_id: int | None
    bos_token_id: int | None
    chat_template: Any

    def __call__(self, text: Any, **options: Any) -> Any: ...
    def decode(self, token_ids: Any, **options: Any) -> str: ...
    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


class Role(Protocol):
    """A model in a run: policy, reference, teacher, value model, reward model."""

    def forward(self, batch: Any, outputs: Iterable[str]) -> dict[str, Tensor]:
        """Named per-trained-token results of the batch, fp32, in batch order."""
        ...

    def masters(self) -> dict[str, Tensor]:
        """The trainable tensors, fp32 leaves, by name; gradients arrive on their ``.grad``."""
        ...

    def refresh(self) -> None:
        """Copies the masters into the weights that compute, after an update."""
        ...


Roles = Mapping[str, Role]


@dataclass(frozen=True)
class Needs:
    """What an objective reads.

    Attributes:
        data: Dataset kinds it trains on (see ``wootz.data``); empty means any.
        outputs: Reducers of the policy's forward pass (``logp``, ``entropy``).
        annotations: What annotators must add first: per-token arrays (``ref_logp``; ``old_logp``, the policy's own before the
            step) or columns (``mismatched_ratio``).
        columns: Completion columns it reads.
    """

    data: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("logp",)
    annotations: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@runtime_checkable
class Objective(Protocol):
    """A loss as named sums; the loop divides by counts over the whole optimiser step and all processes.

    Attributes:
        needs: What it reads.
        unit: What a micro-batch must not cut.
        weights: Parts that make the loss, with their factors. Parts not named here are metrics.
    """

    @property
    def needs(self) -> Needs: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def weights(self) -> Mapping[str, float]: ...

    def prepare(self, batch: GroupBatch, total: Total) -> GroupBatch:
        """Once per global batch, without gradient: checks, baselines, whitening. What is a mean over the step is made of sums
        that ``total`` adds up over processes."""
        ...

    def counts(self, batch: GroupBatch) -> dict[str, float]:
        """How much each part counts, from masks and columns only."""
        ...

    def sums(self, outputs: Mapping[str, Tensor], batch: GroupBatch) -> dict[str, Tensor]:
        """The sum of each part over the batch, scalars; never a mean."""
        ...


@runtime_checkable
class Regulariser(Protocol):
    """Acts on weights: EWC, L2 to a starting point."""

    def __call__(self, named_parameters: Iterable[tuple[str, Tensor]]) -> tuple[Tensor, float]: ...


@runtime_checkable
class Annotator(Protocol):
    """Adds what a model must say before the loss: reference log-probs, teacher log-probs, values."""

    provides: tuple[str, ...]

    def annotate(self, batch: Any, roles: Roles) -> Any: ...


@runtime_checkable
class Source(Protocol):
    """Where batches come from: a dataset, rollouts, replay, a mixture.

    Attributes:
        num_steps: Optimiser steps from the very start to the end; schedules and progress bars read it.
    """

    num_steps: int

    def __iter__(self) -> Iterator[Any]:
        """Global batches from the current position on, the same on every process.

        ``state_dict`` taken while a batch is being worked on counts that batch as served.
        """
        ...

    def sync(self, policy: Role) -> None:
        """Called after each update; an offline source does nothing."""
        ...

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class Signal(Protocol):
    """Scores completions: a verifier, a reward model, a judge."""

    def score(self, groups: list[Group]) -> list[list[Score]]:
        """One inner list a group, one score a completion."""
        ...


@runtime_checkable
class Comparer(Protocol):
    """Compares the completions of a group."""

    def compare(self, groups: list[Group]) -> list[list[Comparison]]: ...


@dataclass(frozen=True)
class GuardVerdict:
    """What a guard says about a step: ``finish`` ends the training as if its steps were done, ``stop`` as a failure."""

    action: Literal["continue", "warn", "finish", "stop"]
    message: str = ""
    evidence: Mapping[str, float] | None = None


@runtime_checkable
class Guard(Protocol):
    """Stops a run that goes wrong. Sees the step's metrics, never the model.

    Attributes:
        name: Appears in events.
        needs: Metric names it watches; a run that will never produce one is refused before it starts.
    """

    name: str
    needs: tuple[str, ...]

    def check(self, step: int, metrics: Mapping[str, float]) -> GuardVerdict: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


class Tracker(Protocol):
    """Receives each metrics record; JSON lines are always written besides."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class TokenReducer(Protocol):
    """Turns a chunk of logits into one value a token, so that [tokens x vocabulary] never exists whole."""

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor: ...


class Switchable(Protocol):
    """A policy whose adapter can be turned off to give its own reference."""

    def adapter_off(self) -> AbstractContextManager[None]: ...
