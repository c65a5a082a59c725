"""The verdict as a person reads it: passed or not, why in one sentence, and each measure with its standing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wootz.figures import Interval, Standing, finite, number, signed
from wootz.report.files import RunFiles, mapping

_STANDINGS: dict[str, Standing] = {
    **dict.fromkeys(("better", "held", "holds", "passed", "ok"), "good"),
    **dict.fromkeys(("worse", "exceeded", "broken", "failed", "violated", "not held"), "bad"),
    **dict.fromkeys(("unclear", "void"), "unclear"),
}
_SIGNS = {"good": "\u2713", "bad": "\u2715", "unclear": "?", "neutral": "="}


@dataclass(frozen=True)
class Measure:
    """One line of the verdict. Numbers are None where the file has none."""

    name: str
    kind: str
    verdict: str
    standing: Standing
    against: str
    parent: float | None
    child: float | None
    difference: float | None
    low: float | None
    high: float | None
    n: int | None
    limit: float | None
    margin: float | None
    about: str = ""

    @property
    def sign(self) -> str:
        """A mark that says the standing without colour."""
        return _SIGNS[self.standing]

    @property
    def interval(self) -> Interval:
        """What the interval plot shows."""
        return Interval(self.name, self.difference, self.low, self.high, self.margin, self.limit, self.standing)

    @property
    def told(self) -> str:
        """The difference with its interval and the number of items, as text."""
        text = signed(self.difference)
        if self.low is not None and self.high is not None:
            text += f" (95% interval {number(self.low)} to {number(self.high)})"
        return text


@dataclass(frozen=True)
class Judgement:
    """What the top of the page says."""

    standing: Standing
    headline: str
    why: str
    measures: tuple[Measure, ...] = ()


def judge(files: RunFiles) -> Judgement:
    """Returns the verdict of a run, or why it has none."""
    if files.verdict is None:
        return _without_verdict(files)
    measures = tuple(
        _measure(files, name, mapping(found)) for name, found in mapping(files.verdict.get("measures")).items()
    )
    measures = tuple(sorted(measures, key=lambda measure: measure.kind != "target"))
    passed = files.verdict.get("passed")
    if passed is True:
        return Judgement("good", "Passed", _why_passed(measures), measures)
    if passed is False:
        return Judgement("bad", "Failed", _why_failed(measures), measures)
    return Judgement("unclear", "No verdict", "verdict.json does not say whether the model passed.", measures)


def _measure(files: RunFiles, name: str, found: dict[str, Any]) -> Measure:
    evaluation = files.evals.get(name) or files.evals.get(name.replace("/", "_")) or {}
    summary = mapping(evaluation.get("summary")) | found
    limit = finite(summary.get("limit"))
    kind = str(summary.get("kind") or evaluation.get("kind") or ("target" if limit is None else "limit"))
    verdict = str(summary.get("verdict", "unclear"))
    standing = _STANDINGS.get(verdict.lower(), "neutral")
    if verdict == "same":
        standing = "good" if kind == "limit" and limit is None else "neutral"
    if kind == "limit" and limit is not None and verdict in ("better", "worse", "same", "unclear"):
        high = finite(summary.get("high"))
        standing = (
            "unclear" if high is None else "good" if high <= limit else "bad" if verdict == "worse" else "unclear"
        )
    count = finite(summary.get("n"))
    return Measure(
        name=name,
        kind=kind,
        verdict=verdict,
        standing=standing,
        against=str(summary.get("against") or "parent"),
        n=None if count is None else int(count),
        limit=limit,
        about=str(summary.get("about") or summary.get("description") or ""),
        **{key: finite(summary.get(key)) for key in ("parent", "child", "difference", "low", "high", "margin")},
    )


def _why_passed(measures: Sequence[Measure]) -> str:
    targets = [m for m in measures if m.kind == "target"]
    limits = [m for m in measures if m.kind != "target"]
    said = [f"{m.verdict} on {m.name}: {m.told}{_items(m)}" for m in targets]
    start = f"The new model is {_join(said)}" if said else "The new model has no target measure"
    held = f"; all {len(limits)} limits held" if len(limits) > 1 else "; its limit held" if limits else ""
    return f"{start}{held}."


def _why_failed(measures: Sequence[Measure]) -> str:
    reasons = []
    for m in measures:
        if m.standing == "good" or (m.kind != "target" and m.standing == "neutral"):
            continue
        limit = "" if m.limit is None else f" against a limit of {number(m.limit)}"
        if m.verdict == "void":
            reasons.append(f"{m.name} is void: the parent already fails it completely")
        elif m.kind == "target":
            wanted = "not clearly better" if m.standing == "unclear" else m.verdict
            reasons.append(f"{m.name} is {wanted}: {m.told}{_items(m)}")
        else:
            state = "is over its limit" if m.standing == "bad" else "may be over its limit"
            reasons.append(f"{m.name} {state}: {m.told}{limit}")
    if not reasons:
        return "The policy was not met."
    return f"The new model does not pass: {_join(reasons)}."


def _items(measure: Measure) -> str:
    return "" if measure.n is None else f" on {measure.n:,} items"


def _join(parts: Sequence[str]) -> str:
    return "; ".join(parts[:-1]) + ("; and " if len(parts) > 1 else "") + parts[-1]


def _without_verdict(files: RunFiles) -> Judgement:
    """What the last serious event says; else that nothing was judged."""
    for event in reversed(files.events):
        kind, message = event.get("kind"), str(event.get("message") or "")
        if kind in ("guard", "stop"):
            source = str(event.get("source") or "guard")
            return Judgement(
                "bad", "Stopped", f"Stopped by the {source} guard: {message}. The last checkpoint is kept."
            )
        if kind == "error":
            first = message.split("\n", 1)[0]
            return Judgement("bad", "Not finished", f"The run ended with an error: {first}")
    if not files.metrics and not files.samples and not files.stages:
        return Judgement("neutral", "Nothing yet", "This run has not recorded anything yet.")
    why = "The run has no gate result, so nothing here says whether the new model is better than the one it came from."
    return Judgement("neutral", "Not judged", why)
