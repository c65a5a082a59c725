"""Several runs on one page: verdicts, measures side by side, curves, and what their recipes differ in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wootz.core.errors import UsageError
from wootz.figures import forest
from wootz.report import inputs
from wootz.report.files import RunFiles, read_run
from wootz.report.judgement import Judgement, Measure, judge
from wootz.report.page import fill, write
from wootz.report.training import shared_plots

MOST_RUNS = 12


@dataclass(frozen=True)
class _Row:
    """One measure over the runs that have it: name of the run to what was measured."""

    name: str
    kind: str
    cells: Mapping[str, Measure]
    svg: str


def render_many(run_dirs: Sequence[str | Path], out: str | Path) -> Path:
    """Writes one page that compares runs, and returns its path. The file appears whole or not at all.

    Raises:
        UsageError: No run, more than a page can show, or a directory that is not there.
    """
    if not 1 <= len(run_dirs) <= MOST_RUNS:
        raise UsageError("a comparison has 1 to 12 runs", found=f"{len(run_dirs)}", expected=f"1 to {MOST_RUNS}")
    runs = _named([read_run(path) for path in run_dirs])
    judgements = {name: judge(files) for name, files in runs.items()}
    text = fill(
        "compare.html.j2",
        runs=[(name, files, judgements[name], inputs.facts(files)) for name, files in runs.items()],
        rows=_rows(judgements),
        plots=shared_plots(runs),
        settings=differences({name: dict(inputs.flatten(files.recipe)) for name, files in runs.items()}),
    )
    return write(Path(out), text)


def _named(runs: Sequence[RunFiles]) -> dict[str, RunFiles]:
    """Runs by name; a repeated name is told apart by its folder, then by its number."""
    found: dict[str, RunFiles] = {}
    for number, files in enumerate(runs, 1):
        choices = (files.name, f"{files.name} ({files.path.name})", f"{files.name} ({number})")
        found[next(name for name in choices if name not in found)] = files
    return found


def _rows(judgements: Mapping[str, Judgement]) -> list[_Row]:
    cells: dict[str, dict[str, Measure]] = {}
    for run, judgement in judgements.items():
        for measure in judgement.measures:
            cells.setdefault(measure.name, {})[run] = measure
    rows = []
    for name, found in cells.items():
        intervals = [replace(measure.interval, name=run) for run, measure in found.items()]
        kind = next(iter(found.values())).kind
        svg = forest(intervals, title=name, x_label="difference, new model \u2212 parent")
        rows.append(_Row(name, kind, found, svg))
    return sorted(rows, key=lambda row: row.kind != "target")


def differences(settings: Mapping[str, Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """Returns the keys whose values are not the same in every run, with each run's value.

    Example:
        >>> differences({"a": {"lr": "1", "seed": "0"}, "b": {"lr": "2", "seed": "0"}})
        [('lr', ['1', '2'])]
    """
    keys = dict.fromkeys(key for found in settings.values() for key in found)
    rows = [(key, [found.get(key, "") for found in settings.values()]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]
