"""What went in and what happened: facts at a glance, data audit, events, recipe, environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from wootz.figures import finite, number, token_strip
from wootz.report.files import RunFiles, mapping, sequence
from wootz.report.samples import plain

MOST_EVENTS = 150
MOST_FINDINGS = 60
MOST_CUES = 40
MOST_EXAMPLES = 4
MOST_EXAMPLE_TOKENS = 400
_NAMES = {
    "length_auc": "longer answer is better (0.5: no preference)",
    "length_pairs": "pairs compared for length",
    "chosen_length": "tokens in chosen answers, mean",
    "rejected_length": "tokens in rejected answers, mean",
    "balanced_rows": "rows among which length says nothing",
}
_TOLD_APART = ("kind", "cues", "cues_why", "label_noise", "says", "remedies")
_SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True)
class Event:
    """One line of the log of events."""

    time: str
    step: str
    kind: str
    source: str
    message: str
    data: str


@dataclass(frozen=True)
class Finding:
    """What a data check said."""

    check: str
    severity: str
    rows: str
    message: str
    fix: str


@dataclass(frozen=True)
class Cue:
    """How far one trivial cue tells the better answer."""

    name: str
    accuracy: str
    interval: str
    differs: str
    more: str


@dataclass(frozen=True)
class Data:
    """The data of one run."""

    title: str
    kind: str
    counts: tuple[tuple[str, str], ...]
    audit: tuple[tuple[str, str], ...]
    cues: tuple[Cue, ...]
    says: tuple[str, ...]
    findings: tuple[Finding, ...]
    examples: tuple[tuple[str, str, int], ...]


def facts(files: RunFiles) -> list[tuple[str, str]]:
    """Returns the few facts shown under the verdict, as name and value."""
    recipe = files.recipe
    model, objective = mapping(recipe.get("model")), mapping(recipe.get("objective"))
    lora = mapping(model.get("lora"))
    stages = [name for name, _ in files.parts()]
    found = [
        ("Base model", plain(model.get("base"))),
        ("Method", " \u2192 ".join(stages) if files.stages else plain(objective.get("type")).upper()),
        ("Trains", f"LoRA, rank {plain(lora.get('rank'))}" if lora else "all weights" if model else ""),
        ("Steps", _total_steps(files)),
        ("Training rows", _training_rows(files)),
        ("Time", duration(_seconds(files))),
        ("Peak memory", _peak_memory(files)),
        ("Seed", plain(recipe.get("seed"))),
        ("Finished", _finished(files)),
    ]
    return [(name, value) for name, value in found if value]


def _steps(files: RunFiles) -> float | None:
    return max((s for r in files.metrics if (s := finite(r.get("step"))) is not None), default=None)


def _total_steps(files: RunFiles) -> str:
    counts = [steps for _, part in files.parts() if (steps := _steps(part)) is not None]
    return " + ".join(f"{count:,.0f}" for count in counts)


def _training_rows(files: RunFiles) -> str:
    counts = []
    for _, part in files.parts():
        given = mapping(part.data.get("counts"))
        rows = next((finite(given[key]) for key in ("train", "train/kept", "train/rows") if key in given), None)
        rows = rows if rows is not None else finite(mapping(part.data.get("audit")).get("groups"))
        if rows is not None:
            counts.append(f"{rows:,.0f}")
    return " + ".join(counts)


def _times(files: RunFiles) -> list[float]:
    return [t for r in (*files.metrics, *files.events) if (t := finite(r.get("time"))) is not None]


def _seconds(files: RunFiles) -> float | None:
    spans = [max(times) - min(times) for _, part in files.parts() if (times := _times(part))]
    return sum(spans) if spans else None


def _peak_memory(files: RunFiles) -> str:
    peaks = [p for _, part in files.parts() for r in part.metrics if (p := finite(r.get("mem/peak_mb"))) is not None]
    return f"{number(max(peaks) / 1024)} GiB" if peaks else ""


def _finished(files: RunFiles) -> str:
    times = [t for _, part in files.parts() for t in _times(part)]
    return moment(max(times)) if times else ""


def duration(seconds: float | None) -> str:
    """Returns a length of time in its two largest units; nothing for None.

    Example:
        >>> duration(42.0), duration(192.0), duration(7384.0)
        ('42 s', '3 min 12 s', '2 h 3 min')
    """
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def moment(seconds: Any) -> str:
    """Returns a Unix time in UTC, to the minute; nothing for what is not one."""
    known = finite(seconds)
    if known is None or not 0 <= known < 4e11 / 2:
        return ""
    return datetime.fromtimestamp(known, UTC).strftime("%Y-%m-%d %H:%M UTC")


def events(files: RunFiles) -> tuple[list[Event], int]:
    """Returns the events to show, in order, and how many were left out: checkpoints, then information."""
    found = [event for event in files.events if event.get("kind") != "checkpoint"]
    weighty = [event for event in found if event.get("kind") != "info"]
    kept = found if len(found) <= MOST_EVENTS else weighty[-MOST_EVENTS:]
    return [_event(event) for event in kept], len(files.events) - len(kept)


def _event(event: Mapping[str, Any]) -> Event:
    data = event.get("data")
    return Event(
        time=moment(event.get("time")),
        step=number(event.get("step"), 9) if finite(event.get("step")) is not None else "",
        kind=plain(event.get("kind")) or "info",
        source=plain(event.get("source")),
        message=plain(event.get("message")),
        data="" if data in (None, {}, []) else json.dumps(data, ensure_ascii=False, default=str, indent=1),
    )


def data(files: RunFiles) -> list[Data]:
    """Returns the data of each part of the run that has some."""
    parts = list(files.parts())
    if not any(part is files for _, part in parts):
        parts.append(("this run", files))
    return [_data(name if len(parts) > 1 else "", part.data) for name, part in parts if part.data]


def _data(title: str, found: Mapping[str, Any]) -> Data:
    examples = []
    for example in map(mapping, sequence(found.get("examples"))[:MOST_EXAMPLES]):
        pieces = [str(piece) for piece in sequence(example.get("pieces"))]
        trained = [bool(one) for one in sequence(example.get("trained"))]
        strip = token_strip(pieces[:MOST_EXAMPLE_TOKENS], marked=trained or [False])
        name = " ".join(str(example[key]) for key in ("id", "name") if example.get(key))
        examples.append((name, strip, max(0, len(pieces) - MOST_EXAMPLE_TOKENS)))
    findings = [_finding(mapping(one)) for one in sequence(found.get("findings"))]
    findings.sort(key=lambda one: _SEVERITIES.index(one.severity) if one.severity in _SEVERITIES else 9)
    audit = mapping(found.get("audit"))
    return Data(
        title=title,
        kind=plain(found.get("kind")),
        counts=tuple(_pairs(found.get("counts"))),
        audit=tuple(_pairs({k: v for k, v in audit.items() if k not in _TOLD_APART})),
        cues=tuple(_cue(str(name), mapping(cue)) for name, cue in list(mapping(audit.get("cues")).items())[:MOST_CUES]),
        says=tuple(_sayings(audit))[:MOST_CUES],
        findings=tuple(findings[:MOST_FINDINGS]),
        examples=tuple(examples),
    )


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    for name, item in mapping(value).items():
        key = _NAMES.get(name, name.replace("/", ": ").replace("_", " "))
        if isinstance(item, (dict, list)):
            yield key, json.dumps(item, ensure_ascii=False, default=str)
        elif item is not None:
            yield key, number(item) if finite(item) is not None else str(item)


def _cue(name: str, cue: Mapping[str, Any]) -> Cue:
    low, high = (_percent(cue.get(end)) for end in ("low", "high"))
    return Cue(
        name="all cues together" if name == "all" else name[:60],
        accuracy=_percent(cue.get("accuracy")),
        interval=f"{low} to {high}" if low and high else "",
        differs=_percent(cue.get("differs"), 0),
        more=_percent(cue.get("chosen_has_more"), 0),
    )


def _percent(value: Any, digits: int = 1) -> str:
    known = finite(value)
    return "" if known is None else f"{known:.{digits}%}"


def _sayings(audit: Mapping[str, Any]) -> Iterator[str]:
    for sentence in (*sequence(audit.get("says")), *sequence(audit.get("remedies"))):
        yield plain(sentence)[:600]
    noise = mapping(audit.get("label_noise"))
    rate, low, high = (_percent(noise.get(name), 0) for name in ("rate", "low", "high"))
    if rate:
        yield f"labels that look wrong: {rate} ({low} to {high})"
    elif noise.get("why"):
        yield f"share of wrong labels not known: {plain(noise['why'])[:600]}"


def _finding(found: Mapping[str, Any]) -> Finding:
    rows = found.get("rows")
    count = len(rows) if isinstance(rows, list) else finite(rows)
    return Finding(
        check=plain(found.get("check")),
        severity=plain(found.get("severity")) or "info",
        rows="" if not count else f"{count:,.0f}",
        message=plain(found.get("message")),
        fix=plain(found.get("fix")),
    )


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields dotted keys and values of nested objects, in order.

    Example:
        >>> dict(flatten({"train": {"lr": 0.1}, "guards": [{"type": "kl"}]}))
        {'train.lr': '0.1', 'guards.0.type': 'kl'}
    """
    entries: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        entries = list(value.items())
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        entries = list(enumerate(value))
    for key, item in entries:
        yield from flatten(item, f"{prefix}.{key}" if prefix else str(key))
    if not entries and prefix:
        yield prefix, json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else plain(value)
