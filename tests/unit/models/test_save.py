"""Saving: what is read back is what was written, whole or not at all."""

import json
import os
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny import KINDS, make_tokenizer, save_model
from wootz.core.errors import ModelError, UsageError
from wootz.models import LoraConfig, load
from wootz.models.save import save

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks in an old way
IDS = torch.tensor([[5, 60, 7, 200, 30, 31, 9, 80]])


def logits(module) -> torch.Tensor:
    with torch.no_grad():
        return module(IDS).logits


def stirred(spec: str, *, dtype: str, train: str, **options):
    """A model whose trainable weights have moved, as after training."""
    model = load(spec, dtype=dtype, train=train, **options)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for master in model.masters().values():
            master += 0.05 * torch.randn(master.shape, generator=generator)
    model.refresh()
    return model


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_whole_model_comes_back_bit_for_bit(every_kind, dtype, tmp_path):
    model = stirred(every_kind, dtype=dtype, train="full")
    model.save(tmp_path / "out")
    again = load(str(tmp_path / "out"), dtype=dtype)
    assert torch.equal(logits(again.module), logits(model.module))
    assert again.fingerprint() == model.fingerprint()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert plain.dtype == model.dtype
    assert torch.equal(logits(plain), logits(model.module))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_adapter_comes_back_bit_for_bit(every_kind, dtype, tmp_path):
    model = stirred(every_kind, dtype=dtype, train="lora", lora=LoraConfig(rank=3, alpha=5))
    assert not torch.equal(logits(model.module), logits(load(every_kind, dtype=dtype).module))
    model.save(tmp_path / "out")
    assert load_file(tmp_path / "out" / "adapter_model.safetensors").keys()
    for spec in (f"{every_kind}+{tmp_path / 'out'}", str(tmp_path / "out")):
        again = load(spec, dtype=dtype)
        assert torch.equal(logits(again.module), logits(model.module))
        assert again.fingerprint() == model.fingerprint()
        assert not again.masters()
        assert not again.events
    plain = PeftModel.from_pretrained(load(every_kind, dtype=dtype).module, tmp_path / "out")
    assert torch.equal(logits(plain), logits(model.module))


def test_a_merged_adapter_gives_the_adapters_logits(every_kind, tmp_path):
    model = stirred(every_kind, dtype="fp32", train="lora", lora=LoraConfig(rank=3))
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    model.save(tmp_path / "out", merged=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.module.state_dict().items())
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(plain), logits(model.module), rtol=1e-4, atol=1e-4)
    assert not (tmp_path / "out" / "adapter_config.json").exists()


def test_merging_in_bf16_rounds_once(tiny_llama, tmp_path):
    model = stirred(tiny_llama, dtype="bf16", train="lora", lora=LoraConfig(rank=3, alpha=6))
    model.save(tmp_path / "out", merged=True)
    stored = load_file(tmp_path / "out" / "model.safetensors")
    layer = model.base.model.layers[1].self_attn.k_proj
    update = 2.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    expected = (layer.base_layer.weight.float() + update).bfloat16()
    assert torch.equal(stored["model.layers.1.self_attn.k_proj.weight"], expected)


def test_a_reference_copy_is_not_saved(tiny_llama, tmp_path):
    stirred(tiny_llama, dtype="fp32", train="lora").save(tmp_path / "first")
    model = stirred(f"{tiny_llama}+{tmp_path / 'first'}", dtype="fp32", train="lora")
    model.save(tmp_path / "second")
    names = load_file(tmp_path / "second" / "adapter_model.safetensors").keys()
    assert not [name for name in names if "reference" in name]
    assert not (tmp_path / "second" / "reference").exists()
    again = load(f"{tiny_llama}+{tmp_path / 'second'}", dtype="fp32")
    assert torch.equal(logits(again.module), logits(model.module))
    assert again.fingerprint() == model.fingerprint()
    model.save(tmp_path / "merged", merged=True)
    merged = load(str(tmp_path / "merged"), dtype="fp32")
    torch.testing.assert_close(logits(merged.module), logits(model.module), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_shards(kind, tiny_folder, tmp_path):
    model = load(tiny_folder(kind), dtype="fp32")
    save(model, tmp_path / "out", merged=False, max_shard="30KB")
    shards = list((tmp_path / "out").glob("model-*.safetensors"))
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert len(shards) > 2
    assert set(index["weight_map"].values()) == {path.name for path in shards}
    assert torch.equal(logits(load(str(tmp_path / "out"), dtype="fp32").module), logits(model.module))


def test_tied_weights_are_written_once(tiny_folder, tmp_path):
    load(tiny_folder("qwen3"), dtype="fp32").save(tmp_path / "out")
    names = load_file(tmp_path / "out" / "model.safetensors").keys()
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names


def test_packed_projections_are_written_as_their_parts(tiny_llama, tmp_path):
    from wootz.models.fast.layout import describe

    model = load(tiny_llama, dtype="fp32")
    before = logits(model.module)
    for layer in describe(model.module).layers:
        assert layer.qkv.weight.shape[0] == 64  # packs q, k and v
    model.save(tmp_path / "out")
    again = load(str(tmp_path / "out"), dtype="fp32")
    assert torch.equal(logits(again.module), before)
    assert again.fingerprint() == model.fingerprint()
    size = sum(tensor.nbytes for tensor in load_file(tmp_path / "out" / "model.safetensors").values())
    assert size == sum(parameter.nbytes for parameter in model.module.parameters())


def test_the_tokenizer_comes_back(tmp_path):
    for number, options in enumerate([{}, {"bos": "<|bos|>", "adds_bos": True}, {"eos": "<|endoftext|>"}]):
        tokenizer = make_tokenizer(**options)
        load(str(save_model(tmp_path / str(number), tokenizer=tokenizer))).save(tmp_path / f"{number}s")
        again = AutoTokenizer.from_pretrained(tmp_path / f"{number}s")
        text = "the cat<|im_end|> é\n  12"
        assert again(text).input_ids == tokenizer(text).input_ids
        assert (again.bos_token, again.eos_token) == (tokenizer.bos_token, tokenizer.eos_token)
        assert again.chat_template == tokenizer.chat_template


def test_generation_settings_come_back(tiny_llama, tmp_path):
    model = load(tiny_llama)
    model.module.generation_config.eos_token_id = [2, 0]
    model.save(tmp_path / "out")
    assert load(str(tmp_path / "out")).module.generation_config.eos_token_id == [2, 0]


def test_an_adapter_names_its_base_from_anywhere(tiny_llama, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(tiny_llama).parent)
    stirred(Path(tiny_llama).name, dtype="fp32", train="lora").save("low")
    monkeypatch.chdir("/")
    content = json.loads((Path(tiny_llama).parent / "low" / "adapter_config.json").read_text())
    assert content["base_model_name_or_path"] == tiny_llama
    assert load(str(Path(tiny_llama).parent / "low")).has_adapter


def test_a_failed_save_leaves_the_old_model(tiny_llama, tmp_path):
    model = load(tiny_llama, dtype="fp32")
    model.save(tmp_path / "out")
    model.tokenizer = None  # the weights are written, then this fails
    with pytest.raises(AttributeError):
        model.save(tmp_path / "out")
    assert load(str(tmp_path / "out"), dtype="fp32").fingerprint() == model.fingerprint()
    assert {path.name for path in tmp_path.iterdir()} == {"llama", "out"}


def test_a_second_save_replaces_the_first(tiny_llama, tmp_path):
    stirred(tiny_llama, dtype="fp32", train="lora").save(tmp_path / "out")
    model = load(tiny_llama, dtype="fp32")
    model.save(tmp_path / "out")
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    assert load(str(tmp_path / "out"), dtype="fp32").fingerprint() == model.fingerprint()


def test_a_folder_that_is_not_a_model_is_never_replaced(tiny_llama, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years")
    (tmp_path / "file").touch()
    for name in ("precious", "file"):
        with pytest.raises(UsageError, match="not a model"):
            load(tiny_llama).save(tmp_path / name)
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "years"
    (tmp_path / "empty").mkdir()
    load(tiny_llama).save(tmp_path / "empty")


def test_files_are_as_public_as_the_user_makes_files(tiny_llama, tmp_path):
    before = os.umask(0o027)
    try:
        load(tiny_llama).save(tmp_path / "out")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o640}


def test_only_plain_adapters_are_merged(tiny_llama, tmp_path):
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model

    model = load(tiny_llama, dtype="fp32")
    options = PeftLora(r=2, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM")
    get_peft_model(model.module, options).save_pretrained(tmp_path / "dora", save_embedding_layers=False)
    with_dora = load(f"{tiny_llama}+{tmp_path / 'dora'}", dtype="fp32")
    with pytest.raises(ModelError, match="only plain LoRA"):
        with_dora.save(tmp_path / "out", merged=True)
    assert not (tmp_path / "out").exists()


def test_every_kind_is_covered():
    assert {"llama", "gpt2", "qwen3", "gemma3"} <= set(KINDS)
