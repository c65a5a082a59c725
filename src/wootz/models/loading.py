"""Loads models and tokenizers from any spec, onto a device, ready to train or not."""

from __future__ import annotations

from typing import Any, Literal

import torch

from wootz.core.errors import MissingError, ModelError, UsageError
from wootz.models.config import LoraConfig, ModelConfig
from wootz.models.lora import check_asked, open_adapter, same_base
from wootz.models.model import LanguageModel
from wootz.models.pretrained import Pretrained, check_fit
from wootz.models.spec import parse_spec, read_adapter_config

Train = Literal["no", "lora", "full"]
DTypeName = Literal["auto", "fp32", "bf16"]


def load(
    model: str | ModelConfig,
    *,
    dtype: DTypeName = "auto",
    device: str = "auto",
    train: Train = "no",
    lora: LoraConfig | None = None,
    seed: int = 0,
) -> Any:
    """Returns the model that a spec names: a LanguageModel, or a RemoteModel for an endpoint.

    Args:
        model: A spec, or a recipe's ``model`` section, which then says dtype and lora itself.
        dtype: Type of the weights that compute.
        device: ``auto`` takes an accelerator where there is one.
        train: ``lora`` puts a fresh adapter on, or continues the one that the spec names; ``full`` makes every weight
            trainable.
        lora: A fresh adapter's shape.
        seed: Seed of a fresh adapter's random half.

    Raises:
        ModelError: A model that cannot be used as it is, with the fix.
        MissingError: A model, package or device that is not here.
    """
    config = _settings(model, dtype, lora, train)
    if parse_spec(config.base, revision=config.revision).kind == "endpoint":
        from wootz.models.remote import RemoteModel

        if train != "no":
            raise ModelError("an endpoint has no weights to train", where=config.base, fix="name a model folder")
        return RemoteModel(config.base)
    place = resolve_device(device)
    pretrained = Pretrained(config)
    adapter = pretrained.spec.adapter
    if adapter is not None and train == "full":
        raise ModelError(
            "full training would drop the adapter", where=config.base, fix="model: {lora: {}} trains it on"
        )
    if adapter is not None and train == "lora" and config.lora is not None:
        check_asked(config.lora, adapter)
    tokenizer = pretrained.load_tokenizer()
    module = pretrained.load_module(resolve_dtype(config.dtype, place)).requires_grad_(False).to(place)
    check_fit(tokenizer, module.get_input_embeddings().weight.shape[0], where=config.base)  # pyright: ignore
    base_spec, revision = pretrained.spec.base, pretrained.options.get("revision")
    loaded = LanguageModel(module, tokenizer, spec=config.base, base_spec=base_spec, revision=revision)
    loaded.events += [{"kind": "info", "message": note} for note in pretrained.notes]
    _compare_ends(loaded)
    if adapter is not None:
        _put_on(loaded, pretrained, train)
    elif train == "lora":
        loaded.add_lora(config.lora or LoraConfig(), seed=seed)
    elif train == "full":
        loaded.train_all()
    return loaded


def _settings(model: str | ModelConfig, dtype: DTypeName, lora: LoraConfig | None, train: Train) -> ModelConfig:
    if lora is not None and train != "lora":
        raise UsageError("lora settings, but no adapter trains", found=f"train={train!r}", fix='train="lora"')
    if isinstance(model, str):
        return ModelConfig(base=model, dtype=dtype, lora=lora)
    if dtype != "auto" or lora is not None:
        raise UsageError("said twice", found="dtype or lora beside a ModelConfig", fix="say it in the ModelConfig")
    return model


def _compare_ends(loaded: LanguageModel) -> None:
    """A tokenizer of another model may show only in this: it ends a text with something else than the model does."""
    ends: Any = loaded.module.generation_config.eos_token_id  # pyright: ignore[reportAttributeAccessIssue]
    known = ends if isinstance(ends, list) else [] if ends is None else [ends]
    own = loaded.tokenizer.eos_token_id
    if known and own is not None and own not in known:
        message = f"the tokenizer's end of sequence is id {own}, the model's {' or '.join(map(str, known))}"
        loaded.events.append({"kind": "warning", "message": message})


def _put_on(loaded: LanguageModel, pretrained: Pretrained, train: Train) -> None:
    """The spec's adapter, on its base."""
    folder = pretrained.spec.adapter
    assert folder is not None
    trainable = train == "lora"
    opened = open_adapter(loaded.module, folder, trainable=trainable, allows_pickles=pretrained.allows_pickles)
    loaded.module = opened.eval()
    declared = read_adapter_config(folder).get("base_model_name_or_path")
    if declared and not same_base(declared, loaded.base_spec):
        message = f"the adapter {folder} was trained on {declared}, here it is on {loaded.base_spec}"
        loaded.events.append({"kind": "warning", "message": message})
    if trainable:
        loaded.continue_adapter()


def load_tokenizer(model: str | ModelConfig) -> Any:
    """Returns the tokenizer of a spec without reading its weights.

    What :func:`load` would refuse and can be known without them is refused here too.
    """
    return Pretrained(model if isinstance(model, ModelConfig) else ModelConfig(base=model)).load_tokenizer()


def resolve_device(name: str) -> torch.device:
    """Returns the device of that name. Raises MissingError when the machine has none, UsageError when it is no name."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(
            "no such kind of device", where="--device", found=name, expected="auto, cpu, cuda, cuda:1 or mps"
        ) from None
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not here.get(device.type, False):
        raise MissingError(f"no {device.type} device on this machine", where="--device", found=name, fix="--device=cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise MissingError("no such device", where="--device", found=name, expected=f"cuda:0 to cuda:{count - 1}")
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Returns the weights' type; ``auto`` is bf16 where the hardware multiplies it fast, else fp32."""
    if name == "auto":
        fast = device.type == "cpu" and _cpu_has_bf16()
        if device.type == "cuda":
            fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if fast else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[name]


def _cpu_has_bf16() -> bool:
    """Whether the CPU has bf16 dot products (AVX512-bf16, AMX, SVE-bf16), not merely code that emulates them."""
    if not hasattr(torch.cpu, "get_capabilities"):
        return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)())
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))
