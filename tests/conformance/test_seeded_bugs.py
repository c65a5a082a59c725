"""The suite proves itself: known bugs of training tools, planted one at a time, and each is caught.

A bug is a change to the product and the check that must raise. That the same check passes without it is what
``test_objectives`` and ``test_pipeline`` show.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conformance import checks, pipeline
from wootz.core.batch import GroupBatch
from wootz.data.template import ChatFormat
from wootz.data.tokenise import Tokeniser
from wootz.models import generate as generation
from wootz.models import sampling, save, stops
from wootz.models.model import LanguageModel
from wootz.models.plans import Plan
from wootz.models.trial import Trial
from wootz.objectives import preference
from wootz.objectives.pairs import PairObjective
from wootz.objectives.preference import BCOPairConfig, DPOConfig
from wootz.objectives.supervised import SFT, SFTConfig
from wootz.training.annotators import LogpCache
from wootz.training.optim import Optimiser
from wootz.training.sources import DatasetSource

SUMS, COUNTS = PairObjective.sums, PairObjective.counts


def mean_inside_the_loss(patch):
    """The mean of each micro-batch's mean (accumulation changes the loss)."""
    patch.setattr(SFT, "sums", lambda self, o, b: {"nll": -o["logp"].mean() * float(b.lengths.sum()) ** 0.5})
    checks.split_changes_nothing(SFTConfig().build())


def masked_tokens_counted(patch):
    patch.setattr(SFT, "counts", lambda self, b: {"nll": float(len(b.loss_mask))})
    checks.masked_tokens_weigh_nothing(SFTConfig().build())


def count_not_additive(patch):
    """A normaliser that is the same on every process."""
    patch.setattr(PairObjective, "counts", lambda self, b: dict.fromkeys(COUNTS(self, b), 7.0))
    checks.processes_change_nothing(DPOConfig().build())


def reference_left_out(patch):
    patch.setattr(GroupBatch, "per_token", lambda self, name: torch.zeros(int(self.lengths.sum())))
    checks.reference_identity_at_step_zero(DPOConfig().build())


def metric_with_gradient(patch):
    def sums(self, outputs, batch):
        return SUMS(self, outputs, batch) | {"reward/margin": outputs["logp"].sum()}

    patch.setattr(PairObjective, "sums", sums)
    checks.parts_are_named_once(DPOConfig().build())


def part_never_counted(patch):
    patch.setattr(PairObjective, "counts", lambda self, b: {"dpo": float(b.num_units)})
    checks.parts_are_named_once(DPOConfig().build())


def log_of_sigmoid(patch):
    """log(sigmoid(x)) instead of the stable form."""
    patch.setattr(preference.F, "logsigmoid", lambda x: torch.log(torch.sigmoid(x)))
    checks.edges_are_finite(DPOConfig(beta=1.0).build())


def lengths_of_all_tokens(patch):
    """Sums over a completion that count masked tokens move into the next one."""
    every = property(lambda self: torch.tensor([len(c.tokens) for c in self._completions]))
    patch.setattr(GroupBatch, "lengths", every)
    checks.order_changes_nothing(DPOConfig().build())


def last_shard_dropped(patch):
    patch.setattr(GroupBatch, "shard", lambda self, rank, size: replace(self, groups=self.groups[rank:-1:size]))
    checks.processes_change_nothing(DPOConfig().build())


def baseline_of_one_process(patch):
    """A mean over the step that each process takes over its own rows."""
    prepare = PairObjective.prepare
    patch.setattr(PairObjective, "prepare", lambda self, batch, total: prepare(self, batch, lambda sums: sums))
    checks.prepared_alike_in_processes(BCOPairConfig().build())


def split_loses_a_row(patch):
    whole = GroupBatch.split
    patch.setattr(GroupBatch, "split", lambda self, unit, n: whole(self, unit, n)[:-1] or [self])
    checks.split_changes_nothing(SFTConfig().build())


def smoothing_without_gradient(patch):
    def dpo(margin, *, beta, label_smoothing=0.0):
        return -torch.nn.functional.logsigmoid(beta * margin) * (1 + label_smoothing * (margin > 0).detach())

    patch.setattr(preference, "dpo", lambda difference, *, beta, **_: dpo(difference.detach(), beta=beta))
    checks.split_changes_nothing(DPOConfig().build())


def _without_trial(patch):
    """A model tries its plans out at first use and leaves a wrong one; here it is made to believe in them."""
    patch.setattr(Trial, "difference", lambda self, name, hidden: None)


def completions_see_each_other(patch):
    """Packing whose mask forgets where samples end."""
    _without_trial(patch)
    patch.setattr(Plan, "sees", lambda self, q, k, window: k[None, :] <= q[:, None])
    pipeline.samples_do_not_leak()


def completions_see_each_other_in_gradients(patch):
    _without_trial(patch)
    patch.setattr(Plan, "sees", lambda self, q, k, window: k[None, :] <= q[:, None])
    pipeline.forward_equals_one_row_at_a_time()


def positions_run_on(patch):
    """Positions that do not restart at each completion."""
    _without_trial(patch)
    from wootz.models.plans import _Builder

    finish = _Builder.finish

    def running(self, name):
        plan = finish(self, name)
        starts = np.repeat(plan.row_starts, plan.row_lengths)
        return replace(plan, positions=np.arange(plan.num_slots) - starts)

    patch.setattr(_Builder, "finish", running)
    pipeline.forward_equals_one_row_at_a_time()


def predictors_shifted(patch):
    """Each token predicts itself."""
    from wootz.models.plans import _Builder

    finish = _Builder.finish

    def shifted(self, name):
        plan = finish(self, name)
        return replace(plan, predictors=np.minimum(plan.predictors + 1, plan.num_slots - 1))

    patch.setattr(_Builder, "finish", shifted)
    pipeline.flat_equals_one_row_at_a_time()


def adapter_scaling_forgotten(patch):
    _without_trial(patch)
    from wootz.models.fast import linear

    init = linear.Linear.__init__

    def unscaled(self, projection):
        init(self, projection)
        self._parts = [(a, b / a.scaling, rows, ranks) for a, b, rows, ranks in self._parts]

    patch.setattr(linear.Linear, "__init__", unscaled)
    pipeline.forward_equals_one_row_at_a_time()


def reference_with_the_adapter_on(patch):
    import contextlib

    patch.setattr(LanguageModel, "adapter_off", lambda self: contextlib.nullcontext())
    pipeline.step_zero_is_the_reference()


def cache_forgets_completions(patch):
    """A cache keyed on the prompt alone."""
    patch.setattr(LogpCache, "key", staticmethod(lambda group: str(group.prompt.tokens).encode()))
    pipeline.cached_equals_live()


def cache_of_zeros(patch):
    get = LogpCache.get

    def zeros(self, group):
        found = get(self, group)
        return found if found is None else [0 * values for values in found]

    patch.setattr(LogpCache, "get", zeros)
    pipeline.cached_equals_live()


def end_of_turn_not_learned(patch):
    turn = ChatFormat._turn_tokens
    patch.setattr(ChatFormat, "_turn_tokens", lambda self, tokens: turn(self, tokens) - 1)
    patch.setattr(Tokeniser, "_close", lambda self, answer, *, chat: answer)
    pipeline.only_answers_are_trained()


def users_are_learned(patch):
    """The questions between two answers are trained on."""
    trained = ChatFormat.trained

    def filled(self, tokens, spans):
        return trained(self, tokens, [(spans[0][0], spans[-1][1])])

    patch.setattr(ChatFormat, "trained", filled)
    pipeline.only_answers_are_trained()


def bos_twice(patch):
    encode = ChatFormat.encode

    def doubled(self, text):
        tokens = encode(self, text)
        bos = self.tokenizer.bos_token_id
        if bos is None or not tokens.ids or tokens.ids[0] != bos:
            return tokens
        starts, ends = np.insert(tokens.starts, 0, 0), np.insert(tokens.ends, 0, 0)
        return replace(tokens, ids=(bos, *tokens.ids), starts=starts, ends=ends)

    patch.setattr(ChatFormat, "encode", doubled)
    pipeline.only_answers_are_trained()


def merged_without_the_adapter(patch):
    patch.setattr(
        save, "merged_state", lambda module: {
            name.replace(".base_layer", ""): value
            for name, value in module.get_base_model().state_dict().items()
            if "lora_" not in name
        }
    )  # fmt: skip
    pipeline.saved_equals_loaded()


def moments_not_restored(patch):
    patch.setattr(Optimiser, "load_state_tensors", lambda self, tensors: None)
    pipeline.ten_steps_are_five_and_five()


def data_starts_over_after_a_resume(patch):
    patch.setattr(DatasetSource, "load_state_dict", lambda self, state: None)
    pipeline.ten_steps_are_five_and_five()


def temperature_missing_from_logp(patch):
    """Samples drawn at one temperature, their log-probs taken at another."""

    def drawn(logits, settings, uniforms):
        tokens, _ = sampling._draw(logits, settings, uniforms)
        return tokens, logits.float().log_softmax(-1).gather(1, tokens[:, None])[:, 0]

    patch.setattr(generation, "draw", drawn)
    pipeline.sampled_equals_recomputed()


def one_end_token_known(patch):
    patch.setattr(generation, "end_tokens", lambda model: frozenset({model.tokenizer.eos_token_id}))
    pipeline.every_end_token_ends()


def end_token_never_seen(patch):
    patch.setattr(stops.Ending, "reached", lambda self, tokens: False)
    pipeline.every_end_token_ends()


def columns_out_of_order(patch):
    given = GroupBatch.with_columns

    def turned(self, columns):
        return given(self, {name: values[::-1] for name, values in columns.items()})

    patch.setattr(GroupBatch, "with_columns", turned)
    pipeline.columns_follow_their_rows()


def columns_broadcast(patch):
    given = GroupBatch.with_columns

    def stretched(self, columns):
        count = self.num_completions
        return given(self, {name: (list(values) * count)[:count] for name, values in columns.items()})

    patch.setattr(GroupBatch, "with_columns", stretched)
    pipeline.columns_follow_their_rows()


BUGS = (
    mean_inside_the_loss,
    masked_tokens_counted,
    count_not_additive,
    reference_left_out,
    metric_with_gradient,
    part_never_counted,
    log_of_sigmoid,
    lengths_of_all_tokens,
    last_shard_dropped,
    baseline_of_one_process,
    split_loses_a_row,
    smoothing_without_gradient,
    completions_see_each_other,
    completions_see_each_other_in_gradients,
    positions_run_on,
    predictors_shifted,
    adapter_scaling_forgotten,
    reference_with_the_adapter_on,
    cache_forgets_completions,
    cache_of_zeros,
    end_of_turn_not_learned,
    users_are_learned,
    bos_twice,
    merged_without_the_adapter,
    moments_not_restored,
    data_starts_over_after_a_resume,
    temperature_missing_from_logp,
    one_end_token_known,
    end_token_never_seen,
    columns_out_of_order,
    columns_broadcast,
)


def test_there_are_enough():
    assert len(set(BUGS)) >= 20


def test_a_wrong_plan_is_left_by_itself(monkeypatch):
    """The same bug with the trial in place: the numbers stay right, and the model says what it fell back to."""
    monkeypatch.setattr(Plan, "sees", lambda self, q, k, window: k[None, :] <= q[:, None])
    pipeline.forward_equals_one_row_at_a_time()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_seeded_bug_is_caught(bug, monkeypatch):
    with pytest.raises((AssertionError, RuntimeError, IndexError, ValueError)):
        bug(monkeypatch)
