"""From rows as they were written to canonical rows, and back out in any format.

Table -> reader of the format -> TRL's columns -> canonical fields (messages cleaned, implicit prompts taken out)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wootz.core.errors import DataError, UsageError, nearest
from wootz.data.detect import Detected, detect
from wootz.data.formats import READERS, WRITERS, as_messages
from wootz.data.kinds import KINDS, Messages, Row, Side, is_messages
from wootz.data.messages import RowProblem, clean_messages
from wootz.data.read import Table, read, write
from wootz.data.rekind import as_kind


def rename(table: Table, columns: Mapping[str, str]) -> Table:
    """Returns the table with the user's columns under the expected names.

    A column of the file that already has the expected name gives way to the mapped one.

    Raises:
        DataError: A mapped column is not in the file.
    """
    if not columns:
        return table
    for expected, name in columns.items():
        if name not in table.columns:
            close = nearest(name, table.columns)
            raise DataError(
                f"no column {name!r}, which data.columns.{expected} names",
                where=table.source,
                found=", ".join(table.columns),
                fix=f"data.columns: {{{expected}: {close}}}" if close else None,
            )
    moved = set(columns.values())
    rows = []
    for row in table.rows:
        kept = {name: value for name, value in row.items() if name not in moved and name not in columns}
        rows.append(kept | {expected: row[name] for expected, name in columns.items() if name in row})
    return replace(table, rows=tuple(rows))


def canonical(
    table: Table, detected: Detected, *, chat: bool = False
) -> tuple[list[Row], list[tuple[Row, RowProblem]]]:
    """Returns the rows that could be read, and those that could not with what is wrong with each.

    Args:
        table: Renamed rows.
        detected: Their format and kind.
        chat: Turn plain strings into user and assistant messages.
    """
    rows, problems = [], []
    for index, (raw, place) in enumerate(zip(table.rows, table.places, strict=True)):
        try:
            fields, extra = _canonical_row(raw, detected, typed=table.typed, chat=chat)
            rows.append(Row(index, place, fields, extra))
        except RowProblem as problem:
            problems.append((Row(index, place, dict(raw)), problem))
    return rows, problems


def _canonical_row(
    raw: Mapping[str, Any], detected: Detected, *, typed: bool, chat: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    row = READERS[detected.format](raw)
    for name in KINDS[detected.kind].required:
        if row.get(name) is None:
            raise RowProblem("row_type", f"{name} is missing")
    fields = _FIELDS[detected.kind](row, typed)
    if row.get("tools"):
        fields["tools"] = json.loads(row["tools"]) if isinstance(row["tools"], str) else row["tools"]
    extra = {name: value for name, value in row.items() if name not in fields and value is not None}
    for name in ("margin", "weight"):
        if name in extra:
            extra[name] = _number(extra[name], name, typed)
    if chat:
        fields = _chat(fields, detected.kind)
    return fields, extra


def _side(value: Any, name: str) -> Side:
    return value if isinstance(value, str) else clean_messages(value, name=name)


def _prompted(row: Mapping[str, Any], *answers: str) -> dict[str, Any]:
    """Prompt and answers, all plain or all messages: plain text beside messages becomes a message."""
    sides = {name: _side(row[name], name) for name in ("prompt", *answers)}
    if any(isinstance(side, list) for side in sides.values()):
        roles = {"prompt": "user"} | dict.fromkeys(answers, "assistant")
        return {name: as_messages(side, roles[name]) for name, side in sides.items()}
    return dict(sides)


def _text_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:  # noqa: ARG001
    if not isinstance(row["text"], str):
        raise RowProblem("row_type", f"text must be a string, found {type(row['text']).__name__}")
    return {"text": row["text"]}


def _messages_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:  # noqa: ARG001
    return {"messages": clean_messages(row["messages"])}


def _prompt_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:  # noqa: ARG001
    return _prompted(row)


def _completion_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:  # noqa: ARG001
    return _prompted(row, "completion")


def _unpaired_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:
    return _prompted(row, "completion") | {"label": _label(row["label"], "label", typed)}


def _preference_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:  # noqa: ARG001
    prompt = row.get("prompt")
    sides = [row["chosen"], row["rejected"]]
    whole = all(is_messages(side) and clean_messages(side)[0]["role"] != "assistant" for side in sides)
    if prompt is None or whole:
        return _split_prompt(row, prompt)
    return _prompted(row, "chosen", "rejected")


def _split_prompt(row: Mapping[str, Any], prompt: Any) -> dict[str, Any]:
    """Takes the prompt out of two whole conversations: their longest common prefix, on whole messages.

    A prompt column beside whole conversations (some datasets have both) must be the last message of that prefix.
    """
    fields: dict[str, Any]
    chosen, rejected = (_side(row[name], name) for name in ("chosen", "rejected"))
    if isinstance(chosen, str) and isinstance(rejected, str):
        length = _common_text(chosen, rejected)
        fields = {"prompt": chosen[:length], "chosen": chosen[length:], "rejected": rejected[length:]}
    elif isinstance(chosen, list) and isinstance(rejected, list):
        length = _common_messages(chosen, rejected)
        fields = {"prompt": chosen[:length], "chosen": chosen[length:], "rejected": rejected[length:]}
    else:
        raise RowProblem("row_type", "one of chosen and rejected is text, the other messages")
    if not fields["prompt"]:
        raise RowProblem("prefix_mismatch", "chosen and rejected share no prompt")
    if not fields["chosen"] or not fields["rejected"]:
        short = "chosen" if not fields["chosen"] else "rejected"
        raise RowProblem("prefix_mismatch", f"{short} is nothing but the beginning of the other")
    if isinstance(chosen, list) and any(fields[side][0]["role"] != "assistant" for side in ("chosen", "rejected")):
        raise RowProblem("prefix_mismatch", "chosen and rejected part in a turn that is not the assistant's")
    if prompt is not None and isinstance(fields["prompt"], list):
        asked = (
            clean_messages(prompt, name="prompt")
            if isinstance(prompt, list)
            else fields["prompt"][:-1] + [{"role": fields["prompt"][-1]["role"], "content": prompt}]
        )
        if asked != fields["prompt"]:
            raise RowProblem("prefix_mismatch", "the prompt column is not what chosen and rejected begin with")
    return fields


def _common_messages(chosen: Messages, rejected: Messages) -> int:
    """Whole messages that both begin with; of two equal conversations, all but the last message."""
    if chosen == rejected:
        return len(chosen) - 1
    return next(
        (index for index, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b),
        min(len(chosen), len(rejected)),
    )


def _common_text(chosen: str, rejected: str) -> int:
    """Characters that both begin with, cut back to the end of a whole word; a blank starts the answer."""
    length = next(
        (index for index, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b),
        min(len(chosen), len(rejected)),
    )
    while length and not chosen[length : length + 1].isspace():
        length -= 1
    while length and chosen[length - 1].isspace():
        length -= 1
    return length


def _ranked_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:
    completions, scores = _lists(row, "completions", "scores")
    prompt = _side(row["prompt"], "prompt")
    sides = [_side(value, f"completions[{index}]") for index, value in enumerate(completions)]
    if isinstance(prompt, list) or any(isinstance(side, list) for side in sides):
        prompt, sides = as_messages(prompt, "user"), [as_messages(side, "assistant") for side in sides]
    return {"prompt": prompt, "completions": sides, "scores": [_number(score, "scores", typed) for score in scores]}


def _stepwise_fields(row: Mapping[str, Any], typed: bool) -> dict[str, Any]:
    steps, labels = _lists(row, "completions", "labels")
    if not all(isinstance(step, str) for step in steps):
        raise RowProblem("row_type", "completions of a stepwise row must be strings, one a step")
    return {
        "prompt": _side(row["prompt"], "prompt"),
        "completions": steps,
        "labels": [_label(label, "labels", typed) for label in labels],
    }


def _lists(row: Mapping[str, Any], first: str, second: str) -> tuple[list[Any], list[Any]]:
    for name in (first, second):
        if not isinstance(row[name], list):
            raise RowProblem("row_type", f"{name} must be a list, found {type(row[name]).__name__}")
    if len(row[first]) != len(row[second]):
        raise RowProblem("row_type", f"{len(row[first])} {first} but {len(row[second])} {second}")
    if not row[first]:
        raise RowProblem("row_type", f"{first} is an empty list")
    return row[first], row[second]


def _label(value: Any, name: str, typed: bool) -> bool:
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return bool(value)
    if not typed and str(value).strip().lower() in ("true", "false", "0", "1"):
        return str(value).strip().lower() in ("true", "1")
    raise RowProblem("label_type", f"{name} is {json.dumps(value, default=str)}")


def _number(value: Any, name: str, typed: bool) -> float:
    if not typed and isinstance(value, str):
        try:
            value = float(value)
        except ValueError as error:
            raise RowProblem("row_type", f"{name} must be a number, found {value!r}") from error
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RowProblem("row_type", f"{name} must be a finite number, found {value!r}")
    return float(value)


def _chat(fields: dict[str, Any], kind: str) -> dict[str, Any]:
    out = dict(fields)
    if "prompt" in out:
        out["prompt"] = as_messages(out["prompt"], "user")
    for name in ("completion", "chosen", "rejected"):
        if name in out:
            out[name] = as_messages(out[name], "assistant")
    if kind == "ranked":
        out["completions"] = [as_messages(side, "assistant") for side in out["completions"]]
    return out


_FIELDS: Mapping[str, Callable[[Mapping[str, Any], bool], dict[str, Any]]] = {
    "text": _text_fields,
    "messages": _messages_fields,
    "prompt": _prompt_fields,
    "prompt_completion": _completion_fields,
    "unpaired": _unpaired_fields,
    "preference": _preference_fields,
    "ranked": _ranked_fields,
    "stepwise": _stepwise_fields,
}


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    to: str = "trl",
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Rewrites a data file in another format or kind; returns what was done.

    Args:
        source: Anything that ``data.train`` may be.
        destination: A JSONL, JSON, CSV or Parquet file; it must not exist.
        to: ``trl``, ``sharegpt``, ``alpaca``, ``hh`` or ``openai``.
        kind: A kind to turn the rows into (default: the one that is detected).
        columns: As in ``data.columns``.

    Raises:
        DataError: A row that cannot be read. UsageError: a row that the format cannot hold.
    """
    if to not in WRITERS:
        raise UsageError(f"{to!r} is not a format", expected=", ".join(WRITERS), fix=nearest(to, WRITERS))
    if Path(destination).exists():
        raise UsageError("the output file exists", where=str(destination), fix="name another file, or remove it first")
    table = rename(read(source), columns or {})
    detected = detect(table)
    rows, problems = canonical(table, detected)
    if problems:
        row, problem = problems[0]
        raise DataError(problem.message, where=f"{table.source} {row.place}", found=f"{len(problems)} such rows")
    target = kind or detected.kind
    if target not in KINDS:
        raise UsageError(f"{target!r} is not a kind", expected=", ".join(KINDS), fix=nearest(target, KINDS))
    if to != "trl" and target not in ("messages", "prompt_completion", "preference"):
        raise UsageError(f"{to} cannot hold {target} rows", fix="to=trl")
    if to == "alpaca" and target == "preference":
        raise UsageError("alpaca cannot hold preference rows", fix="to=trl, to=sharegpt, to=openai or to=hh")
    changed = as_kind([(row.fields, row.extra) for row in rows], detected.kind, target)
    columns_of_kind = {*KINDS[target].columns, "tools"}
    written = write(
        (
            {**{name: row[name] for name in row if name not in columns_of_kind}, **WRITERS[to](row, target)}
            if to != "trl"
            else row
            for row in changed
        ),
        destination,
    )
    return {"read": len(table.rows), "written": written, "format": detected.format, "kind": target, "to": to}
