"""YAML with line numbers, no duplicate keys, and numbers that are numbers; and ``key=value`` overrides."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wootz.core.errors import RecipeError

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed file: its content, and the line of every key path."""

    content: dict[str, Any]
    lines: dict[KeyPath, int]
    source: str

    def where(self, path: KeyPath) -> str:
        """``file:line`` of the key path, or of its nearest parent that was written."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return f"{self.source}:{self.lines[path[:length]]}"
        return self.source


class _Loader(yaml.SafeLoader):
    """The safe loader, with YAML 1.2's floats: ``1e-6`` is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)$"),
    list("-+0123456789."),
)


def parse(text: str, *, source: str = "recipe") -> Document:
    """Parses one YAML mapping. Raises RecipeError with ``source:line``."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        raise RecipeError(f"not valid YAML: {getattr(error, 'problem', error)}", where=where) from None
    if node is None:
        return Document({}, {}, source)
    if not isinstance(node, yaml.MappingNode):
        raise RecipeError("a recipe is a mapping of sections", where=source, expected="model: ..., data: ..., train: ...")
    lines: dict[KeyPath, int] = {}
    _walk(node, (), lines, source)
    return Document(_Loader("").construct_document(node), lines, source)


def read(path: str | Path) -> Document:
    """Parses a YAML file."""
    path = Path(path)
    if not path.is_file():
        raise RecipeError("no such recipe", where=str(path), fix="wootz recipe list shows those that come with wootz")
    return parse(path.read_text(encoding="utf-8"), source=str(path))


def _walk(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], source: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                where = f"{source}:{line}"
                raise RecipeError(f"key {name!r} is given twice", where=where, found=f"first on line {seen[name]}")
            seen[name] = line
            lines[(*path, name)] = line
            _walk(value, (*path, name), lines, source)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines, source)


def override(content: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Returns the content with each dotted ``key=value`` set; values are YAML.

    Example:
        >>> override({"train": {"lr": 1.0}}, ["train.lr=5e-6", "guards=[{type: kl, stop_above: 3}]"])
        {'train': {'lr': 5e-06}, 'guards': [{'type': 'kl', 'stop_above': 3}]}
    """
    result = _copy(content)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise RecipeError(f"{setting!r} is not an override", expected="key=value, as in train.lr=1e-5")
        value = yaml.load(text, Loader=_Loader) if text else None  # noqa: S506 (a safe loader)
        place: Any = result
        *parents, last = key.split(".")
        for parent in parents:
            if isinstance(place, list):
                place = place[int(parent)]
                continue
            if place.get(parent) is None:
                place[parent] = {}
            place = place[parent]
            if not isinstance(place, (dict, list)):
                raise RecipeError(f"{parent} holds a value, not keys", where=key, found=repr(place))
        if isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value
    return result


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def dump(content: dict[str, Any]) -> str:
    """Returns YAML text, keys in the given order."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
