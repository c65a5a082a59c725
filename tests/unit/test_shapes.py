"""The suite itself: shapes of the tensor code are checked at every call."""

import jaxtyping
import pytest
import torch

from wootz.core.batch import GroupBatch
from wootz.objectives.preference import dpo


def test_a_wrong_shape_is_an_error():
    assert dpo(torch.zeros(3), beta=0.1).shape == (3,)
    with pytest.raises(jaxtyping.TypeCheckError):
        dpo(torch.zeros(3, 2), beta=0.1)
    with pytest.raises(jaxtyping.TypeCheckError):
        dpo(torch.zeros(3, dtype=torch.long), beta=0.1)
    with pytest.raises(jaxtyping.TypeCheckError):
        GroupBatch(()).sum_by_completion(torch.zeros(2, 2))
