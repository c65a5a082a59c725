"""A model as it lies on disk or on the Hub: found and checked before its weights are read."""

from __future__ import annotations

import contextlib
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wootz.core.errors import MissingError, ModelError, WootzError
from wootz.models.config import ModelConfig
from wootz.models.spec import BUILTIN, Spec, parse_spec, suggest

_UNKNOWN = "the model cannot be loaded"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class Pretrained:
    """Where a spec's base lies, with its Hugging Face configuration.

    A Hub id is resolved to one commit, from which the weights and the tokenizer are then both read.

    Attributes:
        spec: What the user named.
        place: What ``from_pretrained`` is given; ``options`` go with it.
        config: The model's configuration.
        notes: What was chosen on the way.

    Raises:
        ModelError: It cannot be used as it is.
        MissingError: It is not here and cannot be had.
    """

    def __init__(self, model: ModelConfig) -> None:
        self.spec: Spec = parse_spec(model.base, revision=model.revision)
        self.where = model.base
        self.allows_pickles = "pickle_weights" in model.allow
        self.notes: list[str] = []
        if self.spec.kind == "endpoint":
            raise ModelError(
                "an endpoint has no weights or tokenizer here", where=self.where, fix="name a model folder"
            )
        self.place, self.options = self._find()
        if self.spec.kind in ("folder", "builtin"):
            check_weight_files(Path(self.place), allows_pickles=self.allows_pickles)
        self.config = self._read_config()

    def _find(self) -> tuple[str, dict[str, Any]]:
        if self.spec.kind == "builtin":
            from wootz.models.smollm2 import builtin_folder

            folder, note = builtin_folder()
            self.notes.append(note)
            return str(folder), {}
        if self.spec.kind == "gguf":
            from wootz.models.gguf import check_header

            path = Path(self.spec.place)
            check_header(path)
            return str(path.parent), {"gguf_file": path.name}
        if self.spec.kind == "hub":
            return self.spec.place, {"revision": self._commit()}
        return self.spec.place, {}

    def _commit(self) -> str:
        """The commit that the Hub id means now, or meant when it was last cached."""
        from huggingface_hub import hf_hub_download

        with self._explained():
            path = hf_hub_download(self.spec.place, "config.json", revision=self.spec.revision)
        return Path(path).parent.name

    def _read_config(self) -> Any:
        from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

        with self._explained():
            config = AutoConfig.from_pretrained(self.place, trust_remote_code=False, **self.options)
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ModelError(
                "not a decoder that generates text",
                where=self.where,
                found=f"model type {config.model_type}",
                expected="a causal language model, such as llama, qwen3 or gemma3",
            )
        quantised = getattr(config, "quantization_config", None)
        if quantised is not None and self.spec.kind != "gguf":
            method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
            raise ModelError(
                "the weights are quantised",
                where=self.where,
                found=f"{method}",
                expected="plain weights, or a .gguf file",
            )
        return config

    @property
    def vocabulary(self) -> int:
        """Embedding rows, by the configuration."""
        return self.config.get_text_config().vocab_size

    def load_module(self, dtype: torch.dtype) -> nn.Module:
        """Returns the module with every weight read, in eval mode. Weights that the files lack are an error."""
        from transformers import AutoModelForCausalLM

        options = dict(self.options)
        if self.spec.kind == "gguf":
            from wootz.models.gguf import dequantised

            options |= dequantised() | {"config": self.config}  # reading a GGUF's header takes seconds
        else:
            options["use_safetensors"] = self._has_safetensors()
        with self._explained():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                self.place,
                dtype=dtype,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported and refused below, by name
                **options,
            )
        module, found = loaded
        self._check_complete(found)
        return module.eval()

    def _check_complete(self, found: dict[str, Any]) -> None:
        """Every weight of the model was in the files, in its shape; others left over are noted."""
        problems = [f"{name} missing" for name in sorted(found["missing_keys"])]
        for name, stored, wanted in sorted(found["mismatched_keys"], key=str):
            problems.append(f"{name} of shape {tuple(stored)}, not {tuple(wanted)}")
        if problems:
            raise ModelError(
                "the weights are not those that the configuration asks for",
                where=self.where,
                found=f"{problems[0]}; {len(problems)} in all",
                fix="use the config.json that came with these weights",
            )
        if found["unexpected_keys"]:
            names = sorted(found["unexpected_keys"])
            self.notes.append(f"{len(names)} weights in {self.where} are not part of the model, such as {names[0]}")

    def load_tokenizer(self) -> Any:
        """Returns the tokenizer, as it is: no token is added and no padding token is set.

        Raises ModelError when it has ids beyond the embedding.
        """
        from transformers import AutoTokenizer

        if self.spec.kind in ("folder", "builtin") and not _has_tokenizer(Path(self.place)):
            fix = "copy the tokenizer files of the model it came from into the folder"
            raise ModelError("the folder holds no tokenizer", where=self.where, expected="tokenizer.json", fix=fix)
        with self._explained():
            tokenizer = AutoTokenizer.from_pretrained(
                self.place, config=self.config, trust_remote_code=False, **self.options
            )
        check_fit(tokenizer, self.vocabulary, where=self.where)
        return tokenizer

    def _has_safetensors(self) -> bool | None:
        """What to read: only safetensors, unless pickles are allowed and there is nothing else."""
        if not self.allows_pickles:
            return True
        if self.spec.kind == "hub":
            return None
        return any(weight_files(Path(self.place)))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Inside, the library is quiet, and what it raises becomes an error for the user."""
        from safetensors import SafetensorError

        known = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ImportError)
        with quiet():
            try:
                yield
            except WootzError:
                raise
            except (*known, SafetensorError, pickle.UnpicklingError) as error:
                raise explain(error, self.spec, where=self.where) from error


def weight_files(folder: Path) -> list[Path]:
    """Returns the safetensors files of a whole model."""
    return [path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter")]


def check_weight_files(folder: Path, *, allows_pickles: bool) -> None:
    """Raises ModelError for a folder without weights, or with pickle files that were not allowed by name."""
    if weight_files(folder):
        return
    pickles = [path.name for path in sorted(folder.iterdir()) if path.suffix in PICKLES]
    if not pickles:
        raise ModelError("the folder holds no weights", where=str(folder), expected="*.safetensors")
    if not allows_pickles:
        raise ModelError(
            "the weights are pickle files, which can run code when loaded",
            where=str(folder),
            found=", ".join(pickles[:3]),
            expected="*.safetensors",
            fix="convert them, or model: {allow: [pickle_weights]} if you trust who made them",
        )


def check_fit(tokenizer: Any, rows: int, *, where: str) -> None:
    """Raises ModelError when the tokenizer has an id that the embedding has no row for."""
    vocabulary = tokenizer.get_vocab()
    token, largest = max(vocabulary.items(), key=lambda item: item[1], default=("", -1))
    if largest >= rows:
        raise ModelError(
            "the tokenizer does not fit the model",
            where=where,
            found=f"{len(vocabulary)} tokens, the last {token!r} with id {largest}; {rows} embedding rows",
            fix="use the tokenizer that came with these weights",
        )


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
    return any((folder / name).is_file() for name in names)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside, transformers prints no bars and no notices: what matters in them is checked and raised here."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def explain(error: BaseException, spec: Spec, *, where: str) -> WootzError:
    """Returns the error for the user behind what a library raised."""
    chain = list(_causes(error))
    kinds = {kind.__name__ for link in chain for kind in type(link).__mro__}
    text = "\n".join(str(link) for link in chain)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)[:200]
    if spec.kind == "hub":
        told = _explain_hub(kinds, text, spec, where)
        if told is not None:
            return told
    if "trust_remote_code" in text or "custom code" in text:
        return ModelError(
            "the model wants to run code of its own, which is refused",
            where=where,
            fix="use a model whose architecture transformers has built in",
        )
    if "ImportError" in kinds:
        return MissingError("the model needs a package that is not installed", where=where, found=first)
    if "SafetensorError" in kinds or "HeaderTooLarge" in text:
        return ModelError("a weights file is damaged", where=where, found=first, fix="copy or download it again")
    if "UnpicklingError" in kinds:
        return ModelError("the pickle file holds more than tensors, which is refused", where=where, found=first)
    if "does not recognize this architecture" in text or "Unrecognized model" in text:
        return ModelError("an unknown kind of model", where=where, found=first, fix="pip install -U transformers")
    what = "the GGUF file is damaged, or of a kind that cannot be read" if spec.kind == "gguf" else _UNKNOWN
    return ModelError(what, where=where, found=first)


def _explain_hub(kinds: set[str], text: str, spec: Spec, where: str) -> WootzError | None:
    page = f"https://huggingface.co/{spec.place}"
    if "GatedRepoError" in kinds:
        return MissingError(
            "the model is gated: its licence must be accepted first",
            where=where,
            fix=f"accept it at {page}; hf auth login",
        )
    if "RevisionNotFoundError" in kinds:
        return MissingError("the model has no such revision", where=where, found=f"{spec.revision}", fix=f"see {page}")
    if "RepositoryNotFoundError" in kinds:
        return MissingError(
            "no such folder here, and no such model on the Hub (or a private one)", where=where, fix=_did_you_mean(spec)
        )
    if "RemoteEntryNotFoundError" in kinds and "safetensors" not in text:
        return ModelError(
            "the Hub repository holds no model",
            where=where,
            found="no config.json",
            fix=f"for an adapter: hf download {spec.place} --local-dir DIR, then BASE+DIR",
        )
    if "safetensors" in text and kinds & {"EntryNotFoundError", "OSError"} and "config.json" not in text:
        return ModelError(
            "the model has no safetensors weights",
            where=where,
            fix="model: {allow: [pickle_weights]} if you trust who made them",
        )
    offline = {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError", "ConnectError", "TimeoutException"}
    if kinds & offline or "couldn't connect" in text or "offline" in text:
        return MissingError(
            "no such folder here, nor in the Hub cache, and the Hub cannot be reached",
            where=where,
            fix=_did_you_mean(spec)
            if suggest(spec.place)
            else f"hf download {spec.place}, on a machine that is online",
        )
    return None


def _did_you_mean(spec: Spec) -> str:
    return BUILTIN if suggest(spec.place) else "check the name, or hf auth login"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
