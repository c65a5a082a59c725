from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.data.chats import (
    CHATML,
    CHATS,
    FORGETS_NOTES,
    MOVES_SYSTEM,
    OPENS_THINKING,
    STRIPS_THINKING,
    expected_tokens,
    learned,
    make_tokenizer,
)
from wootz.core.errors import DataError
from wootz.data import render_chat
from wootz.data.kinds import Row
from wootz.data.template import ChatFormat
from wootz.data.tokenise import Tokeniser

TEXTS = st.text(alphabet="abt .:\n?é😀", min_size=1, max_size=12).filter(str.strip)
TOKENIZERS = {
    (name, regex): make_tokenizer(chat.template, regex=regex, eos=chat.eos)
    for name, chat in CHATS.items()
    for regex in (True, False)
}


@st.composite
def conversations(draw: st.DrawFn) -> list[dict]:
    messages: list[dict] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(TEXTS)})
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(TEXTS)})
        answer = {"role": "assistant", "content": draw(TEXTS)}
        if draw(st.booleans()):
            answer["train"] = draw(st.booleans())
        messages.append(answer)
    if not any(learned(message) for message in messages):
        messages[-1].pop("train")
    return messages


def row(**fields: object) -> Row:
    return Row(0, "line 1", fields)


def flat(group) -> tuple[list[int], list[bool]]:
    (answer,) = group.completions
    mask = [False] * len(group.prompt.tokens) + answer.loss_mask.tolist()
    return [*group.prompt.tokens, *answer.tokens], mask


@pytest.mark.parametrize("regex", [True, False])
@pytest.mark.parametrize("name", CHATS)
@settings(max_examples=60, deadline=None)
@given(messages=conversations())
def test_mask_is_the_spans_of_the_full_render(name, regex, messages):
    tokenizer = TOKENIZERS[name, regex]
    outcome = Tokeniser(tokenizer, "messages", max_length=10_000)(row(messages=messages))
    ids, mask = expected_tokens(tokenizer, CHATS[name].reference(messages), closes=name == "bare")
    assert flat(outcome.group) == (ids, mask)
    assert outcome.group.completions[0].loss_mask[0]
    assert "template_prefix" not in outcome.flags


@pytest.mark.parametrize("name", CHATS)
@settings(max_examples=30, deadline=None)
@given(messages=conversations(), other=TEXTS)
def test_a_pair_shares_its_prompt_and_learns_both_answers(name, messages, other):
    tokenizer = TOKENIZERS[name, False]
    prompt, answers = messages[:-1], [messages[-1]["content"], other]
    fields = {
        side: [{"role": "assistant", "content": text}]
        for side, text in zip(("chosen", "rejected"), answers, strict=True)
    }
    group = Tokeniser(tokenizer, "preference", max_length=10_000)(row(prompt=prompt, **fields)).group
    for answer, text, chosen in zip(group.completions, answers, (True, False), strict=True):
        context = [message | {"train": False} for message in prompt]
        segments = CHATS[name].reference([*context, {"role": "assistant", "content": text}])
        ids, mask = expected_tokens(tokenizer, segments, closes=name == "bare")
        assert [*group.prompt.tokens, *answer.tokens] == ids
        assert [False] * len(group.prompt.tokens) + answer.loss_mask.tolist() == mask
        assert answer.columns == {"chosen": chosen}
        assert answer.finished


@pytest.mark.parametrize("name", CHATS)
def test_prompt_is_what_generation_starts_from(name):
    tokenizer = TOKENIZERS[name, True]
    prompt = [{"role": "user", "content": "what is this?"}]
    completion = [{"role": "assistant", "content": "a test"}]
    group = Tokeniser(tokenizer, "prompt_completion", max_length=99)(row(prompt=prompt, completion=completion)).group
    assert group.prompt == render_chat(prompt, tokenizer)
    assert group.columns["prompt_messages"] == prompt


@pytest.mark.parametrize("prints", [False, True])
@pytest.mark.parametrize("adds", [False, True])
def test_exactly_one_bos(adds, prints):
    tokenizer = make_tokenizer(("{{ bos_token }}" if prints else "") + CHATML, adds_bos=adds)
    group = Tokeniser(tokenizer, "messages", max_length=99)(
        row(messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    ).group
    assert flat(group)[0].count(tokenizer.bos_token_id) == int(adds or prints)
    assert render_chat([{"role": "user", "content": "a"}], tokenizer).tokens.count(tokenizer.bos_token_id) == int(
        adds or prints
    )
    for text in ("a b", "<s>a b"):
        (group,) = [Tokeniser(tokenizer, "text", max_length=99)(row(text=text)).group]
        assert flat(group)[0].count(tokenizer.bos_token_id) == int(adds or text.startswith("<s>"))


def test_doubled_bos_is_flagged():
    tokenizer = make_tokenizer("{{ bos_token }}{{ bos_token }}" + CHATML)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert "bos_doubled" in Tokeniser(tokenizer, "messages", max_length=99)(row(messages=messages)).flags


def test_eos_is_learned_once_where_it_also_pads():
    tokenizer = make_tokenizer(CHATML.replace("<|im_end|>\n", "</s></s>\n"), eos="</s>", pad="</s>")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    messages = [{"role": r, "content": c} for r, c in zip(["user", "assistant"] * 2, "abcd", strict=True)]
    ids, mask = flat(Tokeniser(tokenizer, "messages", max_length=99)(row(messages=messages)).group)
    ends = [flag for token, flag in zip(ids, mask, strict=True) if token == tokenizer.eos_token_id]
    # Two ends a turn: of each answer the first is learned, of the last answer nothing follows.
    assert ends == [False, False, True, False, False, False, True]
    assert mask[-1]


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        (
            STRIPS_THINKING,
            [("user", "a"), ("assistant", "<think>hm</think>b"), ("user", "c"), ("assistant", "<think>so</think>d")],
        ),
        (FORGETS_NOTES, [("user", "a"), ("assistant", "b<note>hm"), ("user", "c"), ("assistant", "d<note>so")]),
        (MOVES_SYSTEM, [("system", "be kind"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]),
    ],
)
def test_a_turn_that_is_rewritten_later_is_flagged_and_never_learned(template, messages):
    tokenizer = make_tokenizer(template)
    messages = [{"role": role, "content": content} for role, content in messages]
    outcome = Tokeniser(tokenizer, "messages", max_length=999)(row(messages=messages))
    assert "template_prefix" in outcome.flags
    (answer,) = outcome.group.completions
    assert answer.loss_mask.all()
    text = tokenizer.decode(answer.tokens)
    assert text.lstrip().startswith(messages[-1]["content"])
    assert "b" not in text.replace("<|im_end|>", "")
    one = Tokeniser(tokenizer, "messages", max_length=999)(
        row(messages=messages[:2] if template != MOVES_SYSTEM else messages[:3])
    )
    assert "template_prefix" not in one.flags


def test_a_generation_prompt_that_the_render_lacks_is_flagged():
    tokenizer = make_tokenizer(OPENS_THINKING)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    outcome = Tokeniser(tokenizer, "messages", max_length=99)(row(messages=messages))
    assert outcome.group is None
    assert "does not begin with the prompt given at generation" in outcome.flags["template_prefix"]


def test_a_template_that_refuses_a_conversation():
    tokenizer = make_tokenizer("{{ raise_exception('no system turns here') }}")
    with pytest.raises(DataError, match="refuses") as caught:
        render_chat([{"role": "user", "content": "a"}], tokenizer)
    assert "no system turns here" in str(caught.value)
    flags = Tokeniser(tokenizer, "prompt", max_length=9)(row(prompt=[{"role": "user", "content": "a"}])).flags
    assert "no system turns here" in flags["template_error"]


def test_no_chat_template_names_the_fix():
    with pytest.raises(DataError, match="no chat template") as caught:
        render_chat([{"role": "user", "content": "a"}], make_tokenizer(None))
    assert "Instruct" in caught.value.fix


def test_tools_reach_the_template():
    tokenizer = make_tokenizer("{% for t in tools or [] %}[{{ t['name'] }}]{% endfor %}" + CHATML)
    fields = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    group = Tokeniser(tokenizer, "messages", max_length=99)(row(**fields, tools=[{"name": "cat"}])).group
    assert group.prompt.text.startswith("[cat]<|im_start|>user")


def test_tool_turns_stay_unlearned_inside_the_answer():
    tokenizer = make_tokenizer(CHATML, eos="<|im_end|>")
    prompt = [{"role": "user", "content": "a"}]
    answer = [
        {"role": "assistant", "content": "call"},
        {"role": "tool", "content": "the result"},
        {"role": "assistant", "content": "done"},
    ]
    group = Tokeniser(tokenizer, "prompt_completion", max_length=99)(row(prompt=prompt, completion=answer)).group
    (completion,) = group.completions
    learned_ids = np.asarray(completion.tokens)[completion.loss_mask]
    assert tokenizer.decode(learned_ids) == "call<|im_end|>done<|im_end|>"
    assert "the result" in tokenizer.decode(completion.tokens)
    assert completion.text == "calldone"


def test_offsets_that_leave_out_blanks_change_nothing():
    """Some tokenizers report spans without the blanks that their tokens carry."""

    class Trimmed:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def __call__(self, text, **options):
            coded = self.inner(text, **options)
            if "offset_mapping" in coded:
                spans = []
                for start, end in coded["offset_mapping"]:
                    lead = len(text[start:end]) - len(text[start:end].lstrip())
                    spans.append((min(start + lead, end), end))
                coded["offset_mapping"] = spans
            return coded

    tokenizer = make_tokenizer(CHATS["bare"].template)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "the cat\n\n sat"}], tokenize=False)
    plain, trimmed = ChatFormat(tokenizer).encode(text), ChatFormat(Trimmed(tokenizer)).encode(text)
    assert plain.ids == trimmed.ids
    np.testing.assert_array_equal(plain.starts, trimmed.starts)
    np.testing.assert_array_equal(plain.ends, trimmed.ends)


def test_end_of_turn_is_told_by_the_template():
    for name, end in {"chatml": "<|im_end|>", "inst": "</s>", "closing": "<|end|>"}.items():
        tokenizer = TOKENIZERS[name, True]
        assert ChatFormat(tokenizer).end_of_turn == tokenizer.convert_tokens_to_ids(end)
    assert ChatFormat(TOKENIZERS["bare", True]).end_of_turn is None


def test_the_template_never_sees_our_marks():
    tokenizer = make_tokenizer("{% for m in messages %}{% if 'train' in m %}MARK{% endif %}{% endfor %}" + CHATML)
    messages = [{"role": role, "content": text} for role, text in [("user", "a"), ("assistant", "b")] * 2]
    messages[1]["train"] = False
    outcome = Tokeniser(tokenizer, "messages", max_length=999)(row(messages=messages))
    assert "MARK" not in outcome.group.prompt.text
