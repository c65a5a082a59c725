"""Checks that need tokens: what truncation takes, whether the end is learned, what length gives away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wootz.core.protocols import Tokenizer
from wootz.core.records import Group
from wootz.data.findings import Finding, Severity, finding
from wootz.data.kinds import Row
from wootz.data.template import ChatFormat
from wootz.data.tokenise import Outcome

_FLAGGED: dict[str, Severity] = {
    "template_error": "error",
    "template_prefix": "error",
    "bos_doubled": "error",
    "nothing_trained": "error",
    "prompt_too_long": "error",
    "truncated": "warning",
    "boundary_merge": "warning",
    "row_type": "error",
}
_ENOUGH_PAIRS = 20
_TELLING = 0.7
_MANY_UNKNOWN = 0.05


def check_tokens(outcomes: Sequence[Outcome], chat: ChatFormat, *, kind: str, max_length: int) -> list[Finding]:
    """Returns every finding about tokenised rows."""
    found = [_flag(name, severity, outcomes, max_length) for name, severity in _FLAGGED.items()]
    groups = [outcome.group for outcome in outcomes if outcome.group is not None]
    rows = [outcome.row for outcome in outcomes]
    if kind != "prompt" and groups:
        found += [eos_learned(groups, chat.tokenizer), length_preference(kind, groups)]
    if any(row.conversational for row in rows):
        found.append(stop_token(chat))
    elif kind not in ("text",) and chat.tokenizer.chat_template:
        found.append(finding("plain_strings", "warning"))
    found += [unknown_tokens(outcomes, chat.unknown), special_in_text(rows, chat), lengths(outcomes, max_length)]
    return [one for one in found if one is not None]


def _flag(name: str, severity: Severity, outcomes: Sequence[Outcome], max_length: int) -> Finding | None:
    flagged = [outcome for outcome in outcomes if name in outcome.flags]
    if not flagged:
        return None
    detail, fix = flagged[0].flags[name], None
    if name in ("prompt_too_long", "truncated"):
        p99, top = np.percentile([outcome.length for outcome in outcomes], [99, 100])
        detail = f"{max_length:,} tokens"
        fix = f"train.max_length (99% of rows fit {p99:,.0f} tokens, all fit {top:,.0f}), or data.drop: [{name}]"
        if name == "prompt_too_long":
            fix += f", or data.allow: [{name}] to cut prompts from the left"
    return finding(name, severity, [outcome.row for outcome in flagged], total=len(outcomes), detail=detail, fix=fix)


def eos_learned(groups: Sequence[Group], tokenizer: Tokenizer) -> Finding | None:
    """An error when no answer of any group ends with a learned end-of-turn token.

    Padding plays no part: which tokens are learned is told by position, so EOS is learned also where it pads.
    """
    if any(completion.finished for group in groups for completion in group.completions):
        return None
    if tokenizer.eos_token_id is None:
        return finding(
            "eos_never_learned",
            "error",
            detail="The tokenizer has no EOS token, and the template writes none",
            fix="set eos_token in tokenizer_config.json, or data.allow: [eos_never_learned]",
        )
    return finding(
        "eos_never_learned", "error", detail="Every answer is cut off before its end", fix="raise train.max_length"
    )


def stop_token(chat: ChatFormat) -> Finding | None:
    """Says how turns end where that is not simply the tokenizer's EOS."""
    eos = chat.tokenizer.eos_token_id
    if chat.end_of_turn is None and eos is not None:
        shown = chat.tokenizer.decode([eos])
        detail = f"the chat template writes no end-of-turn token; each last answer is closed with EOS {shown!r}"
        return finding("stop_token", "warning", detail=detail)
    if chat.end_of_turn not in (None, eos):
        shown = chat.tokenizer.decode([chat.end_of_turn])
        other = "it has none" if eos is None else repr(chat.tokenizer.decode([eos]))
        detail = f"turns end with {shown!r}, the tokenizer's EOS is {other}: generation must stop at {shown!r}"
        return finding("stop_token", "info", detail=detail)
    return None


def unknown_tokens(outcomes: Sequence[Outcome], unknown: int | None) -> Finding | None:
    """Rows with unknown tokens; an error when they are so many that the tokenizer cannot be the data's."""
    if unknown is None:
        return None
    flagged, count, total = [], 0, 0
    for outcome in outcomes:
        if outcome.group is None:
            continue
        ids = [*outcome.group.prompt.tokens, *(t for c in outcome.group.completions for t in c.tokens)]
        hits = ids.count(unknown)
        count, total = count + hits, total + len(ids)
        if hits:
            flagged.append(outcome.row)
    if not flagged:
        return None
    severity: Severity = "error" if count > _MANY_UNKNOWN * total else "warning"
    detail = f"{count:,} of {total:,} tokens"
    return finding("unknown_tokens", severity, flagged, total=len(outcomes), detail=detail)


def special_in_text(rows: Sequence[Row], chat: ChatFormat) -> Finding | None:
    """Texts that spell out BOS, EOS or the end-of-turn token, which would open or close a turn in their middle."""
    ids = {chat.tokenizer.bos_token_id, chat.tokenizer.eos_token_id}
    if any(row.conversational for row in rows):
        ids.add(chat.end_of_turn)
    marks = sorted(chat.tokenizer.decode([token]) for token in ids if token is not None)
    flagged = [(row, mark) for row in rows if (mark := next((m for m in marks if _holds(row, m)), None))]
    if not flagged:
        return None
    return finding(
        "special_in_text", "warning", [row for row, _ in flagged], total=len(rows), detail=repr(flagged[0][1])
    )


def _holds(row: Row, mark: str) -> bool:
    """Whether a message holds the mark, or a plain text holds it elsewhere than at its very ends."""
    for text, plain in _texts(row.fields.values()):
        inner = text.strip().removeprefix(mark).removesuffix(mark) if plain else text
        if mark in inner:
            return True
    return False


def _texts(values: Iterable) -> Iterable[tuple[str, bool]]:
    for value in values:
        if isinstance(value, str):
            yield value, True
        elif isinstance(value, dict):
            if isinstance(value.get("content"), str):
                yield value["content"], False
        elif isinstance(value, list):
            yield from _texts(value)


def lengths(outcomes: Sequence[Outcome], max_length: int) -> Finding | None:
    """Percentiles of prompt plus longest answer, in tokens, before any cut."""
    counts = [outcome.length for outcome in outcomes if outcome.length]
    if not counts:
        return None
    p50, p95, p99, top = np.percentile(counts, [50, 95, 99, 100])
    detail = (
        f"tokens a row: median {p50:,.0f}, 95% {p95:,.0f}, 99% {p99:,.0f}, most {top:,.0f} (max_length {max_length:,})"
    )
    return finding("lengths", "info", detail=detail)


def length_preference(kind: str, groups: Sequence[Group]) -> Finding | None:
    """A warning when the longer (or shorter) answer is nearly always the better one."""
    auc, pairs = length_auc(kind, groups)
    if auc is None or pairs < _ENOUGH_PAIRS or 1 - _TELLING < auc < _TELLING:
        return None
    word, share = ("longer", auc) if auc > 0.5 else ("shorter", 1 - auc)
    return finding(
        "length_preference", "warning", detail=f"the {word} answer is the better one in {share:.0%} of pairs"
    )


def length_auc(kind: str, groups: Sequence[Group]) -> tuple[float | None, int]:
    """Returns how often the better answer is the longer one (a tie counts half), and over how many comparisons.

    0.5: length says nothing; 1: the longer is always better; 0: the shorter. Preference pairs and ranked answers are
    compared within their prompt, unpaired answers good against bad over all rows. None where nothing can be compared.
    """
    if kind == "unpaired":
        good, bad = (
            np.sort([_length(g, 0) for g in groups if g.completions[0].columns["label"] is label])
            for label in (True, False)
        )
        if not len(good) or not len(bad):
            return None, 0
        below = np.searchsorted(bad, good, side="left")
        ties = np.searchsorted(bad, good, side="right") - below
        return float((below + 0.5 * ties).sum() / (len(good) * len(bad))), min(len(good), len(bad))
    signs = list(_length_signs(kind, groups))
    return (float(np.mean(signs)), len(signs)) if signs else (None, 0)


def _length_signs(kind: str, groups: Sequence[Group]) -> Iterable[float]:
    for group in groups:
        if kind == "preference":
            yield (np.sign(_length(group, 0) - _length(group, 1)) + 1) / 2
        elif kind == "ranked":
            scores = [completion.columns["score"] for completion in group.completions]
            for i in range(len(scores)):
                for j in range(i):
                    if scores[i] != scores[j]:
                        better, worse = (i, j) if scores[i] > scores[j] else (j, i)
                        yield (np.sign(_length(group, better) - _length(group, worse)) + 1) / 2


def _length(group: Group, index: int) -> int:
    return int(group.completions[index].loss_mask.sum())
