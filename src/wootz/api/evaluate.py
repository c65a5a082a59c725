"""Measures of one model, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from wootz.core.config import Config
from wootz.core.rundir import RunDir
from wootz.core.stats import bootstrap_mean, proportion
from wootz.evals import MEASURES, Result
from wootz.evals.subject import Note
from wootz.gates import GateConfig, measure_model
from wootz.models import LanguageModel, load
from wootz.signals import SIGNALS
from wootz.signals.text import ExactConfig

Verifier = SIGNALS.field
Further = MEASURES.field


class EvaluateConfig(Config):
    """What is measured of one model: the keys of a gate, less those that compare."""

    target: str | None = None
    """Held-out rows: prompt and gold, or prompt, chosen and rejected, or prompt and completion."""
    verifier: Verifier = ExactConfig()
    """Decides whether an answer to the target is right."""
    suite: str = "small"
    """Built-in measures: small, full, none, or a folder of prompt sets."""
    measures: tuple[Further, ...] = ()
    """Further measures."""
    max_items: int | None = Field(default=None, gt=0)
    """At most this many rows of the target."""
    max_new_tokens: int = Field(default=64, gt=0)
    """Longest answer to the target."""
    temperature: float = Field(default=0.0, ge=0)
    """Of all answers; 0 is greedy."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """Of every interval."""


def evaluate(
    model: str | LanguageModel,
    config: EvaluateConfig | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    note: Note | None = None,
) -> dict[str, dict[str, Any]]:
    """Returns ``{measure: {"mean", "low", "high", "n"}}`` of one model, with intervals over items.

    Args:
        model: A spec, or a model that is loaded.
        config: Target, suite, further measures (default: the suite ``small``).
        out: Writes ``evals/NAME.json``, item by item, into this folder.

    Distances from a parent (KL, win rate) need a gate.
    """
    if not isinstance(config, EvaluateConfig):
        config = EvaluateConfig.model_validate(config or {})
    gate = GateConfig.model_validate(dict(config))
    loaded = load(model, device=device) if isinstance(model, str) else model
    measured = measure_model(loaded, gate, seed=seed, note=note)
    run = RunDir.create(out, if_exists="resume") if out is not None else None
    found = {}
    for name, results in measured.items():
        found[name] = _summary(results, config.confidence, seed)
        if run is not None:
            items = [_item(one) for one in results]
            document = {"measure": name, "models": {"child": {"name": loaded.name}}, "items": items}
            run.write_json(f"evals/{name}.json", document | {"summary": found[name]})
    return found


def _item(one: Result) -> dict[str, Any]:
    answer = {"output": one.output, "value": one.value}
    return {"id": one.id, "prompt": one.prompt, "gold": one.gold, "columns": dict(one.columns), "child": answer}


def _summary(results: Sequence[Result], confidence: float, seed: int) -> dict[str, Any]:
    values = [float(one.value) for one in results if one.value is not None]
    if not values:
        return {"mean": None, "low": None, "high": None, "n": 0}
    if set(values) <= {0.0, 1.0}:
        low, high = proportion(int(sum(values)), len(values), confidence=confidence)
        return {"mean": sum(values) / len(values), "low": low, "high": high, "n": len(values)}
    estimate = bootstrap_mean(values, confidence=confidence, seed=seed)
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}
