import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from tests.unit.report.runs import HOSTILE, make_hostile_run, make_run, sample, write_json, write_lines
from wootz.figures import visible
from wootz.report import render
from wootz.report.page import KEPT, SHOWN

VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """Collects elements, attributes and text, and checks that elements nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.script = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] == ["script"]:
            self.script += data
        elif self._open[-1:] != ["style"]:
            self.text += data


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "good", steps=30, stages=True)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return Page(render(make_hostile_run(tmp_path_factory.mktemp("runs") / "hostile")).read_text(encoding="utf-8"))


def test_the_page_holds_every_part(good):
    page = Page(render(good).read_text())
    for heading in ("Measures", "Training", "Samples", "Changed answers", "Slices", "Data", "Events", "Recipe"):
        assert heading in page.text
    assert "The new model is better on city" in page.text
    order = ["Passed", "Each measure is taken", "Loss", "The same prompt before", "Held-out items on which"]
    places = [page.text.index(text) for text in order]
    assert places == sorted(places)
    assert "Before training" in page.text
    assert "New model, step 30" in page.text


def test_the_audit_is_a_table_of_cues_with_intervals(good):
    page = Page(render(good).read_text())
    assert "What the pairs teach beside the job" in page.text
    cells = [text.strip() for text in page.text.split("\n") if text.strip()]
    joined = " ".join(cells)
    assert "length93.9%91.8% to 95.5%99%6%" in joined.replace(" length ", "length")
    assert "all cues together94.2%92.1% to 95.8%" in joined
    assert "length alone tells 94% of held-out pairs: the better answer is the shorter one" in page.text
    assert "--write FILE keeps 96 of 800 rows" in page.text
    assert "labels that look wrong: 4% (2% to 7%)" in page.text
    assert '{"length"' not in page.text, "no JSON among the facts"


def test_sections_that_are_linked_are_there(good):
    page = Page(render(good).read_text())
    links = {value for tag, name, value in page.attributes if (tag, name) == ("a", "href")}
    ids = {value for _, name, value in page.attributes if name == "id"}
    assert links
    assert links == {f"#{one}" for one in ids}


def test_nothing_is_loaded_from_anywhere(good):
    text = render(good).read_text()
    page = Page(text)
    loads = [value for _, name, value in page.attributes if name in ("src", "href", "action", "srcset", "data")]
    assert all(value.startswith(("#", "data:,")) for value in loads)
    outside = {url for url in re.findall(r"https?://[^\s\"'<]+", text)} - {"http://www.w3.org/2000/svg"}
    assert outside == set()
    assert "@import" not in text
    assert "url(" not in text


def test_only_the_page_s_own_script_may_run(hostile):
    assert hostile.tags.count("script") == 1
    policy = next(value for tag, name, value in hostile.attributes if name == "content" and "default-src" in value)
    digest = base64.b64encode(hashlib.sha256(hostile.script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_hostile_text_makes_no_element_and_no_handler(hostile, good):
    ours = set(Page(render(good).read_text()).tags)
    assert set(hostile.tags) - ours <= {"aside"}
    assert not [name for _, name, _ in hostile.attributes if name.startswith("on")]
    assert hostile.tags.count("h1") == 1


def test_hostile_text_is_shown_as_it_is_with_hidden_characters_visible(hostile):
    for text in HOSTILE:
        shown = visible(text)
        assert shown[:SHOWN] in hostile.text
    assert not set("\0\x1b\u202e\u2067\U000e0041") & set(hostile.text)
    assert "⟨U+202E⟩gnp.exe" in hostile.text


def test_long_texts_are_folded_and_cut_and_it_is_said(tmp_path):
    write_lines(tmp_path / "samples.jsonl", [{"id": "a", "step": 1, "prompt": "p", "completion": "y" * 100_000}])
    page = Page(render(tmp_path).read_text())
    assert page.text.count("y" * 50) * 50 <= KEPT
    assert f"{100_000 - SHOWN:,} more characters" in page.text
    assert f"{100_000 - KEPT:,} characters are left out of this page" in page.text


def test_many_samples_are_capped_and_it_is_said(tmp_path):
    records = [sample(f"s{k}", "prompt", "a b c " * 100, step=1, model="policy", sure=1.0) for k in range(500)]
    write_lines(tmp_path / "samples.jsonl", records)
    text = render(tmp_path).read_text()
    assert "16 of 500 prompts are shown" in text
    assert len(text) < 1_500_000


def test_a_huge_run_stays_readable(tmp_path):
    run = make_run(tmp_path / "run", steps=3000)
    items = json.loads((run / "evals" / "city.json").read_text())
    items["items"] = [one | {"prompt": "long prompt " * 3000} for one in items["items"]] * 2
    for k in range(4):
        write_json(run / "evals" / f"measure{k}.json", items | {"measure": f"measure{k}", "kind": "limit"})
    write_lines(run / "events.jsonl", [{"kind": "warning", "step": k, "message": "m" * 200} for k in range(5000)])
    assert render(run).stat().st_size < 3_500_000


def test_the_same_files_give_the_same_bytes(good, tmp_path):
    first, second = render(good, tmp_path / "a.html"), render(good, tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()


def test_the_page_is_written_whole_or_not_at_all(good, tmp_path):
    target = tmp_path / "report.html"
    target.mkdir()
    with pytest.raises(OSError):
        render(good, target)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_parent_s_own_sample_stands_before(tmp_path):
    records = [
        sample("s", "p", "from the parent", step=0, model="parent", sure=1.0),
        sample("s", "p", "untrained", step=0, model="policy", sure=1.0),
        sample("s", "p", "half way", step=5, model="policy", sure=1.0),
        sample("s", "p", "in the end", step=9, model="policy", sure=1.0),
    ]
    write_lines(tmp_path / "samples.jsonl", records)
    text = Page(render(tmp_path).read_text()).text
    order = [text.index(part) for part in ("from the parent", "in the end", "untrained", "half way")]
    assert order == sorted(order)
    assert "Before training" not in text


def test_the_report_needs_no_model_library_and_starts_quickly():
    code = (
        "import sys, wootz.report; "
        "print(sorted({'torch', 'transformers', 'numpy', 'scipy', 'huggingface_hub'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
