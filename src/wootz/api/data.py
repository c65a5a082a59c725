"""Looking at data before training on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from wootz.core import yaml
from wootz.core.config import Config, validate
from wootz.core.errors import DataError, UsageError
from wootz.core.protocols import Tokenizer
from wootz.data import DataConfig, Prepared, audit, convert, examine, keep, log_prob_facts, read, write
from wootz.data.advice import likelihood_advice
from wootz.data.audit import row_of
from wootz.evals.refusal import is_refusal
from wootz.models import ModelConfig, load_tokenizer
from wootz.training import TrainConfig

_RECIPE = (".yaml", ".yml")
_COMPARED = ("preference", "ranked", "unpaired")


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
        config: Where they come from.
        model: Whose tokenizer it is.
    """

    prepared: Prepared
    tokenizer: Tokenizer
    config: DataConfig
    model: str | ModelConfig

    @property
    def ok(self) -> bool:
        """Whether training would accept it."""
        return not self.prepared.errors

    def audit(self) -> dict[str, Any]:
        """Returns what the pairs teach beside what they should. See :func:`wootz.data.audit`."""
        return audit(self.prepared, is_refusal=is_refusal)

    def log_probs(self, *, device: str = "auto") -> dict[str, Any]:
        """Returns how likely the model finds the better and the worse answers. See :func:`wootz.data.log_prob_facts`.

        Raises:
            UsageError: The data compares no answers.
        """
        from wootz.core.batch import GroupBatch
        from wootz.models import LanguageModel, load
        from wootz.training.annotators import annotate_in_parts

        if self.prepared.kind not in _COMPARED:
            raise UsageError(
                f"{self.prepared.kind} data compares no answers", where="--log-probs", expected=", ".join(_COMPARED)
            )
        model = load(self.model, device=device)
        if not isinstance(model, LanguageModel):
            raise UsageError("an endpoint does not say how likely a given answer is", where="--log-probs")
        batch = GroupBatch(tuple(self.prepared.train))
        said = annotate_in_parts(model, batch, "ref_logp", max_tokens=TrainConfig().micro_tokens)
        facts = log_prob_facts(self.prepared.kind, said.groups, "ref_logp")
        return {"model": model.spec, **(facts or {})}

    def write_balanced(self, path: Path) -> dict[str, Any]:
        """Writes the rows that :func:`wootz.data.keep` keeps, as they were read, to a file that does not exist.

        Returns:
            ``path``, ``written``, and ``dropped``: how many rows left, by reason.

        Raises:
            UsageError: Data that is no pairs, pairs made from other rows, or a file that exists.
            DataError: No row is left.
        """
        if self.prepared.kind != "preference":
            raise UsageError(
                f"{self.prepared.kind} data has no pairs to balance", where="--write", expected="preference"
            )
        if self.prepared.turned:
            raise UsageError(
                "pairs made from rows of another kind have no original form to write",
                where="--write",
                fix=f"first: wootz data convert {self.config.train} PAIRS.jsonl kind=preference",
            )
        _require_new(path)
        subset = keep(self.prepared)
        if not subset.rows:
            dropped = ", ".join(f"{name} {count:,}" for name, count in subset.dropped.items() if count)
            raise DataError("no rows are left", where=str(path), found=f"dropped: {dropped}", fix="add other pairs")
        table = read(self.config.train, max_rows=self.config.max_rows)
        written = write((table.rows[row_of(self.prepared.train[row])] for row in subset.rows), path)
        return {"path": str(path), "written": written, "dropped": subset.dropped}


def _require_new(path: Path) -> None:
    if path.exists():
        raise UsageError("the output file exists", where=str(path), fix="name another file, or remove it first")


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
    return DataView(examine(data, tokenizer, max_length=length, kinds=kinds), tokenizer, data, model)


def audit_file(
    source: str | Path,
    overrides: Iterable[str] = (),
    *,
    log_probs: bool = False,
    write_to: Path | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Returns the audit of a file, or of a recipe's data, as :func:`look` reads it.

    Args:
        log_probs: Ask the model how likely it finds the answers; adds ``log_probs``.
        write_to: Write the rows among which length does not tell chosen from rejected; adds ``balanced``.
        device: Where the model computes.
    """
    if write_to is not None:
        _require_new(write_to)
    view = look(source, overrides)
    found = view.audit()
    if log_probs:
        found["log_probs"] = view.log_probs(device=device)
        found["remedies"] += likelihood_advice(found["log_probs"])
    if write_to is not None:
        found["balanced"] = view.write_balanced(write_to)
    return found


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
