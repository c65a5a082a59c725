"""The one training loop. It names no algorithm: a source serves batches, an objective turns forward passes into sums.

    source -> annotators -> prepare, counts -> micro-batches -> forward -> sums -> backward      (per micro-batch)
           -> sum gradients over processes -> clip -> step -> refresh -> source.sync -> guards -> record -> eval, checkpoint

A part of the loss is its sum over the whole optimiser step and all processes, divided by its count over the same, so no
gradient depends on micro-batches, their order, or the number of processes.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from wootz.core.errors import GuardStop, Interrupted
from wootz.core.protocols import Annotator, Guard, Objective, Regulariser, Roles, Source
from wootz.core.seeds import derive_seed
from wootz.training.checkpoint import load_state, restore, save_checkpoint
from wootz.training.config import TrainConfig
from wootz.training.distribution import World
from wootz.training.optim import Optimiser, learning_rate
from wootz.training.recorder import Recorder, peak_memory_mb

Evaluate = Callable[[int], Mapping[str, float]]


@dataclass
class Loop:
    """Everything a run is made of; :meth:`run` carries it out.

    Attributes:
        roles: ``policy`` and whatever the annotators ask.
        evaluate: Called with the step number at ``eval_steps``; returns metrics.
    """

    roles: Roles
    source: Source
    objective: Objective
    config: TrainConfig
    recorder: Recorder
    seed: int
    annotators: Sequence[Annotator] = ()
    regularisers: Mapping[str, tuple[float, Regulariser]] = field(default_factory=dict)
    guards: Sequence[Guard] = ()
    evaluate: Evaluate | None = None
    eval_every: int | None = None
    world: World = World()
    checkpoints: bool = True

    def __post_init__(self) -> None:
        self.policy = self.roles["policy"]
        self.masters = self.policy.masters()
        self.optimiser = Optimiser(self.masters, self.config.optim)
        self.step = 0
        self._saved: int | None = None
        self._finished = False
        self._source_state = self.source.state_dict()

    @property
    def num_steps(self) -> int:
        return self.source.num_steps

    def run(self) -> None:
        """Trains to the end of the source. Raises GuardStop or Interrupted with the last good state saved."""
        with _stop_requests() as stop:
            if self.step == 0:
                self._evaluate(0)
            for batch in () if self._finished else self.source:
                metrics = self.update(batch)
                self.source.sync(self.policy)
                self._guard(metrics)
                if self._due(self.eval_every):
                    self._guard(self._evaluate(self.step))
                if self._due(self.config.checkpoint_every):
                    self.save()
                if self.world.any(bool(stop)) and self.step < self.num_steps:
                    self.save()
                    raise Interrupted(f"stopped at step {self.step} of {self.num_steps}; the checkpoint is kept")
                if self._finished:
                    break
        self.save()

    def update(self, batch: Any) -> dict[str, float]:
        """One optimiser step over a global batch; returns the step's metrics."""
        started = time.perf_counter()
        torch.manual_seed(derive_seed(self.seed, "step", self.step + 1, self.world.rank))
        batch = batch.shard(self.world.rank, self.world.size)
        for annotator in self.annotators:
            batch = annotator.annotate(batch, self.roles)
        batch = self.objective.prepare(batch, self.world.sum_scalars)
        local = {"tokens": float(batch.num_tokens), "units": float(batch.num_units), **self.objective.counts(batch)}
        counts = self.world.sum_scalars(local)
        sums = self._backward(batch, counts)
        self.world.sum_gradients(self.masters.values())
        parts = {name: total / counts[name] for name, total in sums.items() if counts[name]}
        loss = sum(weight * parts.get(name, 0.0) for name, weight in self.objective.weights.items())
        loss += self._regularise(parts)
        norm = self.optimiser.clip()
        self._require_finite(loss, norm)
        lr = learning_rate(self.step + 1, self.num_steps, peak=self.config.lr, config=self.config.optim)
        self.optimiser.step(lr)
        self.optimiser.zero_grad()
        self.policy.refresh()
        self.step += 1
        # Taken here so that a step that fails later serves its batch again after a resume.
        self._source_state = self.source.state_dict()
        named = {name if "/" in name else f"loss/{name}": value for name, value in parts.items()}
        metrics = {"loss/total": loss, **named, "optim/lr": lr, "optim/grad_norm": norm}
        metrics |= {"data/tokens": counts["tokens"], "data/units": counts["units"]}
        metrics |= {"time/step": time.perf_counter() - started, "mem/peak_mb": peak_memory_mb()}
        self.recorder.metrics(self.step, self.num_steps, metrics)
        return metrics

    def _backward(self, batch: Any, counts: Mapping[str, float]) -> dict[str, float]:
        """Accumulates the gradient of sum(weight * sum / count); returns the sums over all processes."""
        totals = {name: torch.zeros((), dtype=torch.float64) for name in counts if name not in ("tokens", "units")}
        for micro in batch.split(self.objective.unit, self.config.micro_tokens):
            outputs = self.policy.forward(micro, self.objective.needs.outputs)
            sums = self.objective.sums(outputs, micro)
            loss = [w * sums[name] / counts[name] for name, w in self.objective.weights.items() if counts[name]]
            if loss:
                torch.stack(loss).sum().backward()
            for name, value in sums.items():
                totals[name] += value.detach().double().cpu()
        return self.world.sum_scalars({name: float(total) for name, total in totals.items()})

    def _regularise(self, parts: dict[str, float]) -> float:
        """Adds the regularisers' gradients (the same on every process, so after the sum) and returns their loss."""
        total = 0.0
        for name, (weight, regulariser) in self.regularisers.items():
            value, count = regulariser(self.masters.items())
            (weight * value / count).backward()
            parts[name] = float(value.detach()) / count
            total += weight * parts[name]
        return total

    def _require_finite(self, loss: float, norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            return
        self.optimiser.zero_grad()
        message = f"step {self.step + 1}: the loss is {loss:g} and its gradient's norm {norm:g}"
        self._stop("health", message, "lower train.lr, or look at the batch's rows; the last good state is kept")

    def _guard(self, metrics: Mapping[str, float]) -> None:
        for guard in self.guards:
            verdict = guard.check(self.step, metrics)
            if verdict.action == "warn":
                data = dict(verdict.evidence or {})
                self.recorder.event("warning", verdict.message, step=self.step, source=guard.name, data=data)
            if verdict.action == "finish":
                self.recorder.event("guard", verdict.message, step=self.step, source=guard.name)
                self._finished = True
            if verdict.action == "stop":
                self._stop(guard.name, verdict.message, "raise the guard's limit, or train less", verdict.evidence)

    def _stop(self, source: str, message: str, fix: str, evidence: Mapping[str, float] | None = None) -> None:
        self.save()
        self.recorder.event("guard", message, step=self.step, source=source, data=dict(evidence or {}))
        raise GuardStop(message, where=f"guard {source}", fix=fix)

    def _due(self, every: int | None) -> bool:
        return self.step == self.num_steps or (every is not None and self.step % every == 0)

    def _evaluate(self, step: int) -> Mapping[str, float]:
        if self.evaluate is None:
            return {}
        metrics = dict(self.evaluate(step))
        self.recorder.metrics(step, self.num_steps, metrics)
        return metrics

    def save(self) -> None:
        """Writes a checkpoint of the present state, once a step."""
        if self.checkpoints and self._saved != self.step:
            if self.world.is_main and self.recorder.run is not None:
                state = {
                    "source": self._source_state,
                    "guards": {guard.name: guard.state_dict() for guard in self.guards},
                    "seed": self.seed,
                    "finished": self._finished,
                }
                save_checkpoint(
                    self.recorder.run,
                    self.step,
                    policy=self.policy,
                    optimiser=self.optimiser,
                    state=state,
                    keep=self.config.keep_checkpoints,
                )
                self.recorder.event("checkpoint", f"step {self.step}", step=self.step, source="loop")
            self._saved = self.step
            self.world.barrier()

    def load(self, folder: Path) -> None:
        """Takes up the state of a checkpoint."""
        state = load_state(folder)
        restore(folder, policy=self.policy, optimiser=self.optimiser)
        self.source.load_state_dict(state["source"])
        self._source_state = state["source"]
        for guard in self.guards:
            guard.load_state_dict(state["guards"][guard.name])
        self._finished = bool(state.get("finished", False))
        self.step = self._saved = int(state["step"])


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM while inside, so that a step is finished and saved; a second Ctrl-C is not caught."""
    received: list[int] = []

    def remember(number: int, _frame: Any) -> None:
        received.append(number)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller handles signals
        before = {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
