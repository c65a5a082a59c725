"""Single-file models in the GGUF format: checked by their header, unpacked to plain weights."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

from wootz.core.errors import ModelError

_MAGIC = b"GGUF"
_HEADER = struct.Struct("<4sIQQ")  # magic, version, number of tensors, number of fields
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


def check_header(path: Path) -> None:
    """Raises ModelError when the file is not a GGUF, has no tensors, or is one part of several."""
    if _PART.search(path.name):
        raise ModelError(
            "one part of a split GGUF", where=str(path), fix="llama-gguf-split --merge FIRST_PART WHOLE.gguf"
        )
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if not head.startswith(_MAGIC):
        raise ModelError("not a GGUF file", where=str(path), found=repr(head[:4]), expected=f"{_MAGIC!r} at its start")
    if len(head) < _HEADER.size:
        raise ModelError("the GGUF file is cut short", where=str(path), found=f"{len(head)} bytes")
    _, version, tensors, _ = _HEADER.unpack(head)
    if not tensors:
        raise ModelError("the GGUF file holds no weights", where=str(path), found=f"version {version}, no tensors")


def dequantised() -> dict[str, Any]:
    """Options of ``from_pretrained`` that unpack every weight, so that it can be trained and saved."""
    import transformers

    # Versions without this class always unpack.
    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}
