"""Rows that are nearly the same: word shingles, min-wise hashing, and a count of what two rows really share.

Shingles and their Jaccard similarity: Broder 1997, On the resemblance and containment of documents. Candidates are rows
that agree in one of 20 bands of 5 min-hashes: of pairs with similarity 0.8 all but 0.04% are found, of pairs with 0.3 about 5%.
Candidates are then compared exactly, so that nothing is reported which is not there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt64

ALIKE = 0.8
"""Jaccard similarity from which two texts count as nearly the same."""
_WORDS = 3
_BANDS, _ROWS = 20, 5
_BUCKET = 50
_COMPARED = 20

Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class Near:
    """Two rows that are nearly the same.

    Attributes:
        earlier: Position of the earlier row.
        later: Position of the later row.
        swapped: The answers of one are those of the other in the opposite order.
    """

    earlier: int
    later: int
    swapped: bool = False


def near_rows(rows: Sequence[Sequence[Words]], *, alike: float = ALIKE) -> list[Near]:
    """Returns, for each row that nearly repeats an earlier one, the row that it repeats.

    Rows are texts as words: the prompt first, then the answers. Every text must be alike, none is outvoted by a longer
    one. Of a crowd of similar rows each is compared with the 20 that share most bands, among the first 50 of each band.

    Example:
        >>> text = "a cat sat on the mat and slept till the sun was up again".split()
        >>> near_rows([[["who"], text, ["no"]], [["who"], [*text, "."], ["no"]], [["who"], ["no"], text]])
        [Near(earlier=0, later=1, swapped=False), Near(earlier=0, later=2, swapped=True)]
    """
    vocabulary: dict[str, int] = {}
    texts = [[_shingles(words, vocabulary) for words in row] for row in rows]
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    found = []
    for later, row in enumerate(texts):
        keys = list(enumerate(_bands(row)))
        shared = Counter(earlier for key in keys for earlier in buckets[key])
        for earlier, _ in sorted(shared.most_common(_COMPARED)):
            near = _compare(texts[earlier], row, alike)
            if near is not None:
                found.append(Near(earlier, later, near))
                break
        for key in keys:
            if len(buckets[key]) < _BUCKET:
                buckets[key].append(later)
    return found


def _compare(a: list[frozenset[int]], b: list[frozenset[int]], alike: float) -> bool | None:
    """False: alike; True: alike with the answers in the opposite order; None: not alike."""
    if len(a) != len(b) or jaccard(a[0], b[0]) < alike:
        return None
    for swapped, answers in ((False, b[1:]), (True, b[:0:-1])):
        if all(jaccard(x, y) >= alike for x, y in zip(a[1:], answers, strict=True)):
            return swapped
    return None


def jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    """Returns the number of shared shingles over the number of all; 1 for two empty texts.

    Example:
        >>> jaccard(frozenset({1, 2}), frozenset({2, 3, 4}))
        0.25
    """
    shared = len(a & b)
    union = len(a) + len(b) - shared
    return shared / union if union else 1.0


def _shingles(words: Words, vocabulary: dict[str, int]) -> frozenset[int]:
    """Hashes of all runs of three words; a shorter text is one run."""
    ids = np.array([vocabulary.setdefault(word, len(vocabulary) + 1) for word in words], dtype=np.uint64)
    if not len(ids):
        return frozenset()
    length = min(_WORDS, len(ids))
    runs = len(ids) - length + 1
    hashed = np.zeros(runs, dtype=np.uint64)
    for start in range(length):
        hashed = _mixed(hashed + ids[start : start + runs])
    return frozenset(hashed.tolist())


def _bands(row: Sequence[frozenset[int]]) -> list[bytes]:
    """The bands of min-hashes of a row: its prompt's shingles, and those of all its answers together."""
    answers = frozenset().union(*row[1:])
    everything = np.array([*row[0], *(value ^ 1 for value in answers)], dtype=np.uint64)
    if not len(everything):
        return [b""] * _BANDS
    hashed = _mixed(everything[None, :] ^ _SEEDS[:, None]).min(1)
    return [hashed[start : start + _ROWS].tobytes() for start in range(0, len(hashed), _ROWS)]


def _mixed(values: UInt64[np.ndarray, "*n"]) -> UInt64[np.ndarray, "*n"]:
    """A bijection of 64-bit numbers that scatters them: the finaliser of SplitMix64 (Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


_SEEDS = _mixed(np.arange(_BANDS * _ROWS, dtype=np.uint64) * np.uint64(0x2545F4914F6CDD1D))
