"""Shape a language model, see inside it, prove what changed.

Example:
    import wootz

    run = wootz.train("dpo.yaml")
    print(run.passed, run.verdict["measures"])
    model = run.load()
    print(wootz.generate(model, "What is a crucible?")[0].completions[0].text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wootz.api.evaluate import evaluate
    from wootz.api.gate import gate
    from wootz.api.generate import generate
    from wootz.api.quickstart import quickstart
    from wootz.api.recipe import Recipe, load_recipe
    from wootz.api.report import write_card, write_report
    from wootz.api.train import Run, resume, train
    from wootz.core.errors import WootzError
    from wootz.models import LanguageModel, Sampling, load

__version__ = "0.1.0"

__all__ = [
    "LanguageModel",
    "Recipe",
    "Run",
    "Sampling",
    "WootzError",
    "evaluate",
    "gate",
    "generate",
    "load",
    "load_recipe",
    "quickstart",
    "resume",
    "train",
    "write_card",
    "write_report",
]

_HOME = {
    "LanguageModel": "models",
    "Recipe": "api.recipe",
    "Run": "api.train",
    "Sampling": "models",
    "WootzError": "core.errors",
    "evaluate": "api.evaluate",
    "gate": "api.gate",
    "generate": "api.generate",
    "load": "models",
    "load_recipe": "api.recipe",
    "quickstart": "api.quickstart",
    "resume": "api.train",
    "train": "api.train",
    "write_card": "api.report",
    "write_report": "api.report",
}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that ``import wootz`` loads nothing heavy."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"wootz.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
