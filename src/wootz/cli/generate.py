"""``wootz generate``."""

from __future__ import annotations

from typing import Annotated

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES


@verb("out", "seed", "device")
def generate(
    flags: Flags,
    model: Annotated[str, typer.Argument(help="Any model spec: a folder, a run, a Hub id, BASE+ADAPTER...")],
    prompt: Annotated[str, typer.Argument(help="Text, a data file with prompts, or - for one prompt a line of stdin.")],
    overrides: OVERRIDES = None,
) -> None:
    """Answer prompts with a model.

    Settings: temperature, top_p, top_k, max_new_tokens, num_samples, stop='[...]'.
    """
    from wootz.api.generate import answers_of, generate_from

    groups = generate_from(model, prompt, overrides or (), **flags.given("seed", "device"))
    answers = answers_of(groups)
    if flags.out is not None:
        from wootz.data import write

        write(answers, flags.out)
        flags.note(f"{len(answers)} answers written to {flags.out}")
    several = len(answers) > 1
    texts = [(f"--- {one['prompt']}\n" if several else "") + one["completion"] for one in answers]
    flags.result({"answers": answers}, "\n".join(texts))
