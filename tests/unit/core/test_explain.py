"""Every key of a recipe can be explained, components included."""

import pytest

from tests.unit.core.shapes import Order
from wootz.core.config import fields_of
from wootz.core.errors import UsageError
from wootz.core.explain import explain


def test_a_key():
    (told,) = explain(Order, "finish.gloss")
    assert (told.key, told.type, told.default, told.bounds) == (
        "finish.gloss",
        "number",
        "0.5",
        "at least 0, at most 1",
    )
    assert told.meaning == "Share of light that is mirrored."
    assert told.aka == ("shininess",)


@pytest.mark.parametrize(
    ("key", "kind", "default"),
    [
        ("name", "text", "required"),
        ("count", "whole number", "1"),
        ("finish.colour", "one of red, green, blue", "red"),
        ("spare", "section", "none"),
        ("finish", "section", "its own defaults"),
        ("size", "one of auto or list of whole number", "auto"),
        ("notes", "mapping", "{}"),
        ("shape.box.sides", "list of number", "[1.0, 1.0, 1.0]"),
        ("extras.0.hollow", "true or false", "false"),
    ],
)
def test_types_and_defaults(key, kind, default):
    (told,) = explain(Order, key)
    assert (told.type, told.default) == (kind, default)


def test_components():
    (told,) = explain(Order, "shape")
    assert told.type == "component, {type: NAME, ...}; NAME is one of ball, box"
    assert told.keys == ("shape.ball", "shape.box")
    (told,) = explain(Order, "shape.ball")
    assert told.meaning == "A sphere."
    assert told.keys == ("shape.ball.radius",)
    for key in ("shape.radius", "shape.ball.radius"):
        (told,) = explain(Order, key)
        assert told.key == "shape.ball.radius"
        assert told.bounds == "above 0"
    assert [told.key for told in explain(Order, "extras.type")] == ["extras.ball.type", "extras.box.type"]


def test_every_key_is_explained():
    for key, _ in fields_of(Order):
        assert explain(Order, key)[0].meaning, key


@pytest.mark.parametrize(
    ("key", "fix"), [("finish.glos", "finish.gloss"), ("cuont", "count"), ("shininess", "finish.gloss")]
)
def test_an_unknown_key_offers_the_nearest(key, fix):
    with pytest.raises(UsageError) as caught:
        explain(Order, key)
    assert caught.value.fix == f"wootz recipe explain {fix}"


@pytest.mark.parametrize("key", ["", "zzzz", "0", "shape.ball.zzz"])
def test_a_key_that_is_near_nothing(key):
    with pytest.raises(UsageError, match="no key"):
        explain(Order, key)
