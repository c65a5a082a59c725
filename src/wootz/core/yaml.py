"""YAML with line numbers, no duplicate keys, and plain values; and ``key=value`` overrides.

Values follow YAML 1.2: ``1e-6`` is a number, only ``true`` and ``false`` are booleans (``no`` and ``off`` are words),
and dates, ``1:30`` and ``010`` mean nothing special.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wootz.core.errors import RecipeError

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed file: its content, and the place of every key path (``recipe.yaml:6``, or ``command line``)."""

    content: dict[str, Any]
    places: dict[KeyPath, str]
    source: str

    def where(self, path: KeyPath) -> str:
        """Returns the place of the key path, or of its nearest parent that was written."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return self.source

    def override(self, settings: Iterable[str]) -> Document:
        """Returns the document with each dotted ``key=value`` set; values are YAML.

        Example:
            >>> document = parse("train: {lr: 1.0}")
            >>> document.override(["train.lr=5e-6", "guards=[{type: kl, stop_above: 3}]"]).content
            {'train': {'lr': 5e-06}, 'guards': [{'type': 'kl', 'stop_above': 3}]}
        """
        result = Document(_copy(self.content), dict(self.places), self.source)
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals or not key:
                raise RecipeError(f"{setting!r} is not an override", expected="key=value, as in train.lr=1e-5")
            node = _compose(text, "command line")
            value = None if node is None else _Loader("").construct_document(node)
            path = _set(result.content, key, value)
            for under in [place for place in result.places if place[: len(path)] == path]:
                del result.places[under]
            result.places[path] = "command line"
        return result


class _Loader(yaml.SafeLoader):
    """The safe loader with YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict = {}

    def construct_plain_int(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node)).replace("_", "")
        return int(text, 10 if text.lstrip("+-").isdigit() else 0)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_plain_int)
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^(?:[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("merge", r"^(?:<<)$", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def parse(text: str, *, source: str = "recipe") -> Document:
    """Returns one parsed YAML mapping. Raises RecipeError with ``source:line``."""
    node = _compose(text, source)
    if node is None:
        return Document({}, {}, source)
    if not isinstance(node, yaml.MappingNode):
        raise RecipeError(
            "a recipe is a mapping of sections", where=source, expected="model: ..., data: ..., train: ..."
        )
    places: dict[KeyPath, str] = {}
    _walk(node, (), places, source, ())
    return Document(_Loader("").construct_document(node), places, source)


def read(path: str | Path) -> Document:
    """Returns a parsed YAML file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        fix = "wootz recipe list shows those that come with wootz"
        raise RecipeError("no such recipe", where=str(path), fix=fix) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError("the recipe cannot be read", where=str(path), found=str(error)) from None
    return parse(text, source=str(path))


def from_mapping(content: Mapping[str, Any], *, source: str = "recipe") -> Document:
    """Returns a document made in Python, which has no lines."""
    return Document(_copy(dict(content)), {}, source)


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark and source != "command line" else source
        found = f"{getattr(error, 'problem', None) or error}"
        fix = "a tab cannot indent; use spaces" if "'\\t'" in found else None
        raise RecipeError("not valid YAML", where=where, found=found, fix=fix) from None
    if node is not None:
        _walk(node, (), {}, source, ())
    return node


def _walk(node: yaml.Node, path: KeyPath, places: dict[KeyPath, str], source: str, above: tuple[int, ...]) -> None:
    """Notes the line of every key; refuses what means something else than it looks like."""

    def place(mark: yaml.Mark) -> str:
        return source if source == "command line" else f"{source}:{mark.line + 1}"

    if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.startswith("tag:yaml.org,2002:python"):
        raise RecipeError("a recipe holds plain values only", where=place(node.start_mark), found=f"the tag {node.tag}")
    if id(node) in above:
        raise RecipeError("an alias that contains itself", where=place(node.start_mark))
    above = (*above, id(node))
    places.setdefault(path, place(node.start_mark))
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, str] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RecipeError("a key is a word", where=place(key.start_mark))
            name = str(key.value)
            if name in seen:
                found = f"first at {seen[name]}"
                raise RecipeError(f"key {name!r} is given twice", where=place(key.start_mark), found=found)
            seen[name] = places[(*path, name)] = place(key.start_mark)
            _walk(value, (*path, name), places, source, above)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), places, source, above)


def _set(content: dict[str, Any], key: str, value: Any) -> KeyPath:
    """Sets a dotted key in place, making sections on the way; returns its path."""
    place: Any = content
    path: list[str | int] = []
    parts = key.split(".")
    for depth, part in enumerate(parts):
        if isinstance(place, list):
            if not part.isdigit() or int(part) >= len(place):
                found = f"{'.'.join(parts[:depth])} has {len(place)} items, from 0"
                raise RecipeError(f"no item {part!r} to set", where=key, found=found)
            name: Any = int(part)
        elif isinstance(place, dict):
            name = part
        else:
            raise RecipeError(f"{'.'.join(parts[:depth])} holds a value, not keys", where=key, found=repr(place))
        path.append(name)
        if depth == len(parts) - 1:
            place[name] = value
        elif isinstance(place, dict) and place.get(name) is None:
            place[name] = {}
        place = place[name]
    return tuple(path)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value


class _Dumper(yaml.SafeDumper):
    """Quotes what this module's reader, or a YAML 1.1 reader, would take for something else than text."""

    yaml_implicit_resolvers = {
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *_Loader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
    }

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    breaks = any(character in text for character in "\r\x85\u2028\u2029")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if breaks else None)


_Dumper.add_representer(str, _represent_text)


def dump(content: Mapping[str, Any]) -> str:
    """Returns YAML text, keys in the given order, that :func:`parse` reads back as the same values."""
    return yaml.dump(
        _copy(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
