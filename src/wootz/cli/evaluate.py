"""``wootz eval``."""

from __future__ import annotations

from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import measures_text


@verb("out", "if_exists", "seed", "device", "yes")
def evaluate(
    flags: Flags,
    model: Annotated[str, typer.Argument(help="A run directory, or any model spec.")],
    suite: Annotated[str, typer.Argument(help="A built-in suite, or a JSONL file of items.")] = "small",
) -> None:
    """Measure one model; wootz gate compares two."""
    from wootz.api.evaluate import evaluate as measure
    from wootz.cli.display import display
    from wootz.core.rundir import RunDir

    out = RunDir.create(flags.out, if_exists=flags.when_exists) if flags.out is not None else None
    with display(flags) as progress:
        told = measure(model, suite, out=out, progress=progress, **flags.given("seed", "device"))
    flags.result(told, measures_text(told))
