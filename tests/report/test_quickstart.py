"""What `davylamp quickstart` prints and the page that it writes have the same images, pairs, verdicts and medians."""

import re
from collections import Counter

import pytest
from typer.testing import CliRunner

from davylamp import cli
from davylamp.adapters import ThreatModel
from davylamp.engine.comparison import quickstart
from davylamp.engine.comparison.quickstart import Trial

SMALL = (
    Trial("pgd", ThreatModel("linf", 4 / 255), 3, "PGD", {"steps": 1}),
    Trial("cw", ThreatModel("l2"), 10, "C&W", {"steps": 3, "binary_search_steps": 1, "initial_const": 1.0}),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory, read_page, with_few_draws):
    """The terminal's lines, and the page, of shorter trials than the quickstart has."""
    folder = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patch, with_few_draws():
        patch.setattr(quickstart, "TRIALS", SMALL)
        done = CliRunner().invoke(cli.app, ["quickstart", "-v", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines(), read_page((folder / "report.html").read_text(encoding="utf-8"))


def text_of(page):
    return " ".join("".join(page.texts).split())


def test_the_images_that_are_announced_are_those_of_tables_and_page(both):
    lines, page = both
    assert lines[0].startswith("demo:efficientnet-lite0 on demo:imagenet: 3 and 10 images")
    assert "3 and 10 images of demo:imagenet" in text_of(page)
    rows = page.table("agreement-rows")
    assert len(rows) == 6
    for row in rows:
        name = row["implementation"].text
        line = next(line for line in lines if re.match(rf"{name} +\d", line))
        assert int(line.split()[1]) == row["n"].value <= (3 if name.endswith("pgd") else 10)


def test_the_pairs_and_their_verdicts_are_those_of_the_page(both):
    lines, page = both
    rows = page.table("agreement-pairs")
    pairs = {(row["a"].text, row["b"].text): row["demo:efficientnet-lite0"].text for row in rows}
    ours = {tuple(line.split()[:2]): re.split(r"\s{2,}", line)[2:3] for line in lines}
    assert len(pairs) == 6
    assert {pair: ours[pair] for pair in pairs} == {pair: [verdict] for pair, verdict in pairs.items()}
    counts = Counter(verdict.partition(":")[0] for verdict in pairs.values())
    assert counts["broken"] == 2
    said: Counter[str] = Counter()
    for line in re.findall(r"^3 pairs: (.*)$", "\n".join(lines), re.M):
        said.update({verdict: int(count) for count, verdict in re.findall(r"(\d+) ([^,]+)", line)})
    assert said == counts


def test_a_median_is_one_number_and_another_one_says_over_what_it_is(both):
    lines, page = both
    heading = re.split(r"\s{2,}", next(line for line in lines if line.startswith("implementation ")))
    smallest = []
    for row in page.table("agreement-rows"):
        name = row["implementation"].text
        line = re.split(r"\s{2,}", next(line for line in lines if re.match(rf"{name} +\d", line)))
        shown = line[heading.index("l2 median" if name.endswith("cw") else "linf median")]
        assert float(shown) == pytest.approx(row["median distance"].value, rel=5e-3)
        smallest += [row["median distance"].value] if name.endswith("cw") else []
    over = r"needs a change of ([\d.]+) in the median over its 10 images, 0 where wrong when clean"
    (median,) = re.findall(over, text_of(page))
    assert float(median) < min(smallest)  # of 10 images, 2 of them at 0, and not of 8
