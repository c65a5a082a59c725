import pickle

import pytest

from wootz.core import errors


@pytest.mark.parametrize(
    ("kind", "code", "also"),
    [
        (errors.UsageError, 2, ValueError),
        (errors.RecipeError, 2, ValueError),
        (errors.DataError, 2, ValueError),
        (errors.ModelError, 2, ValueError),
        (errors.SignalError, 2, RuntimeError),
        (errors.MissingError, 4, RuntimeError),
        (errors.GuardStop, 3, RuntimeError),
        (errors.Interrupted, 130, RuntimeError),
    ],
)
def test_codes_families_and_pickling(kind, code, also):
    error = kind("what", where="a:1", found="x", expected="y", fix="z")
    assert error.exit_code == code
    assert isinstance(error, also)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a:1: what\n  found: x\n  expected: y\n  fix: z"


def test_nearest():
    assert errors.nearest("cosin", ["linear", "cosine"]) == "cosine"
    assert errors.nearest("xyz", ["linear", "cosine"]) is None
