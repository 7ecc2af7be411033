"""What is said beside the numbers that sum a curve up."""

import json
import math

import numpy as np
import pytest

from davylamp.engine.statistics.bootstrap import Estimate
from davylamp.engine.tables.budget_curves import Curve, Curves, extrapolated_halves
from davylamp.engine.tables.estimates import EXTRAPOLATED
from davylamp.report.parts.blocks import PageTable
from davylamp.report.sections.curves import write_curves
from davylamp.report.text.console import make_console
from davylamp.report.text.tables import curves_json, print_curves

from ...page_blocks import flatten


@pytest.mark.parametrize("noted", [False, True])
def test_a_half_distortion_beyond_what_was_measured_is_called_extrapolated(noted):
    labels = {"model": "net", "implementation": "foolbox:ddn", "norm": "l2", "epsilon": math.nan, "targeted": False}
    labels |= {"setting": "", "images": 10, "violations": 0}
    steps = np.array([0.0, 1.0])
    half = Estimate(6.6, 4.0, 9.0, 10)
    curve = Curve(labels, "distances", steps, 1 - steps / 10, steps, steps, 10, half, 0.96, is_extrapolated=noted)
    notes = tuple(extrapolated_halves([curve]))
    curves = Curves("epsilon", {"l2": "l2"}, {"l2": (0.0, 1.0)}, (curve,), notes)
    assert json.loads(curves_json(curves))["notes"] == [f"{EXTRAPOLATED}: foolbox:ddn on net"] * noted
    console = make_console()
    with console.capture() as seen:
        print_curves(curves, console)
    assert ("D_half is extrapolated" in " ".join(seen.get().split())) == noted
    (table,) = (block for block in flatten(write_curves(curves, None).blocks) if isinstance(block, PageTable))
    assert (table.rows[0][5].value, table.rows[0][5].text) == (6.6, "6.6 extrapolated" if noted else "6.6")
    assert ("D_half is extrapolated" in table.note) == noted
