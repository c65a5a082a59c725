"""Puts a loop together: roles, annotators, source, guards and evaluation, as the recipe and its objective ask."""

from __future__ import annotations

from typing import Any

from wootz.api.recipe import Recipe
from wootz.core.batch import GroupBatch
from wootz.core.errors import RecipeError
from wootz.core.paths import home
from wootz.core.protocols import Annotator, Guard, Objective
from wootz.data import Prepared
from wootz.guards.preference import DriftGuardConfig
from wootz.models import LanguageModel, load
from wootz.training.annotators import DeferredRole, LogpCache, MismatchedRatio, RoleLogp
from wootz.training.distribution import World
from wootz.training.evaluation import HeldOut
from wootz.training.loop import Loop
from wootz.training.recorder import Recorder
from wootz.training.sources import DatasetSource

_TENTH = 10
ANNOTATIONS = frozenset({"ref_logp", "old_logp", "mismatched_ratio"})
"""What an objective may ask for."""


def metrics_produced(recipe: Recipe, objective: Objective) -> set[str]:
    """Returns the names of the metrics that a run records; what a guard watches must be among them."""
    names = {"loss/total", "optim/lr", "optim/grad_norm", "time/step", "mem/peak_mb"}
    names |= set(objective.counts(GroupBatch(())))
    if recipe.eval is not None:
        names.add("eval/total")
    if recipe.eval is not None and recipe.eval.samples:
        names |= {"rollout/length", "rollout/finished"}
        if "ref_logp" in objective.needs.annotations:
            names.add("kl/reference")
    return names


def build_loop(
    recipe: Recipe,
    objective: Objective,
    data: Prepared,
    model: LanguageModel,
    *,
    recorder: Recorder,
    world: World,
) -> Loop:
    """Returns the loop of a recipe, with everything that it is made of. The reference may be asked on the way."""
    model.checkpointing = recipe.train.gradient_checkpointing
    if objective.unit == "batch" and world.size > 1:
        raise RecipeError(
            "this objective compares all rows of a step with each other",
            where="objective",
            found=f"{world.size} processes, each with its own rows",
            fix="run in one process",
        )
    roles: dict[str, Any] = {"policy": model}
    annotators = _annotators(recipe, objective, data, model, roles=roles, world=world)
    source = DatasetSource(data.train, recipe.train, seed=recipe.seed)
    config = recipe.train
    if config.checkpoint_every is None:
        config = config.model_copy(update={"checkpoint_every": max(1, source.num_steps // _TENTH)})
    evaluate = None
    if recipe.eval is not None:
        evaluate = HeldOut(
            groups=data.held_out,
            objective=objective,
            annotators=annotators,
            roles=roles,
            config=recipe.eval,
            recorder=recorder,
            max_tokens=config.micro_tokens,
            seed=recipe.seed,
        )
    return Loop(
        roles=roles,
        source=source,
        objective=objective,
        config=config,
        recorder=recorder,
        seed=recipe.seed,
        annotators=annotators,
        guards=_guards(recipe, objective),
        evaluate=evaluate,
        eval_every=(recipe.eval and recipe.eval.every) or max(1, source.num_steps // _TENTH),
        world=world,
    )


def _guards(recipe: Recipe, objective: Objective) -> list[Guard]:
    """The recipe's guards, and the watch over chosen answers wherever a reference makes it possible."""
    guards = [guard.build() for guard in recipe.guards]
    watch = DriftGuardConfig().build()
    watched = set(watch.needs) <= metrics_produced(recipe, objective) and "ref_logp" in objective.needs.annotations
    if watched and all(guard.name != watch.name for guard in guards):
        guards.append(watch)
    return guards


def _annotators(
    recipe: Recipe, objective: Objective, data: Prepared, model: LanguageModel, *, roles: dict[str, Any], world: World
) -> list[Annotator]:
    """What the objective must be told before each step; the roles that are asked are added to ``roles``.

    An adapter's reference is in the model itself. For full fine-tuning the untouched policy is its own reference: it is
    asked once, before the first update, and the answers are kept on disk under a hash of the weights.
    """
    needed, budget = objective.needs.annotations, recipe.train.micro_tokens
    annotators: list[Annotator] = []
    if "old_logp" in needed:
        annotators.append(RoleLogp("policy", "old_logp", max_tokens=budget))
    if "ref_logp" not in needed:
        return annotators
    reference = model.reference()
    cache = LogpCache(model.fingerprint(), home() / "logp" if reference is None else None)
    ask = RoleLogp("reference", "ref_logp", max_tokens=budget, cache=cache)
    asked = [*data.train, *data.held_out]
    if "mismatched_ratio" in needed:
        annotators.append(other := MismatchedRatio(data.train, data.held_out, reference=ask, max_tokens=budget))
        asked += other.groups
    annotators.append(ask)
    if reference is None:
        ask.annotate(GroupBatch(tuple(asked)).shard(world.rank, world.size), {"reference": model})
        world.barrier()
        reference = DeferredRole(lambda: load(recipe.model, device=str(model.device)))
    roles["reference"] = reference
    return annotators
