"""Adapters: where they sit, what they start from, and the reference that training is measured against."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig as PeftLora
from peft import get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file, save_file

from tests.tiny import KINDS, make_groups, make_model, save_model
from wootz.core.batch import GroupBatch
from wootz.core.errors import ModelError
from wootz.models import LoraConfig, ModelConfig, load

BATCH = GroupBatch(tuple(make_groups(4)))
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks in an old way
IDS = torch.tensor([[5, 60, 7, 200, 30, 31, 9, 80]])


def logp(role) -> torch.Tensor:
    with torch.no_grad():
        return role.forward(BATCH, ("logp",))["logp"]


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.module(IDS).logits


def train_a_little(model, steps: int = 3) -> None:
    """Through the module itself, which is cheaper than the forward pass with its trials."""
    optimiser = torch.optim.AdamW(model.masters().values(), lr=0.01)
    for _ in range(steps):
        model.module(IDS, labels=IDS).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        model.refresh()


def trained_adapter(spec: str, folder: Path, **options) -> Path:
    model = load(spec, dtype="fp32", train="lora", **options)
    train_a_little(model)
    model.save(folder)
    return folder


# Where an adapter sits


def adapted(module) -> set[str]:
    names = {name for name, part in module.named_modules() if isinstance(part, BaseTunerLayer)}
    return {name.removeprefix("base_model.model.") for name in names}


@pytest.mark.parametrize("kind", KINDS)
def test_all_linear_is_every_linear_layer_but_the_head(kind, tiny_folder, recwarn):
    model = load(tiny_folder(kind), train="lora")
    peft = get_peft_model(make_model(kind), PeftLora(target_modules="all-linear", task_type="CAUSAL_LM"))
    assert adapted(model.module) == adapted(peft)
    assert len(adapted(model.module)) == 2 * {"gpt2": 4}.get(kind, 7)
    assert not [name for name in adapted(model.module) if "lm_head" in name or "embed" in name or "wte" in name]
    assert len(model.masters()) == 2 * len(adapted(model.module))


def test_named_targets(tiny_llama):
    model = load(tiny_llama, train="lora", lora=LoraConfig(targets=("q_proj", "layers.1.mlp.up_proj")))
    assert adapted(model.module) == {
        "model.layers.0.self_attn.q_proj",
        "model.layers.1.self_attn.q_proj",
        "model.layers.1.mlp.up_proj",
    }


@pytest.mark.parametrize("target", ["q_prj", "lm_head", "embed_tokens", "proj", "self_attn"])
def test_targets_that_are_no_layer(tiny_llama, target):
    with pytest.raises(ModelError, match=f"no linear layer of the decoder is called '{target}'") as caught:
        load(tiny_llama, train="lora", lora=LoraConfig(targets=(target,)))
    assert "q_proj" in str(caught.value)
    if target == "q_prj":
        assert caught.value.fix == "targets: [q_proj]"


@pytest.mark.parametrize(("alpha", "scale"), [(None, 2.0), (4.0, 0.5), (2.5, 0.3125)])
def test_scale_is_alpha_over_rank(tiny_llama, alpha, scale):
    model = load(tiny_llama, dtype="fp32", train="lora", lora=LoraConfig(rank=8, alpha=alpha))
    layer = model.base.model.layers[0].self_attn.q_proj
    with torch.no_grad():
        layer.lora_B["default"].weight.normal_()
        x = torch.randn(5, 32)
        update = scale * (x @ layer.lora_A["default"].weight.T @ layer.lora_B["default"].weight.T)
        torch.testing.assert_close(layer(x), layer.base_layer(x) + update)
    assert layer.lora_A["default"].weight.shape == (8, 32)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_trains_is_fp32_on_any_base(tiny_llama, dtype, tmp_path):
    fresh = load(tiny_llama, dtype=dtype, train="lora")
    fresh.save(tmp_path / "low")
    for model in (fresh, load(str(tmp_path / "low"), dtype=dtype, train="lora")):
        masters = model.masters()
        assert {master.dtype for master in masters.values()} == {torch.float32}
        assert all(master.is_leaf and master.requires_grad for master in masters.values())
        assert model.dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
        train_a_little(model, 1)
        moved = [name for name, master in masters.items() if "lora_B" in name and not master.any()]
        assert not moved


def test_fp32_adapters_are_not_rounded_on_a_bf16_base(tiny_llama, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low")
    stored = load_file(low / "adapter_model.safetensors")
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in stored.values())
    masters = load(f"{tiny_llama}+{low}", dtype="bf16", train="lora").masters()
    for name, tensor in stored.items():
        assert torch.equal(masters[name.replace(".weight", ".default.weight")], tensor)


def test_a_fresh_adapter_depends_on_its_seed_alone(tiny_llama):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second = (load(tiny_llama, train="lora", seed=1) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.fingerprint() == second.fingerprint()
    assert load(tiny_llama, train="lora", seed=2).fingerprint() != first.fingerprint()


def test_only_the_adapter_trains(every_kind):
    model = load(every_kind, dtype="fp32", train="lora")
    base = {name: p.clone() for name, p in model.module.named_parameters() if "lora_" not in name}
    train_a_little(model)
    after = dict(model.module.named_parameters())
    assert all(torch.equal(after[name], tensor) for name, tensor in base.items())
    assert all(after[name].grad is None for name in base)


# The reference


@pytest.mark.parametrize("route", ["fresh", "continued"])
@pytest.mark.parametrize(("kind", "dtype"), [*((kind, "fp32") for kind in KINDS), ("llama", "bf16")])
def test_the_reference_is_where_training_starts_and_stays_there(kind, dtype, route, tiny_folder, tmp_path):
    spec = tiny_folder(kind)
    if route == "continued":
        spec = f"{spec}+{trained_adapter(spec, tmp_path / 'low')}"
    model = load(spec, dtype=dtype, train="lora")
    start = logits(load(spec, dtype=dtype))
    assert torch.equal(logits(model), start)
    reference = model.reference()
    assert reference is not None
    policy, before = logp(model), logp(reference)
    torch.testing.assert_close(before, policy, rtol=0, atol=1e-5 if dtype == "fp32" else 0.0)
    # DPO at step 0: every log-ratio is 0, so the loss is log 2.
    margin = float((policy - before).sum())
    assert math.isclose(math.log(1 + math.exp(-0.1 * margin)), math.log(2), abs_tol=1e-5)

    train_a_little(model)
    assert torch.equal(logp(reference), before)
    with model.adapter_off():
        assert torch.equal(logits(model), start)
    assert not torch.allclose(logp(model), policy, atol=1e-3)
    assert not reference.masters()
    reference.refresh()
    assert torch.equal(logp(reference), before)


def test_reference_weights_never_change(tiny_llama, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low")
    model = load(f"{tiny_llama}+{low}", dtype="fp32", train="lora")
    stored = load_file(low / "adapter_model.safetensors")

    def frozen() -> dict[str, torch.Tensor]:
        return {n: p for n, p in model.module.named_parameters() if ".reference." in n or "base_layer" in n}

    before = {name: p.clone() for name, p in frozen().items()}
    for name, tensor in stored.items():
        assert torch.equal(before[name.replace(".weight", ".reference.weight")], tensor)
    for _ in range(3):
        train_a_little(model)
        with model.adapter_off():
            logits(model)
    assert all(torch.equal(before[name], p) for name, p in frozen().items())
    assert all(p.grad is None and not p.requires_grad for p in frozen().values())


def test_asking_the_reference_leaves_the_policy_as_it_was(tiny_llama, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low")
    for spec in (tiny_llama, f"{tiny_llama}+{low}"):
        model = load(spec, dtype="fp32", train="lora")
        train_a_little(model)
        names, policy, key = list(model.masters()), logits(model), model.weights_key
        loss = model.module(IDS, labels=IDS).loss
        with model.adapter_off():
            assert model.weights_key != key
            assert not model.module(IDS).logits.requires_grad
        with pytest.raises(IndexError), model.adapter_off():
            model.module(torch.full((1, 3), 10_000))
        assert model.weights_key == key
        assert list(model.masters()) == names
        assert torch.equal(logits(model), policy)
        loss.backward()  # a graph from before the reference spoke is still good
        assert all(master.grad is not None and master.grad.any() for master in model.masters().values())


def test_no_reference_where_nothing_in_memory_holds_it(tiny_llama, tmp_path):
    assert load(tiny_llama, train="full").reference() is None
    assert load(tiny_llama).reference() is None
    low = trained_adapter(tiny_llama, tmp_path / "low")
    frozen = load(f"{tiny_llama}+{low}", dtype="fp32")
    assert frozen.reference() is None
    with frozen.adapter_off():
        assert torch.equal(frozen.module(IDS).logits, load(tiny_llama, dtype="fp32").module(IDS).logits)
    with pytest.raises(ModelError, match="no adapter"), load(tiny_llama).adapter_off():
        pass


def test_one_adapter_at_a_time(tiny_llama, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low")
    with pytest.raises(ModelError, match="carries an adapter already"):
        load(f"{tiny_llama}+{low}").add_lora(LoraConfig())
    with pytest.raises(ModelError, match="would drop the adapter"):
        load(f"{tiny_llama}+{low}", train="full")


def test_the_references_hash_is_that_of_the_start(tiny_llama):
    model = load(tiny_llama, dtype="fp32", train="lora")
    first = model.fingerprint()
    train_a_little(model)
    assert model.fingerprint() != first
    assert model.version >= 3


# Dropout


def test_dropout_acts_while_gradients_are_recorded_and_never_else(tiny_llama):
    plain = load(tiny_llama, dtype="fp32", train="lora")
    model = load(tiny_llama, dtype="fp32", train="lora", lora=LoraConfig(dropout=0.5))
    with torch.no_grad():
        for policy in (plain, model):
            for name, master in policy.masters().items():
                if "lora_B" in name:
                    master.copy_(torch.full_like(master, 0.05))
    clean = logp(plain)
    torch.testing.assert_close(logp(model), clean)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(model.forward(BATCH, ("logp",))["logp"].detach())
    torch.testing.assert_close(draws[0], draws[1])
    assert not torch.allclose(draws[0], draws[2], atol=1e-3)
    assert not torch.allclose(draws[0], clean, atol=1e-3)
    torch.testing.assert_close(logp(model), clean)
    torch.testing.assert_close(logp(model.reference()), logp(plain.reference()))


def test_the_reference_of_a_continued_adapter_drops_nothing(tiny_llama, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low", lora=LoraConfig(dropout=0.5))
    reference = load(f"{tiny_llama}+{low}", dtype="fp32", train="lora").reference()
    said = [reference.forward(BATCH, ("logp",))["logp"] for _ in range(2)]  # gradients on, as in a training step
    assert torch.equal(*said)
    assert not said[0].requires_grad
    assert torch.equal(said[0], logp(reference))


# Adapters that do not fit


def _config(folder: Path, **changes) -> None:
    content = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(content | changes))


def _rename(folder: Path, old: str, new: str) -> None:
    state = load_file(folder / "adapter_model.safetensors")
    save_file({k.replace(old, new): v for k, v in state.items()}, folder / "adapter_model.safetensors")


SPOILED = {
    "no weights": (lambda f: (f / "adapter_model.safetensors").unlink(), "has no weights"),
    "pickles": (lambda f: (f / "adapter_model.safetensors").rename(f / "adapter_model.bin"), "a pickle file"),
    "damaged": (lambda f: (f / "adapter_model.safetensors").write_bytes(b"\xff" * 32), "does not fit"),
    "other names": (lambda f: _rename(f, "layers.1.", "layers.7."), "no counterpart"),
    "half of it": (lambda f: _rename(f, "lora_B", "lora_C"), "no counterpart"),
    "other rank": (lambda f: _config(f, r=5), "does not fit"),
    "other targets": (lambda f: _config(f, target_modules=["c_attn"]), "does not fit"),
    "fewer targets": (lambda f: _config(f, target_modules=["q_proj"]), "no counterpart"),
    "unknown method": (lambda f: _config(f, peft_type="NOVEL"), "does not fit"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_unfit_adapters(case, tiny_llama, tmp_path):
    spoil, says = SPOILED[case]
    low = trained_adapter(tiny_llama, tmp_path / "low")
    load(f"{tiny_llama}+{low}")
    spoil(low)
    with pytest.raises(ModelError, match=says) as caught:
        load(f"{tiny_llama}+{low}")
    assert str(low) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 6


@pytest.mark.parametrize(
    "other",
    [{"kind": "gpt2"}, {"kind": "qwen3"}, {"hidden_size": 64}, {"num_hidden_layers": 1}, {"num_hidden_layers": 3}],
)
def test_an_adapter_on_another_base(other, tiny_llama, tiny_folder, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low")
    base = tiny_folder(other.pop("kind", "llama"), **other)
    with pytest.raises(ModelError, match="does not fit this base") as caught:
        load(f"{base}+{low}")
    assert caught.value.fix == f"{tiny_llama}+{low}"


def test_another_base_of_the_same_shape_is_told(tiny_llama, tiny_folder, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low")
    events = load(f"{tiny_folder('llama', seed=9)}+{low}").events
    assert [event["kind"] for event in events] == ["warning"]
    assert "was trained on" in events[0]["message"]


def test_a_base_that_is_gone(tmp_path):
    folder = save_model(tmp_path / "m")
    low = trained_adapter(str(folder), tmp_path / "low")
    folder.rename(tmp_path / "moved")
    with pytest.raises(ModelError, match="base is not here") as caught:
        load(str(low))
    assert caught.value.fix == f"BASE+{low}"
    moved = load(f"{tmp_path / 'moved'}+{low}")
    assert moved.has_adapter


def test_pickled_adapters_are_read_when_allowed_by_name(tiny_llama, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low")
    expected = load(f"{tiny_llama}+{low}", dtype="fp32").fingerprint()
    torch.save(load_file(low / "adapter_model.safetensors"), low / "adapter_model.bin")
    (low / "adapter_model.safetensors").unlink()
    config = ModelConfig(base=f"{tiny_llama}+{low}", dtype="fp32", allow=("pickle_weights",))
    assert load(config).fingerprint() == expected


def test_continuing_with_other_settings(tiny_llama, tmp_path):
    low = trained_adapter(tiny_llama, tmp_path / "low", lora=LoraConfig(rank=4))
    spec = f"{tiny_llama}+{low}"
    load(spec, train="lora", lora=LoraConfig(rank=4, alpha=8))
    load(spec, train="lora", lora=LoraConfig())
    for settings in ({"rank": 8}, {"alpha": 3}, {"dropout": 0.1}, {"targets": ("q_proj",)}):
        with pytest.raises(ModelError, match=f"keeps its {next(iter(settings))}"):
            load(spec, train="lora", lora=LoraConfig(**settings))


def logp_by_rows(model) -> torch.Tensor:
    """Log-probs from the module's own logits, one completion at a time."""
    values = []
    for group in BATCH.groups:
        for completion in group.completions:
            ids = torch.tensor([group.prompt.tokens + completion.tokens])
            with torch.no_grad():
                table = model.module(ids).logits[0, :-1].log_softmax(-1)
            each = table.gather(1, ids[0, 1:, None])[-len(completion.tokens) :, 0]
            values.append(each[torch.from_numpy(completion.loss_mask)])
    return torch.cat(values)


@pytest.mark.parametrize("kind", ["dora", "bias", "head", "on the head", "on the embedding", "loha"])
def test_kinds_that_cannot_be_trained_further_still_compute(kind, tiny_llama, tmp_path):
    from peft import LoHaConfig

    common = {"target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    options = {
        "dora": lambda: PeftLora(r=2, use_dora=True, **common),
        "bias": lambda: PeftLora(r=2, bias="lora_only", **common),
        "head": lambda: PeftLora(r=2, modules_to_save=["lm_head"], **common),
        "on the head": lambda: PeftLora(r=2, target_modules=["lm_head"], task_type="CAUSAL_LM"),
        "on the embedding": lambda: PeftLora(r=2, target_modules=["embed_tokens"], task_type="CAUSAL_LM"),
        "loha": lambda: LoHaConfig(r=2, **common),
    }[kind]()
    wrapped = get_peft_model(load(tiny_llama, dtype="fp32").module, options)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    wrapped.save_pretrained(tmp_path / "low", save_embedding_layers=False)
    again = load(f"{tiny_llama}+{tmp_path / 'low'}", dtype="fp32")
    assert torch.equal(again.module(IDS).logits, wrapped.eval()(IDS).logits)
    torch.testing.assert_close(logp(again), logp_by_rows(again), rtol=1e-4, atol=1e-4)
    if kind != "bias":  # peft changes the base's own biases then, and cannot take that back
        with again.adapter_off():
            torch.testing.assert_close(logp(again), logp_by_rows(again), rtol=1e-4, atol=1e-4)
            assert torch.equal(logits(again), logits(load(tiny_llama, dtype="fp32")))
    if kind != "bias":
        with pytest.raises(ModelError, match="only plain LoRA"):
            again.save(tmp_path / "out", merged=True)
    with pytest.raises(ModelError, match="cannot be trained further"):
        load(f"{tiny_llama}+{tmp_path / 'low'}", train="lora")


def test_copies_of_a_model_are_independent(tiny_llama, tmp_path):
    shutil.copytree(tiny_llama, tmp_path / "other")
    first, second = (
        load(tiny_llama, dtype="fp32", train="lora"),
        load(str(tmp_path / "other"), dtype="fp32", train="lora"),
    )
    assert first.fingerprint() == second.fingerprint()
    train_a_little(first)
    assert first.fingerprint() != second.fingerprint()
