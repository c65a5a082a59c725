"""The verdict as a person reads it: passed or not, why in one sentence, and each measure with its standing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wootz.figures import Interval, Standing, finite, measured, number
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
    def shown(self) -> tuple[str, str]:
        """The difference and its interval as text."""
        return measured(self.difference, self.low, self.high)

    @property
    def told(self) -> str:
        """The difference, its interval and the number of items, as text for a sentence."""
        estimate, ends = self.shown
        parts = [estimate, f"95% interval {ends}" if ends else "", "" if self.n is None else f"{self.n:,} items"]
        return ", ".join(part for part in parts if part)


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
    if isinstance(summary.get("held"), bool) and kind == "limit":
        standing = "good" if summary["held"] else "bad" if verdict == "worse" else "unclear"
        verdict = "held" if summary["held"] else verdict
    elif kind == "limit" and limit is not None and verdict in ("better", "worse", "same", "unclear"):
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
    start = _join([f"{m.verdict} on {m.name} ({m.told})" for m in targets])
    held, others = [m for m in limits if m.standing == "good"], [m for m in limits if m.standing != "good"]
    end = ""
    if limits and not others:
        end = ", and " + (f"all {len(limits)} limits held" if len(limits) > 1 else "its limit held")
    elif limits:
        end = f", and {len(held)} of {len(limits)} limits held ({_join([f'{m.name}: {m.verdict}' for m in others])})"
    return f"The new model {'is ' + start if start else 'has no target measure'}{end}."


def _why_failed(measures: Sequence[Measure]) -> str:
    reasons = [reason for m in measures if (reason := _reason(m))]
    return f"The new model {_join(reasons)}." if reasons else "The new model does not meet the policy."


def _reason(m: Measure) -> str:
    """What is wrong on one measure, to follow "The new model"; nothing when all is well."""
    limit = "" if m.limit is None else f" of {number(m.limit)}"
    if m.verdict == "void":
        return f"cannot be judged on {m.name}, which the parent already fails completely"
    if m.kind == "target":
        words = {"bad": "is worse", "unclear": "is not clearly better", "neutral": "is no better"}
        return f"{words[m.standing]} on {m.name} ({m.told})" if m.standing in words else ""
    words = {"bad": "is over", "unclear": "may be over"}
    return f"{words[m.standing]} the limit{limit} on {m.name} ({m.told})" if m.standing in words else ""


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f", and {parts[-1]}" if parts else ""


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
