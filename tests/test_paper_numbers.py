"""The papers' numbers: where they are from, that they are whole, and what they say about each other."""

import json
import math
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pytest

from davylamp.benchmarks import Options
from davylamp.benchmarks.canary.checks import TABLE8_WHITE
from davylamp.benchmarks.shared import paper_checks, paper_numbers
from davylamp.benchmarks.shared.paper_numbers import find_value, load_published

PUBLISHED = sorted(Path(paper_numbers.__file__).parents[1].glob("*/published/*.json"))
# (rows, numbers) of each table, counted in the papers.
SHAPES = {
    "canary_table4": (24, 144),
    "canary_table5": (24, 230),
    "canary_table6": (4, 12),
    "canary_table7": (15, 45),
    "canary_table8": (30, 360),
    "canary_table9": (15, 105),
    "aisafety_table2": (40, 40),
    "aisafety_table3": (48, 48),
    "aisafety_table4": (8, 40),
    "aisafety_table5": (8, 16),
    "aisafety_table6": (24, 96),
    "aisafety_table7": (24, 96),
    "aisafety_table8": (16, 48),
    "aisafety_table9": (16, 48),
    "fooling_table1": (28, 28),
    "robic_table2": (16, 64),
    "hikdeepsec_table1": (9, 54),
    "hikdeepsec_table2": (9, 54),
}


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.stem)
def test_every_published_file_says_where_it_is_from(file):
    document = json.loads(file.read_text(encoding="utf-8"))
    assert len(document["source"]) > 40
    assert document.get("unit") or document.get("note")
    assert document["rows"]
    labels = [
        tuple(sorted((k, str(v)) for k, v in row.items() if not isinstance(v, float))) for row in document["rows"]
    ]
    assert len(set(labels)) == len(labels) or file.stem in ("fooling_table1", "canary_table7"), "two rows are alike"


@pytest.mark.parametrize("table", SHAPES)
def test_published_tables_are_whole(table):
    rows = load_published(table)["rows"]
    numbers = [v for row in rows for v in row.values() if isinstance(v, (int, float)) and not isinstance(v, bool)]
    assert (len(rows), len(numbers)) == SHAPES[table]
    assert all(math.isfinite(number) for number in numbers)


def test_printed_numbers_are_those_of_the_papers():
    assert find_value("canary_table4", "MR", attack="SSAH") == 0.784
    assert find_value("canary_table4", "OTR", attack="VMI-FGSM", epsilon="16/255") == 0.621
    assert find_value("canary_table5", "QNC_F", attack="LSA") == 200
    assert find_value("canary_table5", "AED", attack="FGSM") == 0.03528
    assert find_value("canary_table6", "ARTC", attack="MI-FGSM") == 0.34187
    assert find_value("aisafety_table2", "AAW", dataset="SVHN", model="TRADES", attack="PGD-linf") == 0.518
    assert find_value("aisafety_table7", "TKNCov", model="TRADES", attack="PGD-l2") == 0.003
    assert find_value("robic_table2", "D_half_black", model="ResNet50 AdvTrain") == 9.88
    assert find_value("fooling_table1", "FR_AUC", attack="PGD", model="GoogLeNet") == 0.83
    assert find_value("hikdeepsec_table2", "CSR", attack="BIM", epsilon="3/255") == 0.0128


def test_what_the_papers_say_about_themselves():
    checks = {
        (check["paper"], check["statement"]): check for check in paper_checks.check_papers("", Options())["checks"]
    }
    failing = {key for key, check in checks.items() if not check["holds"]}
    by_paper = {paper: sum(key[0] == paper for key in failing) for paper, _ in checks}
    assert by_paper["CANARY 5.4.2, Table 8"] == 0
    assert by_paper["CANARY, Tables 4 and 6"] == 0
    assert by_paper["CANARY, Table 9"] == 0
    assert by_paper["AISafety, Table IV"] == 0
    assert by_paper["RoBIC, eq. 3 and 4"] == by_paper["RoBIC, eq. 3"] == 0
    assert ("HikDeep-Sec, Table 1", "CAV = CRR - CSR, FGSM 2/255") in failing
    assert by_paper["HikDeep-Sec, Table 1"] == 1
    assert by_paper["HikDeep-Sec, Table 2"] == 0
    assert ("AISafety, Tables II and IV", "CAV = CA - CA(VANILLA), CIFAR-10 TRADES") in failing
    assert by_paper["AISafety, Tables II and IV"] == 1
    means = {key[1]: check for key, check in checks.items() if key[0] == "CANARY 5.4.2, Table 8"}
    assert means["mean MR (white) of all, 15"]["computed"] == pytest.approx(1402.6 / 1500)
    assert means["mean MR (black) of all, 15"]["computed"] == pytest.approx(773.6 / 1500)
    assert all(checks[key]["note"] for key in failing)


def test_table_8_is_over_the_only_twelve_attacks_that_give_its_means():
    """Leaving an attack out, or another one in, or exchanging one misses a mean by more than rounding explains."""
    symbols = ("MR", "AIAC", "ARTC")
    rows = {(row["attack"], row.get("epsilon", "")): row for row in load_published("canary_table4")["rows"]}
    table8 = [row for row in load_published("canary_table8")["rows"] if row["attack_type"] == "white"]
    target = [fmean(row[symbol] for row in table8) for symbol in symbols]

    def fits(names):
        means = [fmean(rows[name][symbol] for name in names) for symbol in symbols]
        return all(abs(mean - wanted) <= 1e-3 for mean, wanted in zip(means, target, strict=True))

    chosen = set(TABLE8_WHITE)
    others = set(rows) - chosen
    assert fits(chosen)
    neighbours = [chosen - {name} for name in chosen] + [chosen | {name} for name in others]
    neighbours += [chosen - {out} | {new} for out in chosen for new in others]
    neighbours += [chosen - set(two) for two in combinations(chosen, 2)]
    assert not any(fits(names) for names in neighbours)


def test_swapping_two_columns_of_four_rows_mends_the_attention_of_table_8():
    rows = {(row["attack"], row.get("epsilon", "")): row for row in load_published("canary_table4")["rows"]}
    table8 = [row for row in load_published("canary_table8")["rows"] if row["attack_type"] == "white"]
    for symbol, other in (("ACAMC_A", "ACAMC_T"), ("ACAMC_T", "ACAMC_A")):
        values = [rows[name][other if name[1] == "1/255" else symbol] for name in TABLE8_WHITE]
        assert fmean(values) == pytest.approx(fmean(row[symbol] for row in table8), abs=1e-3)
