"""Run under torchrun by test_processes: trains a bigram policy on a share of each batch and saves the table."""

import sys

import torch

from tests.unit.training.bigram import Bigram, pairs
from wootz.objectives.preference import DPOConfig
from wootz.training import OptimConfig, TrainConfig
from wootz.training.annotators import RoleLogp
from wootz.training.distribution import World
from wootz.training.loop import Loop
from wootz.training.recorder import Recorder
from wootz.training.sources import DatasetSource


def train(world: World) -> Bigram:
    policy = Bigram()
    optim = OptimConfig(clip_norm=0.05)
    config = TrainConfig(lr=0.05, epochs=2, groups_per_step=5, micro_tokens=20, optim=optim)
    Loop(
        roles={"policy": policy, "reference": Bigram(seed=5)},
        source=DatasetSource(pairs(11), config, seed=3),
        objective=DPOConfig(sft_weight=0.3).build(),
        config=config,
        recorder=Recorder(None),
        seed=3,
        annotators=[RoleLogp("reference", "ref_logp", max_tokens=20)],
        world=world,
        checkpoints=False,
    ).run()
    return policy


if __name__ == "__main__":
    world = World.from_environment()
    policy = train(world)
    torch.save(policy.table.detach(), f"{sys.argv[1]}/rank{world.rank}.pt")
    world.close()
