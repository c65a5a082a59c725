"""What can be wrong with data, each check a pure function from rows to a finding.

A finding is an error (training on this would waste the run), a warning, or information. Errors are raised together,
with the fix of each; ``data.drop: [NAME]`` leaves the named rows out instead, ``data.allow: [NAME]`` keeps them.
:data:`CHECKS` holds the wording and what each check permits; the functions below decide which rows it names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from wootz.data.kinds import Messages, Row, digest
from wootz.data.messages import is_trained

Severity = Literal["error", "warning", "info"]
_SHOWN_PLACES = 3
_KEPT_ROWS = 100
_ONE_SIDED = 0.1
_TWICE = "two"


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


def sides(row: Row) -> list[Any]:
    """Returns the answers of a row, whatever its kind."""
    fields = row.fields
    if "completions" in fields:
        return list(fields["completions"])
    return [fields[name] for name in ("completion", "chosen", "rejected") if name in fields]


def check_rows(kind: str, rows: Sequence[Row]) -> list[Finding]:
    """Returns every finding that can be had without a tokenizer."""
    found = [
        _flagged("empty_completion", "error", rows, _has_empty_answer),
        _flagged("empty_prompt", "error", rows, _has_empty_prompt),
        _flagged("empty_turn", "warning", rows, _has_empty_turn),
        role_order(kind, rows),
        duplicate_rows(rows),
    ]
    if kind == "preference":
        found.append(_unteaching("identical_pairs", rows, lambda row: row.fields["chosen"] == row.fields["rejected"]))
    if kind == "ranked":
        found.append(_unteaching("equal_scores", rows, lambda row: len(set(row.fields["scores"])) == 1))
    if kind in ("unpaired", "stepwise"):
        found.append(label_balance(rows))
    if kind != "text":
        found.append(duplicate_prompts(kind, rows))
    if kind in ("preference", "unpaired"):
        found.append(contradictions(rows))
    return [one for one in found if one is not None]


def _flagged(check: str, severity: Severity, rows: Sequence[Row], test: Callable[[Row], Any]) -> Finding | None:
    flagged = [row for row in rows if test(row)]
    return finding(check, severity, flagged, total=len(rows)) if flagged else None


def _unteaching(check: str, rows: Sequence[Row], test: Callable[[Row], Any]) -> Finding | None:
    """A few rows without a gradient waste their share; when all or most are, the run is wasted."""
    flagged = [row for row in rows if test(row)]
    severity: Severity = "error" if 2 * len(flagged) > len(rows) else "warning"
    return finding(check, severity, flagged, total=len(rows)) if flagged else None


def _blank(message: Mapping[str, Any]) -> bool:
    carries = message.get("tool_calls") or message.get("reasoning_content") or message.get("thinking")
    return not message["content"].strip() and not carries


def _has_empty_answer(row: Row) -> bool:
    if "text" in row.fields:
        return not row.fields["text"].strip()
    if "messages" in row.fields:
        return any(is_trained(message) and _blank(message) for message in row.fields["messages"])
    for side in sides(row):
        if isinstance(side, str):
            if not side.strip():
                return True
        elif not side or any(is_trained(message) and _blank(message) for message in side):
            return True
    return False


def _has_empty_prompt(row: Row) -> bool:
    prompt = row.fields.get("prompt", "none")
    return not prompt.strip() if isinstance(prompt, str) else not prompt


def _has_empty_turn(row: Row) -> bool:
    prompt = row.fields.get("prompt")
    given = prompt if isinstance(prompt, list) else []
    given = given + [m for m in row.fields.get("messages", []) if not is_trained(m)]
    return any(_blank(message) for message in given)


def role_order(kind: str, rows: Sequence[Row]) -> Finding | None:
    """System first, user before assistant, prompts that ask, answers that answer.

    Two turns of one role in a row are a warning: what the template makes of them is the template's to say.
    """
    wrong = [(row, problem) for row in rows if (problem := _role_problem(kind, row))]
    wrong.sort(key=lambda pair: pair[1].startswith(_TWICE))
    if not wrong:
        return None
    severity: Severity = "warning" if wrong[0][1].startswith(_TWICE) else "error"
    return finding("role_order", severity, [row for row, _ in wrong], total=len(rows), detail=wrong[0][1])


def _role_problem(kind: str, row: Row) -> str:
    if kind == "messages":
        return _order(row.fields["messages"])
    prompt = row.fields.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        return ""
    if prompt[-1]["role"] == "assistant":
        return "the prompt ends with an assistant turn"
    for side in sides(row):
        if isinstance(side, list) and side and side[0]["role"] != "assistant":
            return f"an answer begins with a {side[0]['role']} turn"
        problem = _order([*prompt, *side] if isinstance(side, list) else prompt)
        if problem:
            return problem
    return _order(prompt) if kind == "prompt" else ""


def _order(messages: Messages) -> str:
    roles = [message["role"] for message in messages]
    turns = [role for role in roles if role not in ("system", "developer")]
    if any(role in ("system", "developer") for role in roles[1:]):
        return "a system turn that is not the first"
    if turns and turns[0] == "assistant":
        return "it begins with an assistant turn"
    twice = next((a for a, b in zip(turns, turns[1:], strict=False) if a == b and a != "tool"), None)
    return f"{_TWICE} {twice} turns in a row" if twice else ""


def prompt_of(kind: str, row: Row) -> Any:
    """Returns what the model is asked in a row; the text itself where nothing is asked."""
    if kind == "text":
        return row.fields["text"]
    if kind == "messages":
        messages = row.fields["messages"]
        last = max((index for index, message in enumerate(messages) if is_trained(message)), default=len(messages))
        return messages[:last]
    return row.fields["prompt"]


def normalised(value: Any) -> str:
    """Returns text or messages as one string, case and runs of blanks levelled.

    Example:
        >>> normalised("What  is\\nThis?") == normalised([{"role": "user", "content": "what is this? "}])
        True
    """
    texts = [value] if isinstance(value, str) else [message["content"] for message in value]
    return " ".join(" ".join(texts).casefold().split())


def duplicate_rows(rows: Sequence[Row]) -> Finding | None:
    """Rows whose every field equals an earlier row's."""
    return _repeats("duplicate_rows", "warning", rows, lambda row: digest(row.fields))


def duplicate_prompts(kind: str, rows: Sequence[Row]) -> Finding | None:
    """Rows that ask what an earlier row asks."""
    return _repeats("duplicate_prompts", "info", rows, lambda row: normalised(prompt_of(kind, row)))


def _repeats(check: str, severity: Severity, rows: Sequence[Row], key: Callable[[Row], str]) -> Finding | None:
    seen: set[str] = set()
    repeated = []
    for row in rows:
        name = key(row)
        if name in seen:
            repeated.append(row)
        seen.add(name)
    return finding(check, severity, repeated, total=len(rows)) if repeated else None


def contradictions(rows: Sequence[Row]) -> Finding | None:
    """Pairs that another row has the other way round; answers that another row labels otherwise."""
    verdicts: dict[str, set[Any]] = defaultdict(set)
    keys = []
    for row in rows:
        if "label" in row.fields:
            key, verdict = digest([row.fields["prompt"], row.fields["completion"]]), row.fields["label"]
        else:
            pair = [digest(row.fields["chosen"]), digest(row.fields["rejected"])]
            key, verdict = digest([row.fields["prompt"], sorted(pair)]), pair[0]
        verdicts[key].add(verdict)
        keys.append(key)
    flagged = [row for row, key in zip(rows, keys, strict=True) if len(verdicts[key]) > 1]
    return finding("contradictions", "warning", flagged, total=len(rows)) if flagged else None


def label_balance(rows: Sequence[Row]) -> Finding | None:
    """Labels that are nearly all, or all, the same."""
    labels = Counter(label for row in rows for label in row.fields.get("labels", [row.fields.get("label")]))
    total = sum(labels.values())
    share = labels[True] / total if total else 0.5
    if _ONE_SIDED <= share <= 1 - _ONE_SIDED:
        return None
    detail = f"{labels[True]:,} good, {labels[False]:,} bad"
    return finding("label_balance", "error" if share in (0, 1) else "warning", detail=detail)


def overlap(kind: str, train: Sequence[Row], held_out: Sequence[Row]) -> Finding | None:
    """Training rows whose prompt is held out, letter by letter or but for case and blanks."""
    exact = {digest(prompt_of(kind, row)) for row in held_out}
    level = {normalised(prompt_of(kind, row)) for row in held_out}
    flagged = [row for row in train if normalised(prompt_of(kind, row)) in level]
    if not flagged:
        return None
    same = sum(digest(prompt_of(kind, row)) in exact for row in flagged)
    detail = f"{same:,} letter by letter, {len(flagged) - same:,} but for case and blanks"
    return finding("overlap", "error", flagged, total=len(train), detail=detail)
