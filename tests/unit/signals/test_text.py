"""Tables of right answers, wrong answers and attempts to please the verifier."""

import pytest

from wootz.core.errors import SignalError
from wootz.core.records import Comparison, Completion, Group, Score, Sequence
from wootz.signals import SIGNALS, as_signal, checked_score


def group(*answers: str, gold=None, finished: bool = True, **columns) -> Group:
    given = {} if gold is None else {"gold": gold}
    completions = tuple(Completion((1,), text, finished=finished) for text in answers)
    return Group("g", Sequence((1,)), completions, {**given, **columns})


def value(settings: dict, answer: str, gold="San Jose", finished: bool = True) -> float | None:
    signal = SIGNALS.validate(settings).build()
    return checked_score(signal, [group(answer, gold=gold, finished=finished)])[0][0].value


EXACT = {"type": "exact"}
CHOICE = {"type": "choice", "options": ["Billing", "Shipping", "No", "Dr No"]}


@pytest.mark.parametrize(
    ("settings", "answer", "gold", "expected"),
    [
        (EXACT, "San Jose", "San Jose", 1),
        (EXACT, "  San Jose\n", "San Jose", 1),
        (EXACT, "san jose", "San Jose", 0),
        (EXACT, "San Jose.", "San Jose", 0),
        (EXACT, "The city is San Jose", "San Jose", 0),
        (EXACT, "San", "San Jose", 0),
        (EXACT, "", "San Jose", 0),
        (EXACT, "Cafe\u0301", "Café", 1),
        (EXACT, "b", ["a", "b"], 1),
        (EXACT | {"ignore": "case"}, "SAN JOSE", "San Jose", 1),
        (EXACT | {"ignore": "form"}, "'San  Jose'.", "San Jose", 1),
        (EXACT | {"ignore": "form"}, "San Jose or Lima", "San Jose", 0),
        ({"type": "contains"}, "It is San Jose!", "San Jose", 1),
        ({"type": "contains"}, "San Joses", "San Jose", 0),
        ({"type": "contains"}, "artist", "art", 0),
        (CHOICE, "I would say Billing.", "Billing", 1),
        (CHOICE, "Billing or Shipping", "Billing", 0),
        (CHOICE, "billing BILLING", "Billing", 1),
        (CHOICE, "Dr No", "Dr No", 1),
        (CHOICE, "Dr No", "No", 0),
        (CHOICE, "nothing", "No", 0),
        ({"type": "pattern", "pattern": r"\d+"}, " 42 ", None, 1),
        ({"type": "pattern", "pattern": r"\d+"}, "42 or so", None, 0),
        ({"type": "json", "keys": ["a"]}, '{"a": 1}', None, 1),
        ({"type": "json", "keys": ["a"]}, 'Here: {"a": 1}', None, 0),
        ({"type": "json", "keys": ["a"]}, "[1]", None, 0),
        ({"type": "json"}, "NaN", None, 0),
        ({"type": "json"}, "[" * 100_000, None, 0),
    ],
)
def test_known_answers(settings, answer, gold, expected):
    assert value(settings, answer, gold) == expected


def test_an_answer_that_was_cut_off_is_not_right():
    assert value(EXACT, "San Jose", finished=False) == 0


def test_a_row_without_gold_has_no_score_and_says_so():
    score = SIGNALS.validate(EXACT).build().score([group("x")])[0][0]
    assert score.value is None
    assert "gold" in score.error


def test_a_bad_pattern_is_refused():
    with pytest.raises(ValueError, match="not a regular expression"):
        SIGNALS.validate({"type": "pattern", "pattern": "("})


@pytest.mark.parametrize(
    ("scores", "message"),
    [([], "0 groups"), ([[Score(1.0)]], "1 scores for 2"), ([[Score(1.0), Score(float("nan"))]], "nan")],
)
def test_a_signal_that_breaks_its_contract(scores, message):
    class Broken:
        def score(self, groups):
            return scores

    with pytest.raises(SignalError, match=message):
        checked_score(Broken(), [group("a", "b")])


class Judge:
    def __init__(self, *comparisons):
        self.comparisons = list(comparisons)

    def compare(self, groups):
        return [self.comparisons for _ in groups]


def test_win_rate_of_comparisons():
    judge = Judge(Comparison(0, 1, 0.9), Comparison(1, 0, 0.3), Comparison(0, 2, 1.0))
    values = [s.value for s in checked_score(as_signal(judge), [group("a", "b", "c", "d")])[0]]
    assert values[:3] == pytest.approx([(0.9 + 0.7 + 1.0) / 3, (0.1 + 0.3) / 2, 0.0])
    assert values[3] is None


def test_bradley_terry_recovers_the_strengths():
    import math

    strengths = [0.8, 0.1, -0.9]
    games = [
        Comparison(i, j, 1 / (1 + math.exp(strengths[j] - strengths[i])))
        for i in range(3)
        for j in range(3)
        if i != j
        for _ in range(20)
    ]
    values = [s.value for s in as_signal(Judge(*games), "bradley_terry").score([group("a", "b", "c")])[0]]
    assert values == pytest.approx(strengths, abs=2e-3)


def test_bradley_terry_stays_finite_when_one_always_wins():
    values = [s.value for s in as_signal(Judge(Comparison(0, 1, 1.0)), "bradley_terry").score([group("a", "b")])[0]]
    assert 1.9 < values[0] < 10
    assert values[0] == pytest.approx(-values[1])
