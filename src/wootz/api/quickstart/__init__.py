"""The whole main job on the built-in model, in minutes."""

from wootz.api.quickstart.run import quickstart

__all__ = ["quickstart"]
