"""What the optimiser sees: fp32 leaves that hold gradients summed in fp32, whatever the weights are."""

import math

import pytest
import torch

from tests.tiny import KINDS, make_groups, make_model
from wootz.core.batch import GroupBatch
from wootz.core.errors import ModelError
from wootz.models import load

MICRO_BATCHES = [torch.randint(4, 280, (2, 9), generator=torch.Generator().manual_seed(seed)) for seed in range(4)]


def losses(module):
    for ids in MICRO_BATCHES:
        yield module(ids, labels=ids).loss


@pytest.mark.parametrize("kind", KINDS)
def test_a_bf16_step_is_the_step_made_by_hand(kind, tiny_folder):
    model = load(tiny_folder(kind), dtype="bf16", train="full")
    by_hand = make_model(kind, dtype=torch.bfloat16)
    parameters = dict(by_hand.named_parameters())
    master = {name: p.detach().float() for name, p in parameters.items()}
    first = {name: torch.zeros_like(p) for name, p in master.items()}
    second = {name: torch.zeros_like(p) for name, p in master.items()}
    optimiser = torch.optim.AdamW(model.masters().values(), lr=3e-3, weight_decay=0.0)
    rounding_matters = False
    for step in (1, 2):
        total = {name: torch.zeros_like(p) for name, p in master.items()}
        in_bf16 = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for loss in losses(by_hand):
            for (name, _), gradient in zip(
                parameters.items(), torch.autograd.grad(loss, list(parameters.values())), strict=True
            ):
                assert gradient.dtype == torch.bfloat16
                total[name] += gradient.float()
                in_bf16[name] += gradient
        rounding_matters |= any(not torch.equal(total[name], in_bf16[name].float()) for name in total)

        for loss in losses(model.module):
            loss.backward()
            assert all(p.grad is None for p in model.module.parameters())
        masters = model.masters()
        assert masters.keys() == total.keys()
        assert all(torch.equal(masters[name].grad, total[name]) for name in total)
        optimiser.step()
        optimiser.zero_grad()
        model.refresh()

        with torch.no_grad():
            for name, gradient in total.items():
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.999 * second[name] + 0.001 * gradient**2
                denominator = second[name].sqrt() / math.sqrt(1 - 0.999**step) + 1e-8
                master[name] -= 3e-3 / (1 - 0.9**step) * first[name] / denominator
                torch.testing.assert_close(masters[name], master[name], rtol=0, atol=2e-7)
                master[name].copy_(masters[name])
                parameters[name].copy_(master[name])
        for name, p in model.module.named_parameters():
            assert torch.equal(p, parameters[name])
    assert rounding_matters


def test_masters_move_by_less_than_bf16_can_tell(tiny_llama):
    model = load(tiny_llama, dtype="bf16", train="full")
    masters = model.masters()
    before = {name: p.clone() for name, p in model.module.named_parameters()}
    with torch.no_grad():
        for _ in range(64):
            for master in masters.values():
                master += master.abs() * 2**-12
            model.refresh()
    after = dict(model.module.named_parameters())
    assert not torch.equal(after["model.layers.0.mlp.up_proj.weight"], before["model.layers.0.mlp.up_proj.weight"])


@pytest.mark.parametrize(("dtype", "train"), [("fp32", "full"), ("bf16", "full"), ("fp32", "lora"), ("bf16", "lora")])
def test_masters_are_fp32_leaves_of_all_that_trains(every_kind, dtype, train):
    model = load(every_kind, dtype=dtype, train=train)
    masters = model.masters()
    assert all(master.dtype == torch.float32 and master.is_leaf and master.requires_grad for master in masters.values())
    if train == "full":
        assert masters.keys() == dict(model.module.named_parameters()).keys()
    for loss in losses(model.module):
        loss.backward()
    assert all(master.grad is not None and master.grad.dtype == torch.float32 for master in masters.values())
    assert list(model.masters()) == list(masters)
    assert all(a is b for a, b in zip(model.masters().values(), masters.values(), strict=True))


@pytest.mark.parametrize(("dtype", "train"), [("fp32", "full"), ("bf16", "full"), ("bf16", "lora")])
def test_gradients_reach_the_masters_through_the_forward_pass(every_kind, dtype, train):
    model = load(every_kind, dtype=dtype, train=train)
    batch = GroupBatch(tuple(make_groups(3)))
    logp = model.forward(batch, ("logp",))["logp"]
    assert logp.dtype == torch.float32
    assert all(master.grad is None for master in model.masters().values())
    (-logp.sum()).backward()
    reached = [name for name, master in model.masters().items() if master.grad is not None and master.grad.any()]
    untouched = set(model.masters()) - set(reached)
    assert not {name for name in untouched if "lora_A" not in name}  # B starts at 0, so A has no gradient yet
    assert train == "lora" or not untouched
    if dtype == "bf16" and train == "full":
        assert all(p.grad is None for p in model.module.parameters())


def test_refresh_counts(tiny_llama):
    model = load(tiny_llama, dtype="fp32", train="full")
    before, version = model.weights_key, model.version
    model.refresh()
    assert model.version == version + 1
    assert model.weights_key != before


def test_a_model_that_does_not_train_has_no_masters(tiny_llama):
    model = load(tiny_llama)
    assert model.masters() == {}
    assert not any(p.requires_grad for p in model.module.parameters())
    with pytest.raises(ModelError, match="would drop the adapter"):
        load(tiny_llama, train="lora").train_all()


def test_the_padding_row_keeps_hugging_faces_numbers(tiny_folder):
    """An embedding with ``padding_idx`` drops the gradient of that row on the input side; nothing here changes that."""
    ids = torch.tensor([[5, 2, 7, 2, 9]])
    for pad, receives in ((2, False), (None, True)):
        model = load(tiny_folder("llama", pad_token_id=pad), dtype="fp32", train="full")
        model.module(ids, labels=ids).loss.backward()
        row = model.masters()["model.embed_tokens.weight"].grad[2]
        assert bool(row.any()) is receives
