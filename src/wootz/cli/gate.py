"""``wootz gate``."""

from __future__ import annotations

from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, verdict_text

PARENTS = Annotated[list[str], typer.Option("--parent", help="What it came from: a model spec, or SPEC=SUITE. Repeat.")]


@verb("out", "seed", "device")
def gate(
    flags: Flags,
    model: Annotated[str, typer.Argument(help="The new model: any model spec.")],
    overrides: OVERRIDES = None,
    *,
    parent: PARENTS,
) -> int:
    """Judge a model against the one it came from. Exits 0 if it passes, 1 if not.

    Settings are those of a recipe's gate: target=held_out.jsonl, suite=small, policy=better, limits.kl=0.3...
    """
    from wootz.api.gate import gate as judge
    from wootz.core import yaml
    from wootz.core.config import validate
    from wootz.gates import GateConfig

    config = validate(GateConfig, yaml.from_mapping({}, source="command line").override(overrides or ()))
    verdict = judge(model, parent, config, note=flags.note, **flags.given("out", "seed", "device")).to_json()
    flags.result(verdict, verdict_text(verdict))
    return 0 if verdict["passed"] else 1
