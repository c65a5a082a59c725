"""From a recipe to a trained model with a verdict.

    recipe -> plan (all that can be known without weights) -> data -> model -> loop -> model/ -> gate -> card, report

``dry_run`` walks the same road and turns back early: ``plan`` before the data, ``data`` before the weights, ``step`` after
one optimiser step, one evaluation, one save and one reload in a temporary folder. Whatever the real run would refuse,
the dry run refuses.
"""

from __future__ import annotations

import contextlib
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wootz.api.assemble import ANNOTATIONS, build_loop, metrics_produced
from wootz.api.recipe import Recipe, load_recipe
from wootz.core.batch import GroupBatch
from wootz.core.environment import describe_environment
from wootz.core.errors import GuardStop, Interrupted, ModelError, RecipeError, UsageError, WootzError
from wootz.core.protocols import Objective
from wootz.core.rundir import RunDir
from wootz.data import Prepared, audit, prepare
from wootz.evals.refusal import is_refusal
from wootz.gates import gate
from wootz.gates.run import measures_of
from wootz.models import LanguageModel, load, load_tokenizer
from wootz.models.loading import resolve_device
from wootz.models.spec import parse_spec
from wootz.objectives.pairs import NUMBERS, check_numbers
from wootz.report import card, render
from wootz.training.checkpoint import newest_checkpoint
from wootz.training.distribution import World
from wootz.training.loop import Loop
from wootz.training.recorder import Progress, Recorder
from wootz.training.sources import DatasetSource
from wootz.training.trackers import build_trackers

DryRun = Literal["plan", "data", "step"]


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: Its directory.
        verdict: What the gate said (``verdict.json``), or None without a gate.
    """

    path: Path
    verdict: Mapping[str, Any] | None = None

    @property
    def passed(self) -> bool | None:
        return None if self.verdict is None else bool(self.verdict["passed"])

    def load(self, **options: Any) -> LanguageModel:
        """Loads the trained model."""
        return load(str(self.path), **options)


def train(
    recipe: Recipe | str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    if_exists: Literal["ask", "resume", "new", "fail"] = "fail",
    seed: int | None = None,
    device: str = "auto",
    dry_run: DryRun | None = None,
    progress: Progress | None = None,
) -> Run | dict[str, Any]:
    """Trains as the recipe says and passes the result through its gate; returns the run.

    Args:
        recipe: A Recipe, its file, or its contents.
        out: Run directory (default ``runs/<name of the recipe>``).
        if_exists: What to do when ``out`` exists.
        seed: Replaces the recipe's seed.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        dry_run: Turn back after this stage; returns what was planned instead of a run.
        progress: A display.

    Raises:
        RecipeError, DataError, ModelError: With the fix, before anything is written where possible.
        GuardStop: A guard stopped the run; the checkpoint is kept.
        Interrupted: Ctrl-C or SIGTERM; the checkpoint is kept.
    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    if seed is not None:
        recipe = recipe.model_copy(update={"seed": seed})
    if dry_run is not None:
        return _dry_run(recipe, dry_run, device=device)
    world = World.from_environment()
    objective = _plan(recipe, device)
    with _run_directory(recipe, out, if_exists, world) as run:
        return _carry_out(recipe, objective, run, world=world, device=device, progress=progress)


def resume(path: str | Path, *, device: str = "auto", progress: Progress | None = None) -> Run:
    """Takes up an interrupted run where its newest whole checkpoint left it; returns the finished run.

    The recipe is the one in the run directory. On the CPU the result is bit-equal to the uninterrupted run.
    """
    run = RunDir.open(Path(path))
    recipe = Recipe.model_validate(run.read_json("resolved.json")["recipe"])
    result = train(recipe, out=run.path, if_exists="resume", device=device, progress=progress)
    assert isinstance(result, Run)
    return result


@contextlib.contextmanager
def _run_directory(recipe: Recipe, out: Any, if_exists: Any, world: World) -> Iterator[RunDir | None]:
    """The run directory on the main process (None elsewhere); failures are written to its events."""
    if not world.is_main:
        yield None
        return
    run = RunDir.create(Path(out or Path("runs") / recipe.name), if_exists=if_exists)
    try:
        yield run
    except (Interrupted, GuardStop):
        raise
    except WootzError as error:
        run.event("error", str(error), source=type(error).__name__)
        raise
    except Exception as error:
        run.event("error", f"{type(error).__name__}: {error}", data={"traceback": traceback.format_exc()})
        raise


def _carry_out(
    recipe: Recipe,
    objective: Objective,
    run: RunDir | None,
    *,
    world: World,
    device: str,
    progress: Progress | None,
) -> Run:
    trackers = build_trackers(recipe.track, run.path) if run else ()
    recorder = Recorder(run, trackers=trackers, progress=progress)
    data = _read_data(recipe, objective)
    if run is not None:
        _require_same(run, recipe, data)
        _write_inputs(run, recipe, data)
    _tell_unread(recipe, objective, data, recorder)
    model = load(recipe.model, device=device, train="lora" if recipe.model.lora else "full")
    loop = build_loop(recipe, objective, data, model, recorder=recorder, world=world)
    if run is not None:
        run.write_json("env.json", describe_environment() | {"model": model.fingerprint(), "data": data.fingerprint})
    _take_up(loop, run, recorder, world)
    loop.run()
    for event in model.events:
        recorder.event(event["kind"], event["message"], source="forward")
    verdict = None
    if run is not None:
        model.save(run.path / "model", merged=True)
        del model, loop  # the gate measures what was saved, and wants the memory
        verdict = _finish(recipe, run, device=device, progress=progress)
    recorder.close()
    world.barrier()
    return Run(run.path if run else _out(recipe), verdict)


def _out(recipe: Recipe) -> Path:
    return Path("runs") / recipe.name


def _plan(recipe: Recipe, device: str) -> Objective:
    """Checks what can be known without data or weights; returns the objective."""
    resolve_device(device)
    parse_spec(recipe.model.base, revision=recipe.model.revision)
    objective = recipe.objective.build()
    unknown = set(objective.needs.annotations) - ANNOTATIONS
    if unknown:
        raise RecipeError(f"no annotator provides {', '.join(sorted(unknown))}")
    if recipe.train.groups_per_step == 1 and {"mismatched_ratio", "old_logp"} & set(objective.needs.annotations):
        raise RecipeError(
            "the objective compares a row with the mean of its step, and a step has one row",
            where="train.groups_per_step",
            fix="train.groups_per_step: 16",
        )
    produced = metrics_produced(recipe, objective)
    for config in recipe.guards:
        guard = config.build()
        missing = [name for name in guard.needs if name not in produced]
        if missing:
            raise RecipeError(
                f"guard {guard.name} watches {missing[0]}, which this run never measures",
                where="guards",
                fix="eval: {samples: 16} with data.held_out, or remove the guard",
            )
    return objective


def _read_data(recipe: Recipe, objective: Objective) -> Prepared:
    tokenizer = load_tokenizer(recipe.model)
    data = prepare(recipe.data, tokenizer, max_length=recipe.train.max_length, kinds=objective.needs.data)
    rows = GroupBatch((*data.train, *data.held_out))
    for column in NUMBERS & set(objective.needs.columns):
        check_numbers(rows, column)  # all of them now, not each at its step
    if recipe.eval is not None and not data.held_out:
        raise RecipeError(
            "eval needs held-out rows", where="eval", fix="data: {held_out: FILE} or {held_out_fraction: 0.1}"
        )
    if recipe.gate is not None:
        # What the gate will measure is read now, so that a bad target is known before hours of training.
        measures_of(recipe.gate, suite=recipe.gate.suite, tokenizer=tokenizer)
    return data


def _tell_unread(recipe: Recipe, objective: Objective, data: Prepared, recorder: Recorder) -> None:
    """Says so when rows carry margins or weights that the objective does not read."""
    for column in sorted(NUMBERS - {"score"} - set(objective.needs.columns)):
        if any(column in c.columns for group in data.train for c in group.completions):
            key = f"use_{column}s"
            fix = f"; objective.{key}: true reads it" if hasattr(recipe.objective, key) else ""
            message = f"the rows have a column {column!r} that the objective does not read{fix}"
            recorder.event("warning", message, source="data")


def _require_same(run: RunDir, recipe: Recipe, data: Prepared) -> None:
    """A run that is taken up goes on with its own recipe and rows, or not at all."""
    if not run.checkpoints():
        return
    before, now = run.read_json("resolved.json")["recipe"], recipe.resolved()
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if run.read_json("env.json").get("data") != data.fingerprint:
        changed.append("the rows of data.train or data.held_out")
    if changed:
        raise UsageError(
            "the run was begun with another recipe",
            where=str(run.path),
            found=f"changed: {', '.join(changed)}",
            fix="--if-exists=new starts again; wootz resume goes on with the recipe of the run",
        )


def _write_inputs(run: RunDir, recipe: Recipe, data: Prepared) -> None:
    if not (run.path / "recipe.yaml").exists():
        run.write_text("recipe.yaml", recipe.to_yaml())
    run.write_json("resolved.json", {"recipe": recipe.model_dump(mode="json")})
    run.write_json("data.json", data.summary() | {"audit": audit(data, is_refusal=is_refusal)})


def _take_up(loop: Loop, run: RunDir | None, recorder: Recorder, world: World) -> None:
    """Loads the newest whole checkpoint, on every process, and forgets what was recorded after it."""
    if world.size > 1:
        run = RunDir.open(Path(world.broadcast(str(run.path) if run else "")))
    assert run is not None
    folder, problems = newest_checkpoint(run)
    for problem in problems:
        recorder.event("warning", f"damaged checkpoint {problem}", source="resume")
    if folder is None:
        if problems:
            raise ModelError("no checkpoint is whole", where=str(run.path), fix="start again with --if-exists=new")
        return
    loop.load(folder)
    if world.is_main:
        run.truncate_after(loop.step)
    recorder.event("info", f"resumed at step {loop.step} of {loop.num_steps}", step=loop.step, source="resume")


def _finish(recipe: Recipe, run: RunDir, *, device: str, progress: Progress | None) -> dict[str, Any] | None:
    """Gates what was saved against what it came from, then writes the card and the report."""
    verdict = None
    if recipe.gate is not None:
        child = load(str(run.path / "model"), dtype=recipe.model.dtype, device=device)
        parent = load(recipe.model.model_copy(update={"lora": None}), device=device)
        note = progress.note if progress is not None else None
        verdict = gate(child, [parent], recipe.gate, out=run, seed=recipe.seed, note=note).to_json()
    run.write_text("README.md", card(run.path))
    render(run.path)
    return verdict


def _dry_run(recipe: Recipe, stage: DryRun, *, device: str) -> dict[str, Any]:
    """Goes as far as ``stage`` and returns what was found on the way."""
    objective = _plan(recipe, device)
    found: dict[str, Any] = {"recipe": recipe.model_dump(mode="json"), "out": str(_out(recipe))}
    data = _read_data(recipe, objective)
    source = DatasetSource(data.train, recipe.train, seed=recipe.seed)
    found |= {"steps": source.num_steps, "data": data.summary()}
    if stage != "step":
        return found
    model = load(recipe.model, device=device, train="lora" if recipe.model.lora else "full")
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "dry", if_exists="fail")
        once = recipe.model_copy(update={"train": recipe.train.model_copy(update={"epochs": None, "max_steps": 1})})
        loop = build_loop(once, objective, data, model, recorder=Recorder(run), world=World())
        loop.run()
        model.save(run.path / "model", merged=True)
        load(str(run.path / "model"), device=device)
        found["step"] = run.read_lines("metrics.jsonl")
    return found
