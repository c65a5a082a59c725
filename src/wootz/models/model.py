"""A language model in a run: a plain Hugging Face module with a tokenizer, and what training asks of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from wootz.core.batch import GroupBatch
from wootz.core.errors import ModelError
from wootz.core.records import Group
from wootz.models.config import LoraConfig
from wootz.models.lora import POLICY, REFERENCE, add_lora, copy_adapter, lora_layers
from wootz.models.sampling import Sampling

_NOT_WEIGHTS = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache")


class LanguageModel:
    """A decoder, its tokenizer, and the fp32 masters of what trains.

    The module stays in eval mode: the base's own dropout never acts. An adapter's dropout acts in :meth:`forward`
    while gradients are recorded, and at no other time.

    Numbers are Hugging Face's. One of them surprises: an embedding built with ``padding_idx`` (``pad_token_id`` in the
    configuration) drops the gradient of that row on the input side. In SmolLM2 that row is also the end-of-turn token,
    which under full fine-tuning then learns through the tied head alone.

    Attributes:
        module: The Hugging Face (or peft) module, unmodified.
        tokenizer: Its tokenizer, as it was loaded. Padding is masked by position and never by id, so nothing here
            needs a padding token, and none is invented: saved with the model it would hide the EOS from other tools.
        spec: What it was loaded from.
        base_spec: A spec of the same model without its adapter.
        revision: The commit that a Hub id was resolved to.
        events: Choices and fallbacks on the way, ``{"kind", "message"}``; a run writes them to its events.
        checkpointing: Recompute each layer in the backward pass.
        version: Grows with every change of the weights.
    """

    def __init__(
        self, module: nn.Module, tokenizer: Any, *, spec: str, base_spec: str | None = None, revision: str | None = None
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.spec = spec
        self.base_spec = base_spec or spec
        self.revision = revision
        self.events: list[dict[str, str]] = []
        self.checkpointing = False
        self.version = 0
        self._separate: dict[str, tuple[nn.Parameter, Tensor]] = {}
        self._reference: str | None = None
        self._speaks_as_reference = False

    @property
    def name(self) -> str:
        return Path(self.spec).name or self.spec

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights that compute (an adapter's masters are fp32 whatever it is)."""
        return self.base.get_input_embeddings().weight.dtype

    @property
    def config(self) -> Any:
        return self.base.config

    @property
    def has_adapter(self) -> bool:
        return hasattr(self.module, "peft_config")

    @property
    def base(self) -> Any:
        """The Hugging Face model inside the adapter's wrapper."""
        return self.module.get_base_model() if self.has_adapter else self.module  # pyright: ignore

    @property
    def pad_id(self) -> int:
        """An id to fill batches with. It means nothing: padding is masked by position."""
        known = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id)
        return next((token for token in known if token is not None), 0)

    @property
    def weights_key(self) -> tuple[int, str]:
        """Changes when the weights that compute do, by an update or by switching adapters: a key for derived copies."""
        return self.version, REFERENCE if self._speaks_as_reference else "policy"

    # Computing

    def forward(self, batch: GroupBatch, outputs: Iterable[str] = ("logp",)) -> dict[str, Float[Tensor, " N"]]:
        """Named values of the batch's trained tokens, fp32 [N], in batch order. See :mod:`wootz.models.forward`."""
        from wootz.models.forward import forward_groups

        self._switch_dropout(torch.is_grad_enabled())
        return forward_groups(self, batch.to(self.device), tuple(outputs))

    def generate(
        self,
        groups: list[Group],
        sampling: Sampling,
        *,
        seed: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Group]:
        """The groups with sampled completions. See :mod:`wootz.models.generate`."""
        from wootz.models.generate import generate

        self._switch_dropout(False)
        return generate(self, groups, sampling, seed=seed, progress=progress)

    def _switch_dropout(self, on: bool) -> None:
        if not self.has_adapter or not getattr(self.module.peft_config[POLICY], "lora_dropout", 0.0):  # pyright: ignore
            return
        for layer in lora_layers(self.module):
            layer.train(on)

    # Training

    def train_all(self) -> None:
        """Makes every weight trainable. bf16 weights get fp32 masters, in whose ``.grad`` gradients accumulate."""
        if self.has_adapter:
            raise ModelError("full training would drop the adapter", where=self.spec, fix="merge it first, or train it")
        self.module.requires_grad_(True)
        if self.dtype == torch.float32:
            return
        for name, parameter in self.module.named_parameters():
            master = parameter.detach().float().clone().requires_grad_()
            self._separate[name] = (parameter, master)
            parameter.register_post_accumulate_grad_hook(_move_gradient(master))

    def add_lora(self, config: LoraConfig, *, seed: int = 0) -> None:
        """Puts a fresh adapter on the base; only it trains, in fp32. The reference is the base."""
        if self.has_adapter:
            raise ModelError("the model carries an adapter already", where=self.spec, fix='load it with train="lora"')
        self.module.requires_grad_(False)
        self.module = add_lora(self.module, config, seed=seed).eval()
        self.version += 1
        self._reference = ""

    def continue_adapter(self) -> None:
        """Trains the adapter that was loaded. The reference is a frozen copy of it."""
        copy_adapter(self.module)
        self._reference = REFERENCE

    def masters(self) -> dict[str, Tensor]:
        """The trainable tensors by name: fp32 leaves."""
        if self._separate:
            return {name: master for name, (_, master) in self._separate.items()}
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def refresh(self) -> None:
        """Copies masters into the weights that compute, after an update."""
        for parameter, master in self._separate.values():
            parameter.copy_(master)
        self.version += 1

    def reference(self) -> Reference | None:
        """The model that an adapter's training started from, frozen: the base, or the continued adapter's copy.

        None when all weights train, or none do: nothing in memory then holds what training starts from.
        """
        return None if self._reference is None else Reference(self)

    @contextlib.contextmanager
    def adapter_off(self) -> Iterator[None]:
        """Inside, without gradient, the model computes as its reference, or as its bare base when it has none."""
        module: Any = self.module
        if not self.has_adapter:
            raise ModelError("the model has no adapter to turn off", where=self.spec)
        self._speaks_as_reference = True
        try:
            with torch.no_grad():
                if self._reference != REFERENCE:
                    with module.disable_adapter():
                        yield
                    return
                module.set_adapter(REFERENCE, inference_mode=True)
                try:
                    yield
                finally:
                    module.set_adapter(POLICY)
        finally:
            self._speaks_as_reference = False

    # Keeping

    def fingerprint(self) -> str:
        """A hash of configuration and weights, the adapter included: 32 hexadecimal digits.

        The same after saving and loading; another for weights in another type.
        """
        config = {key: value for key, value in self.config.to_dict().items() if key not in _NOT_WEIGHTS}
        if self.has_adapter:
            adapter: Any = self.module.peft_config[POLICY]  # pyright: ignore
            config["adapter"] = (
                [adapter.r, adapter.lora_alpha] if hasattr(adapter, "lora_alpha") else str(adapter.peft_type)
            )
        digest = hashlib.blake2b(json.dumps(config, sort_keys=True, default=str).encode(), digest_size=16)
        for name, tensor in sorted(self.module.state_dict().items()):
            if f".{REFERENCE}." in name:
                continue
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def save(self, path: str | Path, *, merged: bool = False) -> None:
        """Writes the model to a folder, whole or not at all. See :func:`wootz.models.save.save`."""
        from wootz.models.save import save

        save(self, Path(path), merged=merged)


class Reference:
    """The frozen model inside a model that trains an adapter."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def forward(self, batch: GroupBatch, outputs: Iterable[str] = ("logp",)) -> dict[str, Float[Tensor, " N"]]:
        with self._model.adapter_off():
            return self._model.forward(batch, outputs)

    def masters(self) -> dict[str, Tensor]:
        return {}

    def refresh(self) -> None:
        """It never changes."""


def _move_gradient(master: Tensor) -> Callable[[Tensor], None]:
    def move(parameter: Tensor) -> None:
        assert parameter.grad is not None
        if master.grad is None:
            master.grad = parameter.grad.float()
        else:
            master.grad.add_(parameter.grad)
        parameter.grad = None

    return move
