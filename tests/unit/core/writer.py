"""A process that test_rundir starts and kills: writes one run as fast as it can. ``python writer.py RUN_DIR``."""

import sys
from pathlib import Path

from wootz.core.rundir import RunDir

SIZE = 20_000


def write(run: RunDir, step: int) -> None:
    """One step of the run; every file says the step twice, at its beginning and at its end."""
    run.append("metrics.jsonl", {"step": step, "filler": "x" * 5000, "end": step})
    run.event("info", "y" * 3000, step=step, data={"end": step})
    run.write_json("verdict.json", {"begin": step, "filler": list(range(2000)), "end": step})
    with run.begin_checkpoint(step % 3) as folder:
        for name in ("a", "model/b"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(f"{step}\n" + "z" * SIZE + f"\n{step}")
        (folder / "step").write_text(str(step))


def main(path: str) -> None:
    run = RunDir.create(Path(path), if_exists="resume")
    step = max((record["step"] for record in run.read_lines("metrics.jsonl")), default=-1)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        step += 1
        write(run, step)


if __name__ == "__main__":
    main(sys.argv[1])
