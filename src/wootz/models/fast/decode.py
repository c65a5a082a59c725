"""One token at a time through the fast layers: prompts read once, one static cache, weights packed for few rows.

Rows are written from slot 0 of the cache on, so a row may join at any step and the last rows may take the places of
those that left; positions, not slots, say what a query sees. B rows, K key-value heads of G query heads each, E head
width, S slots, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group
from wootz.core.records import Sequence as Tokens
from wootz.models.fast import kernels
from wootz.models.fast.attention import Block, make_blocks
from wootz.models.fast.layer import FastLayer
from wootz.models.fast.layout import DecoderLayout, LayerLayout, Norm, Projection
from wootz.models.head import Head
from wootz.models.plans import Plan, make_plan

_ROWS_HINT = 64
"""Rows that packed weights are laid out for; other numbers of rows are right too, and nearly as fast."""


@dataclass
class PackedWeights:
    """Copies of weights in the order in which a CPU's bf16 products read them; elsewhere the weights themselves.

    Kept across calls and made again for a weight that was updated, or whose storage is another. Adapters are not part
    of it: they are applied beside it (see :class:`_Linear`), so training one never packs anything anew.
    """

    _copies: dict[int, tuple[tuple[int, int], Tensor]] = field(default_factory=dict)

    def linear(self, weight: Float[Tensor, "out in"], versions: tuple[int, ...], key: int) -> _Product:
        """Returns x -> x W' for the weight; ``versions`` change with its values, ``key`` names it."""
        if not _packs(weight):
            return _Product(weight, packed=False)
        state = (weight.data_ptr(), hash(versions))
        if key not in self._copies or self._copies[key][0] != state:
            self._copies[key] = (state, torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS_HINT))
        return _Product(self._copies[key][1], packed=True)


@dataclass(frozen=True)
class _Product:
    weight: Tensor
    packed: bool

    def __call__(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, bias, "none", [], "")
        return F.linear(x, self.weight, bias)


def _packs(weight: Tensor) -> bool:
    ops: Any = torch.ops.mkldnn
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and hasattr(ops, "_reorder_linear_weight")
        and bool(ops._is_mkldnn_bf16_supported())
    )


class _Linear:
    """A projection with its adapters at one moment: y = x W' + b + (x A') B'.

    The factors of all its parts are stacked: A along the ranks, B (scaled) with zeros where a part does not write.
    They stay beside the weights, because a merged bf16 weight rounds away an update smaller than 1/256 of it: an
    adapter early in training would be sampled as if it were not there.
    """

    def __init__(self, projection: Projection, packed: PackedWeights) -> None:
        weight = projection.weight
        versions = tuple(part._version for part in projection.weights)
        self._product, self._bias = packed.linear(weight, versions, id(projection.layers[0])), projection.bias
        self._a = self._b = None
        adapters = projection.adapters()
        present = [adapter for adapter in adapters if adapter is not None]
        if not present:
            return
        self._a = torch.cat([adapter.a.detach() for adapter in present]).to(weight.dtype)
        b = torch.zeros(len(weight), len(self._a), device=weight.device)
        row = rank = 0
        for adapter, size in zip(adapters, projection.sizes, strict=True):
            if adapter is not None:
                b[row : row + size, rank : rank + len(adapter.a)] = adapter.b.detach() * adapter.scaling
                rank += len(adapter.a)
            row += size
        self._b = b.to(weight.dtype)

    def __call__(self, x: Float[Tensor, "B in"]) -> Float[Tensor, "B out"]:
        y = self._product(x, self._bias)
        if self._a is not None and self._b is not None:
            y.addmm_(x @ self._a.T, self._b.T)
        return y


class _Layer:
    """A layer's projections at one moment, and its part of the cache."""

    def __init__(self, layout: LayerLayout, packed: PackedWeights, cache: Float[Tensor, "2 R K S E"]) -> None:
        self.layout, self.keys, self.values = layout, cache[0], cache[1]
        self._dtype = cache.dtype
        self._qkv, self._out = _Linear(layout.qkv, packed), _Linear(layout.out, packed)
        self._gate_up, self._down = _Linear(layout.gate_up, packed), _Linear(layout.down, packed)

    def step(
        self,
        x: Float[Tensor, "B D"],
        places: Int64[Tensor, " BK"],
        bias: Float[Tensor, "B 1 1 S"],
        cos: Float[Tensor, "B 1 1 half"],
        sin: Float[Tensor, "B 1 1 half"],
    ) -> Float[Tensor, "B D"]:
        layout = self.layout
        q, k, v = self._heads(self._qkv(kernels.rms_norm(x, layout.attention_norm, self._dtype)[0]), cos, sin)
        self._write(self.keys, places, k)
        self._write(self.values, places, v)
        count, slots = len(x), bias.shape[-1]
        # The query heads of a key-value head stand where queries of one head would: its keys are read once.
        mixed = F.scaled_dot_product_attention(
            q,
            self.keys[:count, :, :slots],
            self.values[:count, :, :slots],
            attn_mask=bias.expand(-1, q.shape[1], q.shape[2], -1),
            scale=layout.scale,
        )
        x = x + _post_norm(self._out(mixed.flatten(1)), layout.attention_post_norm)
        gated = kernels.gated(self._gate_up(kernels.rms_norm(x, layout.mlp_norm, self._dtype)[0]), layout.activation)
        return x + _post_norm(self._down(gated), layout.mlp_post_norm)

    def _heads(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normed and rotated queries [B, K, G, E] and keys [B, K, 1, E], values [B, K, 1, E]."""
        layout = self.layout
        heads = qkv.unflatten(1, (-1, layout.head_dim))
        q, k, v = heads.split((layout.num_heads, layout.num_kv_heads, layout.num_kv_heads), dim=1)
        if layout.q_norm:
            q = kernels.rms_norm(q, layout.q_norm)[0]
        if layout.k_norm:
            k = kernels.rms_norm(k, layout.k_norm)[0]
        # Rotated together: half as many small operations.
        both = torch.cat([q, k], dim=1).unsqueeze(1)
        rotated = torch.empty_like(both)
        kernels.rotate(both, cos, sin, out=rotated)
        q, k = rotated[:, 0].split((layout.num_heads, layout.num_kv_heads), dim=1)
        return q.unflatten(1, (layout.num_kv_heads, -1)), k.unsqueeze(2), v.unsqueeze(2)

    @staticmethod
    def _write(cache: Float[Tensor, "R K S E"], places: Int64[Tensor, " BK"], new: Float[Tensor, "B K 1 E"]) -> None:
        cache.flatten(0, 2).index_copy_(0, places, new.reshape(-1, new.shape[-1]))

    def fill(self, keys: Tensor, values: Tensor, source: Int64[Tensor, " N"], places: Int64[Tensor, " NK"]) -> None:
        """Writes keys and values [K, T, E] of the slots ``source`` to the places, slot by slot and head by head."""
        for cache, new in ((self.keys, keys), (self.values, values)):
            self._write(cache, places, new.index_select(1, source).transpose(0, 1).unsqueeze(2))


class FastDecoder:
    """Decodes a described model; a :class:`wootz.models.decoders.Decoder`.

    Args:
        rows: Most rows at once.
        length: Most tokens of a row, prompt included.
        packed: Where packed weights are kept.
    """

    def __init__(self, layout: DecoderLayout, head: Head, *, rows: int, length: int, packed: PackedWeights) -> None:
        first = layout.layers[0]
        self._layout, self._head = layout, head
        self._device, self._dtype = first.out.weight.device, layout.dtype
        self._length, self._kv_heads = length, first.num_kv_heads
        if len({(layer.num_kv_heads, layer.head_dim) for layer in layout.layers}) > 1:
            raise NotImplementedError("layers of different head shapes")
        shape = (len(layout.layers), 2, rows, self._kv_heads, length, first.head_dim)
        self._cache = _zeros(shape, self._dtype, self._device)
        self._layers = [_Layer(layer, packed, cache) for layer, cache in zip(layout.layers, self._cache, strict=True)]
        self._lengths = np.zeros(0, dtype=np.int64)  # tokens of each row that are in the cache
        module = head.module
        plain = type(module) is nn.Linear
        self._unembed: Any = (
            packed.linear(module.weight.detach(), (module.weight._version,), id(module)) if plain else module
        )
        self._head_bias = {"bias": module.bias} if plain else {}

    def start(self, prompts: Sequence[tuple[int, ...]], copies: Sequence[int]) -> Float[Tensor, "new V"]:
        plan, slots = _prompt_plan(prompts)
        first_row = len(self._lengths)
        sources, rows, positions = [], [], []
        owner = np.repeat(np.arange(len(prompts)), copies)
        for offset, prompt in enumerate(owner):
            sources.append(slots[prompt])
            rows.append(np.full(len(slots[prompt]), first_row + offset))
            positions.append(np.arange(len(slots[prompt])))
        source = torch.from_numpy(np.concatenate(sources)).to(self._device)
        places = self._places(np.concatenate(rows), np.concatenate(positions))
        states = self._read(plan, source, places)
        self._lengths = np.concatenate([self._lengths, [len(slots[prompt]) for prompt in owner]])
        return self._logits(states)[torch.from_numpy(owner).to(self._device)]

    def step(self, tokens: Int64[Tensor, " B"]) -> Float[Tensor, "B V"]:
        positions = torch.from_numpy(self._lengths).to(self._device)
        places = self._places(np.arange(len(self._lengths)), self._lengths)
        x = self._embed(tokens)
        tables, biases = self._tables(positions), self._biases(positions)
        for layer in self._layers:
            x = layer.step(x, places, biases[layer.layout.window], *tables[layer.layout.kind])
        self._lengths = self._lengths + 1
        return self._logits(x)

    def select(self, order: Sequence[int]) -> None:
        moved = [(place, old) for place, old in enumerate(order) if place != old]
        if moved:
            to, source = (torch.tensor(rows, device=self._device) for rows in zip(*moved, strict=True))
            used = int(self._lengths.max())
            for cache in self._cache.flatten(0, 1):
                cache[to, :, :used] = cache[source, :, :used]
        self._lengths = self._lengths[np.asarray(order, dtype=np.int64)]

    def _read(self, plan: Plan, source: Tensor, places: Tensor) -> Float[Tensor, "prompts D"]:
        """Runs the prompts, fills the cache, returns the last layer's output at their ends."""
        x = self._embed(torch.from_numpy(plan.tokens).to(self._device))
        tables = self._tables(torch.from_numpy(plan.positions).to(self._device))
        blocks: dict[tuple[int | None, int], list[Block]] = {}
        for layer in self._layers:
            layout = layer.layout
            key = (layout.window, layout.num_heads // layout.num_kv_heads)
            if key not in blocks:
                blocks[key] = make_blocks(plan, key[0], group=key[1], dtype=self._dtype, device=self._device)
            x, kept = FastLayer(layout, blocks[key], *tables[layout.kind]).run(x)
            layer.fill(kept.k, kept.v, source, places)
        ends = torch.from_numpy(plan.predictors).to(self._device)
        return x.index_select(0, ends)

    def _embed(self, tokens: Int64[Tensor, " T"]) -> Float[Tensor, "T D"]:
        """The residual stream's beginning; the stream is fp32 whatever the weights are, as in the fast layers."""
        return self._layout.embedding(tokens).float()

    def _logits(self, states: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        logits = self._unembed(self._layout.final_norm(states).to(self._dtype), **self._head_bias)
        softcap = self._head.softcap
        return logits if softcap is None else softcap * torch.tanh(logits / softcap)

    def _places(self, rows: np.ndarray, positions: np.ndarray) -> Int64[Tensor, " NK"]:
        """Places in the flattened [R, K, S] cache, head by head in each."""
        heads = np.arange(self._kv_heads)
        flat = (rows[:, None] * self._kv_heads + heads) * self._length + positions[:, None]
        return torch.from_numpy(flat.reshape(-1)).to(self._device)

    def _tables(self, positions: Int64[Tensor, " T"]) -> dict[str, tuple[Tensor, Tensor]]:
        half = self._layout.layers[0].head_dim // 2
        tables = self._layout.rotary(positions)
        return {kind: (cos[:, None, None, :half], sin[:, None, None, :half]) for kind, (cos, sin) in tables.items()}

    def _biases(self, positions: Int64[Tensor, " B"]) -> dict[int | None, Float[Tensor, "B 1 1 S"]]:
        """0 at the slots that each row's query sees, minus infinity elsewhere, by window."""
        slots = torch.arange(int(self._lengths.max()) + 1, device=self._device)
        behind = positions[:, None] - slots

        def bias(seen: Bool[Tensor, "B S"]) -> Tensor:
            zeros = torch.zeros(seen.shape, dtype=self._dtype, device=self._device)
            return zeros.masked_fill_(~seen, -torch.inf)[:, None, None]

        windows = {layer.layout.window for layer in self._layers}
        return {w: bias((behind >= 0) if w is None else (behind >= 0) & (behind < w)) for w in windows}


def _prompt_plan(prompts: Sequence[tuple[int, ...]]) -> tuple[Plan, list[Int64[np.ndarray, " P"]]]:
    """Returns the plan that reads the prompts, what all begin with once, and the slots of each prompt in it.

    Its predictors are the prompts' last tokens: a plan predicts completions, so each prompt is followed by one token
    that nothing reads.
    """
    shared = _common_prefix(prompts)
    if shared:
        texts = [
            Completion((*prompt[shared:], 0), per_token={"loss_mask": _only_last(len(prompt) - shared + 1)})
            for prompt in prompts
        ]
        groups = (Group("", Tokens(prompts[0][:shared]), tuple(texts)),)
    else:
        groups = tuple(Group("", Tokens(prompt), (Completion((0,)),)) for prompt in prompts)
    slots, end = [], shared
    for prompt in prompts:
        own = len(prompt) - shared
        slots.append(np.concatenate([np.arange(shared), np.arange(end, end + own)]))
        end += own
    return make_plan(GroupBatch(groups), "shared", merge=False), slots


def _only_last(length: int) -> Bool[np.ndarray, " R"]:
    return np.arange(length) == length - 1


def _common_prefix(prompts: Sequence[tuple[int, ...]]) -> int:
    """Tokens that all prompts begin with; 0 for one prompt."""
    if len(prompts) < 2:
        return 0
    low, high = min(prompts), max(prompts)
    return next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that take memory only once they are written, on a CPU: a row rarely reaches its longest length.

    Not ``empty``: what a query does not see is multiplied by 0, and 0 times a NaN left in memory is NaN.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = int(np.prod(shape)) * torch.finfo(dtype).bits // 8
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape)


def _post_norm(x: Tensor, norm: Norm | None) -> Tensor:
    return x if norm is None else kernels.rms_norm(x, norm)[0]
