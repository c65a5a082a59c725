"""Items: what a model is asked, and what the right answer is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from wootz.core.errors import DataError
from wootz.core.records import Group
from wootz.core.records import Sequence as Tokens
from wootz.data import read, render_chat

_QUESTIONS = ("prompt", "messages", "question", "instruction")
_GOLD = ("gold", "answer", "target", "label")


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its right answer, if there is one.

    Attributes:
        messages: The conversation, the user's last turn at its end.
        columns: What else the row says; slices are taken over them.
    """

    id: str
    messages: tuple[dict[str, Any], ...]
    gold: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class Result:
    """What one model did on one item. ``value`` None: the item does not count for this model."""

    id: str
    value: float | None
    output: str = ""
    prompt: str = ""
    gold: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)


def as_messages(prompt: Any) -> tuple[dict[str, Any], ...]:
    """Returns a conversation: a text becomes a user's turn."""
    return ({"role": "user", "content": prompt},) if isinstance(prompt, str) else tuple(prompt)


def items_of(rows: Sequence[Mapping[str, Any]], *, where: str) -> list[Item]:
    """Returns items from rows with a prompt (or question, messages...) and a gold answer (or answer, target...).

    Raises:
        DataError: No such columns, with those that were found.
    """
    if not rows:
        raise DataError("no rows", where=where)
    question = _column(rows[0], _QUESTIONS, where)
    gold = next((name for name in _GOLD if name in rows[0]), None)
    items = []
    for index, row in enumerate(rows):
        rest = {key: value for key, value in row.items() if key not in (question, gold, "id")}
        name = str(row.get("id", index))
        items.append(Item(name, as_messages(row[question]), row.get(gold) if gold else None, rest))
    return items


def _column(row: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise DataError("no column to ask", where=where, found=", ".join(row), expected=f"one of {', '.join(names)}")
    return found


def read_rows(source: str | Path, *, max_rows: int | None = None) -> list[dict[str, Any]]:
    """Returns the rows of any data file."""
    return list(read(str(source), max_rows=max_rows).rows)


def built_in(name: str) -> list[dict[str, Any]]:
    """Returns the rows of a prompt set that comes with wootz: general, harmful, harmless, sycophancy, format."""
    return read_rows(Path(str(resources.files("wootz.evals") / "prompts" / f"{name}.jsonl")))


def to_group(item: Item, tokenizer: Any) -> Group:
    """Returns the item as a prompt for the model with this tokenizer (None: an endpoint, which renders by itself)."""
    columns = {**item.columns, "gold": item.gold, "prompt_messages": list(item.messages)}
    if tokenizer is None:
        return Group(item.id, Tokens((), item.prompt), (), columns)
    if getattr(tokenizer, "chat_template", None):
        return Group(item.id, render_chat(list(item.messages), tokenizer), (), columns)
    text = "\n".join(message["content"] for message in item.messages) + "\n"
    return Group(item.id, Tokens(tuple(tokenizer(text).input_ids), text), (), columns)
