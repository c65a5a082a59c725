"""Results as text: runs, plans, verdicts, findings, tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

OVERRIDES = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings; values are YAML.", show_default=False)
]


def table(rows: Iterable[Sequence[str]], *, indent: str = "  ") -> str:
    """Returns rows as aligned columns; text left, numbers right.

    Example:
        >>> print(table([("name", "n"), ("a", "10"), ("bcdef", "2")]))
          name    n
          a      10
          bcdef   2
    """
    lines = [[str(cell) for cell in row] for row in rows]
    if not lines:
        return ""
    widths = [max(len(row[column]) for row in lines) for column in range(len(lines[0]))]
    numeric = [_are_numbers([row[column] for row in lines[1:]]) for column in range(len(widths))]
    return "\n".join(
        (indent + "  ".join(_fit(*cell) for cell in zip(row, widths, numeric, strict=True))).rstrip() for row in lines
    )


def _are_numbers(cells: Sequence[str]) -> bool:
    return any(cells) and all(set(cell) <= set("0123456789.+-e,%") for cell in cells)


def _fit(text: str, width: int, numeric: bool) -> str:
    return text.rjust(width) if numeric else text.ljust(width)


def run_document(run: Any) -> dict[str, Any]:
    """Returns a finished run as JSON."""
    return {"run": str(run.path), "passed": run.passed, "verdict": run.verdict}


def run_text(run: Any) -> str:
    """Returns a finished run as text: the verdict first, then where things are."""
    parts = [verdict_text(run.verdict)] if run.verdict is not None else []
    parts.append(table([("model", str(run.path / "model")), ("report", str(run.path / "report.html"))]))
    return "\n".join(parts)


def verdict_text(verdict: Mapping[str, Any]) -> str:
    """Returns a gate's verdict as a table, one line a measure; for limits, whether they hold."""
    rows = [("measure", "verdict", "parent", "child", "difference", "interval", "limit", "n")]
    for name, measure in verdict["measures"].items():
        low, high = _number(measure.get("low"), sign=True), _number(measure.get("high"), sign=True)
        rows.append(
            (
                name,
                _standing(measure),
                _number(measure.get("parent")),
                _number(measure.get("child")),
                _number(measure.get("difference"), sign=True),
                f"[{low}, {high}]" if low and high else "",
                _number(measure.get("limit")),
                str(measure.get("n", "")),
            )
        )
    notes = [f"  {name}: {m['note']}" for name, m in verdict["measures"].items() if m.get("note")]
    return "\n".join([("PASSED" if verdict["passed"] else "NOT PASSED"), table(rows), *notes])


def _standing(measure: Mapping[str, Any]) -> str:
    if measure.get("limit") is None or measure.get("held") is None:
        return str(measure["verdict"])
    return "held" if measure["held"] else f"not held ({measure['verdict']})"


def measures_text(measures: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the measures of one model as a table."""
    rows = [("measure", "mean", "interval", "n")]
    for name, one in measures.items():
        low, high = _number(one.get("low")), _number(one.get("high"))
        rows.append((name, _number(one.get("mean")), f"[{low}, {high}]" if low and high else "", str(one["n"])))
    return table(rows)


def _number(value: float | None, *, sign: bool = False) -> str:
    return "" if value is None else f"{value:{'+' if sign else ''}.3g}"


def plan_text(found: Mapping[str, Any]) -> str:
    """Returns what a dry run found."""
    model, objective = found["recipe"]["model"], found["recipe"]["objective"]
    rows = [
        (
            "model",
            f"{model['base']}, {'LoRA rank ' + str(model['lora']['rank']) if model.get('lora') else 'all weights'}",
        ),
        ("objective", objective["type"]),
        ("writes", found["out"]),
    ]
    rows += [(name, f"{found[name]:,}") for name in ("steps", "parameters", "trained_parameters") if name in found]
    parts = ["the recipe is sound", table(rows)]
    if "data" in found:
        parts.append(findings_text(found["data"]["findings"]) or "  data: nothing to remark")
        parts.append(counts_text(found["data"]["counts"]))
    if "step" in found:
        last = found["step"][-1] if found["step"] else {}
        measured = ", ".join(
            f"{name} {last[name]:.4g}" for name in ("loss/total", "time/step", "mem/peak_mb") if name in last
        )
        parts.append(f"  one step done, saved and loaded again: {measured}")
    return "\n".join(parts)


def counts_text(counts: Mapping[str, int]) -> str:
    """Returns how many rows and tokens each side has, one line a side."""
    names = list(dict.fromkeys(name.partition("/")[2] for name in counts))
    sides = [side for side in ("train", "held_out") if counts.get(f"{side}/rows")]
    header = ("", *(name.replace("_", " ") for name in names))
    return table([header, *((side, *(f"{counts[f'{side}/{name}']:,}" for name in names)) for side in sides)])


def findings_text(findings: Iterable[Mapping[str, Any]]) -> str:
    """Returns what data checks said, one paragraph each."""
    lines = []
    for found in findings:
        lines.append(f"  {found['severity']} [{found['check']}] {found['source']}: {found['message']}")
        if found["fix"]:
            lines.append(f"    fix: {found['fix']}")
    return "\n".join(lines)


_COUNTED = ("duplicates", "contradictions", "overlap", "truncated")


def audit_text(found: Mapping[str, Any]) -> str:
    """Returns what an audit found: a table of cues, counts, and what to do, in a screen."""
    auc = found["length_auc"]
    near = {name: f" (near {found[f'near_{name}']:,})" for name in _COUNTED[:2]}
    counted = [f"{name} {found[name]:,}{near.get(name, '')}" for name in _COUNTED]
    head = f"{found['kind']} data, {found['groups']:,} rows"
    head += f" ({found['unused']:,} unused: wootz data check)" if found["unused"] else ""
    parts = [head + (f", length_auc {auc:.3f}" if auc is not None else "")]
    if found.get("cues"):
        parts.append(
            table([("cue alone", "accuracy", "95% interval", "differs", "more in chosen"), *_cue_rows(found["cues"])])
        )
    parts.append("  " + ", ".join(counted))
    if "label_noise" in found:
        parts.append(f"  labels that look wrong: {_noise_text(found['label_noise'])}")
    if facts := found.get("log_probs"):
        parts.append(f"  log-prob a token under {facts['model']}: {_likelihood_text(facts)}")
    parts += [f"  {sentence}" for sentence in found["says"]]
    parts += [f"  fix: {sentence}" for sentence in found["remedies"]]
    if done := found.get("balanced"):
        dropped = ", ".join(f"{name} {count:,}" for name, count in done["dropped"].items() if count)
        parts.append(
            f"  wrote {done['written']:,} rows to {done['path']}" + (f"; left out: {dropped}" if dropped else "")
        )
    return "\n".join(parts)


def _cue_rows(cues: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    for name, cue in cues.items():
        interval = f"{cue['low']:.3f} to {cue['high']:.3f}"
        differs = f"{cue['differs']:.0%}" if "differs" in cue else ""
        more = cue.get("chosen_has_more")
        yield name, f"{cue['accuracy']:.3f}", interval, differs, "" if more is None else f"{more:.0%}"


def _noise_text(noise: Mapping[str, Any]) -> str:
    if noise["rate"] is None:
        return f"not known. {noise['why']}"
    return f"{noise['rate']:.0%} ({noise['low']:.0%} to {noise['high']:.0%})"


def _likelihood_text(facts: Mapping[str, Any]) -> str:
    if "n" not in facts:
        return "nothing to compare"
    sides = [
        f"{side} {facts[side]['mean']:.2f} (median {facts[side]['median']:.2f})" for side in ("chosen", "rejected")
    ]
    share = f"{facts['chosen_likelier']:.0%} ({facts['low']:.0%} to {facts['high']:.0%})"
    return f"{', '.join(sides)}; chosen is the likelier in {share}"
