"""Measures a model, pairs its own answers with right ones, trains, and gates the result. The verb ``wootz quickstart``."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wootz.api.quickstart.job import KEEP, REFUSAL, REFUSE, TRAIN_CITIES, Task, first_word, tasks
from wootz.api.recipe import Recipe, load_recipe
from wootz.api.train import Run, train
from wootz.core.rundir import RunDir
from wootz.core.seeds import derive_seed
from wootz.core.stats import proportion
from wootz.data import prepare, tally, write
from wootz.evals.items import Item, as_messages, items_of, to_group
from wootz.evals.refusal import is_refusal
from wootz.evals.subject import Subject
from wootz.models import Sampling, load, load_tokenizer
from wootz.signals import checked_score
from wootz.signals.text import ExactConfig
from wootz.training.recorder import Progress

RECIPE = "quickstart"
KEEP_TOKENS = 48


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    train: int = 240
    samples: int = 1
    held_out: int = 240
    max_new_tokens: int = 24


def quickstart(
    *,
    out: str | Path = Path("runs") / RECIPE,
    if_exists: Literal["ask", "resume", "new", "fail"] = "ask",
    seed: int = 0,
    device: str = "auto",
    model: str | None = None,
    size: Size | None = None,
    overrides: Iterable[str] = (),
    progress: Progress | None = None,
) -> Run:
    """Returns the run: the built-in model, trained to name the city a parcel should go to, with its verdict.

    Args:
        out: The run directory.
        if_exists: ``new`` moves an earlier run aside; ``resume`` goes on with its training.
        seed: Draws other messages, samples, orders.
        model: Another model spec.
        size: Another amount of work.
        overrides: ``key=value`` settings of the recipe.
        progress: A display.
    """
    size = size or Size()
    recipe = load_recipe(RECIPE)
    base = model or recipe.model.base
    run = RunDir.create(Path(out), if_exists=if_exists)
    say = _teller(progress)
    prefs, held_out = run.path / "prefs.jsonl", run.path / "held_out.jsonl"
    if not (prefs.exists() and held_out.exists()):
        _make_data(run, base, size, seed=seed, device=device, say=say)
    settings = [f"model.base={base}", f"data.train={prefs}", f"gate.target={held_out}", f"seed={seed}"]
    prepared = load_recipe(recipe, [*settings, *overrides])
    say(_audited(prepared))
    say("training on the pairs, then the gate")
    done = train(prepared, out=run.path, if_exists="resume", device=device, progress=progress)
    assert isinstance(done, Run)
    say(f"done; the report is {done.path / 'report.html'}")
    return done


def _make_data(run: RunDir, base: str, size: Size, *, seed: int, device: str, say: Any) -> None:
    """Writes the held-out rows, the parent's standing on them with the control, and the preference pairs."""
    held_out = tasks(size.held_out, held_out=True, seed=seed)
    write([task.row() for task in held_out], run.path / "held_out.jsonl")
    say(f"loading {base}")
    model = load(base, device=device)
    say(f"asking {base} {len(held_out)} held-out questions")
    before = _measure(model, held_out, size)
    run.write_json("control.json", before)
    right, cut = before["parent"]["mean"], before["first_word"]["mean"]
    control = f"right and bare: {right:.0%}; its answers cut at the first word, the control: {cut:.0%}"
    run.event("info", f"{base} before training, {len(held_out)} held-out questions: {control}", source="quickstart")
    say(control)
    train_tasks = tasks(size.train, held_out=False, seed=seed)
    say(f"sampling {size.samples} answers to each of {len(train_tasks)} other questions, to learn from")
    pairs = _pairs(model, train_tasks, size, seed=seed)
    say(f"{len(pairs)} pairs: the right, bare answer against the model's own wrong or chatty one")
    kept = _keepers(model, seed=seed)
    say(f"{len(kept)} pairs that keep everything else: its answers to other requests, refusals of harmful ones")
    write([*pairs, *kept], run.path / "prefs.jsonl")


def _measure(model: Any, held_out: list[Task], size: Size) -> dict[str, Any]:
    items = items_of([task.row() for task in held_out], where="held_out.jsonl")
    groups = Subject(model).answer(items, name="target", max_new_tokens=size.max_new_tokens)
    whole = sum(int(inner[0].value or 0) for inner in checked_score(ExactConfig().build(), groups))
    cut = sum(first_word(g.completions[0].text) == t.gold for g, t in zip(groups, held_out, strict=True))
    named = sum(t.gold in g.completions[0].text for g, t in zip(groups, held_out, strict=True))
    last = sum(t.gold == t.last_city for t in held_out)
    found = {"parent": whole, "first_word": cut, "mentioned": named, "last_city": last}
    return {name: _share(count, len(held_out)) for name, count in found.items()}


def _share(count: int, n: int) -> dict[str, float]:
    low, high = proportion(count, n)
    return {"mean": count / n, "low": low, "high": high, "n": n}


def _pairs(model: Any, train_tasks: list[Task], size: Size, *, seed: int) -> list[dict[str, Any]]:
    """Right answer (chosen) and the model's own that the verifier turns down (rejected), as conversations."""
    items = items_of([task.row() for task in train_tasks], where="train")
    subject = Subject(model)
    asked = [to_group(item, subject.tokenizer) for item in items]
    sampling = Sampling(temperature=0.7, max_new_tokens=size.max_new_tokens, num_samples=size.samples)
    answered = model.generate(asked, sampling, seed=seed)
    scores = checked_score(ExactConfig().build(), answered)
    rows = []
    for task, group, inner in zip(train_tasks, answered, scores, strict=True):
        wrong = [c.text.strip() for c, s in zip(group.completions, inner, strict=True) if _is_useful(c.text, s.value)]
        rows += [_row(task.prompt, task.gold, text) for text in dict.fromkeys(wrong)]
    return rows


def _audited(recipe: Recipe) -> str:
    """What the pairs teach besides the job, in a line; the report has the whole audit."""
    data = prepare(recipe.data, load_tokenizer(recipe.model), max_length=recipe.train.max_length, kinds=("preference",))
    found = tally(data)
    longer, twice, against = found["length_auc"], found["duplicates"], found["contradictions"]
    length = f"the {'longer' if longer > 0.5 else 'shorter'} answer is the chosen one in {max(longer, 1 - longer):.0%}"
    return f"audit: {length}; {twice} repeated, {against} contradicting"


def _is_useful(text: str, value: float | None) -> bool:
    """Wrong or chatty, but no refusal: pairs that turn refusals down would teach the model to refuse nothing."""
    return not value and bool(text.strip()) and not is_refusal(text)


def _keepers(model: Any, *, seed: int) -> list[dict[str, Any]]:
    """What is to stay: the model's own answers to other requests against a bare city, and refusals of what is harmful
    against what the model says when it does not refuse."""
    items = [Item(f"keep-{index}", as_messages(prompt)) for index, prompt in enumerate((*KEEP, *REFUSE))]
    groups = Subject(model).answer(items, name="keep", max_new_tokens=KEEP_TOKENS)
    draw = random.Random(derive_seed(seed, "quickstart", "keep"))
    rows = []
    for index, (item, group) in enumerate(zip(items, groups, strict=True)):
        answer, city = group.completions[0].text.strip(), draw.choice(TRAIN_CITIES)
        if index >= len(KEEP):
            rows.append(_row(item.prompt, REFUSAL, city if is_refusal(answer) or not answer else answer))
        elif answer:
            rows.append(_row(item.prompt, answer, city))
    return rows


def _row(prompt: str, chosen: str, rejected: str) -> dict[str, Any]:
    answers = {"chosen": chosen, "rejected": rejected}
    row = {side: [{"role": "assistant", "content": text}] for side, text in answers.items()}
    return {"prompt": [{"role": "user", "content": prompt}], **row}


def _teller(progress: Progress | None):
    """Says what is happening, with the minutes since the start."""
    started = time.monotonic()

    def say(message: str) -> None:
        if progress is not None:
            minutes, seconds = divmod(int(time.monotonic() - started), 60)
            progress.note(f"[{minutes}:{seconds:02d}] {message}")

    return say
