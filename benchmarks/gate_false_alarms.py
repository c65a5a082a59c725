"""How often the gate is wrong when nothing changed: a model against itself with other sampling seeds.

``python -m benchmarks.gate_false_alarms --runs 60`` samples the suite ``small`` and a target (the quickstart's messages,
right when the city is mentioned) at temperature 1 once a seed and compares each seed with the next. A false alarm is a
limit called worse or a target called better or worse; a limit that does not hold is a failed gate, whether the measure is
called worse or merely unclear. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from wootz.api.quickstart.job import tasks
from wootz.core.stats import proportion
from wootz.data import write
from wootz.evals.items import Result
from wootz.gates import GateConfig, measure_model
from wootz.gates.decide import judge
from wootz.gates.run import measures_of
from wootz.models import load
from wootz.signals.text import ContainsConfig

ALARMS = ("better", "worse")


def run(runs: int, folder: Path, model: str = "smollm2-135m") -> dict:
    """Returns, for each measure that sampling touches, how often it was called better, worse, not held."""
    target = folder / "target.jsonl"
    write([task.row() for task in tasks(240, held_out=True, seed=0)], target)
    config = GateConfig(
        target=str(target), verifier=ContainsConfig(), max_new_tokens=24, suite="small", temperature=1.0
    )
    loaded = load(model)
    measures = {m.name: m for m in measures_of(config, suite="small", tokenizer=loaded.tokenizer)}
    counts: dict[str, Counter] = defaultdict(Counter)
    before: dict[str, list[Result]] = {}
    for seed in range(runs + 1):
        found = {k: v for k, v in measure_model(loaded, config, seed=seed).items() if not measures[k].needs_weights}
        for name, results in found.items():
            if before:
                judged = judge(measures[name], results, before[name], against="itself", margin=0.02, seed=seed)
                counts[name][judged.verdict] += 1
                counts[name]["not held"] += judged.held is False
        before = found
        print(f"seed {seed}", file=sys.stderr, flush=True)
    document = {}
    for name, counted in counts.items():
        alarms = sum(counted[verdict] for verdict in ALARMS)
        document[name] = dict(counted) | {"runs": runs, "alarms": alarms / runs, "alarms_95": proportion(alarms, runs)}
    return document


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(run(parser.parse_args().runs, Path(name)), indent=1))
