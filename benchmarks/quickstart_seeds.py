"""The quickstart on five seeds, each with its own messages: the table in docs/quickstart.md.

``python -m benchmarks.quickstart_seeds OUT`` runs ``wootz quickstart`` once a seed and prints a Markdown table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

SEEDS = range(5)


def row(folder: Path, seconds: float | None) -> str:
    """One seed's line of the table, read from its run directory."""
    verdict = json.loads((folder / "verdict.json").read_text())
    control = json.loads((folder / "control.json").read_text())
    target = verdict["measures"]["target"]
    failed = [name for name, one in verdict["measures"].items() if one["held"] is False]
    minutes = "" if seconds is None else f"{seconds / 60:.1f}"
    interval = f"{target['difference']:+.3f} [{target['low']:+.3f}, {target['high']:+.3f}]"
    cut = control["first_word"]["mean"]
    passed = "passed" if verdict["passed"] else f"not passed ({', '.join(failed)})"
    return f"| {target['parent']:.1%} | {cut:.1%} | {target['child']:.1%} | {interval} | {passed} | {minutes} |"


def main(out: Path) -> None:
    print(
        "| seed | before | control | after | difference, 95% interval | gate | minutes |\n|---|---|---|---|---|---|---|"
    )
    for seed in SEEDS:
        folder, seconds = out / f"seed{seed}", None
        if not (folder / "verdict.json").exists():
            started = time.perf_counter()
            command = [str(Path(sys.executable).with_name("wootz")), "quickstart", f"--out={folder}", f"--seed={seed}"]
            subprocess.run([*command, "--if-exists=new", "-q"], check=False, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - started
        print(f"| {seed} {row(folder, seconds)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
