"""The words of every check, and the record of what one says.

A finding is an error (training on this would waste the run), a warning, or information. Errors are raised together,
with the fix of each; ``data.drop: [NAME]`` leaves the named rows out instead, ``data.allow: [NAME]`` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from wootz.data.kinds import Row

Severity = Literal["error", "warning", "info"]
_SHOWN_PLACES = 3
_KEPT_ROWS = 100


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that can be wrong.

    Attributes:
        says: The message; ``{n}`` rows of ``{total}``, ``{places}``, ``{detail}``.
        fix: The smallest change that mends it.
        allow: Whether ``data.allow`` may name it.
        drop: Whether ``data.drop`` may name it.
    """

    says: str
    fix: str = ""
    allow: bool = False
    drop: bool = False


CHECKS: Mapping[str, Check] = {
    "row_type": Check("{n} of {total} rows cannot be read {places}: {detail}", drop=True),
    "label_type": Check(
        "{n} of {total} rows have a label that is neither true/false nor 0/1 {places}: {detail}",
        "write true or false without quotes; other words have no one meaning",
        drop=True,
    ),
    "prefix_mismatch": Check(
        "{n} of {total} pairs are not two answers to one prompt {places}: {detail}",
        "add a prompt column, or data.drop: [prefix_mismatch]",
        drop=True,
    ),
    "identical_pairs": Check(
        "{n} of {total} pairs have chosen equal to rejected {places}. They teach nothing",
        "data.drop: [identical_pairs]",
        allow=True,
        drop=True,
    ),
    "equal_scores": Check(
        "{n} of {total} rows have answers that all score the same {places}. They teach nothing",
        "data.drop: [equal_scores]",
        allow=True,
        drop=True,
    ),
    "empty_completion": Check(
        "{n} of {total} rows have an empty answer {places}",
        "data.drop: [empty_completion]",
        allow=True,
        drop=True,
    ),
    "empty_prompt": Check(
        "{n} of {total} rows have an empty prompt {places}", "data.drop: [empty_prompt]", allow=True, drop=True
    ),
    "empty_turn": Check(
        "{n} of {total} conversations have an empty turn {places}", "data.drop: [empty_turn]", drop=True
    ),
    "role_order": Check(
        "{n} of {total} conversations have roles out of order {places}: {detail}",
        "data.drop: [role_order], or allow it if the template can take it",
        allow=True,
        drop=True,
    ),
    "repeated_role": Check(
        "{n} of {total} conversations have two turns of one role in a row {places}",
        "data.drop: [repeated_role]",
        drop=True,
    ),
    "special_in_text": Check(
        "{n} of {total} rows have a special token written inside a text {places}: {detail}. It will be read as one",
        "data.drop: [special_in_text]",
        drop=True,
    ),
    "duplicate_rows": Check(
        "{n} of {total} rows repeat an earlier row {places}", "data.drop: [duplicate_rows]", drop=True
    ),
    "duplicate_prompts": Check("{n} of {total} rows share their prompt with an earlier row {places}"),
    "contradictions": Check(
        "{n} of {total} rows say the opposite of another row {places}: same prompt, same answers, other verdict",
        "data.drop: [contradictions]",
        drop=True,
    ),
    "label_balance": Check(
        "labels are one-sided: {detail}", "add rows of the other label, or set the objective's weights", allow=True
    ),
    "overlap": Check(
        "{n} of {total} training rows have a prompt that is also held out {places}: {detail}",
        "data.drop: [overlap] leaves them out of training",
        allow=True,
        drop=True,
    ),
    "template_error": Check(
        "the chat template refuses {n} of {total} rows {places}: {detail}",
        "mend the rows, or data.drop: [template_error]",
        drop=True,
    ),
    "template_prefix": Check(
        "the chat template is not prefix-preserving on {n} of {total} rows {places}: {detail}. What would be learned "
        "there is not what the model is asked",
        "data.allow: [template_prefix] trains only the turns that are, data.drop: [template_prefix] leaves the rows "
        "out; or mend chat_template.jinja",
        allow=True,
        drop=True,
    ),
    "bos_doubled": Check(
        "{n} of {total} rows begin with BOS more than once {places}",
        "remove BOS from the text, or from chat_template.jinja",
        allow=True,
        drop=True,
    ),
    "nothing_trained": Check(
        "{n} of {total} rows have nothing to learn {places}: no assistant turn with something before it, or "
        "train: false on all",
        "data.drop: [nothing_trained]",
        drop=True,
    ),
    "prompt_too_long": Check(
        "after truncation to {detail} {n} of {total} rows keep no token to learn {places}",
        "",
        allow=True,
        drop=True,
    ),
    "truncated": Check(
        "{n} of {total} rows are cut at {detail} {places}; their end is not learned",
        "",
        drop=True,
    ),
    "boundary_merge": Check(
        "in {n} of {total} rows one token holds the end of the prompt and the start of the answer {places}; generation "
        "will not start there",
        "let the prompt end before the blank and the answer begin with it",
        drop=True,
    ),
    "eos_never_learned": Check(
        "no answer ends with a learned end-of-turn token: the model would not learn to stop. {detail}",
        "",
        allow=True,
    ),
    "unknown_tokens": Check(
        "{n} of {total} rows hold text that the tokenizer does not know {places}: {detail}",
        "use the model's own tokenizer, or data.drop: [unknown_tokens]",
        allow=True,
        drop=True,
    ),
    "length_preference": Check(
        "{detail}: length alone tells the answers apart, and the model may learn only that",
        "balance the pairs by length",
    ),
    "plain_strings": Check(
        "prompts are plain text, and the model has a chat template that will not be used",
        "data.chat: true, unless the model is meant to continue plain text",
    ),
    "stop_token": Check("{detail}"),
    "format": Check("{detail}"),
    "lengths": Check("{detail}"),
    "dropped": Check("{detail}"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says about one source.

    Attributes:
        check: A name in :data:`CHECKS`.
        rows: Positions of the rows it names, from 0.
        source: The file.
    """

    check: str
    severity: Severity
    message: str
    fix: str = ""
    rows: tuple[int, ...] = ()
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """As in ``data.json``; of many rows the first hundred, and how many there are."""
        return asdict(self) | {"rows": list(self.rows[:_KEPT_ROWS]), "count": len(self.rows)}

    def __str__(self) -> str:
        text = f"{self.severity} [{self.check}] {self.source}: {self.message}"
        return f"{text}\n    fix: {self.fix}" if self.fix else text


def finding(
    check: str,
    severity: Severity,
    flagged: Sequence[Row] = (),
    *,
    total: int = 0,
    detail: str = "",
    fix: str | None = None,
) -> Finding:
    """Returns the finding of a check, in the words of :data:`CHECKS`."""
    spec = CHECKS[check]
    message = spec.says.format(n=f"{len(flagged):,}", total=f"{total:,}", places=_places(flagged), detail=detail)
    return Finding(check, severity, message, spec.fix if fix is None else fix, tuple(row.index for row in flagged))


def _places(flagged: Sequence[Row]) -> str:
    if not flagged:
        return ""
    word = flagged[0].place.split()[0]
    numbers = ", ".join(row.place.split()[-1] for row in flagged[:_SHOWN_PLACES])
    return f"({word}{'s' * (len(flagged) > 1)} {numbers}{', ...' * (len(flagged) > _SHOWN_PLACES)})"


def allowed(found: Finding, allow: Iterable[str]) -> Finding:
    """Returns the finding as a warning where the user allowed it."""
    if found.severity == "error" and found.check in allow:
        return replace(found, severity="warning", message=f"allowed: {found.message}", fix="")
    return found
