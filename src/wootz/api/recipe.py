"""A recipe: everything that makes a run, in one document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from wootz.core import yaml
from wootz.core.config import Config, validate
from wootz.core.errors import RecipeError, nearest
from wootz.data import DataConfig
from wootz.gates import GateConfig
from wootz.guards import GUARDS
from wootz.models import ModelConfig
from wootz.objectives import OBJECTIVES
from wootz.training import EvalConfig, TrainConfig

Guarded = GUARDS.field
Trained = OBJECTIVES.field


class Recipe(Config):
    """Model, data, objective, and how to train, guard and judge."""

    name: str = "run"
    """Names the run; its directory is runs/NAME unless --out says otherwise."""
    model: ModelConfig
    """What is trained."""
    data: DataConfig
    """What it is trained on."""
    objective: Trained
    """The loss."""
    train: TrainConfig = TrainConfig()
    """How long, how fast, how much at a time."""
    guards: tuple[Guarded, ...] = ()
    """What stops the run."""
    eval: EvalConfig | None = None
    """What is measured on held-out rows while training."""
    gate: GateConfig | None = None
    """How the result is judged against what it came from."""
    track: tuple[Literal["tensorboard", "trackio"], ...] = ()
    """Trackers besides the JSON lines that are always written."""
    seed: int = 0
    """Seed of everything random."""

    def to_yaml(self) -> str:
        """The recipe as YAML, defaults left out."""
        return yaml.dump(self.model_dump(mode="json", exclude_defaults=True) | _types(self))


def _types(recipe: Recipe) -> dict[str, Any]:
    """Components keep their ``type``, which is a default of its class and would be left out."""

    def named(config: Config) -> dict[str, Any]:
        kept = config.model_dump(mode="json", exclude_defaults=True)
        return {"type": config.type} | kept  # pyright: ignore[reportAttributeAccessIssue]

    found: dict[str, Any] = {"objective": named(recipe.objective)}
    return found | {"guards": [named(guard) for guard in recipe.guards]} if recipe.guards else found


def load_recipe(source: str | Path | Mapping[str, Any] | Recipe, overrides: Iterable[str] = ()) -> Recipe:
    """Returns the recipe in a file, of a name that ships with wootz, or given as a mapping, with overrides applied.

    Raises RecipeError with file, line and key of every mistake.
    """
    if isinstance(source, Recipe):
        source = source.model_dump(mode="json")
    if isinstance(source, Mapping):
        return validate(Recipe, yaml.override(dict(source), overrides))
    path = _find(source)
    document = yaml.read(path)
    content = yaml.override(document.content, overrides)
    content.setdefault("name", path.stem)
    return validate(Recipe, yaml.Document(content, document.lines, document.source))


def shipped_recipes() -> dict[str, Path]:
    """Name to file of the recipes that come with wootz."""
    folder = Path(str(resources.files("wootz"))) / "recipes"
    if not folder.is_dir():
        folder = Path(__file__).parents[3] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if str(source) in shipped:
        return shipped[str(source)]
    close = nearest(str(source), shipped)
    raise RecipeError(
        "no such recipe",
        where=str(source),
        expected=f"a YAML file, or one of {', '.join(shipped)}",
        fix=close,
    )
