"""``wootz data``: look at data before training on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wootz.cli.flags import Flags, verb
from wootz.cli.words import OVERRIDES, audit_text, counts_text, findings_text, table

app = typer.Typer(help="Check, show, convert and audit data.", no_args_is_help=True)
SOURCE = Annotated[str, typer.Argument(help="A data file, a Hub id owner/name:split, or a recipe.")]


@app.command("check", epilog="Example:  wootz data check prefs.jsonl columns='{chosen: good, rejected: bad}'")
@verb()
def check(flags: Flags, source: SOURCE, overrides: OVERRIDES = None) -> int:
    """Run every check that training runs; exit 1 when one fails.

    Settings are those of a recipe's data section, and model and max_length.
    """
    from wootz.api.data import look

    view = look(source, overrides or ())
    found = view.prepared
    summary: dict[str, Any] = found.summary() | {"ok": view.ok}
    verdict = "ok: training would take it" if view.ok else f"checks that failed: {len(found.errors)}"
    parts = (findings_text(summary["findings"]), counts_text(found.counts), verdict)
    flags.result(summary, "\n".join(part for part in parts if part))
    return 0 if view.ok else 1


@app.command("show", epilog="Example:  wootz data show prefs.jsonl rows=3")
@verb()
def show(flags: Flags, source: SOURCE, overrides: OVERRIDES = None) -> None:
    """Print the first rows token by token, with what is trained on.

    rows=N says how many (2); other settings are those of a recipe's data section, and model and max_length.
    """
    from wootz.api.data import look, split_request
    from wootz.data import examples
    from wootz.data import show as show_groups
    from wootz.data.prepare import raise_errors

    asked, settings = split_request(overrides or ())
    view = look(source, settings)
    if not view.prepared.train:
        raise_errors(view.prepared.findings)
    if flags.json:
        shown = examples(view.prepared.train, view.tokenizer, limit=asked.rows)
        flags.result({"kind": view.prepared.kind, "examples": shown}, "")
    else:
        show_groups(view.prepared.train, view.tokenizer, limit=asked.rows)


@app.command("convert", epilog="Example:  wootz data convert chats.json train.jsonl kind=prompt_completion")
@verb()
def convert(
    flags: Flags,
    source: SOURCE,
    destination: Annotated[Path, typer.Argument(help="A .jsonl, .json, .csv or .parquet file that does not exist.")],
    overrides: OVERRIDES = None,
) -> None:
    """Rewrite a file in another format or kind.

    Settings: to=trl, sharegpt, alpaca, hh or openai; kind=preference, unpaired...; columns='{prompt: question}'.
    """
    from wootz.api.data import convert_file

    done = convert_file(source, destination, overrides or ())
    flags.result(done, table((name, str(value)) for name, value in done.items()))


@app.command("audit", epilog="Example:  wootz data audit prefs.jsonl --write balanced.jsonl")
@verb("device")
def audit(
    flags: Flags,
    source: SOURCE,
    overrides: OVERRIDES = None,
    log_probs: Annotated[
        bool, typer.Option("--log-probs", help="Ask model=X how likely it finds the answers.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the pairs in which length says nothing, duplicates left out.")
    ] = None,
) -> None:
    """Measure what the pairs really teach: how far trivial cues tell the better answer, wrong labels, near-duplicates.

    Settings are those of a recipe's data section, and model and max_length.
    """
    from wootz.api.data import audit_file

    told = audit_file(source, overrides or (), log_probs=log_probs, write_to=write, **flags.given("device"))
    flags.result(told, audit_text(told))
