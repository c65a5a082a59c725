"""Model specs: how a user names a model, the same everywhere.

    folder | Hub id[@revision] | file.gguf | run directory | BASE+ADAPTER | http://HOST/v1#NAME | smollm2-135m
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wootz.core.errors import ModelError

BUILTIN = "smollm2-135m"
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?(@[\w./-]+)?$")

Kind = Literal["folder", "hub", "gguf", "endpoint", "builtin"]


@dataclass(frozen=True)
class Spec:
    """A parsed spec.

    Attributes:
        place: The folder, Hub id, .gguf file or URL.
        adapter: A PEFT folder to put on top.
        revision: Of a Hub id.
        served_name: The model's name at an endpoint.
    """

    kind: Kind
    place: str
    adapter: Path | None = None
    revision: str | None = None
    served_name: str | None = None


def parse_spec(text: str, *, revision: str | None = None) -> Spec:
    """Returns what a spec names, looking at the disk but loading nothing. Raises ModelError with the fix.

    Example:
        >>> parse_spec("http://localhost:8000/v1#base").served_name
        'base'
    """
    if re.match(r"^https?://", text):
        url, _, name = text.partition("#")
        if not name:
            raise ModelError("an endpoint needs the name of the model it serves", where=text, fix=f"{text}#NAME")
        return Spec("endpoint", url.rstrip("/"), served_name=name)
    if not Path(text).exists() and "+" in text:
        base, _, adapter = text.rpartition("+")
        folder = _adapter_folder(Path(adapter))
        found = parse_spec(base, revision=revision)
        if found.adapter is not None:
            raise ModelError("one adapter at a time", where=text)
        return Spec(found.kind, found.place, folder, found.revision)
    if text == BUILTIN:
        return Spec("builtin", text)
    path = Path(text)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError("no such file", where=text)
        return Spec("gguf", text)
    if path.is_dir():
        return _folder(path)
    if path.is_file() or text.startswith(("/", "./", "../", "~")) or not _HUB_ID.match(text):
        raise ModelError("no such model folder", where=text, expected="a folder with config.json and *.safetensors")
    name, _, pinned = text.partition("@")
    return Spec("hub", name, revision=revision or pinned or None)


def _folder(path: Path) -> Spec:
    """A model folder, an adapter folder (its base is named in it), or a run directory (its model, or newest checkpoint)."""
    if (path / "config.json").is_file():
        return Spec("folder", str(path))
    if (path / "adapter_config.json").is_file():
        return _adapter_only(path)
    if (path / "resolved.json").is_file() or (path / "checkpoints").is_dir():
        steps = sorted((path / "checkpoints").glob("step_*"), key=lambda p: int(p.name.rpartition("_")[2]))
        for candidate in (path / "model", *(step / "model" for step in reversed(steps))):
            if candidate.is_dir():
                return _folder(candidate)
        raise ModelError("the run has no model and no checkpoint yet", where=str(path), fix=f"wootz resume {path}")
    raise ModelError(
        "the folder holds no model",
        where=str(path),
        found=", ".join(sorted(p.name for p in path.iterdir())[:6]) or "nothing",
        expected="config.json and *.safetensors, or adapter_config.json",
    )


def _adapter_only(path: Path) -> Spec:
    import json

    base = json.loads((path / "adapter_config.json").read_text()).get("base_model_name_or_path")
    if not base:
        raise ModelError("the adapter does not name its base", where=str(path), fix=f"BASE+{path}")
    found = parse_spec(base)
    return Spec(found.kind, found.place, path, found.revision)


def _adapter_folder(path: Path) -> Path:
    candidates = [path]
    if (path / "checkpoints").is_dir():
        steps = sorted((path / "checkpoints").glob("step_*"), key=lambda p: int(p.name.rpartition("_")[2]))
        candidates += [step / "model" for step in reversed(steps)]
    for candidate in candidates:
        if (candidate / "adapter_config.json").is_file():
            return candidate
    raise ModelError("no adapter there", where=str(path), expected="a folder with adapter_config.json")
