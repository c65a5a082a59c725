"""What a run directory holds, read with tolerance: missing files are empty, broken ones are told, nothing is raised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wootz.core.errors import UsageError

_DEEPEST = 3
"""Stages may have stages; a loop of paths must end."""


@dataclass(frozen=True)
class RunFiles:
    """A run directory's contents as plain data. ``problems`` names what could not be read."""

    path: Path
    resolved: dict[str, Any] = field(default_factory=dict)
    recipe_text: str = ""
    env: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] | None = None
    metrics: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    evals: dict[str, dict[str, Any]] = field(default_factory=dict)
    stages: tuple[tuple[str, RunFiles], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def recipe(self) -> dict[str, Any]:
        """The resolved recipe, or an empty mapping."""
        return mapping(self.resolved.get("recipe"))

    @property
    def name(self) -> str:
        """The recipe's name, else the directory's."""
        name = self.recipe.get("name")
        return name if isinstance(name, str) and name else self.path.name

    def parts(self) -> Iterator[tuple[str, RunFiles]]:
        """The run's stages in order, itself last and named after its objective; one without metrics is left out."""
        for name, stage in self.stages:
            for inner, files in stage.parts():
                yield (name if files is stage else f"{name}: {inner}"), files
        if self.metrics or not self.stages:
            yield str(mapping(self.recipe.get("objective")).get("type", "training")).upper(), self


def mapping(value: Any) -> dict[str, Any]:
    """Returns the value if it is an object with text keys, else an empty one."""
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    """Returns the value if it is an array, else an empty one."""
    return list(value) if isinstance(value, (list, tuple)) else []


def read_run(path: str | Path) -> RunFiles:
    """Reads a run directory.

    Raises:
        UsageError: There is no such directory.
    """
    path = Path(path)
    if not path.is_dir():
        raise UsageError(
            "no such run directory", where=str(path), fix="wootz report RUN, with the folder that train wrote"
        )
    return _read(path, depth=0)


def _read(path: Path, *, depth: int) -> RunFiles:
    problems: list[str] = []
    resolved = _json(path / "resolved.json", problems) or {}
    evals = {file.stem: found for file in sorted((path / "evals").glob("*.json")) if (found := _json(file, problems))}
    stages = []
    for number, stage in enumerate(sequence(resolved.get("stages")), 1):
        place = mapping(stage).get("path")
        folder = path / place if isinstance(place, str) and "\0" not in place else None
        name = str(mapping(stage).get("name", f"stage {number}"))
        if folder is None or not folder.is_dir() or depth >= _DEEPEST:
            problems.append(f"resolved.json: stage {name!r} is not a folder that can be read")
        else:
            stages.append((name, _read(folder, depth=depth + 1)))
    return RunFiles(
        path=path.resolve(),
        resolved=resolved,
        recipe_text=_text(path / "recipe.yaml", problems),
        env=_json(path / "env.json", problems) or {},
        data=_json(path / "data.json", problems) or {},
        verdict=_json(path / "verdict.json", problems),
        metrics=_lines(path / "metrics.jsonl", problems),
        samples=_lines(path / "samples.jsonl", problems),
        events=_lines(path / "events.jsonl", problems),
        evals=evals,
        stages=tuple(stages),
        problems=tuple(problems),
    )


def _text(path: Path, problems: list[str]) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        problems.append(f"{path.name}: {error.strerror}")
        return ""


def _json(path: Path, problems: list[str]) -> dict[str, Any] | None:
    text = _text(path, problems)
    if not text:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        problems.append(f"{path.name}: not valid JSON ({error})")
        return None
    if not isinstance(content, dict):
        problems.append(f"{path.name}: not a JSON object")
        return None
    return content


def _lines(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    records, broken = [], 0
    lines = _text(path, problems).split("\n")
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif number < len(lines):  # a torn last line is a run that is still writing, or was killed
            broken += 1
    if broken:
        problems.append(f"{path.name}: {broken} lines are not JSON objects")
    return records
