"""Data: formats, detection, conversion, chat templates, checks and audits.

:func:`prepare` is what training calls; :func:`examine` is the same without raising, for ``wootz data check``.
"""

from wootz.data.audit import audit, keep, log_prob_facts, tally
from wootz.data.config import DataConfig
from wootz.data.convert import convert
from wootz.data.detect import Detected, detect
from wootz.data.findings import CHECKS, Check, Finding
from wootz.data.kinds import KINDS, Kind, Row
from wootz.data.prepare import Prepared, examine, prepare
from wootz.data.read import Table, read, write
from wootz.data.rekind import as_kind
from wootz.data.show import examples, pieces, show
from wootz.data.template import render_chat

__all__ = [
    "CHECKS",
    "KINDS",
    "Check",
    "DataConfig",
    "Detected",
    "Finding",
    "Kind",
    "Prepared",
    "Row",
    "Table",
    "as_kind",
    "audit",
    "convert",
    "detect",
    "examine",
    "examples",
    "keep",
    "log_prob_facts",
    "pieces",
    "prepare",
    "read",
    "render_chat",
    "show",
    "tally",
    "write",
]
