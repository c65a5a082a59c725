"""The YAML reader: values mean what they look like, mistakes are named by file and line."""

import math
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wootz.core import yaml
from wootz.core.errors import RecipeError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("5E3", 5000.0),
        ("-1.5e+2", -150.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("12", 12),
        ("-0", 0),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("off", "off"),
        ("~", None),
        ("null", None),
        ("", None),
        ("1e", "1e"),
        ("e5", "e5"),
        ("1.2.3", "1.2.3"),
        ("-", [None]),
        ('"1e-6"', "1e-6"),
        (".inf", math.inf),
        ("smollm2-135m", "smollm2-135m"),
        ("http://host:80/v1#name", "http://host:80/v1#name"),
    ],
)
def test_values_mean_what_they_look_like(text, value):
    read = yaml.parse(f"key: {text}" if text != "-" else "key:\n-").content["key"]
    assert read == value
    assert type(read) is type(value)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | st.sampled_from(
        ["yes", "no", "1e5", "0o7", "010", "1:30", "2026-01-01", "null", "~", "on", "=", "<<", "1_0", ".5"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(string.ascii_letters, min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(string.ascii_letters + "_", min_size=1, max_size=8), plain, max_size=4))
def test_what_is_written_is_read_back(content):
    assert yaml.parse(yaml.dump(content)).content == content


def test_every_key_has_its_line():
    text = "model:\n  base: x\nguards:\n  - {type: kl,\n     stop_above: 3}\n  - type: length\n"
    document = yaml.parse(text, source="r.yaml")
    lines = {
        ("model",): 1,
        ("model", "base"): 2,
        ("guards",): 3,
        ("guards", 0, "stop_above"): 5,
        ("guards", 1): 6,
        ("guards", 1, "type"): 6,
        ("model", "absent", "deeper"): 1,
    }
    for path, line in lines.items():
        assert document.where(path) == f"r.yaml:{line}", path
    assert document.where(("absent",)) == "r.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", r"r.yaml:3: key 'a' is given twice\n  found: first at r.yaml:1"),
        ("s: {x: 1, x: 1}", r"r.yaml:1: key 'x' is given twice"),
        ("a: [1, 2\nb: 3\n", r"r.yaml:2: not valid YAML"),
        ("a:\n\t- 1\n", r"r.yaml:2: not valid YAML(.|\n)*use spaces"),
        ("a: 'x\n", r"r.yaml:\d: not valid YAML"),
        ("- a\n", r"r.yaml: a recipe is a mapping of sections"),
        ("word", r"r.yaml: a recipe is a mapping of sections"),
        ("a: 1\n---\nb: 2\n", r"r.yaml:2: not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", r"r.yaml:1: a recipe holds plain values only"),
        ("a: !custom 1\n", r"r.yaml:1: a recipe holds plain values only"),
        ("a: &x [*x]\n", r"r.yaml:1: an alias that contains itself"),
        ("a: *nowhere\n", r"r.yaml:1: not valid YAML"),
        ("? [1, 2]\n: 3\n", r"r.yaml:1: a key is a word"),
        ("a: \x01\n", r"r.yaml.*: not valid YAML"),
    ],
)
def test_a_broken_file_is_named_by_line(text, message):
    with pytest.raises(RecipeError, match=message) as caught:
        yaml.parse(text, source="r.yaml")
    assert caught.value.exit_code == 2


def test_files(tmp_path):
    path = tmp_path / "r.yaml"
    with pytest.raises(RecipeError, match="no such recipe"):
        yaml.read(path)
    path.write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(RecipeError, match="cannot be read"):
        yaml.read(path)
    with pytest.raises(RecipeError, match="cannot be read"):
        yaml.read(tmp_path)
    path.write_text("")
    assert yaml.read(path).content == {}


class TestOverrides:
    document = yaml.parse("train: {lr: 1.0}\nguards: [{type: kl}]\nnone:\n", source="r.yaml")

    def test_set_values_without_touching_the_original(self):
        settings = [
            "train.lr=5e-6",
            "train.deep.er=[1, x]",
            "guards.0.type=length",
            "none.a=b",
            "new=",
            "model.base=a=b",
        ]
        assert self.document.override(settings).content == {
            "train": {"lr": 5e-6, "deep": {"er": [1, "x"]}},
            "guards": [{"type": "length"}],
            "none": {"a": "b"},
            "new": None,
            "model": {"base": "a=b"},
        }
        assert self.document.content == {"train": {"lr": 1.0}, "guards": [{"type": "kl"}], "none": None}

    def test_are_where_mistakes_in_them_are(self):
        changed = self.document.override(["guards=[{type: length}]", "train.lr=2"])
        assert changed.where(("guards", 0, "type")) == "command line"
        assert changed.where(("train", "lr")) == "command line"
        assert changed.where(("train", "other")) == "r.yaml:1"

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("lr", "'lr' is not an override"),
            ("=3", "'=3' is not an override"),
            ("train.lr.x=3", r"train.lr holds a value, not keys\n  found: 1.0"),
            ("guards.1.type=kl", r"no item '1' to set\n  found: guards has 1 items"),
            ("guards.x=kl", "no item 'x' to set"),
            ("train.lr=[1", "command line: not valid YAML"),
            ("train={a: 1, a: 2}", "command line: key 'a' is given twice"),
            ("train=!!python/name:os.system", "command line: a recipe holds plain values only"),
        ],
    )
    def test_that_cannot_be_set(self, setting, message):
        with pytest.raises(RecipeError, match=message):
            self.document.override([setting])
