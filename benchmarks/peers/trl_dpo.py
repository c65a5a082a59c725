"""TRL's side of the DPO benchmark; runs in TRL's own environment. Prints one JSON line.

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
from trl import DPOConfig, DPOTrainer

settings = json.loads(sys.argv[1])
disable_caching()
model = AutoModelForCausalLM.from_pretrained(
    settings["model"], dtype=getattr(torch, settings["dtype"]), attn_implementation=settings["attention"]
)
tokenizer = AutoTokenizer.from_pretrained(settings["model"])
rows = [json.loads(line) for line in Path(settings["rows"]).read_text().splitlines()]
lora = None
if settings["lora"]:
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
precompute_seconds = 0.0


class Timed(DPOTrainer):
    def _precompute_ref_logps(self, *arguments):
        global precompute_seconds
        started = time.perf_counter()
        dataset = super()._precompute_ref_logps(*arguments)
        precompute_seconds += time.perf_counter() - started
        return dataset


with tempfile.TemporaryDirectory() as folder:
    config = DPOConfig(
        output_dir=folder,
        per_device_train_batch_size=settings["pairs_per_step"],
        max_steps=settings["steps"],
        learning_rate=settings["lr"],
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        weight_decay=0.0,
        optim="adamw_torch_fused",
        beta=0.1,
        precompute_ref_log_probs=settings["precompute"],
        precompute_ref_batch_size=8 if settings["precompute"] else None,
        train_sampling_strategy="sequential",
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
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
