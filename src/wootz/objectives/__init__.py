"""Losses as named sums over a batch, and the token reducers that feed them. Imports torch and core only.

To add an objective: one file with a pure function, the configuration whose ``build()`` binds it, and its registry line
here; the conformance suite takes it from there.
"""

from wootz.core.registry import Registry

OBJECTIVES = Registry(
    "objectives",
    {
        "sft": "wootz.objectives.supervised:SFTConfig",
        "dpo": "wootz.objectives.preference:DPOConfig",
    },
)

__all__ = ["OBJECTIVES"]
