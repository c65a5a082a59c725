"""Per-token results of a batch, one padded row a completion (stand-in)."""
import torch
from wootz.objectives.reducers import REDUCERS


def forward_groups(model, batch, outputs, *, plan="auto"):
    rows, where = [], []
    for g in batch.groups:
        for c in g.completions:
            rows.append((*g.prompt.tokens, *c.tokens))
            n = len(g.prompt.tokens)
            where.append([n + i - 1 for i, kept in enumerate(c.loss_mask) if kept])
    length = max(map(len, rows))
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = torch.tensor(r)
        mask[i, : len(r)] = 1
    hidden = model.module(input_ids=ids, attention_mask=mask).logits
    picked = torch.cat([hidden[i, w] for i, w in enumerate(where)])
    return {name: REDUCERS[name](picked, batch.targets) for name in outputs}
