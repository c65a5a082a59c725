"""Ways to decode one token at a time, and which of them a model is trusted with.

A decoder holds rows, one a completion that is being written. All give the same logits, to rounding:

- :class:`wootz.models.fast.decode.FastDecoder`: known layers over packed weights and one static cache;
- :class:`CachedDecoder`: the model's own forward and Hugging Face's cache;
- :class:`RecomputingDecoder`: the model's own forward over the whole row, for models whose cache holds something else
  than keys and values, or whose own forward does not take a ragged batch.

The first that passes a trial on the model is used; the model's ``events`` say what failed.
B rows, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from transformers import DynamicCache

from wootz.models.fast import DecoderLayout, causal_lm_of, describe
from wootz.models.fast.decode import FastDecoder, PackedWeights
from wootz.models.forward import engine_of
from wootz.models.head import Head
from wootz.models.trial import make_trial

if TYPE_CHECKING:
    from wootz.models.model import LanguageModel

Prompt = tuple[int, ...]

_TOLERANCE = 1e-4
# What a model's own code raises when it is asked for something it does not do.
_REFUSALS = (NotImplementedError, TypeError, ValueError, RuntimeError, AttributeError, LookupError, AssertionError)


class Decoder(Protocol):
    """Rows that grow by a token a step."""

    def start(self, prompts: Sequence[Prompt], copies: Sequence[int]) -> Float[Tensor, "new V"]:
        """Reads each prompt once, adds ``copies`` rows for it after the rows there are; returns their next logits."""
        ...

    def step(self, tokens: Int64[Tensor, " B"]) -> Float[Tensor, "B V"]:
        """Adds a token to each row; returns the logits of the next."""
        ...

    def select(self, order: Sequence[int]) -> None:
        """Keeps some rows: row ``i`` is then what row ``order[i]`` was."""
        ...


class CachedDecoder:
    """The model's own forward over Hugging Face's cache, rows aligned at their ends.

    Every layer caches all positions, sliding ones too: the model's masks then do the sliding, and rows can come and go.
    """

    def __init__(self, causal_lm: Any) -> None:
        self._model = causal_lm
        self._cache: DynamicCache | None = None
        self._real = torch.zeros(0, 0, dtype=torch.long, device=_device(causal_lm))  # 1 at tokens, 0 at padding

    def start(self, prompts: Sequence[Prompt], copies: Sequence[int]) -> Float[Tensor, "new V"]:
        width, device = max(map(len, prompts)), self._real.device
        tokens = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=device)
        real = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        cache = DynamicCache()
        logits = self._forward(tokens, real, cache)
        rows = torch.repeat_interleave(torch.arange(len(prompts)), torch.tensor(copies)).to(device)
        cache.batch_select_indices(rows)
        self._append(cache, real[rows])
        return logits[rows]

    def step(self, tokens: Int64[Tensor, " B"]) -> Float[Tensor, "B V"]:
        self._real = torch.cat([self._real, self._real.new_ones(len(tokens), 1)], dim=1)
        assert self._cache is not None
        return self._forward(tokens[:, None], self._real, self._cache)

    def select(self, order: Sequence[int]) -> None:
        rows = torch.tensor(order, dtype=torch.long, device=self._real.device)
        self._real = self._real[rows]
        # Columns that are padding in every row are dropped.
        first = int(self._real.any(0).long().argmax()) if len(order) else self._real.shape[1]
        self._real = self._real[:, first:]
        for layer in self._layers(self._cache):
            layer.keys, layer.values = layer.keys[rows, :, first:], layer.values[rows, :, first:]

    def _forward(self, tokens: Tensor, real: Tensor, cache: DynamicCache) -> Tensor:
        positions = (real.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        options: dict[str, Any] = {"logits_to_keep": 1} if _takes(self._model, "logits_to_keep") else {}
        if _takes(self._model, "position_ids"):
            options["position_ids"] = positions
        result = self._model(input_ids=tokens, attention_mask=real, past_key_values=cache, use_cache=True, **options)
        return result.logits[:, -1]

    def _append(self, cache: DynamicCache, real: Tensor) -> None:
        if not len(self._real):
            self._cache, self._real = cache, real
            return
        width = max(real.shape[1], self._real.shape[1])
        for layer, new in zip(self._layers(self._cache), self._layers(cache), strict=True):
            layer.keys = torch.cat([_pad_left(layer.keys, width, 2), _pad_left(new.keys, width, 2)])
            layer.values = torch.cat([_pad_left(layer.values, width, 2), _pad_left(new.values, width, 2)])
        self._real = torch.cat([_pad_left(self._real, width, 1), _pad_left(real, width, 1)])

    @staticmethod
    def _layers(cache: Any) -> list[Any]:
        return [layer for layer in cache.layers if layer.is_initialized]


class RecomputingDecoder:
    """The model's own forward over whole rows, padded after their ends; nothing is kept between steps."""

    def __init__(self, causal_lm: Any) -> None:
        self._model = causal_lm
        self._rows: list[list[int]] = []

    def start(self, prompts: Sequence[Prompt], copies: Sequence[int]) -> Float[Tensor, "new V"]:
        logits = self._forward([list(prompt) for prompt in prompts])
        self._rows += [list(prompt) for prompt, count in zip(prompts, copies, strict=True) for _ in range(count)]
        return logits.repeat_interleave(torch.tensor(copies, device=logits.device), dim=0)

    def step(self, tokens: Int64[Tensor, " B"]) -> Float[Tensor, "B V"]:
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.append(token)
        return self._forward(self._rows)

    def select(self, order: Sequence[int]) -> None:
        self._rows = [self._rows[place] for place in order]

    def _forward(self, rows: list[list[int]]) -> Tensor:
        lengths = torch.tensor([len(row) for row in rows], device=_device(self._model))
        width = int(lengths.max())
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=lengths.device)
        mask = (torch.arange(width, device=lengths.device) < lengths[:, None]).long()
        logits = self._model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        return logits[torch.arange(len(rows), device=lengths.device), lengths - 1]


@dataclass
class Decoding:
    """How one module is decoded: what its trials allow, and packed weights that outlive a call."""

    module: nn.Module
    make_own: Callable[[Any], Decoder]
    layout: DecoderLayout | None
    head: Head | None
    packed: PackedWeights = field(default_factory=PackedWeights)

    def decoder(self, rows: int, length: int) -> Decoder:
        """Returns an empty decoder for at most so many rows of at most so many tokens."""
        if self.layout is None or self.layout.obstacle():
            return self.make_own(causal_lm_of(self.module))
        assert self.head is not None
        return FastDecoder(self.layout, self.head, rows=rows, length=length, packed=self.packed)


def decoding_of(model: LanguageModel) -> Decoding:
    """Returns how the model is decoded; tried at first use, and again when its module is another (an adapter was added)."""
    decoding: Decoding | None = getattr(model, "_decoding", None)
    if decoding is None or decoding.module is not model.module:
        decoding = _make_decoding(model)
        model._decoding = decoding  # pyright: ignore[reportAttributeAccessIssue]
    return decoding


def _make_decoding(model: LanguageModel) -> Decoding:
    engine, name = engine_of(model), type(causal_lm_of(model.module)).__name__
    decoding = Decoding(model.module, RecomputingDecoder, layout=None, head=engine.head)
    try:
        small = _small_model(causal_lm_of(model.module))
    except _REFUSALS as error:
        model.events.append(
            {"kind": "fallback", "message": f"{name}: decoding without a cache; no trial could be made ({error})"}
        )
        return decoding

    def passes(what: str, make: Callable[[], Decoder]) -> bool:
        try:
            error = _largest_difference(small, make())
        except _REFUSALS as reason:
            error = f"{type(reason).__name__}: {reason}"
        if isinstance(error, float) and error <= _TOLERANCE:
            return True
        model.events.append({"kind": "fallback", "message": f"{name}: no {what}, it failed its trial ({error})"})
        return False

    layout = None if engine.layout is None else describe(small)
    if layout is not None:
        head = Head(small.get_output_embeddings(), layout.softcap)
        if passes("fast decoding", lambda: FastDecoder(layout, head, rows=4, length=16, packed=PackedWeights())):
            decoding.layout = engine.layout
    if passes("cached decoding", lambda: CachedDecoder(small)):
        decoding.make_own = CachedDecoder
    return decoding


def _small_model(causal_lm: Any) -> Any:
    """A fp32 copy with one layer of each kind and a vocabulary of 16."""
    small = make_trial(causal_lm).causal_lm
    weight = causal_lm.get_input_embeddings().weight
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        small.set_input_embeddings(nn.Embedding(16, weight.shape[1]).to(weight.device))
        small.set_output_embeddings(nn.Linear(weight.shape[1], 16, bias=False).to(weight.device))
    return small.requires_grad_(False)


@torch.no_grad()
def _largest_difference(small: Any, decoder: Decoder) -> float:
    """Decodes rows that start, grow, end, move and join later; compares with each row read whole, alone."""
    rows: list[list[int]] = []
    worst = 0.0

    def compare(logits: Tensor, expected_rows: list[list[int]]) -> None:
        nonlocal worst
        for found, row in zip(logits, expected_rows, strict=True):
            tokens = torch.tensor([row], device=found.device)
            expected = small(input_ids=tokens, use_cache=False).logits[0, -1]
            worst = max(worst, float((found - expected).norm() / expected.norm()))

    def start(prompts: list[Prompt], copies: list[int]) -> None:
        logits = decoder.start(prompts, copies)
        new = [list(prompt) for prompt, count in zip(prompts, copies, strict=True) for _ in range(count)]
        compare(logits, new)
        rows.extend(new)

    def step(count: int) -> None:
        for round_ in range(count):
            tokens = [(3 + 5 * place + round_) % 16 for place in range(len(rows))]
            for row, token in zip(rows, tokens, strict=True):
                row.append(token)
            compare(decoder.step(torch.tensor(tokens, device=_device(small))), rows)

    start([(1, 2, 3, 4, 5, 6), (1, 7)], [2, 1])
    step(2)
    decoder.select([2, 1])
    rows[:] = [rows[2], rows[1]]
    step(1)
    start([(9,), (8, 4, 1, 0, 2, 6, 11, 3, 3)], [1, 1])
    step(3)
    return worst


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _takes(module: nn.Module, option: str) -> bool:
    return option in inspect.signature(module.forward).parameters


def _pad_left(tensor: Tensor, width: int, dim: int) -> Tensor:
    missing = width - tensor.shape[dim]
    if not missing:
        return tensor
    shape = [*tensor.shape]
    shape[dim] = missing
    return torch.cat([tensor.new_zeros(shape), tensor], dim=dim)
