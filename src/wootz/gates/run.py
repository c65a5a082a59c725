"""Carries out a gate: measures child and parents, compares them, writes what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wootz.core.errors import UsageError
from wootz.core.rundir import RunDir
from wootz.data import DataConfig, prepare
from wootz.evals.items import Result, items_of, read_rows
from wootz.evals.measures import Likelihood, PairAccuracy, Verified, limited
from wootz.evals.subject import Note, Subject
from wootz.evals.suites import suite_measures
from wootz.gates.config import GateConfig
from wootz.gates.decide import Judged, Verdict, decide, judge

MAX_LENGTH = 2048


@dataclass(frozen=True)
class Parent:
    """A model that the child came from, by the name it has in the verdict; its own suite, if not the gate's."""

    name: str
    model: Any
    suite: str | None = None


def gate(
    child: Any,
    parents: Sequence[Any],
    config: GateConfig,
    *,
    out: RunDir | None = None,
    seed: int = 0,
    note: Note | None = None,
    child_seed: int | None = None,
) -> Verdict:
    """Returns whether the child passes against each of its parents.

    Args:
        child: The new model.
        parents: Models (or :class:`Parent`) that it came from.
        out: Where ``evals/*.json`` and ``verdict.json`` are written.
        seed: Of samples (at a temperature above 0) and bootstraps.
        note: Told what is being measured.
        child_seed: Another seed for the child's samples (false-alarm runs compare a model with itself).

    Raises:
        UsageError, DataError: A target or suite that cannot be measured.
    """
    named = [one if isinstance(one, Parent) else Parent(getattr(one, "name", "parent"), one) for one in parents]
    if not named:
        raise UsageError("a gate needs a parent", fix="--parent MODEL")
    if len({one.name for one in named}) < len(named):
        named = [Parent(f"{one.name}-{index}", one.model, one.suite) for index, one in enumerate(named)]
    subject = Subject(child, seed if child_seed is None else child_seed, config.temperature)
    judged: dict[str, Judged] = {}
    for one in named:
        other = Subject(one.model, seed, config.temperature)
        prefix = f"{one.name}/" if len(named) > 1 else ""
        for measure in measures_of(config, suite=one.suite or config.suite, tokenizer=subject.tokenizer):
            if note is not None:
                note(f"measuring {prefix}{measure.name}")
            name = prefix + measure.name
            judged[name] = _measure(measure, subject, other, name, one.name, config=config, seed=seed, out=out)
    verdict = decide(judged, config, parents=len(named))
    if out is not None:
        out.write_json("verdict.json", verdict.to_json())
        _write_summaries(out, verdict)
    return verdict


def measure_model(
    model: Any, config: GateConfig, *, seed: int = 0, note: Note | None = None
) -> dict[str, list[Result]]:
    """Returns every measure's items for one model alone; distances from a parent are left out."""
    subject = Subject(model, seed, config.temperature)
    found = {}
    for measure in measures_of(config, suite=config.suite, tokenizer=subject.tokenizer):
        if measure.against_parent or (measure.needs_weights and not subject.has_weights):
            continue
        if note is not None:
            note(f"measuring {measure.name}")
        found[measure.name] = measure.measure(subject, None)
    return found


def measures_of(config: GateConfig, *, suite: str, tokenizer: Any) -> list[Any]:
    """Returns the target, then the further measures, then the suite's limits."""
    found = [_target(config, tokenizer)] if config.target is not None else []
    found += [measure.build() for measure in config.measures]  # pyright: ignore[reportAttributeAccessIssue]
    limits = suite_measures(suite, tokenizer=tokenizer)
    unknown = set(config.limits) - {measure.name for measure in limits}
    if unknown:
        known = ", ".join(measure.name for measure in limits)
        raise UsageError(f"no measure {sorted(unknown)[0]!r} in the suite", where="gate.limits", expected=known)
    found += [limited(measure, config.limits.get(measure.name)) for measure in limits]
    names = [measure.name for measure in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two measures are named {twice!r}", where="gate.measures", fix="rename one")
    return found


def _target(config: GateConfig, tokenizer: Any) -> Any:
    assert config.target is not None
    rows = read_rows(config.target, max_rows=config.max_items)
    columns = set(rows[0]) if rows else set()
    if {"chosen", "rejected"} <= columns:
        groups = _prepared(config, tokenizer, "preference")
        about = "held-out pairs whose chosen answer is likelier than the rejected one"
        return PairAccuracy("target", "target", about, groups=groups)
    if "completion" in columns and "gold" not in columns:
        groups = _prepared(config, tokenizer, "prompt_completion")
        about = "mean log-prob a token of held-out completions, nats"
        return Likelihood("target", "target", about, groups=groups)
    items = items_of(rows, where=config.target)
    if all(item.gold is None for item in items):
        raise UsageError(
            "the target has no gold answers", where=config.target, found=", ".join(columns), expected="a column gold"
        )
    about = f"answers to {Path(config.target).name} that the verifier accepts"
    signal = config.verifier.build()  # pyright: ignore[reportAttributeAccessIssue]
    return Verified("target", "target", about, items=items, signal=signal, max_new_tokens=config.max_new_tokens)


def _prepared(config: GateConfig, tokenizer: Any, kind: str) -> list[Any]:
    drop = ("empty_completion", "prompt_too_long")
    data = DataConfig(train=str(config.target), max_rows=config.max_items, drop=drop)
    return prepare(data, tokenizer, max_length=MAX_LENGTH, kinds=(kind,)).train  # pyright: ignore[reportArgumentType]


def _measure(
    measure: Any,
    child: Subject,
    parent: Subject,
    name: str,
    against: str,
    *,
    config: GateConfig,
    seed: int,
    out: RunDir | None,
) -> Judged:
    if measure.needs_weights and not (child.has_weights and parent.has_weights):
        why = "it needs weights, and an endpoint has none"
        return Judged("void", measure.kind, None, against, 0, limit=measure.limit, about=measure.about, note=why)
    mine, theirs = measure.measure(child, parent), measure.measure(parent, None)
    judged = judge(
        measure, mine, theirs, against=against, margin=config.margin, confidence=config.confidence, seed=seed
    )
    if out is not None:
        models = {"child": {"name": child.model.name}, "parent": {"name": parent.model.name}}
        document = {"measure": name, "kind": measure.kind, "models": models, "items": _items(mine, theirs)}
        out.write_json(f"evals/{name.replace('/', '_')}.json", document)
    return judged


def _items(child: Sequence[Result], parent: Sequence[Result]) -> list[dict[str, Any]]:
    theirs = {result.id: result for result in parent}
    return [
        {
            "id": one.id,
            "prompt": one.prompt,
            "gold": one.gold,
            "columns": dict(one.columns),
            "child": {"output": one.output, "value": one.value},
            "parent": {"output": theirs[one.id].output, "value": theirs[one.id].value},
        }
        for one in child
        if one.id in theirs
    ]


def _write_summaries(out: RunDir, verdict: Verdict) -> None:
    measures = verdict.to_json()["measures"]
    for name, summary in measures.items():
        file = f"evals/{name.replace('/', '_')}.json"
        if (out.path / file).exists():
            document = out.read_json(file)
            out.write_json(file, document | {"summary": summary})
