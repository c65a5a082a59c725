"""Endpoints, against a real server over a tiny model: its numbers, its habits, its failures."""

import numpy as np
import pytest
import torch

from tests.tiny import make_groups, make_model, make_tokenizer
from tests.unit.models.endpoint import Served, serve
from wootz.core.batch import GroupBatch
from wootz.core.errors import MissingError, ModelError
from wootz.core.records import Group, Sequence
from wootz.core.seeds import derive_seed
from wootz.models import Sampling, load, load_tokenizer
from wootz.models import remote as remote_module
from wootz.models.remote import RemoteModel

MODULE, TOKENIZER = make_model("llama"), make_tokenizer()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(remote_module.time, "sleep", lambda _: None)


@pytest.fixture
def served():
    with serve(Served(MODULE, TOKENIZER)) as server:
        yield server


def groups(count: int = 3) -> list[Group]:
    made = []
    for index in range(count):
        text = f"the cat sat {index}"
        made.append(Group(f"g{index}", Sequence(tuple(TOKENIZER(text).input_ids), text), (), {"gold": index}))
    return made


def logp_of(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> np.ndarray:
    with torch.no_grad():
        logp = MODULE(torch.tensor([prompt + tokens])).logits[0].log_softmax(-1)
    return np.array([float(logp[len(prompt) + i - 1, token]) for i, token in enumerate(tokens)])


def test_samples_carry_ids_and_the_log_probs_they_were_drawn_with(served):
    model = load(f"{served.url}#tiny")
    out = model.generate(groups(), Sampling(max_new_tokens=6, num_samples=2), seed=7)
    assert [g.id for g in out] == ["g0", "g1", "g2"]
    assert [g.columns["gold"] for g in out] == [0, 1, 2]
    for group in out:
        assert len(group.completions) == 2
        for completion in group.completions:
            assert completion.text == TOKENIZER.decode(completion.tokens, skip_special_tokens=True)
            expected = logp_of(group.prompt.tokens, completion.tokens)
            np.testing.assert_allclose(completion.per_token["sample_logp"], expected, rtol=1e-4, atol=1e-5)
            assert completion.finished == (completion.tokens[-1] == TOKENIZER.eos_token_id)


def test_results_do_not_depend_on_what_is_asked_beside(served):
    model = load(f"{served.url}#tiny")
    sampling = Sampling(max_new_tokens=5, num_samples=3)
    together = model.generate(groups(4), sampling, seed=1)
    alone = [model.generate([group], sampling, seed=1)[0] for group in groups(4)]
    assert [[c.tokens for c in g.completions] for g in together] == [[c.tokens for c in g.completions] for g in alone]
    other = model.generate(groups(4), sampling, seed=2)
    assert [[c.tokens for c in g.completions] for g in together] != [[c.tokens for c in g.completions] for g in other]
    assert {body["seed"] for body in served.requests[:12]} == {
        derive_seed(1, f"g{index}", r) for index in range(4) for r in range(3)
    }


def test_log_probs_of_another_distribution_are_left_out(served):
    model = load(f"{served.url}#tiny")
    for sampling in (Sampling(temperature=0.5), Sampling(temperature=0), Sampling(top_p=0.9), Sampling(top_k=5)):
        out = model.generate(groups(1), sampling.model_copy(update={"max_new_tokens": 3}), seed=0)
        assert out[0].completions[0].tokens
        assert "sample_logp" not in out[0].completions[0].per_token


def test_greedy_is_the_models_own(served):
    out = load(f"{served.url}#tiny").generate(groups(1), Sampling(temperature=0, max_new_tokens=5), seed=0)
    ids = torch.tensor([groups(1)[0].prompt.tokens])
    expected = MODULE.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    assert out[0].completions[0].tokens == tuple(expected.tolist())


def test_what_is_asked_for(served):
    chat = [{"role": "user", "content": "what is this?"}]
    group = Group("c", Sequence((5, 6), "rendered"), (), {"prompt_messages": chat})
    sampling = Sampling(temperature=0.3, top_p=0.8, top_k=4, max_new_tokens=2, stop=("\n",))
    RemoteModel(f"{served.url}#tiny").generate([group], sampling, seed=0)
    RemoteModel(f"{served.url}#tiny", prompts="tokens").generate([group], sampling, seed=0)
    RemoteModel(f"{served.url}#tiny").generate([Group("t", Sequence((5, 6)), ())], Sampling(max_new_tokens=2), seed=0)
    chatted, by_ids, plain = served.requests
    assert chatted["path"] == "/v1/chat/completions"
    assert chatted["messages"] == chat
    assert by_ids["path"] == plain["path"] == "/v1/completions"
    assert by_ids["prompt"] == plain["prompt"] == [5, 6]
    for body in (chatted, by_ids):
        assert (body["temperature"], body["top_p"], body["top_k"], body["max_tokens"]) == (0.3, 0.8, 4, 2)
        assert body["stop"] == ["\n"]
        assert body["model"] == "tiny"
    assert "top_k" not in plain
    assert "stop" not in plain


def test_servers_that_give_no_ids():
    with serve(Served(MODULE, TOKENIZER, gives_ids=False)) as served:
        model = load(f"{served.url}#tiny")
        first = model.generate(groups(), Sampling(temperature=0, max_new_tokens=4), seed=0)
        tried = sum("return_token_ids" in body for body in served.requests)
        second = model.generate(groups(), Sampling(temperature=0, max_new_tokens=4), seed=0)
        assert sum("return_token_ids" in body for body in served.requests) == tried
    for group in (*first, *second):
        completion = group.completions[0]
        assert completion.tokens == ()
        assert completion.columns["num_tokens"] == 4
    with serve(Served(MODULE, TOKENIZER)) as served:
        told = load(f"{served.url}#tiny").generate(groups(), Sampling(temperature=0, max_new_tokens=4), seed=0)
    assert [g.completions[0].text for g in first] == [g.completions[0].text for g in told]


def test_scores_are_the_models_own(served):
    batch = GroupBatch(tuple(make_groups(3)))
    found = load(f"{served.url}#tiny").forward(batch, ("logp",))["logp"]
    expected = [
        logp_of(group.prompt.tokens, completion.tokens)[completion.loss_mask]
        for group in batch.groups
        for completion in group.completions
    ]
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), np.concatenate(expected), rtol=1e-4, atol=1e-5)


def test_servers_that_do_not_score():
    with serve(Served(MODULE, TOKENIZER, echoes=False)) as served:
        model = load(f"{served.url}#tiny")
        with pytest.raises(ModelError, match="no log-probs for given text"):
            model.forward(GroupBatch(tuple(make_groups(1))))


def test_what_needs_weights_is_refused(served):
    spec = f"{served.url}#tiny"
    model = load(spec)
    asks = [
        lambda: model.module,
        lambda: model.save("x"),
        lambda: model.fingerprint(),
        lambda: model.add_lora(None),
        lambda: model.forward(GroupBatch(tuple(make_groups(1))), ("entropy",)),
        lambda: load(spec, train="lora"),
        lambda: load(spec, train="full"),
        lambda: load_tokenizer(spec),
    ]
    for ask in asks:
        with pytest.raises(ModelError, match="endpoint") as caught:
            ask()
        assert caught.value.exit_code == 2
    assert not hasattr(model, "module")
    assert model.masters() == {}


def test_a_name_that_is_not_served(served):
    with pytest.raises(ModelError, match="serves no model 'tinny'") as caught:
        load(f"{served.url}#tinny")
    assert caught.value.fix == f"{served.url}#tiny"
    assert "tiny, other" in str(caught.value)


def test_a_busy_server_is_asked_again(served):
    model = load(f"{served.url}#tiny")
    served.failures = [429, 503, 500]
    out = model.generate(groups(1), Sampling(max_new_tokens=2), seed=0)
    assert out[0].completions[0].tokens
    assert len(served.requests) == 4


@pytest.mark.parametrize(
    ("codes", "kind", "says"), [([503] * 5, MissingError, "does not answer"), ([404], ModelError, "refuses")]
)
def test_a_server_that_fails(served, codes, kind, says):
    model = load(f"{served.url}#tiny")
    served.failures = list(codes)
    with pytest.raises(kind, match=says) as caught:
        model.generate(groups(1), Sampling(max_new_tokens=2), seed=0)
    assert f"HTTP {codes[0]}" in str(caught.value)


def test_no_server():
    with serve(Served(MODULE, TOKENIZER)) as served:
        spec = f"{served.url}#tiny"
    with pytest.raises(MissingError, match="does not answer") as caught:
        load(spec)
    assert caught.value.exit_code == 4


def test_the_key_is_wootzs_own(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "someone else's")
    monkeypatch.delenv("WOOTZ_API_KEY", raising=False)
    with serve(Served(MODULE, TOKENIZER, key="secret")) as served:
        with pytest.raises(ModelError, match="refuses the key") as caught:
            load(f"{served.url}#tiny")
        assert "WOOTZ_API_KEY" in caught.value.fix
        monkeypatch.setenv("WOOTZ_API_KEY", "secret")
        assert load(f"{served.url}#tiny").name == "tiny"


def test_progress(served):
    seen = []
    load(f"{served.url}#tiny").generate(
        groups(2),
        Sampling(max_new_tokens=1, num_samples=2),
        seed=0,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
