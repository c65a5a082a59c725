"""Token reducers: a chunk of logits in, one fp32 value a token out.

The forward pass calls them chunk by chunk over the positions that carry loss, so that a [tokens x vocabulary] tensor
never exists whole. n tokens in the chunk, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def logp(logits: Float[Tensor, "n V"], targets: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Returns log p(target), in nats: the target's logit less the log-sum-exp of its row."""
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    return logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(-1)


def entropy(logits: Float[Tensor, "n V"], targets: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:  # noqa: ARG001
    """Returns the entropy of each row's distribution, in nats: logsumexp(z) - sum(p z).

    A logit of minus infinity has probability 0 and adds 0.
    """
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    probabilities = logits.softmax(-1)
    finite = torch.where(probabilities > 0, logits, torch.zeros_like(logits))
    return logits.logsumexp(-1) - (probabilities * finite).sum(-1)


def log_collision(logits: Float[Tensor, "n V"], targets: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:  # noqa: ARG001
    """Returns log sum_v p(v)^2, the log-probability that two draws agree: logsumexp(2z) - 2 logsumexp(z)."""
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    return (2 * logits).logsumexp(-1) - 2 * logits.logsumexp(-1)


REDUCERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logp": logp,
    "entropy": entropy,
    "log_collision": log_collision,
}
