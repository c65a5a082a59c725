"""A small recipe of its own, with every kind of field, for the tests of configuration."""

from typing import Literal, Self

from pydantic import Field, model_validator

from wootz.core.config import Config
from wootz.core.registry import Registry


class Ball(Config):
    """A sphere."""

    type: Literal["ball"] = "ball"
    radius: float = Field(gt=0, json_schema_extra={"aka": ["r"]})
    """Centre to surface. In metres."""


class Box(Config):
    """A cuboid."""

    type: Literal["box"] = "box"
    sides: tuple[float, ...] = (1.0, 1.0, 1.0)
    """Its three sides."""
    hollow: bool = False
    """Whether it is empty."""


SHAPES = Registry("shapes", {"ball": f"{__name__}:Ball", "box": f"{__name__}:Box"})


class Finish(Config):
    """How it looks."""

    colour: Literal["red", "green", "blue"] = "red"
    """Its colour."""
    gloss: float = Field(0.5, ge=0, le=1, json_schema_extra={"aka": ["shininess"]})
    """Share of light that is mirrored."""


class Order(Config):
    """What is made."""

    name: str
    """On the label."""
    count: int = Field(1, gt=0, json_schema_extra={"aka": ["num", "quantity"]})
    """How many."""
    finish: Finish = Finish()
    """How it looks."""
    spare: Finish | None = None
    """How the spare one looks."""
    shape: SHAPES.field
    """What it is."""
    extras: tuple[SHAPES.field, ...] = ()
    """What comes with it."""
    size: Literal["auto"] | tuple[int, ...] = "auto"
    """Its size."""
    notes: dict[str, str] = {}
    """Anything."""

    @model_validator(mode="after")
    def _one_red(self) -> Self:
        if self.count > 100 and self.finish.colour == "red":
            raise ValueError("more than 100 red ones cannot be made; choose another colour")
        return self
