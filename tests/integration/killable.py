"""A small run that test_kills starts, kills and resumes: ``python killable.py RUN_DIR``."""

import sys
import time
from pathlib import Path

import torch

from tests.unit.training.bigram import Bigram, pairs
from wootz.core.rundir import RunDir
from wootz.guards import GUARDS
from wootz.objectives.preference import DPOConfig
from wootz.training import TrainConfig
from wootz.training.annotators import RoleLogp
from wootz.training.checkpoint import newest_checkpoint
from wootz.training.loop import Loop
from wootz.training.recorder import Recorder
from wootz.training.sources import DatasetSource


class Slow(Bigram):
    """Gives a kill time to land anywhere in a step."""

    def forward(self, batch, outputs):
        time.sleep(0.002)
        return super().forward(batch, outputs)


def build(run: RunDir) -> Loop:
    config = TrainConfig(lr=0.05, epochs=4, groups_per_step=3, micro_tokens=20, checkpoint_every=2, keep_checkpoints=3)
    return Loop(
        roles={"policy": Slow(), "reference": Bigram(seed=5)},
        source=DatasetSource(pairs(20), config, seed=3),
        objective=DPOConfig().build(),
        config=config,
        recorder=Recorder(run),
        seed=3,
        annotators=[RoleLogp("reference", "ref_logp", max_tokens=20)],
        guards=[GUARDS.validate({"type": "spike", "window": 5}).build()],
    )


def main(path: str) -> torch.Tensor:
    run = RunDir.create(Path(path), if_exists="resume")
    loop = build(run)
    folder, _ = newest_checkpoint(run)
    if folder is not None:
        loop.load(folder)
        run.truncate_after(loop.step)
    loop.run()
    return loop.policy.table.detach()


if __name__ == "__main__":
    print("ready", flush=True)
    torch.save(main(sys.argv[1]), Path(sys.argv[1]) / "final.pt")
