"""``wootz data``: what a user sees of good and bad data, and what a script gets."""

import json
import random
from pathlib import Path

import pytest

from wootz.cli.app import main

PAIRS = [
    {"prompt": f"what is {word}?", "chosen": f"the {word} is here.", "rejected": f"no {word}."}
    for word in ("a cat", "a dog", "the house", "the mat")
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def model(tiny_llama):
    return f"model={tiny_llama}"


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "pairs.jsonl", PAIRS)


def test_good_data(good, model, capsys):
    assert main(["data", "check", good, model]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "ok: training would take it"
    assert "preference data" in out
    assert err == ""
    assert main(["data", "check", good, model, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert told["kind"] == "preference"
    assert told["counts"]["train/rows"] == 4


def test_bad_rows_are_findings_and_a_negative_verdict(tmp_path, model, capsys):
    bad = write(tmp_path / "bad.jsonl", [*PAIRS, {**PAIRS[0], "rejected": ""}])
    assert main(["data", "check", bad, model]) == 1
    out = capsys.readouterr().out
    assert "empty_completion" in out
    assert "fix: data.drop: [empty_completion]" in out
    assert out.splitlines()[-1] == "checks that failed: 1"
    assert main(["data", "check", bad, model, "drop=[empty_completion]"]) == 0


@pytest.mark.parametrize(
    ("rows", "settings", "said"),
    [
        ([{"question": "a", "good": "b", "bad": "c"}], [], "columns: {prompt: question, chosen: good, rejected: bad}"),
        (PAIRS, ["colums={chosen: x}"], "colums is not a key. Did you mean columns?"),
        (PAIRS, ["columns={chosen: goood}"], "no column 'goood'"),
        (PAIRS, ["max_length=1"], "max_length must be greater than 1; found 1"),
        (PAIRS, ["drop=[identical_pair]"], "did you mean 'identical_pairs'?"),
        (PAIRS, ["nonsense"], "'nonsense' is not an override"),
    ],
)
def test_what_cannot_be_looked_at_is_an_error_with_its_fix(rows, settings, said, tmp_path, model, capsys):
    path = write(tmp_path / "rows.jsonl", rows)
    assert main(["data", "check", path, model, *settings]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) <= 24


def test_a_broken_line_is_named(tmp_path, model, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(PAIRS[0]) + '\n{"prompt": \n')
    assert main(["data", "check", str(path), model]) == 2
    assert "rows.jsonl:2" in capsys.readouterr().err
    assert main(["data", "check", str(tmp_path / "absent.jsonl"), model]) == 2
    assert "no such file" in capsys.readouterr().err


def test_show_marks_what_is_learned(good, model, capsys):
    assert main(["data", "show", good, model, "rows=1", "chat=true"]) == 0
    out = capsys.readouterr().out
    assert out.count("tokens learned") == 2, "one row is two answers"
    assert "⟦the a cat is here.<|im_end|>" in out
    assert main(["data", "show", good, model, "rows=3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["examples"]
    assert len(shown) == 6
    assert all(len(example["pieces"]) == len(example["trained"]) for example in shown)


@pytest.mark.parametrize("rows", ["0", "abc", "1.5"])
def test_show_of_no_rows(rows, good, model, capsys):
    assert main(["data", "show", good, model, f"rows={rows}"]) == 2
    assert "rows must be" in capsys.readouterr().err


def test_audit(good, model, capsys):
    assert main(["data", "audit", good, model, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["groups"] == 4
    assert told["length_auc"] == 1.0, "every chosen answer is the longer one"
    assert main(["data", "audit", good, model]) == 0
    out = capsys.readouterr().out
    assert "length_auc" in out
    assert "too few to judge: 4 comparisons; 30 are needed to judge cues" in out


@pytest.fixture
def many(tmp_path):
    """Pairs of random words with columns of another name; the chosen answer is the longer one in three of four."""
    rng = random.Random(0)
    words = [f"{start}{end}" for start in "bcdfghkl" for end in ("arn", "elt", "ind", "osk", "umb")]
    rows = []
    for n in range(240):
        size = rng.randint(5, 20)
        answers = [" ".join(rng.choices(words, k=count)) for count in (size + rng.randint(1, 10), size)]
        good, bad = answers if n % 4 else answers[::-1]
        rows.append({"ask": f"question {n}?", "good": good, "bad": bad, "from": {"line": n}})
    return write(tmp_path / "many.jsonl", [*rows, rows[7]])


COLUMNS = "columns={prompt: ask, chosen: good, rejected: bad}"


def test_an_audit_fits_a_screen_and_says_what_to_do(many, model, capsys):
    assert main(["data", "audit", many, model, COLUMNS]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 24
    assert max(map(len, out.splitlines()[:13])) <= 80
    assert "length alone tells 7" in out
    assert "fix: wootz data audit --write FILE keeps 1" in out
    assert "duplicates 1 (near 0), contradictions 0 (near 0), overlap 0, truncated 0" in out
    assert "labels that look wrong: not known." in out


def test_the_balanced_rows_are_written_as_they_were_read(many, model, tmp_path, capsys):
    balanced = tmp_path / "balanced.jsonl"
    assert main(["data", "audit", many, model, COLUMNS, "--write", str(balanced)]) == 0
    assert "rows to" in capsys.readouterr().out
    before = [json.loads(line) for line in Path(many).read_text().splitlines()]
    after = [json.loads(line) for line in balanced.read_text().splitlines()]
    assert all(row in before for row in after)
    assert [row["from"]["line"] for row in after] == sorted({row["from"]["line"] for row in after}), "in order, once"
    assert main(["data", "audit", str(balanced), model, COLUMNS, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["length_auc"] == 0.5
    assert told["groups"] == len(after) > 100, "of the quarter with a shorter chosen answer nearly all are matched"
    assert told["duplicates"] == 0
    assert told["cues"]["length"]["low"] <= 0.5
    assert main(["data", "audit", many, model, COLUMNS, "--write", str(balanced)]) == 2
    assert "the output file exists" in capsys.readouterr().err


def test_what_cannot_be_balanced_is_an_error(good, model, tmp_path, capsys):
    assert main(["data", "audit", good, model, "--write", str(tmp_path / "b.jsonl")]) == 2
    assert "no rows are left" in capsys.readouterr().err
    text = write(tmp_path / "text.jsonl", [{"text": "a cat sat"}])
    assert main(["data", "audit", text, model, "--write", str(tmp_path / "b.jsonl")]) == 2
    assert "text data has no pairs to balance" in capsys.readouterr().err
    assert main(["data", "audit", text, model, "--log-probs"]) == 2
    assert "text data compares no answers" in capsys.readouterr().err
    assert not (tmp_path / "b.jsonl").exists()


def test_log_probs_are_the_model_s(good, tiny_llama, capsys):
    import torch

    from wootz.models import load

    assert main(["data", "audit", good, f"model={tiny_llama}", "--log-probs", "--device", "cpu", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["log_probs"]
    assert told["model"] == tiny_llama
    assert told["n"] == 4
    model = load(tiny_llama, device="cpu")
    means = {"chosen": [], "rejected": []}
    for row in PAIRS:
        for side, found in means.items():
            ids = model.tokenizer(row["prompt"] + row[side], add_special_tokens=False)["input_ids"]
            ids = [*([bos] if (bos := model.tokenizer.bos_token_id) is not None else []), *ids]
            ids += [model.tokenizer.eos_token_id]
            start = len(model.tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]) + (bos is not None)
            with torch.no_grad():
                logp = model.module(torch.tensor([ids])).logits[0].float().log_softmax(-1)
            values = [float(logp[place - 1, ids[place]]) for place in range(start, len(ids))]
            found.append(sum(values) / len(values))
    for side, found in means.items():
        assert told[side]["mean"] == pytest.approx(sum(found) / 4, rel=1e-4)
    wins = sum(a > b for a, b in zip(means["chosen"], means["rejected"], strict=True))
    assert told["chosen_likelier"] == wins / 4
    assert main(["data", "audit", good, f"model={tiny_llama}", "--log-probs"]) == 0
    assert "log-prob a token under" in capsys.readouterr().out


def test_convert_and_back(good, tmp_path, capsys):
    there, back = tmp_path / "chat.json", tmp_path / "back.jsonl"
    assert main(["data", "convert", good, str(there), "to=sharegpt"]) == 0
    assert main(["data", "convert", str(there), str(back), "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["written"] == 4
    row = json.loads(back.read_text().splitlines()[0])
    assert row["chosen"][-1]["content"] == PAIRS[0]["chosen"]
    assert main(["data", "convert", good, str(back)]) == 2
    assert "the output file exists" in capsys.readouterr().err
    assert main(["data", "convert", good, str(tmp_path / "x.jsonl"), "too=trl"]) == 2
    assert "too is not a key. Did you mean to?" in capsys.readouterr().err


def test_the_data_of_a_recipe(good, tmp_path, tiny_llama, capsys):
    pytest.importorskip("wootz.gates")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"model: {{base: {tiny_llama}}}\ndata: {{train: {good}}}\nobjective: {{type: sft}}\n")
    assert main(["data", "check", str(recipe)]) == 2
    assert "dpo" in capsys.readouterr().err, "says which objectives take such data"
    assert main(["data", "check", str(recipe), "objective.type=dpo"]) == 0


def test_pairs_made_from_ranked_rows_are_not_written_as_they_were(model, tmp_path, capsys):
    rows = [{"prompt": f"what is {i}?", "completions": ["a", "b c", "d"], "scores": [1, 2, 3]} for i in range(40)]
    path, out = write(tmp_path / "ranked.jsonl", rows), tmp_path / "out.jsonl"
    assert main(["data", "audit", str(path), model, "kind=preference", "pairs=all", "--write", str(out)]) == 2
    said = capsys.readouterr().err
    assert "wootz data convert" in said
    assert not out.exists()
