"""Items one by one: which answers flipped between parent and child, and the slices an average hides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wootz.figures import Interval, Standing, finite, forest, histogram
from wootz.report.files import RunFiles, mapping, sequence
from wootz.report.judgement import Measure
from wootz.report.samples import plain, prompt_text

MOST_FLIPPED, MOST_FLIPPED_LIMIT = 100, 25
"""Items shown for each direction of a target, and of a limit."""
MOST_CHANGED = 8
_SMALLEST_SLICE = 8
_MOST_SLICES = 8


@dataclass(frozen=True)
class Item:
    """An item of an evaluation with both answers; ``change`` is ``fixed``, ``broken``, ``up`` or ``down``."""

    id: str
    change: str
    prompt: str
    gold: str
    columns: tuple[tuple[str, str], ...]
    parent: str
    child: str
    parent_value: float | None
    child_value: float | None


@dataclass(frozen=True)
class Changes:
    """What changed on one measure.

    Attributes:
        counts: Both right, fixed, broken, both wrong; None for a measure that is not right-or-wrong.
        total: Changed items in all; ``items`` holds those shown.
        figure: The distribution of values, for a measure that is not right-or-wrong.
    """

    name: str
    kind: str
    items: tuple[Item, ...]
    total: int
    n: int
    counts: tuple[int, int, int, int] | None = None
    figure: str = ""


@dataclass(frozen=True)
class Slices:
    """Differences of one measure within the values of one column."""

    measure: str
    column: str
    svg: str
    note: str = ""


def changes(files: RunFiles) -> list[Changes]:
    """Returns, for each evaluation with items of both models, what changed; targets first."""
    found = []
    for name, evaluation in files.evals.items():
        items = [mapping(item) for item in sequence(evaluation.get("items"))]
        pairs = [(item, *both) for item in items if (both := _values(item)) is not None]
        if pairs:
            measure = str(evaluation.get("measure") or name)
            found.append(_changes(measure, str(evaluation.get("kind") or "target"), pairs))
    return sorted(found, key=lambda one: one.kind != "target")


def _values(item: Mapping[str, Any]) -> tuple[float, float] | None:
    parent, child = (_value(mapping(item.get(side)).get("value")) for side in ("parent", "child"))
    return None if parent is None or child is None else (parent, child)


def _value(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else finite(value)


def _changes(name: str, kind: str, pairs: Sequence[tuple[dict[str, Any], float, float]]) -> Changes:
    parent, child = [p for _, p, _ in pairs], [c for _, _, c in pairs]
    if {*parent, *child} <= {0.0, 1.0}:
        up, down = ("fixed", "broken") if kind == "target" else ("up", "down")
        gained = [_item(item, up) for item, p, c in pairs if c > p]
        lost = [_item(item, down) for item, p, c in pairs if c < p]
        both = sum(p == c == 1.0 for _, p, c in pairs)
        counts = (both, len(gained), len(lost), len(pairs) - both - len(gained) - len(lost))
        most = MOST_FLIPPED if kind == "target" else MOST_FLIPPED_LIMIT
        shown = (*lost[:most], *gained[:most])
        return Changes(name, kind, shown, len(gained) + len(lost), len(pairs), counts)
    order = sorted(range(len(pairs)), key=lambda i: child[i] - parent[i])
    falls = [_item(pairs[i][0], "down") for i in order[:MOST_CHANGED] if child[i] < parent[i]]
    rises = [_item(pairs[i][0], "up") for i in reversed(order[-MOST_CHANGED:]) if child[i] > parent[i]]
    figure = histogram({"parent": parent, "new model": child}, title=f"{name}: values of items", x_label=name)
    total = sum(p != c for _, p, c in pairs)
    return Changes(name, kind, (*falls, *rises), total, len(pairs), figure=figure)


def _item(item: Mapping[str, Any], change: str) -> Item:
    parent, child = mapping(item.get("parent")), mapping(item.get("child"))
    columns = tuple((key, plain(value)) for key, value in mapping(item.get("columns")).items())
    return Item(
        id=str(item.get("id", "")),
        change=change,
        prompt=prompt_text(item.get("prompt")),
        gold=plain(item.get("gold")),
        columns=columns,
        parent=plain(parent.get("output")),
        child=plain(child.get("output")),
        parent_value=_value(parent.get("value")),
        child_value=_value(child.get("value")),
    )


def slices(files: RunFiles, measures: Sequence[Measure]) -> list[Slices]:
    """Returns, for each evaluation, the differences by column value and by length of the prompt.

    Slices that the evaluation brings (``summary.slices``: column to value to ``{"n", "difference", "low", "high"}``)
    are shown as they are. Otherwise they are made here, for columns of 2 to 8 values with at least 8 items each: the
    mean paired difference with a normal 95% interval, a description that is not corrected for the number of slices.
    """
    margins = {measure.name: measure.margin for measure in measures}
    found = []
    for name, evaluation in files.evals.items():
        measure = str(evaluation.get("measure") or name)
        target = evaluation.get("kind") != "limit"
        brought = mapping(mapping(evaluation.get("summary")).get("slices") or evaluation.get("slices"))
        tables = brought or _tables([mapping(item) for item in sequence(evaluation.get("items"))])
        for column, rows in tables.items():
            margin = margins.get(measure)
            shown = [_row(value, mapping(row), margin, target=target) for value, row in mapping(rows).items()]
            if len(shown) > 1:
                svg = forest(shown, title=f"{measure} by {column}", x_label="difference, new model \u2212 parent")
                found.append((not target, Slices(measure, column, svg)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _row(value: str, row: Mapping[str, Any], margin: float | None, *, target: bool) -> Interval:
    count, low, high = finite(row.get("n")), finite(row.get("low")), finite(row.get("high"))
    standing: Standing = "neutral"
    if target and low is not None and high is not None:
        standing = "good" if low > 0 else "bad" if high < 0 else "neutral"
    name = f"{value} ({count:.0f})" if count is not None else value
    return Interval(name, finite(row.get("difference")), low, high, margin, None, standing)


def _tables(items: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    pairs = [(item, both[1] - both[0]) for item in items if (both := _values(item)) is not None]
    grouped: dict[str, dict[str, list[float]]] = {}
    for item, difference in pairs:
        for column, value in mapping(item.get("columns")).items():
            if isinstance(value, (str, bool, int)):
                grouped.setdefault(column, {}).setdefault(str(value), []).append(difference)
    lengths = sorted(len(prompt_text(item.get("prompt"))) for item, _ in pairs)
    if len(lengths) >= 4 * _SMALLEST_SLICE and lengths[-len(lengths) // 4] > 1.3 * lengths[len(lengths) // 4]:
        cuts = [lengths[len(lengths) * k // 4] for k in (1, 2, 3)]
        names = [f"up to {cuts[0]:,}", f"to {cuts[1]:,}", f"to {cuts[2]:,}", "longer"]
        by_length: dict[str, list[float]] = {name: [] for name in names}
        for item, difference in pairs:
            length = len(prompt_text(item.get("prompt")))
            by_length[names[sum(length > cut for cut in cuts)]].append(difference)
        grouped["characters in the prompt"] = by_length
    tables = {}
    for column, groups in grouped.items():
        kept = {value: _mean(group) for value, group in groups.items() if len(group) >= _SMALLEST_SLICE}
        if 2 <= len(groups) <= _MOST_SLICES and len(kept) > 1:
            tables[column] = kept
    return tables


def _mean(differences: Sequence[float]) -> dict[str, float]:
    n, mean = len(differences), sum(differences) / len(differences)
    half = 1.96 * math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n)
    return {"n": n, "difference": mean, "low": mean - half, "high": mean + half}
