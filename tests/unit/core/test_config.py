"""Mistakes in a recipe are named with place, key, what was found and the fix; nothing else escapes."""

import copy
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.core.shapes import Ball, Box, Finish, Order
from wootz.core import yaml
from wootz.core.config import validate
from wootz.core.errors import RecipeError

GOOD = """\
name: one
count: 2
finish: {colour: green}
shape: {type: ball, radius: 1e-1}
extras:
  - box
  - {type: box, hollow: true}
"""


def told(text: str, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        validate(Order, yaml.parse(text, source="o.yaml").override(overrides))
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_good_one():
    order = validate(Order, yaml.parse(GOOD))
    assert order == Order(
        name="one",
        count=2,
        finish=Finish(colour="green"),
        shape=Ball(radius=0.1),
        extras=(Box(), Box(hollow=True)),
    )
    assert validate(Order, order.model_dump()) == order
    assert Order.model_validate_json(order.model_dump_json()) == order


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("naem: x", "o.yaml:8: naem is not a key. Did you mean name?"),
        ("quantity: 3", "o.yaml:8: quantity is not a key. Did you mean count?"),
        ("colour: red", "o.yaml:8: colour is not a key. Did you mean finish.colour?"),
        ("shininess: 1", "o.yaml:8: shininess is not a key. Did you mean finish.gloss?"),
        ("zzz: 1", "o.yaml:8: zzz is not a key. Keys here: name, count, finish, spare, shape, extras, size, notes"),
        ("spare: {color: red}", "o.yaml:8: spare.color is not a key. Did you mean spare.colour?"),
        ("spare: red", "o.yaml:8: spare is a section with keys colour, gloss; found red"),
        (
            "spare: {colour: grene}",
            "o.yaml:8: spare.colour must be red, green or blue; found grene\n  fix: spare.colour: green",
        ),
        ("spare: {gloss: 1.5}", "o.yaml:8: spare.gloss must be less than or equal to 1; found 1.5"),
        ("spare: {gloss: .nan}", "o.yaml:8: spare.gloss must be a finite number; found NaN"),
        ("spare: {gloss: high}", "o.yaml:8: spare.gloss must be a number; found high"),
        ("notes: [a]", 'o.yaml:8: notes must be a mapping; found ["a"]'),
        ("notes: {a: {b: c}}", 'o.yaml:8: notes.a must be a string; found {"b": "c"}'),
        ("size: big", "o.yaml:8: size must be auto, or must be a list; found big"),
        ("size: [1, x]", "o.yaml:8: size.1 must be a whole number; found x"),
    ],
)
def test_one_mistake(change, message):
    assert told(GOOD + change).startswith(message)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("shape.type=bal", "command line: shape 'bal' is not one of the shapes. Known: ball, box\n  fix: type: ball"),
        ("shape={radius: 1}", "command line: shape: expected {type: NAME, ...} with NAME one of ball, box"),
        ("shape.r=1", "command line: shape.r is not a key. Did you mean shape.radius?"),
        ("shape=ball", "command line: shape.radius is missing: centre to surface"),
        ("shape.radius=0", "command line: shape.radius must be greater than 0; found 0"),
        ("extras.1.hollw=true", "command line: extras.1.hollw is not a key. Did you mean extras.1.hollow?"),
        ("extras.1.sides=[1, z]", "command line: extras.1.sides.1 must be a number; found z"),
        ("extras=3", "command line: extras must be a list; found 3"),
        ("extras=[3]", "command line: extras.0: expected {type: NAME, ...}"),
        ("count=2.5", "command line: count must be a whole number; found 2.5"),
        ("name=", "command line: name must be a string; found null"),
    ],
)
def test_one_mistake_on_the_command_line(override, message):
    assert told(GOOD, override).startswith(message)


def test_a_missing_key_that_was_misspelt_is_told_once():
    assert told("nane: x\nshape: box") == "o.yaml:1: nane is not a key. Did you mean name?"
    assert told("shape: {type: ball, radus: 1}\nname: x") == (
        "o.yaml:1: shape.radus is not a key. Did you mean shape.radius?"
    )


def test_what_a_section_says_of_itself():
    message = told(GOOD.replace("count: 2", "count: 101").replace("green", "red"))
    assert message == "o.yaml: more than 100 red ones cannot be made; choose another colour"


def test_several_mistakes_are_all_told_with_their_lines():
    message = told("nmae: x\ncount: 0\nfinish: {colour: rde,\n  gloss: 2}\n")
    assert message.splitlines() == [
        "o.yaml: 5 mistakes",
        "  o.yaml:2: count must be greater than 0; found 0",
        "  o.yaml:3: finish.colour must be red, green or blue; found rde. Fix: finish.colour: red",
        "  o.yaml:4: finish.gloss must be less than or equal to 1; found 2",
        "  shape is missing: what it is",
        "  o.yaml:1: nmae is not a key. Did you mean name?",
    ]


def test_many_mistakes_fit_one_screen():
    keys = "\n".join(f"wrong_{letter}: 1" for letter in "abcdefghijklmnopqrstuvwxyz")
    lines = told(f"{GOOD}{keys}\nnotes: {{a: [{'x' * 500}]}}").splitlines()
    assert len(lines) <= 24
    assert lines[0] == "o.yaml: 27 mistakes"
    assert lines[-1] == "  and 19 more"
    assert all(len(line) < 200 for line in lines)


def test_a_mapping_has_no_lines():
    with pytest.raises(RecipeError, match=r"^recipe: cuont is not a key. Did you mean count\?"):
        validate(Order, {"name": "x", "shape": "box", "cuont": 1})


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["ball", "box", "red"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "radius", "name", "x"]) | st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_is_written_is_valid_or_a_recipe_error_of_one_screen(data):
    content = copy.deepcopy(yaml.parse(GOOD).content)
    for _ in range(data.draw(st.integers(1, 3))):
        place = content
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(
                st.sampled_from([*keys, "other"]) if isinstance(place, dict) or not keys else st.sampled_from(keys)
            )
            inner = place[key] if key in keys else None
            if isinstance(inner, (dict, list)) and inner and data.draw(st.booleans()):
                place = inner
                continue
            break
        if isinstance(place, dict) or isinstance(key, int):
            place[key] = data.draw(junk)
    said = ""
    try:
        validate(Order, content)
    except RecipeError as error:
        said = str(error)
    assert len(said.splitlines()) <= 24
    assert not re.search(r"pydantic|Traceback|ctx|loc=", said)
