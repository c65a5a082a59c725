"""``wootz data``: what a user sees of good and bad data, and what a script gets."""

import json

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
    assert "length_auc" in capsys.readouterr().out


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
