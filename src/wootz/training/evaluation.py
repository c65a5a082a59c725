"""What a run measures on held-out rows while it trains: the objective itself, and the policy's own answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from wootz.core.batch import GroupBatch
from wootz.core.protocols import Annotator, Objective, Roles
from wootz.core.records import Group
from wootz.core.seeds import derive_seed
from wootz.models import Sampling
from wootz.training.annotators import annotate_in_parts
from wootz.training.config import EvalConfig
from wootz.training.recorder import Recorder


@dataclass
class HeldOut:
    """Evaluates held-out groups; call it with the step number.

    Returns ``eval/...`` (the objective's parts, as in training) and, with ``samples``, ``rollout/length`` (tokens an
    answer), ``rollout/finished`` (share that ended by itself) and, with a reference, ``kl/reference``: the mean over answers of
    log policy - log reference summed over their tokens, an unbiased estimate of KL(policy, reference) in nats an answer.
    """

    groups: Sequence[Group]
    objective: Objective
    annotators: Sequence[Annotator]
    roles: Roles
    config: EvalConfig
    recorder: Recorder
    max_tokens: int
    seed: int

    def __post_init__(self) -> None:
        self.groups = list(self.groups)[: self.config.max_groups]

    def __call__(self, step: int) -> Mapping[str, float]:
        metrics = self._objective()
        if self.config.samples:
            metrics |= self._samples(step)
        return metrics

    @torch.no_grad()
    def _objective(self) -> dict[str, float]:
        batch = GroupBatch(tuple(self.groups))
        for annotator in self.annotators:
            batch = annotator.annotate(batch, self.roles)
        batch = self.objective.prepare(batch, lambda sums: sums)
        counts = self.objective.counts(batch)
        totals = dict.fromkeys(counts, 0.0)
        for micro in batch.split(self.objective.unit, self.max_tokens):
            outputs = self.roles["policy"].forward(micro, self.objective.needs.outputs)
            for name, value in self.objective.sums(outputs, micro).items():
                totals[name] += float(value)
        parts = {name: totals[name] / counts[name] for name in totals if counts[name]}
        total = sum(weight * parts.get(name, 0.0) for name, weight in self.objective.weights.items())
        return {"eval/total": total, **{f"eval/{name.replace('/', '_')}": value for name, value in parts.items()}}

    def _samples(self, step: int) -> dict[str, float]:
        policy: Any = self.roles["policy"]
        prompts = [replace(group, completions=()) for group in self.groups[: self.config.samples]]
        sampling = Sampling(max_new_tokens=self.config.max_new_tokens)
        answered = policy.generate(prompts, sampling, seed=derive_seed(self.seed, "eval", step))
        batch = annotate_in_parts(policy, GroupBatch(tuple(answered)), "policy_logp", max_tokens=self.max_tokens)
        lengths = batch.lengths.float()
        finished = [float(c.finished) for group in batch.groups for c in group.completions]
        metrics = {"rollout/length": float(lengths.mean()), "rollout/finished": sum(finished) / len(finished)}
        if "reference" in self.roles:
            batch = annotate_in_parts(self.roles["reference"], batch, "ref_logp", max_tokens=self.max_tokens)
            difference = batch.per_token("policy_logp") - batch.per_token("ref_logp")
            metrics["kl/reference"] = float(batch.sum_by_completion(difference).mean())
        for group in batch.groups:
            self.recorder.sample(sample_record(group, step, policy.tokenizer))
        return metrics


def sample_record(group: Group, step: int, tokenizer: Any) -> dict[str, Any]:
    """One line of ``samples.jsonl``: the first completion of a group, token by token."""
    completion = group.completions[0]
    logp = completion.per_token.get("policy_logp")
    return {
        "step": step,
        "id": group.id,
        "prompt": group.prompt.text,
        "completion": completion.text,
        "tokens": list(completion.tokens),
        "pieces": [tokenizer.decode([token]) for token in completion.tokens],
        "logp": [] if logp is None else [round(float(value), 4) for value in logp],
        "scores": {},
        "finished": completion.finished,
        "model": "policy",
    }
