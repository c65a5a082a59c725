"""What a key of a recipe means: type, default, bounds, why."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from wootz.core.config import Config, fields_of, names_of, registry_of, sections_of
from wootz.core.errors import UsageError, nearest

_WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    type(None): "nothing",
    dict: "mapping",
}
_BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


@dataclass(frozen=True)
class Explanation:
    """One key.

    Attributes:
        key: Dotted.
        type: In words.
        default: As in YAML, or ``required``.
        bounds: In words; empty without any.
        meaning: Its docstring.
        aka: What other tools call it.
        keys: Of a section.
    """

    key: str
    type: str
    default: str
    bounds: str
    meaning: str
    aka: tuple[str, ...]
    keys: tuple[str, ...]


def explain(config_class: type[Config], key: str) -> list[Explanation]:
    """Returns what the dotted key means: one explanation, or one for each component type that has the key.

    Positions in lists are skipped (``guards.0.minutes`` is ``guards.minutes``); ``objective.dpo.beta`` names the type.

    Raises:
        UsageError: No such key, with the nearest.
    """
    steps = [step for step in key.split(".") if not step.isdigit()]
    found = list(_find(config_class, steps, ""))
    if not found:
        known: dict[str, str] = {}
        for name, info in fields_of(config_class):
            for word in (name, *names_of(name.rsplit(".", 1)[-1], info)):
                known.setdefault(word, name)
        close = nearest(key, known) or nearest(steps[-1] if steps else "", known)
        sections = ", ".join(config_class.model_fields)
        fix = f"wootz recipe explain {known[close]}" if close else None
        raise UsageError(f"no key {key!r} in a recipe", expected=None if close else f"a key of {sections}", fix=fix)
    return found


def _find(config_class: type[Config], steps: list[str], prefix: str) -> Iterator[Explanation]:
    info = config_class.model_fields.get(steps[0]) if steps else None
    if info is None:
        return
    here, rest = prefix + steps[0], steps[1:]
    if not rest:
        yield _explanation(here, info)
        return
    registry = registry_of(info)
    if registry is None:
        for section in sections_of(info.annotation):
            yield from _find(section, rest, f"{here}.")
        return
    for name in registry:
        if rest[0] == name and not rest[1:]:
            yield _component(f"{here}.{name}", registry.get(name))
        else:
            yield from _find(registry.get(name), rest[1:] if rest[0] == name else rest, f"{here}.{name}.")


def _explanation(key: str, info: FieldInfo) -> Explanation:
    registry = registry_of(info)
    name = key.rsplit(".", 1)[-1]
    if registry is not None:
        many = "list of components" if get_origin(info.annotation) is tuple else "component"
        kind = f"{many}, {{type: NAME, ...}}; NAME is one of {', '.join(registry)}"
        keys = tuple(f"{key}.{one}" for one in registry)
    else:
        kind = _type_in_words(info.annotation)
        keys = tuple(f"{key}.{field}" for section in sections_of(info.annotation) for field in section.model_fields)
    return Explanation(
        key, kind, _default(info), _bounds(info), info.description or "", tuple(names_of(name, info)[1:]), keys
    )


def _component(key: str, config_class: type[Config]) -> Explanation:
    keys = tuple(f"{key}.{field}" for field in config_class.model_fields if field != "type")
    return Explanation(key, f"{{type: {key.rsplit('.', 1)[-1]}, ...}}", "", "", config_class.__doc__ or "", (), keys)


def _type_in_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (Union, types.UnionType):
        return " or ".join(_type_in_words(one) for one in arguments if one is not type(None))
    if origin is tuple:
        return f"list of {_type_in_words(arguments[0])}" if arguments else "list"
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return "section"
    return _WORDS.get(origin or annotation, str(annotation))


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, Config):
        return "its own defaults"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(info: FieldInfo) -> str:
    found = [
        f"{words} {getattr(mark, name):g}"
        for mark in info.metadata
        for name, words in _BOUNDS.items()
        if getattr(mark, name, None) is not None
    ]
    return ", ".join(found)
