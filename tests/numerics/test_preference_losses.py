"""Every pair, unpaired and ranked loss against its formula written with ``math`` on single numbers."""

import math

import numpy as np
import pytest
import torch

from wootz.core.batch import GroupBatch
from wootz.core.errors import DataError
from wootz.core.records import Completion, Group, Sequence
from wootz.objectives import OBJECTIVES, preference, reference_free
from wootz.objectives.pairs import check_numbers
from wootz.objectives.ranked import plackett_luce
from wootz.objectives.unpaired import bco, kto

CHOSEN, REJECTED, LENGTHS = (1.3, -0.7, 0.0, 4.0), (-0.4, 0.9, 0.0, 3.5), ((3, 5), (2, 2), (1, 4), (6, 3))


def s(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def nll(x: float) -> float:
    return math.log1p(math.exp(-x))


def rows(columns=({}, {}, {}, {})) -> GroupBatch:
    """Four pairs with reference log-prob 0, so that the policy's summed log-probs below are the log-ratios."""
    groups = []
    for index, (lengths, extra) in enumerate(zip(LENGTHS, columns, strict=True)):
        completions = tuple(
            Completion(
                tuple(range(n)), per_token={"ref_logp": np.zeros(n), "old_logp": np.full(n, total / n)}, columns=extra
            )
            for n, total in zip(lengths, (CHOSEN[index], REJECTED[index]), strict=True)
        )
        groups.append(Group(str(index), Sequence((9, 9)), completions))
    return GroupBatch(tuple(groups))


def flat() -> torch.Tensor:
    values = []
    for index, lengths in enumerate(LENGTHS):
        for n, total in zip(lengths, (CHOSEN[index], REJECTED[index]), strict=True):
            values += [total / n] * n
    return torch.tensor(values, dtype=torch.float64)


def loss_of(recipe: dict, batch: GroupBatch | None = None, **outputs) -> float:
    objective = OBJECTIVES.validate(recipe).build()
    batch = objective.prepare(batch or rows(), dict)
    sums, counts = objective.sums({"logp": flat(), **outputs}, batch), objective.counts(batch)
    return float(sum(weight * sums[name] / counts[name] for name, weight in objective.weights.items()))


def mean_over_pairs(formula) -> float:
    return sum(formula(c, r, *n) for c, r, n in zip(CHOSEN, REJECTED, LENGTHS, strict=True)) / len(CHOSEN)


B = 0.7
SHIFT = B * (sum(CHOSEN) + sum(REJECTED)) / 8
FORMULAS = {
    "dpo": ({}, lambda c, r, *_: nll(B * (c - r))),
    "robust_dpo": (
        {"label_noise": 0.2},
        lambda c, r, *_: (0.8 * nll(B * (c - r)) - 0.2 * nll(B * (r - c))) / 0.6,
    ),
    "ipo": ({}, lambda c, r, n, m: (c / n - r / m - 1 / (2 * B)) ** 2),
    "hinge": ({}, lambda c, r, *_: max(0.0, 1 - B * (c - r))),
    "norm_dpo": ({}, lambda c, r, n, m: nll(B * (c / n - r / m))),
    "exo": (
        {"label_smoothing": 0.1},
        lambda c, r, *_: (
            s(B * (c - r)) * math.log(s(B * (c - r)) / 0.9) + s(B * (r - c)) * math.log(s(B * (r - c)) / 0.1)
        ),
    ),
    "nca": ({}, lambda c, r, *_: nll(B * c) + 0.5 * nll(-B * c) + 0.5 * nll(-B * r)),
    "bco_pair": ({}, lambda c, r, *_: nll(B * c - SHIFT) + nll(SHIFT - B * r)),
    "sppo": ({}, lambda c, r, *_: (c - 0.5 / B) ** 2 + (r + 0.5 / B) ** 2),
    "discopop": (
        {"temperature": 0.5},
        lambda c, r, *_: s(-B * (c - r) / 0.5) * nll(B * (c - r)) + s(B * (c - r) / 0.5) * math.exp(-B * (c - r)),
    ),
    "dpo_positive": ({"penalty": 5.0}, lambda c, r, *_: nll(B * (c - r - 5 * max(0.0, -c)))),
    "ld_dpo": (
        {"alpha": 0.25},
        lambda c, r, n, m: nll(
            B * (c / n * (min(n, m) + 0.25 * (n - min(n, m))) - r / m * (min(n, m) + 0.25 * (m - min(n, m))))
        ),
    ),
}
VARIANTS = [
    ("f_dpo", {"divergence": "forward_kl"}, lambda c, r, *_: nll(B * (math.exp(-r) - math.exp(-c)))),
    (
        "f_dpo",
        {"divergence": "js"},
        lambda c, r, *_: nll(
            B * (math.log(2 * math.exp(c) / (1 + math.exp(c))) - math.log(2 * math.exp(r) / (1 + math.exp(r))))
        ),
    ),
    (
        "f_dpo",
        {"divergence": "chi_squared"},
        lambda c, r, *_: nll(B * (math.exp(c) + c - math.exp(r) - r)),
    ),
    ("apo", {"direction": "zero"}, lambda c, r, *_: 1 - s(B * c) + s(B * r)),
    ("apo", {"direction": "down"}, lambda c, r, *_: s(B * c) + 1 - s(B * (c - r))),
    ("dpo", {"label_smoothing": 0.3}, lambda c, r, *_: 0.7 * nll(B * (c - r)) + 0.3 * nll(B * (r - c))),
    *((name, settings, formula) for name, (settings, formula) in FORMULAS.items()),
]


@pytest.mark.parametrize(("name", "settings", "formula"), VARIANTS, ids=lambda v: v if isinstance(v, str) else "")
def test_pair_losses(name, settings, formula):
    assert loss_of({"type": name, "beta": B, **settings}) == pytest.approx(mean_over_pairs(formula), rel=1e-12)


def test_discopop_rises_with_the_margin_at_first():
    """At a margin of 0 and the published temperature the loss falls towards the rejected answer: slope
    (1 - log 2) / (4 temperature) - 3/4 in x = beta * d. Its docs page says so."""
    d = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(preference.discopop(d, beta=1.0, temperature=0.05).sum(), d)
    assert float(slope) == pytest.approx((1 - math.log(2)) / 0.2 - 0.75, rel=1e-12)
    assert float(slope) > 0.7


def test_aot_compares_sorted_rewards():
    expected = sum(nll(B * (c - r)) for c, r in zip(sorted(CHOSEN), sorted(REJECTED), strict=True)) / 4
    assert loss_of({"type": "aot", "beta": B}) == pytest.approx(expected, rel=1e-12)


def test_wpo_weighs_pairs_by_how_likely_they_are():
    collision = torch.full((26,), -3.0, dtype=torch.float64)

    def formula(c, r, n, m):
        return min(1.0, math.exp(c / n + 3 + r / m + 3)) * nll(B * (c - r))

    assert loss_of({"type": "wpo", "beta": B}, log_collision=collision) == pytest.approx(mean_over_pairs(formula))
    unlikely = torch.full((26,), 1.0, dtype=torch.float64)
    found = loss_of({"type": "wpo", "beta": B}, log_collision=unlikely)
    expected = mean_over_pairs(lambda c, r, n, m: min(1.0, math.exp(c / n + r / m - 2)) * nll(B * (c - r)))
    assert found == pytest.approx(expected, rel=1e-12)
    assert found < mean_over_pairs(lambda c, r, *_: nll(B * (c - r)))


def test_wpo_weights_carry_no_gradient():
    logp = flat().requires_grad_()
    outputs = {"logp": logp, "log_collision": torch.zeros(26, dtype=torch.float64, requires_grad=True)}
    weights = preference.policy_weights(outputs, rows())
    assert weights.shape == (4,)
    assert not weights.requires_grad


def test_robust_dpo_is_unbiased():
    """Its mean over flipped labels is the loss on the right ones."""
    d, noise = torch.tensor([1.7], dtype=torch.float64), 0.2
    right = preference.robust_dpo(d, beta=B, label_noise=noise)
    flipped = preference.robust_dpo(-d, beta=B, label_noise=noise)
    torch.testing.assert_close((1 - noise) * right + noise * flipped, preference.dpo(d, beta=B))


def test_orpo():
    """log-odds from probabilities, and the likelihood of the chosen answers per token."""
    batch, logp = rows(), flat() - 2.0

    def odds(total, n):
        p = math.exp((total - 2 * n) / n)
        return math.log(p / (1 - p))

    ratio = mean_over_pairs(lambda c, r, n, m: nll(odds(c, n) - odds(r, m)))
    chosen_tokens = sum(n for n, _ in LENGTHS)
    likelihood = -(sum(CHOSEN) - 2 * chosen_tokens) / chosen_tokens
    found = loss_of({"type": "orpo", "beta": 0.3}, batch, logp=logp)
    assert found == pytest.approx(likelihood + 0.3 * ratio, rel=1e-12)


def test_orpo_over_prompt_and_response():
    objective = OBJECTIVES.validate({"type": "orpo", "nll_over": "prompt_and_response"}).build()
    batch = objective.prepare(rows(), dict)
    # The prompts' second tokens are learned too: one more token for each of the four rows.
    assert objective.counts(batch)["nll"] == sum(n for n, _ in LENGTHS) + 4
    logp = torch.cat([flat() - 2, torch.full((4,), -1.5, dtype=torch.float64)])
    response = OBJECTIVES.validate({"type": "orpo"}).build()
    alone = response.sums({"logp": flat() - 2}, rows())
    both = objective.sums({"logp": logp}, batch)
    assert float(both["nll"] - alone["nll"]) == pytest.approx(6.0)
    assert float(both["orpo"]) == pytest.approx(float(alone["orpo"]))


@pytest.mark.parametrize("a", [-1e-12, -1e-6, -1e-3, -0.5, -0.7, -3.0, -80.0])
def test_log_odds_in_single_precision(a):
    found = reference_free.log_odds(torch.tensor([a], requires_grad=True))
    exact = min(a, -1e-6)
    assert float(found.detach()) == pytest.approx(exact - math.log(-math.expm1(exact)), rel=1e-4)
    gradient = torch.autograd.grad(reference_free.log_odds(value := torch.tensor([a], requires_grad=True)).sum(), value)
    assert torch.isfinite(gradient[0]).all()


@pytest.mark.parametrize("margins", [False, True])
def test_simpo(margins):
    columns = [{"margin": 0.1 * index} for index in range(4)]
    recipe = {"type": "simpo", "beta": 2.5, "gamma_ratio": 0.4, "use_margins": margins}
    expected = sum(
        nll(2.5 * (c / n - r / m) - 1.0 - 0.1 * index * margins)
        for index, (c, r, (n, m)) in enumerate(zip(CHOSEN, REJECTED, LENGTHS, strict=True))
    )
    assert loss_of(recipe, rows(columns)) == pytest.approx(expected / 4, rel=1e-12)


def test_cpo():
    chosen_tokens = sum(n for n, _ in LENGTHS)
    expected = mean_over_pairs(lambda c, r, *_: nll(B * (c - r))) - 0.5 * sum(CHOSEN) / chosen_tokens
    assert loss_of({"type": "cpo", "beta": B, "sft_weight": 0.5}) == pytest.approx(expected, rel=1e-12)


def test_margins_and_weights():
    columns = [{"margin": 0.5 * index, "weight": 1.0 + index} for index in range(4)]
    recipe = {"type": "dpo", "beta": B, "use_margins": True, "use_weights": True}
    terms = [(1 + i) * nll(B * (c - r) - 0.5 * i) for i, (c, r) in enumerate(zip(CHOSEN, REJECTED, strict=True))]
    assert loss_of(recipe, rows(columns)) == pytest.approx(sum(terms) / 10, rel=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "0.5", True, -1.0])
def test_bad_weights_are_refused(bad):
    columns = [{"weight": 1.0}] * 3 + [{"weight": bad}]
    with pytest.raises(DataError, match=r"row 3"):
        check_numbers(rows(columns), "weight")


def test_a_missing_margin_is_refused():
    with pytest.raises(DataError, match="use_margins: false"):
        loss_of({"type": "dpo", "use_margins": True}, rows())


def test_kto_by_hand():
    ratio = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    good = torch.tensor([True, False, False])
    found = kto(ratio, good, 0.25, beta=B, desirable_weight=2.0, undesirable_weight=3.0)
    expected = [2 * (1 - s(B * 0.75)), 3 * (1 - s(B * 2.25)), 3 * (1 - s(B * -0.25))]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_bco_by_hand():
    ratio, good = torch.tensor([1.0, -2.0], dtype=torch.float64), torch.tensor([True, False])
    assert bco(ratio, good, 0.25, beta=B).tolist() == pytest.approx([nll(B * 0.75), nll(B * 2.25)], rel=1e-12)


def answers(ratios, mismatched, labels) -> GroupBatch:
    return GroupBatch(
        tuple(
            Group(
                str(index),
                Sequence((1,)),
                (
                    Completion(
                        (2,),
                        per_token={"ref_logp": np.zeros(1), "old_logp": np.array([ratio])},
                        columns={"label": label, "mismatched_ratio": other},
                    ),
                ),
            )
            for index, (ratio, other, label) in enumerate(zip(ratios, mismatched, labels, strict=True))
        )
    )


@pytest.mark.parametrize(("mismatched", "baseline"), [((0.4, 0.8, 0.0), 0.4), ((-1.0, -2.0, 0.5), 0.0)])
def test_kto_baseline_is_a_mean_that_is_not_negative(mismatched, baseline):
    ratios, labels = (0.3, -0.6, 1.1), (True, False, True)
    batch = answers(ratios, mismatched, labels)
    terms = [
        1 - s(B * (r - baseline)) if good else 1 - s(B * (baseline - r)) for r, good in zip(ratios, labels, strict=True)
    ]
    found = loss_of({"type": "kto", "beta": B}, batch, logp=torch.tensor(ratios, dtype=torch.float64))
    assert found == pytest.approx(sum(terms) / 3, rel=1e-12)


def test_bco_baseline_is_the_mean_of_the_step():
    ratios, labels = (0.3, -0.6, 1.2), (True, False, True)
    found = loss_of(
        {"type": "bco", "beta": B}, answers(ratios, (0,) * 3, labels), logp=torch.tensor(ratios, dtype=torch.float64)
    )
    expected = nll(B * (0.3 - 0.3)) + nll(-B * (-0.6 - 0.3)) + nll(B * (1.2 - 0.3))
    assert found == pytest.approx(expected / 3, rel=1e-12)


@pytest.mark.parametrize("label", [1, "true", None])
def test_labels_must_be_booleans(label):
    with pytest.raises(DataError, match="true or false"):
        loss_of({"type": "kto"}, answers((0.3, 0.1), (0.1, 0.1), (True, label)))


def test_plackett_luce_is_the_probability_of_the_order():
    """Sums over all orders of one group to 1, each by the product of shares."""
    rewards = [0.3, -1.0, 0.8]
    total = 0.0
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        score = torch.tensor([-float(order.index(index)) for index in range(3)])
        terms = plackett_luce(torch.tensor(rewards, dtype=torch.float64), score, torch.zeros(3, dtype=torch.long))
        probability, left = 1.0, list(order)
        while left:
            probability *= math.exp(rewards[left[0]]) / sum(math.exp(rewards[i]) for i in left)
            left.pop(0)
        assert math.exp(-float(terms.sum())) == pytest.approx(probability, rel=1e-12)
        total += probability
    assert total == pytest.approx(1.0)


def test_two_ranked_answers_are_dpo():
    batch = rows()
    scored = batch.with_columns({"score": [1.0, 0.0] * 4})
    assert loss_of({"type": "ranked", "beta": B}, scored) == pytest.approx(loss_of({"type": "dpo", "beta": B}))


def test_equal_scores_do_not_compete():
    reward = torch.tensor([0.5, 2.0, -1.0], dtype=torch.float64)
    terms = plackett_luce(reward, torch.tensor([1.0, 1.0, 0.0]), torch.zeros(3, dtype=torch.long))
    assert terms.tolist() == pytest.approx([nll(1.5), nll(3.0), 0.0], rel=1e-12)


def test_a_mix_is_the_weighted_sum():
    parts = [{"objective": {"type": "dpo", "beta": B}}, {"objective": {"type": "ipo", "beta": B}, "weight": 0.25}]
    expected = loss_of({"type": "dpo", "beta": B}) + 0.25 * loss_of({"type": "ipo", "beta": B})
    assert loss_of({"type": "mix", "parts": parts}) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([{"objective": "dpo"}, {"objective": {"type": "dpo", "beta": 1.0}}], "two parts"),
        ([{"objective": "dpo"}, {"objective": "kto"}], "read other rows"),
        ([{"objective": "dpo"}], "at least 2"),
        ([{"objective": "dpo"}, {"objective": {"type": "orpo", "nll_over": "prompt_and_response"}}], "adds rows"),
    ],
)
def test_mixes_that_make_no_sense(parts, message):
    with pytest.raises(ValueError, match=message):
        OBJECTIVES.validate({"type": "mix", "parts": parts})


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name not in ("sft", "mix")])
@pytest.mark.parametrize("beta", [0.0, -0.1])
def test_beta_is_positive(name, beta):
    with pytest.raises(ValueError, match="beta"):
        OBJECTIVES.validate({"type": name, "beta": beta})


def test_kto_and_bco_in_one_mix_keep_their_own_baselines():
    ratios, mismatched, labels = (0.3, -0.6, 1.2), (0.4, 0.8, 0.0), (True, False, True)
    logp = torch.tensor(ratios, dtype=torch.float64)
    alone = [
        loss_of({"type": name, "beta": B}, answers(ratios, mismatched, labels), logp=logp) for name in ("kto", "bco")
    ]
    parts = [{"objective": {"type": name, "beta": B}} for name in ("kto", "bco")]
    together = loss_of({"type": "mix", "parts": parts}, answers(ratios, mismatched, labels), logp=logp)
    assert together == pytest.approx(sum(alone), rel=1e-12)


@pytest.mark.parametrize("recipe", [{"type": "dpo", "sft_weight": 1.0}, {"type": "cpo"}, {"type": "orpo"}])
def test_a_pair_of_weight_zero_is_not_there(recipe):
    columns = [{"weight": 1.0}, {"weight": 2.0}, {"weight": 0.0}, {"weight": 1.0}]
    weighted = loss_of(recipe | {"use_weights": True}, rows(columns), logp=flat() - 1)
    twice = rows().groups[1]
    without = GroupBatch((rows().groups[0], twice, twice, rows().groups[3]))
    pieces = (flat() - 1).split([sum(n) for n in LENGTHS])
    expected = loss_of(recipe, without, logp=torch.cat([pieces[0], pieces[1], pieces[1], pieces[3]]))
    assert weighted == pytest.approx(expected, rel=1e-12)


def test_metrics_compare_what_the_loss_compares():
    """The second answer is better by the token and worse in sum."""
    batch = GroupBatch((rows().groups[0],))
    logp = torch.tensor([-1.0] * 3 + [-0.8] * 5, dtype=torch.float64)
    for name, accuracy in (("dpo", 1.0), ("ipo", 0.0), ("norm_dpo", 0.0), ("simpo", 0.0), ("cpo", 1.0)):
        sums = OBJECTIVES.validate({"type": name}).build().sums({"logp": logp}, batch)
        assert float(sums["reward/accuracy"]) == accuracy, name
        assert ("reward/chosen" in sums) == (name not in ("simpo", "cpo"))
    weighted = OBJECTIVES.validate({"type": "ld_dpo", "alpha": 0.0}).build().sums({"logp": logp}, batch)
    assert float(weighted["logp/rejected"]) == pytest.approx(-4.0)


def test_a_mix_shows_the_metrics_of_its_first_part():
    parts = [{"objective": {"type": "dpo", "beta": 0.2}}, {"objective": {"type": "hinge", "beta": 0.9}}]
    mixed = OBJECTIVES.validate({"type": "mix", "parts": parts}).build()
    first = OBJECTIVES.validate({"type": "dpo", "beta": 0.2}).build()
    together, alone = (objective.sums({"logp": flat()}, rows()) for objective in (mixed, first))
    assert float(together["reward/margin"]) == pytest.approx(float(alone["reward/margin"]), rel=1e-12)
    assert float(together["reward/margin"]) == pytest.approx(0.2 * (sum(CHOSEN) - sum(REJECTED)), rel=1e-12)
