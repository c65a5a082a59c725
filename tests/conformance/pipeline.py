"""The invariants of everything around objectives: forward passes, data, references, saving, resuming, sampling."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from tests.batches import random_batch, slow_logp, tiny_language_model, value_and_gradients
from tests.tiny import make_tokenizer
from tests.unit.training.bigram import Bigram, pairs
from wootz.core.batch import GroupBatch
from wootz.core.records import Completion, Group, Sequence
from wootz.core.rundir import RunDir
from wootz.data import DataConfig, prepare, write
from wootz.models import Sampling, load
from wootz.models.forward import forward_groups
from wootz.objectives.preference import DPOConfig
from wootz.training import TrainConfig
from wootz.training.annotators import LogpCache, RoleLogp
from wootz.training.checkpoint import newest_checkpoint
from wootz.training.loop import Loop
from wootz.training.recorder import Recorder
from wootz.training.sources import DatasetSource


def forward_equals_one_row_at_a_time(plan: str = "shared", kind: str = "llama") -> None:
    """Values and gradients equal the module's own, row by row, whole logits."""
    model, batch = tiny_language_model(kind, "lora"), random_batch()
    found, gradient = value_and_gradients(model, lambda: forward_groups(model, batch, plan=plan)["logp"])
    expected, slow = value_and_gradients(model, lambda: slow_logp(model.module, batch))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for name in slow:
        torch.testing.assert_close(gradient[name], slow[name], rtol=1e-3, atol=1e-4)


def flat_equals_one_row_at_a_time() -> None:
    forward_equals_one_row_at_a_time("flat", "gpt2")


def samples_do_not_leak() -> None:
    """Another completion's tokens, and another row's, move nothing."""
    model = tiny_language_model("llama")
    one = Group("a", Sequence((5, 6, 7)), (Completion((8, 9)), Completion((10, 11, 12))))
    other = Group("a", Sequence((5, 6, 7)), (Completion((8, 9)), Completion((20, 21, 22))))
    next_row = Group("b", Sequence((30, 31)), (Completion((32, 33, 34, 35)),))
    with torch.no_grad():
        values = [model.forward(GroupBatch(groups))["logp"][:2] for groups in ((one,), (other,), (one, next_row))]
        first = Group("a", one.prompt, (Completion((40, 41)), one.completions[1]))
        seconds = [model.forward(GroupBatch((group,)))["logp"][2:] for group in (one, first)]
    for value in values[1:]:
        torch.testing.assert_close(value, values[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(seconds[1], seconds[0], rtol=1e-5, atol=1e-6)


def step_zero_is_the_reference() -> None:
    """Every adapter route: at step 0 the reference is the policy; training moves the policy alone."""
    for kind in ("llama", "gpt2"):
        model, batch = tiny_language_model(kind, "lora"), random_batch()
        for name, parameter in model.module.named_parameters():
            if "lora_B" in name:
                parameter.data.zero_()
        reference = model.reference()
        with torch.no_grad():
            before = reference.forward(batch, ("logp",))["logp"]
            torch.testing.assert_close(model.forward(batch)["logp"], before, rtol=1e-5, atol=1e-6)
            for master in model.masters().values():
                master.add_(0.1)
            model.refresh()
            after = reference.forward(batch, ("logp",))["logp"]
            torch.testing.assert_close(after, before, rtol=0, atol=0)
            assert (model.forward(batch)["logp"] - before).abs().max() > 1e-3


def cached_equals_live() -> None:
    """For every row, the tail included, in any order, with completions that share a prompt."""
    rows = [*pairs(7), Group("twin", pairs(1)[0].prompt, pairs(2)[1].completions)]
    role = {"reference": Bigram(seed=4)}
    annotator = RoleLogp("reference", "ref_logp", max_tokens=25, cache=LogpCache("x"))
    annotator.annotate(GroupBatch(tuple(rows)), role)
    served = annotator.annotate(GroupBatch(tuple(rows[::-1])), {"reference": Bigram(seed=9)})
    live = role["reference"].forward(GroupBatch(tuple(rows[::-1])), ("logp",))["logp"]
    torch.testing.assert_close(served.per_token("ref_logp"), live.detach(), rtol=0, atol=1e-12)


def only_answers_are_trained() -> None:
    """The trained text is the answer and one end of turn, in single and multi-turn rows; one BOS at most."""
    answers = ("the cat", "it is on the mat.")
    messages = [
        {"role": "user", "content": "what is this?"},
        {"role": "assistant", "content": answers[0]},
        {"role": "user", "content": "the dog and the cat"},
        {"role": "assistant", "content": answers[1]},
    ]
    for options in ({}, {"pad": "<|im_end|>"}, {"bos": "<|bos|>", "adds_bos": True}):
        tokenizer = make_tokenizer(**options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.jsonl"
            write([{"messages": messages}], path)
            group = prepare(DataConfig(train=str(path)), tokenizer, max_length=200, kinds=("messages",)).train[0]
        completion = group.completions[0]
        trained = [token for token, kept in zip(completion.tokens, completion.loss_mask, strict=True) if kept]
        assert tokenizer.decode(trained) == "".join(f"{answer}<|im_end|>" for answer in answers)
        every = (*group.prompt.tokens, *completion.tokens)
        if tokenizer.bos_token_id is not None:
            assert every.count(tokenizer.bos_token_id) == 1


def saved_equals_loaded() -> None:
    """An adapter, and the whole model with the adapter in it, give the same log-probs after a reload."""
    model, batch = tiny_language_model("llama", "lora"), random_batch()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        expected = model.forward(batch)["logp"]
        model.save(Path(folder) / "whole", merged=True)
        merged = load(str(Path(folder) / "whole"), dtype="fp32").forward(batch)["logp"]
        torch.testing.assert_close(merged, expected, rtol=1e-4, atol=1e-4)


def _loop(run: RunDir | None, steps: int) -> Loop:
    config = TrainConfig(lr=0.05, max_steps=steps, groups_per_step=3, checkpoint_every=5)
    return Loop(
        roles={"policy": Bigram(), "reference": Bigram(seed=5)},
        source=DatasetSource(pairs(11), config, seed=3),
        objective=DPOConfig().build(),
        config=config,
        recorder=Recorder(run),
        seed=3,
        annotators=[RoleLogp("reference", "ref_logp", max_tokens=20)],
        checkpoints=run is not None,
    )


def ten_steps_are_five_and_five() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run")
        whole = _loop(None, 10)
        whole.run()
        first = _loop(run, 10)
        batches = iter(first.source)
        for _ in range(5):
            first.update(next(batches))
        first.save()
        second = _loop(run, 10)
        second.load(newest_checkpoint(run)[0])
        second.run()
        assert torch.equal(second.policy.table, whole.policy.table)


def sampled_equals_recomputed() -> None:
    """Log-probs of samples are those of the model at the sampler's own temperature, in fp32."""
    model = tiny_language_model("llama")
    prompts = [Group(str(i), Sequence((5 + i, 6, 7)), ()) for i in range(4)]
    for temperature in (0.7, 1.0, 1.5):
        groups = model.generate(prompts, Sampling(temperature=temperature, max_new_tokens=6, num_samples=2), seed=1)
        for group in groups:
            for completion in group.completions:
                ids = torch.tensor([[*group.prompt.tokens, *completion.tokens]])
                with torch.no_grad():
                    logits = model.module(input_ids=ids).logits[0] / temperature
                start = len(group.prompt.tokens) - 1
                table = logits.log_softmax(-1)[start:-1]
                expected = table.gather(1, torch.tensor(completion.tokens)[:, None])[:, 0]
                found = torch.from_numpy(np.asarray(completion.per_token["sample_logp"]))
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def every_end_token_ends() -> None:
    """With two end tokens, a completion that stops at either is finished."""
    model = tiny_language_model("llama")
    ends = (model.tokenizer.eos_token_id, 17)
    model.module.generation_config.eos_token_id = list(ends)
    prompts = [Group(str(i), Sequence((5, 6 + i)), ()) for i in range(40)]
    groups = model.generate(prompts, Sampling(temperature=3.0, max_new_tokens=60), seed=0)
    stops = [c.tokens[-1] for g in groups for c in g.completions if c.finished]
    assert 17 in stops, "no completion ended at the second end token"
    for group in groups:
        for completion in group.completions:
            assert not set(completion.tokens[:-1]) & set(ends), "went on after an end token"
            assert completion.finished == (completion.tokens[-1] in ends)


def columns_follow_their_rows() -> None:
    """Through sharding and splitting, a completion keeps its own column, and a wrong number of values is refused."""
    batch = GroupBatch(tuple(pairs(9)))
    marked = batch.with_columns({"mark": [hash(c.tokens) for g in batch.groups for c in g.completions]})
    for part in [*marked.split("group", 20), *(marked.shard(rank, 2) for rank in range(2))]:
        for group in part.groups:
            for completion in group.completions:
                assert completion.columns["mark"] == hash(completion.tokens)
    try:
        batch.with_columns({"mark": [1.0]})
    except ValueError:
        return
    raise AssertionError("a wrong number of values was taken")


PIPELINE_CHECKS = (
    forward_equals_one_row_at_a_time,
    flat_equals_one_row_at_a_time,
    samples_do_not_leak,
    step_zero_is_the_reference,
    cached_equals_live,
    only_answers_are_trained,
    saved_equals_loaded,
    ten_steps_are_five_and_five,
    sampled_equals_recomputed,
    every_end_token_ends,
    columns_follow_their_rows,
)
