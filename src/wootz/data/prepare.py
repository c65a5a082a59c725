"""From the ``data`` section of a recipe to groups ready to train on, with all that was found on the way.

    read -> rename -> detect -> canonical rows -> row checks -> split -> overlap -> tokens -> token checks

At each check the rows that ``data.drop`` names leave; rows in error go no further, so that one look at the data finds
as much as can be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wootz.core.errors import DataError
from wootz.core.protocols import Tokenizer
from wootz.core.records import Group
from wootz.data.checks import check_rows, normalised, overlap, prompt_of
from wootz.data.config import DataConfig
from wootz.data.convert import canonical, rename
from wootz.data.detect import Detected, detect
from wootz.data.findings import Finding, allowed, finding
from wootz.data.kinds import KINDS, Row, digest, is_messages
from wootz.data.messages import RowProblem
from wootz.data.read import read
from wootz.data.rekind import as_kind, kinds_to
from wootz.data.show import examples
from wootz.data.token_checks import check_tokens
from wootz.data.tokenise import Outcome, Tokeniser

_SHOWN_ERRORS = 4
_SHOWN_TEXT = 60


@dataclass(frozen=True)
class Prepared:
    """Data ready to train on.

    Attributes:
        kind: One of :data:`wootz.data.KINDS`.
        format: How it was written.
        train: Groups to learn from.
        held_out: Groups kept aside.
        findings: Everything the checks said, errors first.
        counts: Numbers a side: ``train/rows``, ``train/used``, ``train/dropped``, ``train/truncated``, tokens.
        examples: The first groups, token by token.
        source: Where the training rows were read.
        turned: Whether the rows were made from rows of another kind.
    """

    kind: str
    format: str
    train: list[Group]
    held_out: list[Group]
    findings: list[Finding]
    counts: Mapping[str, int]
    examples: list[dict[str, Any]] = field(default_factory=list)
    source: str = ""
    turned: bool = False

    @property
    def errors(self) -> list[Finding]:
        return [found for found in self.findings if found.severity == "error"]

    @property
    def fingerprint(self) -> str:
        """A hash of the rows used, which side they are on, how they are tokenised, and their labels, scores and weights."""
        return digest(
            [
                [[g.id, g.prompt.tokens, [(c.tokens, dict(c.columns)) for c in g.completions]] for g in side]
                for side in (self.train, self.held_out)
            ]
        )

    def summary(self) -> dict[str, Any]:
        """What goes into ``data.json``."""
        return {
            "kind": self.kind,
            "format": self.format,
            "counts": dict(self.counts),
            "fingerprint": self.fingerprint,
            "findings": [found.to_json() for found in self.findings],
            "examples": self.examples,
        }


def prepare(config: DataConfig, tokenizer: Tokenizer, *, max_length: int, kinds: Sequence[str] = ()) -> Prepared:
    """Returns groups to train on, every check passed, dropped or allowed.

    Args:
        config: The ``data`` section.
        tokenizer: The model's.
        max_length: Longest prompt plus completion, in tokens.
        kinds: Dataset kinds that the objective accepts; empty means any.

    Raises:
        DataError: A file that cannot be read or fits no accepted kind; or all failed checks at once, with their fixes.
    """
    prepared = examine(config, tokenizer, max_length=max_length, kinds=kinds)
    raise_errors(prepared.findings)
    return prepared


def raise_errors(findings: Iterable[Finding]) -> None:
    """Raises one DataError for all findings that are errors; does nothing when there is none."""
    errors = [found for found in findings if found.severity == "error"]
    if not errors:
        return
    if len(errors) == 1:
        raise DataError(f"[{errors[0].check}] {errors[0].message}", where=errors[0].source, fix=errors[0].fix or None)
    lines = []
    for error in errors[:_SHOWN_ERRORS]:
        lines.append(f"  {error.source}: [{error.check}] {error.message}")
        lines += [f"    fix: {error.fix}"] if error.fix else []
    if len(errors) > _SHOWN_ERRORS:
        lines.append(f"  and {len(errors) - _SHOWN_ERRORS} more: " + ", ".join(e.check for e in errors[_SHOWN_ERRORS:]))
    raise DataError("\n".join([f"{len(errors)} data checks failed", *lines]))


def examine(config: DataConfig, tokenizer: Tokenizer, *, max_length: int, kinds: Sequence[str] = ()) -> Prepared:
    """Returns what :func:`prepare` would, but with failed checks among the findings instead of raised.

    Raises:
        DataError: A file that cannot be read, or that fits no accepted kind.
    """
    train = _Side(config, "train", config.train)
    held = _Side(config, "held_out", config.held_out or f"{config.train} (held out)")
    detected = train.load(kinds)
    if config.held_out is not None:
        held.load((detected.kind,) if config.kind is None else kinds)
    elif config.held_out_fraction is not None:
        train.rows, held.rows = split(train.kind, train.rows, config.held_out_fraction)
        held.total = len(held.rows)
        train.total -= held.total
    if held.rows:
        found = overlap(train.kind, train.rows, held.rows)
        train.settle([found] if found else [], stay=True)
    tokeniser = Tokeniser(tokenizer, train.kind, max_length=max_length, allow=config.allow)
    for side in (train, held):
        side.tokenise(tokeniser)
    findings = train.findings + (held.findings if config.held_out or held.total else [])
    ranks = ("error", "warning", "info")
    return Prepared(
        train.kind,
        detected.format,
        train.groups,
        held.groups,
        sorted(findings, key=lambda found: ranks.index(found.severity)),
        {**train.counts(), **held.counts()},
        examples(train.groups, tokenizer),
        train.source,
        train.kind != detected.kind,
    )


class _Side:
    """The training or the held-out rows on their way through the checks."""

    def __init__(self, config: DataConfig, name: str, source: str) -> None:
        self.config = config
        self.name = name
        self.source = source
        self.kind = ""
        self.total = 0
        self.rows: list[Row] = []
        self.outcomes: list[Outcome] = []
        self.findings: list[Finding] = []
        self.dropped: Counter[str] = Counter()

    def load(self, kinds: Sequence[str]) -> Detected:
        config = self.config
        table = rename(read(self.source, max_rows=config.max_rows), config.columns)
        detected = detect(table, kinds=self._readable(kinds), format=config.format)
        self.kind = config.kind or detected.kind
        self.total = len(table.rows)
        self.rows, problems = canonical(table, detected, chat=config.chat)
        if config.chat and self.rows and self._chat_does_nothing(table.rows, detected):
            raise DataError("the rows are conversations already", where=self.source, fix="remove data.chat")
        detail = f"{detected}. {self._first()}" if self.rows else str(detected)
        self.settle([finding("format", "info", detail=detail)])
        self.settle(_problem_findings(problems, self.total), extra=[row for row, _ in problems])
        if self.kind != detected.kind:
            self.rows = self._turned(detected.kind)
            self.total = len(self.rows)
        self.settle(check_rows(self.kind, self.rows))
        return detected

    def _readable(self, kinds: Sequence[str]) -> Sequence[str]:
        """The kinds that may stand in the file, given those that the objective accepts."""
        kind = self.config.kind
        if kind is None:
            return kinds
        if kinds and kind not in kinds:
            raise DataError(
                f"the objective trains on {' or '.join(kinds)} data, and data.kind is {kind}",
                fix=f"data.kind: {kinds[0]}, or remove it",
            )
        return (kind, *kinds_to(kind))

    def _turned(self, kind: str) -> list[Row]:
        """The rows as the wanted kind; rows that came from one keep its place."""
        names = KINDS[self.kind].columns
        turned = []
        for row in self.rows:
            for new in as_kind([(row.fields, row.extra)], kind, self.kind, pairs=self.config.pairs):
                fields = {name: value for name, value in new.items() if name in names or name == "tools"}
                extra = {name: value for name, value in new.items() if name not in fields}
                turned.append(Row(row.index, row.place, fields, extra))
        return turned

    def _chat_does_nothing(self, raw: Sequence[Mapping[str, Any]], detected: Detected) -> bool:
        plain = ("prompt", "completion", "chosen", "rejected", "completions")
        return (
            detected.format != "trl"
            or detected.kind in ("text", "messages")
            or not any(
                isinstance(row.get(name), str) or (isinstance(row.get(name), list) and not is_messages(row.get(name)))
                for row in raw
                for name in plain
            )
        )

    def _first(self) -> str:
        row = self.rows[0]
        return "First row: " + "; ".join(f"{name} {_short(value)}" for name, value in row.fields.items())

    def settle(self, found: Iterable[Finding], *, extra: Sequence[Row] = (), stay: bool = False) -> None:
        """Takes findings in: dropped rows leave, allowed errors become warnings, rows in error go no further.

        Args:
            extra: Rows that findings name beside ``self.rows``.
            stay: Keep rows in error for the later checks.
        """
        gone: set[int] = set()
        for one in found:
            if one.check in self.config.drop and one.rows:
                fresh = set(one.rows) - gone
                self.dropped[one.check] += len(fresh)
                gone |= fresh
                continue
            one = allowed(one, self.config.allow)
            if one.severity == "error" and not stay:
                gone |= set(one.rows)
            self.findings.append(replace(one, source=self.source))
        known = {row.index for row in (*self.rows, *extra)}
        assert gone <= known, "a finding names a row that is not there"
        self.rows = [row for row in self.rows if row.index not in gone]

    def tokenise(self, tokeniser: Tokeniser) -> None:
        if not self.total:
            return
        self.outcomes = [tokeniser(row) for row in self.rows]
        chat, limit = tokeniser.chat, tokeniser.max_length
        self.settle(check_tokens(self.outcomes, chat, kind=tokeniser.kind, max_length=limit))
        left = {row.index for row in self.rows}
        self.outcomes = [outcome for outcome in self.outcomes if outcome.row.index in left]
        if self.dropped:
            named = ", ".join(f"{name} {count:,}" for name, count in self.dropped.items())
            detail = f"{sum(self.dropped.values()):,} of {self.total:,} rows left out by data.drop: {named}"
            self.settle([finding("dropped", "info", detail=detail)])
        if not self.outcomes and not any(found.severity == "error" for found in self.findings):
            raise DataError("no rows are left", where=self.source, found=f"{self.total:,} rows, all dropped")

    @property
    def groups(self) -> list[Group]:
        return [outcome.group for outcome in self.outcomes if outcome.group is not None]

    def counts(self) -> dict[str, int]:
        groups = self.groups
        counts = {
            "rows": self.total,
            "used": len(groups),
            "dropped": sum(self.dropped.values()),
            "truncated": sum("truncated" in outcome.flags for outcome in self.outcomes),
            "prompt_tokens": sum(len(group.prompt.tokens) for group in groups),
            "trained_tokens": sum(int(c.loss_mask.sum()) for group in groups for c in group.completions),
        }
        return {f"{self.name}/{name}": value for name, value in counts.items()}


def _problem_findings(problems: Sequence[tuple[Row, RowProblem]], total: int) -> list[Finding]:
    found = []
    for check in dict.fromkeys(problem.check for _, problem in problems):
        named = [(row, problem) for row, problem in problems if problem.check == check]
        detail = named[0][1].message
        found.append(finding(check, "error", [row for row, _ in named], total=total, detail=detail))
    return found


def _short(value: Any) -> str:
    if is_messages(value):
        last = value[-1]
        text = f"{last['role']}: {last['content']}"
        more = f"{len(value)} messages, last " if len(value) > 1 else ""
    else:
        text, more = str(value), ""
    text = " ".join(text.split())
    return f"{more}{text[:_SHOWN_TEXT] + '...' if len(text) > _SHOWN_TEXT else text!r}"


def split(kind: str, rows: Sequence[Row], fraction: float) -> tuple[list[Row], list[Row]]:
    """Returns training and held-out rows. The side is told by a hash of the prompt (case and blanks levelled), so rows
    with one prompt are never parted, and adding rows moves none.

    Raises:
        DataError: One side would be empty.
    """
    sides: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        share = int(digest(normalised(prompt_of(kind, row)))[:13], 16) / 16**13
        sides[share < fraction].append(row)
    if rows and not all(sides):
        side = "training" if not sides[0] else "held-out"
        raise DataError(
            f"held_out_fraction {fraction:g} leaves no {side} rows",
            found=f"{len(rows):,} rows",
            fix="another fraction, or data.held_out: FILE",
        )
    return sides
