"""The base of every configuration model: frozen, strict, and nested by component."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A part of a recipe. Unknown keys are errors; values never change after validation.

    Every field carries ``Field(description=...)``: ``wootz recipe explain`` and the JSON Schema print it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
