"""From values of items to a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from wootz.core.stats import Estimate, compare, holm, paired
from wootz.evals.items import Result


@dataclass(frozen=True)
class Judged:
    """One measure's standing.

    Attributes:
        verdict: better, worse, same, unclear or void (cannot be judged).
        held: For a limit, whether it holds; for a target, whether the policy is met; None when void.
        parent, child: Means over the items that count for both.
        difference, low, high: Child less parent, with its interval. For a limit higher is worse.
        limit: How much worse a limit may get.
        note: Why it is void, or what was left out.
    """

    verdict: Literal["better", "worse", "same", "unclear", "void"]
    kind: Literal["target", "limit"]
    held: bool | None
    against: str
    n: int
    parent: float | None = None
    child: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    limit: float | None = None
    margin: float | None = None
    about: str = ""
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a gate decided. ``measures`` is keyed by NAME, or PARENT/NAME with several parents."""

    passed: bool
    policy: Mapping[str, Any]
    measures: Mapping[str, Judged]
    control: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of ``verdict.json``."""
        found = {
            "passed": self.passed,
            "policy": dict(self.policy),
            "measures": {name: asdict(judged) for name, judged in self.measures.items()},
        }
        return found | ({"control": dict(self.control)} if self.control else {})


def judge(
    measure: Any,
    child: Sequence[Result],
    parent: Sequence[Result],
    *,
    against: str,
    margin: float,
    confidence: float = 0.95,
    seed: int = 0,
) -> Judged:
    """Returns the standing of one measure from both models' values, paired by item."""
    common = {"kind": measure.kind, "against": against, "limit": measure.limit, "about": measure.about}
    pairs = [(c.value, p.value) for c, p in zip(*_matched(child, parent), strict=True)]
    counted = [(c, p) for c, p in pairs if c is not None and p is not None]
    left_out = f"{len(pairs) - len(counted)} of {len(pairs)} items left out" if len(counted) < len(pairs) else ""
    if not counted:
        return Judged("void", held=None, n=0, note=left_out or "no items", **common)
    mine, theirs = [c for c, _ in counted], [p for _, p in counted]
    estimate = paired(
        mine,
        theirs,
        confidence=confidence,
        seed=seed,
        right_or_wrong=not (measure.against_parent or measure.both_sides),
    )
    numbers = {
        "n": estimate.n,
        "parent": sum(theirs) / len(theirs),
        "child": sum(mine) / len(mine),
        "difference": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "p_value": estimate.p_value,
    }
    if measure.kind == "target":
        verdict = compare(estimate, margin=margin)
        return Judged(verdict, held=None, margin=margin, note=left_out, **common, **numbers)
    if not measure.against_parent and not measure.both_sides and set(theirs) == {1.0}:
        return Judged("void", held=None, note="the parent fails it completely", **common, **numbers)
    verdict = compare(estimate, margin=measure.limit, higher_is_better=False)
    return Judged(verdict, held=_holds(estimate, measure), margin=None, note=left_out, **common, **numbers)


def _holds(estimate: Estimate, measure: Any) -> bool:
    above = estimate.high <= measure.limit
    return above and (not measure.both_sides or estimate.low >= -measure.limit)


def _matched(child: Sequence[Result], parent: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    theirs = {result.id: result for result in parent}
    return [c for c in child if c.id in theirs], [theirs[c.id] for c in child if c.id in theirs]


def decide(judged: Mapping[str, Judged], config: Any, *, parents: int = 1) -> Verdict:
    """Returns the verdict: targets corrected for their number (Holm), every limit held, nothing left in doubt."""
    targets = [name for name, one in judged.items() if one.kind == "target" and one.verdict != "void"]
    corrected = holm([judged[name].p_value or 0.0 for name in targets])
    measures = dict(judged)
    for name, p_value in zip(targets, corrected, strict=True):
        one = measures[name]
        verdict = one.verdict
        if verdict == "better" and len(targets) > 1 and p_value > 1 - config.confidence:
            verdict = "unclear"
        met = verdict == "better" or (config.policy == "not_worse" and (one.low or 0.0) >= -config.margin)
        measures[name] = replace(one, verdict=verdict, p_value=p_value, held=met)
    passed = all(_passes(one, config.allow) for one in measures.values())
    policy = {
        "policy": config.policy,
        "margin": config.margin,
        "confidence": config.confidence,
        "allow": list(config.allow),
        "suite": config.suite,
        "parents": parents,
    }
    return Verdict(passed, policy, measures)


def _passes(one: Judged, allow: Sequence[str]) -> bool:
    if one.verdict == "void":
        return "void" in allow
    if one.held:
        return True
    if one.kind == "target" or "unclear" not in allow or one.limit is None:
        return False
    return abs(one.difference or 0.0) <= one.limit
