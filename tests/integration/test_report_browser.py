"""The report in a real browser: no error, no request, nothing wider than the screen, and what matters is to be seen."""

from __future__ import annotations

import pytest

from tests.integration.chromium import Chromium, find_chromium
from tests.unit.report.runs import make_hostile_run, make_run
from wootz.report import render, render_many

CHROMIUM = find_chromium()
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
DESKTOP, PHONE = 1280, 390

# Whether an element that holds this text is laid out, has a size, and is not transparent.
VISIBLE = """(text) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, box = node.parentElement.getBoundingClientRect();
    const style = getComputedStyle(node.parentElement);
    if (node.data.includes(text) && node.parentElement.checkVisibility() && box.width > 0 && style.opacity > 0
        && box.left >= 0 && box.right <= innerWidth + 1) return true;
  }
  return false;
}"""


@pytest.fixture(scope="module")
def browser():
    assert CHROMIUM is not None
    with Chromium(CHROMIUM) as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    unclear = {"verdict": "unclear", "difference": 0.03, "low": -0.01, "high": 0.07}
    (root / "bare").mkdir()
    pages = {
        "passed": render(make_run(root / "passed", steps=60, stages=True)),
        "failed": render(make_run(root / "failed", steps=60, passed=False, city=unclear)),
        "hostile": render(make_hostile_run(root / "hostile")),
        "bare": render(root / "bare"),
    }
    runs = [root / name for name in pages]
    return pages | {"compared": render_many(runs, root / "compared.html")}


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["passed", "failed", "hostile", "bare", "compared"])
def test_it_renders_without_error_and_fits(browser, pages, name, width, dark):
    browser.open(pages[name], width=width, dark=dark)
    assert browser.log == []
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.title").startswith(("passed", "failed", "bare", "<script>name", "4 runs"))


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("passed", ("Passed", "The new model is better on city", "better", "+0.79", "0.73 to 0.84", "Measures", "SFT",
                    "Before training", "fixed", "Loss", "length_preference", "spike")),
        ("failed", ("Failed", "is not clearly better on city", "unclear")),
        ("hostile", ("Failed", "⟨U+202E⟩gnp.exe")),
        ("bare", ("Nothing yet",)),
        ("compared", ("4 runs", "1 of 4 passed: passed.", "What differs", "Loss")),
    ],
)  # fmt: skip
def test_what_matters_is_to_be_seen(browser, pages, name, said, width):
    browser.open(pages[name], width=width)
    for text in said:
        assert browser.evaluate(f"({VISIBLE})({text!r})"), text


def test_the_scheme_changes_paper_ink_and_figures(browser, pages):
    seen = {}
    for dark in (False, True):
        browser.open(pages["passed"], width=DESKTOP, dark=dark)
        seen[dark] = [
            browser.evaluate("getComputedStyle(document.body).backgroundColor"),
            browser.evaluate("getComputedStyle(document.body).color"),
            browser.evaluate("getComputedStyle(document.querySelector('polyline.s0')).stroke"),
        ]
    assert all(light != dark for light, dark in zip(seen[False], seen[True], strict=True))
    assert seen[False][2] == "rgb(0, 114, 178)"


def test_items_filter_by_change_and_by_word(browser, pages):
    browser.open(pages["passed"], width=DESKTOP)
    first = "document.querySelector('[data-filter]')"
    count = f"[...{first}.querySelectorAll('.item')].filter((one) => one.checkVisibility()).length"
    every = browser.evaluate(count)
    browser.evaluate(f"{first}.querySelector('[data-show=broken]').click()")
    broken = browser.evaluate(count)
    assert 0 < broken < every
    assert browser.evaluate(f"{first}.querySelector('output').textContent") == f"{broken} of {every} items"
    browser.evaluate(f"{first}.querySelector('[data-show=all]').click()")
    browser.evaluate(f"(() => {{ const box = {first}.querySelector('input'); box.value = 'quito'; "
                     "box.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert 0 < browser.evaluate(count) < every


def test_a_click_on_a_heading_sorts_the_measures(browser, pages):
    browser.open(pages["passed"], width=DESKTOP)
    order = "[...document.querySelectorAll('.measures tbody tr')].map((row) => +row.cells[4].dataset.value)"
    head = "document.querySelectorAll('.measures thead th')[4]"
    browser.evaluate(f"{head}.click()")
    rising = browser.evaluate(order)
    assert rising == sorted(rising)
    browser.evaluate(f"{head}.click()")
    assert browser.evaluate(order) == sorted(rising, reverse=True)
    assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"


def test_a_curve_tells_the_value_under_the_pointer(browser, pages):
    browser.open(pages["passed"], width=DESKTOP)
    told = browser.evaluate("""(() => {
      const plot = document.querySelector('svg[data-role=curves]'), box = plot.getBoundingClientRect();
      const [low, high, start, stop] = plot.dataset.x.split(' ').map(Number);
      const scale = box.width / plot.viewBox.baseVal.width;
      const x = box.left + scale * (start + (60 - low) / (high - low) * (stop - start));
      plot.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: box.top + 60, bubbles: true }));
      return [...document.querySelectorAll('.tip div')].map((one) => one.textContent);
    })()""")
    assert told[0] == "step 60"
    name, value = told[1].rsplit(" ", 1)
    assert name == "training"
    assert 0.4 < float(value) < 0.7  # the run's loss ends at about 0.55
    assert browser.log == []


def test_without_scripts_everything_is_still_there(browser, pages):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["passed"], width=PHONE)
        assert browser.evaluate("document.documentElement.classList.contains('js')") is False
        assert browser.evaluate("document.querySelectorAll('.item').length") > 50
        assert browser.evaluate("document.querySelector('.tools').checkVisibility()") is False
        assert browser.evaluate("document.querySelector('details.item summary').checkVisibility()") is True
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
