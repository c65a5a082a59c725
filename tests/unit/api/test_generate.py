"""Answers from Python and from the command line."""

import io
import json

import pytest

from wootz.api.generate import answers_of, generate, generate_from
from wootz.cli.app import main
from wootz.core.errors import RecipeError, UsageError
from wootz.models import Sampling, load

SHORT = Sampling(max_new_tokens=5, num_samples=2)


def texts(groups):
    return [[completion.text for completion in group.completions] for group in groups]


def test_one_prompt_or_several_as_text_or_conversation(tiny_llama):
    model = load(tiny_llama, dtype="fp32")
    one = generate(model, "the cat", sampling=SHORT, seed=3)
    assert [len(group.completions) for group in one] == [2]
    assert "<|im_start|>user\nthe cat<|im_end|>" in one[0].prompt.text, "asked through the chat template"
    several = generate(model, ["the cat", "the dog"], sampling=SHORT, seed=3)
    assert texts(several)[0] == texts(one)[0], "an answer does not depend on what else is asked"
    conversation = [{"role": "user", "content": "the cat"}]
    assert texts(generate(model, conversation, sampling=SHORT, seed=3)) == texts(one)
    assert texts(generate(tiny_llama, [conversation], sampling=SHORT, seed=3, device="cpu"))[0]
    assert texts(generate(model, "the cat", sampling=SHORT, seed=4)) != texts(one)
    with pytest.raises(UsageError, match="no prompts"):
        generate(model, [])


def test_a_model_without_a_chat_template_continues_the_text(tiny_folder):
    from tests.tiny import make_tokenizer

    model = load(tiny_folder("gpt2", tokenizer=make_tokenizer(chat_template=None)), dtype="fp32")
    (group,) = generate(model, "the cat", sampling=SHORT)
    assert group.prompt.text == "the cat"
    assert list(group.prompt.tokens) == model.tokenizer("the cat").input_ids


def test_logp_of_an_answer_is_the_sum_over_its_tokens(tiny_llama):
    groups = generate(tiny_llama, ["the cat", "the dog"], sampling=SHORT)
    answers = answers_of(groups)
    assert [answer["prompt"] for answer in answers] == ["the cat", "the cat", "the dog", "the dog"]
    for answer, completion in zip(answers, [c for g in groups for c in g.completions], strict=True):
        assert answer["logp"] == pytest.approx(float(completion.per_token["sample_logp"].sum()), abs=1e-5)
        assert answer["tokens"] == len(completion.tokens) <= 5


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
def test_prompts_of_a_file(suffix, tmp_path, tiny_llama):
    path = tmp_path / f"prompts.{suffix}"
    rows = [{"prompt": "the cat"}, {"prompt": "the dog"}]
    text = {"jsonl": "\n".join(map(json.dumps, rows)), "json": json.dumps(rows), "csv": "prompt\nthe cat\nthe dog\n"}
    path.write_text(text[suffix])
    answers = answers_of(generate_from(tiny_llama, str(path), ["max_new_tokens=3"]))
    assert [answer["prompt"] for answer in answers] == ["the cat", "the dog"]


def test_a_file_without_prompts(tmp_path, tiny_llama):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"answer": 3}\n')
    with pytest.raises(UsageError, match="no prompts in the file") as caught:
        generate_from(tiny_llama, str(path))
    assert caught.value.found == "answer"


def test_settings_are_checked_before_the_model_is_loaded():
    with pytest.raises(RecipeError, match=r"command line: temprature is not a key. Did you mean temperature\?"):
        generate_from("no-such-model", "x", ["temprature=0"])


def test_on_the_command_line(tiny_llama, tmp_path, capsys, monkeypatch):
    settings = ["max_new_tokens=4", "temperature=0"]
    assert main(["generate", tiny_llama, "the cat", *settings, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert main(["generate", tiny_llama, "the cat", *settings]) == 0
    assert capsys.readouterr().out.rstrip("\n") == answer["completion"].rstrip("\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("the cat\n\nthe dog\n"))
    out = tmp_path / "answers.jsonl"
    assert main(["generate", tiny_llama, "-", *settings, "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prompt"] for row in rows] == ["the cat", "the dog"]
    assert rows[0]["completion"] == answer["completion"]
    shown, err = capsys.readouterr()
    assert "--- the dog\n" in shown
    assert f"2 answers written to {out}" in err


def test_the_seed_flag(tiny_llama, capsys):
    said = []
    for seed in ("1", "1", "2"):
        assert main(["generate", tiny_llama, "the cat", "max_new_tokens=12", "--seed", seed]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]


def test_a_model_that_is_not_there(tmp_path, capsys):
    assert main(["generate", str(tmp_path / "absent"), "x"]) == 2
    assert "no such model" in capsys.readouterr().err
