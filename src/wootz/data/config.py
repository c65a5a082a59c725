"""The ``data`` section of a recipe."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from wootz.core.config import Config
from wootz.core.errors import nearest
from wootz.data.findings import CHECKS
from wootz.data.kinds import KINDS, KindName
from wootz.data.rekind import Pairing

COLUMN_NAMES = (*dict.fromkeys(name for kind in KINDS.values() for name in kind.columns), "margin", "weight", "tools")


class DataConfig(Config):
    """Which rows to train on, what their columns mean, and what to do about the bad ones."""

    train: str
    """A JSONL, JSON, CSV, Parquet or Arrow file (.gz too), a folder saved by ``datasets``, or a Hub id
    (``owner/name``, ``owner/name:split``)."""
    held_out: str | None = None
    """Rows that are never trained on, from a source like ``train``."""
    held_out_fraction: float | None = Field(default=None, gt=0, lt=1)
    """Share of the prompts of ``train`` kept aside; all rows with the same prompt go to the same side."""
    columns: dict[str, str] = {}
    """Expected column name to the name in the file: ``{prompt: question, chosen: good, rejected: bad}``."""
    kind: KindName | None = None
    """What the rows are to be, when the file could be several kinds or holds another one: preference pairs become
    ``unpaired`` answers, ``ranked`` rows ``preference`` pairs whose ``margin`` is the difference of their scores."""
    pairs: Pairing = "best_worst"
    """Which pairs a ranked row gives: ``best_worst`` one, ``adjacent`` those next to each other in score, ``all``."""
    format: Literal["auto", "trl", "sharegpt", "alpaca", "hh", "openai"] = "auto"
    """How rows are written; ``auto`` looks at columns and contents and says what it saw."""
    chat: bool = False
    """Turn plain prompt and completion strings into user and assistant messages, so that the model's chat template
    applies. Without it plain strings are trained as they are."""
    max_rows: int | None = Field(default=None, gt=0)
    """Read only the first so many rows of each source."""
    drop: tuple[str, ...] = ()
    """Checks whose rows are left out (and counted): ``[identical_pairs]``."""
    allow: tuple[str, ...] = ()
    """Checks that may fail; what then happens is told as a warning: ``[prompt_too_long]``."""

    @field_validator("columns")
    @classmethod
    def _known_columns(cls, columns: dict[str, str]) -> dict[str, str]:
        for name in columns:
            if name not in COLUMN_NAMES:
                close = nearest(name, COLUMN_NAMES)
                hint = f"; did you mean {close!r}?" if close else ""
                swapped = " The key is the expected name, the value the name in the file." if not close else ""
                raise ValueError(f"{name!r} is not an expected column ({', '.join(COLUMN_NAMES)}){hint}{swapped}")
        return columns

    @field_validator("drop", "allow")
    @classmethod
    def _known_checks(cls, names: tuple[str, ...], info) -> tuple[str, ...]:
        fitting = [name for name, check in CHECKS.items() if getattr(check, info.field_name)]
        for name in names:
            if name not in fitting:
                close = nearest(name, fitting)
                hint = f"; did you mean {close!r}?" if close else f"; it can hold {', '.join(fitting)}"
                verb = "dropped" if info.field_name == "drop" else "allowed"
                raise ValueError(f"{name!r} is not a check that can be {verb}{hint}")
        return names

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self.held_out is not None and self.held_out_fraction is not None:
            raise ValueError("held_out and held_out_fraction both say what is held out; keep one")
        if self.pairs != "best_worst" and self.kind != "preference":
            raise ValueError("pairs does nothing without kind: preference")
        both = set(self.drop) & set(self.allow)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} is both dropped and allowed; keep one")
        return self
