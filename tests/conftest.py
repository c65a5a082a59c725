"""Fixtures that every test may use: tiny models and tokenizers (``tests/tiny.py`` has their factories)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported; no test downloads anything

torch.set_num_threads(1)  # on models this small, handing work to threads costs more than the work

from tests.tiny import KINDS, make_tokenizer, save_model  # noqa: E402


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's converted models and caches."""
    monkeypatch.setenv("WOOTZ_HOME", str(tmp_path_factory.getbasetemp() / "wootz_home"))


@pytest.fixture
def tiny_tokenizer():
    return make_tokenizer()


@pytest.fixture
def tiny_llama(tmp_path: Path) -> str:
    """The folder of a tiny Llama: a spec."""
    return str(save_model(tmp_path / "llama", "llama"))


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Callable[..., str]:
    """Makes and saves a tiny model; called as ``tiny_folder(kind, tokenizer=..., **config)``, returns its spec."""

    def make(kind: str, **options) -> str:
        return str(save_model(tmp_path / f"{kind}-{len(list(tmp_path.iterdir()))}", kind, **options))

    return make


@pytest.fixture(params=KINDS)
def every_kind(request: pytest.FixtureRequest, tiny_folder: Callable[..., str]) -> str:
    """The folder of a tiny model, once for each kind."""
    return tiny_folder(request.param)
