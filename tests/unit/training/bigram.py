"""A whole policy small enough to check by hand: the next token depends on the one before it."""

import torch

from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group, Sequence
from wootz.objectives.reducers import REDUCERS


class Bigram:
    """Logits of token t+1 are row ``tokens[t]`` of a [V, V] table; fp64, so that equalities are sharp."""

    def __init__(self, vocabulary: int = 7, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(vocabulary, vocabulary, generator=generator, dtype=torch.float64).requires_grad_()

    def forward(self, batch: GroupBatch, outputs) -> dict[str, torch.Tensor]:
        before = []
        for group in batch.groups:
            for completion in group.completions:
                previous = (group.prompt.tokens[-1], *completion.tokens[:-1])
                before += [token for token, kept in zip(previous, completion.loss_mask, strict=True) if kept]
        logits = self.table[torch.tensor(before, dtype=torch.long)]
        return {name: REDUCERS[name](logits, batch.targets) for name in outputs}

    def masters(self) -> dict[str, torch.Tensor]:
        return {"table": self.table}

    def refresh(self) -> None:
        pass

    def save(self, folder) -> None:
        folder.mkdir()
        torch.save(self.table.detach(), folder / "table.pt")


def pairs(count: int, seed: int = 0, vocabulary: int = 7) -> list[Group]:
    """Preference pairs of uneven lengths."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(0, vocabulary, (length,), generator=generator).tolist())

    return [
        Group(f"row{index}", Sequence(draw(1, 6)), (Completion(draw(1, 9)), Completion(draw(1, 9))))
        for index in range(count)
    ]


def singles(count: int, seed: int = 0) -> list[Group]:
    return [Group(g.id, g.prompt, g.completions[:1]) for g in pairs(count, seed)]
