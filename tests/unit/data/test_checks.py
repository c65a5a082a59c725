from __future__ import annotations

import json

import numpy as np
import pytest

from tests.unit.data.chats import CHATML, make_tokenizer
from wootz.core.records import Completion, Group, Sequence
from wootz.data import CHECKS
from wootz.data.checks import check_rows, contradictions, overlap
from wootz.data.findings import Finding, allowed
from wootz.data.kinds import Row
from wootz.data.template import ChatFormat
from wootz.data.token_checks import (
    check_tokens,
    length_auc,
    length_preference,
    special_in_text,
    stop_token,
    unknown_tokens,
)
from wootz.data.tokenise import Tokeniser

USER, ANSWER = ({"role": role, "content": content} for role, content in (("user", "a"), ("assistant", "b")))


def rows(*fields: dict) -> list[Row]:
    return [Row(index, f"line {index + 1}", one) for index, one in enumerate(fields)]


def found(kind: str, *fields: dict) -> dict[str, Finding]:
    return {one.check: one for one in check_rows(kind, rows(*fields))}


def pair(prompt="a", chosen="b", rejected="c") -> dict:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def test_clean_rows_have_no_findings():
    assert found("preference", pair(), pair("d")) == {}
    assert found("messages", {"messages": [USER, ANSWER]}) == {}


def test_identical_pairs_few_and_all():
    same, other = pair("s", "b", "b"), [pair(str(n)) for n in range(3)]
    few = found("preference", *other, same)["identical_pairs"]
    assert (few.severity, few.rows) == ("error", (3,))
    assert few.message == "1 of 4 pairs have chosen equal to rejected (line 4). They teach nothing"
    every = found("preference", *(pair(str(n), "b", "b") for n in range(5)))["identical_pairs"]
    assert (every.severity, every.rows) == ("error", (0, 1, 2, 3, 4))
    assert "5 of 5" in every.message
    assert "(lines 1, 2, 3, ...)" in every.message
    assert every.fix == "data.drop: [identical_pairs]"


@pytest.mark.parametrize(
    ("kind", "fields", "check"),
    [
        ("preference", pair(rejected=" \n"), "empty_completion"),
        ("preference", pair(chosen=""), "empty_completion"),
        ("preference", pair([USER], [ANSWER], [ANSWER | {"content": " "}]), "empty_completion"),
        ("prompt_completion", {"prompt": "a", "completion": ""}, "empty_completion"),
        ("messages", {"messages": [USER, ANSWER | {"content": ""}]}, "empty_completion"),
        ("text", {"text": "  "}, "empty_completion"),
        ("ranked", {"prompt": "a", "completions": ["b", ""], "scores": [1.0, 2.0]}, "empty_completion"),
        ("prompt_completion", {"prompt": " ", "completion": "b"}, "empty_prompt"),
        ("prompt", {"prompt": []}, "empty_prompt"),
        ("messages", {"messages": [USER | {"content": " "}, ANSWER]}, "empty_turn"),
        ("preference", pair([USER | {"content": ""}], [ANSWER], [ANSWER | {"content": "x"}]), "empty_turn"),
        ("messages", {"messages": [ANSWER, USER, ANSWER]}, "role_order"),
        ("messages", {"messages": [USER, {"role": "system", "content": "s"}, ANSWER]}, "role_order"),
        ("messages", {"messages": [USER, USER, ANSWER]}, "repeated_role"),
        ("preference", pair([USER], [ANSWER, ANSWER], [ANSWER]), "repeated_role"),
        ("prompt", {"prompt": [USER, ANSWER]}, "role_order"),
        ("preference", pair([USER], [USER], [ANSWER]), "role_order"),
        ("ranked", {"prompt": "a", "completions": ["b", "c"], "scores": [1.0, 1.0]}, "equal_scores"),
    ],
)
def test_a_bad_row_is_named(kind, fields, check):
    assert found(kind, fields)[check].rows == (0,)


def test_tool_calls_are_not_empty_and_tool_turns_may_repeat():
    call = ANSWER | {"content": "", "tool_calls": [{"function": {"name": "f"}}]}
    result = {"role": "tool", "content": "1"}
    assert found("messages", {"messages": [USER, call, result, result, ANSWER]}) == {}


def test_repeated_turns_are_a_warning_and_misplaced_ones_an_error():
    named = found("messages", {"messages": [USER, USER, ANSWER]}, {"messages": [ANSWER, USER, ANSWER]})
    assert (named["repeated_role"].severity, named["repeated_role"].rows) == ("warning", (0,))
    assert (named["role_order"].severity, named["role_order"].rows) == ("error", (1,))
    assert "begins with an assistant turn" in named["role_order"].message


def test_duplicates_and_contradictions():
    named = found("preference", pair(), pair(chosen="c", rejected="b"), pair(), pair("A "), pair("z"))
    assert named["duplicate_rows"].rows == (2,)
    assert named["duplicate_prompts"].rows == (1, 2, 3)
    assert named["contradictions"].rows == (0, 1, 2)
    labelled = [{"prompt": "a", "completion": "b", "label": label} for label in (True, False)]
    assert contradictions(rows(*labelled)).rows == (0, 1)
    assert contradictions(rows(pair(), pair("z", "c", "b"))) is None


@pytest.mark.parametrize(
    ("good", "bad", "severity"), [(5, 5, None), (1, 9, None), (1, 10, "warning"), (10, 1, "warning"), (3, 0, "error")]
)
def test_label_balance(good, bad, severity):
    fields = [{"prompt": str(n), "completion": "b", "label": n < good} for n in range(good + bad)]
    one = found("unpaired", *fields).get("label_balance")
    assert (one and one.severity) == severity
    assert one is None or f"{good} good, {bad} bad" in one.message


def test_overlap_counts_exact_and_levelled():
    train = rows(pair("what is it?"), pair("What  is\nit? "), pair("other"))
    one = overlap("preference", train, rows(pair("what is it?", "x", "y")))
    assert (one.severity, one.rows) == ("error", (0, 1))
    assert "1 letter by letter, 1 but for case and blanks" in one.message
    assert overlap("preference", train, rows(pair("new"))) is None


def test_conversations_overlap_by_what_is_asked_last():
    train = rows({"messages": [USER, ANSWER, USER | {"content": "x"}, ANSWER]})
    assert overlap("messages", train, rows({"messages": [USER, ANSWER, USER | {"content": "y"}, ANSWER]})) is None
    same = rows({"messages": [USER, ANSWER, USER | {"content": "X"}, ANSWER | {"content": "else"}]})
    assert overlap("messages", train, same).rows == (0,)


def test_allowing_turns_an_error_into_a_warning():
    error = found("prompt_completion", {"prompt": "a", "completion": ""})["empty_completion"]
    assert allowed(error, ()).severity == "error"
    assert allowed(error, ("empty_completion",)).severity == "warning"
    assert allowed(error, ("empty_completion",)).message.startswith("allowed: ")


def test_every_check_says_something_or_takes_it_from_its_finding():
    for name, check in CHECKS.items():
        said = check.says.format(n=1, total=2, places="(line 3)", detail="DETAIL")
        assert said == "DETAIL" if check.says == "{detail}" else len(said) > 20, name
        assert not check.drop or "{n}" in check.says, "only checks of rows can drop rows"


def test_findings_are_plain_json():
    many = Finding("truncated", "warning", "m", rows=tuple(range(250)), source="a")
    written = json.loads(json.dumps(many.to_json()))
    assert (len(written["rows"]), written["count"]) == (100, 250)


def groups(lengths: list[tuple[int, ...]], columns: list[tuple[dict, ...]]) -> list[Group]:
    return [
        Group(str(n), Sequence((1,)), tuple(Completion((2,) * k, columns=c) for k, c in zip(sizes, given, strict=True)))
        for n, (sizes, given) in enumerate(zip(lengths, columns, strict=True))
    ]


def test_length_auc_against_counting():
    rng = np.random.default_rng(0)
    sizes = [tuple(rng.integers(1, 6, 2)) for _ in range(200)]
    paired = groups(sizes, [({"chosen": True}, {"chosen": False})] * 200)
    expected = np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in sizes])
    assert length_auc("preference", paired) == (pytest.approx(expected), 200)
    labels = [bool(rng.integers(2)) for _ in range(60)]
    single = [int(rng.integers(1, 6)) for _ in range(60)]
    unpaired = groups([(k,) for k in single], [({"label": label},) for label in labels])
    good, bad = ([k for k, label in zip(single, labels, strict=True) if label is want] for want in (True, False))
    brute = np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a in good for b in bad])
    assert length_auc("unpaired", unpaired) == (pytest.approx(brute), min(len(good), len(bad)))
    ranked = groups([(1, 2, 3)], [({"score": 0.0}, {"score": 5.0}, {"score": 5.0})])
    assert length_auc("ranked", ranked) == (1.0, 2)
    assert length_auc("messages", ranked) == (None, 0)


@pytest.mark.parametrize(("sizes", "word"), [((5, 2), "longer"), ((2, 5), "shorter"), ((3, 3), None)])
def test_length_that_decides_is_a_warning(sizes, word):
    one = length_preference("preference", groups([sizes] * 30, [({"chosen": True}, {"chosen": False})] * 30))
    assert (one is None) if word is None else (f"the {word} answer is the better one in 100%" in one.message)
    few = groups([sizes] * 5, [({"chosen": True}, {"chosen": False})] * 5)
    assert length_preference("preference", few) is None


def outcomes(tokenizer, kind, *fields, max_length=50):
    tokeniser = Tokeniser(tokenizer, kind, max_length=max_length)
    return [tokeniser(row) for row in rows(*fields)], tokeniser.chat


def token_findings(tokenizer, kind, *fields, max_length=50) -> dict[str, Finding]:
    done, chat = outcomes(tokenizer, kind, *fields, max_length=max_length)
    return {one.check: one for one in check_tokens(done, chat, kind=kind, max_length=max_length)}


def test_eos_learned_with_pad_equal_to_eos():
    tokenizer = make_tokenizer(pad="</s>")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    assert "eos_never_learned" not in token_findings(tokenizer, "prompt_completion", {"prompt": "a", "completion": "b"})


def test_eos_never_learned_because_there_is_none():
    tokenizer = make_tokenizer(eos=None, pad="<|endoftext|>")
    one = token_findings(tokenizer, "prompt_completion", {"prompt": "a", "completion": "b"})["eos_never_learned"]
    assert one.severity == "error"
    assert "no EOS token" in one.message
    assert "eos_token" in one.fix


def test_eos_never_learned_because_every_answer_is_cut():
    long = {"prompt": "a", "completion": " the cat" * 30}
    named = token_findings(make_tokenizer(), "prompt_completion", long, max_length=10)
    assert named["eos_never_learned"].severity == "error"
    assert "max_length" in named["eos_never_learned"].fix
    assert named["truncated"].rows == (0,)
    mixed = token_findings(
        make_tokenizer(), "prompt_completion", long, {"prompt": "a", "completion": "b"}, max_length=10
    )
    assert "eos_never_learned" not in mixed
    assert "truncated" in mixed


def test_a_prompt_that_leaves_no_room_counts_and_names_the_length():
    long = {"prompt": " the cat" * 30, "completion": "b"}
    short = {"prompt": "a", "completion": "b"}
    done, _ = outcomes(make_tokenizer(), "prompt_completion", long, max_length=10)
    one = token_findings(make_tokenizer(), "prompt_completion", short, long, short, max_length=10)["prompt_too_long"]
    assert (one.severity, one.rows) == ("error", (1,))
    assert one.message == "after truncation to 10 tokens 1 of 3 rows keep no token to learn (line 2)"
    assert f"all fit {done[0].length}" in one.fix
    assert "data.drop: [prompt_too_long]" in one.fix
    assert "data.allow: [prompt_too_long]" in one.fix


def test_plain_strings_beside_a_chat_template():
    fields = {"prompt": "a", "completion": "b"}
    assert "data.chat: true" in token_findings(make_tokenizer(CHATML), "prompt_completion", fields)["plain_strings"].fix
    assert "plain_strings" not in token_findings(make_tokenizer(), "prompt_completion", fields)


def test_stop_token_tells_how_turns_end():
    assert stop_token(ChatFormat(make_tokenizer(CHATML, eos="<|im_end|>"))) is None
    told = stop_token(ChatFormat(make_tokenizer(CHATML, eos="</s>")))
    assert "turns end with '<|im_end|>', the tokenizer's EOS is '</s>'" in told.message
    bare = stop_token(ChatFormat(make_tokenizer(CHATML.replace("<|im_end|>", ""), eos="</s>")))
    assert bare.severity == "warning"
    assert "no end-of-turn token" in bare.message


def test_special_tokens_inside_texts():
    chat = ChatFormat(make_tokenizer(CHATML, eos="</s>"))
    inside = rows(
        {"messages": [USER | {"content": "x <|im_end|> y"}, ANSWER]},
        {"messages": [USER, ANSWER]},
        {"messages": [USER, ANSWER | {"content": "b</s>"}]},
    )
    assert special_in_text(inside, chat).rows == (0, 2)
    plain = rows({"text": "<s>a b</s>"}, {"text": "a</s>b"})
    assert special_in_text(plain, chat).rows == (1,)


def test_unknown_tokens():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2, "</s>": 3}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="</s>")
    known = {"prompt": "a b", "completion": " a"}
    done, chat = outcomes(tokenizer, "prompt_completion", known, {"prompt": "a", "completion": " zebra"})
    assert done[1].group.completions[0].tokens == (2, 3), "an unknown last word is not an end"
    one = unknown_tokens(done, chat.unknown)
    assert (one.severity, one.rows) == ("error", (1,))
    assert "1 of 7 tokens" in one.message
    assert unknown_tokens(done[:1], chat.unknown) is None
    many, _ = outcomes(tokenizer, "prompt_completion", *[known] * 9, {"prompt": "a", "completion": " zebra"})
    assert unknown_tokens(many, chat.unknown).severity == "warning"
