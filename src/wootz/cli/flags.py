"""The universal flags: one set for every verb, given to it as one value.

A verb is a function whose first parameter is :class:`Flags`; ``@verb("out", "seed")`` says which of the flags it takes
beside those that every verb takes, and shows them in its help.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from wootz.core.errors import Interrupted, UsageError

PANEL = "Flags"
PIPE_CLOSED = 141

OUT = Annotated[Path | None, typer.Option("--out", help="Write here.", rich_help_panel=PANEL)]
IF_EXISTS = Annotated[
    Literal["ask", "resume", "new", "fail"] | None,
    typer.Option("--if-exists", help="When the output exists; new moves it aside.", rich_help_panel=PANEL),
]
DRY_RUN = Annotated[
    Literal["plan", "data", "step"] | None,
    typer.Option(
        "--dry-run",
        metavar="[plan|data|step]",
        help="Stop after the plan, the data checks (the default) or one step; nothing is kept.",
        rich_help_panel=PANEL,
    ),
]
SEED = Annotated[int | None, typer.Option("--seed", help="Seed of everything random.", rich_help_panel=PANEL)]
DEVICE = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.", rich_help_panel=PANEL)]
YES = Annotated[
    bool, typer.Option("--yes", help="Ask nothing: an output that exists is moved aside.", rich_help_panel=PANEL)
]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=PANEL)]
QUIET = Annotated[bool, typer.Option("-q", "--quiet", help="Results and errors only.", rich_help_panel=PANEL)]
VERBOSE = Annotated[bool, typer.Option("-v", "--verbose", help="All measures; tracebacks.", rich_help_panel=PANEL)]

_CHOOSABLE = {"dry_run": DRY_RUN, "out": OUT, "if_exists": IF_EXISTS, "seed": SEED, "device": DEVICE, "yes": YES}
_ALWAYS = {"json": JSON, "quiet": QUIET, "verbose": VERBOSE}
_SWITCHES = ("yes", *_ALWAYS)


@dataclass(frozen=True)
class Flags:
    """What the universal flags said."""

    dry_run: Literal["plan", "data", "step"] | None = None
    out: Path | None = None
    if_exists: Literal["ask", "resume", "new", "fail"] | None = None
    seed: int | None = None
    device: str | None = None
    yes: bool = False
    json: bool = False
    quiet: bool = False
    verbose: bool = False

    @property
    def when_exists(self) -> Literal["ask", "resume", "new", "fail"]:
        """What to do about an existing output: asked on a terminal, refused elsewhere, unless said."""
        return self.if_exists or ("new" if self.yes else "ask")

    def given(self, *names: str) -> dict[str, Any]:
        """Returns the named flags that were given, as keyword arguments."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """Prints the result on stdout, once for all processes: the JSON document with ``--json``, else the text."""
        if not speaks():
            return
        out = json.dumps(document, indent=1, ensure_ascii=False, default=str) if self.json else text
        sys.stdout.write(out.rstrip("\n") + "\n")
        sys.stdout.flush()

    def note(self, message: str) -> None:
        """Says something on stderr that is not a result."""
        if not self.quiet and speaks():
            sys.stderr.write(message.rstrip("\n") + "\n")
            sys.stderr.flush()


def speaks() -> bool:
    """Returns whether this process talks to the user: of several under torchrun the first one does."""
    return os.environ.get("RANK", "0") == "0"


def verb(*flags: str) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Makes a command of a function: adds the universal flags to its signature; its integer is the exit code."""
    shown = {name: _CHOOSABLE[name] for name in flags} | _ALWAYS

    def decorate(function: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            said = Flags(**{name: arguments.pop(name) for name in shown})
            with _endings():
                if said.quiet and said.verbose:
                    raise UsageError("-q and -v say opposite things", fix="keep one")
                if said.yes and said.if_exists not in (None, "new"):
                    raise UsageError("--yes moves an existing output aside", found=f"--if-exists={said.if_exists}")
                code = function(said, **arguments)
            raise typer.Exit(code or 0)

        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]
        added = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=False if name in _SWITCHES else None, annotation=kind
            )
            for name, kind in shown.items()
        ]
        run.__signature__ = signature.replace(parameters=[*own, *added], return_annotation=None)  # pyright: ignore
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
        return run

    return decorate


@contextmanager
def _endings() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a reader that went away end a verb with their own exit codes."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("interrupted") from None
    except BrokenPipeError:
        raise SystemExit(PIPE_CLOSED) from None
