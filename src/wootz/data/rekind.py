"""Rows of one kind made from rows of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import combinations, pairwise
from typing import Any, Literal

from wootz.core.errors import UsageError
from wootz.data.formats import as_messages
from wootz.data.kinds import KINDS

Pairing = Literal["best_worst", "adjacent", "all"]


def kinds_to(to: str) -> tuple[str, ...]:
    """Returns the kinds whose rows can become ``to``, itself left out.

    Example:
        >>> kinds_to("preference")
        ('ranked',)
    """
    return tuple(kind for kind in KINDS if kind != to and to in kinds_from(kind))


def kinds_from(kind: str) -> tuple[str, ...]:
    """Returns the kinds that rows of ``kind`` can become, itself included.

    Example:
        >>> kinds_from("preference")
        ('preference', 'unpaired', 'prompt_completion', 'prompt')
    """
    made = tuple(to for start, to in _CHANGES if start == kind)
    prompts = ("prompt",) if "prompt" in KINDS[kind].columns and kind != "prompt" else ()
    return (kind, *made, *prompts)


def as_kind(
    rows: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], kind: str, to: str, *, pairs: Pairing = "best_worst"
) -> list[dict[str, Any]]:
    """Returns canonical rows of another kind: ``(fields, extra)`` of ``kind`` in, whole rows of ``to`` out.

    Preference rows give two unpaired rows, or the chosen answer alone; ranked rows the best answer, or pairs with the
    difference of their scores as ``margin``; conversations their last turn; anything with a prompt gives prompts.

    Raises:
        UsageError: ``to`` cannot be had from ``kind``.
    """
    if to == kind:
        return [{**fields, **extra} for fields, extra in rows]
    if to not in kinds_from(kind):
        raise UsageError(f"{kind} rows cannot become {to} rows", expected=", ".join(kinds_from(kind)))
    change = _CHANGES.get((kind, to), _to_prompt)
    if change is _pair:
        change = partial(_pair, pairs=pairs)
    return [{**new, **extra} for fields, extra in rows for new in change(dict(fields))]


def _to_prompt(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: fields[name] for name in ("prompt", "tools") if name in fields}]


def _unpair(fields: dict[str, Any]) -> list[dict[str, Any]]:
    rest = _to_prompt(fields)[0]
    return [{**rest, "completion": fields[side], "label": side == "chosen"} for side in ("chosen", "rejected")]


def _keep_chosen(fields: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**_to_prompt(fields)[0], "completion": fields["chosen"]}]


def _keep_best(fields: dict[str, Any]) -> list[dict[str, Any]]:
    best = max(range(len(fields["scores"])), key=fields["scores"].__getitem__)
    return [{**_to_prompt(fields)[0], "completion": fields["completions"][best]}]


def _pair(fields: dict[str, Any], pairs: Pairing = "best_worst") -> list[dict[str, Any]]:
    """Pairs of answers of different scores, the better first."""
    graded = sorted(zip(fields["scores"], fields["completions"], strict=True), key=lambda one: one[0], reverse=True)
    if pairs == "best_worst":
        some = [(graded[0], graded[-1])]
    elif pairs == "adjacent":
        some = list(pairwise(graded))
    else:
        some = list(combinations(graded, 2))
    rest = _to_prompt(fields)[0]
    return [
        {**rest, "chosen": better, "rejected": worse, "margin": float(high - low)}
        for (high, better), (low, worse) in some
        if high > low
    ]


def _join(fields: dict[str, Any]) -> list[dict[str, Any]]:
    prompt, completion = as_messages(fields.pop("prompt"), "user"), as_messages(fields.pop("completion"), "assistant")
    context = [message | {"train": False} if message["role"] == "assistant" else message for message in prompt]
    return [{"messages": context + completion, **fields}]


def _last_turn(fields: dict[str, Any]) -> list[dict[str, Any]]:
    messages = fields.pop("messages")
    last = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=0)
    return [{"prompt": messages[:last], "completion": messages[last : last + 1], **fields}] if last else []


_CHANGES: Mapping[tuple[str, str], Callable[[dict[str, Any]], list[dict[str, Any]]]] = {
    ("preference", "unpaired"): _unpair,
    ("preference", "prompt_completion"): _keep_chosen,
    ("ranked", "preference"): _pair,
    ("ranked", "prompt_completion"): _keep_best,
    ("prompt_completion", "messages"): _join,
    ("messages", "prompt_completion"): _last_turn,
}
