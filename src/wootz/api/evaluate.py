"""Measuring one model, without comparing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wootz.core.rundir import RunDir
from wootz.evals import evaluate as measure
from wootz.models import LanguageModel, load


def evaluate(
    model: str | LanguageModel,
    suite: str = "small",
    *,
    out: RunDir | str | Path | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Any = None,
) -> dict[str, Any]:
    """Returns what a suite's measures say of a model: ``{"model", "suite", "measures": {NAME: {"value", "n", ...}}}``.

    Args:
        model: Any model spec, or a model that is loaded.
        suite: A built-in suite, or a JSONL file of items.
        out: A directory to keep the items and their answers in.
        seed: Of everything sampled.
        device: Where the model computes.
        progress: A display.
    """
    loaded = load(model, device=device) if isinstance(model, str) else model
    run = RunDir.create(out) if isinstance(out, (str, Path)) else out
    return measure(loaded, suite, out=run, seed=seed, progress=progress)
