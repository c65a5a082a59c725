"""An audit in words: what it found, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TELLING = 0.55
"""A cue tells answers apart when the lower end of its accuracy's interval is above this."""
_DECIDES = 0.98
_NOISY = 0.05
_UNLIKELY = 0.5
_SHOWN_ROWS = 5


def sayings(found: Mapping[str, Any]) -> list[str]:
    """Returns what an audit found, a sentence each; empty where no answers are compared."""
    if "label_noise" not in found:
        return []
    cues = found["cues"]
    if cues is None:
        return [f"too few to judge: {found['cues_why']}"]
    said = [_alone(name, cue) for name, cue in cues.items() if name != "all" and cue["low"] > TELLING]
    together = cues["all"]
    span = f"{_percent(together['accuracy'])} of held-out pairs ({_percent(together['low'])} to {_percent(together['high'])})"
    if together["low"] > TELLING:
        said.append(f"without reading an answer, all cues together tell {span}")
    elif together["low"] > 0.5:
        said.append(f"cues say little: all together tell {span}")
    else:
        said.append(f"cues say nothing: all together tell {span}")
    return said


def _alone(name: str, cue: Mapping[str, Any]) -> str:
    more = (cue["chosen_has_more"] or 0.0) > 0.5
    lean = f"has {'more' if more else 'less'}" if name != "length" else f"is the {'longer' if more else 'shorter'} one"
    text = f"{name} alone tells {_percent(cue['accuracy'])} of held-out pairs: the better answer {lean}"
    only = f". A model can learn {name} from these pairs and nothing else"
    return text + only if cue["accuracy"] >= _DECIDES else text


def remedies(found: Mapping[str, Any]) -> list[str]:
    """Returns what to do about it, a sentence each."""
    advice = []
    cues = found.get("cues") or {}
    telling = [name for name, cue in cues.items() if name != "all" and cue["low"] > TELLING]
    kept = found.get("balanced_rows")
    if "length" in telling:
        advice.append(_balance(found, kept))
    twice = sum(found[name] for name in ("duplicates", "near_duplicates"))
    against = sum(found[name] for name in ("contradictions", "near_contradictions"))
    if twice or against:
        drop = "wootz data audit --write FILE leaves them out" if kept else "drop them"
        advice.append(f"{twice:,} rows repeat and {against:,} contradict another, exactly or nearly: {drop}")
    others = [name for name in telling if name != "length"]
    if others:
        advice.append(f"add pairs in which both answers are alike in: {', '.join(others)}")
    noise = found.get("label_noise") or {}
    if noise.get("rate") is not None and noise["low"] > _NOISY:
        rows = ", ".join(str(row) for row in noise["suspects"][:_SHOWN_ROWS])
        which = f" (surest: rows {rows}, counted from 0)" if rows else ""
        advice.append(f"about {_percent(noise['rate'])} of labels look wrong{which}: read them, then swap or drop them")
    return advice


def _balance(found: Mapping[str, Any], kept: int | None) -> str:
    if kept:
        return (
            f"wootz data audit --write FILE keeps {kept:,} of {found['groups']:,} rows, among which length says nothing"
        )
    if kept is None:
        return "balance the answers by length: add rows whose better answer is of the other length"
    return "no choice of rows balances length: add pairs whose better answer is of the other length"


def likelihood_advice(facts: Mapping[str, Any]) -> list[str]:
    """Returns what to do when answers are unlikely under the model that is to learn from them."""
    gap = facts["chosen"]["mean"] - facts["rejected"]["mean"]
    if gap >= -_UNLIKELY:
        return []
    return [
        f"the better answers are {-gap:.2f} nats a token less likely under the model than the worse ones, as if another "
        "wrote them: train on them first (sft), or compare the model's own answers"
    ]


def _percent(value: float) -> str:
    return f"{value:.0%}" if 0.005 <= value <= 0.995 or value in (0.0, 1.0) else f"{value:.1%}"
