"""Chat templates: what is rendered, where each assistant turn lies in it, and which tokens that is.

A template is a program; nothing in it says which of its characters the model is to learn. They are found by rendering
beginnings of the conversation. With F the full render, and for the assistant turn i

    P_i = the messages before i, with the generation prompt: what the model is given when it must answer
    F_i = the messages up to and including i

the turn is F[len(P_i) : len(F_i)], provided that F begins with P_i and with F_i. Where that fails the template rewrites
earlier text later on (it strips old reasoning, moves the system prompt), so what would be learned there is not what the
model is ever asked; such a turn is never trained silently.

The full render is tokenised once, and characters become tokens through offsets. BOS: exactly one if the tokenizer adds
one by itself or the template prints it, none otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from typing import Any

import numpy as np
from jinja2 import TemplateError

from wootz.core.errors import DataError
from wootz.core.protocols import Tokenizer
from wootz.core.records import Sequence
from wootz.data.kinds import Messages
from wootz.data.messages import RowProblem, without_marks


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenised text.

    Attributes:
        ids: Token ids.
        starts: First character of each token; bytes of one character share it. BOS added by us spans nothing.
        ends: One past the last character of each token, never decreasing.
    """

    ids: tuple[int, ...]
    starts: np.ndarray
    ends: np.ndarray

    def before(self, character: int) -> int:
        """Returns how many tokens end at or before ``character``."""
        return int(np.searchsorted(self.ends, character, side="right"))

    def overlapping(self, start: int, stop: int) -> np.ndarray:
        """Returns which tokens hold a character of ``[start, stop)``."""
        return (self.ends > start) & (self.starts < stop)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation.

    Attributes:
        text: The full render.
        spans: Characters ``[start, stop)`` of each asked-for turn, in order: everything the model writes there, its
            end-of-turn token included, and whatever the template puts behind it.
        rewritten: Asked-for turns without a span, because later text changes what stood there.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    rewritten: tuple[int, ...] = ()


class ChatFormat:
    """A tokenizer with its chat template, as a way to turn conversations into tokens and spans."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._special: dict[int, bool] = {}

    @cached_property
    def adds_bos(self) -> bool:
        """Whether the tokenizer puts BOS before a text by itself."""
        bos = self.tokenizer.bos_token_id
        return bos is not None and list(self.tokenizer("a").input_ids[:1]) == [bos]

    @cached_property
    def end_of_turn(self) -> int | None:
        """The token that the template closes a plain assistant turn with, or None when it writes none."""
        if not self.tokenizer.chat_template:
            return None
        try:
            probe = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            tokens = self.encode(self.render(probe)).ids
        except RowProblem:
            return None
        tail = self.tail(tokens)
        return next((token for token in tokens[tail:] if self.is_special(token)), None)

    @cached_property
    def unknown(self) -> int | None:
        """The token for what the tokenizer does not know, or None where it has no such token of its own."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        return None if unknown in (self.tokenizer.eos_token_id, self.tokenizer.bos_token_id) else unknown

    def is_special(self, token: int) -> bool:
        """Returns whether decoding without special tokens leaves the token out, and it does not stand for text."""
        if token not in self._special:
            shown = self.tokenizer.decode([token])
            hidden = bool(shown) and not self.tokenizer.decode([token], skip_special_tokens=True)
            self._special[token] = hidden and token != self.unknown
        return self._special[token]

    def tail(self, tokens: SequenceOf[int]) -> int:
        """Returns where the closing run of special and blank tokens begins."""
        start = len(tokens)
        while start and (self.is_special(tokens[start - 1]) or self._is_blank(tokens[start - 1])):
            start -= 1
        return start

    def _is_blank(self, token: int) -> bool:
        return not self.tokenizer.decode([token]).strip()

    def encode(self, text: str) -> Tokens:
        """Tokenises a text that may hold special tokens; BOS comes first once, if it comes at all.

        Raises:
            DataError: The tokenizer cannot tell where its tokens lie.
        """
        try:
            coded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        except NotImplementedError as error:
            raise DataError(
                "this tokenizer cannot tell where its tokens lie in the text",
                found=type(self.tokenizer).__name__,
                expected="a tokenizer with a tokenizer.json",
            ) from error
        ids = list(coded["input_ids"])
        offsets = np.asarray(coded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        ends = np.maximum.accumulate(offsets[:, 1]) if ids else offsets[:, 1]
        # Some tokenizers leave blanks out of offsets; a character belongs to the token that ends behind it.
        starts = np.minimum(offsets[:, 0], np.concatenate(([0], ends[:-1]))) if ids else offsets[:, 0]
        if self.adds_bos and ids[:1] != [self.tokenizer.bos_token_id]:
            ids = [self.tokenizer.bos_token_id, *ids]
            starts, ends = np.concatenate(([0], starts)), np.concatenate(([0], ends))
        return Tokens(tuple(ids), starts, ends)

    def num_bos(self, tokens: SequenceOf[int]) -> int:
        """Returns how many BOS tokens the sequence begins with."""
        count = 0
        while count < len(tokens) and tokens[count] == self.tokenizer.bos_token_id:
            count += 1
        return count

    def render(self, messages: Messages, *, tools: Any = None, add_generation_prompt: bool = False) -> str:
        """Returns the text of a conversation.

        Raises:
            DataError: The tokenizer has no chat template.
            RowProblem: The template refuses this conversation.
        """
        if not self.tokenizer.chat_template:
            raise DataError(
                "the rows are conversations, but the model has no chat template",
                expected="chat_template.jinja in the model folder, or an instruction-tuned model",
                fix="train on plain prompt and completion strings, or use the -Instruct model",
            )
        try:
            return self.tokenizer.apply_chat_template(
                without_marks(messages), tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except (TemplateError, TypeError, KeyError, IndexError) as error:
            raise RowProblem("template_error", f"{type(error).__name__}: {error}") from error

    def render_turns(self, messages: Messages, turns: Collection[int], *, tools: Any = None) -> Rendered:
        """Returns the full render and the characters of the assistant turns at the given positions.

        The last message's turn counts as rewritten only when its generation prompt does not begin the full render.
        """
        text = self.render(messages, tools=tools)
        spans, rewritten = [], []
        for turn in sorted(turns):
            start = self.prompt_length(text, messages[:turn], tools=tools)
            stop = self._turn_end(text, messages[: turn + 1], tools=tools) if turn + 1 < len(messages) else len(text)
            if start is None or stop is None or stop <= start:
                rewritten.append(turn)
            else:
                spans.append((start, stop))
        return Rendered(text, tuple(spans), tuple(rewritten))

    def prompt_length(self, text: str, before: Messages, *, tools: Any = None) -> int | None:
        """Returns how many characters of ``text`` ask for an answer to ``before``; None when it begins otherwise."""
        if not before:
            return None
        prompt = self.render(before, tools=tools, add_generation_prompt=True)
        return len(prompt) if text.startswith(prompt) else None

    def _turn_end(self, text: str, until: Messages, *, tools: Any) -> int | None:
        """Where a turn inside the conversation ends. A template may close the last message otherwise than an earlier
        one, but only with special tokens and blanks."""
        part = self.render(until, tools=tools)
        if text.startswith(part):
            return len(part)
        shared = len(commonprefix((text, part)))
        tokens = self.encode(part)
        tail = self.tail(tokens.ids)
        if tail == len(tokens.ids) or shared < tokens.starts[tail]:
            return None
        return int(tokens.ends[tokens.before(shared) - 1])

    def trained(self, tokens: Tokens, spans: SequenceOf[tuple[int, int]]) -> np.ndarray:
        """Returns which tokens are learned: those of the spans, up to and including the token that ends each turn.

        A token that reaches over the edge of a span is learned: without it a character of the answer would be missing.
        What follows the first end-of-turn token (a line break, a second end) is the template's and is not learned.
        """
        mask = np.zeros(len(tokens.ids), dtype=bool)
        for start, stop in spans:
            inside = np.flatnonzero(tokens.overlapping(start, stop))
            if len(inside):
                first = int(inside[0])
                mask[first : first + self._turn_tokens(tokens.ids[first : int(inside[-1]) + 1])] = True
        return mask

    def _turn_tokens(self, turn: tuple[int, ...]) -> int:
        tail = self.tail(turn)
        special = [index for index in range(tail, len(turn)) if self.is_special(turn[index])]
        ends = [index for index in special if turn[index] == self.end_of_turn]
        return ends[0] + 1 if ends else special[-1] + 1 if special else tail

    def ends_turn(self, token: int, *, chat: bool) -> bool:
        """Returns whether the token closes an answer; behind a chat template any special token may (a tool call's)."""
        return token in (self.end_of_turn, self.tokenizer.eos_token_id) or (chat and self.is_special(token))


def render_chat(
    messages: Messages, tokenizer: Tokenizer, *, add_generation_prompt: bool = True, tools: Any = None
) -> Sequence:
    """Returns the tokens and text of a conversation, as the model is asked to continue it, with at most one BOS.

    Raises:
        DataError: No chat template, or one that refuses these messages.
    """
    chat = ChatFormat(tokenizer)
    try:
        text = chat.render(messages, tools=tools, add_generation_prompt=add_generation_prompt)
    except RowProblem as problem:
        raise DataError(
            "the model's chat template refuses this conversation",
            found=problem.message,
            expected="roles in an order that the template knows",
        ) from problem
    return Sequence(chat.encode(text).ids, text)
