"""The invariants of the pipeline hold on the product as it is."""

import pytest

from tests.conformance.pipeline import PIPELINE_CHECKS


@pytest.mark.parametrize("check", PIPELINE_CHECKS, ids=lambda check: check.__name__)
def test_pipeline(check):
    check()
