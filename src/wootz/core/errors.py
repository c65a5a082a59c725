"""One tree of errors. Each fits one screen, names the smallest fix, and carries the process's exit code.

Exit codes: 0 ok; 1 a negative verdict; 2 bad recipe, data or usage; 3 stopped by a guard (checkpoint kept);
4 an extra, a model or hardware is missing; 70 internal error; 130 interrupted (checkpoint kept).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WootzError(Exception):
    """An error made for the person who reads it.

    Args:
        what: One sentence: what is wrong.
        where: ``file:line`` or a key path.
        found: What was there.
        expected: What should have been there.
        fix: The smallest change that mends it, ideally text to paste.

    Example:
        >>> print(WootzError("no column 'chosen'", where="prefs.jsonl", found="question, good, bad"))
        prefs.jsonl: no column 'chosen'
          found: question, good, bad
    """

    exit_code = 70

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: str | None = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.found = found
        self.expected = expected
        self.fix = fix

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        lines += [
            f"  {label}: {text}"
            for label, text in (("found", self.found), ("expected", self.expected), ("fix", self.fix))
            if text
        ]
        return "\n".join(lines)

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), self.what, self.where, self.found, self.expected, self.fix)


def _rebuild(kind: type[WootzError], what, where, found, expected, fix) -> WootzError:
    return kind(what, where=where, found=found, expected=expected, fix=fix)


class UsageError(WootzError, ValueError):
    """A command or a call that cannot mean anything."""

    exit_code = 2


class RecipeError(WootzError, ValueError):
    """A recipe with a wrong key, value or combination."""

    exit_code = 2


class DataError(WootzError, ValueError):
    """Rows that cannot be used as they are."""

    exit_code = 2


class ModelError(WootzError, ValueError):
    """A model folder or spec that cannot be used as it is."""

    exit_code = 2


class SignalError(WootzError, RuntimeError):
    """A signal that broke its contract (wrong length, not a number)."""

    exit_code = 2


class MissingError(WootzError, RuntimeError):
    """An extra, a model or hardware that is not here; the fix says how to get it."""

    exit_code = 4


class GuardStop(WootzError, RuntimeError):
    """A guard stopped the run; the checkpoint is kept."""

    exit_code = 3


class Interrupted(WootzError, RuntimeError):
    """The user or the system asked to stop; the checkpoint is kept."""

    exit_code = 130


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known name closest to ``word``, or None when nothing is close.

    Example:
        >>> nearest("learnign_rate", ["learning_rate", "epochs"])
        'learning_rate'
    """
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
