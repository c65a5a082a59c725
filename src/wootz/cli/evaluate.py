"""``wootz eval``."""

from __future__ import annotations

from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, measures_text


@verb("out", "seed", "device")
def evaluate(
    flags: Flags,
    model: Annotated[str, typer.Argument(help="Any model spec.")],
    suite: Annotated[str, typer.Argument(help="small, full, none, or a folder of prompt sets.")] = "small",
    overrides: OVERRIDES = None,
) -> None:
    """Measure a model.

    Settings are those of a recipe's gate: target=held_out.jsonl, verifier='{type: exact}', max_items=200...
    """
    from wootz.api.evaluate import evaluate as measure
    from wootz.core import yaml
    from wootz.core.config import validate
    from wootz.gates import GateConfig

    document = yaml.from_mapping({"suite": suite}, source="command line").override(overrides or ())
    config = validate(GateConfig, document)
    found = measure(model, config, note=flags.note, **flags.given("out", "seed", "device"))
    flags.result({"model": model, "measures": found}, measures_text(found))
