"""TRL's side of the preference benchmarks; runs in TRL's own environment. Prints one JSON line.

Timed: reference log-probs (precomputed or live) and training, from tokens in memory to the last update.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset, disable_caching
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

settings = json.loads(sys.argv[1])
objective = settings["objective"]
Trainer, Config, own = {
    "dpo": (DPOTrainer, DPOConfig, {"beta": 0.1}),
    "kto": (KTOTrainer, KTOConfig, {"beta": 0.1}),
    "orpo": (ORPOTrainer, ORPOConfig, {"beta": 0.1}),
    "simpo": (
        CPOTrainer,
        CPOConfig,
        {"beta": 2.0, "loss_type": "simpo", "simpo_gamma": 1.0, "cpo_alpha": 0.0},
    ),
}[objective]
if objective in ("dpo", "kto"):
    own |= {
        "precompute_ref_log_probs": settings["precompute"],
        "precompute_ref_batch_size": 8 if settings["precompute"] else None,
    }
disable_caching()
model = AutoModelForCausalLM.from_pretrained(
    settings["model"], dtype=getattr(torch, settings["dtype"]), attn_implementation=settings["attention"]
)
tokenizer = AutoTokenizer.from_pretrained(settings["model"])
rows = [json.loads(line) for line in Path(settings["rows"]).read_text().splitlines()]
if objective == "kto":
    rows = [
        {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
        for row in rows
        for side in ("chosen", "rejected")
    ]
lora = None
if settings["lora"]:
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
precompute_seconds = 0.0


class Timed(Trainer):
    def _precompute_ref_logps(self, *arguments):
        global precompute_seconds
        started = time.perf_counter()
        dataset = super()._precompute_ref_logps(*arguments)
        precompute_seconds += time.perf_counter() - started
        return dataset


with tempfile.TemporaryDirectory() as folder:
    config = Config(
        output_dir=folder,
        per_device_train_batch_size=settings["pairs_per_step"] * (2 if objective == "kto" else 1),
        max_steps=settings["steps"],
        learning_rate=settings["lr"],
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        weight_decay=0.0,
        optim="adamw_torch_fused",
        train_sampling_strategy="sequential",
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
        **own,
    )
    trainer = Timed(
        model=model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer, peft_config=lora
    )
    if settings["adapter"]:
        start = load_file(settings["adapter"])
        named = dict(trainer.model.named_parameters())
        with torch.no_grad():
            for name, value in start.items():
                named[name].copy_(value)
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started + precompute_seconds
losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
tokens = [
    len(trainer.train_dataset[0][key]) for key in sorted(trainer.train_dataset.column_names) if key.endswith("_ids")
]
print(json.dumps({"seconds": seconds, "precompute_s": precompute_seconds, "losses": losses, "first_row": tokens}))
