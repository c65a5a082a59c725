"""Losses as named sums over a batch, and the token reducers that feed them. Imports torch and core only.

To add an objective: one file with a pure function, the configuration whose ``build()`` binds it, and its registry line
here; the conformance suite takes it from there.
"""

from wootz.core.registry import Registry

_SINGLE = {
    "sft": "wootz.objectives.supervised:SFTConfig",
    "dpo": "wootz.objectives.preference:DPOConfig",
    "robust_dpo": "wootz.objectives.preference:RobustDPOConfig",
    "ipo": "wootz.objectives.preference:IPOConfig",
    "hinge": "wootz.objectives.preference:HingeConfig",
    "norm_dpo": "wootz.objectives.preference:NormDPOConfig",
    "f_dpo": "wootz.objectives.preference:FDPOConfig",
    "exo": "wootz.objectives.preference:EXOConfig",
    "apo": "wootz.objectives.preference:APOConfig",
    "nca": "wootz.objectives.preference:NCAConfig",
    "bco_pair": "wootz.objectives.preference:BCOPairConfig",
    "sppo": "wootz.objectives.preference:SPPOConfig",
    "discopop": "wootz.objectives.preference:DiscoPOPConfig",
    "dpo_positive": "wootz.objectives.preference:DPOPositiveConfig",
    "aot": "wootz.objectives.preference:AOTConfig",
    "ld_dpo": "wootz.objectives.preference:LDDPOConfig",
    "wpo": "wootz.objectives.preference:WPOConfig",
    "orpo": "wootz.objectives.reference_free:ORPOConfig",
    "simpo": "wootz.objectives.reference_free:SimPOConfig",
    "cpo": "wootz.objectives.reference_free:CPOConfig",
    "kto": "wootz.objectives.unpaired:KTOConfig",
    "bco": "wootz.objectives.unpaired:BCOConfig",
    "ranked": "wootz.objectives.ranked:RankedConfig",
}
SINGLE = Registry("objectives", _SINGLE)
"""Every objective but the sum of several."""
OBJECTIVES = Registry("objectives", _SINGLE | {"mix": "wootz.objectives.mix:MixConfig"})

__all__ = ["OBJECTIVES", "SINGLE"]
