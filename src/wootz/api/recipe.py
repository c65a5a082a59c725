"""A recipe: everything that makes a run, in one document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from wootz.api.shipped import find_recipe, shipped_recipes
from wootz.core import yaml
from wootz.core.config import Config, validate
from wootz.data import DataConfig
from wootz.gates import GateConfig
from wootz.guards import GUARDS
from wootz.models import ModelConfig
from wootz.objectives import OBJECTIVES
from wootz.training import EvalConfig, TrainConfig
from wootz.training.trackers import TrackerName

__all__ = ["Recipe", "find_recipe", "load_recipe", "shipped_recipes"]

Guarded = GUARDS.field
Trained = OBJECTIVES.field


class Recipe(Config):
    """Model, data, objective, and how to train, guard and judge."""

    name: str = "run"
    """Names the run; its directory is runs/NAME unless --out says otherwise. By default the file's name."""
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
    track: tuple[TrackerName, ...] = ()
    """Trackers besides the JSON lines that are always written."""
    seed: int = 0
    """Seed of everything random."""

    @model_validator(mode="after")
    def _nothing_ignored(self) -> Self:
        """Settings that this combination would not read are mistakes, not decoration."""
        if self.eval is not None:
            fresh = EvalConfig.model_fields["max_new_tokens"].default
            if not self.eval.samples and self.eval.max_new_tokens != fresh:
                raise ValueError(
                    "eval.max_new_tokens does nothing without eval.samples; set eval.samples, or remove it"
                )
            if self.eval.samples > self.eval.max_groups:
                raise ValueError("eval.samples is more than eval.max_groups; raise eval.max_groups")
            if self.data.held_out is None and self.data.held_out_fraction is None:
                raise ValueError("eval needs held-out rows; set data.held_out, or data.held_out_fraction: 0.1")
        return self

    def resolved(self) -> dict[str, Any]:
        """Returns plain JSON, every default written out; ``Recipe.model_validate`` reads it back as an equal recipe."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """Returns YAML with defaults left out; :func:`load_recipe` reads it back as an equal recipe."""
        return yaml.dump(_said(self))


def _said(config: Config) -> dict[str, Any]:
    """What a person would have to write: no defaults, but always the ``type`` of a component."""
    said: dict[str, Any] = {}
    for name, info in type(config).model_fields.items():
        value = getattr(config, name)
        if value != info.get_default() or info.is_required() or name == "type":
            said[name] = _plain(value)
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return _said(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def load_recipe(source: str | Path | Mapping[str, Any] | Recipe, overrides: Iterable[str] = ()) -> Recipe:
    """Returns the recipe in a file, of a name that ships with wootz, or given as a mapping, with overrides applied.

    Args:
        source: A YAML file, the name of a recipe that ships with wootz, or a recipe already in Python.
        overrides: Dotted ``key=value`` settings; values are YAML.

    Raises:
        RecipeError: With file, line and key of every mistake.
    """
    if isinstance(source, Recipe):
        document = yaml.from_mapping(source.resolved())
    elif isinstance(source, Mapping):
        document = yaml.from_mapping(source)
    else:
        path = find_recipe(source)
        document = yaml.read(path)
        document.content.setdefault("name", path.stem)
    return validate(Recipe, document.override(overrides))
