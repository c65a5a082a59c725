import numpy as np
import pytest
from pydantic import ValidationError

from tests.unit.training.bigram import pairs
from wootz.core.errors import DataError
from wootz.training import OptimConfig, TrainConfig
from wootz.training.optim import learning_rate
from wootz.training.sources import DatasetSource


def served(source) -> list[list[str]]:
    return [[group.id for group in batch.groups] for batch in source]


def test_every_row_once_an_epoch_in_another_order():
    batches = served(DatasetSource(pairs(10), TrainConfig(groups_per_step=4, epochs=3), seed=0))
    assert [len(batch) for batch in batches] == [4, 4, 2] * 3
    epochs = [sum(batches[start : start + 3], []) for start in (0, 3, 6)]
    assert all(sorted(epoch) == sorted(g.id for g in pairs(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize(
    "config", [TrainConfig(groups_per_step=3, max_steps=11), TrainConfig(tokens_per_step=30, epochs=2)]
)
def test_resume_serves_the_same_rows(config):
    whole = served(DatasetSource(pairs(10), config, seed=4))
    source = DatasetSource(pairs(10), config, seed=4)
    first = []
    for batch in source:
        first.append([g.id for g in batch.groups])
        if len(first) == 4:
            state = source.state_dict()
            break
    again = DatasetSource(pairs(10), config, seed=4)
    again.load_state_dict(state)
    assert first + served(again) == whole
    assert len(whole) == source.num_steps


def test_tokens_per_step_is_a_ceiling():
    groups = pairs(30)
    sizes = []
    for batch in DatasetSource(groups, TrainConfig(tokens_per_step=40), seed=1):
        sizes.append(batch.num_tokens)
    assert max(sizes) <= 40
    assert np.mean(sizes) > 25


def test_a_row_longer_than_the_budget_is_served_alone():
    batches = served(DatasetSource(pairs(5), TrainConfig(tokens_per_step=1), seed=1))
    assert [len(batch) for batch in batches] == [1] * 5


def test_part_of_an_epoch():
    assert DatasetSource(pairs(20), TrainConfig(groups_per_step=2, epochs=0.5), seed=0).num_steps == 5
    assert DatasetSource(pairs(20), TrainConfig(groups_per_step=2, epochs=1.5), seed=0).num_steps == 15


def test_nothing_to_train_on():
    with pytest.raises(DataError, match="no rows"):
        DatasetSource([], TrainConfig(), seed=0)


@pytest.mark.parametrize("both", [{"epochs": 1, "max_steps": 3}, {"tokens_per_step": 10, "groups_per_step": 3}])
def test_said_twice_is_refused(both):
    with pytest.raises(ValidationError, match="keep one"):
        TrainConfig(**both)


def test_schedules_against_closed_forms():
    cosine = OptimConfig(schedule="cosine", warmup=0.1)
    rates = [learning_rate(step, 100, peak=2.0, config=cosine) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([0.2 * k for k in range(1, 11)])
    assert rates[10] == pytest.approx(2.0)
    assert rates[55] == pytest.approx(1.0)
    assert 0 < rates[-1] < 1e-3
    assert learning_rate(7, 9, peak=3.0, config=OptimConfig(schedule="constant", warmup=0)) == 3.0
