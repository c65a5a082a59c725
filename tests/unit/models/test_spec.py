"""Specs: what each means, and what each mistake says."""

import json
from pathlib import Path

import pytest

from wootz.core.errors import ModelError
from wootz.models.spec import Spec, parse_spec


def adapter(folder: Path, base: str | None, **extra) -> Path:
    folder.mkdir(parents=True)
    content = {"peft_type": "LORA", "base_model_name_or_path": base, **extra}
    (folder / "adapter_config.json").write_text(json.dumps(content))
    return folder


def whole(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    return folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("smollm2-135m", Spec("builtin", "smollm2-135m")),
        ("Qwen/Qwen3-0.6B", Spec("hub", "Qwen/Qwen3-0.6B")),
        ("gpt2", Spec("hub", "gpt2")),
        ("Qwen/Qwen3-0.6B@abc123", Spec("hub", "Qwen/Qwen3-0.6B", revision="abc123")),
        ("org/model@refs/pr/1", Spec("hub", "org/model", revision="refs/pr/1")),
        ("http://localhost:8000/v1#base", Spec("endpoint", "http://localhost:8000/v1", served_name="base")),
        ("https://h/v1/#org/name", Spec("endpoint", "https://h/v1", served_name="org/name")),
    ],
)
def test_names(text, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_spec(text) == expected


def test_places_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, low = whole(tmp_path / "model"), adapter(tmp_path / "ad", "smollm2-135m")
    (tmp_path / "m.gguf").touch()
    odd = whole(tmp_path / "a+b")
    assert parse_spec("model") == Spec("folder", "model")
    assert parse_spec("m.gguf") == Spec("gguf", "m.gguf")
    assert parse_spec("a+b") == Spec("folder", "a+b")
    assert parse_spec(f"{odd}+{low}") == Spec("folder", str(odd), adapter=low)
    assert parse_spec("model+ad") == Spec("folder", "model", adapter=Path("ad"))
    assert parse_spec(" ad ") == Spec("builtin", "smollm2-135m", adapter=Path("ad"))
    assert parse_spec("model").base == str(model)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_spec("~/model") == Spec("folder", str(model))


def test_a_folder_of_the_builtin_name_is_reached_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole(tmp_path / "smollm2-135m")
    assert parse_spec("smollm2-135m").kind == "builtin"
    assert parse_spec("./smollm2-135m").kind == "folder"


def test_a_run_gives_its_model_then_its_newest_checkpoint(tmp_path):
    run = tmp_path / "run"
    for step in (2, 10, 9):
        whole(run / "checkpoints" / f"step_{step}" / "model")
    whole(run / "checkpoints" / "tmp_11" / "model")
    assert parse_spec(str(run)).place == str(run / "checkpoints" / "step_10" / "model")
    whole(run / "model")
    assert parse_spec(str(run)).place == str(run / "model")


def test_a_run_of_an_adapter_serves_as_adapter_and_as_model(tmp_path):
    run = tmp_path / "run"
    low = adapter(run / "checkpoints" / "step_3" / "model", "org/base", revision="abc")
    assert parse_spec(str(run)) == Spec("hub", "org/base", adapter=low, revision="abc")
    assert parse_spec(f"smollm2-135m+{run}") == Spec("builtin", "smollm2-135m", adapter=low)
    whole(run / "model")
    assert parse_spec(f"smollm2-135m+{run}").adapter == low


def test_revision_of_a_hub_id_only(tmp_path):
    assert parse_spec("org/m", revision="v1").revision == "v1"
    assert parse_spec("org/m@v1", revision="v1").revision == "v1"
    with pytest.raises(ModelError, match="two revisions"):
        parse_spec("org/m@v2", revision="v1")
    with pytest.raises(ModelError, match="only a Hub id has revisions"):
        parse_spec(str(whole(tmp_path / "m")), revision="v1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no such model"),
        ("./nowhere", "no such model"),
        ("/no/where", "no such model"),
        ("a b", "no such model"),
        ("a/b/c", "no such model"),
        ("nowhere.gguf", "no such file"),
        ("http://localhost:8000/v1", "name of the model it serves"),
        ("smollm2-135m+nowhere", "no adapter there"),
        ("smollm2-135m+ad+ad", "one adapter at a time"),
        ("lost", "the adapter's base is not here"),
        ("nameless", "does not name its base"),
        ("stacked", "an adapter on an adapter"),
        ("torn", "not valid JSON"),
        ("list", "not an adapter's configuration"),
        ("empty", "holds no model"),
        ("both", "a whole model and an adapter"),
        ("run", "no model and no checkpoint yet"),
        ("smollm2-135m+whole", "no adapter there"),
        ("file.txt", "no such model"),
    ],
)
def test_mistakes(text, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adapter(tmp_path / "ad", "smollm2-135m")
    adapter(tmp_path / "lost", "/gone/model")
    adapter(tmp_path / "nameless", None)
    adapter(tmp_path / "stacked", "ad")
    adapter(tmp_path / "torn", "x").joinpath("adapter_config.json").write_text('{"a"')
    adapter(tmp_path / "list", "x").joinpath("adapter_config.json").write_text("[]")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    adapter(tmp_path / "both", "x").joinpath("model.safetensors").touch()
    whole(tmp_path / "whole")
    (tmp_path / "file.txt").touch()
    with pytest.raises(ModelError, match=says) as caught:
        parse_spec(text)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) <= 6


def test_a_whole_model_where_an_adapter_was_meant_is_offered(tmp_path):
    model = whole(tmp_path / "m")
    with pytest.raises(ModelError) as caught:
        parse_spec(f"smollm2-135m+{model}")
    assert caught.value.fix == str(model)
