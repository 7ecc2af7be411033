"""Median distance against passes: from curves made by hand, and from a folder, by another way."""

import csv
import io
import json

import numpy as np
import pytest

from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, load, make_plan
from davylamp.engine.tables.distance_curves import build_distance_curves
from davylamp.errors import Unsupported
from davylamp.report.page.build import build_report

ATTACKS = (
    AttackChoice("adv-lib:fmn", "linf", parameters={"steps": 15}),
    AttackChoice("best(adv-lib:fmn,foolbox:pgd)", "linf", parameters={"max_queries": 60}),
    AttackChoice("foolbox:fgsm", "linf", 0.1),
)


@pytest.fixture(scope="module")
def folder(digits, images, tmp_path_factory):
    path = tmp_path_factory.mktemp("curves")
    config = Config(attacks=ATTACKS, data="digits", measures=("effect", "curve"), seeds=(0,))
    evaluate(make_plan(config, models={"cnn": digits.classifier}, data=images), ResultsStore(path))
    return path


def test_the_median_is_that_of_every_images_nearest_point(folder):
    curves = build_distance_curves(folder)
    assert len(curves.curves) == 2
    assert "omitted: 1 attacks without such a curve" in curves.notes
    frame = load(folder)
    for curve in curves.curves:
        mine = frame[(frame["implementation"] == curve.labels["implementation"]) & frame["attacked"]]
        assert curve.n == len(mine) == 16
        for place, passes in enumerate(curve.passes):
            points = [zip(row.curve_passes, row.curve_distances, strict=True) for row in mine.itertuples()]
            nearest = sorted(min((d for p, d in curve if p <= passes), default=np.inf) for curve in points)
            assert curve.median[place] == (nearest[7] + nearest[8]) / 2
            # Of 16 the 4th and the 13th enclose the median in 97.9 % of samples; the 5th and 12th in 92.3 %.
            assert (curve.low[place], curve.high[place]) == (nearest[3], nearest[12])
            assert curve.fooled[place] == np.isfinite(nearest).mean()
        assert (np.diff(curve.median[np.isfinite(curve.median)]) <= 0).all()
        assert curve.median[-1] == pytest.approx(mine["distance"].median())
        assert curve.passes[-1] == (mine["forwards"] + mine["backwards"]).max()
        assert curve.at(0) is None
        assert curve.at(int(curve.passes[-1])) == len(curve.passes) - 1


def test_the_command_and_the_report_show_them(folder, run):
    code, out, err = run("curves", folder, "--x-axis", "passes")
    assert code == 0, err
    code, out, _ = run("curves", folder, "--x-axis", "passes", "--csv")
    lines = [*csv.DictReader(io.StringIO(out))]
    curves = build_distance_curves(folder).curves
    assert [float(line["median"]) for line in lines] == [value for curve in curves for value in curve.median]
    assert {line["n"] for line in lines} == {"16"}
    code, out, _ = run("curves", folder, "--x-axis", "passes", "--json")
    assert [each["passes"] for each in json.loads(out)["curves"]] == [curve.passes.tolist() for curve in curves]
    code, _, err = run("curves", folder, "--x-axis", "passes", "-o", "x.svg")
    assert (code, "the report contains figures" in err) == (1, True)
    assert "curve-passes-0" in build_report(folder)


def test_a_folder_without_curves_says_how_to_get_them(digits, images, tmp_path):
    config = Config(attacks=ATTACKS[2:], data="digits", measures=("effect",))
    evaluate(make_plan(config, models={"cnn": digits.classifier}, data=images), ResultsStore(tmp_path))
    with pytest.raises(Unsupported, match="`measures=curve`"):
        build_distance_curves(tmp_path)
    assert "curve-passes-0" not in build_report(tmp_path)
