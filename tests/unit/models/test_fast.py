"""Fast layers: what is recognised, packed weights, kernels by finite differences, adapters and modes, fallbacks."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
)

from tests.batches import (
    random_batch,
    relative_error,
    slow_logp,
    tiny_language_model,
    value_and_gradients,
    wake_adapters,
)
from tests.tiny import make_model, make_tokenizer
from wootz.models import LanguageModel, LoraConfig
from wootz.models.fast import describe, kernels, run_layers
from wootz.models.fast.attention import attention, attention_backward, make_blocks
from wootz.models.fast.decode import _prompt_plan
from wootz.models.fast.layout import Norm
from wootz.models.forward import engine_of, forward_groups
from wootz.models.plans import make_plan
from wootz.models.trial import make_trial

FAST_KINDS = ["llama", "qwen3", "gemma3"]
SMALL = {
    "vocab_size": 288,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": None,
}


def logp(model, batch, plan="auto"):
    return forward_groups(model, batch, ("logp",), plan=plan)["logp"]


def assert_equals_slow(model, batch=None):
    batch = batch or random_batch()
    expected, expected_gradients = value_and_gradients(model, lambda: slow_logp(model.module, batch))
    found, gradients = value_and_gradients(model, lambda: logp(model, batch))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    if expected_gradients:
        assert relative_error(gradients, expected_gradients) < 1e-4


# What is recognised


def test_layouts_say_what_the_configurations_say():
    llama, qwen, gemma = (describe(make_model(kind)) for kind in FAST_KINDS)
    assert (llama.layers[0].num_heads, llama.layers[0].num_kv_heads, llama.layers[0].head_dim) == (4, 2, 8)
    assert (qwen.layers[0].head_dim, qwen.tied, llama.tied) == (16, True, False)
    assert qwen.layers[0].q_norm is not None
    assert [layer.window for layer in gemma.layers] == [4, None]
    assert [norm.offset for norm in gemma.layers[0].norms] == [1.0] * 6
    assert [norm.offset for norm in llama.layers[0].norms] == [0.0] * 2
    assert (llama.layers[0].activation, gemma.layers[0].activation) == ("silu", "gelu_tanh")
    assert gemma.layers[0].scale == pytest.approx(0.25)
    tables = gemma.rotary(torch.arange(5))
    assert not torch.allclose(tables["sliding_attention"][0], tables["full_attention"][0])


def test_a_window_in_every_layer():
    torch.manual_seed(0)
    module = MistralForCausalLM(MistralConfig(**SMALL, sliding_window=5, head_dim=8)).eval()
    model = LanguageModel(module, make_tokenizer(), spec="mistral")
    model.train_all()
    assert [layer.window for layer in engine_of(model).layout.layers] == [5, 5]
    assert_equals_slow(model)


@pytest.mark.parametrize("act", ["gelu", "gelu_pytorch_tanh"])
def test_other_activations_and_biases(act):
    model = tiny_language_model("llama", "full", hidden_act=act, attention_bias=True, mlp_bias=True)
    assert engine_of(model).layout is not None
    assert_equals_slow(model)


def test_scaled_rotary_positions():
    rope = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = tiny_language_model("llama", "full", rope_parameters=rope)
    assert engine_of(model).layout is not None
    assert_equals_slow(model)


def test_unknown_parts_are_not_guessed():
    assert describe(make_model("gpt2")) is None
    assert describe(Olmo2ForCausalLM(Olmo2Config(**SMALL))) is None
    assert describe(nn.Linear(2, 2)) is None
    odd = make_model("llama")
    odd.model.layers[1].mlp.act_fn = nn.Tanh()
    assert describe(odd) is None


def test_what_looks_alike_but_computes_something_else_fails_its_trial():
    """Granite has Llama's parts and multiplies its residual branches: only a trial tells them apart."""
    torch.manual_seed(0)
    config = GraniteConfig(**SMALL, residual_multiplier=0.5, attention_multiplier=0.3)
    model = LanguageModel(GraniteForCausalLM(config).eval(), make_tokenizer(), spec="granite")
    model.train_all()
    assert describe(model.module) is not None
    assert engine_of(model).layout is None
    assert engine_of(model).shares
    (event,) = model.events
    assert event["kind"] == "fallback"
    assert "no fast layers, they failed their trial (values differ by" in event["message"]
    assert_equals_slow(model)


def test_a_head_that_does_more_than_project_gives_its_own_logits():
    torch.manual_seed(0)
    model = LanguageModel(
        GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=3.0)).eval(), make_tokenizer(), spec="g"
    )
    model.train_all()
    assert engine_of(model).head is None
    assert "its own logits are used whole" in model.events[0]["message"]
    assert_equals_slow(model)
    model.checkpointing = True
    assert_equals_slow(model)


def test_a_model_that_ignores_prepared_masks_runs_one_row_a_completion():
    class Deaf(type(make_model("llama").model)):
        """Makes its own causal mask whatever it is given."""

        def forward(self, *args, attention_mask=None, **options):
            if attention_mask is not None and attention_mask.ndim == 4:
                attention_mask = None
            return super().forward(*args, attention_mask=attention_mask, **options)

    module = make_model("llama")
    module.model.__class__ = Deaf
    model = LanguageModel(module, make_tokenizer(), spec="deaf")
    engine = engine_of(model)
    assert not engine.shares
    assert "no shared prompts, they failed their trial" in model.events[0]["message"]
    engine.layout = None
    assert engine.plan(random_batch(), "shared").name == "flat"
    assert_equals_slow(model)


def test_the_trial_sees_every_kind_of_layer_and_leaves_the_model_alone():
    model = tiny_language_model(
        "gemma3", "lora", num_hidden_layers=4, layer_types=["sliding_attention"] * 3 + ["full_attention"]
    )
    before = copy.deepcopy(model.module.state_dict())
    trial = make_trial(model.base)
    assert trial.decoder.config.layer_types == ["sliding_attention", "full_attention"]
    assert len(trial.decoder.layers) == 2
    assert len(model.base.model.layers) == 4
    assert model.base.config.sliding_window == 4
    assert model.base.config.num_hidden_layers == 4
    for name, value in model.module.state_dict().items():
        assert torch.equal(value, before[name])


# Packed weights


def test_packing_makes_views_and_no_copies():
    module = make_model("llama")
    before = copy.deepcopy(module.state_dict())
    layout = describe(module)
    attention_part = module.model.layers[0].self_attn
    packed = layout.layers[0].qkv.weight
    assert attention_part.k_proj.weight.data_ptr() == packed[32:].data_ptr()
    assert attention_part.q_proj.weight.untyped_storage().data_ptr() == packed.untyped_storage().data_ptr()
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    with torch.no_grad():
        attention_part.v_proj.weight.fill_(3.0)
    assert (layout.layers[0].qkv.weight[48:] == 3).all()


def test_replaced_storage_is_packed_anew():
    model = tiny_language_model("llama")
    logp(model, random_batch())
    for parameter in model.module.parameters():
        parameter.data = parameter.data.clone().mul_(1.1)
    assert_equals_slow(model)
    model.module.to(torch.bfloat16).to(torch.float32)
    assert_equals_slow(model)


def test_updates_in_place_are_seen():
    model = tiny_language_model("qwen3", "full")
    assert_equals_slow(model)
    with torch.no_grad():
        for master in model.masters().values():
            master.mul_(1.05)
    model.refresh()
    assert_equals_slow(model)


def test_weights_must_not_change_before_the_backward_pass():
    model = tiny_language_model("llama", "full")
    values = logp(model, random_batch())
    with torch.no_grad():
        model.module.model.layers[0].self_attn.k_proj.weight.mul_(2)
    with pytest.raises(RuntimeError, match="changed between"):
        values.sum().backward()


# Adapters and modes


def test_adapters_added_switched_off_continued_and_merged():
    model = tiny_language_model("llama")
    batch = random_batch()
    bare = logp(model, batch)
    model.add_lora(LoraConfig(rank=3))
    assert torch.equal(logp(model, batch), bare)
    wake_adapters(model)
    with model.adapter_off():
        assert torch.equal(logp(model, batch), bare)
    assert_equals_slow(model, batch)
    adapted = logp(model, batch).detach()
    assert (adapted - bare).abs().max() > 0.01
    model.continue_adapter()
    with torch.no_grad():
        for master in model.masters().values():
            master.mul_(1.5)
    assert_equals_slow(model, batch)
    with model.adapter_off():
        torch.testing.assert_close(logp(model, batch), adapted, rtol=1e-6, atol=1e-6)
    model.module.merge_adapter()
    with torch.no_grad():
        torch.testing.assert_close(logp(model, batch), slow_logp(model.module, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("targets", [["q_proj"], ["v_proj", "up_proj"], ["down_proj", "o_proj", "k_proj"]])
def test_adapters_on_some_projections(targets):
    model = tiny_language_model("llama")
    model.add_lora(LoraConfig(rank=2, targets=targets))
    wake_adapters(model)
    assert engine_of(model).layout is not None
    assert_equals_slow(model)


@pytest.mark.parametrize(
    "trained", ["k_proj.weight", "mlp.up_proj.weight", "norm.weight", "layers.1.", "embed_tokens", "lm_head"]
)
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_some_weights_train(kind, trained):
    model = tiny_language_model(kind)
    for name, parameter in model.module.named_parameters():
        parameter.requires_grad_(trained in name)
    if not model.masters():
        pytest.skip("tied to the embedding")
    assert_equals_slow(model)


def test_dropout_runs_the_models_own_layers_and_says_so():
    model = tiny_language_model("llama", "lora", dropout=0.5)
    batch = random_batch()
    quiet = logp(model, batch).detach()
    assert model.events == []
    first, second = (model.forward(batch)["logp"].detach() for _ in range(2))
    assert not torch.equal(first, second)
    (event,) = model.events
    assert event == {"kind": "fallback", "message": "the model's own layers run: adapter dropout"}
    with torch.no_grad():
        torch.testing.assert_close(model.forward(batch)["logp"], quiet, rtol=1e-5, atol=1e-5)


def test_nothing_is_kept_without_gradient():
    model = tiny_language_model("llama", "lora")
    engine_of(model)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        with torch.no_grad():
            assert not logp(model, random_batch()).requires_grad
        assert not kept
        logp(model, random_batch())
        whole = sum(tensor.numel() for tensor in kept)
        kept.clear()
        model.checkpointing = True
        logp(model, random_batch())
    assert 0 < sum(tensor.numel() for tensor in kept) < 0.5 * whole


def test_first_use_in_inference_mode_or_with_the_adapter_off():
    batch = random_batch()
    model = tiny_language_model("llama", "lora")
    with model.adapter_off():
        bare = logp(model, batch)
        torch.testing.assert_close(bare, slow_logp(model.module, batch), rtol=1e-5, atol=1e-5)
    assert_equals_slow(model, batch)
    model = tiny_language_model("llama", "lora")
    with torch.inference_mode():
        first = logp(model, batch)
    torch.testing.assert_close(first.clone(), logp(model, batch).detach(), rtol=1e-5, atol=1e-5)
    assert_equals_slow(model, batch)


def test_trials_leave_the_random_state_alone():
    model = tiny_language_model("llama", "lora")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    engine_of(model)
    assert torch.equal(torch.rand(3), expected)


# Kernels


def norm(width, offset):
    return Norm(nn.Parameter(torch.randn(width, dtype=torch.float64)), 1e-6, offset)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm_by_finite_differences(offset):
    torch.manual_seed(0)
    n, x, grad = norm(6, offset), torch.randn(5, 6, dtype=torch.float64, requires_grad=True), torch.randn(5, 6).double()
    y, scale = kernels.rms_norm(x.detach(), n)
    reference = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (n.weight + offset)
    torch.testing.assert_close(y, reference.detach())
    wanted = torch.autograd.grad(reference, (x, n.weight), grad)
    torch.testing.assert_close(kernels.rms_norm_backward(grad, x.detach(), scale, n), wanted[0])
    torch.testing.assert_close(kernels.rms_norm_weight_grad(grad, x.detach(), scale, n), wanted[1])


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_gated_by_finite_differences(activation):
    torch.manual_seed(0)
    gate_up, grad = torch.randn(5, 12, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    found, values = kernels.gated_backward(grad, gate_up, activation)
    torch.testing.assert_close(values, kernels.gated(gate_up, activation))
    step = 1e-6
    for i in range(12):
        moved = torch.zeros_like(gate_up)
        moved[:, i] = step
        slope = (kernels.gated(gate_up + moved, activation) - kernels.gated(gate_up - moved, activation)) / (2 * step)
        torch.testing.assert_close(found[:, i], (slope * grad).sum(1), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("window", [None, 2])
def test_attention_equals_softmax_over_the_dense_mask(window):
    torch.manual_seed(0)
    plan = make_plan(random_batch([(5, (3, 4)), (140, (70, 1)), (2, (1,))]), "shared")
    kv_heads, group, width, length = 2, 3, 4, plan.num_slots
    q = torch.randn(kv_heads, length * group, width, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(kv_heads, length, width, dtype=torch.float64, requires_grad=True) for _ in range(2))
    blocks = make_blocks(plan, window, group=group, dtype=torch.float64, device=torch.device("cpu"))
    every = np.arange(length)
    hidden = torch.from_numpy(~plan.sees(every, every, window)).repeat_interleave(group, dim=0)
    scores = (0.7 * q @ k.transpose(1, 2)).masked_fill(hidden, -torch.inf)
    expected = scores.softmax(-1) @ v
    found = attention(q.detach(), k.detach(), v.detach(), blocks=blocks, scale=0.7)
    torch.testing.assert_close(found, expected.detach())
    grad = torch.randn_like(found)
    wanted = torch.autograd.grad(expected, (q, k, v), grad)
    gradients = attention_backward(grad, q.detach(), k.detach(), v.detach(), blocks=blocks, scale=0.7)
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", FAST_KINDS)
def test_layers_by_finite_differences(kind):
    """In fp64 the written-out derivative is exact: checked against the slope of the layers themselves."""
    module = make_model(kind, dtype=torch.float64)
    layout = describe(module)
    plan = make_plan(random_batch([(3, (2, 2))]), "shared")
    torch.manual_seed(0)
    x = torch.randn(plan.num_slots, 32, dtype=torch.float64, requires_grad=True)
    direction, weights = torch.randn_like(x), torch.randn_like(x)
    (gradient,) = torch.autograd.grad((run_layers(layout, plan, x) * weights).sum(), x)
    step = 1e-5
    with torch.no_grad():
        up, down = (run_layers(layout, plan, x + sign * step * direction) for sign in (1, -1))
        slope = ((up - down) * weights).sum() / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(float(slope), rel=1e-6)


def test_equal_long_prompts_each_find_their_own_keys():
    """Prompts that begin differently are read apart; two that are equal must not be taken for one."""
    twice, other = tuple(range(1, 41)), tuple(range(100, 145))
    plan, slots = _prompt_plan([twice, other, twice])
    assert [plan.tokens[some].tolist() for some in slots] == [list(twice), list(other), list(twice)]
    assert plan.tokens[plan.predictors].tolist() == [40, 144, 40]
