"""``wootz eval``."""

from __future__ import annotations

from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, measures_text


@verb("out", "seed", "device")
def evaluate(
    flags: Flags,
    model: Annotated[str, typer.Argument(help="A run directory, or any model spec.")],
    overrides: OVERRIDES = None,
) -> None:
    """Measure one model; wootz gate compares.

    Settings: suite, target, verifier, measures, max_items, max_new_tokens, temperature, confidence.
    """
    from wootz.api import evaluate as api
    from wootz.core import yaml
    from wootz.core.config import validate

    config = validate(api.EvaluateConfig, yaml.from_mapping({}, source="eval").override(overrides or ()))
    found = api.evaluate(model, config, note=flags.note, **flags.given("out", "seed", "device"))
    flags.result({"model": model, "measures": found}, measures_text(found))
