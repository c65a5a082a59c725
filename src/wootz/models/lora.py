"""Low-rank adapters through peft: put on, continued, copied, merged."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wootz.core.errors import ModelError, nearest
from wootz.models.config import LoraConfig
from wootz.models.spec import read_adapter_config

POLICY = "default"
REFERENCE = "reference"
WEIGHTS = "adapter_model.safetensors"
_PLAIN = (
    "use_dora",
    "modules_to_save",
    "trainable_token_indices",
    "lora_bias",
    "target_parameters",
    "layer_replication",
)


def add_lora(module: Any, config: LoraConfig, *, seed: int) -> Any:
    """Returns the module in a peft wrapper with a fresh adapter, the only part that trains.

    B starts at zero, so that the wrapped model is the base; A is random from ``seed``. Both are fp32 whatever the
    base is. Raises ModelError when a target names no linear layer of the decoder.
    """
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model
    from transformers.pytorch_utils import Conv1D

    layers = decoder_linears(module)
    options = PeftLora(
        r=config.rank,
        lora_alpha=scale_of(config),  # pyright: ignore[reportArgumentType] (peft takes fractions too)
        lora_dropout=config.dropout,
        target_modules=_shortest(module, _targets(layers, config)),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in layers.values()),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers in an old way
        torch.manual_seed(seed)
        return get_peft_model(module, options, adapter_name=POLICY)


def scale_of(config: LoraConfig) -> float:
    """alpha, by default twice the rank: the update is then scaled by 2 at any rank."""
    return 2 * config.rank if config.alpha is None else config.alpha


def decoder_linears(module: Any) -> dict[str, nn.Module]:
    """Returns the linear layers of the decoder by name: not the embeddings, the head, or a vision tower."""
    from transformers.pytorch_utils import Conv1D

    decoder = module.get_decoder()
    prefix = next(name for name, part in module.named_modules() if part is decoder)
    return {
        f"{prefix}.{name}" if prefix else name: layer
        for name, layer in decoder.named_modules()
        if isinstance(layer, nn.Linear | Conv1D)
    }


def _targets(layers: Mapping[str, nn.Module], config: LoraConfig) -> list[str]:
    if config.targets == "all-linear":
        return list(layers)
    found: list[str] = []
    for target in config.targets:
        matching = [name for name in layers if name == target or name.endswith(f".{target}")]
        if not matching:
            known = sorted({_leaf(name) for name in layers})
            close = nearest(target, known)
            raise ModelError(
                f"no linear layer of the decoder is called {target!r}",
                where="model.lora.targets",
                expected=", ".join(known),
                fix=f"targets: [{close}]" if close else "targets: all-linear",
            )
        found += matching
    return list(dict.fromkeys(found))


def _shortest(module: nn.Module, names: list[str]) -> list[str]:
    """Last parts of the names when they mean the same layers: what adapters' configurations usually say."""
    leaves = {_leaf(name) for name in names}
    matching = {name for name, _ in module.named_modules() if _leaf(name) in leaves}
    return sorted(leaves) if matching == set(names) else names


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def open_adapter(module: Any, folder: Path, *, trainable: bool, allows_pickles: bool = False) -> Any:
    """Returns the module in a peft wrapper with the adapter in ``folder``; frozen unless ``trainable``.

    Raises ModelError when its weights are missing, are pickles that were not allowed, or do not all have a place in
    this base.
    """
    from peft import PeftModel
    from safetensors import SafetensorError

    _check_weights(folder, allows_pickles=allows_pickles)
    if trainable:
        _check_trainable(folder)
    declared = read_adapter_config(folder).get("base_model_name_or_path")
    fix = f"{declared}+{folder}" if declared else "name the base that it was trained on"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they warn of is checked below
            wrapped = PeftModel.from_pretrained(module, str(folder), adapter_name=POLICY, is_trainable=trainable)
    except (RuntimeError, ValueError, KeyError, TypeError, OSError, ImportError, SafetensorError) as error:
        found = str(error).strip().splitlines()[0][:200]
        raise ModelError("the adapter does not fit this base", where=str(folder), found=found, fix=fix) from error
    if (folder / WEIGHTS).is_file():
        _check_all_used(wrapped, folder, fix)
    odd = _not_two_factors(wrapped) if trainable else None
    if odd:
        raise _not_plain(folder, odd)
    return wrapped


def _check_weights(folder: Path, *, allows_pickles: bool) -> None:
    if (folder / WEIGHTS).is_file():
        return
    pickle = folder / "adapter_model.bin"
    if not pickle.is_file():
        raise ModelError("the adapter has no weights", where=str(folder), expected=WEIGHTS)
    if not allows_pickles:
        raise ModelError(
            "the adapter's weights are a pickle file, which can run code when loaded",
            where=str(pickle),
            expected=WEIGHTS,
            fix="convert it, or model: {allow: [pickle_weights]} if you trust who made it",
        )


def _check_trainable(folder: Path) -> None:
    """Only two plain factors on linear layers can be trained on: what merging and the reference copy understand."""
    config = read_adapter_config(folder)
    odd = [f"{key}: {config[key]}" for key in _PLAIN if config.get(key)]
    if config.get("peft_type") != "LORA":
        odd.insert(0, f"peft_type: {config.get('peft_type')}")
    if config.get("bias", "none") != "none":
        odd.append(f"bias: {config['bias']}")
    if odd:
        raise _not_plain(folder, "; ".join(odd)[:200])


def _not_plain(folder: Path, found: str) -> ModelError:
    return ModelError(
        "this kind of adapter cannot be trained further",
        where=str(folder / "adapter_config.json"),
        found=found,
        expected="a plain LoRA adapter",
        fix="merge it into its base first",
    )


def _check_all_used(wrapped: Any, folder: Path, fix: str) -> None:
    """The library drops what does not match without an error; here every stored tensor must be found in the model."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import load_file

    stored = load_file(folder / WEIGHTS)
    loaded = get_peft_model_state_dict(wrapped, adapter_name=POLICY, save_embedding_layers=False)
    odd = sorted(set(loaded) ^ set(stored))
    odd += [
        name for name in stored if name in loaded and not torch.equal(_as(loaded[name], stored[name]), stored[name])
    ]
    if odd:
        raise ModelError(
            "the adapter does not fit this base",
            where=str(folder),
            found=f"{len(odd)} of {len(stored)} tensors have no counterpart, such as {odd[0]}",
            fix=fix,
        )


def _as(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor.detach().to(like.device, like.dtype)


def check_asked(config: LoraConfig, folder: Path) -> None:
    """Raises ModelError when settings given by name contradict the adapter that is continued."""
    stored = read_adapter_config(folder)
    have = {"rank": stored.get("r"), "alpha": stored.get("lora_alpha"), "dropout": stored.get("lora_dropout")}
    for name in sorted(config.model_fields_set):
        asked = getattr(config, name)
        if name == "targets" and asked != "all-linear":
            raise ModelError("a continued adapter keeps its targets", where="model.lora.targets", fix="remove targets")
        if name in have and asked is not None and asked != have[name]:
            raise ModelError(
                f"a continued adapter keeps its {name}",
                where=f"model.lora.{name}",
                found=f"{asked}",
                expected=f"{have[name]}, as in {folder}",
                fix=f"{name}: {have[name]}, or leave it out",
            )


def same_base(declared: str, base: str) -> bool:
    """Whether two names of a base mean the same place."""
    return declared == base or Path(declared).name == base or Path(declared).expanduser().resolve() == Path(base)


@torch.no_grad()
def copy_adapter(wrapped: Any, name: str = REFERENCE) -> None:
    """Adds a frozen copy of the adapter that trains under another name; the one that trains stays active."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers in an old way
        wrapped.add_adapter(name, wrapped.peft_config[POLICY])
    parameters = dict(wrapped.named_parameters())
    part = re.compile(rf"\.{POLICY}(\.|$)")
    for policy_name, parameter in list(parameters.items()):
        if part.search(policy_name):
            copy = parameters[part.sub(rf".{name}\1", policy_name)]
            # Not a cast by copy_: the policy's type is the truth.
            copy.data = parameter.detach().clone()
            copy.requires_grad_(False)
    wrapped.set_adapter(POLICY)


def lora_layers(wrapped: nn.Module) -> list[nn.Module]:
    """Returns the layers that carry an adapter."""
    return [
        layer for layer in wrapped.modules() if hasattr(layer, "get_delta_weight") and hasattr(layer, "lora_dropout")
    ]


@torch.no_grad()
def merged_state(wrapped: Any) -> dict[str, Tensor]:
    """Returns the base's state dict with the policy's update added, W + (alpha / rank) B A, summed in fp32.

    The model itself is not changed. Raises ModelError for adapters that are more than two factors.
    """
    base = wrapped.get_base_model()
    layers = {name: layer for name, layer in base.named_modules() if hasattr(layer, "get_delta_weight")}
    _check_mergeable(wrapped, layers)
    state: dict[str, Tensor] = {}
    for name, tensor in base.state_dict().items():
        owner, is_layer, rest = name.rpartition(".base_layer.")
        if is_layer:
            if rest == "weight" and POLICY in layers[owner].lora_A:  # pyright: ignore[reportOperatorIssue]
                update = layers[owner].get_delta_weight(POLICY)  # pyright: ignore[reportCallIssue]
                tensor = (tensor.float() + update.float()).to(tensor.dtype)
            state[f"{owner}.{rest}"] = tensor
        elif not re.search(r"\.lora_[A-Z]", name):
            state[name] = tensor
    return state


def _check_mergeable(wrapped: Any, layers: Mapping[str, Any]) -> None:
    config = wrapped.peft_config[POLICY]
    found = "" if config.peft_type.value == "LORA" else config.peft_type.value
    found = found or next((key for key in _PLAIN if getattr(config, key, None)), "") or _not_two_factors(wrapped)
    if found:
        raise ModelError("only plain LoRA adapters are merged here", found=found, fix="merge it with peft")
    assert layers, "an adapter without a layer"


def _not_two_factors(wrapped: Any) -> str | None:
    """Names the first adapter that is more than two factors on a linear layer, or that sits on the head."""
    from transformers.pytorch_utils import Conv1D

    base = wrapped.get_base_model()
    for name, layer in base.named_modules():
        if not hasattr(layer, "get_delta_weight"):
            continue
        if getattr(layer, "lora_variant", None):
            return f"a variant of LoRA on {name}"
        if not isinstance(layer.get_base_layer(), nn.Linear | Conv1D) or layer is base.get_output_embeddings():
            return f"an adapter on {name}"
    return None
