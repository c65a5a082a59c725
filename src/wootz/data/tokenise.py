"""From canonical rows to groups of tokens, and what happened to each row on the way.

    row -> text with spans to learn -> tokens of the whole text -> prompt | completion + loss mask -> cut to max_length

Prompt and completion are never tokenised apart: the whole text is, and the boundary falls between two of its tokens.
A token that reaches over the boundary (a prompt that ends in a blank, an answer that begins with a line break) goes to
the completion and is learned; such rows are counted, because generation will start from the prompt's own tokens.
All completions of a group continue the same prompt tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wootz.core.protocols import Tokenizer
from wootz.core.records import Completion, Group, Sequence
from wootz.data.kinds import Messages, Row, is_messages
from wootz.data.messages import RowProblem, is_trained
from wootz.data.template import ChatFormat, Tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row.

    Attributes:
        group: Its tokens, or None when it cannot be used as it is.
        length: Tokens of the prompt and its longest completion before anything was cut.
        flags: Check name to what is to be said about this row.
    """

    row: Row
    group: Group | None
    length: int = 0
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Answer:
    """One completion on its way: the whole text's tokens, which are learned, and where the prompt ends."""

    tokens: Tokens
    mask: np.ndarray
    boundary: int  # characters of the text that are prompt
    columns: Mapping[str, Any]
    closed: bool = False  # ends with a learned end-of-turn token
    step_ends: tuple[int, ...] = ()  # characters


class Tokeniser:
    """Turns rows of one kind into groups.

    Args:
        tokenizer: Any Hugging Face tokenizer with offsets.
        kind: The kind of the rows.
        max_length: Longest prompt plus completion, in tokens.
        allow: Checks that may fail: ``template_prefix`` trains only turns that are what the model is asked,
            ``prompt_too_long`` cuts prompts from the left.
    """

    def __init__(self, tokenizer: Tokenizer, kind: str, *, max_length: int, allow: tuple[str, ...] = ()) -> None:
        self.chat = ChatFormat(tokenizer)
        self.kind = kind
        self.max_length = max_length
        self.allow = allow

    def __call__(self, row: Row) -> Outcome:
        """Returns the row's group, or why there is none."""
        flags: dict[str, str] = {}
        try:
            if self.kind == "prompt":
                return self._prompt_only(row, flags)
            answers = self._answers(row, flags)
        except RowProblem as problem:
            return Outcome(row, None, flags={problem.check: problem.message})
        tokens, completions = _assemble(answers, flags)
        length = len(tokens) + max(len(completion.tokens) for completion in completions)
        if self.chat.num_bos(tokens) > 1:
            flags["bos_doubled"] = f"begins with {self.chat.num_bos(tokens)} BOS tokens"
        if not all(completion.loss_mask.any() for completion in completions):
            return Outcome(row, None, length, flags | {"nothing_trained": "no token is left to learn"})
        tokens, completions = self._cut(tokens, completions, flags)
        if not all(completion.loss_mask.any() for completion in completions):
            return Outcome(row, None, length, flags)
        text = self._readable(completions)
        finished = tuple(replace(completion, text=said) for completion, said in zip(completions, text, strict=True))
        prompt = Sequence(tokens, self.chat.tokenizer.decode(list(tokens)))
        return Outcome(row, Group(row.id, prompt, finished, _columns(row, self.kind)), length, flags)

    def _prompt_only(self, row: Row, flags: dict[str, str]) -> Outcome:
        prompt = row.fields["prompt"]
        if isinstance(prompt, list):
            text = self.chat.render(prompt, tools=row.fields.get("tools"), add_generation_prompt=True)
        else:
            text = prompt
        tokens = self.chat.encode(text).ids
        length = len(tokens)
        if length >= self.max_length:
            flags["prompt_too_long"] = f"{length:,} tokens"
            if "prompt_too_long" not in self.allow:
                return Outcome(row, None, length, flags)
            tokens = self._keep_end(tokens, self.max_length - 1)
        group = Group(row.id, Sequence(tokens, self.chat.tokenizer.decode(list(tokens))), (), _columns(row, self.kind))
        return Outcome(row, group, length, flags)

    def _answers(self, row: Row, flags: dict[str, str]) -> list[_Answer]:
        fields, carried = row.fields, {n: row.extra[n] for n in ("margin", "weight") if n in row.extra}
        if self.kind == "text":
            return [self._plain("", fields["text"], carried)]
        if self.kind == "messages":
            return [self._conversation(fields["messages"], 0, row, flags, carried)]
        if self.kind == "stepwise":
            return [self._steps(row, flags, carried)]
        if self.kind == "ranked":
            sides = [(s, {"score": v}) for s, v in zip(fields["completions"], fields["scores"], strict=True)]
        elif self.kind == "preference":
            sides = [(fields["chosen"], {"chosen": True}), (fields["rejected"], {"chosen": False})]
        elif self.kind == "unpaired":
            sides = [(fields["completion"], {"label": fields["label"]})]
        else:
            sides = [(fields["completion"], {})]
        return [self._side(row, side, flags, {**carried, **columns}) for side, columns in sides]

    def _side(self, row: Row, side: Any, flags: dict[str, str], columns: Mapping[str, Any]) -> _Answer:
        prompt = row.fields["prompt"]
        if isinstance(prompt, str):
            return self._plain(prompt, side, columns)
        return self._conversation([*prompt, *side], len(prompt), row, flags, columns)

    def _plain(self, prompt: str, answer: str, columns: Mapping[str, Any]) -> _Answer:
        tokens = self.chat.encode(prompt + answer)
        mask = tokens.overlapping(len(prompt), len(prompt + answer))
        return self._close(_Answer(tokens, mask, len(prompt), columns), chat=False)

    def _close(self, answer: _Answer, *, chat: bool) -> _Answer:
        """Ends an answer that no end-of-turn token closes yet with EOS, learned; what follows the learned part goes."""
        tokens, mask = answer.tokens, answer.mask
        learned = np.flatnonzero(mask)
        last = int(learned[-1]) + 1 if len(learned) else len(tokens.ids)
        ids, starts, ends, mask = tokens.ids[:last], tokens.starts[:last], tokens.ends[:last], mask[:last]
        closed = bool(len(learned)) and self.chat.ends_turn(ids[-1], chat=chat)
        eos = self.chat.tokenizer.eos_token_id
        if len(learned) and not closed and eos is not None:
            end = ends[-1:]
            ids, closed = (*ids, eos), True
            starts, ends, mask = np.append(starts, end), np.append(ends, end), np.append(mask, True)
        return replace(answer, tokens=Tokens(ids, starts, ends), mask=mask, closed=closed)

    def _conversation(
        self, messages: Messages, start: int, row: Row, flags: dict[str, str], columns: Mapping[str, Any]
    ) -> _Answer:
        """The assistant turns from position ``start`` on; the prompt ends where the first of them begins."""
        tools = row.fields.get("tools")
        turns = [index for index in range(max(start, 1), len(messages)) if is_trained(messages[index])]
        rendered = self.chat.render_turns(messages, turns, tools=tools)
        spans = rendered.spans
        boundary = spans[0][0] if spans else len(rendered.text)
        if start and turns[:1] != [start]:
            given = self.chat.prompt_length(rendered.text, messages[:start], tools=tools)
            boundary = boundary if given is None else given
        if rendered.rewritten:
            flags["template_prefix"] = (
                f"turn {rendered.rewritten[0] + 1} of {len(messages)} is rendered otherwise later"
            )
            if rendered.rewritten[-1] == len(messages) - 1:
                flags["template_prefix"] = "the full render does not begin with the prompt given at generation"
        tokens = self.chat.encode(rendered.text)
        return self._close(_Answer(tokens, self.chat.trained(tokens, spans), boundary, columns), chat=True)

    def _steps(self, row: Row, flags: dict[str, str], columns: Mapping[str, Any]) -> _Answer:
        """Steps are one answer, a line break between them; each ends where the next one's line break begins."""
        steps, prompt = row.fields["completions"], row.fields["prompt"]
        joined = "\n".join(steps)
        columns = {**columns, "step_labels": tuple(row.fields["labels"])}
        if isinstance(prompt, str):
            answer, text_start = self._plain(prompt, joined, columns), len(prompt)
        else:
            messages = [*prompt, {"role": "assistant", "content": joined}]
            answer = self._conversation(messages, len(prompt), row, flags, columns)
            text = self.chat.render(messages, tools=row.fields.get("tools"))
            text_start = text.find(joined, answer.boundary)
            if text_start < 0:
                raise RowProblem("template_error", "the template changes the steps' text")
        ends = np.cumsum([len(step) + 1 for step in steps]) - 1 + text_start
        return replace(answer, step_ends=tuple(int(end) for end in ends))

    def _cut(
        self, prompt: tuple[int, ...], completions: list[Completion], flags: dict[str, str]
    ) -> tuple[tuple[int, ...], list[Completion]]:
        """Cuts completions from the right to fit; a prompt that leaves no room is cut from the left, if allowed."""
        longest = max(len(completion.tokens) for completion in completions)
        if len(prompt) + longest <= self.max_length:
            return prompt, completions
        cut = [_keep_start(completion, self.max_length - len(prompt)) for completion in completions]
        if not all(completion.loss_mask.any() for completion in cut):
            flags["prompt_too_long"] = f"{len(prompt):,} prompt tokens"
            if "prompt_too_long" not in self.allow:
                return prompt, cut
            # The answer comes first, but never takes more than half: an answer without its question teaches nothing.
            prompt = self._keep_end(prompt, max(self.max_length - longest, self.max_length // 2))
            cut = [_keep_start(completion, self.max_length - len(prompt)) for completion in completions]
        if any(not completion.finished for completion in cut):
            flags["truncated"] = f"{len(prompt) + longest:,} tokens"
        return prompt, cut

    def _keep_end(self, tokens: tuple[int, ...], count: int) -> tuple[int, ...]:
        head = tokens[: min(self.chat.num_bos(tokens), 1)] if count > 1 else ()
        return head + tokens[len(tokens) - (count - len(head)) :]

    def _readable(self, completions: list[Completion]) -> list[str]:
        decode = self.chat.tokenizer.decode
        return [
            decode([t for t, m in zip(c.tokens, c.loss_mask, strict=True) if m], skip_special_tokens=True)
            for c in completions
        ]


def _assemble(answers: list[_Answer], flags: dict[str, str]) -> tuple[tuple[int, ...], list[Completion]]:
    """The prompt tokens that all answers share, and the rest of each as its completion.

    Nothing precedes the first token of a text, so it is always prompt and never learned.
    """
    counts = [answer.tokens.before(answer.boundary) for answer in answers]
    shared = max(min(min(counts), _common([answer.tokens.ids for answer in answers])), 1)
    completions = []
    for answer, count in zip(answers, counts, strict=True):
        ids = answer.tokens.ids
        if count < len(ids) and answer.tokens.starts[count] < answer.boundary:
            flags["boundary_merge"] = "a token reaches from the prompt into the answer"
        mask = answer.mask[shared:]
        columns = dict(answer.columns)
        if answer.step_ends:
            columns["step_ends"] = tuple(
                int(np.searchsorted(answer.tokens.starts, end, side="left")) - shared for end in answer.step_ends
            )
        per_token = {} if mask.all() else {"loss_mask": mask.copy()}
        completions.append(Completion(ids[shared:], "", per_token, columns, answer.closed))
    return answers[0].tokens.ids[:shared], completions


def _common(sequences: list[tuple[int, ...]]) -> int:
    """Tokens that all sequences begin with."""
    shortest = min(len(ids) for ids in sequences)
    first = sequences[0]
    return next((i for i in range(shortest) if any(ids[i] != first[i] for ids in sequences)), shortest)


def _keep_start(completion: Completion, count: int) -> Completion:
    """The first ``count`` tokens; what is cut off takes the end-of-turn token along, and none is invented."""
    if len(completion.tokens) <= count:
        return completion
    count = max(count, 0)
    arrays = {name: array[:count] for name, array in completion.per_token.items()}
    columns = dict(completion.columns)
    if "step_ends" in columns:
        whole = sum(end <= count for end in columns["step_ends"])
        columns |= {name: columns[name][:whole] for name in ("step_ends", "step_labels")}
    return replace(completion, tokens=completion.tokens[:count], per_token=arrays, columns=columns, finished=False)


def _columns(row: Row, kind: str) -> dict[str, Any]:
    columns = {name: value for name, value in row.extra.items() if name not in ("margin", "weight")}
    if "tools" in row.fields:
        columns["tools"] = row.fields["tools"]
    if kind == "messages":
        messages = row.fields["messages"]
        first = next((index for index, message in enumerate(messages) if is_trained(message) and index), len(messages))
        columns["prompt_messages"] = messages[:first]
    elif is_messages(row.fields.get("prompt")):
        columns["prompt_messages"] = row.fields["prompt"]
    return columns
