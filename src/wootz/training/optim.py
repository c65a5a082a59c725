"""AdamW over named fp32 masters, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from wootz.training.config import OptimConfig


def learning_rate(step: int, num_steps: int, *, peak: float, config: OptimConfig) -> float:
    """Returns the learning rate of ``step`` (1-based): linear warm-up, then the schedule, which ends near 0.

    Example:
        >>> learning_rate(1, 10, peak=1.0, config=OptimConfig(schedule="linear", warmup=0.0))
        1.0
        >>> round(learning_rate(10, 10, peak=1.0, config=OptimConfig(schedule="linear", warmup=0.0)), 3)
        0.1
    """
    warmup = math.ceil(config.warmup * num_steps)
    if step <= warmup:
        return peak * step / warmup
    progress = (step - 1 - warmup) / max(1, num_steps - warmup)
    if config.schedule == "constant":
        return peak
    if config.schedule == "linear":
        return peak * (1 - progress)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


class Optimiser:
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) whose state is saved by parameter name."""

    def __init__(self, masters: Mapping[str, Tensor], config: OptimConfig) -> None:
        self._masters = dict(masters)
        self._config = config
        decayed = [p for p in self._masters.values() if p.ndim >= 2]
        plain = [p for p in self._masters.values() if p.ndim < 2]
        groups = [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=0.0, betas=(config.beta1, config.beta2), fused=True
        )

    def clip(self) -> float:
        """Scales the gradient down to the configured norm; returns the norm it had before."""
        gradients = [p.grad for p in self._masters.values() if p.grad is not None]
        total = torch.nn.utils.get_total_norm(gradients)
        torch.nn.utils.clip_grads_with_norm_(
            [p for p in self._masters.values() if p.grad is not None], self._config.clip_norm, total
        )
        return float(total)

    def step(self, lr: float) -> None:
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()

    def zero_grad(self) -> None:
        self._adamw.zero_grad(set_to_none=True)

    def state_tensors(self) -> dict[str, Tensor]:
        """Moments and step counts, ``NAME/exp_avg`` and so on."""
        return {
            f"{name}/{key}": value.contiguous()
            for name, parameter in self._masters.items()
            for key, value in self._adamw.state.get(parameter, {}).items()
        }

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        for name, parameter in self._masters.items():
            state = {
                key: tensors[f"{name}/{key}"] for key in ("step", "exp_avg", "exp_avg_sq") if f"{name}/{key}" in tensors
            }
            if state:
                self._adamw.state[parameter] = {
                    key: value.clone() if key == "step" else value.clone().to(parameter.device)
                    for key, value in state.items()
                }
