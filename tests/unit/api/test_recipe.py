"""Recipes: every shipped one is sound, every key is explained, none is ignored, and they survive being written down."""

import json
import re
from pathlib import Path

import pytest

from wootz.api.recipe import Recipe, find_recipe, load_recipe, shipped_recipes
from wootz.core.config import fields_of, registry_of
from wootz.core.errors import RecipeError
from wootz.core.explain import explain
from wootz.guards import GUARDS
from wootz.objectives import OBJECTIVES

SRC = Path(__file__).parents[3] / "src/wootz"
MINIMAL = {"model": {"base": "m"}, "data": {"train": "d.jsonl"}, "objective": {"type": "dpo"}}
FULL = """\
name: everything
model: {base: m, lora: {rank: 4, targets: [q_proj]}, dtype: fp32}
data: {train: a.jsonl, held_out: b.jsonl, columns: {chosen: good}, drop: [identical_pairs]}
objective: {type: dpo, beta: 0.3}
train: {lr: 1e-4, max_steps: 5, optim: {schedule: linear}}
guards: [{type: kl, stop_above: 3}, length, {type: budget, minutes: 2}]
eval: {samples: 2, max_new_tokens: 9}
track: [tensorboard]
seed: 7
"""


def components():
    for registry in (OBJECTIVES, GUARDS):
        for name in registry:
            yield f"{registry.plug}.{name}", registry.get(name)


def every_field():
    yield from fields_of(Recipe)
    for prefix, config in components():
        yield from fields_of(config, f"{prefix}.")


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_is_sound_and_short(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    text = find_recipe(name).read_text()
    assert text.startswith("# ")
    assert len([line for line in text.splitlines() if line.strip() and not line.startswith("#")]) <= 10
    assert len(shipped_recipes()) <= 15


def test_written_down_and_read_back(tmp_path):
    for text in (FULL, json.dumps(MINIMAL)):
        (tmp_path / "r.yaml").write_text(text)
        recipe = load_recipe(tmp_path / "r.yaml")
        (tmp_path / "again.yaml").write_text(recipe.to_yaml())
        assert load_recipe(tmp_path / "again.yaml") == recipe
        assert Recipe.model_validate(json.loads(json.dumps(recipe.resolved()))) == recipe
        assert load_recipe(recipe) == recipe


def test_to_yaml_leaves_defaults_out():
    recipe = load_recipe({**MINIMAL, "train": {"lr": 1e-5, "epochs": 2}, "guards": ["length"]})
    assert recipe.to_yaml().splitlines() == [
        "model: {base: m}",
        "data: {train: d.jsonl}",
        "objective: {type: dpo}",
        "train: {epochs: 2.0}",
        "guards:",
        "- {type: length}",
    ]


def test_the_name_is_the_files_unless_it_says_another(tmp_path):
    (tmp_path / "mine.yaml").write_text(json.dumps(MINIMAL))
    assert load_recipe(tmp_path / "mine.yaml").name == "mine"
    assert load_recipe(tmp_path / "mine.yaml", ["name=other"]).name == "other"


def test_overrides_reach_everything():
    recipe = load_recipe(
        MINIMAL, ["model.lora.rank=3", "train.optim.clip_norm=2", "guards=[{type: budget, minutes: 1}]"]
    )
    assert recipe.model.lora.rank == 3
    assert recipe.train.optim.clip_norm == 2.0
    assert recipe.guards[0].minutes == 1.0


@pytest.mark.parametrize(
    ("name", "fix"), [("dop", "dpo"), ("dpo.yml", "dpo"), ("zzz", None), ("recipes/nothing.yaml", None)]
)
def test_a_recipe_that_is_not_there(name, fix):
    with pytest.raises(RecipeError, match="no such recipe") as caught:
        load_recipe(name)
    assert caught.value.fix == fix
    assert "dpo" in caught.value.expected


def test_a_file_nearby_is_offered(tmp_path):
    (tmp_path / "route_tickets.yaml").write_text("")
    with pytest.raises(RecipeError) as caught:
        load_recipe(tmp_path / "route_ticket.yaml")
    assert caught.value.fix == str(tmp_path / "route_tickets.yaml")


CONFLICTS = [
    (["train.epochs=1", "train.max_steps=3"], "keep one"),
    (["train.tokens_per_step=100", "train.groups_per_step=3"], "keep one"),
    (["data.held_out=x", "data.held_out_fraction=0.5"], "keep one"),
    (["data.drop=[identical_pairs]", "data.allow=[identical_pairs]"], "keep one"),
    (["eval.max_new_tokens=3", "data.held_out=x"], "does nothing without eval.samples"),
    (["eval.samples=65", "data.held_out=x"], "more than eval.max_groups"),
    (["eval.every=3"], "eval needs held-out rows"),
]


@pytest.mark.parametrize(("settings", "message"), CONFLICTS)
def test_settings_that_exclude_each_other_or_do_nothing(settings, message):
    for setting in settings:
        if "eval" not in setting and "allow" not in setting:
            load_recipe(MINIMAL, [setting])
    with pytest.raises(RecipeError, match=message):
        load_recipe(MINIMAL, settings)


def test_every_field_is_read_by_something():
    """A field that no code reads would be a setting that does nothing."""
    code = "\n".join(path.read_text() for path in SRC.rglob("*.py"))
    for key, _ in every_field():
        name = key.rsplit(".", 1)[-1]
        if name != "type":
            assert re.search(rf"\.{name}\b", code), f"{key} is never read"


def test_every_field_is_explained_in_a_sentence():
    for key, info in every_field():
        if key.endswith(".type"):
            continue
        assert info.description, key
        assert len(info.description) < 250, key
        if not key.startswith(("objectives.", "guards.")) and registry_of(info) is None:
            assert explain(Recipe, key)[0].meaning == info.description


def test_no_section_has_more_than_twelve_fields():
    seen = {}
    for key, _ in every_field():
        section = key.rpartition(".")[0]
        seen[section] = seen.get(section, 0) + 1
    assert {section: count for section, count in seen.items() if count > 12} == {}


def test_no_two_fields_of_a_section_are_called_the_same_elsewhere():
    seen = {}
    for key, info in every_field():
        for other in (info.json_schema_extra or {}).get("aka", ()):
            assert seen.setdefault(other, key) == key
            assert other != key.rsplit(".", 1)[-1]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("learning_rate", "train.lr"),
        ("num_train_epochs", "train.epochs"),
        ("max_grad_norm", "train.optim.clip_norm"),
        ("lora_alpha", "model.lora.alpha"),
        ("model_name_or_path", "model.base"),
        ("max_seq_length", "train.max_length"),
    ],
)
def test_keys_of_other_tools_find_ours(wrong, meant):
    with pytest.raises(RecipeError, match=re.escape(f"{wrong} is not a key. Did you mean {meant}?")):
        load_recipe({**MINIMAL, wrong: 1})


def test_the_schema_accepts_what_ships():
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(Recipe.model_json_schema())
    for path in shipped_recipes().values():
        from wootz.core import yaml

        validator.validate(yaml.read(path).content)
    assert not validator.is_valid({**MINIMAL, "objective": {"type": "dpo", "betta": 1}})
