"""Verifiers of plain text: is the answer the gold one, does it have the wanted form?

The gold answer is the group's column ``gold`` (another with ``column``): a text, or a list of texts of which any will
do. A row without it has no score and says so.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator

from wootz.core.config import Config
from wootz.core.records import Completion, Group, Score

Check = Callable[[str, str], bool]


@dataclass(frozen=True)
class GoldCheck:
    """Scores 1 where ``check(answer, gold)`` holds for any gold answer, else 0."""

    check: Check
    column: str
    must_finish: bool = False

    def score(self, groups: list[Group]) -> list[list[Score]]:
        return [[self._one(group, completion) for completion in group.completions] for group in groups]

    def _one(self, group: Group, completion: Completion) -> Score:
        gold = group.columns.get(self.column)
        if gold is None:
            return Score(None, error=f"no column {self.column!r}")
        golds = [gold] if isinstance(gold, str) or not isinstance(gold, (list, tuple)) else list(gold)
        if self.must_finish and not completion.finished:
            return Score(0.0, evidence="cut off before its end")
        right = any(self.check(completion.text, str(one)) for one in golds)
        return Score(float(right))


@dataclass(frozen=True)
class FormCheck:
    """Scores 1 where the answer has the form, else 0, whatever it says."""

    check: Callable[[str], bool]

    def score(self, groups: list[Group]) -> list[list[Score]]:
        return [[Score(float(self.check(completion.text))) for completion in group.completions] for group in groups]


def normalise(text: str) -> str:
    """Returns the text with compatibility forms, case, outer punctuation and runs of blanks levelled.

    Example:
        >>> normalise("  The  Café. ")
        'the café'
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"\s+", " ", text).strip(" \t\n.,;:!?\"'`*()[]")


class _GoldConfig(Config):
    column: str = "gold"
    """The group's column that holds the right answer, or a list of them."""


class ExactConfig(_GoldConfig):
    """The whole answer is the gold one, with nothing around it."""

    type: Literal["exact"] = "exact"
    ignore: Literal["nothing", "case", "form"] = "nothing"
    """What may differ: nothing but outer blanks; letter case; or case, outer punctuation and blanks (form)."""

    def build(self) -> GoldCheck:
        level: dict[str, Callable[[str], str]] = {
            "nothing": lambda text: unicodedata.normalize("NFC", text).strip(),
            "case": lambda text: unicodedata.normalize("NFC", text).strip().casefold(),
            "form": normalise,
        }
        same = level[self.ignore]
        return GoldCheck(lambda answer, gold: same(answer) == same(gold), self.column, must_finish=True)


class ContainsConfig(_GoldConfig):
    """The gold answer occurs in the answer as whole words. Easy to please: a list of guesses passes."""

    type: Literal["contains"] = "contains"

    def build(self) -> GoldCheck:
        def contains(answer: str, gold: str) -> bool:
            pattern = rf"(?<!\w){re.escape(normalise(gold))}(?!\w)"
            return re.search(pattern, re.sub(r"\s+", " ", unicodedata.normalize("NFKC", answer).casefold())) is not None

        return GoldCheck(contains, self.column)


class ChoiceConfig(_GoldConfig):
    """Exactly one of the options is named in the answer, as whole words, and it is the gold one."""

    type: Literal["choice"] = "choice"
    options: tuple[str, ...] = Field(min_length=2)
    """What can be chosen."""

    def build(self) -> GoldCheck:
        # Longest first, so that "Dr No" is not also counted as "No".
        ordered = sorted({normalise(option) for option in self.options}, key=len, reverse=True)
        pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, ordered))})(?!\w)")

        def chosen(answer: str, gold: str) -> bool:
            text = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", answer).casefold())
            return set(pattern.findall(text)) == {normalise(gold)}

        return GoldCheck(chosen, self.column)


class PatternConfig(Config):
    """The whole answer matches a regular expression."""

    type: Literal["pattern"] = "pattern"
    pattern: str
    """Python regular expression; outer blanks of the answer are dropped first."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    def build(self) -> FormCheck:
        pattern = re.compile(self.pattern, re.DOTALL)
        return FormCheck(lambda answer: pattern.fullmatch(answer.strip()) is not None)


class JsonConfig(Config):
    """The whole answer is one JSON object (or value) with the wanted keys, and nothing around it."""

    type: Literal["json"] = "json"
    keys: tuple[str, ...] = ()
    """Keys that the object must have."""

    def build(self) -> FormCheck:
        def well_formed(answer: str) -> bool:
            try:
                value: Any = json.loads(answer.strip(), parse_constant=_no_constant)
            except (ValueError, RecursionError):
                return False
            return not self.keys or (isinstance(value, dict) and set(self.keys) <= set(value))

        return FormCheck(well_formed)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
