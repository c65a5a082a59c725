"""One form for messages: ``{"role", "content", ...}`` with known roles, whoever wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wootz.data.kinds import Message, Messages

ROLES = ("system", "developer", "user", "assistant", "tool")
_ROLE_NAMES: Mapping[str, str] = {
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function": "tool",
} | {role: role for role in ROLES}


class RowProblem(ValueError):
    """A row that cannot be read; ``check`` names the check that it fails."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(message)
        self.check = check
        self.message = message


def clean_messages(value: Any, *, name: str = "messages") -> Messages:
    """Returns messages with ``role`` and ``content`` in known terms; keys that are None are left out.

    Reads ``role``/``content`` and ``from``/``value``; text parts are joined; OpenAI's ``weight`` 0 or 1 becomes
    ``train``; tool-call arguments written as a JSON string become the object that chat templates expect.

    Raises:
        RowProblem: Not a list of messages, or a message without a role, with an unknown one, or with other than text.
    """
    items = [value] if isinstance(value, dict) else value
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RowProblem("row_type", f"{name} must be a list of messages, found {_shown(value)}")
    return [_clean_message(item, f"{name}[{position}]") for position, item in enumerate(items)]


def _clean_message(item: Mapping[str, Any], name: str) -> Message:
    rest = {key: value for key, value in item.items() if value is not None}
    role = rest.pop("role", None) or rest.pop("from", None)
    if not isinstance(role, str):
        raise RowProblem("row_type", f"{name} has no role, found keys {', '.join(map(str, item)) or 'none'}")
    known = _ROLE_NAMES.get(role.lower())
    if known is None:
        raise RowProblem("role_order", f"{name} has role {role!r}, expected one of {', '.join(ROLES)}")
    rest.pop("from", None)
    content = rest.pop("content", None)
    content = rest.pop("value", "") if content is None else content
    message: Message = {"role": known, "content": _text(content, name)}
    train = _train(rest, name)
    if train is not None:
        if train and known != "assistant":
            raise RowProblem("row_type", f"{name} asks to train on a {known} turn; only assistant turns are trained")
        message["train"] = train
    if "tool_calls" in rest:
        message["tool_calls"] = [_tool_call(call) for call in rest.pop("tool_calls")]
    return message | rest


def _text(content: Any, name: str) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        texts = [text for text in parts if isinstance(text, str)]
        if len(texts) == len(content):
            return "".join(texts)
    raise RowProblem("row_type", f"{name} has content that is not text: {_shown(content)}")


def _train(rest: dict[str, Any], name: str) -> bool | None:
    train = rest.pop("train", None)
    weight = rest.pop("weight", None)
    if train is None and weight is not None:
        if weight not in (0, 1) or isinstance(weight, bool):
            raise RowProblem("row_type", f"{name} has weight {weight!r}, expected 0 or 1")
        train = bool(weight) if weight == 0 else None
    if train is not None and not isinstance(train, bool):
        raise RowProblem("row_type", f"{name} has train: {train!r}, expected true or false")
    return train


def _tool_call(call: Any) -> Any:
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        arguments = call["function"].get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except json.JSONDecodeError as error:
                raise RowProblem(
                    "row_type", f"tool call with arguments that are not JSON: {_shown(arguments)}"
                ) from error
            return call | {"function": call["function"] | {"arguments": arguments}}
    return call


def without_marks(messages: Messages) -> Messages:
    """Returns the messages as a chat template should see them: without our ``train`` marks."""
    return [{key: value for key, value in message.items() if key != "train"} for message in messages]


def is_trained(message: Mapping[str, Any]) -> bool:
    """Returns whether a message is learned: an assistant turn not marked ``train: false``."""
    return message["role"] == "assistant" and message.get("train", True)


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
