"""A model judged against those it came from, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wootz.api.recipe import Recipe
from wootz.core.errors import UsageError
from wootz.core.rundir import RunDir
from wootz.evals.subject import Note
from wootz.gates import GateConfig, Parent, Verdict
from wootz.gates import gate as carry_out
from wootz.models import LanguageModel, load
from wootz.report import render


def gate(
    child: str | LanguageModel,
    parents: str | LanguageModel | Sequence[str | LanguageModel] = (),
    config: GateConfig | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    note: Note | None = None,
) -> Verdict:
    """Returns the verdict on a model against its parents, item by item, with intervals.

    Args:
        child: The new model: a spec, or a model that is loaded.
        parents: What it came from, one or several; a spec may end in ``=SUITE`` to be judged on another suite. Without
            any, a run directory is judged against the model that the run started from.
        config: As in a recipe's ``gate`` section (default: a run's own; else the limits of the suite ``small``).
        out: Folder for ``verdict.json``, ``evals/*.json`` and the report. A run that is judged again against what it
            came from keeps them itself.

    Raises:
        UsageError, DataError: Something that cannot be measured.
    """
    recipe = recipe_of(child)
    several = list(parents) if isinstance(parents, (list, tuple)) else [parents]
    if not several and recipe is None:
        raise UsageError("a gate needs a parent", where=str(child), fix="--parent MODEL")
    if config is None and recipe is not None:
        config = recipe.gate
    if not isinstance(config, GateConfig):
        config = GateConfig.model_validate(config or {})
    run = RunDir.create(out, if_exists="resume") if out is not None else None
    if recipe is not None and not several:
        run = run or RunDir.open(str(child))
        several = [load(recipe.model.model_copy(update={"lora": None}), device=device)]
    model = load(child, device=device) if isinstance(child, str) else child
    verdict = carry_out(model, [_parent(one, device) for one in several], config, out=run, seed=seed, note=note)
    if run is not None:
        render(run.path)
    return verdict


def recipe_of(model: str | LanguageModel) -> Recipe | None:
    """Returns the recipe of a run directory; None for any other model."""
    if not isinstance(model, str) or not (Path(model) / "resolved.json").is_file():
        return None
    return Recipe.model_validate(RunDir.open(model).read_json("resolved.json")["recipe"])


def _parent(given: Any, device: str) -> Parent:
    if not isinstance(given, str):
        return Parent(given.name, given)
    spec, equals, suite = given.rpartition("=")
    if not equals or Path(given).exists() or given.startswith("http"):
        spec, suite = given, ""
    model = load(spec, device=device)
    return Parent(model.name, model, suite or None)
