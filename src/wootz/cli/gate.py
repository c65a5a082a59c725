"""``wootz gate``."""

from __future__ import annotations

from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, verdict_text


@verb("out", "if_exists", "seed", "device", "yes")
def gate(
    flags: Flags,
    child: Annotated[str, typer.Argument(help="A run directory, or any model spec.")],
    overrides: OVERRIDES = None,
    parent: Annotated[
        list[str] | None, typer.Option("--parent", help="What it is compared with (default: what the run came from).")
    ] = None,
) -> int:
    """Judge a model against the one it came from; exit 1 when it does not pass.

    Settings are those of a recipe's gate section.
    """
    from wootz.api import gate as api
    from wootz.cli.display import display
    from wootz.core import yaml
    from wootz.core.config import validate
    from wootz.core.rundir import RunDir
    from wootz.gates import GateConfig

    recipe = api.recipe_of(child)
    before = recipe.resolved()["gate"] if recipe is not None else None
    config = validate(GateConfig, yaml.from_mapping(before or {}, source="gate").override(overrides or ()))
    out = RunDir.create(flags.out, if_exists=flags.when_exists) if flags.out is not None else None
    with display(flags) as progress:
        verdict = api.gate(child, parent or (), config, out=out, progress=progress, **flags.given("seed", "device"))
    told = verdict.to_json()
    flags.result(told, verdict_text(told))
    return 0 if told["passed"] else 1
