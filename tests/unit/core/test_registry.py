"""Components are found by name, built in or from other packages, and their fields appear in the schema."""

import pytest

from tests.unit.core.shapes import SHAPES, Ball, Box, Order
from wootz.core.config import Config
from wootz.core.errors import RecipeError
from wootz.core.registry import Registry


def test_listing_imports_nothing():
    registry = Registry("tests", {"a": "no.such.module:Thing", "b": "neither:This"})
    assert list(registry) == ["a", "b"]
    assert "a" in registry
    with pytest.raises(ModuleNotFoundError):
        registry.get("a")


def test_unknown_names_offer_the_nearest():
    with pytest.raises(RecipeError, match="'bxo' is not one of the shapes") as caught:
        SHAPES.get("bxo")
    assert caught.value.expected == "ball, box"
    assert caught.value.fix == "type: box"


def test_a_name_is_taken_once():
    registry = Registry("tests", {"a": "x:Y"})
    registry.register("c", Box)
    assert registry.get("c") is Box
    for name in ("a", "c"):
        with pytest.raises(RecipeError, match="registered twice"):
            registry.register(name, Ball)


def test_a_component_that_is_built_already_must_be_a_known_one():
    assert SHAPES.validate(Box()) == Box()

    class Other(Config):
        """Not a shape."""

    with pytest.raises(ValueError, match="is not one of the shapes"):
        SHAPES.validate(Other())


def test_the_schema_lists_types_with_their_fields():
    schema = Order.model_json_schema()
    choices = schema["properties"]["shape"]["anyOf"]
    ball, box, words = choices
    assert words == {"enum": ["box"]}, "only what needs no fields may be written as a word"
    assert set(box["properties"]) == {"type", "sides", "hollow"}
    assert box["properties"]["hollow"]["description"] == "Whether it is empty."
    assert ball["required"] == ["type", "radius"]
    assert ball["properties"]["radius"]["exclusiveMinimum"] == 0
    assert ball["additionalProperties"] is False
    assert schema["properties"]["extras"]["items"]["anyOf"] == choices


@pytest.mark.parametrize(
    ("content", "valid"),
    [
        ({"name": "x", "shape": "box"}, True),
        ({"name": "x", "shape": {"type": "ball", "radius": 1}}, True),
        ({"name": "x", "shape": {"type": "ball"}}, False),
        ({"name": "x", "shape": "ball"}, False),
        ({"name": "x", "shape": {"type": "cone"}}, False),
        ({"name": "x", "shape": {"radius": 1}}, False),
        ({"name": "x", "shape": "box", "extras": ["box", {"type": "box", "hollow": True}]}, True),
        ({"name": "x", "shape": "box", "other": 1}, False),
    ],
)
def test_the_schema_and_the_validator_agree(content, valid):
    jsonschema = pytest.importorskip("jsonschema")
    assert jsonschema.Draft202012Validator(Order.model_json_schema()).is_valid(content) == valid
    try:
        Order.model_validate(content)
    except ValueError:
        assert not valid
    else:
        assert valid


def test_components_of_other_packages(tmp_path, monkeypatch):
    (tmp_path / "forge.py").write_text(
        "from typing import Literal\n"
        "from wootz.core.config import Config\n"
        "class Crate(Config):\n    type: Literal['crate'] = 'crate'\n    planks: int = 6\n"
    )
    info = tmp_path / "forge-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: forge\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wootz.tests]\ncrate = forge:Crate\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry("tests", {"a": "x:Y"})
    assert list(registry) == ["a", "crate"]
    assert registry.validate({"type": "crate", "planks": 8}).planks == 8
