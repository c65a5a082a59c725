"""A language model in a run: a plain Hugging Face module with a tokenizer, and what training asks of it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wootz.core.batch import GroupBatch
from wootz.core.records import Group
from wootz.models.config import LoraConfig
from wootz.models.sampling import Sampling

REFERENCE_ADAPTER = "reference"


class LanguageModel:
    """A decoder, its tokenizer, and the fp32 masters of what trains.

    Attributes:
        module: The Hugging Face (or peft) module, unmodified.
        tokenizer: Its tokenizer.
        spec: What it was loaded from.
        events: Fallbacks taken on the way, ``{"kind", "message"}``; a run writes them to its events.
        checkpointing: Recompute each layer in the backward pass.
        version: Grows with every change of the weights; caches of derived weights key on it.
    """

    def __init__(self, module: nn.Module, tokenizer: Any, *, spec: str) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.spec = spec
        self.events: list[dict[str, str]] = []
        self.checkpointing = False
        self.version = 0
        self._separate: dict[str, tuple[nn.Parameter, Tensor]] = {}
        self._reference: str | None = None

    @property
    def name(self) -> str:
        return Path(self.spec).name or self.spec

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights that compute (an adapter's masters are fp32 whatever it is)."""
        return self._base().get_input_embeddings().weight.dtype

    @property
    def config(self) -> Any:
        return self._base().config

    @property
    def has_adapter(self) -> bool:
        return hasattr(self.module, "peft_config")

    def _base(self) -> Any:
        return self.module.get_base_model() if self.has_adapter else self.module  # pyright: ignore

    # Computing

    def forward(self, batch: GroupBatch, outputs: Iterable[str] = ("logp",)) -> dict[str, Tensor]:
        """Named values of the batch's trained tokens, fp32 [N], in batch order. See :mod:`wootz.models.forward`."""
        from wootz.models.forward import forward_groups

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

        return generate(self, groups, sampling, seed=seed, progress=progress)

    # Training

    def train_all(self) -> None:
        """Makes every weight trainable. bf16 weights get fp32 masters, in whose ``.grad`` gradients accumulate."""
        self.module.requires_grad_(True)
        if self.dtype == torch.float32:
            return
        for name, parameter in self.module.named_parameters():
            master = parameter.detach().float().clone().requires_grad_()
            self._separate[name] = (parameter, master)
            parameter.register_post_accumulate_grad_hook(_move_gradient(master))

    def add_lora(self, config: LoraConfig, *, seed: int = 0) -> None:
        """Puts a fresh adapter on the base; only it trains. Its parameters are fp32."""
        from peft import LoraConfig as PeftLora
        from peft import get_peft_model

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.module = get_peft_model(
                self.module,  # pyright: ignore
                PeftLora(
                    r=config.rank,
                    lora_alpha=config.alpha or 2 * config.rank,
                    lora_dropout=config.dropout,
                    target_modules=config.targets if config.targets == "all-linear" else list(config.targets),
                    task_type="CAUSAL_LM",
                ),
            )

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
        """The model that training started from, frozen: the adapter off, or its frozen copy. None when all trains."""
        return Reference(self) if self.has_adapter else None

    def keep_reference(self) -> None:
        """Freezes a copy of the present adapter as the reference of a run that continues it."""
        module: Any = self.module
        weights = {name: p for name, p in module.named_parameters() if ".default." in name}
        module.add_adapter(REFERENCE_ADAPTER, module.peft_config["default"])
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, parameter in weights.items():
                copy = parameters[name.replace(".default.", f".{REFERENCE_ADAPTER}.")]
                copy.copy_(parameter)
                copy.requires_grad_(False)
        module.set_adapter("default")
        self._reference = REFERENCE_ADAPTER

    @contextlib.contextmanager
    def adapter_off(self) -> Iterator[None]:
        """Inside, the model computes as its reference: adapter off, or the frozen copy on. No gradient."""
        module: Any = self.module
        with torch.no_grad():
            if self._reference is None:
                with module.disable_adapter():
                    yield
                return
            trainable = [p for p in module.parameters() if p.requires_grad]
            module.set_adapter(self._reference)
            try:
                yield
            finally:
                module.set_adapter("default")
                for parameter in module.parameters():
                    parameter.requires_grad_(False)
                for parameter in trainable:
                    parameter.requires_grad_(True)

    # Keeping

    def fingerprint(self) -> str:
        """A hash of configuration and weights, adapter included: 32 hexadecimal digits."""
        digest = hashlib.blake2b(self.config.to_json_string().encode(), digest_size=16)
        for name, tensor in sorted(self.module.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path, *, merged: bool = False) -> None:
        """Writes the model to a folder, whole or not at all. See :func:`wootz.models.save.save`."""
        from wootz.models.save import save

        save(self, Path(path), merged=merged)


class Reference:
    """The frozen model inside a model that trains an adapter."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def forward(self, batch: GroupBatch, outputs: Iterable[str] = ("logp",)) -> dict[str, Tensor]:
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
