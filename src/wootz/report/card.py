"""The model card: ``README.md`` with Hub metadata, recipe, data, measures with intervals, and limits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wootz.figures import number, visible
from wootz.report import inputs
from wootz.report.files import RunFiles, mapping, read_run
from wootz.report.judgement import Measure, judge

_HUB_ID = re.compile(r"^[\w-][\w.-]*/[\w.-]+$")
_BUILT_IN = {"smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct"}
_MOST_EVENTS = 30
_TOLD = ("guard", "warning", "stop", "error", "fallback")


def card(run_dir: str | Path) -> str:
    """Returns the model card of a run, Markdown with YAML front matter as the Hub reads it.

    Raises:
        UsageError: There is no such directory.
    """
    files = read_run(run_dir)
    judgement = judge(files)
    parts = [f"# {_line(files.name)}", f"**{judgement.headline}.** {_line(judgement.why)}", _about(files)]
    if judgement.measures:
        parts += ["## Measures", _measures(judgement.measures)]
    parts += ["## Recipe", *_recipes(files)] if files.recipe_text or files.recipe else []
    parts += ["## Data", *_data(files)] if inputs.data(files) else []
    parts += ["## Events", _events(files), "## Limits", _limits(files, judgement.measures)]
    environment = dict(inputs.flatten(files.env))
    versions = [f"{key.removeprefix('packages.')} {value}" for key, value in environment.items() if "packages." in key]
    made = f"Made by wootz {version('wootz')}" + (f" with {', '.join(versions)}" if versions else "")
    body = "\n\n".join([*parts, f"{_line(made)}. Whole report: `report.html`."])
    return f"---\n{_metadata(files, judgement.measures)}\n---\n\n{body}\n"


def _metadata(files: RunFiles, measures: Sequence[Measure]) -> str:
    from huggingface_hub import EvalResult, ModelCardData  # deferred: 0.2 s, and only the card needs it

    model, objective = mapping(files.recipe.get("model")), mapping(files.recipe.get("objective"))
    base = _hub_base(model.get("base"))
    adapter = ["lora"] if model.get("lora") else []
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type="held-out",
            dataset_name=_plain(m.name),
            metric_type=_plain(m.name),
            metric_name=_plain(f"{m.name} ({m.kind}, {m.verdict})"),
            metric_value=m.child,
            metric_args={"parent": m.parent, "difference": m.difference, "low": m.low, "high": m.high, "n": m.n},
        )
        for m in measures
        if m.child is not None
    ]
    data = ModelCardData(
        base_model=base,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["wootz", *adapter, *([_plain(objective["type"])] if objective.get("type") else [])],
        model_name=_plain(files.name) if results else None,
        eval_results=results or None,
    )
    return data.to_yaml().strip()


def _hub_base(base: Any) -> str | None:
    """The base as a Hub id without its revision; a local folder is nobody else's business and is left out."""
    name = _BUILT_IN.get(str(base), str(base)).partition("@")[0]
    return name if _HUB_ID.match(name) and ".." not in name and not Path(name).exists() else None


def _about(files: RunFiles) -> str:
    return (
        "\n".join(f"- {name}: {_line(value)}" for name, value in inputs.facts(files)) or "Nothing is known of this run."
    )


def _measures(measures: Sequence[Measure]) -> str:
    head = ("Measure", "Kind", "Result", "Parent", "New", "Difference", "95% interval", "Limit", "Items")
    rows = [
        (m.name, m.kind, m.verdict, number(m.parent), number(m.child), m.shown[0], m.shown[1],
         "" if m.limit is None else number(m.limit), "" if m.n is None else f"{m.n:,}")
        for m in measures
    ]  # fmt: skip
    return _table(head, rows)


def _recipes(files: RunFiles) -> list[str]:
    parts = []
    shown = [(name, part) for name, part in files.parts() if part.recipe_text] or [("", files)]
    for name, part in shown:
        parts += [f"{_line(name)}:"] if len(shown) > 1 else []
        text = part.recipe_text or json.dumps(part.recipe, indent=1, ensure_ascii=False, default=str)
        parts.append(_fenced(text, "yaml"))
    return parts


def _data(files: RunFiles) -> list[str]:
    parts = []
    for one in inputs.data(files):
        parts += [f"### {_line(one.title)}"] if one.title else []
        parts.append(_table(("", ""), [("kind", one.kind), *one.counts, *one.audit]))
        if one.says:
            parts.append("\n".join(f"- {_line(sentence)}" for sentence in one.says))
        found = [f for f in one.findings if f.severity != "info"]
        if found:
            parts.append("\n".join(f"- {_line(f.severity)}: {_line(f.message)}" for f in found))
    return parts


def _events(files: RunFiles) -> str:
    told = [event for _, part in files.parts() for event in part.events if event.get("kind") in _TOLD]
    lines = []
    for event in told[:_MOST_EVENTS]:
        step = f" at step {number(event['step'], 9)}" if event.get("step") is not None else ""
        source = f" {event['source']}" if event.get("source") else ""
        lines.append(_line(f"- {event.get('kind')}{source}{step}: {event.get('message')}"))
    if len(told) > _MOST_EVENTS:
        lines.append(f"- and {len(told) - _MOST_EVENTS} more in `events.jsonl`")
    return "\n".join(lines) or "No guard, warning or fallback."


def _limits(files: RunFiles, measures: Sequence[Measure]) -> str:
    lines = []
    if measures:
        least = min((m.n for m in measures if m.n is not None), default=0)
        lines.append(
            f"- Measured on held-out items of one kind (at least {least} a measure): other uses are not measured."
        )
    else:
        lines.append("- No gate ran: nothing here says that this model is better than the one it came from.")
    lines += [f"- {_line(m.name)} is {_line(m.verdict)}." for m in measures if m.standing in ("bad", "unclear")]
    if len(measures) > 1:
        lines.append("- Intervals are 95% for each measure by itself.")
    lines += [f"- Not all of the run could be read: {_line(problem)}." for problem in files.problems]
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return "\n".join(lines + [f"| {' | '.join(_line(cell) for cell in row)} |" for row in rows])


def _fenced(text: str, language: str) -> str:
    """A fence longer than any in the text, so that the text cannot end it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text).rstrip()}\n{fence}"


def _plain(text: Any) -> str:
    """One line without hidden characters, for metadata."""
    return " ".join(visible(text).split())[:200]


def _line(text: Any) -> str:
    """One line of Markdown in which the text is only text: markup characters that would act are escaped."""
    line = " ".join(visible(text).split())[:1000]
    marker = line[:2] if line.startswith("- ") else ""
    rest = re.sub(r"([\\`*\[\]|!#])", r"\\\1", line[len(marker) :])
    return marker + rest.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
