"""Preference objectives on real pairs: train, sample, gate, and say what came of it.

``python -m benchmarks.hh_preferences PAIRS.jsonl.gz OUT`` takes the first 800 pairs for training and the rest as held out,
trains SmolLM2-135M with each objective on each seed, and prints a Markdown table. A run that is there already is only read.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import wootz
from wootz.core.errors import GuardStop
from wootz.core.rundir import RunDir

TRAIN = 800
OBJECTIVES: dict[str, dict[str, Any]] = {
    "dpo": {"type": "dpo", "beta": 0.1},
    "ipo": {"type": "ipo", "beta": 0.1},
    "kto": {"type": "kto", "beta": 0.1},
    "orpo": {"type": "orpo", "beta": 0.1},
    "simpo": {"type": "simpo", "beta": 2.0, "gamma_ratio": 0.5},
}


def write_parts(pairs: Path, out: Path) -> tuple[str, str]:
    """Writes the training and the held-out rows; returns their files."""
    out.mkdir(parents=True, exist_ok=True)
    data = pairs.read_bytes()
    lines = (gzip.decompress(data) if pairs.suffix == ".gz" else data).decode().splitlines()
    files = []
    for name, some in (("train", lines[:TRAIN]), ("held_out", lines[TRAIN:])):
        (out / f"{name}.jsonl").write_text("\n".join(some) + "\n")
        files.append(str(out / f"{name}.jsonl"))
    return files[0], files[1]


def recipe(objective: str, train: str, held_out: str, *, seed: int) -> dict[str, Any]:
    unpaired = objective == "kto"
    drop = ["empty_completion", "prompt_too_long"]
    return {
        "name": f"hh-{objective}-{seed}",
        "model": {"base": "smollm2-135m", "lora": {"rank": 16}},
        "data": {"train": train, "held_out_fraction": 0.1, "drop": drop, "kind": "unpaired" if unpaired else None},
        "objective": OBJECTIVES[objective],
        "train": {"lr": 5e-5, "epochs": 1, "groups_per_step": 32 if unpaired else 16, "max_length": 512},
        "eval": {"samples": 16, "max_new_tokens": 64},
        "guards": [{"type": "kl", "stop_above": 50}],
        "gate": {"suite": "small", "target": held_out},
        "seed": seed,
    }


def row(path: Path) -> str:
    """The line of the table, from the run directory."""
    verdict = json.loads((path / "verdict.json").read_text())
    measures = verdict["measures"]
    evaluations = [r for r in RunDir.open(path).read_lines("metrics.jsonl") if "eval/logp_chosen" in r]
    change = evaluations[-1]["eval/logp_chosen"] - evaluations[0]["eval/logp_chosen"]
    target, length, kl = (measures[name] for name in ("target", "length", "kl"))
    failed = [name for name, one in measures.items() if one["held"] is False]
    cells = [
        f"{target['parent']:.1%}",
        f"{target['child']:.1%}",
        f"{target['difference']:+.3f} [{target['low']:+.3f}, {target['high']:+.3f}]",
        f"{length['difference']:+.2f} [{length['low']:+.2f}, {length['high']:+.2f}]",
        f"{change:+.1f}",
        f"{kl['child']:.3f}",
        "passed" if verdict["passed"] else f"not passed ({', '.join(failed)})",
    ]
    return " | ".join(cells)


def main(pairs: Path, out: Path, objectives: list[str], seeds: int) -> None:
    train, held_out = write_parts(pairs, out)
    print("| objective | seed | before | after | difference, 95% interval | log length | chosen log-prob | KL | gate |")
    print("|---|---|---|---|---|---|---|---|---|")
    for objective in objectives:
        for seed in range(seeds):
            path = out / f"{objective}-{seed}"
            if not (path / "verdict.json").exists():
                try:
                    wootz.train(recipe(objective, train, held_out, seed=seed), out=path, if_exists="new")
                except GuardStop as stop:
                    print(f"| {objective} | {seed} | stopped: {stop} |")
                    continue
            print(f"| {objective} | {seed} | {row(path)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    main(options.pairs, options.out, options.objectives, options.seeds)
