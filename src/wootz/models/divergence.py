"""How far two models' next-token distributions are apart."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from wootz.core.batch import GroupBatch
from wootz.core.errors import ModelError
from wootz.models.forward import engine_of
from wootz.models.model import LanguageModel

CHUNK = 64


@torch.no_grad()
def token_kl(model: LanguageModel, other: LanguageModel, batch: GroupBatch) -> Float[Tensor, " N"]:
    """Returns KL(model || other) of the next-token distribution at each trained token, nats, over the whole vocabulary.

    Raises:
        ModelError: The models have different vocabularies.
    """
    states = []
    for one in (model, other):
        engine = engine_of(one)
        plan = engine.plan(batch.to(one.device))
        states.append(engine.hidden(plan, checkpointing=False))
    pieces = []
    (mine, my_head), (theirs, their_head) = states
    for start in range(0, len(mine), CHUNK):
        p = _log_probs(my_head, mine[start : start + CHUNK])
        q = _log_probs(their_head, theirs[start : start + CHUNK]).to(p.device)
        if p.shape != q.shape:
            raise ModelError("the models have different vocabularies", found=f"{p.shape[1]} and {q.shape[1]} tokens")
        # A difference of computations, not of models, can come out a hair below 0.
        pieces.append((p.exp() * (p - q)).sum(-1).clamp(min=0))
    return torch.cat(pieces) if pieces else torch.zeros(0)


def _log_probs(head, hidden: Float[Tensor, "n D"]) -> Float[Tensor, "n V"]:
    logits = hidden if head is None else head.logits(hidden)
    return logits.float().log_softmax(-1)
