"""``wootz gate``."""

from __future__ import annotations

from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, verdict_text

PARENTS = Annotated[
    list[str] | None,
    typer.Option(
        "--parent", metavar="MODEL[=SUITE]", help="What it came from; may be repeated (default: a run's own)."
    ),
]


@verb("out", "seed", "device")
def gate(
    flags: Flags,
    model: Annotated[str, typer.Argument(help="The new model: a run directory, or any model spec.")],
    overrides: OVERRIDES = None,
    parent: PARENTS = None,
) -> int:
    """Judge a model against the one it came from; exit 1 when it does not pass.

    Settings are those of a recipe's gate: target=held_out.jsonl, suite=small, policy=better, limits.kl=0.3...
    """
    from wootz.api import gate as api
    from wootz.core import yaml
    from wootz.core.config import validate
    from wootz.gates import GateConfig

    recipe = api.recipe_of(model)
    own = recipe.resolved()["gate"] if recipe is not None else None
    config = validate(GateConfig, yaml.from_mapping(own or {}, source="gate").override(overrides or ()))
    options = flags.given("out", "seed", "device")
    verdict = api.gate(model, parent or (), config, note=flags.note, **options).to_json()
    flags.result(verdict, verdict_text(verdict))
    return 0 if verdict["passed"] else 1
