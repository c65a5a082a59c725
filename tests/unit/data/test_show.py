from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.data.chats import CHATML, make_tokenizer
from wootz.data import pieces, show
from wootz.data.kinds import Row
from wootz.data.tokenise import Tokeniser

TOKENIZER = make_tokenizer(CHATML, eos="<|im_end|>")


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="ab \né😀漢", max_size=20))
def test_pieces_are_the_text_cut_up(text):
    ids = TOKENIZER(text, add_special_tokens=False).input_ids
    assert len(pieces(ids, TOKENIZER)) == len(ids)
    assert "".join(pieces(ids, TOKENIZER)) == text


def group():
    messages = [{"role": "user", "content": "hi 😀"}, {"role": "assistant", "content": "yo\nyo"}]
    return Tokeniser(TOKENIZER, "messages", max_length=99)(Row(0, "line 1", {"messages": messages})).group


def printed(**options) -> str:
    out = io.StringIO()
    show([group()], TOKENIZER, console=Console(file=out, width=200, **options))
    return out.getvalue()


def test_without_colour_learned_tokens_stand_in_brackets():
    learned = len(group().completions[0].tokens)
    total = learned + len(group().prompt.tokens)
    assert printed() == (
        f"row {group().id}, completion: {learned} of {total} tokens learned\n"
        "<|im_start|>user↵\nhi 😀<|im_end|>↵\n<|im_start|>assistant↵\n⟦yo↵\nyo<|im_end|>⟧\n\n"
    )


def test_with_colour_learned_tokens_are_green(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = printed(force_terminal=True, color_system="standard", legacy_windows=False)
    assert "\x1b[30;42m" in text
    assert "\x1b[30;102m" in text
    assert "⟦" not in text
    assert text.count("\x1b[30;") == len([p for p in pieces(group().completions[0].tokens, TOKENIZER) if p])


@pytest.mark.parametrize("value", ["1", "true"])
def test_no_color_wins_over_the_terminal(monkeypatch, value):
    monkeypatch.setenv("NO_COLOR", value)
    text = printed(force_terminal=True)
    assert "⟦yo" in text
    assert "\x1b[30" not in text
