"""Where an attack was run at one budget, nothing is said about others: not in numbers, not in drawings."""

import math
import re
from itertools import pairwise

import matplotlib as mpl
import pytest
import torch

from davylamp.engine.tables.budget_curves import build_curves
from davylamp.report.parts.curve_figure import write_curve_figure
from davylamp.report.sections.curves import write_curves
from davylamp.report.text.console import frame_csv, make_console
from davylamp.report.text.tables import print_curves

from ...page_blocks import flatten

N = 40
LABELS = torch.zeros(N, dtype=torch.int64)
RIGHT = torch.tensor([[5.0, 0]]).repeat(N, 1)
HALF = torch.where((torch.arange(N) < N // 2)[:, None], RIGHT.flip(1), RIGHT)


@pytest.fixture
def points(writer):
    """PGD at two radii, each image at the same cost."""
    subject = writer.clean("a", RIGHT, LABELS)
    for epsilon, logits in ((0.1, HALF), (0.2, RIGHT.flip(1))):
        writer.cell(subject, "foolbox:pgd", RIGHT, logits, LABELS, epsilon=epsilon)
    return writer, subject


def joins(svg):
    """Straight pieces of a path from one place to another that is neither above nor beside it."""
    paths = [path for path in re.findall(r' d="([^"]+)"', svg) if not set(path) & set("QC")]  # no markers, no frames
    places = [[tuple(map(float, point)) for point in re.findall(r"(-?[\d.]+)[ ,](-?[\d.]+)", path)] for path in paths]
    pairs = [pair for point in places for pair in pairwise(point)]
    return [(a, b) for a, b in pairs if a[0] != b[0] and a[1] != b[1]]


@pytest.mark.parametrize("against", ["epsilon", "queries"])
def test_no_line_joins_what_was_not_measured(points, tmp_path, against):
    curves = build_curves(points[0].store.folder, against=against, bootstrap=50)
    with mpl.rc_context({"svg.fonttype": "none"}):
        write_curve_figure(curves, tmp_path / "curves.svg")
    assert joins(' d="M 0 0 L 3 2"')
    assert not joins((tmp_path / "curves.svg").read_text())
    section = write_curves(curves, None)
    (figure,) = (block for block in flatten(section.blocks) if block.kind == "figure")
    assert not joins(str(figure.svg))


def test_a_table_has_values_only_where_an_attack_was_run(points):
    writer, subject = points
    sizes = torch.linspace(0.01, 0.3, N, dtype=torch.double)
    spec = {"sizes": sizes, "norm": "linf", "epsilon": None}
    writer.cell(subject, "foolbox:fmn", RIGHT, RIGHT.flip(1), LABELS, **spec)
    curves = build_curves(writer.store.folder, budgets=[0.05, 0.15], bootstrap=0)
    console = make_console()
    with console.capture() as captured:
        print_curves(curves, console)
    _, head, *lines = captured.get().splitlines()
    places = {budget: head.split().index(budget) for budget in ("0", "0.05", "0.1", "0.15", "0.2")}
    cells_of = {line.split()[1]: line.split() for line in lines}
    pgd, fmn = ({b: cells_of[name][place] for b, place in places.items()} for name in ("foolbox:pgd", "foolbox:fmn"))
    assert pgd == {"0": "1", "0.05": "-", "0.1": "0.5", "0.15": "-", "0.2": "0"}
    truth = {float(b): float((sizes > float(b)).double().mean()) for b in fmn}
    assert {float(b): float(share) for b, share in fmn.items()} == pytest.approx(truth, abs=1e-3)
    budgets = [line.split(",") for line in frame_csv(curves.to_frame()).splitlines()]
    place = budgets[0].index("budget")
    assert [float(spec[place]) for spec in budgets[1:] if "foolbox:pgd" in spec] == [0, 0.1, 0.2]


def test_an_attack_that_spends_the_same_on_every_image_is_a_point_against_queries(points):
    writer, subject = points
    forwards = torch.arange(N) + 1
    writer.cell(subject, "art:pgd", RIGHT, HALF, LABELS, forwards=forwards)
    curve_of = {curve.labels["implementation"]: curve for curve in build_curves(
        writer.store.folder, against="queries", bootstrap=0).curves if curve.labels["epsilon"] == 0.1}  # fmt: skip
    assert curve_of["foolbox:pgd"].kind == "points"
    assert curve_of["foolbox:pgd"].budgets.tolist() == [0, 5]
    assert curve_of["foolbox:pgd"].accuracy.tolist() == [1, 0.5]
    assert math.isnan(curve_of["foolbox:pgd"].empirical_half)
    assert curve_of["art:pgd"].kind == "distances"


def test_what_ends_on_the_sphere_has_fallen_at_the_radius(writer):
    """A search that was given a radius: its last example is float32 and ends a rounding beyond it."""
    subject = writer.clean("a", RIGHT, LABELS)
    past = torch.full((N,), float(torch.tensor(0.1, dtype=torch.float32)), dtype=torch.double)
    assert past[0] > 0.1
    writer.cell(subject, "best(foolbox:fgsm)", RIGHT, HALF, LABELS, sizes=past, norm="linf", epsilon=0.1)
    (curve,) = build_curves(writer.store.folder, budgets=[0.05, 0.1], bootstrap=0).curves
    assert dict(zip(curve.budgets, curve.accuracy, strict=True))[0.1] == 0.5
