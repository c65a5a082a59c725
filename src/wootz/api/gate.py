"""The gate, on models that are named: any child against any parents, or a run against what it came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wootz.api.recipe import Recipe
from wootz.core.errors import UsageError
from wootz.core.rundir import RunDir
from wootz.gates import GateConfig, Verdict
from wootz.gates import gate as decide
from wootz.models import LanguageModel, load
from wootz.report import render


def gate(
    child: str | LanguageModel,
    parents: str | Sequence[str | LanguageModel] = (),
    config: GateConfig | None = None,
    *,
    out: RunDir | str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Any = None,
) -> Verdict:
    """Returns the verdict on a child, measured beside its parents; writes it, its items and a report.

    Args:
        child: Any model spec, or a model that is loaded.
        parents: What it is compared with (default, for a run directory: the model that the run started from).
        config: Suite, target, limits (default, for a run directory: its recipe's ``gate``).
        out: Where results are written (default: the child's run directory, or ``runs/gate``).
        seed: Of everything sampled.
        device: Where the models compute.
        progress: A display.

    Raises:
        UsageError: No parent is named, and the child is no run that tells what it came from.
    """
    recipe = recipe_of(child)
    given = [parents] if isinstance(parents, str) else list(parents)
    if not given and recipe is None:
        raise UsageError("no parent to compare with", where=str(child), fix="--parent MODEL")
    if config is None:
        config = (recipe.gate if recipe else None) or GateConfig()
    run = _where(child, recipe, out)
    models = [load(parent, device=device) if isinstance(parent, str) else parent for parent in given]
    if recipe is not None and not given:
        models = [load(recipe.model.model_copy(update={"lora": None}), device=device)]
    loaded = load(child, device=device) if isinstance(child, str) else child
    verdict = decide(loaded, models, config, out=run, seed=seed, progress=progress)
    render(run.path)
    return verdict


def recipe_of(model: str | LanguageModel) -> Recipe | None:
    """Returns the recipe of a run directory; None for any other model."""
    if not isinstance(model, str) or not (Path(model) / "resolved.json").is_file():
        return None
    return Recipe.model_validate(RunDir.open(model).read_json("resolved.json")["recipe"])


def _where(child: str | LanguageModel, recipe: Recipe | None, out: RunDir | str | Path | None) -> RunDir:
    if isinstance(out, RunDir):
        return out
    if out is None and recipe is not None:
        return RunDir.open(str(child))
    return RunDir.create(out or Path("runs") / "gate")
