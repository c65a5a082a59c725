"""A run directory as one self-contained page: no network, no server, readable without scripts."""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wootz.figures import STYLE, TOKEN_STYLE, interval, number, visible
from wootz.report import inputs
from wootz.report.files import RunFiles, read_run
from wootz.report.items import changes, slices
from wootz.report.judgement import judge
from wootz.report.samples import samples
from wootz.report.training import plots

SHOWN, KEPT, KEPT_SMALL = 420, 20_000, 2_000
"""Characters of a long text shown at once, kept in the page at all, and kept where there are many texts."""
_HERE = Path(__file__).parent


def render(run_dir: str | Path, out: str | Path | None = None) -> Path:
    """Writes the page of a run and returns its path, by default ``report.html`` in the run directory.

    The file appears whole or not at all. It depends on nothing but the run's files: the same files give the same bytes.

    Raises:
        UsageError: There is no such directory.
    """
    target = Path(out) if out is not None else Path(run_dir) / "report.html"
    return write(target, page(read_run(run_dir)))


def page(files: RunFiles) -> str:
    """Returns the page of a run as HTML."""
    judgement = judge(files)
    parts = list(files.parts())
    shown, total = samples(files)
    if not shown and parts:
        shown, total = samples(parts[-1][1])
    told, untold = inputs.events(files)
    return fill(
        "page.html.j2",
        files=files,
        judgement=judgement,
        parents=sorted({measure.against for measure in judgement.measures}),
        facts=inputs.facts(files),
        stages=[(name, *plots(part)) for name, part in parts if part.metrics],
        samples=shown,
        samples_total=total,
        changes=changes(files),
        slices=slices(files, judgement.measures),
        data=inputs.data(files),
        events=told,
        events_left_out=untold,
        recipes=[(name, part) for name, part in parts if part.recipe_text],
        settings=list(inputs.flatten(files.recipe)),
        environment=list(inputs.flatten({k: v for k, v in files.env.items() if k != "schema"})),
        policy=list(inputs.flatten((files.verdict or {}).get("policy"), "policy")) if files.verdict else [],
    )


def write(target: Path, text: str) -> Path:
    """Writes a file whole or not at all; returns its path."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def fill(template: str, **values: Any) -> str:
    """Returns a template's page, with style, script and security policy."""
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    style = "\n".join([STYLE, TOKEN_STYLE, (_HERE / "page.css").read_text(encoding="utf-8")])
    # Nothing may be loaded, and no script may run but this one, whatever a model wrote.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    security = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    common = {"security": security, "style": Markup(style), "script": Markup(script), "version": version("wootz")}
    return _environment().get_template(template).render(**values, **common)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("wootz.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Every text passes here on its way into the page: hidden characters are shown, then markup is escaped.
    environment.finalize = lambda value: value if isinstance(value, Markup) else visible("" if value is None else value)
    environment.filters |= {"number": number, "svg": Markup, "parts": _parts, "interval": interval}
    return environment


def _parts(text: str, *, many: bool = False) -> tuple[str, str, int]:
    """A long text as what is shown, what is folded away, and how many characters are left out altogether."""
    if len(text) <= SHOWN * 1.25:
        return text, "", 0
    kept = KEPT_SMALL if many else KEPT
    return text[:SHOWN], text[SHOWN:kept], max(0, len(text) - kept)
