"""Training curves: which metrics share a plot, thinning, smoothing, guard marks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wootz.figures import Frame, Limit, Mark, Phase, Series, curves, finite
from wootz.report.files import RunFiles, mapping, sequence

MOST_POINTS = 300
"""Points a line; longer series keep the lowest and highest of each stretch."""
MOST_PLOTS = 60
_SMOOTHED = 40
_MARKED = ("guard", "warning", "stop", "error")
_IGNORED = ("step", "time", "schema")


@dataclass(frozen=True)
class Plot:
    """A titled plot; ``minor`` ones are folded away."""

    title: str
    about: str
    svg: str
    minor: bool = False


@dataclass(frozen=True)
class _Panel:
    title: str
    keys: tuple[tuple[str, str], ...]
    about: str = ""
    log: bool = False
    y_range: tuple[float, float] | None = None
    minor: bool = False


_PANELS = (
    _Panel("Loss", (("loss/total", "training"), ("eval/total", "held out")), "what is minimised"),
    _Panel("Ranked right", (("reward/accuracy", "training"), ("eval/reward_accuracy", "held out")),
           "share of pairs where the better answer has the higher implicit reward", y_range=(0.0, 1.0)),
    _Panel("Implicit reward",
           (("reward/chosen", "chosen"), ("reward/rejected", "rejected"), ("reward/margin", "margin")),
           "how far each answer's log-probability has moved, scaled by beta"),
    _Panel("Reward", (("reward/mean", "mean"), ("reward/total", "total")), "of sampled answers"),
    _Panel("Distance from the reference", (("kl/reference", "KL"),), "nats an answer, on sampled answers"),
    _Panel("Length of answers", (("rollout/length", "tokens"),), "tokens a sampled answer"),
    _Panel("Answers that end", (("rollout/finished", "finished"),), "share that ended", y_range=(0.0, 1.0)),
    _Panel("Log-probability", (("logp/chosen", "chosen"), ("logp/rejected", "rejected")), "of whole answers, in nats"),
    _Panel("Gradient norm", (("optim/grad_norm", "norm"),), "before clipping", log=True),
    _Panel("Learning rate", (("optim/lr", "learning rate"),), "", minor=True),
    _Panel("Seconds a step", (("time/step", "seconds"),), "", minor=True),
    _Panel("Peak memory", (("mem/peak_mb", "MB"),), "MB", minor=True),
)  # fmt: skip


def plots(files: RunFiles) -> tuple[list[Plot], int]:
    """Returns the plots of one run's metrics, the telling ones first, and how many metrics found no room."""
    values = columns(files.metrics)
    used = {key for panel in _PANELS for key, _ in panel.keys}
    panels = list(_PANELS)
    panels += [_Panel(key, ((key, key),), minor=True) for key in sorted(values) if key not in used]
    panels = [panel for panel in panels if any(key in values for key, _ in panel.keys)]
    marks, limits = _marks(files.events), _limits(files.recipe)
    made = [_plot(panel, values, marks, limits, phases=_phases(files)) for panel in panels[:MOST_PLOTS]]
    return made, max(0, len(panels) - MOST_PLOTS)


def columns(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[list[float], list[float | None]]]:
    """Returns each numeric metric as its steps and values, in step order; of a repeated step, the last."""
    found: dict[str, dict[float, float | None]] = {}
    for record in records:
        step = finite(record.get("step"))
        if step is None:
            continue
        for key, value in record.items():
            # The run directory writes null for what is not finite: a gap.
            if key not in _IGNORED and (value is None or finite(value) is not None or isinstance(value, float)):
                found.setdefault(key, {})[step] = finite(value)
    kept = {key: points for key, points in found.items() if any(v is not None for v in points.values())}
    return {key: ([*sorted(points)], [points[s] for s in sorted(points)]) for key, points in kept.items()}


@dataclass(frozen=True)
class _Shared:
    title: str
    key: str
    log: bool = False


_SHARED = (
    _Shared("Loss", "loss/total"),
    _Shared("Held-out loss", "eval/total"),
    _Shared("Ranked right, held out", "eval/reward_accuracy"),
    _Shared("Reward", "reward/mean"),
    _Shared("Distance from the reference", "kl/reference"),
    _Shared("Length of answers", "rollout/length"),
    _Shared("Gradient norm", "optim/grad_norm", log=True),
)


def shared_plots(runs: Mapping[str, RunFiles]) -> list[Plot]:
    """Returns the plots that several named runs have in common, a line each."""
    values = {name: columns(files.metrics) for name, files in runs.items()}
    made = []
    for panel in _SHARED:
        series = []
        for place, (name, found) in enumerate(values.items()):
            if panel.key in found:
                x, y = found[panel.key]
                y = smooth(y, max(5, len(x) // 25) | 1) if len(x) >= _SMOOTHED and not panel.log else y
                series.append(Series(name, *thin(x, y), colour=place))
        if series:
            svg = curves(series, Frame(log_y=panel.log), title=panel.title)
            made.append(Plot(panel.title, panel.key, svg))
    return made


def thin(
    x: Sequence[float], y: Sequence[float | None], most: int = MOST_POINTS
) -> tuple[list[float], list[float | None]]:
    """Returns at most about ``most`` points: the lowest and highest of each of ``most / 2`` stretches, gaps kept."""
    if len(x) <= most:
        return list(x), list(y)
    stretches = max(1, most // 2)
    kept: set[int] = {0, len(x) - 1}
    for k in range(stretches):
        indices = range(k * len(x) // stretches, (k + 1) * len(x) // stretches)
        known = [(value, index) for index in indices if (value := y[index]) is not None]
        kept |= {min(known)[1], max(known)[1]} if known else {indices[0]}
    order = sorted(kept)
    return [x[i] for i in order], [y[i] for i in order]


def smooth(y: Sequence[float | None], window: int) -> list[float | None]:
    """Returns the mean over a centred window, of what is known there; a gap stays a gap."""
    half, result = window // 2, []
    for index, value in enumerate(y):
        near = [v for v in y[max(0, index - half) : index + half + 1] if v is not None]
        result.append(None if value is None else sum(near) / len(near))
    return result


def _plot(
    panel: _Panel,
    values: Mapping[str, tuple[list[float], list[float | None]]],
    marks: Sequence[Mark],
    limits: Mapping[str, list[Limit]],
    *,
    phases: Sequence[Phase],
) -> Plot:
    series, about = [], panel.about
    for place, (key, name) in enumerate(panel.keys):
        if key not in values:
            continue
        x, y = values[key]
        if len(x) >= _SMOOTHED and not panel.log and not key.startswith(("optim/lr", "mem/")):
            window = max(5, len(x) // 25) | 1
            series.append(Series(name, *thin(x, y), faint=True, colour=place))
            y = smooth(y, window)
            told = f"mean of {window} steps"
            about = about if told in about else "; ".join(part for part in (about, told) if part)
        series.append(Series(name, *thin(x, y), colour=place))
    shown = [limit for key, _ in panel.keys for limit in limits.get(key, [])]
    y_range = panel.y_range
    if y_range and any(v is not None and not y_range[0] <= v <= y_range[1] for one in series for v in one.y):
        y_range = None
    frame = Frame(log_y=panel.log, y_range=y_range)
    svg = curves(series, frame, title=panel.title, marks=marks, phases=phases, limits=shown)
    return Plot(panel.title, about, svg, panel.minor)


def _marks(events: Iterable[Mapping[str, Any]]) -> list[Mark]:
    found = []
    for event in events:
        step, kind = finite(event.get("step")), str(event.get("kind"))
        if step is not None and kind in _MARKED:
            source = f"{event.get('source')}: " if event.get("source") else ""
            found.append(Mark(step, f"{source}{event.get('message')}"[:200], "unclear" if kind == "warning" else "bad"))
    return found[-20:]


def _limits(recipe: Mapping[str, Any]) -> dict[str, list[Limit]]:
    """The guards' limits that are values of a metric."""
    found: dict[str, list[Limit]] = {}
    for guard in map(mapping, sequence(recipe.get("guards"))):
        if guard.get("type") == "kl":
            for key in ("warn_above", "stop_above"):
                if (limit := finite(guard.get(key))) is not None:
                    found.setdefault("kl/reference", []).append(Limit(limit, key.split("_")[0] + " above"))
    return found


def _phases(files: RunFiles) -> list[Phase]:
    """Phases a run declares in ``resolved.json``: ``"phases": [{"name", "start", "stop"}]``."""
    found = []
    for phase in map(mapping, sequence(files.resolved.get("phases"))):
        start, stop = finite(phase.get("start")), finite(phase.get("stop"))
        if start is not None and stop is not None and stop > start:
            found.append(Phase(str(phase.get("name", "")), start, stop))
    return found
