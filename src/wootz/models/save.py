"""Writes models so that ``from_pretrained`` reads them back bit for bit."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wootz.core.errors import UsageError
from wootz.models.lora import POLICY, merged_state
from wootz.models.pretrained import quiet

if TYPE_CHECKING:
    from wootz.models.model import LanguageModel

MAX_SHARD = "2GB"


def save(model: LanguageModel, path: Path, *, merged: bool, max_shard: str = MAX_SHARD) -> None:
    """Writes the model to ``path``, whole or not at all; an earlier model there is replaced.

    An adapter is written in PEFT layout, its base named by a spec, unless ``merged``: then its update is added to the
    base in fp32 and a whole model is written in the base's type. Weights are sharded safetensors; the tokenizer goes
    beside them. Raises UsageError when ``path`` is a folder that holds something else than a model.
    """
    module: Any = model.module
    with whole_folder(path) as folder, quiet():
        if model.has_adapter and not merged:
            config = module.peft_config[POLICY]
            config.base_model_name_or_path, config.revision = model.base_spec, model.revision
            module.save_pretrained(folder, selected_adapters=[POLICY], save_embedding_layers=False)
        else:
            state = merged_state(module) if model.has_adapter else dict(module.state_dict())
            model.base.save_pretrained(folder, max_shard_size=max_shard, state_dict=state)
        model.tokenizer.save_pretrained(folder)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Gives an empty folder that becomes ``path`` when the block ends without an exception.

    Files are synced before the rename. A crash leaves the old folder or the new one whole; in the instant between two
    renames the old one lies beside it under a hidden name.
    """
    path = path.expanduser()
    if path.exists() and not _is_model(path):
        raise UsageError("the output is there already and is not a model", where=str(path), fix="name another folder")
    temporary, old = (path.with_name(f".{path.name}.{os.getpid()}.{suffix}") for suffix in ("tmp", "old"))
    for left in (temporary, old):
        shutil.rmtree(left, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for entry in (*temporary.rglob("*"), temporary):
            _finish(entry)
        if path.exists():
            path.rename(old)
        temporary.rename(path)
        _sync(path.parent)
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for left in (temporary, old):
            shutil.rmtree(left, ignore_errors=True)


def _is_model(path: Path) -> bool:
    """An empty folder will do too."""
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir()}
    return not names or bool(names & {"config.json", "adapter_config.json"})


def _finish(entry: Path) -> None:
    if entry.is_file():
        # Weights are written readable by their owner only; a model is as public as its folder.
        entry.chmod(0o666 & ~_umask())
    _sync(entry)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
