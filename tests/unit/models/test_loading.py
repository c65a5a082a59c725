"""Loading: devices and types, and every way in which a folder can be unfit."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny import VOCABULARY, make_model, make_tokenizer, save_model
from wootz.core.errors import MissingError, ModelError, UsageError, WootzError
from wootz.models import LanguageModel, LoraConfig, ModelConfig, load, load_tokenizer
from wootz.models.loading import resolve_device, resolve_dtype

IDS = torch.tensor([[5, 60, 7, 200, 30, 31, 9, 80]])


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.module(IDS).logits


def test_every_kind_computes_what_hugging_face_computes(every_kind):
    model = load(every_kind, dtype="fp32")
    assert isinstance(model, LanguageModel)
    assert torch.equal(logits(model), make_model(Path(every_kind).name.partition("-")[0])(IDS).logits)
    assert not model.masters()
    assert model.reference() is None
    assert not model.module.training


@pytest.mark.parametrize(("dtype", "expected"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_types(tiny_llama, dtype, expected):
    model = load(ModelConfig(base=tiny_llama, dtype=dtype))
    assert model.dtype == expected
    assert {p.dtype for p in model.module.parameters()} == {expected}
    assert model.module.model.rotary_emb.inv_freq.dtype == torch.float32


def test_auto_type_follows_the_hardware(monkeypatch):
    cpu = torch.device("cpu")
    for feature in ("avx512_bf16", "amx_bf16", "sve_bf16"):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda feature=feature: {feature: True})
        assert resolve_dtype("auto", cpu) == torch.bfloat16
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
    assert resolve_dtype("auto", cpu) == torch.float32
    assert resolve_dtype("auto", torch.device("mps")) == torch.float32


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_cuda_where_there_is_none(tiny_llama, name):
    with pytest.raises(MissingError, match="no cuda device") as caught:
        load(tiny_llama, device=name)
    assert caught.value.exit_code == 4
    assert caught.value.fix == "--device=cpu"


def test_a_device_of_no_known_kind():
    with pytest.raises(UsageError, match="no such kind of device"):
        resolve_device("gpu0")
    with pytest.raises(MissingError):
        resolve_device("meta")


def test_settings_said_twice_or_in_vain(tiny_llama):
    with pytest.raises(UsageError, match="said twice"):
        load(ModelConfig(base=tiny_llama), dtype="fp32")
    with pytest.raises(UsageError, match="no adapter trains"):
        load(tiny_llama, lora=LoraConfig())


def test_what_loading_changes_in_the_libraries_is_put_back(tiny_llama):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load(tiny_llama)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


# Unfit folders. Each takes a good one and spoils it; ``at_once`` says that load_tokenizer refuses it as well,
# because a dry run that reads no weights must refuse what can be known without them.


def _without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _with_pickles(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def _with_adapter_weights_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")


def _cut_short(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def _not_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)


def _missing_tensor(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def _wrong_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))


def _missing_shard(folder: Path) -> None:
    make_model("llama").save_pretrained(folder, max_shard_size="30KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def _larger_tokenizer(folder: Path) -> None:
    make_model("llama", vocab_size=270).save_pretrained(folder)


def _added_token_out_of_range(folder: Path) -> None:
    make_model("llama", vocab_size=281).save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|tool|>", "<|call|>"]})
    tokenizer.save_pretrained(folder)


def _no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def _torn_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "llama", ')


def _unknown_kind(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "never_heard_of"}))


def _encoder(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "t5", "vocab_size": 288}))


def _quantised(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))


def _remote_code(folder: Path) -> None:
    (folder / "modeling_evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    content = {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "modeling_evil.C", "AutoModelForCausalLM": "modeling_evil.M"},
    }
    (folder / "config.json").write_text(json.dumps(content))


SPOILED = [
    (_without_weights, "holds no weights", True),
    (_with_pickles, "pickle files", True),
    (_with_adapter_weights_only, "holds no weights", True),
    (_cut_short, "damaged", False),
    (_not_safetensors, "damaged", False),
    (_missing_tensor, "up_proj.weight missing; 1 in all", False),
    (_wrong_shape, r"of shape \(.*\), not \(.*; 6 in all", False),
    (_missing_shard, "No such file", False),
    (_larger_tokenizer, "does not fit", True),
    (_added_token_out_of_range, "does not fit", True),
    (_no_tokenizer, "no tokenizer", True),
    (_torn_config, "not a valid JSON", True),
    (_unknown_kind, "unknown kind of model", True),
    (_encoder, "not a decoder", True),
    (_quantised, "quantised", True),
    (_remote_code, "code of its own, which is refused", True),
]


@pytest.mark.parametrize(("spoil", "says", "at_once"), SPOILED, ids=[case[0].__name__.strip("_") for case in SPOILED])
def test_unfit_folders(tmp_path, spoil, says, at_once):
    folder = save_model(tmp_path / "m")
    load(str(folder))
    spoil(folder)
    with pytest.raises(ModelError, match=says) as caught:
        load(str(folder))
    assert caught.value.exit_code == 2
    assert str(folder) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 6
    assert len(str(caught.value)) < 900
    if at_once:
        with pytest.raises(ModelError, match=says):
            load_tokenizer(str(folder))
    assert not (folder / "ran").exists()


def test_pickles_are_read_when_allowed_by_name(tmp_path):
    folder = save_model(tmp_path / "m")
    expected = logits(load(str(folder), dtype="fp32"))
    _with_pickles(folder)
    model = load(ModelConfig(base=str(folder), dtype="fp32", allow=("pickle_weights",)))
    assert torch.equal(logits(model), expected)


def test_a_pickle_that_runs_code_does_not_even_when_allowed(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    folder = save_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(WootzError):
        load(ModelConfig(base=str(folder), allow=("pickle_weights",)))
    assert not (tmp_path / "ran").exists()


def test_weights_that_are_not_part_of_the_model_are_told(tmp_path):
    folder = save_model(tmp_path / "m")
    state = load_file(folder / "model.safetensors") | {"value_head.weight": torch.zeros(1, 32)}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(str(folder))
    assert [event for event in model.events if "value_head.weight" in event["message"]]


def test_the_tokenizer_stays_as_it_is(tmp_path):
    for number, options in enumerate([{"pad": None}, {"pad": "<|im_end|>"}, {"pad": "<|endoftext|>"}, {"eos": None}]):
        model = load(str(save_model(tmp_path / str(number), tokenizer=make_tokenizer(**options))))
        assert model.tokenizer.pad_token == options.get("pad")
        assert 0 <= model.pad_id < VOCABULARY
        model.save(tmp_path / f"{number}s")
        assert load_tokenizer(str(tmp_path / f"{number}s")).pad_token == options.get("pad")


def test_a_tokenizer_that_ends_elsewhere_is_told(tmp_path):
    other = load(str(save_model(tmp_path / "m", tokenizer=make_tokenizer(eos="<|endoftext|>"))))
    assert [event["message"] for event in other.events] == ["the tokenizer's end of sequence is id 0, the model's 2"]
    several = load(str(save_model(tmp_path / "n", tokenizer=make_tokenizer(eos="<|endoftext|>"), eos_token_id=[2, 0])))
    assert not several.events


def test_reading_a_recipe_loads_no_model_library():
    code = (
        "import sys, wootz.models; from wootz.models import LoraConfig, ModelConfig;"
        "from wootz.models.spec import parse_spec; ModelConfig(base='m', lora=LoraConfig()); parse_spec('org/m');"
        "print([name for name in ('torch', 'transformers', 'peft', 'httpx2', 'gguf') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names():
    import wootz.models

    assert set(wootz.models.__all__) == {
        "LanguageModel",
        "LoraConfig",
        "ModelConfig",
        "Sampling",
        "load",
        "load_tokenizer",
    }
    assert all(callable(getattr(wootz.models, name)) for name in wootz.models.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wootz.models.nothing  # noqa: B018


def test_load_tokenizer_reads_no_weights(tmp_path):
    folder = save_model(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"")
    assert load_tokenizer(str(folder))("the cat").input_ids == make_tokenizer()("the cat").input_ids
    assert load_tokenizer(ModelConfig(base=str(folder))).eos_token == "<|im_end|>"


def test_fingerprints(tmp_path):
    folder = save_model(tmp_path / "m")
    shutil.copytree(folder, tmp_path / "copy")
    first = load(str(folder), dtype="fp32").fingerprint()
    assert len(first) == 32
    assert load(str(tmp_path / "copy"), dtype="fp32").fingerprint() == first
    others = [
        load(str(folder), dtype="bf16"),
        load(str(save_model(tmp_path / "seed", seed=1)), dtype="fp32"),
        load(str(save_model(tmp_path / "config", rms_norm_eps=1e-5)), dtype="fp32"),
        load(str(folder), dtype="fp32", train="lora"),
        load(str(folder), dtype="fp32", train="lora", lora=LoraConfig(alpha=7)),
    ]
    assert len({first, *(model.fingerprint() for model in others)}) == 1 + len(others)
    with torch.no_grad():
        others[3].module.get_base_model().model.norm.weight[0] += 1e-6
    assert others[3].fingerprint() != load(str(folder), dtype="fp32", train="lora").fingerprint()
