"""``python -m benchmarks NAME [--json]``: run one benchmark and print what it measured."""

from __future__ import annotations

import argparse
import importlib
import json

MODULES = {name: "preference" for name in ("dpo", "kto", "orpo", "simpo")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=MODULES)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs, alternating")
    options = parser.parse_args()
    result = importlib.import_module(f"benchmarks.{MODULES[options.name]}").run(options.name, rounds=options.rounds)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for side in ("ours", "peer"):
        row = result[side]
        print(
            f"{side:5} {row['median_s']:8.2f} s   peak {row['peak_mb']:8.0f} MB   {row['runs']} runs   {row['settings']}"
        )
    print(
        f"ratio {result['ratio']:.2f} (peer's median time / ours), memory {result['memory_ratio']:.2f} (ours / peer's)"
    )
    if "peer_with_kept_memory" in result:
        kept = result["peer_with_kept_memory"]
        print(f"peer with kept memory {kept['median_s']:.2f} s, ratio {kept['ratio']:.2f}")
    print(f"equal: {result['equal']} ({result['tolerance']})")


if __name__ == "__main__":
    main()
