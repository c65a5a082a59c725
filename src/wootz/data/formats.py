"""The ways other tools write rows, each read into and written from TRL's columns.

A reader takes one raw row and returns it in TRL's columns (``prompt``, ``chosen``, ``messages``...), other columns
untouched. A writer takes the canonical fields of a row and returns the other tool's columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from wootz.core.errors import UsageError
from wootz.data.kinds import Messages, Side, is_messages
from wootz.data.messages import RowProblem, clean_messages

_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
_TRANSCRIPT = re.compile(r"\A\s*Human:.*\n\nAssistant:", re.DOTALL)
_HH_ROLES = {"Human": "user", "Assistant": "assistant"}
_HH_COLUMNS = ("prompt", "chosen", "rejected", "completion", "text")
_SHAREGPT_NAMES = {
    "user": "human",
    "assistant": "gpt",
    "system": "system",
    "tool": "observation",
    "developer": "system",
}


def is_transcript(value: Any) -> bool:
    """Returns whether ``value`` is a dialogue written as ``Human:`` and ``Assistant:`` paragraphs.

    Example:
        >>> is_transcript("\\n\\nHuman: hi\\n\\nAssistant: hello"), is_transcript("Human: error")
        (True, False)
    """
    return isinstance(value, str) and _TRANSCRIPT.match(value) is not None


def parse_transcript(text: str) -> Messages:
    """Returns the messages of a ``Human:``/``Assistant:`` dialogue, blanks around each stripped.

    Example:
        >>> parse_transcript("\\n\\nHuman: hi\\n\\nAssistant: hello")
        [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'hello'}]
    """
    pieces = _TURN.split(text.lstrip())
    if len(pieces) < 3 or pieces[0].strip():
        raise RowProblem("row_type", "not a transcript: expected paragraphs that begin with Human: and Assistant:")
    return [
        {"role": _HH_ROLES[name], "content": content.strip()}
        for name, content in zip(pieces[1::2], pieces[2::2], strict=True)
    ]


def write_transcript(messages: Messages) -> str:
    """Returns messages as a ``Human:``/``Assistant:`` dialogue; other roles have no place in one."""
    names = {role: name for name, role in _HH_ROLES.items()}
    for message in messages:
        if message["role"] not in names:
            raise UsageError(f"a transcript has no {message['role']} turns", fix="write another format")
    return "".join(f"\n\n{names[message['role']]}: {message['content']}" for message in messages)


def read_hh(row: Mapping[str, Any]) -> dict[str, Any]:
    """Reads transcripts in any of TRL's columns; a prompt that ends in an open ``Assistant:`` loses that."""
    out = dict(row)
    open_prompt = False  # whether plain text in a later column can be the answer to a prompt already read
    for name in _HH_COLUMNS:
        value = out.get(name)
        if not isinstance(value, str):
            continue
        if is_transcript(value) or (name == "prompt" and _TURN.match(value.lstrip())):
            out[name] = parse_transcript(value)
        elif open_prompt:
            out[name] = [{"role": "assistant", "content": value.strip()}]
        else:
            raise RowProblem("row_type", f"{name} is not a Human:/Assistant: transcript: {value[:40]!r}")
        if name == "prompt":
            open_prompt = True
            if out[name][-1] == {"role": "assistant", "content": ""}:
                out[name] = out[name][:-1]
    if "text" in out and "messages" not in out:
        out["messages"] = out.pop("text")
    return out


def read_sharegpt(row: Mapping[str, Any]) -> dict[str, Any]:
    """Reads ``conversations`` of ``from``/``value`` turns, with ``system``, ``chosen``/``rejected`` or ``label``."""
    out = dict(row)
    messages = clean_messages(out.pop("conversations"), name="conversations")
    system = out.pop("system", None)
    if system:
        messages = [{"role": "system", "content": system}, *messages]
    if "chosen" in out:
        return out | {
            "prompt": messages,
            "chosen": clean_messages(out["chosen"], name="chosen"),
            "rejected": clean_messages(out.get("rejected"), name="rejected"),
        }
    label = _label_column(out)
    if label is not None:
        return out | {"prompt": messages[:-1], "completion": messages[-1:], "label": label}
    return out | {"messages": messages}


def read_alpaca(row: Mapping[str, Any]) -> dict[str, Any]:
    """Reads ``instruction``, ``input``, ``output`` (and ``system``, ``history``), or ``chosen``/``rejected``."""
    out = dict(row)
    parts = [out.pop("instruction", None), out.pop("input", None)]
    prompt: Messages = [{"role": "user", "content": "\n\n".join(part for part in parts if part)}]
    for asked, answered in reversed(out.pop("history", None) or []):
        prompt = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}, *prompt]
    system = out.pop("system", None)
    if system:
        prompt = [{"role": "system", "content": system}, *prompt]
    if "chosen" in out:
        sides = ("chosen", "rejected")
        return out | {"prompt": prompt} | {side: _answer(out.get(side), side) for side in sides}
    completion = _answer(out.pop("output", None), "output")
    label = _label_column(out)
    return out | {"prompt": prompt, "completion": completion} | ({} if label is None else {"label": label})


def read_openai(row: Mapping[str, Any]) -> dict[str, Any]:
    """Reads fine-tuning rows: ``messages`` with weights, or ``input`` with preferred and non-preferred outputs."""
    out = dict(row)
    out.pop("parallel_tool_calls", None)
    if "preferred_output" not in out:
        return out
    given = out.pop("input")
    if not isinstance(given, dict) or "messages" not in given:
        raise RowProblem("row_type", "input must hold messages")
    tools = {"tools": given["tools"]} if given.get("tools") else {}
    sides = {"chosen": out.pop("preferred_output"), "rejected": out.pop("non_preferred_output", None)}
    return out | tools | {"prompt": given["messages"]} | sides


def _answer(value: Any, name: str) -> Messages:
    if is_messages(value) or isinstance(value, dict):
        return clean_messages(value, name=name)
    if not isinstance(value, str):
        raise RowProblem("row_type", f"{name} must be text, found {type(value).__name__}")
    return [{"role": "assistant", "content": value}]


def _label_column(row: dict[str, Any]) -> Any:
    return next((row.pop(name) for name in ("label", "kto_tag") if name in row), None)


READERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "trl": dict,
    "sharegpt": read_sharegpt,
    "alpaca": read_alpaca,
    "hh": read_hh,
    "openai": read_openai,
}


def as_messages(side: Side, role: str) -> Messages:
    """Returns a prompt or completion as messages; plain text becomes one of the given role."""
    return [{"role": role, "content": side}] if isinstance(side, str) else list(side)


def _conversation(fields: Mapping[str, Any], answer: str) -> Messages:
    return as_messages(fields["prompt"], "user") + as_messages(fields[answer], "assistant")


def write_sharegpt(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Writes messages, prompt-completion or preference rows as ``from``/``value`` turns."""
    if kind == "preference":
        chosen, rejected = (as_messages(fields[side], "assistant") for side in ("chosen", "rejected"))
        if len(chosen) != 1 or len(rejected) != 1:
            raise UsageError("this format holds one message a side", fix="write trl or hh")
        prompt = as_messages(fields["prompt"], "user")
        return {"conversations": _turns(prompt), "chosen": _turns(chosen)[0], "rejected": _turns(rejected)[0]}
    messages = fields["messages"] if kind == "messages" else _conversation(fields, "completion")
    return {"conversations": _turns(messages)}


def _turns(messages: Messages) -> list[dict[str, Any]]:
    return [
        {"from": _SHAREGPT_NAMES[message["role"]], "value": message["content"]}
        | {key: value for key, value in message.items() if key not in ("role", "content")}
        for message in messages
    ]


def write_alpaca(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Writes one-answer rows as ``instruction``/``output``, with ``system`` and ``history`` where there are any."""
    if kind == "messages":
        prompt, answer = list(fields["messages"][:-1]), list(fields["messages"][-1:])
    else:
        prompt, answer = as_messages(fields["prompt"], "user"), as_messages(fields["completion"], "assistant")
    out: dict[str, Any] = {}
    if prompt and prompt[0]["role"] == "system":
        out["system"] = prompt.pop(0)["content"]
    roles = [message["role"] for message in prompt + answer]
    if roles != ["user", "assistant"] * (len(roles) // 2) or not roles:
        raise UsageError("this format holds turns of user and assistant only", found=", ".join(roles))
    texts = [message["content"] for message in prompt + answer]
    if len(texts) > 2:
        out["history"] = [list(pair) for pair in zip(texts[:-2:2], texts[1:-2:2], strict=True)]
    return out | {"instruction": texts[-2], "input": "", "output": texts[-1]}


def write_hh(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Writes preference rows as two whole transcripts, others as one in ``text``."""
    if kind == "preference":
        return {side: write_transcript(_conversation(fields, side)) for side in ("chosen", "rejected")}
    messages = fields["messages"] if kind == "messages" else _conversation(fields, "completion")
    return {"text": write_transcript(messages)}


def write_openai(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Writes fine-tuning rows; an untrained assistant turn gets weight 0."""
    tools = {"tools": fields["tools"]} if fields.get("tools") else {}
    if kind == "preference":
        given = {"messages": _weighted(as_messages(fields["prompt"], "user"))} | tools
        sides = (_weighted(as_messages(fields[side], "assistant")) for side in ("chosen", "rejected"))
        return {"input": given} | dict(zip(("preferred_output", "non_preferred_output"), sides, strict=True))
    messages = fields["messages"] if kind == "messages" else _conversation(fields, "completion")
    return {"messages": _weighted(messages)} | tools


def _weighted(messages: Messages) -> Messages:
    out = []
    for message in messages:
        written = {key: value for key, value in message.items() if key != "train"}
        if "train" in message:
            written["weight"] = int(message["train"])
        if "tool_calls" in written:
            written["tool_calls"] = [_with_string_arguments(call) for call in written["tool_calls"]]
        out.append(written)
    return out


def _with_string_arguments(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), dict):
        return call
    return call | {"function": function | {"arguments": json.dumps(function["arguments"], ensure_ascii=False)}}


WRITERS: Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {
    "trl": lambda fields, kind: dict(fields),  # noqa: ARG005
    "sharegpt": write_sharegpt,
    "alpaca": write_alpaca,
    "hh": write_hh,
    "openai": write_openai,
}
