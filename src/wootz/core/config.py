"""The base of every configuration model: frozen, strict, nested by component; and its errors made readable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from wootz.core.errors import RecipeError, WootzError, nearest
from wootz.core.yaml import Document, KeyPath

C = TypeVar("C", bound="Config")


class Config(BaseModel):
    """A part of a recipe. Unknown keys are errors; values never change after validation.

    Every field has a docstring of its own: ``wootz recipe explain`` and the JSON Schema print it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)


def validate(config_class: type[C], document: Document | Mapping[str, Any]) -> C:
    """Returns the validated configuration; every mistake is one line of a RecipeError, with its place and fix."""
    content = document.content if isinstance(document, Document) else document
    try:
        return config_class.model_validate(content)
    except ValidationError as error:
        lines = [_line(config_class, item, document) for item in error.errors()]
    shown = lines[:8] + ([f"... and {len(lines) - 8} more"] if len(lines) > 8 else [])
    source = document.source if isinstance(document, Document) else None
    title = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    raise RecipeError(f"{title} in the recipe\n" + "\n".join(shown), where=source)


def _line(config_class: type[Config], item: Mapping[str, Any], document: Any) -> str:
    path: KeyPath = tuple(item["loc"])
    place = f"{document.where(path)}  " if isinstance(document, Document) else ""
    key = ".".join(map(str, path)) or "recipe"
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{place}{key} is not a key. {_suggest_key(config_class, document, path)}"
    if kind == "missing":
        return f"{place}{key} is missing."
    inner = context.get("error")
    if isinstance(inner, WootzError):
        parts = [inner.what, f"Known: {inner.expected}." if inner.expected else "", f"Fix: {inner.fix}." if inner.fix else ""]
        return f"{place}{key}: {' '.join(part for part in parts if part)}"
    message = str(inner) if inner is not None else item["msg"]
    if kind == "literal_error":
        options = [option.strip().strip("'") for option in context["expected"].replace(" or ", ", ").split(",")]
        close = nearest(str(item["input"]), options)
        message = f"{item['input']!r} is not one of {', '.join(options)}." + (f" Did you mean {close}?" if close else "")
        return f"{place}{key}: {message}"
    return f"{place}{key}: {message} (found {item['input']!r})"


def _suggest_key(config_class: type[Config], document: Any, path: KeyPath) -> str:
    """The nearest key of the same section, or of any other, or the section's keys."""
    content = document.content if isinstance(document, Document) else document
    section = _class_at(config_class, content, path[:-1])
    prefix = "".join(f"{key}." for key in path[:-1])
    here = [(prefix + name, info) for name, info in section.model_fields.items()]
    for candidates in (here, list(fields_of(config_class))):
        names = {word: name for name, info in candidates for word in (name.rsplit(".", 1)[-1], *_also_known_as(info))}
        close = nearest(str(path[-1]), names)
        if close:
            return f"Did you mean {names[close]}?"
    return f"Known here: {', '.join(section.model_fields)}."


def _also_known_as(info: Any) -> tuple[str, ...]:
    """What other tools call the field: ``json_schema_extra={"aka": [...]}``."""
    extra = info.json_schema_extra
    return tuple(extra.get("aka", ())) if isinstance(extra, dict) else ()


def _class_at(config_class: type[Config], content: Any, path: KeyPath) -> type[Config]:
    """The configuration class that validates the section at ``path``, components of registries included."""
    found = config_class
    for key in path:
        content = content[key]
        if isinstance(key, int):
            continue
        info = found.model_fields[key]
        nested = _config_classes(info.annotation)
        if nested:
            found = nested[0]
        elif isinstance(content, Mapping) and (registry := _registry_of(info)) is not None:
            found = registry.get(content["type"])
        elif isinstance(content, list) and (registry := _registry_of(info)) is not None:
            item = content[path[path.index(key) + 1]]
            found = registry.get(item["type"] if isinstance(item, Mapping) else item)
    return found


def _registry_of(info: Any) -> Any:
    """The registry behind a field that holds one of its components, or a sequence of them; else None."""
    candidates = [*info.metadata]
    for argument in get_args(info.annotation):
        candidates += getattr(argument, "__metadata__", ())
    for candidate in candidates:
        owner = getattr(getattr(candidate, "func", None), "__self__", None)
        if owner is not None and hasattr(owner, "plug"):
            return owner
    return None


def fields_of(config_class: type[Config], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every dotted key of a configuration class with its pydantic FieldInfo, nested sections included."""
    for name, info in config_class.model_fields.items():
        yield prefix + name, info
        for nested in _config_classes(info.annotation):
            yield from fields_of(nested, f"{prefix}{name}.")


def _config_classes(annotation: Any) -> list[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation] if annotation is not Config else []
    return [found for argument in get_args(annotation) for found in _config_classes(argument)]
