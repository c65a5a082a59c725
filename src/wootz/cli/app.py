"""The command line: ``wootz VERB THING [key=value ...]``. One thin module a verb; endings become exit codes here.

Nothing that ``wootz --help`` reaches imports torch: verbs import what they need when they run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from wootz.cli import data, doctor, evaluate, gate, generate, quickstart, recipe, report, train
from wootz.cli.flags import speaks
from wootz.core.errors import UsageError, WootzError

INTERNAL, INTERRUPTED = 70, 130
_QUIET = {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
_STAGES = ("plan", "data", "step")

app = typer.Typer(
    help="Shape a language model, see inside it, prove what changed.",
    epilog="Exit codes: 0 ok, 1 negative verdict, 2 bad input, 3 stopped by a guard, 4 something is missing, "
    "70 our fault, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_VERBS = {
    "Everyday": (quickstart.quickstart, train.train, train.resume, generate.generate),
    "Judge": (evaluate.evaluate, gate.gate, report.report, report.card),
    "Look up": (doctor.doctor,),
}
_EXAMPLES = {
    "quickstart": "wootz quickstart --if-exists=new",
    "train": "wootz train dpo data.train=prefs.jsonl train.lr=2e-5 --dry-run",
    "resume": "wootz resume runs/dpo",
    "generate": "wootz generate smollm2-135m 'What is a crucible?' max_new_tokens=64",
    "eval": "wootz eval runs/dpo target=held_out.jsonl",
    "gate": "wootz gate runs/dpo --parent smollm2-135m",
    "report": "wootz report runs/dpo",
    "card": "wootz card runs/dpo",
    "doctor": "wootz doctor --json",
}

for _panel, _functions in _VERBS.items():
    for _function in _functions:
        _name = {"evaluate": "eval"}.get(_function.__name__, _function.__name__)
        app.command(_name, rich_help_panel=_panel, epilog=f"Example:  {_EXAMPLES[str(_name)]}")(_function)
app.add_typer(data.app, name="data", rich_help_panel="Look up")
app.add_typer(recipe.app, name="recipe", rich_help_panel="Look up")


def _version(value: bool) -> None:
    if value:
        from wootz import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_version, is_eager=True),
) -> None:
    """Shape a language model, see inside it, prove what changed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the process's exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Libraries underneath are quiet unless the user set them otherwise; what matters goes to events.jsonl.
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(args=expand_dry_run(given), prog_name="wootz")
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if code == UsageError.exit_code:  # said on stderr by the parser
            _document({"type": "UsageError", "what": "the command line is wrong; stderr says where"}, code, given)
        return code
    except WootzError as error:
        _tell(error, given)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # what no one foresaw: our fault, said as such
        _tell(error, given)
        return INTERNAL
    return 0


def expand_dry_run(arguments: list[str]) -> list[str]:
    """Returns arguments in which ``--dry-run`` always has its value: the option may stand alone, which means ``data``.

    Example:
        >>> expand_dry_run(["train", "--dry-run", "dpo"]), expand_dry_run(["--dry-run", "plan"])
        (['train', '--dry-run=data', 'dpo'], ['--dry-run=plan'])
    """
    expanded: list[str] = []
    for argument in arguments:
        if expanded and expanded[-1] == "--dry-run" and argument in _STAGES:
            expanded[-1] = f"--dry-run={argument}"
            continue
        expanded.append(argument)
    return ["--dry-run=data" if argument == "--dry-run" else argument for argument in expanded]


def _tell(error: Exception, arguments: Sequence[str]) -> None:
    """Says on stderr what went wrong, in one screen; with ``--json`` also as the JSON document on stdout."""
    if not speaks():
        return
    verbose = "-v" in arguments or "--verbose" in arguments
    if verbose:
        sys.stderr.write("".join(traceback.format_exception(error)))
    if isinstance(error, WootzError):
        told: dict[str, Any] = {name: getattr(error, name) for name in ("what", "where", "found", "expected", "fix")}
        sys.stderr.write(f"error: {error}\n")
    else:
        told = {"what": f"{type(error).__name__}: {error}"}
        hint = "" if verbose else "  -v shows where; a run's events.jsonl keeps it too\n"
        sys.stderr.write(f"internal error: {told['what']}\n{hint}")
    code = error.exit_code if isinstance(error, WootzError) else INTERNAL
    _document({"type": type(error).__name__, **told}, code, arguments)


def _document(error: dict[str, Any], code: int, arguments: Sequence[str]) -> None:
    if "--json" in arguments:
        sys.stdout.write(json.dumps({"error": error, "exit_code": code}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
