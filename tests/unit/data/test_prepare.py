from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from tests.unit.data.chats import CHATML, STRIPS_THINKING, make_tokenizer
from wootz.core.errors import DataError
from wootz.data import DataConfig, audit, examine, prepare, write
from wootz.data.kinds import Row
from wootz.data.prepare import split

TOKENIZER = make_tokenizer(CHATML, eos="<|im_end|>")
PLAIN = make_tokenizer()


def pair(prompt: str, chosen: str = "yes", rejected: str = "no", **extra) -> dict:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **extra}


PAIRS = [pair(f"question {n}?", topic=f"t{n}") for n in range(40)]


@pytest.fixture
def file(tmp_path):
    def make(rows: list[dict], name: str = "prefs.jsonl") -> str:
        path = tmp_path / name
        path.unlink(missing_ok=True)
        write(rows, path)
        return str(path)

    return make


def run(tokenizer=PLAIN, *, kinds=("preference",), max_length=64, **config):
    return prepare(DataConfig(**config), tokenizer, max_length=max_length, kinds=kinds)


def fails(tokenizer=PLAIN, **options) -> DataError:
    with pytest.raises(DataError) as caught:
        run(tokenizer, **options)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) <= 24
    return caught.value


def named(prepared) -> dict[str, str]:
    return {found.check: found.severity for found in prepared.findings}


def test_clean_pairs_become_groups(file):
    prepared = run(train=file(PAIRS), held_out=file([pair("another?")], "held.jsonl"))
    assert (prepared.kind, prepared.format) == ("preference", "trl")
    assert [len(prepared.train), len(prepared.held_out)] == [40, 1]
    assert [group.id.split(":")[0] for group in prepared.train] == [str(n) for n in range(40)]
    assert [group.columns["topic"] for group in prepared.train] == [f"t{n}" for n in range(40)]
    assert prepared.counts["train/rows"] == prepared.counts["train/used"] == 40
    assert prepared.counts["train/trained_tokens"] == sum(
        len(completion.tokens) for group in prepared.train for completion in group.completions
    )
    assert set(named(prepared).values()) == {"info"}
    told = next(found.message for found in prepared.findings if found.check == "format")
    assert "preference data" in told
    assert "prompt 'question 0?'; chosen 'yes'; rejected 'no'" in told


def test_the_summary_is_the_report_s_json(file):
    prepared = run(train=file(PAIRS))
    summary = json.loads(json.dumps(prepared.summary()))
    assert set(summary) == {"kind", "format", "counts", "fingerprint", "findings", "examples"}
    assert set(summary["findings"][0]) == {"check", "severity", "message", "fix", "rows", "source", "count"}
    first = summary["examples"][0]
    assert len(first["pieces"]) == len(first["trained"])
    assert "".join(p for p, t in zip(first["pieces"], first["trained"], strict=True) if t) == "yes</s>"
    assert run(train=file(PAIRS)).fingerprint == prepared.fingerprint
    assert run(train=file([*PAIRS[1:], PAIRS[0]])).fingerprint != prepared.fingerprint


def test_ids_follow_rows_through_drops(file):
    rows = [pair("same", "x", "x"), pair("unreadable", 5), *PAIRS]
    dropped = run(train=file(rows), drop=("identical_pairs", "row_type"))
    assert [group.id.split(":")[0] for group in dropped.train] == [str(n) for n in range(2, 42)]
    assert dropped.counts["train/dropped"] == 2
    told = next(found for found in dropped.findings if found.check == "dropped")
    assert told.message == "2 of 42 rows left out by data.drop: row_type 1, identical_pairs 1"
    kept = {group.id.split(":", 1)[1]: group.columns["topic"] for group in dropped.train}
    assert kept == {group.id.split(":", 1)[1]: group.columns["topic"] for group in run(train=file(PAIRS)).train}


def test_every_pair_identical(file):
    error = fails(train=file([pair(str(n), "x", "x") for n in range(6)]))
    assert "6 of 6 pairs have chosen equal to rejected" in str(error)
    assert "data.drop: [identical_pairs]" in error.fix
    assert (
        named(run(train=file([pair(str(n), "x", "x") for n in range(6)]), allow=("identical_pairs",)))[
            "identical_pairs"
        ]
        == "warning"
    )


def test_label_strings(file):
    rows = [{"prompt": str(n), "completion": "b", "label": "true"} for n in range(4)]
    error = fails(train=file(rows), kinds=("unpaired",))
    assert 'label is "true"' in str(error)
    assert "(lines 1, 2, 3, ...)" in str(error)
    assert "without quotes" in error.fix


def test_several_failures_are_told_at_once(file):
    rows = [*PAIRS, pair("a", ""), pair("b " * 100), {"prompt": "c", "chosen": 5, "rejected": "d"}]
    error = fails(train=file(rows))
    text = str(error)
    assert text.startswith("3 data checks failed")
    for check in ("empty_completion", "prompt_too_long", "row_type"):
        assert f"[{check}]" in text
    assert text.count("fix:") == 2
    mended = run(train=file(rows), drop=("empty_completion", "prompt_too_long", "row_type"))
    assert len(mended.train) == 40
    assert mended.counts["train/dropped"] == 3


def test_examine_reports_instead_of_raising(file):
    prepared = examine(DataConfig(train=file([*PAIRS, pair("a", "")])), PLAIN, max_length=64)
    assert [found.check for found in prepared.errors] == ["empty_completion"]
    assert prepared.findings[0].severity == "error"
    assert len(prepared.train) == 40


def test_truncation_that_takes_everything(file):
    error = fails(train=file([pair("long " * 100) for _ in range(3)]), max_length=32)
    assert "after truncation to 32 tokens 3 of 3 rows keep no token to learn" in str(error)
    assert "train.max_length" in error.fix
    allowed = run(train=file([pair("long " * 100)]), max_length=32, allow=("prompt_too_long",))
    (group,) = allowed.train
    assert all(len(group.prompt.tokens) + len(c.tokens) <= 32 for c in group.completions)
    assert all(completion.finished for completion in group.completions)


def test_overlap_is_an_error_until_dropped(file):
    held = file([pair("QUESTION  3?", "other", "thing")], "held.jsonl")
    error = fails(train=file(PAIRS), held_out=held)
    assert "1 of 40 training rows have a prompt that is also held out (line 4)" in str(error)
    mended = run(train=file(PAIRS), held_out=held, drop=("overlap",))
    assert len(mended.train) == 39
    assert len(mended.held_out) == 1
    assert named(run(train=file(PAIRS), held_out=held, allow=("overlap",)))["overlap"] == "warning"


def test_held_out_must_be_of_the_same_kind(file):
    held = file([{"text": "a"}], "held.jsonl")
    assert "preference" in str(fails(train=file(PAIRS), held_out=held))


def test_a_template_that_rewrites_turns(file):
    thinking = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>x</think>b"}]
    tokenizer = make_tokenizer(STRIPS_THINKING, eos="<|im_end|>")
    path = file([{"messages": thinking * 2}])
    error = fails(tokenizer, train=path, kinds=("messages",))
    assert "not prefix-preserving on 1 of 1 rows" in str(error)
    assert "data.allow: [template_prefix]" in error.fix
    allowed = run(tokenizer, train=path, kinds=("messages",), allow=("template_prefix",))
    assert tokenizer.decode(allowed.train[0].completions[0].tokens) == "<think>x</think>b<|im_end|>"
    assert run(tokenizer, train=file([{"messages": thinking}]), kinds=("messages",)).errors == []


def test_dropping_everything_is_an_error(file):
    error = fails(train=file([pair("a", "x", "x")]), drop=("identical_pairs",))
    assert "no rows are left" in str(error)


def test_chat_wraps_plain_strings(file):
    prepared = run(TOKENIZER, train=file(PAIRS), chat=True)
    group = prepared.train[0]
    assert group.prompt.text == "<|im_start|>user\nquestion 0?<|im_end|>\n<|im_start|>assistant\n"
    assert TOKENIZER.decode(group.completions[0].tokens) == "yes<|im_end|>"
    assert named(run(TOKENIZER, train=file(PAIRS)))["plain_strings"] == "warning"
    conversations = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]
    assert "remove data.chat" in str(fails(TOKENIZER, train=file(conversations), chat=True, kinds=("messages",)))


KINDS = {
    "text": ({"text": "a cat"}, 1, "completion"),
    "messages": (
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        1,
        "completion",
    ),
    "prompt_completion": ({"prompt": "a", "completion": " b"}, 1, "completion"),
    "preference": (pair("a"), 2, "chosen"),
    "unpaired": ({"prompt": "a", "completion": " b", "label": False}, 1, "label false"),
    "ranked": ({"prompt": "a", "completions": [" b", " c", " d"], "scores": [1.5, 2.0, 3.0]}, 3, "score 1.5"),
    "stepwise": ({"prompt": "a", "completions": ["b", "c"], "labels": [True, False]}, 1, "completion"),
    "prompt": ({"prompt": "a"}, 0, "prompt"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json.gz", "rows.parquet"])
def test_every_kind_from_every_container(file, kind, name):
    row, answers, shown = KINDS[kind]
    other = {**row, "label": True} if kind == "unpaired" else row
    prepared = run(TOKENIZER, train=file([row, {**other, "topic": "t"}], name), kinds=(kind,))
    assert prepared.kind == kind
    assert [len(group.completions) for group in prepared.train] == [answers, answers]
    assert prepared.train[1].columns["topic"] == "t"
    assert all(completion.finished for group in prepared.train for completion in group.completions)
    assert prepared.examples[0]["name"] == shown
    assert audit(prepared)["kind"] == kind


def test_csv_labels(file):
    rows = [{"prompt": "a", "completion": "7", "label": label} for label in ("True", "false", "1", "0")]
    prepared = run(train=file(rows, "rows.csv"), kinds=("unpaired",))
    assert [group.completions[0].columns["label"] for group in prepared.train] == [True, False, True, False]


def test_a_fraction_never_parts_a_prompt(file):
    rows = [pair(f"Question  {n % 50}?" if n % 2 else f"question {n % 50}? ", str(n), "no") for n in range(200)]
    prepared = run(train=file(rows), held_out_fraction=0.3)
    sides = [{g.prompt.text.casefold().replace(" ", "") for g in side} for side in (prepared.train, prepared.held_out)]
    assert not sides[0] & sides[1]
    assert len(prepared.train) + len(prepared.held_out) == 200
    assert prepared.counts["train/rows"] + prepared.counts["held_out/rows"] == 200
    more = run(train=file([*rows, pair("new one", "a", "b")]), held_out_fraction=0.3)
    assert {g.id for g in prepared.held_out} <= {g.id for g in more.held_out}


def test_a_fraction_is_about_that_share():
    rows = [Row(n, "", pair(f"prompt number {n}")) for n in range(4000)]
    train, held = split("preference", rows, 0.2)
    # Binomial: 800 expected, standard deviation 25.
    assert abs(len(held) - 800) < 100
    assert len(train) + len(held) == 4000
    with pytest.raises(DataError, match="leaves no held-out rows"):
        split("preference", rows[:1], 1e-9)


def test_first_rows_only(file):
    assert len(run(train=file(PAIRS), max_rows=7).train) == 7


def test_columns_are_mapped(file):
    rows = [{"question": str(n), "good": "yes", "bad": "no"} for n in range(4)]
    error = fails(train=file(rows))
    assert error.fix == "data.columns: {prompt: question, chosen: good, rejected: bad}"
    assert len(run(train=file(rows), columns={"prompt": "question", "chosen": "good", "rejected": "bad"}).train) == 4


def test_audit_of_known_pairs(file):
    rows = [pair(f"q{n}", "a long answer here" if n < 30 else "a", "a b") for n in range(40)]
    prepared = run(train=file([*rows, rows[0]]), held_out=file([pair("z")], "held.jsonl"))
    told = audit(prepared)
    assert told["groups"] == 41
    assert told["length_auc"] == pytest.approx(31 / 41)
    assert told["length_pairs"] == 41
    assert told["duplicates"] == 1
    assert told["identical"] == told["contradictions"] == told["overlap"] == told["truncated"] == 0
    sizes = [[len(c.tokens) for c in group.completions] for group in prepared.train]
    assert told["chosen_length"] == pytest.approx(sum(a for a, _ in sizes) / 41)
    assert told["rejected_length"] == pytest.approx(sum(b for _, b in sizes) / 41)
    json.dumps(told)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"columns": {"promt": "x"}}, "did you mean 'prompt'"),
        ({"columns": {"question": "prompt"}}, "The key is the expected name"),
        ({"drop": ("identical_pair",)}, "did you mean 'identical_pairs'"),
        ({"allow": ("label_type",)}, "cannot|not a check that can be allowed"),
        ({"drop": ("overlap",), "allow": ("overlap",)}, "both dropped and allowed"),
        ({"held_out": "b", "held_out_fraction": 0.1}, "keep one"),
        ({"trian": "x"}, "Extra inputs"),
    ],
)
def test_bad_configurations(config, message):
    with pytest.raises(ValidationError, match=message):
        DataConfig(**{"train": "a.jsonl", **config})


def test_nothing_heavy_is_imported():
    code = (
        "import sys, wootz.data as d; d.DataConfig(train='x');"
        "print([m for m in ('torch', 'transformers', 'datasets', 'pyarrow', 'scipy', 'sklearn') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
