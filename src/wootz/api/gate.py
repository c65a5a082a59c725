"""A model judged against those it came from, from Python and from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wootz.core.errors import UsageError
from wootz.core.rundir import RunDir
from wootz.evals.subject import Note
from wootz.gates import GateConfig, Parent, Verdict
from wootz.gates import gate as carry_out
from wootz.models import LanguageModel, load


def gate(
    child: str | LanguageModel,
    parents: str | LanguageModel | Sequence[str | LanguageModel],
    config: GateConfig | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    note: Note | None = None,
) -> Verdict:
    """Returns the verdict on a model against its parents, item by item, with intervals.

    Args:
        child: The new model: a spec, or a model that is loaded.
        parents: What it came from, one or several; a spec may end in ``=SUITE`` to be judged on another suite.
        config: As in a recipe's ``gate`` section (default: the limits of the suite ``small``).
        out: Folder for ``verdict.json`` and ``evals/*.json``.

    Raises:
        UsageError, DataError: Something that cannot be measured.
    """
    if not isinstance(config, GateConfig):
        config = GateConfig.model_validate(config or {})
    several = [parents] if isinstance(parents, (str, LanguageModel)) else list(parents)
    if not several:
        raise UsageError("a gate needs a parent", fix="--parent MODEL")
    named = [_parent(one, device) for one in several]
    run = RunDir.create(Path(out), if_exists="resume") if out is not None else None
    model = load(child, device=device) if isinstance(child, str) else child
    return carry_out(model, named, config, out=run, seed=seed, note=note)


def _parent(given: str | LanguageModel, device: str) -> Parent:
    if not isinstance(given, str):
        return Parent(given.name, given)
    spec, _, suite = given.rpartition("=") if "=" in given and not given.startswith("http") else (given, "", "")
    model = load(spec, device=device)
    return Parent(model.name, model, suite or None)
