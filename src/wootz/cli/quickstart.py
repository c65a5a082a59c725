"""``wootz quickstart``."""

from __future__ import annotations

from wootz.cli.flags import Flags, verb
from wootz.cli.words import run_document, run_text


@verb("out", "if_exists", "seed", "device", "yes")
def quickstart(flags: Flags) -> int:
    """Make a better model on this machine in minutes: the whole main job, with its report."""
    from wootz.api import quickstart as api
    from wootz.cli.display import display

    with display(flags) as progress:
        run = api.quickstart(if_exists=flags.when_exists, progress=progress, **flags.given("out", "seed", "device"))
    flags.result(run_document(run), run_text(run))
    return 1 if run.passed is False else 0
