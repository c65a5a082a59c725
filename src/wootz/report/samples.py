"""Samples: what the parent and the new model said to the same prompt, token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wootz.figures import finite, number, token_strip
from wootz.report.files import RunFiles, mapping, sequence

MOST_SAMPLES = 16
MOST_TOKENS = 300
MOST_EARLIER = 6
SURPRISE = 5.0
"""Nats at which the shade is darkest: a token that had a chance of less than 1 in 150."""


@dataclass(frozen=True)
class Answer:
    """One completion: its strip of tokens (markup), or its text where there are no tokens."""

    title: str
    strip: str
    text: str
    facts: tuple[str, ...]
    more_tokens: int = 0


@dataclass(frozen=True)
class Sample:
    """A prompt with the answer before and after, and those on the way."""

    id: str
    prompt: str
    before: Answer | None
    after: Answer | None
    earlier: tuple[Answer, ...] = ()


def samples(files: RunFiles) -> tuple[list[Sample], int]:
    """Returns the samples to show, in the order they were first made, and how many there are in all.

    The answer before is the parent's; where none was recorded, the policy's at step 0, which is the parent then.
    """
    by_id: dict[str, list[dict[str, Any]]] = {}
    for record in files.samples:
        by_id.setdefault(str(record.get("id", "")) or str(record.get("prompt", "")), []).append(record)
    shown = [_sample(name, records) for name, records in list(by_id.items())[:MOST_SAMPLES]]
    return shown, len(by_id)


def _sample(name: str, records: Sequence[dict[str, Any]]) -> Sample:
    ordered = sorted(records, key=_step)
    parents = [r for r in ordered if r.get("model") == "parent"]
    policy = [r for r in ordered if r.get("model") != "parent"]
    before = parents[-1] if parents else policy.pop(0) if policy and _step(policy[0]) == 0 else None
    after = policy.pop() if policy else None
    title = "Parent" if parents else "Before training"
    return Sample(
        id=name,
        prompt=prompt_text(ordered[0].get("prompt")),
        before=None if before is None else answer(before, title),
        after=None if after is None else answer(after, f"New model, step {number(_step(after), 9)}"),
        earlier=tuple(answer(r, f"Step {number(_step(r), 9)}") for r in policy[-MOST_EARLIER:]),
    )


def _step(record: Mapping[str, Any]) -> float:
    return finite(record.get("step")) or 0.0


def answer(record: Mapping[str, Any], title: str) -> Answer:
    """Returns one recorded completion as it is shown."""
    pieces = [str(piece) for piece in sequence(record.get("pieces"))]
    logp = [finite(value) for value in sequence(record.get("logp"))]
    known = [value for value in logp if value is not None]
    facts = [f"{len(pieces):,} tokens"] if pieces else []
    if known:
        facts.append(f"log-prob {number(sum(known))} in all, {number(sum(known) / len(known))} a token")
    if record.get("finished") is False:
        facts.append("cut off")
    for name, value in mapping(record.get("scores")).items():
        facts.append(f"{name} {number(value)}")
    strip = ""
    if pieces:
        surprise = [None if value is None else -value for value in logp[:MOST_TOKENS]]
        strip = token_strip(pieces[:MOST_TOKENS], surprise, high=SURPRISE, name="surprise")
    text = "" if pieces else plain(record.get("completion"))
    return Answer(title, strip, text, tuple(facts), max(0, len(pieces) - MOST_TOKENS))


def prompt_text(prompt: Any) -> str:
    """Returns a prompt as text; a conversation of more than one turn with the role before each turn."""
    turns = [mapping(turn) for turn in sequence(prompt)]
    if len(turns) == 1 and turns[0].get("role") == "user":
        return plain(turns[0].get("content"))
    if turns:
        return "\n".join(f"{turn.get('role', '?')}: {plain(turn.get('content'))}" for turn in turns)
    return plain(prompt)


def plain(value: Any) -> str:
    """Returns a JSON value as text; nothing for null."""
    return "" if value is None else str(value)
