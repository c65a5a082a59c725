"""What a file holds, told by its columns and contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wootz.core.errors import DataError
from wootz.data.formats import is_transcript
from wootz.data.kinds import KINDS, YOUR_COLUMN, closeness, is_messages, suggest_columns
from wootz.data.read import Table
from wootz.data.rekind import kinds_from

_PEEK = 50
_NAMES = {
    "trl": "TRL columns",
    "sharegpt": "ShareGPT conversations",
    "alpaca": "Alpaca instructions",
    "hh": "Human:/Assistant: transcripts",
    "openai": "OpenAI fine-tuning rows",
}


@dataclass(frozen=True, slots=True)
class Detected:
    """A way to read a file.

    Attributes:
        format: ``trl``, ``sharegpt``, ``alpaca``, ``hh`` or ``openai``.
        kind: One of :data:`wootz.data.KINDS`.
        others: Other kinds that the same columns could be read as.
    """

    format: str
    kind: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.kind} data ({KINDS[self.kind].meaning}), written as {_NAMES[self.format]}"
        return text + (f"; its columns also fit {', '.join(self.others)}" if self.others else "")


def detect(table: Table, *, kinds: Sequence[str] = (), format: str = "auto") -> Detected:
    """Returns how to read the table, judged by columns and the first rows, never by its name.

    Args:
        table: Rows whose columns were already renamed by the user's mapping.
        kinds: The kinds that the objective accepts; empty means any.
        format: A format to insist on.

    Raises:
        DataError: No kind fits (with the ``columns:`` line that would mend it), or none that the objective accepts
            (with the objectives that do).
    """
    fitting = [(name, kind) for name, kind in _candidates(table) if format in ("auto", name)]
    wanted = [pair for pair in fitting if not kinds or pair[1] in kinds]
    if wanted:
        name, kind = wanted[0]
        others = tuple(dict.fromkeys(other for _, other in fitting if other not in (kind, "prompt")))
        return Detected(name, kind, others)
    # Every row with a prompt is also a prompt-only row, which says nothing about what the file was made for.
    telling = [kind for _, kind in fitting if kind != "prompt"] or [kind for _, kind in fitting]
    if telling and not _nearly(table.columns, kinds):
        raise _wrong_kind(table, telling[0], kinds)
    raise _wrong_columns(table, kinds, format)


def _nearly(columns: Iterable[str], kinds: Sequence[str]) -> bool:
    """Whether names alone stand between these columns and a wanted kind."""
    return any(YOUR_COLUMN not in suggest_columns(columns, kind) for kind in kinds)


def _wrong_kind(table: Table, kind: str, kinds: Sequence[str]) -> DataError:
    return DataError(
        f"the objective trains on {' or '.join(kinds)} data; this is {kind} data",
        where=table.source,
        found=f"columns {', '.join(table.columns)}: {KINDS[kind].meaning}",
        expected=" or ".join(f"{name} ({', '.join(KINDS[name].columns)})" for name in kinds),
        fix=_fitting_objectives(kind) + _conversion(kind, kinds),
    )


def _wrong_columns(table: Table, kinds: Sequence[str], format: str) -> DataError:
    best = max(kinds or KINDS, key=lambda kind: closeness(table.columns, kind))
    missing = [name for name in KINDS[best].required if name not in table.columns]
    what = f"no column {missing[0]!r}" if missing else f"no {format} rows"
    return DataError(
        what,
        where=table.source,
        found=f"{', '.join(map(str, table.columns)) or 'no columns'} ({len(table.rows):,} rows read)",
        expected=f"{best} data: {', '.join(KINDS[best].columns)}",
        fix=suggest_columns(table.columns, best) if missing else "data.format: auto",
    )


def _fitting_objectives(kind: str) -> str:
    """Which objective types train on ``kind``; asked of the registry only when an error needs it."""
    from wootz.objectives import SINGLE

    fitting = []
    for name in SINGLE:
        needs = SINGLE.get(name)().build().needs  # pyright: ignore[reportAttributeAccessIssue]
        if not needs.data or kind in needs.data:
            fitting.append(name)
    return f"objective.type: {', '.join(fitting)}" if fitting else f"no objective trains on {kind} data"


def _conversion(kind: str, kinds: Sequence[str]) -> str:
    reachable = [name for name in kinds if name in kinds_from(kind)]
    return f", or data.kind: {reachable[0]}" if reachable else ""


def _candidates(table: Table) -> Iterator[tuple[str, str]]:
    """(format, kind) pairs that the table could be, the most specific first."""
    columns = set(table.columns)
    sample = table.rows[:_PEEK]
    if "conversations" in columns and _all(sample, "conversations", is_messages):
        yield "sharegpt", _paired_or(columns, "messages")
    if {"input", "preferred_output", "non_preferred_output"} <= columns:
        yield "openai", "preference"
    if "messages" in columns and _any_message_key(sample, "weight"):
        yield "openai", "messages"
    if "instruction" in columns and ({"chosen", "rejected"} <= columns or "output" in columns):
        yield "alpaca", _paired_or(columns, "prompt_completion")
    transcripts = _has_transcripts(sample)
    for kind, spec in KINDS.items():
        if set(spec.required) <= columns and _contents_fit(kind, sample):
            if transcripts:
                yield "hh", "messages" if kind == "text" else kind
            yield "trl", kind


def _paired_or(columns: set[str], kind: str) -> str:
    if {"chosen", "rejected"} <= columns:
        return "preference"
    return "unpaired" if columns & {"label", "kto_tag"} else kind


def _has_transcripts(sample: Sequence[Mapping[str, Any]]) -> bool:
    """A column of dialogues: the prompt alone, or whole answers. A few rows may be damaged."""
    for names in (("chosen", "rejected"), ("prompt",), ("text",)):
        values = [row[name] for row in sample for name in names if isinstance(row.get(name), str)]
        if values and sum(map(is_transcript, values)) >= 0.9 * len(values):
            return True
    return False


def _contents_fit(kind: str, sample: Sequence[Mapping[str, Any]]) -> bool:
    """Tells kinds apart that share column names."""
    if kind in ("stepwise", "ranked"):
        return _all(sample, "completions", lambda value: isinstance(value, list))
    if kind == "text":
        return _all(sample, "text", lambda value: isinstance(value, str))
    return True


def _all(sample: Sequence[Mapping[str, Any]], name: str, test: Any) -> bool:
    values = [row[name] for row in sample if row.get(name) is not None]
    return bool(values) and sum(map(bool, map(test, values))) >= 0.9 * len(values)


def _any_message_key(sample: Sequence[Mapping[str, Any]], key: str) -> bool:
    messages = [row["messages"] for row in sample if is_messages(row.get("messages"))]
    return any(message.get(key) is not None for conversation in messages for message in conversation)
