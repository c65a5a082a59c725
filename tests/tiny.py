"""Tiny random models of each kind, and tokenizers to go with them, saved and loaded like real ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from wootz.core.records import Completion, Group, Sequence

VOCABULARY = 288
"""Embedding rows of every tiny model; more than the tokenizer uses, as real models pad theirs."""

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = (
    "user\nthe cat sat on the mat.<",
    "assistant\nthe dog and the cat are in the house.<",
    "what is this? this is it.<",
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|bos|>")


def make_tokenizer(
    *,
    bos: str | None = None,
    eos: str | None = "<|im_end|>",
    pad: str | None = None,
    adds_bos: bool = False,
    chat_template: str | None = CHATML,
) -> PreTrainedTokenizerFast:
    """Returns a byte-level BPE of 280 tokens with ChatML markers.

    Args:
        bos: None, or ``<|bos|>``.
        eos: ``<|im_end|>``, or ``<|endoftext|>``.
        pad: None, the EOS, or ``<|endoftext|>``.
        adds_bos: Encoding a text puts the BOS before it.
        chat_template: The template; ChatML by default.
    """
    core = Tokenizer.from_str(_trained_bpe())
    if adds_bos:
        assert bos is not None
        core.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, core.token_to_id(bos))]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=bos, eos_token=eos, pad_token=pad)
    tokenizer.chat_template = chat_template
    return tokenizer


@cache
def _trained_bpe() -> str:
    core = Tokenizer(BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in _SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_CORPUS * 4, trainer)
    return core.to_str()


def _llama(**changes: Any) -> PreTrainedModel:
    """Grouped-query attention: 4 heads over 2 key-value heads."""
    return LlamaForCausalLM(LlamaConfig(**_rotary(head_dim=8) | changes))


def _gpt2(**changes: Any) -> PreTrainedModel:
    """Learned positions, LayerNorm, fused projections stored transposed (Conv1D)."""
    options = {
        "vocab_size": VOCABULARY,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 128,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        **_token_ids(),
    }
    return GPT2LMHeadModel(GPT2Config(**options | changes))


def _qwen3(**changes: Any) -> PreTrainedModel:
    """Norms on queries and keys, heads wider than width / heads, tied embeddings."""
    return Qwen3ForCausalLM(Qwen3Config(**_rotary(head_dim=16, tie_word_embeddings=True) | changes))


def _gemma3(**changes: Any) -> PreTrainedModel:
    """One sliding layer of window 4 and one full, norms around each block, scaled and tied embeddings."""
    options = _rotary(
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
        tie_word_embeddings=True,
    )
    return Gemma3ForCausalLM(Gemma3TextConfig(**options | changes))


KINDS: dict[str, Callable[..., PreTrainedModel]] = {"llama": _llama, "gpt2": _gpt2, "qwen3": _qwen3, "gemma3": _gemma3}


def make_model(kind: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, **config: Any) -> PreTrainedModel:
    """Returns a random two-layer model of a kind in :data:`KINDS`, in eval mode; ``config`` changes its configuration.

    Weights are larger than at initialisation and norms and biases are not trivial, so that a missing scale, bias or
    norm offset shows in the logits.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = KINDS[kind](**config)
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
                else:
                    parameter.mul_(8.0)
                # Not module.to: it would round the rotary frequencies too, which loading does not.
                parameter.data = parameter.data.to(dtype)
    return module.eval()


def make_groups(count: int = 3, *, completions: int = 2, seed: int = 0) -> list[Group]:
    """Returns groups of random ids: prompts of 3 to 9 tokens, completions of 2 to 8, some of their tokens masked."""
    random = np.random.default_rng(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(token) for token in random.integers(4, 280, random.integers(low, high)))

    groups = []
    for index in range(count):
        answers = []
        for _ in range(completions):
            tokens = ids(2, 9)
            mask = random.random(len(tokens)) < 0.8
            mask[-1] = True
            answers.append(Completion(tokens, per_token={"loss_mask": mask}))
        groups.append(Group(f"g{index}", Sequence(ids(3, 10)), tuple(answers)))
    return groups


def save_model(folder: Path, kind: str = "llama", *, tokenizer: Any = None, **options: Any) -> Path:
    """Writes a tiny model and its tokenizer as ``from_pretrained`` reads them; returns the folder."""
    make_model(kind, **options).save_pretrained(folder)
    (tokenizer or make_tokenizer()).save_pretrained(folder)
    return folder


def _rotary(**options: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        **_token_ids(),
        **options,
    }


def _token_ids() -> dict[str, Any]:
    """No padding id: it would make the embedding drop that row's gradient."""
    return {"bos_token_id": None, "eos_token_id": _SPECIAL.index("<|im_end|>"), "pad_token_id": None}
