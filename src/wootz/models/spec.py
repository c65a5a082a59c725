"""Model specs: how a user names a model, the same everywhere.

folder | Hub id[@revision] | file.gguf | run directory | BASE+ADAPTER | http://HOST/v1#NAME | smollm2-135m
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from wootz.core.errors import ModelError, nearest

BUILTIN = "smollm2-135m"
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[\w.-]+)?(@[\w./-]+)?$")
_STEP = re.compile(r"^step_(\d+)$")

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

    @property
    def base(self) -> str:
        """A spec of the model without its adapter that means the same from any working directory."""
        if self.kind in ("folder", "gguf"):
            return str(Path(self.place).resolve())
        if self.kind == "endpoint":
            return f"{self.place}#{self.served_name}"
        return self.place


def parse_spec(text: str, *, revision: str | None = None) -> Spec:
    """Returns what a spec names, looking at the disk but loading nothing. Raises ModelError with the fix.

    Example:
        >>> parse_spec("http://localhost:8000/v1#base").served_name
        'base'
        >>> parse_spec("org/model@v2").revision
        'v2'
    """
    spec = _parse(text.strip())
    if revision is None:
        return spec
    if spec.kind != "hub":
        raise ModelError(
            "only a Hub id has revisions", where=text, found=f"revision {revision}", fix="remove model.revision"
        )
    if spec.revision not in (None, revision):
        raise ModelError("two revisions for one model", where=text, found=f"{spec.revision} and {revision}")
    return replace(spec, revision=revision)


def _parse(text: str) -> Spec:
    if re.match(r"^https?://", text):
        url, _, name = text.partition("#")
        if not name:
            raise ModelError("an endpoint needs the name of the model it serves", where=text, fix=f"{text}#NAME")
        return Spec("endpoint", url.rstrip("/"), served_name=name)
    if text == BUILTIN:
        return Spec("builtin", text)
    path = Path(text).expanduser()
    if text and path.is_dir():
        return _in_folder(path)
    if not path.exists() and "+" in text:
        return _on_top(text)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError("no such file", where=text)
        return Spec("gguf", str(path))
    if path.is_file() or text.startswith((".", "/", "~")) or not _HUB_ID.match(text):
        raise ModelError(
            "no such model",
            where=text or "(empty)",
            found="a file" if path.is_file() else "nothing there",
            expected="a folder, a .gguf file, a Hub id, a run directory, BASE+ADAPTER, http://HOST/v1#NAME or "
            + BUILTIN,
        )
    name, _, pinned = text.partition("@")
    return Spec("hub", name, revision=pinned or None)


def _on_top(text: str) -> Spec:
    """BASE+ADAPTER. The adapter is what follows the last plus, so that a base's path may hold one."""
    base, _, adapter = text.rpartition("+")
    found = _parse(base)
    if found.adapter is not None:
        raise ModelError(
            "one adapter at a time",
            where=text,
            found=f"{base} is an adapter on {found.base} already",
            fix=f"{found.base}+{adapter}, or merge the first",
        )
    return replace(found, adapter=_adapter_folder(Path(adapter).expanduser()))


def _in_folder(path: Path) -> Spec:
    """A model folder, an adapter folder (it names its base), or a run directory (its model, or newest checkpoint)."""
    whole = [p.name for pattern in ("*.safetensors", "*.bin") for p in path.glob(pattern) if "adapter" not in p.name]
    if (path / "adapter_config.json").is_file():
        if whole:
            raise ModelError(
                "the folder holds a whole model and an adapter",
                where=str(path),
                found=f"{whole[0]} and adapter_config.json",
                fix="move the adapter to a folder of its own",
            )
        return _adapter_alone(path)
    if (path / "config.json").is_file():
        return Spec("folder", str(path))
    if (path / "resolved.json").is_file() or (path / "checkpoints").is_dir():
        for candidate in (path / "model", *_checkpoints(path)):
            if candidate.is_dir():
                return _in_folder(candidate)
        raise ModelError("the run has no model and no checkpoint yet", where=str(path), fix=f"wootz resume {path}")
    raise ModelError(
        "the folder holds no model",
        where=str(path),
        found=", ".join(sorted(p.name for p in path.iterdir())[:6]) or "nothing",
        expected="config.json and *.safetensors, or adapter_config.json",
    )


def _checkpoints(run: Path) -> list[Path]:
    """The models of a run's finished checkpoints, newest first."""
    steps = [(int(m[1]), p) for p in (run / "checkpoints").glob("step_*") if (m := _STEP.match(p.name))]
    return [path / "model" for _, path in sorted(steps, reverse=True)]


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Returns the content of ``adapter_config.json``. Raises ModelError when it is not a JSON object."""
    path = folder / "adapter_config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError("not valid JSON", where=str(path), found=str(error)) from None
    if not isinstance(content, dict):
        raise ModelError("not an adapter's configuration", where=str(path), expected="a JSON object")
    return content


def _adapter_alone(path: Path) -> Spec:
    """An adapter folder: on the base that it names."""
    config = read_adapter_config(path)
    base = config.get("base_model_name_or_path")
    if not base:
        raise ModelError("the adapter does not name its base", where=str(path), fix=f"BASE+{path}")
    try:
        found = _parse(str(base))
    except ModelError as error:
        raise ModelError(
            "the adapter's base is not here", where=str(path), found=f"{base} ({error.what})", fix=f"BASE+{path}"
        ) from None
    if found.adapter is not None:
        raise ModelError("an adapter on an adapter", where=str(path), found=str(base), fix="merge the lower one first")
    revision = config.get("revision") if found.kind == "hub" else None
    return replace(found, adapter=path, revision=found.revision or revision)


def _adapter_folder(path: Path) -> Path:
    for candidate in (path, *_checkpoints(path)):
        if (candidate / "adapter_config.json").is_file():
            return candidate
    whole = next((p for p in (path, path / "model") if (p / "config.json").is_file()), None)
    raise ModelError(
        "no adapter there",
        where=str(path),
        found="a whole model" if whole else "nothing" if not path.exists() else "no adapter_config.json",
        expected="a folder with adapter_config.json and adapter_model.safetensors",
        fix=str(whole) if whole else None,
    )


def suggest(text: str) -> str | None:
    """Returns the built-in name when ``text`` looks like a misspelling of it."""
    return nearest(text.lower(), [BUILTIN])
