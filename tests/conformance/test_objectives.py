"""Every registered objective, at every setting listed, holds every invariant."""

import pytest

from tests.conformance.cases import objective_cases
from tests.conformance.checks import OBJECTIVE_CHECKS


@pytest.mark.parametrize("check", OBJECTIVE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("config", objective_cases())
def test_objective(config, check):
    check(config.build())
