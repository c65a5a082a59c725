"""Small tokenizers, chat templates of every habit found in the wild, and a second, independent way to render each.

A reference renders a conversation as segments ``(text, learned)``: written by hand for each template, it says which
characters the model is to learn without looking at the code under test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|endoftext|>")
CORPUS = ["User: what is this?\nAssistant: this is a test of the thing\n\n", "a b c d e f g the cat sat on the mat"] * 8


def make_tokenizer(
    template: str | None = None,
    *,
    regex: bool = True,
    adds_bos: bool = False,
    bos: str | None = "<s>",
    eos: str | None = "</s>",
    pad: str | None = None,
) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 400 tokens; with ``regex=False`` it merges across blanks and line breaks."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(name, special=True) for name in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(CORPUS, trainer)
    if adds_bos:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", core.token_to_id("<s>"))]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=bos, eos_token=eos, pad_token=pad or eos)
    tokenizer.chat_template = template
    return tokenizer


Segments = list[tuple[str, bool]]


@dataclass(frozen=True)
class Chat:
    """A template, its reference, and the tokenizer's EOS to go with it."""

    template: str
    reference: Callable[[list[dict]], Segments]
    eos: str
    system: bool = True


def learned(message: dict) -> bool:
    return message["role"] == "assistant" and message.get("train", True)


def _chatml(messages: list[dict]) -> Segments:
    out: Segments = []
    for message in messages:
        out += [(f"<|im_start|>{message['role']}\n", False), (f"{message['content']}<|im_end|>", learned(message))]
        out += [("\n", False)]
    return out


def _trimmed(messages: list[dict]) -> Segments:
    """BOS printed, contents trimmed, ``model`` for assistant."""
    out: Segments = [("<s>", False)]
    for message in messages:
        role = "model" if message["role"] == "assistant" else message["role"]
        out += [(f"<|im_start|>{role}\n", False), (f"{message['content'].strip()}<|im_end|>", learned(message))]
        out += [("\n", False)]
    return out


def _inst(messages: list[dict]) -> Segments:
    """No generation prompt; an answer begins with a blank and ends with EOS."""
    out: Segments = [("<s>", False)]
    for message in messages:
        if message["role"] == "assistant":
            out.append((f" {message['content']}</s>", learned(message)))
        else:
            out.append((f"[INST] {message['content']} [/INST]", False))
    return out


def _closing(messages: list[dict]) -> Segments:
    """The whole conversation gets a second end behind the last turn's own."""
    out: Segments = []
    for message in messages:
        out += [(f"<|im_start|>{message['role']}\n", False), (f"{message['content']}<|end|>", learned(message))]
        out += [("\n", False)]
    return [*out, ("<|endoftext|>", False)]


def _bare(messages: list[dict]) -> Segments:
    """No special tokens at all: where an answer's closing blanks end and the template's begin cannot be seen, so none
    of them are learned."""
    out: Segments = []
    for message in messages:
        name, text = message["role"].capitalize(), message["content"].rstrip()
        blanks = message["content"][len(text) :]
        out += [(f"{name}:", False), (f" {text}", learned(message)), (f"{blanks}\n\n", False)]
    return out


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMED = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }}{{ eos_token }}"
    "{% else %}[INST] {{ m['content'] }} [/INST]{% endif %}{% endfor %}"
)
CLOSING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}{{ eos_token }}{% endif %}"
)
BARE = (
    "{% for m in messages %}{{ m['role'] | capitalize }}: {{ m['content'] }}{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
CHATS = {
    "chatml": Chat(CHATML, _chatml, "<|im_end|>"),
    "trimmed": Chat(TRIMMED, _trimmed, "</s>"),
    "inst": Chat(INST, _inst, "</s>"),
    "closing": Chat(CLOSING, _closing, "<|endoftext|>"),
    "bare": Chat(BARE, _bare, "</s>"),
}

STRIPS_THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and not loop.last %}{{ m['content'].split('</think>')[-1] }}"
    "{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETS_NOTES = STRIPS_THINKING.replace("split('</think>')[-1]", "split('<note>')[0]")
OPENS_THINKING = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
MOVES_SYSTEM = (
    "{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
    "{% set rest = messages[1:] if system else messages %}"
    "{% set last = rest | selectattr('role', 'equalto', 'user') | list | last %}"
    "{% for m in rest %}{% if m['role'] == 'user' %}[INST] "
    "{% if system and m is sameas last %}{{ system }}\n{% endif %}{{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)


def expected_tokens(tokenizer: PreTrainedTokenizerFast, segments: Segments, *, closes: bool) -> tuple[list, list]:
    """Ids and mask by the reference: the whole text tokenised, a token learned when any of its characters is.

    Args:
        closes: The template writes no end of turn, so the last learned token is followed by a learned EOS.
    """
    text = "".join(part for part, _ in segments)
    flags = np.concatenate([np.full(len(part), flag) for part, flag in segments])
    coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    mask = [bool(flags[start:end].any()) for start, end in coded["offset_mapping"]]
    last = max(index for index, flag in enumerate(mask) if flag)
    ids, mask = coded["input_ids"][: last + 1], mask[: last + 1]
    return (ids + [tokenizer.eos_token_id], [*mask, True]) if closes else (ids, mask)
