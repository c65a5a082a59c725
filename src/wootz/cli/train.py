"""``wootz train`` and ``wootz resume``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, plan_text, run_document, run_text


@verb("dry_run", "out", "if_exists", "seed", "device", "yes")
def train(
    flags: Flags,
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of one that ships with wootz.")],
    overrides: OVERRIDES = None,
) -> int | None:
    """Train a model as a recipe says, and pass it through its gate."""
    from wootz.api import train as api
    from wootz.api.recipe import load_recipe
    from wootz.cli.display import display

    loaded = load_recipe(recipe, overrides or ())
    options = flags.given("out", "seed", "device")
    if flags.dry_run:
        with display(flags):
            found = api.train(loaded, dry_run=flags.dry_run, **options)
        assert isinstance(found, dict)
        flags.result(found, plan_text(found))
        return None
    with display(flags) as progress:
        run = api.train(loaded, if_exists=flags.when_exists, progress=progress, **options)
    assert isinstance(run, api.Run)
    flags.result(run_document(run), run_text(run))
    return 1 if run.passed is False else 0


@verb("device")
def resume(flags: Flags, run: Annotated[Path, typer.Argument(help="The directory of an interrupted run.")]) -> int:
    """Take up an interrupted run where its last checkpoint left it."""
    from wootz.api import train as api
    from wootz.cli.display import display

    with display(flags) as progress:
        done = api.resume(run, progress=progress, **flags.given("device"))
    flags.result(run_document(done), run_text(done))
    return 1 if done.passed is False else 0
