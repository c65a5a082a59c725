"""The one loop, and what it is given: sources, annotators, the optimiser, checkpoints, processes."""

from wootz.training.config import EvalConfig, OptimConfig, TrainConfig

__all__ = ["EvalConfig", "OptimConfig", "TrainConfig"]
