"""Run under torchrun by test_processes: trains a bigram policy on a share of each batch and saves the table."""

import sys
from dataclasses import replace

import torch

from tests.unit.training.bigram import Bigram, pairs, singles
from wootz.objectives.preference import BCOPairConfig, DPOConfig
from wootz.objectives.unpaired import KTOConfig
from wootz.training import OptimConfig, TrainConfig
from wootz.training.annotators import LogpCache, MismatchedRatio, RoleLogp
from wootz.training.distribution import World
from wootz.training.loop import Loop
from wootz.training.recorder import Recorder
from wootz.training.sources import DatasetSource

OBJECTIVES = {"dpo": DPOConfig(sft_weight=0.3), "bco_pair": BCOPairConfig(), "kto": KTOConfig()}


def labelled(count: int) -> list:
    return [
        replace(group, completions=(replace(group.completions[0], columns={"label": index % 3 == 0}),))
        for index, group in enumerate(singles(count))
    ]


def train(world: World, name: str) -> Bigram:
    policy = Bigram()
    optim = OptimConfig(clip_norm=0.05)
    config = TrainConfig(lr=0.05, epochs=2, groups_per_step=5, micro_tokens=20, optim=optim)
    rows = labelled(11) if name == "kto" else pairs(11)
    ask = RoleLogp("reference", "ref_logp", max_tokens=20, cache=LogpCache("bigram"))
    annotators = [ask]
    if name == "kto":
        annotators = [MismatchedRatio(rows, reference=ask, max_tokens=20), ask]
    if name == "bco_pair":
        annotators = [ask, RoleLogp("policy", "old_logp", max_tokens=20)]
    Loop(
        roles={"policy": policy, "reference": Bigram(seed=5)},
        source=DatasetSource(rows, config, seed=3),
        objective=OBJECTIVES[name].build(),
        config=config,
        recorder=Recorder(None),
        seed=3,
        annotators=annotators,
        world=world,
        checkpoints=False,
    ).run()
    return policy


if __name__ == "__main__":
    world = World.from_environment()
    policy = train(world, sys.argv[2])
    torch.save(policy.table.detach(), f"{sys.argv[1]}/rank{world.rank}.pt")
    world.close()
