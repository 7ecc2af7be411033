"""The paper's rows and columns: every published number once, in its place; ours beside; as text and as LaTeX."""

import json

import pytest

import davylamp
from davylamp.benchmarks.reproductions import list_tables
from davylamp.benchmarks.shared.paper_grid import GridCell, build_grid
from davylamp.benchmarks.shared.paper_numbers import load_rows
from davylamp.errors import InvalidInput

TABLES = {name: table for name, table in list_tables().items() if table.published}
FIGURES = {name for name in TABLES if "-figure" in name} | {"canary-defences"}


def numbers(rows):
    values = [value for row in rows for value in row.values() if isinstance(value, (int, float))]
    return sorted(map(float, values))


@pytest.mark.parametrize("name", sorted(set(TABLES) - FIGURES))
def test_every_published_number_stands_in_the_grid_once(name):
    parts = TABLES[name].grid(TABLES[name].published_result())
    cells = [cell for part in parts for _, row in part.rows for cell in row]
    assert sorted(cell.published for cell in cells if cell.published is not None) == numbers(
        load_rows(TABLES[name].published)
    )
    assert all(cell.ours is None for cell in cells)
    for part in parts:
        assert len({names for names, _ in part.rows}) == len(part.rows)
        assert all(len(row) == len(part.columns) for _, row in part.rows)


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_what_the_paper_prints_no_numbers_of_has_no_grid(name):
    with pytest.raises(InvalidInput):
        TABLES[name].grid(TABLES[name].published_result())


@pytest.mark.parametrize(
    ("name", "part", "columns", "row"),
    [
        ("aisafety-table2", "SVHN", "CLEAN PGD-l1 PGD-l2 PGD-linf C&W", "TRADES 0.895 0.06 0.006 0.518 0.441"),
        ("aisafety-table5", "CIFAR-10", "VANILLA PAT NAT TRADES", "EBD2 10.2 74.9 64.8 121.8"),
        ("aisafety-table7", "NBCov", "FGSM PGD-l1 PGD-l2 PGD-linf NATTACK SPSA",
         "NAT 0.349 0.156 0.364 0.475 0.413 0.406"),
        ("fooling-table1", "", "CaffeNet GoogLeNet VGG-19 ResNet-152", "PGD 0.79 0.83 0.68 0.71"),
        ("robic-table2", "", "parameters CA D_half_white D_half_black", "AlexNet 62.38 0.568 0.19 2.17"),
        ("canary-table8", "white", "MR AIAC ARTC ACAMC_A ACAMC_T APCR AED AMD FDL FDH ADMS ALMS",
         "AlexNet 0.965 0.503 0.659 0.925 0.95 0.651 0.00815 0.1221 0.01805 0.00432 0.062 0.0204"),
    ],
)  # fmt: skip
def test_the_shape_is_that_of_the_paper(name, part, columns, row):
    """Rows copied from the papers."""
    (whole,) = (each for each in TABLES[name].grid(TABLES[name].published_result()) if each.title == part)
    assert " ".join(whole.columns) == columns
    label, *values = row.split()
    (cells,) = (cells for names, cells in whole.rows if names[-1] == label)
    assert [cell.published for cell in cells] == [float(value) for value in values]


def line(ours, labels, column="FR_AUC", model="net"):
    return {"ours": ours, "labels": labels, "column": column, "model": model}


def test_ours_stand_in_their_place_and_models_without_a_row_in_one_of_their_own():
    lines = [
        line(0.5, {"attack": "PGD", "model": "VGG-19"}),
        line(0.25, {"attack": "PGD", "model": "mine"}, model="mine"),
        line(0.125, {}),
    ]
    (part,) = build_grid("fooling_table1", lines)
    assert part.columns == ("CaffeNet", "GoogLeNet", "VGG-19", "ResNet-152", "mine")
    rows = dict(part.rows)
    assert rows[("PGD",)][2] == GridCell(0.5, 0.68)
    assert rows[("PGD",)][4] == GridCell(0.25, None)
    assert rows[("CW",)][2] == GridCell(None, 0.02)
    assert part.texts("both")[2] == ["PGD", "- / 0.79", "- / 0.83", "0.5 / 0.68", "- / 0.71", "0.25 / -"]
    assert part.texts("ours")[2] == ["PGD", "", "", "0.5", "", "0.25"]
    with pytest.raises(InvalidInput):
        build_grid("fooling_table1", [line(0.5, {})])


def test_two_models_of_one_row_are_told_apart():
    lines = [line(0.1 * n, {"attack": "PGD", "model": "VGG-19"}, model=f"net{n}") for n in (1, 2)]
    (part,) = build_grid("fooling_table1", lines)
    assert part.columns[4:] == ("net1 (VGG-19)", "net2 (VGG-19)")
    assert dict(part.rows)[("PGD",)][4:] == (GridCell(0.1, None), GridCell(0.2, None))


def test_one_row_may_have_a_model_for_each_data_set():
    lines = [
        line(0.1 * n, {"dataset": dataset, "model": "PAT"}, "CAV", f"net{n}")
        for n, dataset in ((1, "CIFAR-10"), (2, "SVHN"))
    ]
    first, second = build_grid("aisafety_table4", lines)
    assert dict(first.rows)["PAT",][0] == GridCell(0.1, -0.12)
    assert dict(second.rows)["PAT",][0] == GridCell(0.2, -0.02)
    assert len(first.rows) == len(second.rows) == 4


def test_labels_of_the_published_row_are_completed():
    (part,) = build_grid("canary_table4", [line(0.5, {"attack": "MI-FGSM", "epsilon": "1/255"}, "MR", None)])
    (cells,) = (cells for names, cells in part.rows if names[1:] == ("MI-FGSM", "1/255"))
    assert cells[part.columns.index("MR")] == GridCell(0.5, 0.956)


def test_the_command_prints_it_three_ways(run):
    code, out, _ = run("reproduce", "fooling-table1", "--published")
    assert code == 0
    assert "ResNet-152" in out
    assert ["PGD", "0.79", "0.83", "0.68", "0.71"] in [row.split() for row in out.splitlines()]
    code, out, _ = run("reproduce", "hikdeepsec-table1", "--published", "--latex")
    assert code == 0
    assert "PGD 3/255" in out
    assert "\\toprule" in out
    code, out, _ = run("reproduce", "fooling-table1", "--published", "--json")
    rows = json.loads(out)["rows"]
    assert rows[2] == {
        **{"part": "", "attack": "PGD", "CaffeNet": 0.79},
        **{"GoogLeNet": 0.83, "VGG-19": 0.68, "ResNet-152": 0.71},
    }
    code, out, _ = run("reproduce", "canary-table9", "--quick", "--grid")
    assert code == 0
    assert "1 / 1" in out
    for words in (
        ("fooling-table1", "--published", "--limit", 3),
        ("fooling-table1", "--published", "--ours"),
        ("fooling-table1", "--grid", "--json"),
        ("robic-figure1", "--published"),
        ("checks", "--published"),
    ):
        code, out, err = run("reproduce", *words)
        assert (code, out) == (1, "")
        assert err.count("\n") == 1


def test_python_has_the_papers_table_alone():
    rows = davylamp.reproduce("robic-table2", published=True).to_frame()
    assert rows.set_index("model").loc["VGG16", "D_half_black"] == 2.44
    assert len(rows) == 16


def test_a_run_in_the_papers_shape(run):
    words = ("reproduce", "hikdeepsec-table2", "--quick", "--limit", 4, "-o", "results")
    code, out, err = run(*words, "--grid")
    assert code == 0, err
    assert out.startswith("Stand-ins: digits:standard for undefended")
    (accuracy,) = (row for row in out.splitlines() if row.startswith("ACC "))
    assert accuracy.count(" / ") == 9
    code, out, _ = run(*words, "--ours", "--latex")
    assert code == 0
    assert "ours" in out.partition("\\toprule")[0]
