"""What stops a run that goes wrong: drift, length, budget, instability. Guards see metrics, never the model."""

from wootz.core.registry import Registry

GUARDS = Registry(
    "guards",
    {
        "kl": "wootz.guards.limits:KLGuardConfig",
        "length": "wootz.guards.limits:LengthGuardConfig",
        "budget": "wootz.guards.limits:BudgetGuardConfig",
        "drift": "wootz.guards.preference:DriftGuardConfig",
        "early_stop": "wootz.guards.preference:EarlyStopGuardConfig",
        "spike": "wootz.guards.health:SpikeGuardConfig",
    },
)

__all__ = ["GUARDS"]
