"""Turns a failed validation into an error for the person who wrote the recipe: place, key, what was found, the fix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from wootz.core.config import Config, fields_of, names_of, registry_of, sections_of
from wootz.core.errors import RecipeError, WootzError, nearest
from wootz.core.yaml import Document, KeyPath

_SHOWN = 8
_LONGEST = 60
_MISSING, _FOUND = "is missing", "; found "
_PLAINER = {
    "Input should be a valid integer": "must be a whole number",
    ", got a number with a fractional part": "",
    "Input should be a valid tuple": "must be a list",
    "Input should be a valid dictionary": "must be a mapping",
    "Input should be a valid": "must be a",
    "Input should": "must",
    ", unable to parse string as a number": "",
    ", unable to parse string as an integer": "",
    ", unable to interpret input": "",
}


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong."""

    where: str
    key: str
    says: str
    fix: str = ""


def explain_mistakes(config_class: type[Config], error: ValidationError, document: Document) -> RecipeError:
    """Returns the error to raise: one mistake in full, or one line each, at most a screen."""
    found: dict[str, Mistake] = {}
    misspelt: set[str] = set()
    for item in error.errors():
        mistake, meant = _mistake(config_class, item, document)
        misspelt.add(meant)
        before = found.get(mistake.key)
        if before is not None and before.says != mistake.says:  # branches of a union
            says = f"{before.says.split(_FOUND)[0]}, or {mistake.says}"
            mistake = Mistake(mistake.where, mistake.key, says, before.fix)
        found[mistake.key] = mistake
    mistakes = [one for one in found.values() if not (one.key in misspelt and one.says.startswith(_MISSING))]
    # Of a union, the branch that fits best goes deepest.
    mistakes = [one for one in mistakes if not any(other.key.startswith(f"{one.key}.") for other in mistakes)]
    if len(mistakes) == 1:
        one = mistakes[0]
        return RecipeError(f"{one.key} {one.says}".strip(), where=one.where, fix=one.fix or None)
    lines = []
    for one in mistakes[:_SHOWN]:
        place = f"{one.where}: " if one.where != document.source else ""
        lines.append(f"  {place}{one.key} {one.says}" + (f". Fix: {one.fix}" if one.fix else ""))
    if len(mistakes) > _SHOWN:
        lines.append(f"  and {len(mistakes) - _SHOWN} more")
    return RecipeError("\n".join([f"{len(mistakes)} mistakes", *lines]), where=document.source)


def _mistake(config_class: type[Config], item: Mapping[str, Any], document: Document) -> tuple[Mistake, str]:
    """The mistake, and the key that was meant where another was written."""
    path = _written_path(item["loc"], document.content, missing=item["type"] == "missing")
    key, where = ".".join(map(str, path)), document.where(path)
    if item["type"] == "extra_forbidden":
        meant, known = _nearest_key(config_class, document.content, path)
        return Mistake(where, key, f"is not a key. {f'Did you mean {meant}?' if meant else known}"), meant
    if item["type"] == "missing":
        return Mistake(where, key, f"{_MISSING}{_meaning(config_class, document.content, path)}"), ""
    return _wrong_value(config_class, item, document, path), ""


def _wrong_value(config_class: type[Config], item: Mapping[str, Any], document: Document, path: KeyPath) -> Mistake:
    key, where = ".".join(map(str, path)), document.where(path)
    kind, context, found = item["type"], item.get("ctx", {}), _short(item["input"])
    if kind in ("model_type", "model_attributes_type"):
        section = section_at(config_class, document.content, path)
        keys = ", ".join(section.model_fields) if section else ""
        needed = [name for name, info in section.model_fields.items() if info.is_required()] if section else []
        fix = f"{key}: {{{needed[0]}: {found}}}" if len(needed) == 1 and isinstance(item["input"], str) else ""
        return Mistake(where, key, f"is a section with keys {keys}{_FOUND}{found}", fix)
    if kind in ("literal_error", "enum"):
        options = [option.strip().strip("'") for option in str(context["expected"]).replace(" or ", ", ").split(",")]
        close = nearest(str(item["input"]), options)
        return Mistake(where, key, f"must be {_either(options)}{_FOUND}{found}", f"{key}: {close}" if close else "")
    inner = context.get("error")
    if isinstance(inner, WootzError):
        where = document.where((*path, "type"))
        known = f". Known: {inner.expected}" if inner.expected else ""
        return Mistake(where, key, f"{inner.what}{known}", inner.fix or "")
    if inner is not None:
        return Mistake(where, f"{key}:" if key else "", str(inner))
    message = item["msg"]
    for words, plainer in _PLAINER.items():
        message = message.replace(words, plainer)
    return Mistake(where, key, f"{message[:1].lower()}{message[1:]}{_FOUND}{found}")


def _written_path(loc: tuple[int | str, ...], content: Any, *, missing: bool) -> KeyPath:
    """The part of pydantic's location that a person wrote, or should have: names of union branches are left out."""
    path: list[str | int] = []
    for position, step in enumerate(loc):
        if missing and position == len(loc) - 1:
            return (*path, step)
        if not _has(content, step):
            continue
        content = content[step]
        path.append(step)
    return tuple(path)


def _meaning(config_class: type[Config], content: Any, path: KeyPath) -> str:
    section = section_at(config_class, content, path[:-1])
    info = section.model_fields.get(str(path[-1])) if section else None
    text = (info.description or "").split("\n")[0].split(". ")[0].rstrip(".") if info else ""
    return f": {text[:1].lower()}{text[1:]}" if text else ""


def _nearest_key(config_class: type[Config], content: Any, path: KeyPath) -> tuple[str, str]:
    """The nearest key of the same section, or of any other; and what to say when there is none."""
    section = section_at(config_class, content, path[:-1])
    prefix = "".join(f"{key}." for key in path[:-1])
    here = [(prefix + name, info) for name, info in section.model_fields.items()] if section else []
    for candidates in (here, list(fields_of(config_class))):
        known: dict[str, str] = {}
        for key, info in candidates:
            for word in names_of(key.rsplit(".", 1)[-1], info):
                known.setdefault(word, key)
        close = nearest(str(path[-1]), known)
        if close:
            return known[close], ""
    return "", f"Keys here: {', '.join(section.model_fields)}" if section else ""


def section_at(config_class: type[Config], content: Any, path: KeyPath) -> type[Config] | None:
    """Returns the configuration class that validates what is written at ``path``, components of registries included."""
    section: type[Config] | None = config_class
    registry = None
    for key in path:
        content = content[key] if _has(content, key) else None
        if isinstance(key, str):
            info = section.model_fields.get(key) if section else None
            if info is None:
                return None
            registry = registry_of(info)
            nested = sections_of(info.annotation)
            section = nested[0] if nested and registry is None else None
        if registry is not None:
            name = content.get("type") if isinstance(content, Mapping) else content
            section = registry.get(name) if isinstance(name, str) and name in registry else None
    return section


def _has(content: Any, step: str | int) -> bool:
    if isinstance(content, Mapping):
        return step in content
    return isinstance(content, (list, tuple)) and isinstance(step, int) and step < len(content)


def _short(value: Any) -> str:
    """The value as it would be written in YAML, cut to fit on the line."""
    text = str(value) if isinstance(value, str) and value else json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _either(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"
