"""Looking at data before training on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from wootz.core import yaml
from wootz.core.config import Config, validate
from wootz.core.protocols import Tokenizer
from wootz.data import DataConfig, Prepared, audit, convert, examine
from wootz.models import ModelConfig, load_tokenizer
from wootz.training import TrainConfig

_RECIPE = (".yaml", ".yml")


class DataRequest(DataConfig):
    """Data, and the model whose tokenizer and chat template it is seen through."""

    model: str = "smollm2-135m"
    """Any model spec; only its tokenizer is loaded."""
    max_length: int = Field(default=TrainConfig().max_length, gt=1)
    """Longest prompt plus completion, in tokens."""


@dataclass(frozen=True)
class DataView:
    """Data as training would see it.

    Attributes:
        prepared: Groups, findings, counts.
        tokenizer: What they were tokenised with.
    """

    prepared: Prepared
    tokenizer: Tokenizer

    @property
    def ok(self) -> bool:
        """Whether training would accept it."""
        return not self.prepared.errors

    def audit(self) -> dict[str, Any]:
        """Returns what the answers give away: length, duplicates, contradictions, overlap."""
        return audit(self.prepared)


def look(source: str | Path, overrides: Iterable[str] = ()) -> DataView:
    """Returns the data of a file, or of a recipe, with everything that the checks say.

    Args:
        source: Anything that ``data.train`` may be, or a recipe's YAML file.
        overrides: ``key=value`` settings: of the recipe, or of ``data`` with ``model`` and ``max_length``.

    Raises:
        DataError: A file that cannot be read, or that is no kind of data.
    """
    if Path(source).suffix in _RECIPE:
        from wootz.api.recipe import load_recipe  # a recipe reaches further than data does

        recipe = load_recipe(source, overrides)
        data, model, length = recipe.data, recipe.model, recipe.train.max_length
        kinds = recipe.objective.build().needs.data  # pyright: ignore
    else:
        document = yaml.from_mapping({"train": str(source)}, source=str(source)).override(overrides)
        data = validate(DataRequest, document)
        model, length, kinds = ModelConfig(base=data.model), data.max_length, ()
    tokenizer = load_tokenizer(model)
    return DataView(examine(data, tokenizer, max_length=length, kinds=kinds), tokenizer)


class ShowRequest(Config):
    """How much to show."""

    rows: int = Field(default=2, gt=0)
    """Rows, from the first."""


def split_request(overrides: Iterable[str]) -> tuple[ShowRequest, list[str]]:
    """Returns what concerns showing, and the settings left for :func:`look`."""
    settings = list(overrides)
    mine = [setting for setting in settings if setting.partition("=")[0] in ShowRequest.model_fields]
    asked = validate(ShowRequest, yaml.from_mapping({}, source="command line").override(mine))
    return asked, [setting for setting in settings if setting not in mine]


class ConvertRequest(Config):
    """How to rewrite a data file."""

    to: str = "trl"
    """trl, sharegpt, alpaca, hh or openai."""
    kind: str | None = None
    """A kind to turn the rows into (default: the one that is detected)."""
    columns: dict[str, str] = {}
    """As in ``data.columns``."""


def convert_file(source: str, destination: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Rewrites a data file as the ``key=value`` settings of :class:`ConvertRequest` say; returns what was done."""
    asked = validate(ConvertRequest, yaml.from_mapping({}, source="command line").override(overrides))
    return convert(source, destination, to=asked.to, kind=asked.kind, columns=asked.columns)
