import pytest
import yaml
from huggingface_hub import ModelCard

from tests.unit.report.runs import MEASURES, RECIPE, make_hostile_run, make_run, resolved, write_json
from wootz.report import card


def test_the_hub_reads_the_measures_back(tmp_path):
    read = ModelCard(card(make_run(tmp_path / "quick", steps=10))).data
    assert read.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert read.tags == ["wootz", "lora", "dpo"]
    assert read.model_name == "quick"
    values = {result.metric_type: result.metric_value for result in read.eval_results}
    assert values == {name: measure["child"] for name, measure in MEASURES.items()}
    city = next(result for result in read.eval_results if result.metric_type == "city")
    assert city.metric_args == {"parent": 0.058, "difference": 0.788, "low": 0.729, "high": 0.838, "n": 240}


def test_the_card_tells_recipe_data_measures_events_and_limits(tmp_path):
    text = card(make_run(tmp_path / "run", steps=10, stages=True))
    assert RECIPE.strip() in text
    assert "| city | target | better | 0.058 | 0.846 | +0.79 | 0.73 to 0.84 |  | 240 |" in text
    assert "- warning spike at step 40" in text
    assert "- refuses\\_harmful is void." in text or "- refuses_harmful is void." in text
    assert "| train: kept | 800 |" in text
    for heading in ("## Measures", "## Recipe", "## Data", "### SFT", "### DPO", "## Events", "## Limits"):
        assert f"\n{heading}\n" in text


@pytest.mark.parametrize(
    ("base", "known"),
    [
        ("org/model", "org/model"),
        ("org/model@v2", "org/model"),
        ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("/home/me/model", None),
        ("../model", None),
        ("./model", None),
        ("http://localhost:8000/v1#x", None),
        ("weights.gguf", None),
        (None, None),
        ({"a": 1}, None),
    ],
)
def test_only_a_hub_base_is_named(tmp_path, base, known):
    content = resolved("x", "dpo")
    content["recipe"]["model"]["base"] = base
    write_json(tmp_path / "resolved.json", content)
    front = yaml.safe_load(card(tmp_path).split("---\n")[1])
    assert front.get("base_model") == known


def test_hostile_text_stays_text(tmp_path):
    text = card(make_hostile_run(tmp_path / "run"))
    text.encode("utf-8")
    front, _, body = text.removeprefix("---\n").partition("\n---\n")
    assert set(yaml.safe_load(front)) == {"library_name", "pipeline_tag", "tags", "model-index"}
    outside = [line for index, part in enumerate(body.split("\n````")) if index % 2 == 0 for line in part.split("\n")]
    assert not [line for line in outside if "<" in line]
    headings = [line for line in outside if line.startswith("#")]
    assert headings[1:] == ["## Measures", "## Recipe", "## Data", "## Events", "## Limits"]
    rows = [line for line in outside if line.startswith("| ")]
    widths = {line.replace("\\|", "").count("|") for line in rows}
    assert widths == {10, 3}


def test_a_fence_in_the_recipe_does_not_end_the_fence(tmp_path):
    (tmp_path / "recipe.yaml").write_text("a: |\n  ```\n  ````\n# not a heading\n")
    text = card(tmp_path)
    assert "`````yaml\na: |\n  ```\n  ````\n# not a heading\n`````" in text
