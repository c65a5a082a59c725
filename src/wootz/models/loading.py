"""Loads models and tokenizers from any spec, onto a device, ready to train or not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import torch

from wootz.core.errors import MissingError, ModelError
from wootz.models.config import LoraConfig, ModelConfig
from wootz.models.model import LanguageModel
from wootz.models.spec import Spec, parse_spec

Train = Literal["no", "lora", "full"]
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def load(
    model: str | ModelConfig,
    *,
    dtype: Literal["auto", "fp32", "bf16"] = "auto",
    device: str = "auto",
    train: Train = "no",
    lora: LoraConfig | None = None,
    seed: int = 0,
) -> Any:
    """Returns the model that a spec names.

    Args:
        model: A spec, or a recipe's ``model`` section (which then says dtype and lora itself).
        dtype: Type of the weights that compute.
        device: ``auto`` takes an accelerator where there is one.
        train: ``lora`` puts a fresh adapter on, or continues the spec's own; ``full`` makes every weight trainable.
        lora: The adapter's shape.
        seed: Seed of a fresh adapter's random half.

    Raises:
        ModelError: A folder that cannot be used as it is, with the fix.
        MissingError: A model, package or device that is not here.
    """
    config = model if isinstance(model, ModelConfig) else ModelConfig(base=model, dtype=dtype, lora=lora)
    spec = parse_spec(config.base, revision=config.revision)
    if spec.kind == "endpoint":
        from wootz.models.remote import RemoteModel

        if train != "no":
            raise ModelError("an endpoint has no weights to train", where=config.base, fix="name a model folder")
        return RemoteModel(spec)
    place = resolve_device(device)
    module = _load_module(spec, config, resolve_dtype(config.dtype, place)).to(place)
    tokenizer = _load_tokenizer(spec, config)
    _check_fit(module, tokenizer, config.base)
    loaded = LanguageModel(module, tokenizer, spec=config.base)
    module.requires_grad_(False)
    if spec.adapter is not None:
        _put_adapter(loaded, spec.adapter, trainable=train == "lora")
    elif train == "lora":
        loaded.add_lora(config.lora or LoraConfig(), seed=seed)
    if train == "full":
        if spec.adapter is not None:
            raise ModelError("full training would drop the adapter", where=config.base, fix="merge it first, or use lora")
        loaded.train_all()
    loaded.module.eval()
    return loaded


def load_tokenizer(model: str | ModelConfig) -> Any:
    """Returns the tokenizer of a spec, without its weights."""
    config = model if isinstance(model, ModelConfig) else ModelConfig(base=model)
    spec = parse_spec(config.base, revision=config.revision)
    if spec.kind == "endpoint":
        raise ModelError("an endpoint gives no tokenizer", where=config.base)
    return _load_tokenizer(spec, config)


def resolve_device(name: str) -> torch.device:
    """Returns the device of that name. Raises MissingError when the machine has none."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("cpu")
    device = torch.device(name)
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not here.get(device.type, False):
        raise MissingError(f"no {device.type} device on this machine", where="--device", found=name, fix="--device=cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MissingError(f"no such device: {torch.cuda.device_count()} found", where="--device", found=name)
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Returns the weights' type; ``auto`` is bf16 on accelerators and on CPUs with bf16 instructions, else fp32."""
    if name == "auto":
        fast = device.type == "cuda" or (device.type == "cpu" and _cpu_has_bf16())
        return torch.bfloat16 if fast else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[name]


def _cpu_has_bf16() -> bool:
    capability = torch.backends.cpu.get_cpu_capability()
    return capability.startswith(("AVX512", "SVE")) and bool(
        torch.cpu._is_avx512_bf16_supported() if hasattr(torch.cpu, "_is_avx512_bf16_supported") else False
    )


def _folder_of(spec: Spec) -> tuple[str, dict[str, Any]]:
    """What from_pretrained is given: a place and options."""
    if spec.kind == "builtin":
        from wootz.models.smollm2 import builtin_folder

        return str(builtin_folder()), {}
    if spec.kind == "gguf":
        path = Path(spec.place)
        return str(path.parent), {"gguf_file": path.name}
    if spec.kind == "hub":
        return spec.place, {"revision": spec.revision}
    return spec.place, {}


def _load_module(spec: Spec, config: ModelConfig, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    place, options = _folder_of(spec)
    if spec.kind in ("folder", "builtin"):
        _check_folder(Path(place), config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = AutoModelForCausalLM.from_pretrained(
                place,
                dtype=dtype,
                use_safetensors=None if "pickle_weights" in config.allow or spec.kind == "gguf" else True,
                trust_remote_code=False,
                **options,
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise _explain(error, spec, config) from error
    if spec.kind == "gguf":
        module = _plain(module)
    return module


def _plain(module: Any) -> Any:
    """A GGUF's weights are dequantised on load; the marks of quantisation would forbid saving and training."""
    from transformers import AutoModelForCausalLM

    configuration = module.config
    if hasattr(configuration, "quantization_config"):
        del configuration.quantization_config
    plain = AutoModelForCausalLM.from_config(configuration, dtype=module.dtype)
    plain.load_state_dict(module.state_dict())
    plain.generation_config = module.generation_config
    return plain


def _load_tokenizer(spec: Spec, config: ModelConfig) -> Any:
    from transformers import AutoTokenizer

    place, options = _folder_of(spec)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError) as error:
        if spec.kind == "folder" and not list(Path(place).glob("tokenizer*")):
            fix = "copy the tokenizer files of the model it came from into the folder"
            raise ModelError("the folder holds no tokenizer", where=place, fix=fix) from error
        raise _explain(error, spec, config) from error
    if tokenizer.pad_token_id is None:
        # Padding is masked by position, never by id, so any token will do.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _check_folder(path: Path, config: ModelConfig) -> None:
    if list(path.glob("*.safetensors")):
        return
    pickles = [p.name for p in sorted(path.iterdir()) if p.suffix in _PICKLES]
    if pickles and "pickle_weights" in config.allow:
        return
    if pickles:
        raise ModelError(
            "the weights are pickle files, which can run code when loaded",
            where=str(path),
            found=", ".join(pickles[:3]),
            fix="convert them to safetensors, or model: {allow: [pickle_weights]} if you trust who made them",
        )
    raise ModelError("the folder holds no weights", where=str(path), expected="*.safetensors")


def _check_fit(module: Any, tokenizer: Any, where: str) -> None:
    rows = module.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ModelError(
            "the tokenizer does not fit the model",
            where=where,
            found=f"{len(tokenizer)} tokens, {rows} embedding rows",
            fix="use the tokenizer that came with these weights",
        )


def _put_adapter(model: LanguageModel, folder: Path, *, trainable: bool) -> None:
    from peft import PeftModel

    names = json.loads((folder / "adapter_config.json").read_text())
    if not (folder / "adapter_model.safetensors").is_file():
        raise ModelError("the adapter has no safetensors weights", where=str(folder))
    try:
        model.module = PeftModel.from_pretrained(model.module, str(folder), is_trainable=trainable)  # pyright: ignore
    except (RuntimeError, ValueError, KeyError) as error:
        base = names.get("base_model_name_or_path")
        raise ModelError(
            "the adapter does not fit this base", where=str(folder), found=str(error).splitlines()[0][:200], expected=base
        ) from error
    if trainable:
        model.keep_reference()


def _explain(error: Exception, spec: Spec, config: ModelConfig) -> Exception:
    text = str(error)
    first = text.strip().splitlines()[0][:200] if text.strip() else type(error).__name__
    if spec.kind == "hub":
        gated = "gated" in text.lower() or "401" in text
        fix = (
            "accept its licence on the Hub and set HF_TOKEN" if gated else "check the name, or name a folder on this machine"
        )
        return MissingError("the model cannot be had from the Hub", where=config.base, found=first, fix=fix)
    if "trust_remote_code" in text or "custom code" in text:
        return ModelError("the model wants to run code of its own, which is refused", where=config.base)
    return ModelError("the model cannot be loaded", where=config.base, found=first)
