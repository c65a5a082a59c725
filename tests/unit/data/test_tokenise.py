from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.unit.data.chats import CHATML, make_tokenizer
from wootz.data.kinds import Row
from wootz.data.tokenise import Tokeniser

PLAIN = make_tokenizer(adds_bos=True)
CHAT = make_tokenizer(CHATML, eos="<|im_end|>")


def row(extra: dict | None = None, **fields: object) -> Row:
    return Row(7, "line 8", fields, extra or {})


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and the merge of a blank with ``4``: ``2+2= 4`` is one token short of ``2+2= `` and ``4``."""
    letters = sorted(set(pre_tokenizers.ByteLevel.alphabet()))
    vocab = {"</s>": 0} | {letter: index for index, letter in enumerate(letters, start=1)}
    vocab["Ġ4"] = len(vocab)
    core = Tokenizer(models.BPE(vocab, [("Ġ", "4")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")


def test_a_token_over_the_boundary_is_learned_and_told():
    tokenizer = merging_tokenizer()
    pair = row(prompt="2+2= ", chosen="4", rejected="5")
    outcome = Tokeniser(tokenizer, "preference", max_length=99)(pair)
    chosen, rejected = outcome.group.completions
    assert tokenizer.decode(outcome.group.prompt.tokens) == "2+2="
    assert [tokenizer.decode([token]) for token in chosen.tokens] == [" 4", "</s>"]
    assert chosen.loss_mask.tolist() == [True, True]
    # The rejected answer merges with nothing: its blank is prompt, carried along unlearned.
    assert [tokenizer.decode([token]) for token in rejected.tokens] == [" ", "5", "</s>"]
    assert rejected.loss_mask.tolist() == [False, True, True]
    assert "boundary_merge" in outcome.flags
    clean = Tokeniser(tokenizer, "preference", max_length=99)(row(prompt="2+2=", chosen=" 4", rejected=" 5"))
    assert "boundary_merge" not in clean.flags
    for answer, text in zip(clean.group.completions, (" 4", " 5"), strict=True):
        whole = tokenizer("2+2=" + text, add_special_tokens=False).input_ids
        assert [*clean.group.prompt.tokens, *answer.tokens] == [*whole, 0]
        assert answer.loss_mask.all()


def test_text_learns_all_but_its_first_token_and_ends_with_one_eos():
    for tokenizer in (PLAIN, make_tokenizer()):
        for text in ("the cat sat", "the cat sat</s>"):
            group = Tokeniser(tokenizer, "text", max_length=99)(row(text=text)).group
            ids = [*group.prompt.tokens, *group.completions[0].tokens]
            bos = [tokenizer.bos_token_id] if tokenizer is PLAIN else []
            assert ids == [*bos, *tokenizer("the cat sat", add_special_tokens=False).input_ids, tokenizer.eos_token_id]
            assert len(group.prompt.tokens) == 1
            assert group.completions[0].loss_mask.all()


def test_columns_go_where_they_belong():
    extra = {"margin": 0.5, "weight": 2.0, "topic": "cats", "gold": [1, 2]}
    group = Tokeniser(PLAIN, "preference", max_length=99)(row(extra, prompt="a", chosen=" b", rejected=" c")).group
    assert group.columns == {"topic": "cats", "gold": [1, 2]}
    assert [c.columns for c in group.completions] == [
        {"margin": 0.5, "weight": 2.0, "chosen": True},
        {"margin": 0.5, "weight": 2.0, "chosen": False},
    ]
    assert group.id == row(prompt="a", chosen=" b", rejected=" c").id
    assert group.id.startswith("7:")
    unpaired = Tokeniser(PLAIN, "unpaired", max_length=99)(row(prompt="a", completion=" b", label=False)).group
    assert unpaired.completions[0].columns == {"label": False}
    ranked = row(prompt="a", completions=[" b", " c d", " e"], scores=[0.1, 3.0, 2.0])
    ranked = Tokeniser(PLAIN, "ranked", max_length=99)(ranked).group
    assert [c.columns["score"] for c in ranked.completions] == [0.1, 3.0, 2.0]
    assert [c.text for c in ranked.completions] == [" b", " c d", " e"]


@pytest.mark.parametrize("chat", [False, True])
def test_steps_end_where_their_last_token_ends(chat):
    tokenizer = CHAT if chat else PLAIN
    steps = ["first the cat", "then a test", "é😀 done"]
    prompt = [{"role": "user", "content": "why?"}] if chat else "why?\n"
    outcome = Tokeniser(tokenizer, "stepwise", max_length=99)(
        row(prompt=prompt, completions=steps, labels=[True, False, True])
    )
    (answer,) = outcome.group.completions
    ends = answer.columns["step_ends"]
    assert answer.columns["step_labels"] == (True, False, True)
    parts = [tokenizer.decode(answer.tokens[a:b]) for a, b in zip((0, *ends), ends, strict=False)]
    assert parts == [steps[0], "\n" + steps[1], "\n" + steps[2]]
    assert answer.tokens[ends[-1] :] == (tokenizer.eos_token_id,)
    cut = Tokeniser(tokenizer, "stepwise", max_length=len(outcome.group.prompt.tokens) + ends[1])(outcome.row)
    assert cut.group.completions[0].columns["step_ends"] == ends[:2]
    assert cut.group.completions[0].columns["step_labels"] == (True, False)


WORDS = st.integers(1, 30).map(lambda count: " the cat" * count)


@settings(max_examples=200, deadline=None)
@given(prompt=WORDS, chosen=WORDS, rejected=WORDS, max_length=st.integers(2, 40), allow=st.booleans())
def test_truncation_never_empties_or_invents(prompt, chosen, rejected, max_length, allow):
    fields = {"prompt": prompt, "chosen": chosen + " a", "rejected": rejected + " b"}
    whole = Tokeniser(PLAIN, "preference", max_length=10_000)(row(**fields)).group
    names = ("prompt_too_long",) if allow else ()
    outcome = Tokeniser(PLAIN, "preference", max_length=max_length, allow=names)(row(**fields))
    asked, longest = len(whole.prompt.tokens), max(len(c.tokens) for c in whole.completions)
    assert outcome.length == asked + longest
    assert ("prompt_too_long" in outcome.flags) == (asked >= max_length)
    if asked >= max_length and not allow:
        assert outcome.group is None
        return
    prompt_tokens = outcome.group.prompt.tokens
    assert prompt_tokens[0] == PLAIN.bos_token_id or max_length < 4
    assert prompt_tokens[1:] == whole.prompt.tokens[len(whole.prompt.tokens) - len(prompt_tokens) + 1 :]
    any_cut = False
    for cut, full in zip(outcome.group.completions, whole.completions, strict=True):
        assert len(cut.tokens) > 0
        assert len(prompt_tokens) + len(cut.tokens) <= max_length
        assert cut.tokens == full.tokens[: len(cut.tokens)]
        assert cut.finished == (len(cut.tokens) == len(full.tokens))
        assert cut.finished == (cut.tokens[-1] == PLAIN.eos_token_id)
        any_cut |= not cut.finished
    assert ("truncated" in outcome.flags) == any_cut
    if asked + longest <= max_length:
        assert outcome.group == whole


def test_an_allowed_cut_keeps_the_answer_before_the_prompt():
    prompt, answer = " the cat" * 40, " the cat" * 3
    outcome = Tokeniser(PLAIN, "prompt_completion", max_length=40, allow=("prompt_too_long",))(
        row(prompt=prompt, completion=answer)
    )
    (completion,) = outcome.group.completions
    assert completion.finished
    assert completion.text == answer
    assert len(outcome.group.prompt.tokens) + len(completion.tokens) == 40
    assert "truncated" not in outcome.flags


def test_prompts_alone_leave_room_for_one_token():
    prompt = " the cat" * 40
    assert Tokeniser(PLAIN, "prompt", max_length=20)(row(prompt=prompt)).group is None
    cut = Tokeniser(PLAIN, "prompt", max_length=20, allow=("prompt_too_long",))(row(prompt=prompt)).group
    assert len(cut.prompt.tokens) == 19
    assert cut.prompt.tokens[0] == PLAIN.bos_token_id
    assert cut.completions == ()


def test_an_untrained_conversation_is_flagged():
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "train": False}]
    outcome = Tokeniser(CHAT, "messages", max_length=99)(row(messages=messages))
    assert outcome.group is None
    assert "nothing_trained" in outcome.flags


def test_what_follows_the_last_learned_turn_is_left_out():
    messages = [{"role": r, "content": c} for r, c in [("user", "a"), ("assistant", "b"), ("user", "the end")]]
    group = Tokeniser(CHAT, "messages", max_length=99)(row(messages=messages)).group
    assert CHAT.decode(group.completions[0].tokens) == "b<|im_end|>"
    assert group.columns["prompt_messages"] == messages[:1]
