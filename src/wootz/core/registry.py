"""Named components of a plug point, found without importing them.

A registry maps a ``type`` name to the configuration class that builds the component. Built-in names are import paths,
so that listing them costs nothing; others come from entry points of the group ``wootz.PLUG`` (``wootz.objectives``...),
or from :meth:`Registry.register`. In a recipe a component is ``{type: NAME, **fields}``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, SerializeAsAny

from wootz.core.config import Config
from wootz.core.errors import RecipeError, nearest


class Registry:
    """One plug point: ``objectives``, ``annotators``, ``guards``, ``measures``...

    Args:
        plug: The plug point's name; third parties add to the entry-point group ``wootz.<plug>``.
        builtin: Type name to ``"module:ConfigClass"``.
    """

    def __init__(self, plug: str, builtin: Mapping[str, str]) -> None:
        self.plug = plug
        self._paths = dict(builtin)
        self._classes: dict[str, type[Config]] = {}
        self._scanned = False

    def _scan(self) -> None:
        if not self._scanned:
            self._scanned = True
            for point in entry_points(group=f"wootz.{self.plug}"):
                self._claim(point.name)
                self._paths[point.name] = point.value

    def _claim(self, name: str) -> None:
        if name in self._paths or name in self._classes:
            raise RecipeError(f"{self.plug} {name!r} is registered twice", fix="rename one of the two")

    def register(self, name: str, config_class: type[Config]) -> type[Config]:
        """Adds a component by hand (tests, notebooks)."""
        self._scan()
        self._claim(name)
        self._classes[name] = config_class
        return config_class

    def __iter__(self) -> Iterator[str]:
        self._scan()
        return iter(sorted({*self._paths, *self._classes}))

    def __contains__(self, name: str) -> bool:
        return name in set(self)

    def get(self, name: str) -> type[Config]:
        """Returns the configuration class of ``name``; an unknown name lists the known ones."""
        if name not in self:
            close = nearest(name, self)
            raise RecipeError(
                f"{name!r} is not one of the {self.plug}",
                expected=", ".join(self),
                fix=f"type: {close}" if close else None,
            )
        if name not in self._classes:
            module, _, attribute = self._paths[name].partition(":")
            self._classes[name] = getattr(importlib.import_module(module), attribute)
        return self._classes[name]

    def required(self, name: str) -> list[str]:
        """Returns the fields without a default."""
        return [field for field, info in self.get(name).model_fields.items() if info.is_required()]

    def validate(self, value: Any) -> Any:
        """Turns ``{type: NAME, ...}`` into its configuration; passes built ones through."""
        if isinstance(value, Config):
            name = getattr(value, "type", type(value).__name__)
            if name not in self or self.get(name) is not type(value):
                raise RecipeError(
                    f"{name!r} is not one of the {self.plug}", expected=", ".join(self), fix="register it"
                )
            return value
        if isinstance(value, str):
            value = {"type": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            raise ValueError(f"expected {{type: NAME, ...}} with NAME one of {', '.join(self)}")
        return self.get(value["type"]).model_validate(value)

    @property
    def field(self) -> Any:
        """The annotation for a recipe field that holds one of these components."""
        return Annotated[SerializeAsAny[Config], BeforeValidator(self.validate), _Component(self)]


@dataclass(frozen=True)
class _Component:
    """Marks a field as holding a component; its JSON Schema lists every known type with its fields."""

    registry: Registry

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:  # noqa: ARG002
        choices = []
        for name in self.registry:
            reference = handler(self.registry.get(name).__pydantic_core_schema__)
            handler.resolve_ref_schema(reference)["required"] = ["type", *self.registry.required(name)]
            choices.append(reference)
        return {"anyOf": [*choices, {"enum": [name for name in self.registry if not self.registry.required(name)]}]}
