"""What scores completions: verifiers, and adapters for what compares."""

from wootz.core.registry import Registry
from wootz.signals.contract import as_signal, checked_score

SIGNALS = Registry(
    "signals",
    {
        "exact": "wootz.signals.text:ExactConfig",
        "contains": "wootz.signals.text:ContainsConfig",
        "choice": "wootz.signals.text:ChoiceConfig",
        "pattern": "wootz.signals.text:PatternConfig",
        "json": "wootz.signals.text:JsonConfig",
    },
)

__all__ = ["SIGNALS", "as_signal", "checked_score"]
