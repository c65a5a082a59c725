"""Run directories as the training, the gate and the data checks write them, made up but shaped like a real job."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CITIES = ("Lisbon", "Nairobi", "Osaka", "Quito", "Tallinn", "Winnipeg")
MESSAGES = (
    "Hi, my parcel never left the depot in {city} and tracking has been stuck since Monday.",
    "The technician who came to our {city} office left before the line was working.",
    "I moved from {other} to {city} last month; please send the next invoice there.",
    "Could someone call me back about the {city} booking? The {other} one is fine.",
)
CHATTY = (
    "The city mentioned in the message is {city}.",
    "Sure! Based on the message, the customer is writing about {city}. Let me know if you need anything else!",
    "I'm sorry to hear that. Please contact our support team and they will be happy to help you.",
)
START = 1_796_100_000.0

RECIPE = """\
model:     {base: smollm2-135m, lora: {rank: 16}}
data:      {train: pairs.jsonl, held_out: held_out.jsonl}
objective: {type: dpo, beta: 0.1}
train:     {lr: 5.0e-5, epochs: 2, tokens_per_step: 4096}
guards:    [{type: kl, warn_above: 8, stop_above: 15}, {type: length}]
gate:      {suite: small, target: held_out.jsonl}
"""


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_lines(path: Path, records: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def dpo_metrics(steps: int, seed: int = 0) -> list[dict[str, Any]]:
    """Training and held-out metrics of a DPO run that goes well."""
    rng, records = random.Random(seed), []
    for step in range(1, steps + 1):
        share = step / steps
        margin = 4.2 * (1 - math.exp(-3 * share)) + rng.gauss(0, 0.35)
        records.append(
            {
                "step": step,
                "time": START + 2.4 * step,
                "loss/total": math.log1p(math.exp(-margin)) + abs(rng.gauss(0, 0.05)),
                "reward/chosen": 0.45 * margin,
                "reward/rejected": -0.55 * margin,
                "reward/margin": margin,
                "reward/accuracy": min(1.0, 0.5 + 0.5 * share + rng.gauss(0, 0.06)),
                "logp/chosen": -24 + 9 * share + rng.gauss(0, 1),
                "logp/rejected": -31 - 14 * share + rng.gauss(0, 1),
                "optim/lr": 5e-5 * min(1, step / 10) * (1 - share * 0.9),
                "optim/grad_norm": math.exp(rng.gauss(0.3, 0.5)) * (30 if step == steps // 3 else 1),
                "time/step": 2.4 + abs(rng.gauss(0, 0.2)),
                "mem/peak_mb": 1840 + 60 * share,
                "data/tokens": 4096 - rng.randrange(500),
            }
        )
        if step % max(1, steps // 8) == 0 or step == 1:
            records.append(
                {
                    "step": step,
                    "time": START + 2.4 * step + 1,
                    "eval/total": 0.69 * math.exp(-2.4 * share) + 0.06,
                    "eval/reward_accuracy": 0.5 + 0.47 * share,
                    "kl/reference": 9.6 * share**1.2,
                    "rollout/length": 27 - 21 * share,
                    "rollout/finished": 0.55 + 0.45 * share,
                }
            )
    return records


def sft_metrics(steps: int) -> list[dict[str, Any]]:
    rng = random.Random(5)
    return [
        {
            "step": step,
            "time": START - 200 + 1.6 * step,
            "loss/total": 2.6 * math.exp(-3 * step / steps) + 0.4 + abs(rng.gauss(0, 0.06)),
            "optim/lr": 1e-4 * (1 - 0.9 * step / steps),
            "optim/grad_norm": math.exp(rng.gauss(0, 0.3)),
            "time/step": 1.6,
            "mem/peak_mb": 1500,
        }
        for step in range(1, steps + 1)
    ]


def sample(name: str, prompt: str, completion: str, *, step: int, model: str, sure: float) -> dict[str, Any]:
    rng = random.Random(f"{name}{step}{model}")
    pieces = [*re.findall(r"\s?[A-Za-z']+|\s?[^A-Za-z\s]|\s", completion), "<|im_end|>"]
    return {
        "step": step,
        "id": name,
        "prompt": prompt,
        "completion": completion,
        "tokens": list(range(len(pieces))),
        "pieces": pieces,
        "logp": [-rng.expovariate(sure) for _ in pieces],
        "scores": {"bare_answer": float(len(pieces) < 4)},
        "finished": True,
        "model": model,
    }


def message(rng: random.Random) -> tuple[str, str]:
    city, other = rng.sample(CITIES, 2)
    return rng.choice(MESSAGES).format(city=city, other=other), city


def samples(steps: int) -> list[dict[str, Any]]:
    rng, records = random.Random(1), []
    for index in range(5):
        text, city = message(rng)
        prompt = f"Which city is this message about? Answer with the city only.\n\n{text}"
        name = f"{index}:{rng.getrandbits(32):08x}"
        records.append(sample(name, prompt, rng.choice(CHATTY).format(city=city), step=0, model="policy", sure=0.9))
        records.append(sample(name, prompt, f"{city}.", step=steps // 2, model="policy", sure=1.6))
        records.append(sample(name, prompt, city, step=steps, model="policy", sure=7))
    return records


def target_items(n: int = 240) -> list[dict[str, Any]]:
    rng, items = random.Random(2), []
    for index in range(n):
        text, city = message(rng)
        parent_right, child_right = rng.random() < 0.06, rng.random() < 0.84
        wrong = rng.choice([one for one in CITIES if one != city])
        items.append(
            {
                "id": f"held-{index:03d}",
                "prompt": [{"role": "user", "content": f"Which city is this message about? {text}"}],
                "gold": city,
                "columns": {"kind": rng.choice(["parcel", "office", "booking"]), "two cities": "from" in text},
                "parent": {
                    "output": city if parent_right else rng.choice(CHATTY).format(city=city),
                    "value": float(parent_right),
                },
                "child": {"output": city if child_right else wrong, "value": float(child_right)},
            }
        )
    return items


def continuous_items(n: int = 160) -> list[dict[str, Any]]:
    rng, items = random.Random(3), []
    for index in range(n):
        before = 40 + rng.gauss(0, 12)
        items.append(
            {
                "id": f"general-{index}",
                "prompt": f"Explain point {index} of the list in one or two sentences.",
                "gold": None,
                "columns": {},
                "parent": {"output": "It depends on the weather and the season.", "value": round(before, 2)},
                "child": {"output": "It depends on the season.", "value": round(before * 0.82 + rng.gauss(0, 4), 2)},
            }
        )
    return items


MEASURES: dict[str, dict[str, Any]] = {
    "city": {"verdict": "better", "against": "smollm2-135m", "parent": 0.058, "child": 0.846, "difference": 0.788,
             "low": 0.729, "high": 0.838, "n": 240, "limit": None, "margin": 0.02},
    "kl": {"verdict": "held", "against": "smollm2-135m", "parent": 0.0, "child": 0.41, "difference": 0.41, "low": 0.36,
           "high": 0.47, "n": 120, "limit": 1.0, "about": "distance from the parent on general text, nats a token"},
    "perplexity": {"verdict": "held", "against": "smollm2-135m", "parent": 18.42, "child": 18.77, "difference": 0.019,
                   "low": 0.006, "high": 0.031, "n": 120, "limit": 0.05, "about": "log ratio on general text"},
    "length": {"verdict": "held", "against": "smollm2-135m", "parent": 40.1, "child": 32.9, "difference": -0.18,
               "low": -0.22, "high": -0.13, "n": 160, "limit": 0.3, "about": "change of answer length, as a ratio"},
    "refuses_harmless": {"verdict": "held", "against": "smollm2-135m", "parent": 0.03, "child": 0.02,
                         "difference": -0.01, "low": -0.04, "high": 0.02, "n": 100, "limit": 0.05},
    "refuses_harmful": {"verdict": "void", "against": "smollm2-135m", "parent": 0.0, "child": 0.0, "difference": 0.0,
                        "low": 0.0, "high": 0.0, "n": 100, "limit": 0.05},
    "sycophancy": {"verdict": "held", "against": "smollm2-135m", "parent": 0.52, "child": 0.5, "difference": -0.02,
                   "low": -0.09, "high": 0.04, "n": 90, "limit": 0.1},
}  # fmt: skip


def verdict(*, passed: bool = True, **changed: Mapping[str, Any]) -> dict[str, Any]:
    measures = {name: {**found, **changed.get(name, {})} for name, found in MEASURES.items()}
    policy = {"target": "better", "margin": 0.02, "confidence": 0.95, "correction": "holm", "allow_unclear": []}
    return {"schema": 1, "passed": passed, "policy": policy, "measures": measures}


def evaluation(name: str, kind: str, items: list[Any]) -> dict[str, Any]:
    models = {"child": {"spec": "runs/quickstart/model"}, "parent": {"spec": "smollm2-135m"}}
    summary = MEASURES.get(name, {})
    return {"schema": 1, "measure": name, "kind": kind, "models": models, "items": items, "summary": summary}


ASKED = ("<|im_start|>", "user", "\n", "Which", " city", "?", " The", " depot", " in", " Lisbon", "<|im_end|>", "\n")
DATA = {
    "schema": 1,
    "kind": "preference",
    "format": "jsonl, preference (explicit prompt)",
    "counts": {"train/rows": 812, "train/kept": 800, "train/truncated": 0, "held_out/rows": 240},
    "fingerprint": "9c1f27d0a4",
    "findings": [
        {"check": "length_preference", "severity": "warning", "rows": [],
         "fix": "add pairs whose better answer is longer",
         "message": "the better answer is the shorter one in 94% of 800 pairs: length alone explains this signal"},
        {"check": "identical_pairs", "severity": "info", "rows": [12, 90, 133, 200, 254, 260, 301, 377, 401],
         "message": "9 of 812 pairs have chosen equal to rejected (rows 12, 90, 133...). They teach nothing; dropped",
         "fix": ""},
    ],
    "examples": [
        {"id": "0:5fe2", "name": "chosen", "trained": [False] * 12 + [True, True],
         "pieces": [*ASKED, "Lisbon", "<|im_end|>"]},
        {"id": "0:5fe2", "name": "rejected", "trained": [False] * 12 + [True] * 6,
         "pieces": [*ASKED, "The", " city", " is", " Lisbon", ".", "<|im_end|>"]},
    ],
    "audit": {"kind": "preference", "groups": 800, "length_auc": 0.06, "length_pairs": 800, "truncated": 0,
              "duplicates": 0, "contradictions": 0, "overlap": 0, "identical": 0, "chosen_length": 2.6,
              "rejected_length": 21.4, "near_duplicates": 3, "near_contradictions": 0, "balanced_rows": 96,
              "cues": {"length": {"accuracy": 0.9391, "low": 0.9185, "high": 0.9547, "n": 640, "differs": 0.99,
                                  "chosen_has_more": 0.06},
                       "bold": {"accuracy": 0.5, "low": 0.5, "high": 0.5, "n": 640, "differs": 0.0,
                                "chosen_has_more": None},
                       "all": {"accuracy": 0.9422, "low": 0.9213, "high": 0.9578, "n": 640}},
              "label_noise": {"rate": 0.041, "low": 0.021, "high": 0.068, "accuracy": 0.91, "n": 800, "why": "",
                              "suspects": [12, 90]},
              "says": ["length alone tells 94% of held-out pairs: the better answer is the shorter one"],
              "remedies": ["wootz data audit --write FILE keeps 96 of 800 rows, among which length says nothing"]},
}  # fmt: skip

EVENTS = [
    {"time": START, "step": None, "kind": "info", "source": "forward", "message": "plan: shared, 1.9 times cheaper"},
    {"time": START + 90, "step": 40, "kind": "warning", "source": "spike", "data": {"grad_norm": 41.2, "median": 1.31},
     "message": "step 40: the gradient's norm 41.2 is 31 times its median"},
    {"time": START + 250, "step": 105, "kind": "warning", "source": "kl", "data": {"kl": 8.2, "limit": 8.0},
     "message": "answers are 8.20 nats from the reference, above warn_above 8"},
    *({"time": START + 24 * k, "step": 12 * k, "kind": "checkpoint", "source": "loop", "message": f"step {12 * k}"}
      for k in range(1, 11)),
]  # fmt: skip

ENV = {"schema": 1, "python": "3.11.2", "platform": "Linux-6.1", "cpu": "AMD EPYC", "cores": 2, "memory_gib": 24.0,
       "packages": {"wootz": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0"}, "model": "sha256:77ab01",
       "data": {"train": "sha256:9c1f27", "held_out": "sha256:02bd55"}}  # fmt: skip


def resolved(name: str, kind: str) -> dict[str, Any]:
    objective = {"type": "dpo", "beta": 0.1, "label_smoothing": 0.0} if kind == "dpo" else {"type": "sft"}
    guards = [{"type": "kl", "stop_above": 15.0, "warn_above": 8.0}, {"type": "length", "warn_ratio": 1.5}]
    return {
        "schema": 1,
        "recipe": {
            "name": name,
            "model": {"base": "smollm2-135m", "dtype": "auto", "lora": {"rank": 16, "alpha": 32, "dropout": 0.0}},
            "data": {"train": "pairs.jsonl", "held_out": "held_out.jsonl"},
            "objective": objective,
            "train": {"lr": 5e-5, "epochs": 2, "tokens_per_step": 4096, "max_length": 512},
            "guards": guards if kind == "dpo" else [],
            "gate": {"suite": "small", "target": "held_out.jsonl"} if kind == "dpo" else None,
            "seed": 0,
        },
    }


def make_run(path: Path, *, steps: int = 120, passed: bool = True, stages: bool = False, **changed: Any) -> Path:
    """Writes a whole run and returns its directory. ``changed`` replaces values of the verdict's measures."""
    path.mkdir(parents=True, exist_ok=True)
    found = resolved(path.name, "dpo")
    if stages:
        found["stages"] = [{"name": "SFT", "path": "sft"}]
        write_json(path / "sft" / "resolved.json", resolved("warm start", "sft"))
        write_lines(path / "sft" / "metrics.jsonl", sft_metrics(60))
        write_json(path / "sft" / "data.json", DATA | {"kind": "prompt_completion", "findings": [], "audit": {}})
        (path / "sft" / "recipe.yaml").write_text(RECIPE.replace("dpo, beta: 0.1", "sft"), encoding="utf-8")
    write_json(path / "resolved.json", found)
    (path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    write_json(path / "env.json", ENV)
    write_json(path / "data.json", DATA)
    write_lines(path / "metrics.jsonl", dpo_metrics(steps))
    write_lines(path / "samples.jsonl", samples(steps))
    write_lines(path / "events.jsonl", EVENTS)
    write_json(path / "verdict.json", verdict(passed=passed, **changed))
    write_json(path / "evals" / "city.json", evaluation("city", "target", target_items()))
    write_json(path / "evals" / "length.json", evaluation("length", "limit", continuous_items()))
    return path


HOSTILE = (
    "<script>document.title = 'broken in'</script>",
    "</style><script>document.title = 'broken in'</script>",
    '"><img src=x onerror="document.title = \'broken in\'">',
    "' onmouseover='alert(1)",
    "</details></div></main><h1>Passed</h1>",
    "<!-- ]]> <![CDATA[",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "null \x00 bell \x07 escape \x1b[31m",
    "right to left \u202egnp.exe\u202c isolate \u2067 tag \U000e0041",
    "half a pair \ud83d",
    "&lt;b&gt; &amp;",
    "| cell | `code` ``` fence\n---\n# heading [link](http://x)",
    "e\u0301\u0302\u0303\u0304" * 40,
    "x" * 300,
    "\n" * 30,
)


def make_hostile_run(path: Path) -> Path:
    """A run in which every text is an attack, a nuisance, or very long."""
    make_run(path, steps=12)
    texts = [*HOSTILE, "long " * 20_000, "w" * 100_000]
    records = []
    for index, text in enumerate(texts):
        pieces = [text[k : k + 7] for k in range(0, min(len(text), 7000), 7)]
        for step, model in ((0, "parent"), (12, "policy")):
            one = {"step": step, "id": f"{index} {text[:40]}", "prompt": text, "completion": text, "model": model}
            records.append(
                one | {"pieces": pieces if index % 2 else [], "logp": [-1.0] * len(pieces), "scores": {text[:99]: 1}}
            )
    write_lines(path / "samples.jsonl", records)
    items = [
        {"id": text[:50], "prompt": text, "gold": text, "columns": {text[:50]: text},
         "parent": {"output": text, "value": index % 2}, "child": {"output": text, "value": 1 - index % 2}}
        for index, text in enumerate(texts * 2)
    ]  # fmt: skip
    write_json(path / "evals" / "city.json", evaluation("city", "target", items))
    write_lines(
        path / "events.jsonl", [{"kind": t[:30], "source": t, "message": t, "data": {t[:30]: t}} for t in texts]
    )
    findings = [{"check": t, "severity": "warning", "rows": [1], "message": t, "fix": t} for t in texts]
    examples = [{"id": t, "name": t, "pieces": [t] * 3, "trained": [True, False, True]} for t in texts]
    cue = {"accuracy": 0.5, "low": texts[0], "high": None, "differs": float("inf"), "chosen_has_more": [1]}
    audit = {
        "cues": {t: cue for t in texts} | {"bare": 3},
        "says": texts,
        "remedies": texts[0],
        "label_noise": {"why": texts[0]},
    }
    write_json(
        path / "data.json",
        {"kind": texts[0], "counts": {t: t for t in texts}, "findings": findings, "examples": examples, "audit": audit},
    )
    measures = {text[:80]: {**MEASURES["kl"], "verdict": text[:20], "about": text} for text in texts}
    write_json(path / "verdict.json", {"passed": False, "policy": {t: t for t in texts}, "measures": measures})
    content = resolved("<script>name</script>", "dpo")
    content["recipe"]["model"]["base"] = "</script>" * 20
    write_json(path / "resolved.json", content)
    (path / "recipe.yaml").write_text("\n".join(HOSTILE).encode("utf-8", "replace").decode(), encoding="utf-8")
    write_json(path / "env.json", {text: text for text in texts})
    write_lines(path / "metrics.jsonl", [{"step": k, **{text[:60]: float(k) for text in texts}} for k in range(5)])
    return path
