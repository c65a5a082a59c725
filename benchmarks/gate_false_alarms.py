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
from wootz.evals.subject import Subject
from wootz.gates import GateConfig
from wootz.gates.decide import judge
from wootz.gates.run import measures_of
from wootz.models import load
from wootz.signals.text import ContainsConfig

ALARMS = ("better", "worse")


def run(runs: int, folder: Path, only: list[str], model: str = "smollm2-135m") -> dict:
    """Returns, for each measure that sampling touches (``only`` these, if any), how often it was called better, worse, not
    held, and under ``gate`` how often any limit of them was not held."""
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
        subject = Subject(loaded, seed, config.temperature)
        found = {
            name: measure.measure(subject, None)
            for name, measure in measures.items()
            if not measure.needs_weights and (not only or name in only)
        }
        failed = False
        for name, results in found.items():
            if before:
                judged = judge(measures[name], results, before[name], against="itself", margin=0.02, seed=seed)
                counts[name][judged.verdict] += 1
                counts[name]["not held"] += judged.held is False
                failed |= judged.held is False
        counts["gate"]["not held"] += failed
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
    parser.add_argument("--measures", nargs="*", default=[], help="only these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(run(options.runs, Path(name), options.measures), indent=1))
