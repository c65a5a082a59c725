"""Random batches of groups, tiny models in memory, and the slow forward pass that everything is compared with."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
import torch
from torch import Tensor

from tests.tiny import VOCABULARY, make_model, make_tokenizer
from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group, Sequence
from wootz.models import LanguageModel, LoraConfig

UNEVEN = ((9, (5, 7)), (1, (3, 6, 1, 4)), (23, (11,)), (4, (2, 2)))
"""Prompt lengths with completion lengths: prompts of one token and longer than a window, one to four completions."""


def random_batch(
    shapes: Items[tuple[int, Items[int]]] = UNEVEN, *, seed: int = 0, holes: bool = True, vocabulary: int = VOCABULARY
) -> GroupBatch:
    """Returns a batch of random tokens; with ``holes`` a third of the completion tokens is not trained."""
    random = np.random.default_rng(seed)

    def some(length: int) -> tuple[int, ...]:
        return tuple(random.integers(vocabulary, size=length).tolist())

    def completion(length: int) -> Completion:
        mask = random.random(length) < 2 / 3
        return Completion(some(length), per_token={"loss_mask": mask} if holes else {})

    groups = []
    for index, (prompt, lengths) in enumerate(shapes):
        groups.append(Group(str(index), Sequence(some(prompt)), tuple(completion(length) for length in lengths)))
    return GroupBatch(tuple(groups))


def tiny_language_model(
    kind: str, train: str = "no", *, dtype: torch.dtype = torch.float32, dropout: float = 0.0, **config
) -> LanguageModel:
    """Returns a tiny model: ``train`` is ``no``, ``full``, or ``lora`` (whose adapters are not at zero)."""
    model = LanguageModel(make_model(kind, dtype=dtype, **config).requires_grad_(False), make_tokenizer(), spec=kind)
    if train == "full":
        model.train_all()
    if train == "lora":
        model.add_lora(LoraConfig(rank=3, dropout=dropout))
        wake_adapters(model)
    return model


def wake_adapters(model: LanguageModel) -> None:
    """Gives the adapters' second factors random values; they start at zero."""
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.module.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(0.2 * torch.randn(parameter.shape, generator=generator))


def slow_logp(module: torch.nn.Module, batch: GroupBatch) -> Tensor:
    """Log-probs of the trained tokens by the module's own forward on one unpadded row at a time, whole logits."""
    values = []
    for group in batch.groups:
        for completion in group.completions:
            ids = torch.tensor([[*group.prompt.tokens, *completion.tokens]])
            logits = module(input_ids=ids).logits[0].float()
            for index in np.flatnonzero(completion.loss_mask):
                row = logits[len(group.prompt.tokens) + index - 1]
                values.append(row.log_softmax(-1)[completion.tokens[index]])
    return torch.stack(values)


def value_and_gradients(model: LanguageModel, compute) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns the values that ``compute()`` gives, and the masters' gradients of a fixed random sum of them."""
    for master in model.masters().values():
        master.grad = None
    values = compute()
    weights = torch.randn(values.shape, generator=torch.Generator().manual_seed(3))
    if values.requires_grad:
        (values * weights).sum().backward()
    gradients = {}
    for name, master in model.masters().items():
        gradients[name] = torch.zeros_like(master) if master.grad is None else master.grad.clone()
    return values.detach(), gradients


def relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest over tensors of |found - expected| / |expected|, with a floor for tensors that are nearly zero."""
    assert found.keys() == expected.keys()
    floor = 1e-3 * max(float(value.norm()) for value in expected.values())
    return max(
        float((found[name] - expected[name]).norm()) / max(float(expected[name].norm()), floor) for name in found
    )
