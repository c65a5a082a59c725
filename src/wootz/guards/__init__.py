"""What stops a run that goes wrong: drift, length, budget, instability. Guards see metrics, never the model."""

from wootz.core.registry import Registry

GUARDS = Registry(
    "guards",
    {
        "kl": "wootz.guards.limits:KLGuardConfig",
        "length": "wootz.guards.limits:LengthGuardConfig",
        "budget": "wootz.guards.limits:BudgetGuardConfig",
        "spike": "wootz.guards.health:SpikeGuardConfig",
    },
)

__all__ = ["GUARDS"]
