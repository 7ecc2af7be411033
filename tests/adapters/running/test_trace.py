"""What the model was asked about and fooled by, whatever the attack makes of it."""

import pytest
import torch

from davylamp.adapters import ThreatModel, as_implementation, run_attack
from davylamp.adapters.running.trace import CurvePoint, Trace


def test_the_nearest_point_asked_about_is_noted_with_the_passes_so_far(linear):
    case = linear.first(2)
    direction = run_attack("foolbox:fgm", case.classifier, case.inputs, case.labels, ThreatModel("l2", 3.0)).adv_inputs
    unit = (direction - case.inputs) / (direction - case.inputs).flatten(1).norm(dim=1).view(-1, 1, 1, 1)

    def attack(model, inputs, labels):
        model(inputs)
        for length in (0.5, 2.0, 1.2, 1.4, 1.1):
            model(inputs + length * linear.least["l2"][:2].float().view(-1, 1, 1, 1) * unit)
        model(inputs * torch.nan)
        model(inputs + 100 * unit)  # fools, and lies outside of [0, 1]
        return inputs

    trace = Trace(case.inputs, case.labels, None, "l2")
    row = as_implementation(attack, norm="l2", kind="minimum-norm", order="kept")
    result = run_attack(row, case.classifier, case.inputs, case.labels, ThreatModel("l2"), trace=trace)
    assert result.forwards.tolist() == [8, 8]
    for curve, least in zip(trace.curves, linear.least["l2"][:2].tolist(), strict=True):
        assert [point.passes for point in curve] == [3, 4, 6]
        assert [point.distance / least for point in curve] == pytest.approx([2.0, 1.2, 1.1], rel=1e-4)
    size = (trace.nearest - case.inputs).double().flatten(1).norm(dim=1)
    assert torch.allclose(size, trace.distance)


def test_images_of_a_call_are_those_of_the_trace_and_passes_before_count(digits):
    trace = Trace(digits.inputs, digits.labels, None, "linf", below=torch.full((16,), 0.5).double())
    wrong = digits.module(digits.inputs).argmin(1)
    logits = torch.nn.functional.one_hot(wrong, 10).float()
    call = trace.of_call(torch.tensor([3, 7]), torch.tensor([10, 20]))
    asked = digits.inputs[[7, 3]] + torch.tensor([0.01, 0.02]).view(-1, 1, 1, 1)
    call.note(asked, logits[[7, 3]], torch.tensor([1, 0]), torch.tensor([1, 2]))
    assert trace.curves[7] == [CurvePoint(22, float(trace.distance[7]))]
    assert trace.curves[3] == [CurvePoint(11, float(trace.distance[3]))]
    assert trace.distance.isfinite().sum() == 2
    call.note(digits.inputs[[3]] + 0.6, logits[[3]], torch.tensor([0]), torch.tensor([2, 2]))
    call.note(digits.inputs[[3, 7]], logits[[3, 7]], torch.tensor([0, 1]), torch.tensor([3, 3]))  # unchanged
    assert len(trace.curves[3]) == len(trace.curves[7]) == 1
