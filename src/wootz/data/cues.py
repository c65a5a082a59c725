"""Trivial cues of an answer: what could be judged without reading it.

Each cue is one number an answer (``language`` has two). Counts are rates, ``log(1 + n per 100 words)``, so that a
longer answer does not have more of everything. Words are found by pattern, with no language model; the word lists are
English and short.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

CUES: Mapping[str, str] = {
    "length": "trained tokens",
    "format": "headings, code, tables, quotes, links, italics",
    "lists": "list items",
    "bold": "bold passages",
    "hedging": "hedges: perhaps, might, seems",
    "confidence": "boosters: clearly, always, certainly",
    "first person": "I, my, we",
    "language": "letters outside ASCII, and how far from the prompt's share",
    "refusal": "the answer declines",
    "copied prompt": "four-word runs taken from the prompt",
}
"""The cues and what each counts, in the order in which they are told."""

_NO_BLANKS = "\u3040-\u30ff\u3400-\u9fff"  # kana and Han: written without blanks, so each character is a word
_WORD = re.compile(rf"[{_NO_BLANKS}]|[^\W_{_NO_BLANKS}]+(?:'[^\W_]+)*")
_BOLD = re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__|<b>|<strong>")
_ITEM = re.compile(r"^[ \t]*(?:[-*+\u2022]|\d{1,3}[.)])[ \t]+\S", re.MULTILINE)
_FORMAT = re.compile(
    r"^#{1,6} |^ {0,3}(?:```|~~~)|^\|.*\||^> |`[^`\n]+`|\[[^\]\n]+\]\([^)\n]+\)|(?<![\w*])\*[^\s*][^*\n]*\*(?!\*)",
    re.MULTILINE,
)
_LETTER = re.compile(r"[^\W\d_]")
_RUN = 4
Detector = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, ready to be looked at.

    Attributes:
        prompt: Words of its prompt, in order.
        words: Its own.
        tokens: Trained tokens.
        prompt_text: The prompt, without system turn and template.
    """

    prompt: tuple[str, ...]
    words: tuple[str, ...]
    tokens: int
    text: str
    prompt_text: str


def words_of(text: str) -> tuple[str, ...]:
    """Returns the words of a text in order, case levelled; a character of a script without blanks is a word.

    Example:
        >>> words_of("I\u2019m SURE: 42 cats."), words_of("猫が")
        (("i'm", 'sure', '42', 'cats'), ('猫', 'が'))
    """
    return tuple(_WORD.findall(text.replace("\u2019", "'").casefold()))


# A selection of the hedges and boosters in Hyland, Metadiscourse (2005), those with few other meanings.
HEDGES = frozenset(
    words_of(
        "maybe perhaps possibly probably presumably might may could seems seem seemed appears apparently likely "
        "unlikely somewhat generally usually typically often sometimes approximately roughly unsure uncertain suggests"
    )
)
BOOSTERS = frozenset(
    words_of(
        "definitely certainly clearly obviously absolutely undoubtedly surely always never indeed truly evidently "
        "undeniably incontestably guaranteed proven completely totally exactly"
    )
)
FIRST_PERSON = frozenset(
    words_of("i i'm i've i'd i'll me my mine myself we we're we've we'd we'll us our ours ourselves")
)


def cue_values(
    answers: Sequence[Answer], is_refusal: Detector | None = None
) -> dict[str, Float[np.ndarray, "answers parts"]]:
    """Returns the cues of answers, in the order of :data:`CUES`; ``refusal`` only with a detector."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in CUES if name != "refusal" or is_refusal}
    for answer in answers:
        for name, values in _cues_of(answer, is_refusal).items():
            found[name].append(values)
    return {name: np.array(values, dtype=float).reshape(len(answers), -1) for name, values in found.items()}


def _cues_of(answer: Answer, is_refusal: Detector | None) -> dict[str, tuple[float, ...]]:
    words, text = answer.words, answer.text
    share, asked = _outside_ascii(text), _outside_ascii(answer.prompt_text)

    def rate(count: int) -> tuple[float]:
        return (math.log1p(100 * count / max(len(words), 1)),)

    cues = {
        "length": (math.log1p(answer.tokens),),
        "format": rate(len(_FORMAT.findall(text))),
        "lists": rate(len(_ITEM.findall(text))),
        "bold": rate(len(_BOLD.findall(text))),
        "hedging": rate(sum(word in HEDGES for word in words)),
        "confidence": rate(sum(word in BOOSTERS for word in words)),
        "first person": rate(sum(word in FIRST_PERSON for word in words)),
        "language": (share, abs(share - asked)),
        "copied prompt": (copied_share(answer.prompt, words),),
    }
    return cues | ({"refusal": (float(is_refusal(text)),)} if is_refusal else {})


def _outside_ascii(text: str) -> float:
    """The share of letters that are not ASCII: 0 in English, about 0.03 in French, 1 in Greek."""
    if text.isascii():
        return 0.0
    letters = _LETTER.findall(text)
    return sum(letter > "\x7f" for letter in letters) / max(len(letters), 1)


def copied_share(prompt: Sequence[str], words: Sequence[str]) -> float:
    """Returns the share of an answer's four-word runs that the prompt has too; a shorter answer is one run.

    Example:
        >>> copied_share(words_of("is the old cat here"), words_of("the old cat here sleeps"))
        0.5
    """
    length = min(_RUN, len(words))
    if not length:
        return 0.0
    given = set(_runs(prompt, length))
    runs = _runs(words, length)
    return sum(run in given for run in runs) / len(runs)


def _runs(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(length)), strict=False))
