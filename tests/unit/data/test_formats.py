from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wootz.core.errors import DataError, UsageError
from wootz.data import Table, as_kind, convert, detect, read, write
from wootz.data.convert import canonical, rename
from wootz.data.formats import READERS, WRITERS, parse_transcript, write_transcript
from wootz.data.messages import RowProblem, clean_messages

USER, ANSWER, OTHER = ({"role": r, "content": c} for r, c in (("user", "hi"), ("assistant", "yo"), ("assistant", "no")))
HH = "\n\nHuman: hi\n\nAssistant: "


def table(*rows: dict, typed: bool = True) -> Table:
    return Table("a.jsonl", rows, tuple(f"line {n}" for n in range(1, len(rows) + 1)), typed)


def one(raw: dict, **options) -> tuple[str, str, dict]:
    """Format, kind and canonical fields of a one-row table."""
    found = detect(table(raw), **options)
    rows, problems = canonical(table(raw), found)
    assert not problems, problems
    return found.format, found.kind, dict(rows[0].fields)


PAIR = {"prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER]}
SINGLE = {"prompt": [USER], "completion": [ANSWER]}


@pytest.mark.parametrize(
    ("raw", "written_as", "kind", "fields"),
    [
        ({"text": "a"}, "trl", "text", {"text": "a"}),
        ({"messages": [USER, ANSWER]}, "trl", "messages", {"messages": [USER, ANSWER]}),
        ({"prompt": "a"}, "trl", "prompt", {"prompt": "a"}),
        ({"prompt": [USER], "gold": 3}, "trl", "prompt", {"prompt": [USER]}),
        ({"prompt": "a", "completion": "b"}, "trl", "prompt_completion", {"prompt": "a", "completion": "b"}),
        (SINGLE, "trl", "prompt_completion", SINGLE),
        ({"prompt": "hi", "completion": [ANSWER]}, "trl", "prompt_completion", SINGLE),
        ({"prompt": "hi", "chosen": "yo", "rejected": "no"}, "trl", "preference", None),
        (PAIR, "trl", "preference", PAIR),
        ({"chosen": [USER, ANSWER], "rejected": [USER, OTHER]}, "trl", "preference", PAIR),
        ({"prompt": "hi", "chosen": [USER, ANSWER], "rejected": [USER, OTHER]}, "trl", "preference", PAIR),
        ({"prompt": [USER], "chosen": [USER, ANSWER], "rejected": [USER, OTHER]}, "trl", "preference", PAIR),
        (
            {"prompt": "a", "completion": "b", "label": 1},
            "trl",
            "unpaired",
            {"prompt": "a", "completion": "b", "label": True},
        ),
        (
            {"prompt": "a", "completions": ["b", "c"], "labels": [True, 0]},
            "trl",
            "stepwise",
            {"prompt": "a", "completions": ["b", "c"], "labels": [True, False]},
        ),
        (
            {"prompt": "a", "completions": ["b", "c"], "scores": [1, 0.5]},
            "trl",
            "ranked",
            {"prompt": "a", "completions": ["b", "c"], "scores": [1.0, 0.5]},
        ),
        (
            {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]},
            "sharegpt",
            "messages",
            {"messages": [USER, ANSWER]},
        ),
        (
            {
                "conversations": [{"from": "human", "value": "hi"}],
                "chosen": {"from": "gpt", "value": "yo"},
                "rejected": {"from": "gpt", "value": "no"},
            },
            "sharegpt",
            "preference",
            PAIR,
        ),
        (
            {"conversations": [USER, ANSWER], "kto_tag": False, "system": "s"},
            "sharegpt",
            "unpaired",
            {"prompt": [{"role": "system", "content": "s"}, USER], "completion": [ANSWER], "label": False},
        ),
        ({"instruction": "hi", "input": "", "output": "yo"}, "alpaca", "prompt_completion", SINGLE),
        (
            {"instruction": "hi", "input": "you", "output": "yo", "system": "s", "history": [["q", "a"]]},
            "alpaca",
            "prompt_completion",
            {
                "prompt": [
                    {"role": "system", "content": "s"},
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": "a"},
                    {"role": "user", "content": "hi\n\nyou"},
                ],
                "completion": [ANSWER],
            },
        ),
        ({"instruction": "hi", "chosen": "yo", "rejected": "no"}, "alpaca", "preference", PAIR),
        ({"chosen": HH + "yo", "rejected": HH + "no"}, "hh", "preference", PAIR),
        ({"prompt": HH.rstrip(), "chosen": " yo", "rejected": " no"}, "hh", "preference", PAIR),
        ({"prompt": HH.rstrip(), "completion": " yo"}, "hh", "prompt_completion", SINGLE),
        ({"text": HH + "yo"}, "hh", "messages", {"messages": [USER, ANSWER]}),
        (
            {"messages": [USER, ANSWER | {"weight": 0}, USER, ANSWER | {"weight": 1}]},
            "openai",
            "messages",
            {"messages": [USER, ANSWER | {"train": False}, USER, ANSWER]},
        ),
        (
            {"input": {"messages": [USER], "tools": []}, "preferred_output": [ANSWER], "non_preferred_output": [OTHER]},
            "openai",
            "preference",
            PAIR,
        ),
    ],
)
def test_what_a_row_is_and_becomes(raw, written_as, kind, fields):
    assert one(raw) == (written_as, kind, raw if fields is None else fields)


def test_the_objective_chooses_among_what_fits():
    both = {"prompt": "hi", "chosen": [USER, ANSWER], "rejected": [USER, OTHER], "messages": [USER, ANSWER]}
    assert detect(table(both)).kind == "preference"
    assert detect(table(both)).others == ("messages",)
    assert detect(table(both), kinds=("text", "messages")).kind == "messages"
    assert detect(table({"prompt": "a", "completion": "b"}), kinds=("prompt",)).kind == "prompt"


def test_a_file_name_says_nothing():
    rows = ({"prompt": "a", "completion": "b"},)
    assert detect(Table("sharegpt_hh_preference.jsonl", rows, ("line 1",))).format == "trl"


@pytest.mark.parametrize(
    ("columns", "kinds", "missing", "fix"),
    [
        (("question", "good", "bad"), ("preference",), "chosen", "{prompt: question, chosen: good, rejected: bad}"),
        (("prompt", "accepted", "rejected"), ("preference",), "chosen", "{chosen: accepted}"),
        (
            ("prompt", "chosen_response", "rejected_response"),
            ("preference",),
            "chosen",
            "{chosen: chosen_response, rejected: rejected_response}",
        ),
        (
            ("question", "answer"),
            ("text", "messages", "prompt_completion"),
            "prompt",
            "{prompt: question, completion: answer}",
        ),
        (("Prompt", "Completion"), ("prompt_completion",), "prompt", "{prompt: Prompt, completion: Completion}"),
        (("question", "answer", "label"), ("unpaired",), "prompt", "{prompt: question, completion: answer}"),
        (("question", "answers", "scores"), ("ranked",), "prompt", "{prompt: question, completions: answers}"),
        (("dialog",), ("messages",), "messages", "{messages: dialog}"),
        (("x", "y"), ("preference",), "chosen", "{chosen: YOUR_COLUMN, rejected: YOUR_COLUMN}"),
    ],
)
def test_wrong_columns_name_the_line_that_mends_them(columns, kinds, missing, fix):
    raw = table(dict.fromkeys(columns, "a"))
    with pytest.raises(DataError) as caught:
        detect(raw, kinds=kinds)
    error = caught.value
    assert error.what == f"no column {missing!r}"
    assert error.found == f"{', '.join(columns)} (1 rows read)"
    assert error.fix == f"data.columns: {fix}"
    assert len(str(error).splitlines()) == 4


@pytest.mark.parametrize("columns", [("question", "good", "bad")])
def test_the_suggested_line_works(columns):
    raw = table({"question": "hi", "good": "yo", "bad": "no"})
    mapping = {"prompt": "question", "chosen": "good", "rejected": "bad"}
    renamed = rename(raw, mapping)
    assert detect(renamed, kinds=("preference",)).kind == "preference"
    assert renamed.rows == ({"prompt": "hi", "chosen": "yo", "rejected": "no"},)


def test_a_mapping_to_a_column_that_is_not_there():
    with pytest.raises(DataError, match="no column 'goood'") as caught:
        rename(table({"question": "a", "good": "b"}), {"chosen": "goood"})
    assert caught.value.fix == "data.columns: {chosen: good}"


@pytest.mark.parametrize(
    ("raw", "kinds", "kind", "objective"),
    [
        (
            {"prompt": "a", "chosen": "b", "rejected": "c"},
            ("text", "messages", "prompt_completion"),
            "preference",
            "dpo",
        ),
        ({"prompt": "a", "completion": "b"}, ("preference",), "prompt_completion", "sft"),
        ({"messages": [USER, ANSWER]}, ("preference",), "messages", "sft"),
        ({"prompt": "a", "completions": ["b"], "scores": [1]}, ("preference",), "ranked", "ranked"),
    ],
)
def test_the_wrong_kind_names_the_objectives_that_fit(raw, kinds, kind, objective):
    with pytest.raises(DataError, match=f"this is {kind} data") as caught:
        detect(table(raw), kinds=kinds)
    assert caught.value.fix.startswith("objective.type: ")
    assert objective in re.split(r"\W+", caught.value.fix)


@pytest.mark.parametrize(
    ("raw", "check", "message"),
    [
        ({"prompt": "a", "completion": "b", "label": "true"}, "label_type", '"true"'),
        ({"prompt": "a", "completion": "b", "label": "yes"}, "label_type", '"yes"'),
        ({"prompt": "a", "completion": "b", "label": 2}, "label_type", "2"),
        ({"prompt": "a", "completion": None}, "row_type", "completion is missing"),
        ({"prompt": "a", "completion": 5}, "row_type", "list of messages, found int 5"),
        ({"messages": [{"content": "a"}]}, "row_type", "no role"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "role_order", "'wizard'"),
        ({"messages": [{"role": "user", "content": 3}]}, "row_type", "not text"),
        ({"messages": [USER | {"train": True}, ANSWER]}, "row_type", "only assistant turns"),
        ({"messages": [USER, ANSWER | {"train": "no"}]}, "row_type", "expected true or false"),
        ({"messages": [USER, ANSWER | {"weight": 0.5}]}, "row_type", "expected 0 or 1"),
        ({"prompt": "a", "completions": ["b"], "scores": [1, 2]}, "row_type", "1 completions but 2 scores"),
        ({"prompt": "a", "completions": ["b"], "scores": [float("nan")]}, "row_type", "finite number"),
        ({"prompt": "a", "completions": ["b", "c"], "labels": [True]}, "row_type", "2 completions but 1 labels"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": float("nan")}, "row_type", "margin must be"),
        ({"chosen": "red fish", "rejected": "blue fish"}, "prefix_mismatch", "share no prompt"),
        ({"chosen": [USER, ANSWER], "rejected": [USER, ANSWER, USER, OTHER]}, "prefix_mismatch", "nothing but"),
        ({"chosen": [USER, ANSWER, USER, OTHER], "rejected": [USER, OTHER]}, None, None),
        (
            {"chosen": [USER, ANSWER, USER, ANSWER], "rejected": [USER, ANSWER, USER | {"content": "x"}, OTHER]},
            "prefix_mismatch",
            "not the assistant's",
        ),
        ({"prompt": "other", "chosen": [USER, ANSWER], "rejected": [USER, OTHER]}, "prefix_mismatch", "prompt column"),
        ({"chosen": HH + "yo", "rejected": "no transcript"}, "row_type", "not a Human:/Assistant: transcript"),
    ],
)
def test_rows_that_cannot_be_read(raw, check, message):
    filler = [{"chosen": HH + "yo", "rejected": HH + "no"}] * 20 if "no transcript" in raw.values() else []
    everything = table(*filler, raw)
    rows, problems = canonical(everything, detect(everything))
    if check is None:
        assert not problems
        return
    ((row, problem),) = problems
    assert (row.index, row.place) == (len(filler), f"line {len(filler) + 1}")
    assert problem.check == check
    assert message in problem.message
    assert len(rows) == len(filler)


def test_csv_text_becomes_labels_and_numbers():
    raw = table(*({"prompt": "a", "completion": "7", "label": x, "weight": "2"} for x in ("True", "0")), typed=False)
    rows, problems = canonical(raw, detect(raw))
    assert not problems
    assert [row.fields["label"] for row in rows] == [True, False]
    assert rows[0].extra == {"weight": 2.0}
    assert rows[0].fields["completion"] == "7"


def test_the_shared_prompt_of_plain_text_ends_at_a_word():
    _, _, fields = one({"chosen": "The sky is blue.", "rejected": "The sky is black."})
    assert fields == {"prompt": "The sky is", "chosen": " blue.", "rejected": " black."}


def test_identical_conversations_keep_their_prompt():
    _, _, fields = one({"chosen": [USER, ANSWER], "rejected": [USER, ANSWER]})
    assert fields == {"prompt": [USER], "chosen": [ANSWER], "rejected": [ANSWER]}


def test_messages_are_cleaned():
    raw = {
        "role": "assistant",
        "content": None,
        "name": None,
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
    }
    parts = {"from": "human", "value": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert clean_messages([parts, raw]) == [
        {"role": "user", "content": "ab"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
        },
    ]
    broken = raw | {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
    with pytest.raises(RowProblem, match="not JSON"):
        clean_messages([broken])


TEXTS = (
    st.text(min_size=1, max_size=20)
    .map(str.strip)
    .filter(lambda text: text and "Human:" not in text and "Assistant:" not in text)
)


@st.composite
def dialogues(draw: st.DrawFn) -> list[dict]:
    turns = draw(st.integers(1, 3))
    return [{"role": role, "content": draw(TEXTS)} for _ in range(turns) for role in ("user", "assistant")]


@given(dialogues())
def test_transcripts_round_trip(messages):
    assert parse_transcript(write_transcript(messages)) == messages


@pytest.mark.parametrize("written_as", ["trl", "sharegpt", "openai", "hh"])
@given(messages=dialogues(), other=TEXTS)
def test_formats_round_trip(written_as, messages, other):
    pair = {
        "prompt": messages[:-1],
        "chosen": [messages[-1]],
        "rejected": [{"role": "assistant", "content": other if other != messages[-1]["content"] else other + "."}],
    }
    for kind, fields in (("messages", {"messages": messages}), ("preference", pair)):
        written = WRITERS[written_as](fields, kind)
        json.dumps(written)
        assert one(written, format=written_as if written_as != "openai" else "auto")[1:] == (kind, fields)


@given(dialogues())
def test_alpaca_round_trips(messages):
    fields = {"prompt": messages[:-1], "completion": messages[-1:]}
    written = WRITERS["alpaca"](fields, "prompt_completion")
    assert one(written) == ("alpaca", "prompt_completion", fields)


def test_openai_keeps_weights_and_tool_arguments_as_strings():
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    messages = [USER, ANSWER | {"train": False}, USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    written = WRITERS["openai"]({"messages": messages}, "messages")
    assert written["messages"][1]["weight"] == 0
    assert written["messages"][3]["tool_calls"][0]["function"]["arguments"] == '{"x": 1}'
    assert clean_messages(READERS["openai"](written)["messages"]) == messages


@pytest.mark.parametrize(
    ("fields", "kind", "to", "expected"),
    [
        (
            PAIR,
            "preference",
            "unpaired",
            [
                {"prompt": [USER], "completion": [ANSWER], "label": True, "topic": "t"},
                {"prompt": [USER], "completion": [OTHER], "label": False, "topic": "t"},
            ],
        ),
        (PAIR, "preference", "prompt_completion", [SINGLE | {"topic": "t"}]),
        (PAIR, "preference", "prompt", [{"prompt": [USER], "topic": "t"}]),
        (PAIR, "preference", "preference", [PAIR | {"topic": "t"}]),
        (
            {"prompt": "a", "completions": ["b", "c"], "scores": [1.0, 2.0]},
            "ranked",
            "prompt_completion",
            [{"prompt": "a", "completion": "c", "topic": "t"}],
        ),
        (SINGLE, "prompt_completion", "messages", [{"messages": [USER, ANSWER], "topic": "t"}]),
        (
            {"messages": [USER, ANSWER, USER, OTHER]},
            "messages",
            "prompt_completion",
            [{"prompt": [USER, ANSWER, USER], "completion": [OTHER], "topic": "t"}],
        ),
    ],
)
def test_kinds_made_from_others(fields, kind, to, expected):
    assert as_kind([(fields, {"topic": "t"})], kind, to) == expected


def test_earlier_answers_stay_unlearned_when_a_prompt_becomes_messages():
    fields = {"prompt": [USER, OTHER, USER], "completion": [ANSWER]}
    ((row),) = as_kind([(fields, {})], "prompt_completion", "messages")
    assert [message.get("train", True) for message in row["messages"]] == [True, False, True, True]


def test_what_cannot_be_made():
    with pytest.raises(UsageError, match="text rows cannot become preference rows"):
        as_kind([({"text": "a"}, {})], "text", "preference")


def test_convert_writes_a_file_that_reads_the_same(tmp_path):
    source = tmp_path / "hh.jsonl"
    write([{"chosen": HH + "yo", "rejected": HH + "no", "topic": "t"}], source)
    told = convert(source, tmp_path / "pairs.jsonl")
    assert told == {"read": 1, "written": 1, "format": "hh", "kind": "preference", "to": "trl"}
    assert read(tmp_path / "pairs.jsonl").rows == (PAIR | {"topic": "t"},)
    convert(tmp_path / "pairs.jsonl", tmp_path / "back.jsonl", to="hh")
    assert read(tmp_path / "back.jsonl").rows == ({"topic": "t", "chosen": HH + "yo", "rejected": HH + "no"},)
    assert convert(source, tmp_path / "kto.jsonl", kind="unpaired")["written"] == 2
    with pytest.raises(UsageError, match="exists"):
        convert(source, tmp_path / "kto.jsonl")
    with pytest.raises(UsageError, match="alpaca cannot hold preference"):
        convert(source, tmp_path / "x.jsonl", to="alpaca")
    with pytest.raises(UsageError, match="not a format"):
        convert(source, tmp_path / "x.jsonl", to="sharegtp")


def test_convert_names_the_broken_row(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": 4}\n')
    with pytest.raises(DataError, match="list of messages") as caught:
        convert(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert caught.value.where == f"{tmp_path / 'a.jsonl'} line 2"
    assert not (tmp_path / "b.jsonl").exists()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("best_worst", [("b", "c", 4.0)]),
        ("adjacent", [("b", "a", 1.5), ("d", "c", 2.5)]),
        ("all", [("b", "a", 1.5), ("b", "d", 1.5), ("b", "c", 4.0), ("a", "c", 2.5), ("d", "c", 2.5)]),
    ],
)
def test_ranked_rows_as_pairs(pairs, expected):
    """Scores 2, 3.5, -0.5, 2: the better answer first, the difference as margin, none between equal scores."""
    fields = {"prompt": "p", "completions": ["a", "b", "c", "d"], "scores": [2.0, 3.5, -0.5, 2.0]}
    made = as_kind([(fields, {"topic": "x"})], "ranked", "preference", pairs=pairs)
    assert [(row["chosen"], row["rejected"], row["margin"]) for row in made] == expected
    assert all(row["prompt"] == "p" and row["topic"] == "x" for row in made)
