"""The base of every configuration model: frozen, strict, nested by component."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from wootz.core import yaml

if TYPE_CHECKING:
    from wootz.core.registry import Registry

C = TypeVar("C", bound="Config")


class Config(BaseModel):
    """A part of a recipe. Unknown keys are errors; values never change after validation.

    Every field has a docstring of its own: ``wootz recipe explain`` and the JSON Schema print it. A field that other
    tools call by another name lists it in ``json_schema_extra={"aka": [...]}``; mistakes then find it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def validate(config_class: type[C], document: yaml.Document | Mapping[str, Any]) -> C:
    """Returns the validated configuration. Raises RecipeError that names every mistake with its place and fix."""
    if not isinstance(document, yaml.Document):
        document = yaml.from_mapping(document)
    try:
        return config_class.model_validate(document.content)
    except ValidationError as error:
        from wootz.core.mistakes import explain_mistakes

        raise explain_mistakes(config_class, error, document) from None


def registry_of(info: FieldInfo) -> Registry | None:
    """Returns the registry behind a field that holds one of its components, or a sequence of them."""
    candidates = [*info.metadata]
    for argument in get_args(info.annotation):
        candidates += getattr(argument, "__metadata__", ())
    return next((found for c in candidates if (found := getattr(c, "registry", None)) is not None), None)


def sections_of(annotation: Any) -> list[type[Config]]:
    """Returns the configuration classes that an annotation names, unions and sequences looked into."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation] if annotation is not Config else []
    return [found for argument in get_args(annotation) for found in sections_of(argument)]


def fields_of(config_class: type[Config], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yields every dotted key of a configuration class with its pydantic FieldInfo, nested sections included."""
    for name, info in config_class.model_fields.items():
        yield prefix + name, info
        for nested in sections_of(info.annotation):
            yield from fields_of(nested, f"{prefix}{name}.")


def names_of(name: str, info: FieldInfo) -> tuple[str, ...]:
    """Returns the field's name and what other tools call it."""
    extra = info.json_schema_extra
    return (name, *(extra.get("aka", ()) if isinstance(extra, dict) else ()))  # pyright: ignore
