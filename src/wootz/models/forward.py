"""A batch of groups in, one value a trained token out.

The way there is chosen by cost and proven by trial: shared prompts or one row a completion
(:mod:`wootz.models.plans`), fused layers or the model's own (:mod:`wootz.models.fast`), and a head that never holds
[tokens x vocabulary] (:mod:`wootz.models.head`). All give the same numbers, to 1e-5 in fp32, gradients included; what
fails its trial on a model is not used on it, and the model's ``events`` say so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from wootz.core.batch import GroupBatch
from wootz.models.fast import DecoderLayout, causal_lm_of, describe, run_layers
from wootz.models.head import Head, reduce_tokens
from wootz.models.hidden import layers_checkpointed, padded_hidden
from wootz.models.memory import keep_freed_memory
from wootz.models.plans import Plan, PlanName, cheapest, make_plan
from wootz.models.trial import HiddenStates, Trial, make_trial

if TYPE_CHECKING:
    from wootz.models.model import LanguageModel

# What a model's own code raises when it is asked for something it does not do.
_REFUSALS = (NotImplementedError, TypeError, ValueError, RuntimeError, AttributeError, LookupError, StopIteration)


def forward_groups(
    model: LanguageModel, batch: GroupBatch, outputs: Sequence[str] = ("logp",), *, plan: PlanName = "auto"
) -> dict[str, Float[Tensor, " N"]]:
    """Returns named values of the batch's N trained tokens, fp32, in batch order.

    Gradients reach the module's parameters that ask for them. The first call on a model tries out its ways.

    Args:
        outputs: Names in :data:`wootz.objectives.reducers.REDUCERS`, computed in one pass over the logits.
        plan: ``auto`` takes the cheaper one. ``shared`` on a model whose shared plan failed its trial is flat.

    Raises:
        DataError: A trained token that no token precedes.
        UsageError: An unknown output.
    """
    engine = engine_of(model)
    layout = engine.plan(batch, plan)
    if layout.num_slots == 0:
        return {name: torch.zeros(0, device=model.device) for name in outputs}
    hidden, head = engine.hidden(layout, checkpointing=model.checkpointing)
    return reduce_tokens(hidden, batch.targets, head, outputs)


@dataclass
class Engine:
    """How one module is computed: what its trials allow.

    Attributes:
        layout: What the fast layers run on; None when the model's own forward runs.
        head: None when the model does more to its logits than is known: then its own are used, whole.
        shares: Whether its own forward may run the shared plan.
    """

    module: nn.Module
    causal_lm: Any
    layout: DecoderLayout | None
    head: Head | None
    shares: bool
    events: list[dict[str, Any]]

    def plan(self, batch: GroupBatch, name: PlanName = "auto") -> Plan:
        """Returns the plan that the batch will run as."""
        fast = self._fast_layout() is not None
        if name == "flat" or self.head is None or not (fast or self.shares):
            return make_plan(batch, "flat")
        shared = make_plan(batch, "shared")
        if name == "shared" or fast:
            # The fast layers compute the tree's blocks alone: fewer tokens, and never more pairs.
            return shared
        width = self.causal_lm.get_decoder().config.hidden_size
        return cheapest([shared, make_plan(batch, "flat")], width)

    def hidden(self, plan: Plan, *, checkpointing: bool = False) -> tuple[Float[Tensor, "N D"], Head]:
        """Returns the states that the head reads at each predictor, and the head."""
        layout, decoder = self._fast_layout(), self.causal_lm.get_decoder()
        if self.head is None:
            with layers_checkpointed(decoder, checkpointing):
                return padded_hidden(self.causal_lm, plan, output="logits"), Head(nn.Identity())
        if layout is None:
            with layers_checkpointed(decoder, checkpointing):
                return padded_hidden(decoder, plan), self.head
        device = next(self.module.parameters()).device
        embedded = layout.embedding(torch.from_numpy(plan.tokens).to(device))
        return fast_hidden(layout, plan, embedded, checkpointing=checkpointing), self.head

    def _fast_layout(self) -> DecoderLayout | None:
        if self.layout is None:
            return None
        if reason := self.layout.obstacle():
            self._note(f"the model's own layers run: {reason}")
            return None
        return self.layout

    def _note(self, message: str) -> None:
        if not any(event["message"] == message for event in self.events):
            self.events.append({"kind": "fallback", "message": message})


def fast_hidden(
    layout: DecoderLayout, plan: Plan, embedded: Float[Tensor, "T D"], *, checkpointing: bool = False
) -> Float[Tensor, "N D"]:
    """Returns the normed last hidden states at the plan's predictors, by the fast layers."""
    states = run_layers(layout, plan, embedded, checkpointing=checkpointing)
    picked = states.index_select(0, torch.from_numpy(plan.predictors).to(states.device))
    return layout.final_norm(picked).to(embedded.dtype)


def engine_of(model: LanguageModel) -> Engine:
    """Returns the model's engine, made at first use and again when its module is another (an adapter was added)."""
    engine: Engine | None = getattr(model, "_engine", None)
    if engine is None or engine.module is not model.module:
        if model.device.type == "cpu":
            keep_freed_memory()
        engine = _make_engine(model.module, model.events)
        model._engine = engine  # pyright: ignore[reportAttributeAccessIssue]
    return engine


def _make_engine(module: nn.Module, events: list[dict[str, Any]]) -> Engine:
    causal_lm: Any = causal_lm_of(module)
    engine = Engine(module, causal_lm, layout=None, head=_head(causal_lm), shares=False, events=events)
    if engine.head is None:
        engine._note(f"{type(causal_lm).__name__}: its own logits are used whole; its head is not a plain projection")
        return engine
    try:
        trial = make_trial(causal_lm)
    except _REFUSALS as error:
        engine._note(f"{type(causal_lm).__name__}: one row a completion; no trial could be made ({error})")
        return engine
    engine.shares = _passes(engine, trial, "shared prompts", functools.partial(padded_hidden, trial.decoder))
    small = describe(trial.causal_lm)
    if small is None:
        engine._note(f"{type(causal_lm).__name__}: the model's own layers run; the fast ones do not know its parts")
    elif _passes(engine, trial, "fast layers", functools.partial(fast_hidden, small)):
        engine.layout = describe(module)
    return engine


def _passes(engine: Engine, trial: Trial, what: str, hidden: HiddenStates) -> bool:
    try:
        difference = trial.difference("shared", hidden)
    except _REFUSALS as error:
        difference = f"{type(error).__name__}: {error}"
    if difference is not None:
        engine._note(f"{type(engine.causal_lm).__name__}: no {what}, they failed their trial ({difference})")
    return difference is None


@torch.no_grad()
def _head(causal_lm: Any) -> Head | None:
    """Returns the head if the model's logits are what it gives on the decoder's output, measured on a few tokens."""
    module = causal_lm.get_output_embeddings()
    if module is None:
        return None
    head = Head(module, getattr(causal_lm.config, "final_logit_softcapping", None))
    seen: dict[str, Tensor] = {}
    hooks = [
        causal_lm.get_decoder().register_forward_hook(lambda _m, _i, result: seen.update(hidden=result[0])),
        module.register_forward_pre_hook(lambda _m, inputs: seen.update(input=inputs[0])),
    ]
    try:
        tokens = torch.arange(4, device=next(causal_lm.parameters()).device)[None]
        logits = causal_lm(input_ids=tokens, use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    if "input" not in seen or not torch.equal(seen["hidden"], seen["input"]):
        return None
    return head if torch.allclose(head.logits(seen["input"]).float(), logits.float(), rtol=1e-3, atol=1e-4) else None
