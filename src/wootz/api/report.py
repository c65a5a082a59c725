"""A run's page and its model card. Both read the run directory only."""

from __future__ import annotations

from pathlib import Path

from wootz.core.rundir import RunDir
from wootz.report import card, render


def write_report(run: str | Path, *, out: str | Path | None = None) -> Path:
    """Writes the run's page (default ``RUN/report.html``) and returns where.

    Raises:
        UsageError: Not a run directory.
    """
    folder = RunDir.open(run).path
    return render(folder, Path(out) if out is not None else None)


def write_card(run: str | Path, *, out: str | Path | None = None) -> Path:
    """Writes the run's model card (default ``RUN/README.md``) and returns where.

    Raises:
        UsageError: Not a run directory.
    """
    folder = RunDir.open(run)
    target = Path(out) if out is not None else folder.path / "README.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    RunDir(target.parent).write_text(target.name, card(folder.path))
    return target
