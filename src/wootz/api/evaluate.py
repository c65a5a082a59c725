"""Measures of one model, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wootz.core.rundir import RunDir
from wootz.core.stats import bootstrap_mean, proportion
from wootz.evals.items import Result
from wootz.evals.subject import Note
from wootz.gates import GateConfig, measure_model
from wootz.models import LanguageModel, load


def evaluate(
    model: str | LanguageModel,
    config: GateConfig | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    note: Note | None = None,
) -> dict[str, dict[str, Any]]:
    """Returns ``{measure: {"mean", "low", "high", "n"}}`` of one model, with 95% intervals over items.

    Args:
        model: A spec, or a model that is loaded.
        config: Target and suite, as in a recipe's gate (default: the suite ``small``).
        out: Writes ``evals/NAME.json``, item by item, into this folder.

    Distances from a parent (KL, win rate) need a gate.
    """
    if not isinstance(config, GateConfig):
        config = GateConfig.model_validate(config or {})
    if isinstance(model, str):
        model = load(model, device=device)
    measured = measure_model(model, config, seed=seed, note=note)
    run = RunDir.create(Path(out), if_exists="resume") if out is not None else None
    found = {}
    for name, results in measured.items():
        found[name] = _summary(results, seed)
        if run is not None:
            items = [
                {
                    "id": one.id,
                    "prompt": one.prompt,
                    "gold": one.gold,
                    "columns": dict(one.columns),
                    "child": {"output": one.output, "value": one.value},
                }
                for one in results
            ]
            models = {"child": {"name": model.name}}
            run.write_json(
                f"evals/{name}.json", {"measure": name, "models": models, "items": items, "summary": found[name]}
            )
    return found


def _summary(results: list[Result], seed: int) -> dict[str, Any]:
    values = [one.value for one in results if one.value is not None]
    if not values:
        return {"mean": None, "low": None, "high": None, "n": 0}
    if set(values) <= {0.0, 1.0}:
        low, high = proportion(int(sum(values)), len(values))
        return {"mean": sum(values) / len(values), "low": low, "high": high, "n": len(values)}
    estimate = bootstrap_mean(values, seed=seed)
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}
