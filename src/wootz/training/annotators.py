"""Annotators: what a model must say about a batch before the loss can be computed."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from wootz.core.batch import GroupBatch
from wootz.core.errors import DataError
from wootz.core.protocols import Role, Roles
from wootz.core.records import Group
from wootz.core.seeds import derive_seed


class LogpCache:
    """Log-probs of groups under one model, kept in memory and, given a folder, on disk.

    A key hashes the token ids and masks of a group; the file is named after the model's fingerprint, so values can
    never be read for other weights. Safe for several processes (SQLite).
    """

    def __init__(self, fingerprint: str, folder: Path | None = None) -> None:
        self._memory: dict[bytes, list[np.ndarray]] = {}
        self._db: sqlite3.Connection | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(folder / f"{fingerprint}.sqlite", timeout=60)
            self._db.execute("create table if not exists logp (key blob primary key, dtype text, data blob)")
            self._db.commit()

    @staticmethod
    def key(group: Group) -> bytes:
        digest = hashlib.blake2b(np.asarray(group.prompt.tokens, dtype=np.int64).tobytes(), digest_size=16)
        for completion in group.completions:
            digest.update(b"|" + np.asarray(completion.tokens, dtype=np.int64).tobytes())
            digest.update(completion.loss_mask.tobytes())
        return digest.digest()

    def get(self, group: Group) -> list[np.ndarray] | None:
        """The log-probs of each completion's tokens, or None."""
        key = self.key(group)
        if key not in self._memory and self._db is not None:
            row = self._db.execute("select dtype, data from logp where key = ?", (key,)).fetchone()
            if row is not None:
                flat = np.frombuffer(row[1], dtype=row[0])
                ends = np.cumsum([len(c.tokens) for c in group.completions])[:-1]
                self._memory[key] = np.split(flat, ends)
        return self._memory.get(key)

    def put(self, groups: tuple[Group, ...], name: str) -> None:
        """Remembers the per-token array ``name`` of groups that carry it."""
        for group in groups:
            self._memory[self.key(group)] = [np.asarray(c.per_token[name]) for c in group.completions]
        if self._db is not None:
            rows = []
            for group in groups:
                flat = np.concatenate([np.asarray(c.per_token[name]) for c in group.completions])
                rows.append((self.key(group), flat.dtype.str, flat.tobytes()))
            self._db.executemany("insert or replace into logp values (?, ?, ?)", rows)
            self._db.commit()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


class RoleLogp:
    """Adds the log-probs that the model in a role gives to the trained tokens, under the name ``provides[0]``.

    Args:
        role: Name of the role that speaks (``reference``, ``policy``).
        name: Per-token array to add (``ref_logp``, ``old_logp``).
        max_tokens: Tokens computed at once.
        cache: Remembers what was said; only for a role that never changes.
    """

    def __init__(self, role: str, name: str, *, max_tokens: int, cache: LogpCache | None = None) -> None:
        self.provides = (name,)
        self._role = role
        self._name = name
        self._max_tokens = max_tokens
        self._cache = cache

    def annotate(self, batch: GroupBatch, roles: Roles) -> GroupBatch:
        known: dict[str, Group] = {}
        missing: list[Group] = []
        for group in batch.groups:
            arrays = self._cache.get(group) if self._cache else None
            if arrays is None:
                missing.append(group)
            else:
                pairs = zip(group.completions, arrays, strict=True)
                completions = tuple(c.with_per_token(**{self._name: a}) for c, a in pairs)
                known[group.id] = Group(group.id, group.prompt, completions, group.columns)
        if missing:
            asked = replace(batch, groups=tuple(missing))
            said = annotate_in_parts(roles[self._role], asked, self._name, max_tokens=self._max_tokens)
            if self._cache:
                self._cache.put(said.groups, self._name)
            known |= {group.id: group for group in said.groups}
        return replace(batch, groups=tuple(known[group.id] for group in batch.groups))


class MismatchedRatio:
    """Adds the column ``mismatched_ratio``: log policy - log reference, summed, of *another* row's answer to this prompt.

    Its mean stands for KL(policy, reference) in KTO, on answers that were not written for the prompt. A row's partner is
    the next one, in an order drawn once, with another prompt and another answer; so it is never the row's own, depends on
    no batch, is good and bad as often as the file's answers are, and the reference's half can be cached.

    Args:
        rows: Sets of rows; partners come from the same set.
        reference: Asks the reference, under ``ref_logp``, and remembers.

    Raises:
        DataError: A set of one prompt or one answer.
    """

    provides: tuple[str, ...] = ("mismatched_ratio",)

    def __init__(self, *rows: Sequence[Group], reference: RoleLogp, max_tokens: int) -> None:
        self._pairs = {group.id: pair for some in rows for group, pair in zip(some, mismatched(some), strict=True)}
        self._reference = reference
        self._max_tokens = max_tokens

    @property
    def groups(self) -> tuple[Group, ...]:
        """Every prompt with its partner's answer."""
        return tuple(self._pairs.values())

    def annotate(self, batch: GroupBatch, roles: Roles) -> GroupBatch:
        pairs = replace(batch, groups=tuple(self._pairs[group.id] for group in batch.groups))
        # Asked together with the rows' own answers, whose prompts they share; those are then in the cache.
        asked = self._reference.annotate(replace(batch, groups=batch.groups + pairs.groups), roles)
        pairs = replace(batch, groups=asked.groups[len(batch.groups) :])
        pairs = annotate_in_parts(roles["policy"], pairs, "old_logp", max_tokens=self._max_tokens)
        ratio = pairs.sum_by_completion(pairs.per_token("old_logp") - pairs.per_token("ref_logp"))
        return batch.with_columns({"mismatched_ratio": ratio.tolist()})


def mismatched(rows: Sequence[Group]) -> list[Group]:
    """Returns each row's prompt with the answer of a row that has another prompt and another answer."""
    order = np.random.default_rng(derive_seed(0, "mismatched")).permutation(len(rows)).tolist()
    place = np.argsort(order)
    out = []
    for index, group in enumerate(rows):
        others = (rows[order[(place[index] + step) % len(rows)]] for step in range(1, len(rows)))
        answer = group.completions[0].tokens
        partner = next(
            (o for o in others if o.prompt.tokens != group.prompt.tokens and o.completions[0].tokens != answer), None
        )
        if partner is None:
            raise DataError(
                "KTO compares each answer with answers to other prompts, and there are none",
                found=f"{len(rows)} rows, all with one prompt or one answer",
                fix="rows with different prompts, or another objective (bco)",
            )
        out.append(Group(f"{group.id}~{partner.id}", group.prompt, partner.completions))
    return out


@torch.no_grad()
def annotate_in_parts(role: Role, batch: GroupBatch, name: str, *, max_tokens: int) -> GroupBatch:
    """Returns the batch with the role's log-probs as the per-token array ``name``.

    Computed without gradient, ``max_tokens`` at a time; groups keep their order.
    """
    said: dict[str, Group] = {}
    for part in batch.split("group", max_tokens):
        annotated = part.with_per_token(**{name: role.forward(part, ("logp",))["logp"]})
        said |= {group.id: group for group in annotated.groups}
    return replace(batch, groups=tuple(said[group.id] for group in batch.groups))


class DeferredRole:
    """A frozen role that is loaded only when something asks it: a cached reference often never is."""

    def __init__(self, load: Callable[[], Role]) -> None:
        self._load = load
        self._role: Role | None = None

    def forward(self, batch, outputs) -> dict[str, torch.Tensor]:
        if self._role is None:
            self._role = self._load()
        return self._role.forward(batch, outputs)

    def masters(self) -> dict[str, torch.Tensor]:
        return {}

    def refresh(self) -> None:
        """A frozen role has nothing to refresh."""
