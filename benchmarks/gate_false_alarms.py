"""How often the gate is wrong when nothing changed: a model against itself with other sampling seeds.

``python -m benchmarks.gate_false_alarms --runs 60`` samples the suite ``small`` at temperature 1 once a seed and compares
each seed with the next. A false alarm is a measure called worse (or a target called better); a limit that does not hold is
a failed gate, whether the measure is called worse or merely unclear. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict

from wootz.core.stats import proportion
from wootz.evals.items import Result
from wootz.gates import GateConfig, measure_model
from wootz.gates.decide import judge
from wootz.gates.run import measures_of
from wootz.models import load


def run(runs: int, model: str = "smollm2-135m") -> dict:
    """Returns, for each measure that sampling touches, how often it was called better, worse, not held."""
    config = GateConfig(suite="small", temperature=1.0)
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
                counts[name]["not held"] += not judged.held
        before = found
        print(f"seed {seed}", file=sys.stderr, flush=True)
    document = {}
    for name, counted in counts.items():
        low, high = proportion(counted["worse"], runs)
        document[name] = dict(counted) | {"runs": runs, "worse_rate": counted["worse"] / runs, "worse_95": [low, high]}
    return document


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    print(json.dumps(run(parser.parse_args().runs), indent=1))
