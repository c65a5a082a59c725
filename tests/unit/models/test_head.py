"""The chunked head against whole logits: values, gradients, and that whole logits never exist."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from wootz.core.errors import UsageError
from wootz.models import head as head_module
from wootz.models.head import Head, reduce_tokens
from wootz.objectives.reducers import REDUCERS

N, D, V = 37, 8, 50


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Seven rows a chunk, blocks of seven rows and twelve words: the last ones are not full."""
    monkeypatch.setattr(head_module, "CHUNK_ELEMENTS", 7 * V)
    monkeypatch.setattr(head_module, "ROWS", 7)
    monkeypatch.setattr(head_module, "COLUMNS", 12)


def case(dtype=torch.float64, bias=False):
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(D, V, bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    hidden = torch.randn(N, D, generator=generator).to(dtype).requires_grad_()
    return linear, hidden, torch.randint(V, (N,), generator=generator)


def gradients(values, inputs):
    weights = {name: torch.linspace(-1, 2, N).roll(i) for i, name in enumerate(values)}
    total = sum((value * weights[name].to(value)).sum() for name, value in values.items())
    return torch.autograd.grad(total, inputs)


@pytest.mark.parametrize("outputs", [("logp",), ("entropy",), ("logp", "entropy"), ("entropy", "logp")])
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("bias", [False, True])
def test_chunks_equal_whole_logits(outputs, softcap, bias):
    linear, hidden, targets = case(bias=bias)
    logits = linear(hidden)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    expected = {name: REDUCERS[name](logits, targets) for name in outputs}
    found = reduce_tokens(hidden, targets, Head(linear, softcap), outputs)
    assert list(found) == list(outputs)
    inputs = (hidden, *linear.parameters())
    for name in outputs:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-9)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_logp_has_the_gradient_of_finite_differences():
    linear, hidden, targets = case()
    some = hidden[:9].detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda h, w: head_module._LogProb.apply(h, w, targets[:9]), (some, linear.weight))


@pytest.mark.parametrize("trains", ["hidden", "weight"])
def test_only_what_trains_gets_a_gradient(trains):
    linear, hidden, targets = case()
    linear.requires_grad_(trains == "weight")
    hidden = hidden.detach().requires_grad_(trains == "hidden")
    found = reduce_tokens(hidden, targets, Head(linear), ("logp",))
    trained, other = (hidden, linear.weight) if trains == "hidden" else (linear.weight, hidden)
    (expected,) = gradients({"logp": REDUCERS["logp"](linear(hidden), targets)}, (trained,))
    (found["logp"] * torch.linspace(-1, 2, N)).sum().backward()
    torch.testing.assert_close(trained.grad, expected, rtol=1e-9, atol=1e-9)
    assert other.grad is None


def test_a_tied_weight_gets_both_gradients():
    linear, _, targets = case()
    ids = torch.arange(N) % V
    found = reduce_tokens(nn.functional.embedding(ids, linear.weight), targets, Head(linear), ("logp",))["logp"]
    expected = REDUCERS["logp"](linear(nn.functional.embedding(ids, linear.weight)), targets)
    (one,), (other,) = (torch.autograd.grad(values.sum(), linear.weight) for values in (found, expected))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_extreme_logits_stay_finite():
    linear, hidden, targets = case(torch.float32)
    values = reduce_tokens(1e4 * hidden, targets, Head(linear), ("logp",))["logp"]
    exact = (1e4 * hidden.double() @ linear.weight.double().T).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(values.double(), exact, rtol=1e-4, atol=1e-2)
    assert torch.isfinite(torch.autograd.grad(values.sum(), hidden)[0]).all()


@pytest.mark.parametrize("weight_trains", [False, True])
def test_bf16_keeps_the_small_gradient_of_a_confident_model(weight_trains):
    """With p = 0.999 the gradient is 1 - p; with p rounded to bf16 it would be 0 or four times as large."""
    weight = torch.zeros(V, D, dtype=torch.bfloat16)
    weight[0, 0] = 1.0
    linear = nn.Linear(D, V, bias=False, dtype=torch.bfloat16)
    linear.weight = nn.Parameter(weight, requires_grad=weight_trains)
    hidden = torch.zeros(1, D, dtype=torch.bfloat16)
    hidden[0, 0] = 11.0
    hidden.requires_grad_()
    values = reduce_tokens(hidden, torch.tensor([0]), Head(linear), ("logp",))["logp"]
    assert values.dtype == torch.float32
    rest = (V - 1) / (torch.tensor(11.0).exp() + V - 1)
    torch.testing.assert_close(values[0], torch.log1p(-rest), rtol=1e-3, atol=0)
    gradient = torch.autograd.grad(values.sum(), hidden)[0][0, 0]
    torch.testing.assert_close(gradient.float(), rest, rtol=0.01, atol=0)


def test_no_tokens():
    linear, hidden, targets = case()
    for outputs in (("logp",), ("logp", "entropy")):
        found = reduce_tokens(hidden[:0], targets[:0], Head(linear), outputs)
        assert [value.shape for value in found.values()] == [(0,)] * len(outputs)


class _Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("outputs", [("logp",), ("logp", "entropy")])
def test_no_tensor_holds_tokens_by_vocabulary(outputs):
    linear, hidden, targets = case()
    with _Largest() as largest:
        found = reduce_tokens(hidden, targets, Head(linear), outputs)
        sum(value.sum() for value in found.values()).backward()
    assert largest.elements <= max(7 * V, V * D) < N * V


def test_an_unknown_output_names_the_known_ones():
    linear, hidden, targets = case()
    with pytest.raises(UsageError, match="'logpp'") as caught:
        reduce_tokens(hidden, targets, Head(linear), ("logpp",))
    assert caught.value.fix == "logp"
    assert "entropy" in caught.value.expected
