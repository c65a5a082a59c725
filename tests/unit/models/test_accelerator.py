"""On an accelerator: the same numbers as on the CPU."""

import pytest
import torch

from tests.tiny import save_model
from wootz.core.errors import MissingError
from wootz.models import load

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
IDS = torch.tensor([[5, 60, 7, 200, 30, 31, 9, 80]])


def step(model) -> None:
    optimiser = torch.optim.AdamW(model.masters().values(), lr=0.01, fused=True)
    for _ in range(3):
        model.module(IDS.to(model.device), labels=IDS.to(model.device)).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        model.refresh()


@pytest.mark.parametrize("train", ["full", "lora"])
def test_training_on_either_device_gives_the_same(every_kind, train, tmp_path):
    here, there = (load(every_kind, dtype="fp32", device=device, train=train) for device in ("cpu", "cuda"))
    assert there.device.type == "cuda"
    assert here.fingerprint() == there.fingerprint()
    for model in (here, there):
        step(model)
    with torch.no_grad():
        expected, found = here.module(IDS).logits, there.module(IDS.cuda()).logits.cpu()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
    there.save(tmp_path / "out")
    assert load(str(tmp_path / "out"), dtype="fp32", device="cpu").fingerprint() == there.fingerprint()


def test_bf16_masters(every_kind):
    model = load(every_kind, device="cuda", train="full")
    assert model.dtype == torch.bfloat16
    model.module(IDS.cuda(), labels=IDS.cuda()).loss.backward()
    for master in model.masters().values():
        assert master.device.type == "cuda"
        assert master.grad.dtype == torch.float32
    assert all(p.grad is None for p in model.module.parameters())


def test_the_reference_of_a_continued_adapter(tiny_llama, tmp_path):
    first = load(tiny_llama, dtype="fp32", device="cuda", train="lora")
    step(first)
    first.save(tmp_path / "low")
    model = load(f"{tiny_llama}+{tmp_path / 'low'}", dtype="fp32", device="cuda", train="lora")
    before = model.module(IDS.cuda()).logits
    step(model)
    with model.adapter_off():
        assert torch.equal(model.module(IDS.cuda()).logits, before)
    assert not torch.equal(model.module(IDS.cuda()).logits, before)


def test_a_device_beyond_the_last(tmp_path):
    with pytest.raises(MissingError, match="no such device"):
        load(str(save_model(tmp_path / "m")), device=f"cuda:{torch.cuda.device_count()}")
