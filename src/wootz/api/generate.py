"""Answers of a model, from Python and from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from wootz.core import yaml
from wootz.core.config import validate
from wootz.core.errors import UsageError
from wootz.core.records import Group
from wootz.core.records import Sequence as Tokens
from wootz.data import read, render_chat
from wootz.models import LanguageModel, Sampling, load

Prompt = str | list[dict[str, str]]
_DATA = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".gz")


def generate(
    model: str | LanguageModel,
    prompts: Prompt | Sequence[Prompt],
    *,
    sampling: Sampling | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> list[Group]:
    """Returns one group a prompt, with its sampled completions (text, tokens, log-probs).

    Args:
        model: A spec, or a model that is loaded.
        prompts: Texts (asked as user messages where the model has a chat template), or conversations.
        sampling: Temperature, length, how many (default: one of at most 256 tokens at temperature 1).
        seed: The same seed gives the same answers, whatever else is asked in the same call.

    Raises:
        ModelError, MissingError: The model cannot be loaded.
    """
    loaded: Any = load(model, device=device) if isinstance(model, str) else model
    several = not isinstance(prompts, str) and not (prompts and isinstance(prompts[0], dict))
    asked: Any = prompts if several else [prompts]
    groups = [_group(str(index), prompt, getattr(loaded, "tokenizer", None)) for index, prompt in enumerate(asked)]
    if not groups:
        raise UsageError("no prompts")
    return loaded.generate(groups, sampling or Sampling(), seed=seed, progress=progress)


def generate_from(
    model: str,
    source: str,
    overrides: Iterable[str] = (),
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> list[Group]:
    """Returns answers to a text, to the prompts (or ``messages``) of a data file, or with ``-`` to each line of stdin.

    Args:
        overrides: ``key=value`` settings of :class:`Sampling`.
    """
    sampling = validate(Sampling, yaml.from_mapping({}, source="command line").override(overrides))
    return generate(model, _prompts(source), sampling=sampling, seed=seed, device=device, progress=progress)


def _prompts(source: str) -> list[Prompt]:
    if source == "-":
        return [line for line in sys.stdin.read().split("\n") if line.strip()]
    if not (source.endswith(_DATA) and Path(source).is_file()):
        return [source]
    table = read(source)
    column = next((name for name in ("prompt", "messages", "text") if name in table.columns), None)
    if column is None:
        raise UsageError(
            "no prompts in the file", where=source, found=", ".join(table.columns), expected="a column prompt"
        )
    return [row[column] for row in table.rows]


def _group(name: str, prompt: Prompt, tokenizer: Any) -> Group:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    columns = {"prompt_messages": messages}
    shown = messages[-1]["content"]
    if tokenizer is None:  # an endpoint renders and tokenises by itself
        return Group(name, Tokens((), shown), (), columns)
    if tokenizer.chat_template:
        return Group(name, render_chat(messages, tokenizer), (), columns)
    text = prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in messages)
    return Group(name, Tokens(tuple(tokenizer(text).input_ids), text), (), columns)


def answers_of(groups: Iterable[Group]) -> list[dict[str, Any]]:
    """Returns one plain record a completion: prompt, completion, finished, tokens, logp (sum over what was sampled)."""
    return [
        {
            "prompt": group.columns["prompt_messages"][-1]["content"],
            "completion": completion.text,
            "finished": completion.finished,
            "tokens": len(completion.tokens),
            "logp": float(sum(completion.per_token.get("sample_logp", ()))),
        }
        for group in groups
        for completion in group.completions
    ]
