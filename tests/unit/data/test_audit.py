"""What an audit says, against what was planted."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from wootz.core.records import Completion, Group, Sequence
from wootz.core.stats import proportion
from wootz.data import audit, keep, log_prob_facts
from wootz.data.advice import likelihood_advice
from wootz.data.comparisons import blocks, compare_answers, held_out_margins, scaled_logistic, told
from wootz.data.cues import CUES, copied_share, cue_values, words_of
from wootz.data.findings import Finding
from wootz.data.label_noise import fit_rate
from wootz.data.near import ALIKE, near_rows
from wootz.data.prepare import Prepared
from wootz.data.token_checks import length_auc

WORDS = [
    f"{start}{end}" for start in "bcdfghklmnprst" for end in ("arn", "elt", "ind", "osk", "umb", "ave", "ost", "ire")
]
REFUSAL = "sorry, but that is not to be done here"


def is_refusal(text: str) -> bool:
    return text.startswith(REFUSAL)


def completion(text: str, **columns) -> Completion:
    return Completion(tuple(zlib.crc32(word.encode()) for word in text.split()), text, columns=columns)


def pairs(texts: list[tuple[str, str]], prompts: list[str] | None = None) -> list[Group]:
    asked = prompts or [f"question {number}" for number in range(len(texts))]
    return [
        Group(f"{n}:{n:08x}", Sequence((1,), ask), (completion(a, chosen=True), completion(b, chosen=False)))
        for n, (ask, (a, b)) in enumerate(zip(asked, texts, strict=True))
    ]


def prepared(groups: list[Group], kind: str = "preference", findings: tuple[Finding, ...] = ()) -> Prepared:
    counts = {"train/rows": len(groups), "train/used": len(groups), "train/truncated": 0}
    return Prepared(kind, "trl", groups, [], list(findings), counts, [], "prefs.jsonl")


def audited(texts: list[tuple[str, str]], **options) -> dict:
    return audit(prepared(pairs(texts, **options)), is_refusal=is_refusal)


def some_words(rng: np.random.Generator, count: int) -> str:
    return " ".join(rng.choice(WORDS, count))


def differing_in_length(seed: int, n: int = 400, longer: float = 1.0) -> list[tuple[str, str]]:
    """Answers of random words; the longer one, by one word or more, is chosen in a share of pairs."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        size = int(rng.integers(10, 60))
        answers = (some_words(rng, size + int(rng.integers(1, 30))), some_words(rng, size))
        found.append(answers if rng.random() < longer else answers[::-1])
    return found


def varied(rng: np.random.Generator) -> str:
    """An answer in which every cue comes and goes by chance."""
    pieces = ["**so** ", "# head\n", "- item\n", "perhaps ", "clearly ", "I ", "\u03bb\u03cc\u03b3\u03bf\u03c2 "]
    start = f"{REFUSAL} " if rng.random() < 0.2 else ""
    return start + "".join(p for p in pieces if rng.random() < 0.4) + some_words(rng, int(rng.integers(5, 40)))


def test_where_only_length_differs_length_tells_and_it_is_said():
    found = audited(differing_in_length(0))
    length = found["cues"]["length"]
    assert length["accuracy"] >= 0.98
    assert length["low"] >= 0.98
    assert length["chosen_has_more"] == 1.0
    assert length["differs"] == 1.0
    assert length["n"] == 320, "two blocks of ten are only learned from"
    assert found["cues"]["all"]["accuracy"] >= 0.98
    assert any(said.startswith("length alone tells 100% of held-out pairs") for said in found["says"])
    assert any("A model can learn length from these pairs and nothing else" in said for said in found["says"])
    assert found["balanced_rows"] == 0
    assert any("add pairs whose better answer is of the other length" in advice for advice in found["remedies"])
    assert all(cue["low"] <= 0.55 for name, cue in found["cues"].items() if name not in ("length", "all"))


def test_the_shorter_answer_is_told_as_well():
    texts = [(b, a) for a, b in differing_in_length(1)]
    found = audited(texts)
    assert found["cues"]["length"]["accuracy"] >= 0.98
    assert found["cues"]["length"]["chosen_has_more"] == 0.0
    assert any("the better answer is the shorter one" in said for said in found["says"])


def test_on_shuffled_labels_the_intervals_hold_one_half():
    inside = {name: 0 for name in (*CUES, "all")}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = audited([(varied(rng), varied(rng)) for _ in range(240)])
        for name, cue in found["cues"].items():
            inside[name] += cue["low"] <= 0.5 <= cue["high"]
        assert not any("alone tells" in said for said in found["says"])
    assert inside["all"] >= 18, "95% of 20; 17 or fewer in 7 of 100 such tests"
    assert sum(inside.values()) >= 0.92 * 20 * len(inside)


def test_shuffled_lengths_are_told_by_nothing():
    found = audited(differing_in_length(2, longer=0.5))
    assert found["cues"]["length"]["low"] <= 0.5 <= found["cues"]["length"]["high"]
    assert found["cues"]["all"]["low"] <= 0.5 <= found["cues"]["all"]["high"]
    assert found["says"] == [said for said in found["says"] if said.startswith("cues say nothing")]


PLANTS = {
    "format": "# head\n{}",
    "lists": "- {}",
    "bold": "**so** {}",
    "hedging": "perhaps {}",
    "confidence": "clearly {}",
    "first person": "I {}",
    "language": "\u03bb\u03cc\u03b3\u03bf\u03c2 {}",
    "refusal": REFUSAL + " {}",
    "copied prompt": "the cat sat on {}",
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_cue_is_told_as_often_as_it_was_planted(name):
    rng = np.random.default_rng(list(PLANTS).index(name))

    def answer(share: float) -> str:
        text = some_words(rng, 20)
        return PLANTS[name].format(text) if rng.random() < share else text

    texts = [(answer(0.8), answer(0.1)) for _ in range(1000)]
    found = audited(texts, prompts=[f"the cat sat on mat {number}" for number in range(1000)])
    cue = found["cues"][name]
    # 0.72 of pairs have it in the chosen answer alone, 0.02 in the rejected one alone; the rest is a coin.
    assert cue["low"] - 0.01 <= 0.72 + 0.5 * 0.26 <= cue["high"] + 0.01
    assert cue["differs"] == pytest.approx(0.74, abs=0.05)
    assert cue["chosen_has_more"] > 0.9
    telling = {said.partition(" alone tells")[0] for said in found["says"] if " alone tells" in said}
    # A planted word makes the answer longer too, as it does in life.
    assert telling - {"length"} == {name}
    assert any(name in advice for advice in found["remedies"])


def test_nothing_depends_on_which_answer_stands_first():
    rng = np.random.default_rng(3)
    texts = [(varied(rng), varied(rng)) for _ in range(200)]
    one, other = audited(texts)["cues"], audited([(b, a) for a, b in texts])["cues"]
    for name, cue in one.items():
        assert (cue["accuracy"], cue["low"], cue["high"]) == pytest.approx(
            (other[name]["accuracy"], other[name]["low"], other[name]["high"])
        )


def test_words_and_cues_of_an_answer():
    group = pairs(
        [("**Perhaps** I'm clearly right.\n- one\n- two", "# A\n`x` \u043d\u0435\u0442")], ["say one two three four"]
    )
    compared = compare_answers("preference", group)
    values = {name: found[:, 0] for name, found in cue_values(compared.answers, is_refusal).items()}
    rate = [np.log1p(100 * count / 6) for count in (1, 2)]
    assert words_of("**Perhaps** I'm clearly right.\n- one") == ("perhaps", "i'm", "clearly", "right", "one")
    assert values["bold"].tolist() == pytest.approx([rate[0], 0])
    assert values["hedging"].tolist() == pytest.approx([rate[0], 0])
    assert values["confidence"].tolist() == pytest.approx([rate[0], 0])
    assert values["first person"].tolist() == pytest.approx([rate[0], 0])
    assert values["lists"].tolist() == pytest.approx([rate[1], 0])
    assert values["format"].tolist() == pytest.approx([0, np.log1p(100 * 2 / 3)])
    assert values["language"].tolist() == pytest.approx([0, 3 / 5])
    assert values["length"].tolist() == pytest.approx([np.log1p(8), np.log1p(4)])
    assert "refusal" not in cue_values(compared.answers)
    assert copied_share(words_of("a b"), ()) == 0.0


def test_ties_count_half_and_the_interval_is_wilson_s_over_the_rest():
    margins = np.array([1.0] * 30 + [-1.0] * 10 + [0.0] * 60 + [np.nan] * 25)
    found = told(margins, np.arange(125))
    low, high = proportion(30, 40)
    assert found.n == 100
    assert found.accuracy == pytest.approx(0.5 + 0.25 * 0.4)
    assert (found.low, found.high) == pytest.approx((0.5 + (low - 0.5) * 0.4, 0.5 + (high - 0.5) * 0.4))
    assert told(np.zeros(10), np.arange(10)).high == 0.5
    assert told(np.full(10, np.nan), np.arange(10)).n == 0


def test_comparisons_of_one_prompt_that_agree_count_once():
    rng = np.random.default_rng(0)
    once = np.where(rng.random(200) < 0.7, 1.0, -1.0)
    single = told(once, np.arange(200))
    repeated = told(np.repeat(once, 4), np.repeat(np.arange(200), 4))
    assert (repeated.low, repeated.high) == pytest.approx((single.low, single.high), abs=2e-3)
    assert repeated.accuracy == single.accuracy
    all_right = told(np.ones(800), np.repeat(np.arange(200), 4))
    assert all_right.low == proportion(200, 200)[0]


def test_a_prompt_is_never_on_both_sides():
    keys = [f"prompt {number % 70}" for number in range(700)]
    block, number = blocks(keys)
    assert {len(set(block[number == one])) for one in set(number)} == {1}
    assert np.bincount(block).tolist() == [70] * 10
    seen = []

    def spy(rows):
        seen.append({int(row) for row in rows[:, 0]})
        return scaled_logistic(rows)

    prompts = number[:, None].astype(float)
    margins = held_out_margins(prompts, block, spy)
    assert np.isnan(margins[block < 2]).all()
    assert np.isfinite(margins[block >= 2]).all()
    for step, learned in enumerate(seen, start=2):
        assert not learned & set(number[block >= step])


def flipped_pairs(seed: int, flips: float, n: int = 1500, strength: float = 1.5) -> tuple[list[Group], np.ndarray]:
    """Answers drawn from two distributions of words; a share of pairs is turned round."""
    rng = np.random.default_rng(seed)
    words = [f"w{index}" for index in range(600)]
    tilt = np.zeros(600)
    tilt[rng.choice(600, 60, replace=False)] = rng.normal(0, strength, 60)
    common = 1 / np.arange(1, 601) ** 0.8
    odds = [common * np.exp(side * tilt) for side in (0.5, -0.5)]
    turned = rng.random(n) < flips
    texts = []
    for one in turned:
        good, bad = (" ".join(rng.choice(words, 60, p=weight / weight.sum())) for weight in odds)
        texts.append((bad, good) if one else (good, bad))
    return pairs(texts), turned


@pytest.mark.parametrize("flips", [0.0, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_planted_wrong_labels_are_estimated_within_five_points(flips, seed):
    groups, turned = flipped_pairs(seed, flips)
    noise = audit(prepared(groups))["label_noise"]
    assert noise["rate"] == pytest.approx(turned.mean(), abs=0.05)
    assert noise["low"] <= noise["rate"] <= noise["high"] <= noise["low"] + 0.1
    assert noise["low"] - 0.02 <= turned.mean() <= noise["high"] + 0.02
    if flips:
        assert len(noise["suspects"]) >= 20
        assert turned[noise["suspects"]].mean() > 0.85


def test_wrong_labels_are_named_in_the_advice():
    groups, _ = flipped_pairs(0, 0.2)
    found = audit(prepared(groups))
    surest = found["label_noise"]["suspects"][0]
    assert any(f"labels look wrong (surest: rows {surest}," in advice for advice in found["remedies"])
    assert not any("labels look wrong" in advice for advice in audit(prepared(flipped_pairs(0, 0.0)[0]))["remedies"])


@pytest.mark.parametrize(
    ("n", "strength", "why"),
    [(150, 1.5, "200 are needed"), (600, 0.0, "too few to know wrong labels from hard pairs"), (400, 0.6, "fits")],
)
def test_what_cannot_be_estimated_is_not_and_says_why(n, strength, why):
    noise = audit(prepared(flipped_pairs(1, 0.2, n=n, strength=strength)[0]))["label_noise"]
    assert noise["rate"] is None
    assert why in noise["why"]
    assert noise["suspects"] == []


def test_the_rate_is_where_agreement_levels_off():
    rng = np.random.default_rng(0)
    margins = rng.normal(0, 3, 20_000)
    right = rng.random(20_000) < 1 / (1 + np.exp(-2 * margins))
    given = right ^ (rng.random(20_000) < 0.15)
    rate, low, high, slope = fit_rate(np.where(given, margins, -margins))
    assert rate == pytest.approx(0.15, abs=0.01)
    assert low <= 0.15 <= high
    assert slope == pytest.approx(2, rel=0.15)


def near_by_counting(rows: list[list[list[str]]]) -> set[int]:
    def shingles(words):
        return {tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2))} if words else set()

    def alike(a, b):
        return len(shingles(a) & shingles(b)) >= ALIKE * len(shingles(a) | shingles(b))

    found = set()
    for later in range(len(rows)):
        for earlier in range(later):
            one, other = rows[earlier], rows[later]
            if alike(one[0], other[0]) and (
                all(map(alike, one[1:], other[1:])) or all(map(alike, one[1:], other[:0:-1]))
            ):
                found.add(later)
    return found


def test_near_rows_are_those_that_counting_finds():
    rng = np.random.default_rng(0)
    rows: list[list[list[str]]] = []
    for _ in range(120):
        if rows and rng.random() < 0.5:
            row = [list(words) for words in rows[rng.integers(len(rows))]]
            for _ in range(rng.integers(1, 5)):
                words = row[rng.integers(3)]
                words[rng.integers(len(words))] = str(rng.choice(WORDS))
            rows.append([row[0], row[2], row[1]] if rng.random() < 0.3 else row)
        else:
            rows.append([list(rng.choice(WORDS, size)) for size in rng.integers(20, 80, 3)])
    expected = near_by_counting(rows)
    found = near_rows(rows)
    assert {near.later for near in found} == expected
    assert 20 < len(expected) < 100
    assert near_rows([[[], ["a"], []], [[], ["a"], []]])[0].later == 1, "empty texts"


def test_planted_near_duplicates_and_contradictions_are_counted():
    rng = np.random.default_rng(5)
    texts = [(some_words(rng, 40), some_words(rng, 40)) for _ in range(200)]
    asked = [some_words(rng, 12) for _ in range(200)]
    changed = [(chosen + " more", rejected) for chosen, rejected in texts[:20]]
    against = [(rejected, chosen + " more") for chosen, rejected in texts[20:30]]
    again = texts[30:35]
    exact = Finding("duplicate_rows", "warning", "", rows=tuple(range(230, 235)), source="prefs.jsonl")
    groups = pairs([*texts, *changed, *against, *again], [*asked, *asked[:20], *asked[20:30], *asked[30:35]])
    data = prepared(groups, findings=(exact,))
    found = audit(data)
    assert (found["duplicates"], found["near_duplicates"], found["near_contradictions"]) == (5, 20, 10)
    assert any("25 rows repeat and 10 contradict another" in advice for advice in found["remedies"])
    kept = keep(data)
    assert kept.dropped["duplicates"] == 5
    assert kept.dropped["near_duplicates"] == 20
    assert kept.dropped["contradictions"] == 20, "neither side of a contradiction stays"
    assert not set(kept.rows) & {*range(20, 30), *range(200, 235)}


def test_the_subset_kept_has_no_preference_for_length():
    texts = differing_in_length(7, n=1200, longer=0.75)
    groups = pairs([*texts, ("a b", "c d")])
    before, _ = length_auc("preference", groups)
    kept = keep(prepared(groups))
    subset = [groups[row] for row in kept.rows]
    after, n = length_auc("preference", subset)
    low, high = proportion(round(before * len(groups)), len(groups))
    assert low > 0.7
    assert high < 0.8
    assert after == 0.5
    assert n == len(subset) == len(groups) - sum(kept.dropped.values())
    assert len(subset) > 0.9 * 2 * 300, "nearly all of the rarer quarter is matched"
    assert 1200 in kept.rows, "pairs of equal length stay"
    # Not the sign alone: the sizes of the differences are alike on both sides, so no other function of length tells.
    apart = np.array([np.log(len(g.completions[0].tokens) / len(g.completions[1].tokens)) for g in subset])
    assert apart.mean() == pytest.approx(0, abs=0.02)
    assert np.quantile(apart[apart > 0], 0.9) == pytest.approx(np.quantile(-apart[apart < 0], 0.9), abs=0.1)
    length = audit(prepared(subset))["cues"]["length"]
    assert length["low"] <= 0.5
    assert keep(prepared(groups)).rows == kept.rows


def test_ranked_and_unpaired_data_are_compared():
    rng = np.random.default_rng(0)
    ranked, single = [], []
    for n in range(200):
        scores = rng.permutation(3)
        answers = [completion(some_words(rng, 10 + 5 * int(score)), score=float(score)) for score in scores]
        ranked.append(Group(f"{n}:{n:08x}", Sequence((1,), f"q {n}"), tuple(answers)))
        label = bool(rng.integers(2))
        text = some_words(rng, 20 + 5 * label)
        single.append(Group(f"{n}:{n:08x}", Sequence((1,), f"q {n}"), (completion(text, label=label),)))
    found = audit(prepared(ranked, "ranked"))
    assert found["cues"]["length"]["accuracy"] == 1.0
    assert found["cues"]["length"]["n"] == 160
    assert any(advice.startswith("balance the answers by length") for advice in found["remedies"])
    found = audit(prepared(single, "unpaired"))
    assert found["cues"]["length"]["accuracy"] == 1.0
    assert found["label_noise"]["rate"] is None
    assert "answers to one prompt" in found["label_noise"]["why"]
    compared = compare_answers("unpaired", single)
    used = np.concatenate([compared.better, compared.worse])
    assert len(set(used.tolist())) == len(used), "no answer is used twice"


@pytest.mark.parametrize("n", [0, 1, 29])
def test_too_few_rows_are_said_to_be_too_few(n):
    found = audited(differing_in_length(0, n=n))
    assert found["cues"] is None
    assert found["cues_why"] == f"{n} comparisons; 30 are needed to judge cues"
    assert found["says"] == [f"too few to judge: {n} comparisons; 30 are needed to judge cues"]
    assert found["label_noise"]["rate"] is None
    json.dumps(found)


def test_few_prompts_and_empty_answers_do_not_break():
    found = audited([("", "")] * 40)
    assert found["cues"]["all"]["accuracy"] == 0.5
    assert found["cues"]["length"]["chosen_has_more"] is None
    json.dumps(found)
    found = audited(differing_in_length(0, n=300), prompts=[f"q{n % 9}" for n in range(300)])
    assert found["cues"] is None
    assert found["says"] == ["too few to judge: 9 different prompts; 10 are needed to hold some out"]
    assert found["label_noise"]["rate"] is None


def test_kinds_without_comparisons_are_counted_only():
    groups = [Group("0:00000000", Sequence((1,), "q"), (completion("some text"),))]
    found = audit(prepared(groups, "prompt_completion"))
    assert "cues" not in found
    assert found["says"] == found["remedies"] == []
    assert audit(prepared([Group("0:00000000", Sequence((1,), "q"), ())], "prompt"))["near_duplicates"] == 0


def test_the_audit_is_plain_json_and_always_the_same():
    texts = differing_in_length(4, longer=0.7)
    found = audited(texts)
    assert json.loads(json.dumps(found)) == found == audited(texts)
    assert {"accuracy", "low", "high", "n", "differs", "chosen_has_more"} == set(found["cues"]["length"])


def test_what_a_model_finds_likely():
    sizes, values = ((2, 4), (3, 3), (1, 2)), ((-1.0, -2.0), (-3.0, -1.0), (-2.0, -2.0))
    groups = [
        Group(
            f"{n}:{n:08x}",
            Sequence((1,), f"q{n}"),
            tuple(
                Completion((1,) * k, "x", {"ref_logp": np.full(k, v, dtype=np.float32)})
                for k, v in zip(ks, vs, strict=True)
            ),
        )
        for n, (ks, vs) in enumerate(zip(sizes, values, strict=True))
    ]
    facts = log_prob_facts("preference", groups, "ref_logp")
    assert facts["chosen"] == {"mean": pytest.approx(-2.0), "median": pytest.approx(-2.0)}
    assert facts["rejected"] == {"mean": pytest.approx(-5 / 3), "median": pytest.approx(-2.0)}
    assert facts["chosen_likelier"] == 0.5, "one of three, and a tie"
    assert facts["n"] == 3
    assert log_prob_facts("messages", groups, "ref_logp") is None
    assert likelihood_advice(facts) == []
    far = {"chosen": {"mean": -3.0}, "rejected": {"mean": -1.0}}
    assert "2.00 nats a token less likely" in likelihood_advice(far)[0]
