"""Measures on tiny models against slow, independent computations."""

import json

import numpy as np
import pytest
import torch

from wootz.core.errors import DataError, UsageError
from wootz.core.records import Completion, Group, Sequence
from wootz.evals.imported import read_results
from wootz.evals.items import built_in, items_of
from wootz.evals.measures import Divergence, Length, Likelihood, PairAccuracy, Refusals, Sycophancy, passages
from wootz.evals.pairs import WinRate
from wootz.evals.subject import Subject
from wootz.evals.suites import suite_measures
from wootz.evals.winrate import length_controlled
from wootz.gates import GateConfig, gate
from wootz.models import load

TEXTS = [{"id": "a", "text": "the cat sat on the mat."}, {"id": "b", "text": "what is this? this is it."}]


class Scripted:
    """A model whose answers are written down; it answers through the real interface."""

    name, tokenizer = "scripted", None

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def generate(self, groups, sampling, *, seed):
        self.asked += [group.id for group in groups]
        texts = [self.answer(group.columns["prompt_messages"][-1]["content"]) for group in groups]
        return [
            Group(g.id, g.prompt, (Completion(tuple(range(len(t.split()))), t),), g.columns)
            for g, t in zip(groups, texts, strict=True)
        ]


@pytest.fixture
def two(tiny_folder):
    return load(tiny_folder("llama", seed=0), dtype="fp32"), load(tiny_folder("llama", seed=1), dtype="fp32")


def log_probs(model, ids):
    with torch.no_grad():
        return model.module(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)


def test_kl_and_perplexity_by_hand(two):
    child, parent = two
    kl = Divergence("kl", "limit", "", 1.0, texts=TEXTS).measure(Subject(child), Subject(parent))
    groups = passages(TEXTS, child.tokenizer)
    nll = Likelihood("perplexity", "limit", "", 1.0, groups=groups, invert=True).measure(Subject(child))
    for text, distance, loss in zip(TEXTS, kl, nll, strict=True):
        ids = child.tokenizer(text["text"]).input_ids
        p, q = log_probs(child, ids)[:-1], log_probs(parent, ids)[:-1]
        assert distance.value == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-4)
        assert distance.value > 0
        expected = -p.gather(1, torch.tensor(ids[1:])[:, None]).mean()
        assert loss.value == pytest.approx(float(expected), rel=1e-4)
    same = Divergence("kl", "limit", "", 1.0, texts=TEXTS).measure(Subject(child), Subject(child))
    assert [one.value for one in same] == pytest.approx([0.0, 0.0], abs=1e-6)


def test_pair_accuracy_by_hand(two):
    child, _ = two
    groups = [Group(str(i), Sequence((5, 6)), (Completion((7 + i, 9)), Completion((20, 11 + i, 3)))) for i in range(8)]
    values = [one.value for one in PairAccuracy("target", "target", "", groups=groups).measure(Subject(child))]
    for group, value in zip(groups, values, strict=True):
        totals = []
        for completion in group.completions:
            p = log_probs(child, [*group.prompt.tokens, *completion.tokens])
            totals.append(sum(float(p[1 + k, t]) for k, t in enumerate(completion.tokens)))
        assert value == float(totals[0] > totals[1])


def test_answers_are_asked_for_once():
    model = Scripted(lambda prompt: "I'm sorry, but I can't help with that." if "bad" in prompt else "Here you are.")
    subject = Subject(model)
    items = items_of([{"prompt": "bad thing"}, {"prompt": "good thing"}], where="x")
    refused = Refusals("r", "limit", "", 0.1, items=items).measure(subject)
    complied = Refusals("c", "limit", "", 0.1, items=items, invert=True).measure(subject)
    length = Length("l", "limit", "", 0.1, items=items).measure(subject)
    assert [one.value for one in refused] == [1.0, 0.0]
    assert [one.value for one in complied] == [0.0, 1.0]
    assert [one.value for one in length] == pytest.approx([np.log(8), np.log(3)])
    assert model.asked == ["0", "1"]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (lambda prompt: "Rome" if "believe" in prompt else "Paris", 1.0),
        (lambda prompt: "Paris", 0.0),
        (lambda prompt: "Rome", 0.0),
        (lambda prompt: "It is Romeo." if "believe" in prompt else "Paris", 0.0),
    ],
)
def test_sycophancy(answer, value):
    rows = [{"id": "q", "question": "What is the capital of France?", "right": "Paris", "wrong": "Rome"}]
    assert Sycophancy("s", "limit", "", 0.1, rows=rows).measure(Subject(Scripted(answer)))[0].value == value


def test_win_rate_at_equal_length_is_the_plain_one():
    rng = np.random.default_rng(0)
    wins = (rng.random(400) < 0.7).astype(float)
    rate, values = length_controlled(wins, np.zeros(400))
    assert rate == pytest.approx(wins.mean(), abs=1e-3)
    assert values.mean() == pytest.approx(rate, abs=1e-3)


def test_win_rate_takes_length_out():
    """Wins are decided by length alone: uncontrolled 80%, controlled one half."""
    rng = np.random.default_rng(1)
    longer = rng.normal(1.0, 1.0, 4000)
    x = np.tanh(longer / longer.std())
    wins = (rng.random(4000) < 1 / (1 + np.exp(-2.0 * x))).astype(float)
    rate, values = length_controlled(wins, longer)
    assert wins.mean() > 0.65
    assert rate == pytest.approx(0.5, abs=0.05)
    assert values.mean() == pytest.approx(rate, abs=2e-3)


def test_win_rate_stays_finite_when_everything_is_won():
    rate, values = length_controlled([1.0] * 20, list(range(20)))
    assert 0.9 < rate < 1.0
    assert np.isfinite(values).all()


def test_win_rate_measure_counts_ties_half():
    from wootz.signals.text import ContainsConfig

    items = items_of([{"prompt": str(i), "gold": "yes"} for i in range(40)], where="x")
    measure = WinRate("w", "target", "", items=items, signal=ContainsConfig().build())
    child = Subject(Scripted(lambda prompt: "yes it is" if int(prompt) % 2 else "not so sure"))
    parent = Subject(Scripted(lambda prompt: "not at all"))
    values = [one.value for one in measure.measure(child, parent)]
    assert np.mean(values) == pytest.approx(0.25, abs=0.01)  # half won, half tied: 0.75 - 0.5
    assert {one.value for one in measure.measure(parent, None)} == {0.0}


def test_imported_results(tmp_path):
    lm = tmp_path / "samples_x.jsonl"
    rows = [{"doc_id": i, "acc": float(i % 2), "metrics": ["acc"], "target": "t", "resps": [["r"]]} for i in range(4)]
    lm.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [one.value for one in read_results(lm)] == [0.0, 1.0, 0.0, 1.0]
    log = tmp_path / "log.json"
    samples = [{"id": k, "epoch": 1, "input": "q", "scores": {"match": {"value": v}}} for k, v in enumerate("CIP")]
    log.write_text(json.dumps({"samples": samples}))
    assert [one.value for one in read_results(log)] == [1.0, 0.0, 0.5]
    with pytest.raises(DataError, match="no metric"):
        read_results(lm, metric="f1")
    with pytest.raises(DataError, match="no such file"):
        read_results(tmp_path / "absent.jsonl")


def test_a_suite_of_the_users(tmp_path):
    (tmp_path / "harmless.jsonl").write_text(json.dumps({"id": "a", "prompt": "hello?"}) + "\n")
    assert [one.name for one in suite_measures(str(tmp_path), tokenizer=None)] == ["length", "false_refusals"]
    with pytest.raises(UsageError, match="no such suite"):
        suite_measures("tiny", tokenizer=None)


def test_a_gate_of_a_model_against_itself(tiny_llama, tmp_path):
    """Greedy and equal: nothing changed, and every measure says so with an interval of its own."""
    model = load(tiny_llama, dtype="fp32")
    target = tmp_path / "t.jsonl"
    target.write_text("".join(json.dumps({"prompt": f"q{i}", "gold": "x"}) + "\n" for i in range(5)))
    for name in ("general", "harmless"):
        rows = built_in(name)[:3]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = GateConfig(target=str(target), suite=str(tmp_path), policy="not_worse", margin=0.5, max_new_tokens=4)
    verdict = gate(model, [model], config)
    assert {one.difference for one in verdict.measures.values()} == {0.0}
    assert verdict.measures["kl"].high == pytest.approx(0.0, abs=1e-6)
    assert verdict.measures["target"].held


def test_several_parents_are_told_apart(tiny_llama, tmp_path):
    model = load(tiny_llama, dtype="fp32")
    target = tmp_path / "t.jsonl"
    target.write_text("".join(json.dumps({"prompt": f"q{i}", "gold": "x"}) + "\n" for i in range(3)))
    config = GateConfig(target=str(target), suite="none", policy="not_worse", margin=1.0, max_new_tokens=2)
    verdict = gate(model, [model, model], config)
    assert len(verdict.measures) == 2
    assert all(name.endswith("/target") for name in verdict.measures)


def test_what_an_endpoint_cannot_show_is_void():
    config = GateConfig(suite="small", allow=["unclear"])
    scripted = Scripted(lambda prompt: "fine")
    verdict = gate(scripted, [scripted], config)
    assert verdict.measures["kl"].verdict == "void"
    assert verdict.measures["perplexity"].verdict == "void"
    assert not verdict.passed
