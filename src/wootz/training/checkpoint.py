"""Checkpoints from which a run goes on to bit-equal weights.

``checkpoints/step_N/`` holds ``model/`` (the policy as it is saved for use: an adapter in PEFT layout or a whole
model), ``training.safetensors`` (fp32 masters and optimiser moments by name) and ``state.json`` (step, source, guards,
and a digest of every file). Random numbers need no state: each step seeds its own from (run seed, step).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from wootz.core.errors import ModelError
from wootz.core.rundir import RunDir
from wootz.training.optim import Optimiser

_MASTER, _MOMENT = "master/", "moment/"


def save_checkpoint(
    run: RunDir, step: int, *, policy: Any, optimiser: Optimiser, state: Mapping[str, Any], keep: int
) -> Path:
    """Writes ``checkpoints/step_N`` whole or not at all, then drops all but the newest ``keep``."""
    tensors = {_MASTER + name: master.detach().cpu().contiguous() for name, master in policy.masters().items()}
    tensors |= {_MOMENT + name: value.detach().cpu() for name, value in optimiser.state_tensors().items()}
    with run.begin_checkpoint(step) as folder:
        policy.save(folder / "model")
        save_file(_unshared(tensors), folder / "training.safetensors")
        digests = {str(path.relative_to(folder)): _digest(path) for path in _files(folder)}
        (folder / "state.json").write_text(json.dumps({"schema": 1, "step": step, **state, "files": digests}))
    run.prune_checkpoints(keep)
    return run.path / "checkpoints" / f"step_{step}"


def newest_checkpoint(run: RunDir) -> tuple[Path | None, list[str]]:
    """Returns the newest checkpoint whose files are all whole, and a message for each damaged one passed over."""
    problems: list[str] = []
    for folder in reversed(run.checkpoints()):
        problem = _damage(folder)
        if problem is None:
            return folder, problems
        problems.append(f"{folder.name}: {problem}; trying the one before")
    return None, problems


def load_state(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "state.json").read_text())


def restore(folder: Path, *, policy: Any, optimiser: Optimiser) -> None:
    """Puts masters and moments back, in place."""
    with safe_open(folder / "training.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    masters = policy.masters()
    saved = {name.removeprefix(_MASTER) for name in tensors if name.startswith(_MASTER)}
    if saved != set(masters):
        odd = sorted(saved ^ set(masters))[:3]
        raise ModelError(
            "the checkpoint trains other parameters than the recipe",
            where=str(folder),
            found=", ".join(odd),
            fix="resume with the recipe of the run, or start a new one",
        )
    with torch.no_grad():
        for name, master in masters.items():
            master.copy_(tensors[_MASTER + name])
    policy.refresh()
    moments = {name.removeprefix(_MOMENT): value for name, value in tensors.items() if name.startswith(_MOMENT)}
    optimiser.load_state_tensors(moments)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _damage(folder: Path) -> str | None:
    try:
        files = load_state(folder)["files"]
    except (OSError, ValueError, KeyError) as error:
        return f"state.json cannot be read ({error})"
    for name, digest in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _digest(path) != digest:
            return f"{name} is damaged"
    return None


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of tensors that share memory (tied weights, packed views), which the file format refuses."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        if storage in seen:
            tensors[name] = tensor.clone()
        seen.add(storage)
    return tensors
