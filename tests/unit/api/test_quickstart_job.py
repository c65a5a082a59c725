"""The quickstart's items: nothing held out is trained on, and shortening alone does not help."""

import re

import pytest

from wootz.api.quickstart import job
from wootz.core.records import Completion, Group, Sequence
from wootz.signals.text import ExactConfig


def test_held_out_shares_no_sentence_and_no_word_to_answer_with():
    assert not set(job.TRAIN_CITIES) & set(job.HELD_OUT_CITIES)
    assert not set(job.TRAIN_NAMES) & set(job.HELD_OUT_NAMES)
    assert not set(job.TRAIN_MESSAGES) & set(job.HELD_OUT_MESSAGES)
    for cities in (job.TRAIN_CITIES, job.HELD_OUT_CITIES):
        assert len(set(cities)) == len(cities) >= 45
    train = {task.prompt for task in job.tasks(300, held_out=False, seed=0)}
    held_out = job.tasks(300, held_out=True, seed=0)
    assert not train & {task.prompt for task in held_out}
    assert not {task.gold for task in held_out} & set(job.TRAIN_CITIES)


@pytest.mark.parametrize("held_out", [False, True])
def test_every_message_names_two_cities_and_asks_for_one(held_out):
    cities = job.HELD_OUT_CITIES if held_out else job.TRAIN_CITIES
    positions = []
    for task in job.tasks(200, held_out=held_out, seed=3):
        named = [city for city in cities if re.search(rf"(?<!\w){city}(?!\w)", task.prompt)]
        assert task.gold in named
        assert len(named) >= 2
        positions.append(task.gold == task.last_city)
    # Held out, a rule such as "the last city" is right in half of the messages.
    assert sum(positions) / len(positions) == pytest.approx(0.5, abs=0.03 if held_out else 0.1)


def test_draws_are_the_seeds_own():
    one, same, other = (job.tasks(50, held_out=True, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert len({t.prompt for t in one} & {t.prompt for t in other}) < 5
    assert len({t.prompt for t in one}) == 50
    assert len({t.id for t in one}) == 50


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("San Diego", 1),
        (" San Diego\n", 1),
        ("San Diego.", 0),
        ("San", 0),
        ("San Diego, not Lima", 0),
        ("The parcel should go to San Diego", 0),
        ("Lima", 0),
        ("San Diego\nLima", 0),
        ("", 0),
    ],
)
def test_the_verifier_is_strict(answer, right):
    group = Group("g", Sequence((1,)), (Completion((1,), answer),), {"gold": "San Diego"})
    assert ExactConfig().build().score([group])[0][0].value == right


def test_the_control():
    assert job.first_word("Oslo is the city.") == "Oslo"
    assert job.first_word("\u201cOslo\u201d") in ("Oslo", "\u201cOslo\u201d")
    assert job.first_word("") == ""
    several = [task for task in job.tasks(200, held_out=True, seed=0) if task.words > 1]
    assert len(several) > 40, "answers of one word only would be won by cutting"
