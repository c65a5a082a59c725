"""Preference training of SmolLM2-135M: wootz and TRL 1.16.0 on the same 64 pairs, LoRA r=16 on all linear layers, 4 pairs a
step, by DPO, KTO (the same pairs, unpaired), ORPO and SimPO.

Prompts of 150 tokens, answers of 41, natural text (random words would make bf16 gradients meaningless). TRL runs at the best
of the settings tried here, twice: as installed, and with a C allocator that keeps freed memory, which wootz sets by itself
and a user of TRL would have to set in the environment. Equality: fp32 full fine-tuning, first ten losses; and at the timed
bf16 setting the distance of each side's losses from the fp32 trajectory from the same adapter. KTO estimates its baseline
from other mismatched pairs than TRL does, so its losses may differ by as much as that.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from transformers import AutoTokenizer

from benchmarks.harness import ROOT, Side, alternate, document, peer_python
from wootz.evals.items import built_in
from wootz.models import LoraConfig, load
from wootz.models.smollm2 import builtin_folder

PAIRS, PROMPT, ANSWER, PER_STEP = 64, 150, 41, 4
STEPS = PAIRS // PER_STEP
EQUAL_STEPS, DRAWS = 10, 3
TRY_STEPS = 3
# Big buffers stay with the process: page faults cost the peer half of its time otherwise.
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "68719476736",
    "MALLOC_TOP_PAD_": "268435456",
}
ALLOCATORS = {"as installed": {}, "with kept memory": KEPT}


def make_rows(folder: Path, model: str) -> Path:
    """Writes the pairs: passages of the built-in general text, cut to exact numbers of tokens.

    Prompts begin with the BOS token, which some of TRL's trainers add where it is missing.
    """
    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = [row["text"] for row in built_in("general")]

    def cut(start: int, count: int) -> str:
        joined = " ".join(texts[(start + k) % len(texts)] for k in range(6))
        return tokenizer.decode(tokenizer(joined).input_ids[:count])

    path = folder / "rows.jsonl"
    with path.open("w") as file:
        for index in range(PAIRS):
            answers = {"chosen": " " + cut(7 * index + 3, ANSWER), "rejected": " " + cut(11 * index + 5, ANSWER)}
            file.write(json.dumps({"prompt": tokenizer.bos_token + cut(index, PROMPT - 1), **answers}) + "\n")
    return path


def make_adapter(folder: Path, model: str, seed: int) -> Path:
    """Writes an adapter that both sides start from."""
    masters = load(model, dtype="fp32", train="lora", lora=LoraConfig(), seed=seed).masters()
    path = folder / f"adapter{seed}.safetensors"
    save_file({name: value.detach().clone() for name, value in masters.items()}, path)
    return path


def run(objective: str, rounds: int = 3) -> dict[str, Any]:
    """Measures all sides, ``rounds`` times each, alternating; returns the benchmark's document."""
    model = builtin_folder()
    model = str(model[0] if isinstance(model, tuple) else model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = str(make_rows(folder, model))
        common = {"objective": objective, "model": model, "rows": rows, "pairs_per_step": PER_STEP}
        timed = common | {"dtype": "bfloat16", "lora": True, "lr": 1e-5, "steps": STEPS, "adapter": None}
        tried = {name: _try_peer(timed, name) for name in ALLOCATORS}
        best = {name: min(found, key=lambda one: one["seconds_a_pass"]) for name, found in tried.items()}
        ours = _side("ours", timed)
        peer, kept = (_side("peer", timed | _settings(best[name]), allocator=name) for name in ALLOCATORS)
        alternate([ours, peer, kept], rounds)
        equality = _equality(common, folder, model, best["as installed"])
    utilisation = statistics.median(answer["utilisation"] for answer in ours.answers)
    return document(
        objective,
        ours,
        peer,
        equal=equality["equal"],
        tolerance=equality["rule"],
        utilisation=utilisation,
        utilisation_rule="useful matrix products over the rate of plain matrix products in the same run",
        matmul_gflops=statistics.median(answer["matmul_gflops"] for answer in ours.answers),
        peer_with_kept_memory=kept.summary() | {"ratio": kept.summary()["median_s"] / ours.summary()["median_s"]},
        peer_settings_tried=tried,
        equality=equality,
    )


def _side(name: str, settings: dict[str, Any], *, allocator: str = "as installed") -> Side:
    if name == "ours":
        script = ROOT / "benchmarks" / "ours_preference.py"
        return Side(name, Path(sys.executable), script, settings, {"PYTHONPATH": str(ROOT)})
    full = {"attention": "eager", "precompute": True} | settings
    label = name if allocator == "as installed" else f"{name}, {allocator}"
    return Side(
        label, peer_python("trl"), ROOT / "benchmarks" / "peers" / "trl_preference.py", full, ALLOCATORS[allocator]
    )


def _settings(tried: dict[str, Any]) -> dict[str, Any]:
    return {key: tried[key] for key in ("dtype", "attention", "precompute")}


def _try_peer(timed: dict[str, Any], allocator: str) -> list[dict[str, Any]]:
    """Seconds for one pass over the pairs at each setting, from a few steps and the reference pass."""
    tried = []
    with_reference = timed["objective"] in ("dpo", "kto")
    for dtype, attention, precompute in (
        ("bfloat16", "eager", False),
        ("bfloat16", "sdpa", False),
        ("bfloat16", "sdpa", True),
        ("float32", "sdpa", True),
    ):
        if precompute and dtype == "bfloat16" and not with_reference:
            continue  # the same as without
        setting = {"dtype": dtype, "attention": attention, "precompute": precompute}
        answer = _side("peer", timed | setting | {"steps": TRY_STEPS}, allocator=allocator).run()
        steps = answer["seconds"] - answer["precompute_s"]
        tried.append(setting | {"seconds_a_pass": answer["precompute_s"] + steps / TRY_STEPS * STEPS})
        print(f"tried, {allocator}: {tried[-1]}", file=sys.stderr)
    return tried


def _equality(common: dict[str, Any], folder: Path, model: str, best: dict[str, Any]) -> dict[str, Any]:
    """fp32 full fine-tuning once; the timed bf16 setting from DRAWS adapters, because a rounding here or there moves a
    trajectory by as much as the two sides differ."""
    peer = {"attention": best["attention"], "precompute": True}
    full = common | {"dtype": "float32", "lora": False, "lr": 1e-6, "steps": EQUAL_STEPS, "adapter": None}
    pairs = [_kept("ours", full), _kept("peer", full | peer)]
    full_difference = max(abs(a - b) for a, b in zip(*pairs, strict=True))
    draws = []
    for seed in range(DRAWS):
        adapter = str(make_adapter(folder, model, seed))
        some = common | {"lora": True, "lr": 1e-5, "steps": EQUAL_STEPS, "adapter": adapter}
        exact = _kept("peer", some | peer | {"dtype": "float32"})
        mine = _distance(_kept("ours", some | {"dtype": "bfloat16"}), exact)
        peers = _distance(_kept("peer", some | peer | {"dtype": "bfloat16"}), exact)
        draws.append({"ours": mine, "peer": peers})
    means = {side: statistics.fmean(draw[side] for draw in draws) for side in ("ours", "peer")}
    return {
        "equal": full_difference <= 1e-4 and means["ours"] <= means["peer"],
        "rule": "fp32 full: first ten losses within 1e-4; bf16 LoRA: no farther from fp32 than the peer's own bf16",
        "fp32_full_largest_difference": full_difference,
        "fp32_full_losses": {"ours": pairs[0], "peer": pairs[1]},
        "bf16_lora_mean_distance": means,
        "bf16_lora_draws": draws,
    }


def _kept(name: str, settings: dict[str, Any]) -> list[float]:
    """The losses of one run; an allocator changes no number."""
    return _side(name, settings, allocator="with kept memory").run()["losses"]


def _distance(losses: list[float], exact: list[float]) -> float:
    return statistics.fmean(abs(a - b) for a, b in zip(losses, exact, strict=True))
