"""Per-item results of other evaluation tools: lm-eval's sample files and inspect-ai's logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wootz.core.errors import DataError
from wootz.evals.items import Result
from wootz.evals.measures import _Common
from wootz.evals.subject import Subject

_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


@dataclass(frozen=True)
class Imported(_Common):
    """Values read from one file for each side."""

    child_file: str = ""
    parent_file: str = ""
    metric: str | None = None
    invert: bool = False

    def measure(self, subject: Subject, parent: Subject | None) -> list[Result]:  # noqa: ARG002
        results = read_results(self.child_file if parent is not None else self.parent_file, metric=self.metric)
        if not self.invert:
            return results
        return [Result(r.id, None if r.value is None else 1 - r.value, r.output, r.prompt, r.gold) for r in results]


def read_results(source: str | Path, *, metric: str | None = None) -> list[Result]:
    """Returns items from an lm-eval sample file (``--log_samples``, .jsonl) or an inspect-ai log (.json).

    Args:
        metric: Name of the value to take; by default the file's only one, or ``acc``, ``exact_match``.

    Raises:
        DataError: Neither format, or the metric is not there.
    """
    path = Path(source)
    if not path.is_file():
        raise DataError("no such file", where=str(path))
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return [_lm_eval(row, metric, str(path)) for row in rows]
    content = json.loads(path.read_text(encoding="utf-8"))
    samples = content.get("samples") if isinstance(content, dict) else None
    if not samples:
        expected = "lm-eval's samples_*.jsonl, or an inspect-ai log with samples"
        raise DataError("no per-item results", where=str(path), expected=expected)
    return [_inspect(sample, metric, str(path)) for sample in samples]


def _lm_eval(row: Mapping[str, Any], metric: str | None, where: str) -> Result:
    named = row.get("metrics") or [key for key in ("acc", "exact_match", "acc_norm") if key in row]
    name = metric or next(iter(named), None)
    if name is None or name not in row:
        raise DataError(f"no metric {metric or ''}".strip(), where=where, found=", ".join(row))
    response = row.get("filtered_resps") or row.get("resps") or ""
    return Result(str(row["doc_id"]), float(row[name]), str(response), str(row.get("doc", "")), row.get("target"))


def _inspect(sample: Mapping[str, Any], metric: str | None, where: str) -> Result:
    scores = sample.get("scores") or {}
    name = metric or next(iter(scores), None)
    if name not in scores:
        raise DataError(f"no score {name!r}", where=where, found=", ".join(scores) or "none")
    value = scores[name]["value"]
    number = _LETTERS.get(value) if isinstance(value, str) else float(value)
    answer = scores[name].get("answer") or ""
    return Result(f"{sample['id']}-{sample.get('epoch', 1)}", number, str(answer), str(sample.get("input", "")))
