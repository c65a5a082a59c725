"""``wootz report`` and ``wootz card``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb

RUN = Annotated[Path, typer.Argument(help="A run directory.")]


@verb("out")
def report(flags: Flags, run: RUN) -> None:
    """Write the run's report: one HTML file that needs nothing else."""
    from wootz.api.report import write_report

    page = write_report(run, **flags.given("out"))
    flags.result({"report": str(page)}, str(page))


@verb("out")
def card(flags: Flags, run: RUN) -> None:
    """Write the run's model card (README.md)."""
    from wootz.api.report import write_card

    page = write_card(run, **flags.given("out"))
    flags.result({"card": str(page)}, str(page))
