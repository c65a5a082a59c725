"""What can be wrong with rows, each check a pure function from rows to a finding; tokens come in ``token_checks``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wootz.data.findings import Finding, Severity, finding
from wootz.data.kinds import Messages, Row, digest
from wootz.data.messages import is_trained

_ONE_SIDED = 0.1


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
        _flagged("repeated_role", "warning", rows, _has_repeated_role),
        duplicate_rows(rows),
    ]
    if kind == "preference":
        same = _flagged("identical_pairs", "error", rows, lambda row: row.fields["chosen"] == row.fields["rejected"])
        found.append(same)
    if kind == "ranked":
        found.append(_flagged("equal_scores", "error", rows, lambda row: len(set(row.fields["scores"])) == 1))
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
    """System first, user before assistant, prompts that ask, answers that answer."""
    wrong = [(row, problem) for row in rows if (problem := _role_problem(kind, row))]
    if not wrong:
        return None
    return finding("role_order", "error", [row for row, _ in wrong], total=len(rows), detail=wrong[0][1])


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
    return ""


def _has_repeated_role(row: Row) -> bool:
    """Two turns of one role in a row: what the template makes of them is the template's to say."""
    if "messages" in row.fields:
        conversations = [row.fields["messages"]]
    else:
        prompt = row.fields.get("prompt")
        given = prompt if isinstance(prompt, list) else []
        conversations = [[*given, *side] for side in sides(row) if isinstance(side, list)] or [given]
    roles = [[message["role"] for message in messages] for messages in conversations]
    return any(a == b != "tool" for turns in roles for a, b in zip(turns, turns[1:], strict=False))


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
