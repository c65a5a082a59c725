"""GGUF files written by hand: what is read is what was written, up to the format's own quantisation."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize

from tests.tiny import make_model, make_tokenizer
from wootz.core.errors import ModelError
from wootz.models import load, load_tokenizer

IDS = torch.tensor([[5, 60, 7, 200, 30, 31, 9, 80]])
KINDS = gguf.GGMLQuantizationType
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    """The file format's name of a Llama weight."""
    fixed = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem = name.removesuffix(".weight")
    if stem in fixed:
        return fixed[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.weight"


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order of the format's rotary convention: pairs side by side, not halves."""
    width = weight.shape[0] // heads
    rows = [head * width + half * width // 2 + i for head in range(heads) for i in range(width // 2) for half in (0, 1)]
    return weight[rows]


def write_gguf(path: Path, module, *, kind: KINDS = KINDS.F32, tokens: int | None = None) -> None:
    config = module.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    _write_tokenizer(writer, tokens or config.vocab_size)
    for name, tensor in module.state_dict().items():
        array = tensor.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            array = interleaved(array, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        if array.ndim == 2 and kind != KINDS.F32:
            writer.add_tensor(gguf_name(name), quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_tokenizer(writer: gguf.GGUFWriter, count: int) -> None:
    import json

    tokenizer = make_tokenizer()
    core = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    names = sorted(core["vocab"], key=core["vocab"].get)
    kinds = [gguf.TokenType.CONTROL if name.startswith("<|") else gguf.TokenType.NORMAL for name in names]
    names += [f"[unused{index}]" for index in range(len(names), count)]
    kinds += [gguf.TokenType.UNUSED] * (count - len(kinds))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in core["merges"]])
    writer.add_eos_token_id(names.index("<|im_end|>"))
    writer.add_bos_token_id(names.index("<|im_start|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)


def logits(module) -> torch.Tensor:
    with torch.no_grad():
        return module(IDS).logits


def test_unquantised_files_give_the_weights_exactly(tmp_path):
    module = make_model("llama", **SHAPE)
    write_gguf(tmp_path / "m.gguf", module)
    model = load(str(tmp_path / "m.gguf"), dtype="fp32")
    assert torch.equal(logits(model.module), logits(module))


@pytest.mark.parametrize("kind", [KINDS.Q8_0, KINDS.Q4_1, KINDS.F16])
def test_quantised_files_give_what_their_blocks_say(kind, tmp_path):
    module = make_model("llama", **SHAPE)
    write_gguf(tmp_path / "m.gguf", module, kind=kind)
    exact = logits(module)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.from_numpy(dequantize(quantize(parameter.numpy(), kind), kind)))
    model = load(str(tmp_path / "m.gguf"), dtype="fp32")
    torch.testing.assert_close(logits(model.module), logits(module), rtol=1e-5, atol=1e-5)
    assert not torch.equal(logits(model.module), exact)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_is_read_can_be_trained_and_saved(tmp_path, dtype):
    write_gguf(tmp_path / "m.gguf", make_model("llama", **SHAPE), kind=KINDS.Q8_0)
    for train in ("full", "lora"):
        model = load(str(tmp_path / "m.gguf"), dtype=dtype, train=train)
        model.module(IDS, labels=IDS).loss.backward()
        assert any(master.grad is not None and master.grad.any() for master in model.masters().values())
        model.save(tmp_path / train)
        again = load(str(tmp_path / train), dtype=dtype)
        assert torch.equal(logits(again.module), logits(model.module))
        assert again.fingerprint() == model.fingerprint()


def test_tied_embeddings(tmp_path):
    module = make_model("llama", **SHAPE, tie_word_embeddings=True)
    state = module.state_dict()
    state.pop("lm_head.weight")
    module.state_dict = lambda: state
    write_gguf(tmp_path / "m.gguf", module)
    model = load(str(tmp_path / "m.gguf"), dtype="fp32")
    assert model.config.tie_word_embeddings
    assert torch.equal(logits(model.module), logits(module))


def test_the_tokenizer_and_its_template(tmp_path):
    write_gguf(tmp_path / "m.gguf", make_model("llama", **SHAPE))
    expected, found = make_tokenizer(), load_tokenizer(str(tmp_path / "m.gguf"))
    chat = [{"role": "user", "content": "what is this?"}]
    text = expected.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert found.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == text
    assert found(text, add_special_tokens=False).input_ids == expected(text).input_ids
    assert found.decode(found(text, add_special_tokens=False).input_ids) == text
    assert found.eos_token == "<|im_end|>"


def test_a_run_from_any_working_directory(tmp_path, monkeypatch):
    write_gguf(tmp_path / "m.gguf", make_model("llama", **SHAPE))
    monkeypatch.chdir(tmp_path)
    load("m.gguf", train="lora").save("low")
    monkeypatch.chdir("/")
    assert load(str(tmp_path / "low")).has_adapter


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


SPOILED = {
    "another format": (lambda p: p.write_bytes(b"PK\x03\x04" + b"0" * 99), "not a GGUF file"),
    "empty": (lambda p: p.write_bytes(b""), "not a GGUF file"),
    "header alone": (lambda p: p.write_bytes(b"GGUF\x03"), "cut short"),
    "no tensors": (lambda p: p.write_bytes(b"GGUF\x03\0\0\0" + b"\0" * 16), "no weights"),
    "fields alone": (lambda p: cut(p, 0.02), "damaged"),
    "half": (lambda p: cut(p, 0.6), "damaged"),
    "a fuller tokenizer": (lambda p: write_gguf(p, make_model("llama", **SHAPE), tokens=300), "does not fit"),
    "another architecture": (lambda p: p.write_bytes(p.read_bytes().replace(b"llama", b"zorro")), "cannot be read"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_unfit_files(case, tmp_path):
    path = tmp_path / "m.gguf"
    write_gguf(path, make_model("llama", **SHAPE))
    spoil, says = SPOILED[case]
    spoil(path)
    with pytest.raises(ModelError, match=says) as caught:
        load(str(path))
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 6


def test_one_part_of_a_split_file(tmp_path):
    (tmp_path / "m-00001-of-00003.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="one part of a split GGUF"):
        load(str(tmp_path / "m-00001-of-00003.gguf"))
