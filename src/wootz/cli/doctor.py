"""``wootz doctor``."""

from __future__ import annotations

from typing import Any

from wootz.cli.flags import Flags, verb
from wootz.cli.words import table

_MARKS = {True: "ok", False: "no", None: "--"}


@verb("device")
def doctor(flags: Flags) -> int:
    """Say what this machine can do, and how to get what is missing; exit 4 when wootz cannot work."""
    from wootz.api.doctor import examine_machine

    found = examine_machine(device=flags.device or "auto")
    flags.result(found, _text(found))
    return 0 if found["ok"] else 4


def _text(found: dict[str, Any]) -> str:
    lines = []
    for title, checks in found["sections"].items():
        lines.append(title)
        lines.append(table((_MARKS[check["ok"]], check["name"], check["says"]) for check in checks))
        lines += [f"     fix: {check['fix']}" for check in checks if check["fix"] and check["ok"] is not True]
    lines.append("ready" if found["ok"] else "not ready")
    return "\n".join(lines)
