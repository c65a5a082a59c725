"""The dataset kinds, their columns, and the row that the rest of the package passes around.

Kinds and column names are those of TRL's dataset types, so a file that trains there trains here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wootz.core.errors import nearest

KindName = Literal["preference", "stepwise", "ranked", "unpaired", "prompt_completion", "messages", "text", "prompt"]
Message = dict[str, Any]
Messages = list[Message]
Side = str | Messages
"""A prompt or a completion: plain text, or messages that go through the model's chat template."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a row of one kind holds.

    Attributes:
        columns: Its columns, all needed except those in ``optional``.
        meaning: One line for people.
    """

    columns: tuple[str, ...]
    meaning: str
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.optional)


KINDS: Mapping[str, Kind] = {
    "preference": Kind(("prompt", "chosen", "rejected"), "two answers, the better one named", optional=("prompt",)),
    "stepwise": Kind(("prompt", "completions", "labels"), "an answer in steps, each right or wrong"),
    "ranked": Kind(("prompt", "completions", "scores"), "several answers with scores"),
    "unpaired": Kind(("prompt", "completion", "label"), "one answer, good or bad"),
    "prompt_completion": Kind(("prompt", "completion"), "one answer to imitate"),
    "messages": Kind(("messages",), "a conversation whose assistant turns are imitated"),
    "text": Kind(("text",), "plain text"),
    "prompt": Kind(("prompt",), "prompts only; the model answers them itself"),
}
"""Most specific first: the order in which a file that could be several is read."""

YOUR_COLUMN = "YOUR_COLUMN"

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "prompt": ("question", "query", "instruction", "input", "problem", "context", "user", "request", "prompt_text"),
    "chosen": ("good", "preferred", "accepted", "better", "win", "winner", "positive", "best", "response_chosen"),
    "rejected": ("bad", "dispreferred", "worse", "lose", "loser", "negative", "worst", "response_rejected"),
    "completion": ("answer", "response", "output", "reply", "solution", "target", "assistant", "summary"),
    "completions": ("answers", "responses", "outputs", "candidates", "steps", "generations"),
    "label": ("labels", "desirable", "kto_tag", "is_good", "thumbs_up", "liked", "feedback", "good"),
    "labels": ("step_labels", "correct", "ratings"),
    "scores": ("ratings", "rewards", "ranks", "score", "points"),
    "messages": ("conversation", "conversations", "dialogue", "dialog", "chat", "turns"),
    "text": ("content", "document", "body", "passage"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row in canonical columns.

    Attributes:
        index: Position in the source, from 0; it never changes, whatever is dropped.
        place: Where a person finds it: ``line 12``, ``row 12``.
        fields: The kind's own columns (and ``tools``).
        extra: Every other column.
    """

    index: int
    place: str
    fields: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The row's index and a short hash of its contents."""
        return f"{self.index}:{digest(self.fields)[:8]}"

    @property
    def conversational(self) -> bool:
        """Whether any part of it is messages rather than plain text."""
        return any(is_messages(value) for value in self.fields.values())


def is_messages(value: Any) -> bool:
    """Returns whether ``value`` is a list of messages.

    Example:
        >>> is_messages([{"role": "user", "content": "hi"}]), is_messages(["step 1", "step 2"])
        (True, False)
    """
    return isinstance(value, list) and len(value) > 0 and all(isinstance(item, dict) for item in value)


def digest(value: Any) -> str:
    """Returns a hash of any JSON-like value, the same on every machine."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def suggest_columns(found: Iterable[str], kind: str) -> str:
    """Returns the ``columns:`` line that would read columns ``found`` as ``kind``.

    Columns that nothing resembles are left as ``YOUR_COLUMN``.

    Example:
        >>> suggest_columns(["question", "good", "bad"], "preference")
        'data.columns: {prompt: question, chosen: good, rejected: bad}'
    """
    left = list(found)
    chosen: dict[str, str] = {name: name for name in KINDS[kind].columns if name in left}
    left = [name for name in left if name not in chosen]
    for name in KINDS[kind].columns:
        if name in chosen:
            continue
        guess = _closest(name, left)
        if guess is not None:
            left.remove(guess)
        if guess is not None or name in KINDS[kind].required:
            chosen[name] = guess or YOUR_COLUMN
    pairs = (f"{name}: {chosen[name]}" for name in KINDS[kind].columns if name in chosen and chosen[name] != name)
    return "data.columns: {" + ", ".join(pairs) + "}"


def closeness(found: Iterable[str], kind: str) -> float:
    """Returns how near the columns are to what ``kind`` needs, from 0 to 1; a guessed name counts half.

    Example:
        >>> closeness(["prompt", "good", "bad"], "preference"), closeness(["x"], "text")
        (0.5, 0.0)
    """
    left, score = list(found), 0.0
    for name in KINDS[kind].required:
        guess = name if name in left else _closest(name, left)
        if guess is not None:
            left.remove(guess)
            score += 1.0 if guess == name else 0.5
    return score / len(KINDS[kind].required)


def _closest(name: str, found: list[str]) -> str | None:
    lowered = {column.lower(): column for column in found}
    for alias in (name, *_ALIASES.get(name, ())):
        if alias in lowered:
            return lowered[alias]
    for alias in (name, *_ALIASES.get(name, ())):
        for low, column in lowered.items():
            if alias in low.replace("-", "_").split("_"):
                return column
    near = nearest(name, lowered)
    return lowered[near] if near else None
