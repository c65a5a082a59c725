"""Tokens as a person sees them: where each begins, and which are learned."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from wootz.core.protocols import Tokenizer
from wootz.core.records import Group

_BROKEN = "\ufffd"
_LONGEST_CHARACTER = 4
_SHADES = ("black on green", "black on bright_green")
_OPEN, _CLOSE = "⟦", "⟧"


def pieces(tokens: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Returns the text of each token; joined they are the decoded text.

    A character made of several tokens is shown on the last of them.
    """
    shown, done, waiting = [], [], []
    for token in tokens:
        waiting.append(token)
        before = tokenizer.decode(done, clean_up_tokenization_spaces=False) if done else ""
        text = tokenizer.decode(done + waiting, clean_up_tokenization_spaces=False)[len(before) :]
        if text.endswith(_BROKEN) and len(waiting) < _LONGEST_CHARACTER:
            shown.append("")
            continue
        shown.append(text)
        done, waiting = waiting, []
    return shown


def examples(groups: Sequence[Group], tokenizer: Tokenizer, *, limit: int = 2) -> list[dict[str, Any]]:
    """Returns the first groups as ``{"id", "name", "pieces", "trained"}``, one entry a completion (``data.json``)."""
    shown = []
    for group in groups[:limit]:
        answers = group.completions or (None,)
        for index, answer in enumerate(answers):
            ids = [*group.prompt.tokens, *(answer.tokens if answer else ())]
            trained = [False] * len(group.prompt.tokens) + ([bool(m) for m in answer.loss_mask] if answer else [])
            name = _name(group, index)
            shown.append({"id": group.id, "name": name, "pieces": pieces(ids, tokenizer), "trained": trained})
    return shown


def _name(group: Group, index: int) -> str:
    if not group.completions:
        return "prompt"
    columns = group.completions[index].columns
    if "chosen" in columns:
        return "chosen" if columns["chosen"] else "rejected"
    if "label" in columns:
        return f"label {str(columns['label']).lower()}"
    return f"score {columns['score']:g}" if "score" in columns else "completion"


def show(groups: Sequence[Group], tokenizer: Tokenizer, *, limit: int = 2, console: Console | None = None) -> None:
    """Prints the first groups token by token: learned tokens on green, in two shades, the rest dim.

    Without colour (``NO_COLOR``, a pipe) learned tokens stand between ⟦ and ⟧.
    """
    console = console or Console()
    colour = console.is_terminal and not console.no_color and not os.environ.get("NO_COLOR")
    for example in examples(groups, tokenizer, limit=limit):
        learned, total = sum(example["trained"]), len(example["trained"])
        console.print(Text(f"row {example['id']}, {example['name']}: {learned} of {total} tokens learned", "bold"))
        console.print(_coloured(example) if colour else Text(_plain(example)), soft_wrap=True)
        console.print()


def _visible(piece: str) -> str:
    return piece.replace("\n", "↵\n").replace("\t", "→\t")


def _coloured(example: dict[str, Any]) -> Text:
    text = Text()
    for index, (piece, trained) in enumerate(zip(example["pieces"], example["trained"], strict=True)):
        text.append(_visible(piece), _SHADES[index % 2] if trained else "dim")
    return text


def _plain(example: dict[str, Any]) -> str:
    out, inside = [], False
    for piece, trained in zip(example["pieces"], example["trained"], strict=True):
        if trained != inside:
            out.append(_OPEN if trained else _CLOSE)
            inside = trained
        out.append(_visible(piece))
    return "".join(out) + (_CLOSE if inside else "")
