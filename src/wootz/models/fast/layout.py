"""What a decoder is made of, read off the module itself: the ground for the fast layers and the fast decoding.

A :class:`DecoderLayout` holds no second copy of any weight. Projections that read the same input (query, key and value;
gate and up) are *packed*: one tensor holds their rows, and the module's parameters become views of it, so optimisers,
checkpoints and the module's own forward see no difference. Anything that is not recognised gives None, never a guess;
what is recognised is still compared with the module before it is used (:mod:`wootz.models.fast.verify`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}

_ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"}
_MLP_PARTS = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_PLAIN_NORMS = {"input_layernorm", "post_attention_layernorm"}
_SANDWICH_NORMS = _PLAIN_NORMS | {"pre_feedforward_layernorm", "post_feedforward_layernorm"}


class Unrecognised(ValueError):
    """The module has a part that the layout does not describe; the message names it."""


@dataclass(frozen=True)
class Norm:
    """Root-mean-square normalisation: x / sqrt(mean(x^2) + eps) * (weight + offset). Offset 1 for Gemma, else 0."""

    weight: nn.Parameter
    eps: float
    offset: float


@dataclass(frozen=True)
class Adapter:
    """A low-rank update of one projection: y += scaling * (x A') B'. Parameters as peft holds them (fp32 masters)."""

    a: Float[Tensor, "rank in"]
    b: Float[Tensor, "out rank"]
    scaling: float


@dataclass
class Projection:
    """One or several linear layers that read the same input, their rows stacked in one tensor.

    Submodules are looked up at each use, so adapters that are added, switched off or merged later are seen.

    Attributes:
        owner: The module that holds them.
        names: Their attribute names, in stacking order.
        sizes: Output rows of each.
    """

    owner: nn.Module
    names: tuple[str, ...]
    sizes: tuple[int, ...] = field(init=False)
    _packed: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        layers = self.layers
        if len({layer.weight.dtype for layer in layers}) > 1 or len({layer.bias is None for layer in layers}) > 1:
            raise Unrecognised(f"{self.names}: projections of one input differ in dtype or bias")
        self.sizes = tuple(layer.weight.shape[0] for layer in layers)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        return tuple(getattr(self.owner, name) for name in self.names)

    @property
    def layers(self) -> tuple[nn.Linear, ...]:
        """The plain linear layers, adapters taken off."""
        return tuple(_base_linear(module) for module in self.modules)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return tuple(layer.weight for layer in self.layers)

    @property
    def biases(self) -> tuple[Tensor, ...]:
        return tuple(layer.bias for layer in self.layers if layer.bias is not None)

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        """The stacked rows, without gradient. Stacked anew when a parameter's storage was replaced (``module.to``)."""
        weights = self.weights
        if len(weights) == 1:
            return weights[0].detach()
        if self._packed is None or not _are_views(weights, self._packed):
            self._packed = torch.cat([weight.detach() for weight in weights])
            for weight, rows in zip(weights, self._packed.split(self.sizes), strict=True):
                weight.data = rows
        return self._packed

    @property
    def bias(self) -> Float[Tensor, " out"] | None:
        biases = self.biases
        return torch.cat([bias.detach() for bias in biases]) if biases else None

    def adapters(self) -> tuple[Adapter | None, ...]:
        """The active adapter of each part. Raises Unrecognised for kinds that are more than x A' B'."""
        return tuple(_adapter(module) for module in self.modules)


@dataclass(frozen=True)
class LayerLayout:
    """One decoder layer: x += post(attention(norm(x))); x += post(mlp(norm(x))), ``post`` absent in most families.

    Attributes:
        kind: The layer type that names its mask and rotary table (``full_attention``, ``sliding_attention``).
        window: A query sees keys less than this many positions behind it; None for all.
        scale: Factor of the attention scores.
        activation: Key of :data:`ACTIVATIONS`.
    """

    qkv: Projection
    out: Projection
    gate_up: Projection
    down: Projection
    attention_norm: Norm
    mlp_norm: Norm
    attention_post_norm: Norm | None
    mlp_post_norm: Norm | None
    q_norm: Norm | None
    k_norm: Norm | None
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    kind: str
    window: int | None
    activation: str

    @property
    def projections(self) -> tuple[Projection, ...]:
        return (self.qkv, self.out, self.gate_up, self.down)

    @property
    def norms(self) -> tuple[Norm, ...]:
        every = (
            self.attention_norm,
            self.mlp_norm,
            self.attention_post_norm,
            self.mlp_post_norm,
            self.q_norm,
            self.k_norm,
        )
        return tuple(norm for norm in every if norm is not None)


@dataclass(frozen=True)
class DecoderLayout:
    """A whole decoder: embedding, layers, final norm, head.

    Attributes:
        causal_lm: The Hugging Face model, adapters' wrapper taken off.
        decoder: Its inner model, which gives hidden states.
        embedding: Called with ids, it gives the first hidden states (scaled where the family scales them).
        softcap: Final logits z become softcap * tanh(z / softcap); None for none.
        tied: The head's weight is the embedding's.
    """

    causal_lm: Any
    decoder: Any
    embedding: nn.Module
    layers: tuple[LayerLayout, ...]
    final_norm: nn.Module
    head: nn.Module
    softcap: float | None
    tied: bool
    attention_dropout: float

    @property
    def dtype(self) -> torch.dtype:
        return self.layers[0].out.weight.dtype

    @property
    def width(self) -> int:
        return self.layers[0].out.weight.shape[0]

    def rotary(self, positions: Int64[Tensor, " T"]) -> dict[str, tuple[Tensor, Tensor]]:
        """Cosines and sines, fp32 [T, head_dim], by layer kind, from the module's own rotary embedding.

        The halves convention: (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin).
        """
        like = torch.empty(0, dtype=torch.float32, device=positions.device)
        tables: dict[str, tuple[Tensor, Tensor]] = {}
        for kind in dict.fromkeys(layer.kind for layer in self.layers):
            options = {"layer_type": kind} if hasattr(self.decoder.rotary_emb, "layer_types") else {}
            cos, sin = self.decoder.rotary_emb(like, positions[None], **options)
            tables[kind] = (cos[0], sin[0])
        return tables

    def obstacle(self) -> str | None:
        """Why the fast layers cannot stand in for the module right now, or None: its adapters or dropout may change."""
        try:
            for layer in self.layers:
                for projection in layer.projections:
                    projection.adapters()
        except Unrecognised as reason:
            return str(reason)
        if self.attention_dropout and self.decoder.training:
            return f"attention dropout {self.attention_dropout}"
        return None


def causal_lm_of(module: Any) -> Any:
    """Returns the Hugging Face causal model inside a peft wrapper, or the module itself."""
    return module.get_base_model() if hasattr(module, "get_base_model") else module


def describe(module: Any) -> DecoderLayout | None:
    """Returns the layout of a Hugging Face decoder (peft-wrapped or not), or None when a part is not recognised.

    Recognised: pre-norm RMS layers (with or without norms after attention and MLP, and on queries and keys), rotary
    positions over the whole head, grouped-query attention, gated MLPs, sliding windows, tied or untied heads. The
    projections' parameters become views of packed tensors.
    """
    try:
        return _describe(causal_lm_of(module))
    except Unrecognised:
        return None


def _describe(causal_lm: Any) -> DecoderLayout:
    if not hasattr(causal_lm, "get_decoder") or not hasattr(causal_lm, "get_output_embeddings"):
        raise Unrecognised("not a Hugging Face causal language model")
    decoder, head = causal_lm.get_decoder(), causal_lm.get_output_embeddings()
    _require_parts(decoder, {"embed_tokens", "layers", "norm", "rotary_emb"})
    if head is None or getattr(decoder.config, "use_bidirectional_attention", False):
        raise Unrecognised("not a causal language model with a head")
    embedding = causal_lm.get_input_embeddings()
    layers = tuple(_describe_layer(layer, decoder.config, index) for index, layer in enumerate(decoder.layers))
    layout = DecoderLayout(
        causal_lm=causal_lm,
        decoder=decoder,
        embedding=embedding,
        layers=layers,
        final_norm=decoder.norm,
        head=head,
        softcap=getattr(decoder.config, "final_logit_softcapping", None),
        tied=getattr(head, "weight", None) is getattr(embedding, "weight", 0),
        attention_dropout=float(getattr(decoder.config, "attention_dropout", 0.0) or 0.0),
    )
    cos, _ = layout.rotary(torch.zeros(1, dtype=torch.long, device=layers[0].out.weight.device))[layers[0].kind]
    if cos.shape[-1] != layers[0].head_dim:
        raise Unrecognised("rotary positions over part of the head")
    return layout


def _describe_layer(layer: Any, config: Any, index: int) -> LayerLayout:
    attention, mlp = layer.self_attn, layer.mlp
    norms = {name for name, _ in layer.named_children()} - {"self_attn", "mlp"}
    if norms not in (_PLAIN_NORMS, _SANDWICH_NORMS):
        raise Unrecognised(f"layer parts {sorted(norms)}")
    sandwich = norms == _SANDWICH_NORMS
    _require_parts(layer, norms | {"self_attn", "mlp"})
    _require_parts(attention, _ATTENTION_PARTS, optional={"q_norm", "k_norm"})
    _require_parts(mlp, _MLP_PARTS)
    if getattr(attention, "attn_logit_softcapping", None) or not getattr(attention, "is_causal", True):
        raise Unrecognised("attention with soft-capped or uncausal scores")
    qkv, head_dim = Projection(attention, ("q_proj", "k_proj", "v_proj")), attention.head_dim
    kind = (getattr(config, "layer_types", None) or ["full_attention"] * (index + 1))[index]
    if kind not in ("full_attention", "sliding_attention"):
        raise Unrecognised(f"layer type {kind}")
    # Families without layer types (Mistral) slide in every layer when they have a window.
    slides = kind == "sliding_attention" or not getattr(config, "layer_types", None)
    return LayerLayout(
        qkv=qkv,
        out=Projection(attention, ("o_proj",)),
        gate_up=Projection(mlp, ("gate_proj", "up_proj")),
        down=Projection(mlp, ("down_proj",)),
        attention_norm=_norm(layer.input_layernorm),
        mlp_norm=_norm(layer.pre_feedforward_layernorm if sandwich else layer.post_attention_layernorm),
        attention_post_norm=_norm(layer.post_attention_layernorm) if sandwich else None,
        mlp_post_norm=_norm(layer.post_feedforward_layernorm) if sandwich else None,
        q_norm=_norm(attention.q_norm) if hasattr(attention, "q_norm") else None,
        k_norm=_norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
        num_heads=qkv.sizes[0] // head_dim,
        num_kv_heads=qkv.sizes[1] // head_dim,
        head_dim=head_dim,
        scale=float(attention.scaling),
        kind=kind,
        window=getattr(config, "sliding_window", None) if slides else None,
        activation=_activation(mlp.act_fn),
    )


def _require_parts(module: nn.Module, parts: set[str], *, optional: set[str] = frozenset()) -> None:  # pyright: ignore[reportArgumentType]
    """The module has exactly these children (optional ones may lack) and no parameter of its own."""
    found = {name for name, _ in module.named_children()}
    if found - parts or (parts - optional) - found or module._parameters:
        raise Unrecognised(f"{type(module).__name__} with parts {sorted(found | set(module._parameters))}")


def _base_linear(module: Any) -> nn.Linear:
    base = module.get_base_layer() if hasattr(module, "get_base_layer") else module
    if type(base) is not nn.Linear:
        raise Unrecognised(f"{type(base).__name__} where a linear layer was looked for")
    return base


def _are_views(parts: tuple[Tensor, ...], whole: Tensor) -> bool:
    """Whether the parts lie one after another in ``whole``."""
    if parts[0].dtype != whole.dtype or parts[0].device != whole.device:
        return False
    address = whole.data_ptr()
    for part in parts:
        if part.data_ptr() != address:
            return False
        address += part.numel() * part.element_size()
    return True


def _adapter(module: Any) -> Adapter | None:
    if type(module) is nn.Linear:
        return None
    # Only a model that carries an adapter needs peft.
    from peft.tuners.lora.layer import Linear as LoraLinear

    if type(module) is not LoraLinear:
        raise Unrecognised(f"adapter of type {type(module).__name__}")
    if module.disable_adapters or module.merged:
        return None
    active = [name for name in module.active_adapters if name in module.lora_A]
    if not active:
        return None
    if len(active) > 1:
        raise Unrecognised("several adapters at once")
    name = active[0]
    dropout = module.lora_dropout[name]
    if name in module.lora_variant or module.lora_bias.get(name):
        raise Unrecognised("an adapter that is more than two factors")
    if module.training and getattr(dropout, "p", 0.0) > 0:
        raise Unrecognised("adapter dropout")
    low, high = cast("Any", module.lora_A[name]), cast("Any", module.lora_B[name])
    return Adapter(low.weight, high.weight, float(module.scaling[name]))


def _norm(module: nn.Module) -> Norm:
    """Reads a norm off the module by what it computes, so that a family's convention is measured, not assumed."""
    parameters = dict(module.named_parameters())
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if set(parameters) != {"weight"} or eps is None:
        raise Unrecognised(f"norm of type {type(module).__name__}")
    weight = parameters["weight"]
    with torch.no_grad():
        x = torch.linspace(-1, 2, weight.numel(), dtype=weight.dtype, device=weight.device)
        unit = x.float() * torch.rsqrt(x.float().pow(2).mean() + eps)
        output = module(x[None])[0].float()
    for offset in (0.0, 1.0):
        if torch.allclose(output, unit * (weight.detach().float() + offset), rtol=0.02, atol=1e-3):
            return Norm(weight, float(eps), offset)
    raise Unrecognised(f"norm of type {type(module).__name__}")


def _activation(module: nn.Module) -> str:
    x = torch.linspace(-4, 4, 101)
    with torch.no_grad():
        for name, function in ACTIVATIONS.items():
            if torch.allclose(module(x), function(x), atol=1e-6):
                return name
    raise Unrecognised(f"activation {type(module).__name__}")
