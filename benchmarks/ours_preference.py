"""Our side of the preference benchmarks. Prints one JSON line.

Timed: reference log-probs and training, from tokens in memory to the last update.
"""

import json
import sys
import time

import numpy as np
import torch
from safetensors.torch import load_file

from wootz.core.batch import GroupBatch
from wootz.data import DataConfig, prepare
from wootz.models import LoraConfig, load
from wootz.models.forward import engine_of
from wootz.objectives import OBJECTIVES
from wootz.training import OptimConfig, TrainConfig
from wootz.training.annotators import LogpCache, MismatchedRatio, RoleLogp
from wootz.training.loop import Loop
from wootz.training.recorder import Recorder
from wootz.training.sources import DatasetSource

RECIPES = {
    "dpo": {"type": "dpo", "beta": 0.1},
    "kto": {"type": "kto", "beta": 0.1},
    "orpo": {"type": "orpo", "beta": 0.1, "nll_over": "prompt_and_response"},  # as the peer does
    "simpo": {"type": "simpo", "beta": 2.0, "gamma_ratio": 0.5},
}
DTYPES = {"bfloat16": "bf16", "float32": "fp32"}


class InOrder(DatasetSource):
    """Rows as they stand in the file, as the peer is told to take them."""

    def _plan(self, epoch: int) -> list[np.ndarray]:
        size = self._config.groups_per_step
        return [np.arange(start, start + size) for start in range(0, len(self._groups), size)]


class Losses(Recorder):
    def __init__(self) -> None:
        super().__init__(None)
        self.losses: list[float] = []

    def metrics(self, step, num_steps, metrics) -> None:
        self.losses.append(metrics["loss/total"])


def matmul_rate(dtype: torch.dtype, seconds: float = 1.0) -> float:
    """FLOP/s of linear layers of the model's shapes on 1,000 rows, the median of many."""
    rates, until = [], time.perf_counter() + seconds
    shapes = [(576, 960), (576, 576), (576, 3072), (1536, 576)]
    inputs = [(torch.randn(1000, i, dtype=dtype), torch.randn(o, i, dtype=dtype)) for i, o in shapes]
    while time.perf_counter() < until:
        started = time.perf_counter()
        for x, w in inputs:
            torch.nn.functional.linear(x, w)
        rates.append(sum(2 * 1000 * i * o for i, o in shapes) / (time.perf_counter() - started))
    return float(np.median(rates))


def useful_flops(batch: GroupBatch, module: torch.nn.Module, *, reference: bool, full: bool) -> float:
    """Matrix products that a step needs: (reference forward,) forward, gradient of inputs (and of weights).

    A prompt is counted once for all the answers to it. KTO's second look at other rows' answers is left out.
    """
    head = module.get_output_embeddings().weight.numel()
    body = sum(p.numel() for n, p in module.named_parameters() if p.ndim == 2 and "embed" not in n and "lora" not in n)
    body -= head if "lm_head.weight" in dict(module.named_parameters()) else 0
    prompts = {group.prompt.tokens for group in batch.groups}
    tokens = sum(map(len, prompts)) + sum(len(c.tokens) for group in batch.groups for c in group.completions)
    passes = reference + 2 + full
    return 2 * passes * (body * tokens + head * float(batch.lengths.sum()))


def main(settings: dict) -> dict:
    train = "lora" if settings["lora"] else "full"
    model = load(
        settings["model"], dtype=DTYPES[settings["dtype"]], train=train, lora=LoraConfig() if settings["lora"] else None
    )
    if settings["adapter"]:
        masters = model.masters()
        with torch.no_grad():
            for name, value in load_file(settings["adapter"]).items():
                masters[name].copy_(value)
        model.refresh()
    objective = OBJECTIVES.validate(RECIPES[settings["objective"]]).build()
    unpaired = objective.needs.data == ("unpaired",)
    read = DataConfig(train=settings["rows"], kind="unpaired" if unpaired else None)
    data = prepare(read, model.tokenizer, max_length=1024, kinds=objective.needs.data)
    groups_per_step = settings["pairs_per_step"] * (2 if unpaired else 1)
    config = TrainConfig(
        lr=settings["lr"],
        max_steps=settings["steps"],
        groups_per_step=groups_per_step,
        optim=OptimConfig(schedule="constant", warmup=0.0),
    )
    source, recorder = InOrder(data.train, config, seed=0), Losses()
    engine_of(model)  # loading ends with the trials of the forward pass
    before = matmul_rate(model.dtype)
    started = time.perf_counter()
    roles, annotators = {"policy": model}, []
    used = data.train[: settings["steps"] * groups_per_step]
    if "ref_logp" in objective.needs.annotations:
        ask = RoleLogp("reference", "ref_logp", max_tokens=4096, cache=LogpCache("benchmark"))
        other = MismatchedRatio(data.train, reference=ask, max_tokens=4096) if unpaired else None
        annotators = [ask] if other is None else [other, ask]
        roles["reference"] = model.reference() or model
        if model.reference() is None:
            asked = [*used, *(other.groups[: len(used)] if other else ())]
            ask.annotate(GroupBatch(tuple(asked)), {"reference": model})
    Loop(
        roles=roles,
        source=source,
        objective=objective,
        config=config,
        recorder=recorder,
        seed=0,
        annotators=annotators,
        checkpoints=False,
    ).run()
    seconds = time.perf_counter() - started
    rate = (before + matmul_rate(model.dtype)) / 2
    steps = [GroupBatch(tuple(used[i : i + groups_per_step])) for i in range(0, len(used), groups_per_step)]
    reference = "ref_logp" in objective.needs.annotations
    flops = sum(useful_flops(batch, model.base, reference=reference, full=not settings["lora"]) for batch in steps)
    first = data.train[0]
    return {
        "seconds": seconds,
        "losses": recorder.losses,
        "first_row": [len(first.prompt.tokens), *(len(completion.tokens) for completion in first.completions)],
        "matmul_gflops": rate / 1e9,
        "achieved_gflops": flops / seconds / 1e9,
        "utilisation": flops / seconds / rate,
        "events": model.events,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
