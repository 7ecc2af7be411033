"""The page in a browser without a network: Debian's Chromium, headless, opening a file."""

import csv
import io
import json
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from davylamp.engine.attack_run import AttackRun
from davylamp.engine.store.plan_records import write_plan
from davylamp.report.page.build import build_differences, build_report
from davylamp.report.page.served import ServedReport
from davylamp.tools.speed.synthetic_results import write_results

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium and its driver (Debian: chromium, chromium-driver)"
)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory() as profile, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver
        driver.quit()


@pytest.fixture(scope="module")
def demo(tmp_path_factory, with_few_draws) -> Path:
    """A real evaluation of the embedded models on embedded images, and its report."""
    from davylamp.engine import evaluate, make_plan
    from davylamp.engine.plan.config_file import config_from
    from davylamp.engine.store.store import ResultsStore
    from davylamp.report.page.build import build_report, write_file

    path = tmp_path_factory.mktemp("demo")
    settings = {
        "models": ["demo:digits-cnn", "demo:digits-cnn-robust"],
        "data": "demo:digits",
        "attacks": [{"attack": "fgsm", "epsilon": "1/10"}],
        "limit": 3,
        "measures": ["effect", "cost", "distance"],
    }
    evaluate(make_plan(config_from(settings)), ResultsStore(path / "results"))
    with with_few_draws():
        write_file(build_report(path / "results", bootstrap=100), path / "report.html")
    return path


@pytest.fixture
def opened(browser, demo, light):
    browser.get((demo / "report.html").as_uri())
    return browser


@pytest.fixture
def synthetic(browser, text, light, tmp_path):
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    browser.get((tmp_path / "report.html").as_uri())
    return browser


@pytest.fixture
def light(browser):
    look(browser, "light", 1280)


def look(browser, theme, width):
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def column(browser, table, heading):
    """What is shown below a heading: values where there are any, else texts."""
    return browser.execute_script(
        """const table = document.querySelector(`#${arguments[0]} table`);
        const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
        const place = heads.indexOf(arguments[1]);
        return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => {
          const cell = row.cells[place];
          return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
        });""",
        table,
        heading,
    )


def press_heading(browser, table, heading):
    browser.execute_script(
        """const heads = [...document.querySelectorAll(`#${arguments[0]} thead button`)];
        heads.find((head) => head.textContent.trim() === arguments[1]).click();""",
        table,
        heading,
    )


def test_no_error_and_no_request_leaves_the_file(opened, demo):
    opened.get_log("performance")  # of the browser's own first page
    opened.get((demo / "report.html").as_uri())
    errors = [entry for entry in opened.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert errors == []
    events = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert any(url.startswith("file:") for url in asked)
    assert len(opened.find_elements("css selector", "main > section")) == 12  # without transfer


def test_the_numbers_are_those_of_the_command(opened, demo, monkeypatch, capsys):
    import sys

    from davylamp import cli

    words = ["davylamp", "table", str(demo / "results"), "--by", "pairs", "--bootstrap", "100", "--json"]
    symbols = ["MR", "RA", "AMD", "AED", "QNC_F", "QNC_B", "ACAC"]
    monkeypatch.setattr(sys, "argv", [*words, *(word for symbol in symbols for word in ("--metric", symbol))])
    with pytest.raises(SystemExit):
        cli.main()
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert column(opened, "metrics-pairs", "model") == [row["model"] for row in rows]
    for symbol in symbols:
        known = [row["metrics"][symbol]["value"] for row in rows]
        shown = [None if value == "-" else value for value in column(opened, "metrics-pairs", symbol)]
        assert shown == known, symbol


def test_tables_sort_by_number_and_by_text_with_what_is_undefined_last(synthetic):
    press_heading(synthetic, "metrics-pairs", "MR")
    down = column(synthetic, "metrics-pairs", "MR")
    assert down == sorted(down, reverse=True)
    press_heading(synthetic, "metrics-pairs", "MR")
    assert column(synthetic, "metrics-pairs", "MR") == down[::-1]
    press_heading(synthetic, "metrics-pairs", "implementation")
    names = column(synthetic, "metrics-pairs", "implementation")
    assert names == sorted(names)
    press_heading(synthetic, "curves-epsilon", "half distortion")
    values = column(synthetic, "curves-epsilon", "half distortion")
    undefined = [value == "-" for value in values]
    assert any(undefined)
    assert undefined == sorted(undefined)


def test_tables_sort_by_keyboard(synthetic):
    from selenium.webdriver.common.keys import Keys

    button = synthetic.find_element("css selector", "#leaderboard-table thead button")
    synthetic.execute_script("arguments[0].focus()", button)
    button.send_keys(Keys.ENTER)
    assert synthetic.execute_script("return document.activeElement.closest('th').getAttribute('aria-sort')")
    button.send_keys(Keys.TAB)
    assert synthetic.execute_script("return document.activeElement.tagName") == "BUTTON"


def test_a_filter_leaves_the_rows_that_have_every_word(synthetic):
    field = synthetic.find_element("css selector", "#metrics-pairs input")
    synthetic.execute_script("arguments[0].closest('details').open = true", field)
    field.send_keys("MODEL-B deepfool")
    names = column(synthetic, "metrics-pairs", "implementation")
    assert sorted(names) == ["foolbox:deepfool", "torchattacks:deepfool"]
    assert column(synthetic, "metrics-pairs", "model") == ["model-b", "model-b"]


def copied(browser, table, kind):
    browser.execute_script(
        """const box = document.getElementById(arguments[0]);
        [...box.querySelectorAll('.tools button')].find((button) => button.textContent === arguments[1]).click();""",
        table,
        kind,
    )
    return browser.execute_script("return document.getElementById(arguments[0]).dataset.copied", table)


def test_tables_copy_as_csv_markdown_and_latex(synthetic, folder):
    from davylamp.engine.tables.table import build_table

    known = build_table(folder, by="models", bootstrap=200)
    rows = list(csv.DictReader(io.StringIO(copied(synthetic, "metrics-models", "CSV"))))
    assert [row["model"] for row in rows] == [row.labels["model"] for row in known.rows]
    for row, known_row in zip(rows, known.rows, strict=True):
        estimate = known_row.metrics["RA"]
        shown = [float(row[name]) for name in ("RA", "RA low", "RA high")]
        assert shown == list(estimate[:3])
    lines = copied(synthetic, "metrics-models", "Markdown").splitlines()
    assert len({line.count("|") for line in lines}) == 1
    synthetic.execute_script("document.querySelector('#metrics-attacks .menu button').click()")  # all columns
    latex = copied(synthetic, "metrics-attacks", "LaTeX")
    assert "ACAMC\\_A" in latex
    assert latex.count("\\\\\n") == len(build_table(folder, by="attacks", bootstrap=10).rows) + 1


def test_the_leaderboard_shows_any_metric(synthetic, folder):
    from davylamp.engine.tables.table import build_table

    known = build_table(folder, by="pairs", metrics=["RA", "AMD"], bootstrap=10)
    for symbol in ("AMD", "RA"):
        synthetic.execute_script(
            """const select = document.querySelector('#leaderboard-heat-choice');
            select.value = arguments[0];
            select.dispatchEvent(new Event('change'));""",
            symbol,
        )
        shown = column(synthetic, "leaderboard-table", "model-b")
        values = [row.metrics[symbol].value for row in known.rows if row.labels["model"] == "model-b"]
        np.testing.assert_allclose(sorted(shown), sorted(values), rtol=1e-5)


def test_the_gallery_shows_what_one_attack_fools_and_another_does_not(synthetic, folder):
    from davylamp.engine import load

    records = load(folder)
    records = records[records["index"] < 6]
    table = records.pivot_table(index=["model", "image"], columns="implementation", values="success", aggfunc="max")
    a, b = "art:pgd", "foolbox:deepfool"
    only = (table[a].astype(bool) & ~table[b].astype(bool)).sum()
    shown = synthetic.execute_script(
        """const [by, not] = document.querySelectorAll('.gallery select[data-pair]');
        by.value = [...by.options].find((option) => option.value.startsWith(arguments[0])).value;
        not.value = [...not.options].find((option) => option.value.startsWith(arguments[1])).value;
        by.dispatchEvent(new Event('change'));
        return [...document.querySelectorAll('.gallery .card')].filter((card) => !card.hidden).length;""",
        a,
        b,
    )
    assert shown == 2 * only


def test_light_dark_and_the_toggle(browser, synthetic):
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(paper)
    look(browser, "dark", 1280)
    dark = browser.execute_script(paper)
    assert light != dark
    toggle = browser.find_element("css selector", "#page-controls button")
    browser.execute_script("arguments[0].click()", toggle)
    assert toggle.text == "Theme: light"
    assert browser.execute_script(paper) == light
    for _ in range(2):
        browser.execute_script("arguments[0].click()", toggle)


CLIPPED = """
const outside = [];
const scrolls = (node) => node.closest('.scroll, .canvas, pre, .cards-of-pictures, .skip, option, [hidden]');
for (const node of document.querySelectorAll('body *')) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || scrolls(node) || !node.checkVisibility()) continue;
  const box = node.getBoundingClientRect();
  const where = node.outerHTML.slice(0, 90);
  if (box.width && (box.left < -1 || box.right > innerWidth + 1)) outside.push(['outside', where]);
  const hides = ['hidden', 'clip'].includes(getComputedStyle(node).overflowX);
  if (hides && node.scrollWidth > node.clientWidth + 1) outside.push(['cut', where]);
}
for (const drawing of document.querySelectorAll('.plot svg')) {
  const frame = drawing.getBoundingClientRect();
  if (!frame.width) continue;
  for (const label of drawing.querySelectorAll('text')) {
    const box = label.getBoundingClientRect();
    if (box.left < frame.left - 2 || box.right > frame.right + 2) outside.push(['cut', label.textContent]);
  }
}
return [document.documentElement.scrollWidth - document.documentElement.clientWidth, outside.slice(0, 5)];
"""


def test_no_width_cuts_a_text_or_scrolls_the_page_sideways(browser, opened):
    browser.execute_script("document.querySelectorAll('details:not(.menu)').forEach((fold) => { fold.open = true; })")
    for width in (1400, 768, 390):
        for theme in ("light", "dark"):
            look(browser, theme, width)
            assert browser.execute_script(CLIPPED) == [0, []], (width, theme)


def test_a_window_that_grows_gets_its_contents_back(browser, synthetic):
    listed = "return document.querySelector('nav ol').checkVisibility()"
    look(browser, "light", 390)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert not browser.execute_script(listed)
    look(browser, "light", 1400)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert browser.execute_script(listed)


BROKEN = """
const broken = [];
const names = [...document.querySelectorAll('.bars .name, tbody th')].filter((node) => node.checkVisibility());
for (const node of names) {
  const name = node.textContent.trim();
  if (name.includes(' ') || name.length > 16) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
  if (lines.size > 1) broken.push(name);
}
for (const head of document.querySelectorAll('thead th')) {
  if (!head.checkVisibility()) continue;
  const range = document.createRange();
  range.selectNodeContents(head);
  const box = head.getBoundingClientRect();
  if (range.getBoundingClientRect().right > box.right + 1) broken.push(`cut: ${head.textContent}`);
}
return broken;
"""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory, with_few_draws) -> str:
    """A page of more models than the first screen draws, under attacks with long names."""
    path = tmp_path_factory.mktemp("crowded") / "results"
    attacks = ("art:pgd", "torchattacks:pgd", "torchattacks:deepfool")
    write_results(path, models=[f"model-{n:02}" for n in range(16)], attacks=attacks, images=6, classes=5, side=32)
    with with_few_draws():
        return build_report(path, bootstrap=50)


@pytest.mark.parametrize("width", [1400, 768, 390])
def test_many_models_fit_and_no_name_is_broken(browser, crowded, light, tmp_path, width):
    (tmp_path / "report.html").write_text(crowded, encoding="utf-8")
    browser.get((tmp_path / "report.html").as_uri())
    look(browser, "light", width)
    assert browser.execute_script(CLIPPED) == [0, []]
    assert browser.execute_script(BROKEN) == []
    if width == 1400:  # all five questions begin on the first screen
        ends = "return [...document.querySelectorAll('#verdict dt')].map((dt) => dt.getBoundingClientRect().bottom)"
        ends = browser.execute_script(ends)
        assert len(ends) == 5
        assert max(ends) < 900


def test_a_table_says_that_it_goes_on_below(browser, crowded, light, tmp_path):
    (tmp_path / "report.html").write_text(crowded, encoding="utf-8")
    browser.get((tmp_path / "report.html").as_uri())
    more = "return document.querySelector('#leaderboard-table .frame').dataset.more"
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert "down" in browser.execute_script(more)


def test_wide_tables_keep_their_first_column_and_say_that_they_scroll(browser, synthetic):
    look(browser, "light", 390)
    seen = """const box = document.getElementById('metrics-models');
        const frame = box.querySelector('.frame');
        const row = box.querySelector('tbody th').getBoundingClientRect();
        return [frame.dataset.more, Math.round(row.left - frame.getBoundingClientRect().left)];"""
    assert browser.execute_script(seen) == ["right", 1]
    browser.execute_script("document.querySelector('#metrics-models .scroll').scrollLeft = 150")
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert browser.execute_script(seen) == ["left right", 1]


def test_columns_are_chosen_and_what_is_shown_is_copied(browser, synthetic):
    def heads():
        return browser.execute_script(
            """return [...document.querySelectorAll('#metrics-attacks thead th')]
            .filter((head) => head.checkVisibility()).map((head) => head.textContent.trim());"""
        )

    browser.execute_script("document.querySelectorAll('details:not(.menu)').forEach((fold) => { fold.open = true; })")
    before = heads()
    assert "MR" in before
    assert "ACAMC_A" not in before
    press = """[...document.querySelectorAll('#metrics-attacks .menu label')].find(
        (label) => label.textContent === arguments[0]).querySelector('input').click();"""
    browser.execute_script(press, "ACAMC_A")
    browser.execute_script(press, "MR")
    assert set(heads()) == {*before, "ACAMC_A"} - {"MR"}
    head = copied(browser, "metrics-attacks", "CSV").splitlines()[0].split(",")
    assert [name for name in head if not name.endswith((" low", " high"))] == heads()


def test_three_models_under_five_attacks_are_half_of_what_they_were(browser, synthetic):
    """15 000 pixels at 1280 before the page said things once."""
    look(browser, "light", 1280)
    assert browser.execute_script("return document.documentElement.scrollHeight") <= 7500


VISIBLE = """
const box = document.getElementById(arguments[0]);
const frame = box.querySelector('.scroll').getBoundingClientRect();
return [...box.querySelectorAll('thead th')].filter((head) => {
  const place = head.getBoundingClientRect();
  return place.width && place.left >= frame.left - 1 && place.right <= frame.right + 1;
}).map((head) => head.textContent.trim());
"""


def test_a_phone_shows_the_verdicts(browser, synthetic):
    look(browser, "light", 390)
    browser.refresh()
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    shown = browser.execute_script(VISIBLE, "verdict-table")
    assert shown == ["model", "clean accuracy", "worst-case robust accuracy"]
    assert browser.execute_script(VISIBLE, "agreement-pairs")[:3] == ["pair", "threat model", "model-a"]
    look(browser, "light", 1280)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert "invalid" in browser.execute_script(VISIBLE, "verdict-table")


OVERLAPS = """
const groups = [...document.querySelectorAll('.bars li'), ...document.querySelectorAll('.plot svg')];
const found = [];
for (const group of groups) {
  const texts = [...group.querySelectorAll('.name, .shown, .tick, text')].filter((node) => node.textContent.trim());
  const boxes = texts.map((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [node.textContent, range.getBoundingClientRect()];
  });
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (p.width && q.width && wide > 1 && high > 3) found.push([a, b]);
  }));
}
for (const cell of document.querySelectorAll('.table td, .table th')) {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const [text, box] = [range.getBoundingClientRect(), cell.getBoundingClientRect()];
  if (box.width && text.right > box.right + 1) found.push(['over the next cell', cell.textContent.trim()]);
}
return found.slice(0, 6);
"""


@pytest.mark.parametrize("width", [1400, 1280, 768, 390])
def test_no_label_overlaps_another(browser, synthetic, width):
    browser.execute_script("document.querySelectorAll('details:not(.menu)').forEach((fold) => { fold.open = true; })")
    look(browser, "light", width)
    assert browser.execute_script(OVERLAPS) == []


BY_COLOUR = ("color-contrast",)  # all that a theme changes
BY_WIDTH = (*BY_COLOUR, "scrollable-region-focusable")


@pytest.mark.parametrize(
    ("theme", "width", "rules"), [("light", 1400, ()), ("dark", 1400, BY_COLOUR), ("light", 390, BY_WIDTH)]
)
def test_axe_finds_nothing(browser, synthetic, axe, theme, width, rules):
    look(browser, theme, width)
    assert axe(browser, *rules) == []


@pytest.fixture(scope="module")
def other_pages(tmp_path_factory, with_few_draws) -> dict[str, str]:
    """The pages that are not a report of one finished folder: of a run under way, and of what has changed."""
    path = tmp_path_factory.mktemp("pages")
    attacks = ("art:pgd", "foolbox:pgd")
    before, after = (
        write_results(path / name, models=("m", "n"), attacks=attacks, images=8, classes=4, seed=seed, side=32)
        for seed, name in enumerate(("before", "after"))
    )
    _, record = next(iter(before.read_all("cells")))
    write_plan(before, [AttackRun.from_spec({**record.meta["spec"], "seed": 5})])
    with with_few_draws():
        body = ServedReport(before.folder).answer("GET", "/").body
        return {"served": body.decode(), "changes": build_differences(before.folder, after.folder)}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", ["served", "changes"])
def test_axe_finds_nothing_on_the_other_pages(browser, other_pages, light, tmp_path, axe, page, theme):
    (tmp_path / "page.html").write_text(other_pages[page], encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    look(browser, theme, 1400)
    assert axe(browser, *(BY_COLOUR if theme == "dark" else ())) == []
    browser.get((tmp_path / "page.html").as_uri())  # with its menus closed
    look(browser, theme, 390)
    assert browser.execute_script(CLIPPED) == [0, []]


def test_it_can_be_read_without_javascript(browser, text, tmp_path):
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((tmp_path / "report.html").as_uri())
        shown = browser.find_element("css selector", "main").text
        assert "Images that no attack fools" in shown
        assert "foolbox:pgd linf 4/255" in shown
        assert not browser.find_element("css selector", ".choices").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_hostile_name_runs_nothing(browser, evil_text, tmp_path):
    (tmp_path / "report.html").write_text(evil_text, encoding="utf-8")
    browser.execute_cdp_cmd("Page.enable", {})
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.execute_script("return document.querySelectorAll('img, main b').length") == 0
    assert browser.execute_script("return document.querySelectorAll('.card').length") > 0
