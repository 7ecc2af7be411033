"""A radius for each image: every row that takes them gives each image what one radius for all would have given it.

The digits are 16 images of 16 x 16: a tensor multiplied along the wrong axis would fit, and show here.
"""

import pytest
import torch

from davylamp.adapters import IMPLEMENTATIONS, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import accepts_parameter, supports_per_image_radii
from davylamp.adapters.libraries.torchattacks import driver as torchattacks
from davylamp.adapters.running.judge import perturbation_norm
from davylamp.errors import InvalidInput, Unsupported

UPPER = {"linf": 0.2, "l2": 4.0, "l1": 60.0}
SHARES = torch.tensor([0.3, 1.0, 0.1, 0.55], dtype=torch.double).repeat(4)
ROWS = {name: row for name, row in IMPLEMENTATIONS.items() if row.per_image_radii}
CASES = [
    (name, norm, given)
    for name, row in ROWS.items()
    for norm in row.classes
    for given in ((False, True) if accepts_parameter(row, "step_size") else (False,))
]


def test_the_gradient_rows_of_all_three_libraries_take_them():
    assert set(ROWS) >= {
        f"{library}:{attack}" for library in ("art", "foolbox", "torchattacks") for attack in ("fgsm", "bim", "pgd")
    }


@pytest.mark.parametrize(("name", "norm", "given"), CASES)
def test_each_image_gets_what_its_radius_would_give_it(digits, name, norm, given):
    radii, fixed = SHARES * UPPER[norm], {"steps": 2, "random_start": False, "samples": 2}
    accepted = {word: value for word, value in fixed.items() if accepts_parameter(ROWS[name], word)}

    def attack(epsilon, step, **rest):
        threat_model = ThreatModel(norm, epsilon)
        words = {**accepted, "step_size": step} if given else accepted
        return run_attack(name, digits.classifier, digits.inputs, digits.labels, threat_model, **words, **rest)

    result = attack(UPPER[norm], 0.4 * radii, radii=radii)
    assert result.violations == ((),) * 16
    assert (result.distance <= radii * 1.0001 + 1e-6).all()
    for radius in (float(radii.min()), float(radii.max())):  # of half the images, for time
        single, rows = attack(radius, 0.4 * radius), radii == radius
        assert torch.allclose(result.adv_inputs[rows], single.adv_inputs[rows], atol=5e-5)
        assert torch.equal(result.success[rows], single.success[rows])
        assert torch.equal(result.forwards[rows], single.forwards[rows])
    assert result.threat_model == ThreatModel(norm, UPPER[norm])


def test_an_image_is_judged_by_its_own_radius(digits, monkeypatch):
    monkeypatch.setattr(torchattacks, "run", lambda attack_class, model, inputs, *_, **__: 1 - inputs)
    case = digits.classifier, digits.inputs, digits.labels
    result = run_attack("torchattacks:fgsm", *case, ThreatModel("linf", 1.0), radii=SHARES, batch_size=5)
    assert result.violations == (("out-of-ball",), (), ("out-of-ball",), ("out-of-ball",)) * 4
    size = (1 - 2 * digits.inputs).abs().flatten(1).amax(1)
    assert torch.allclose(result.distance, SHARES.minimum(size), atol=1e-6)
    assert torch.equal(result.invalid, torch.tensor([True, False, True, True] * 4))
    hit = digits.module(result.adv_inputs).argmax(1) != digits.labels
    assert torch.equal(result.success, hit & ~result.invalid)


@pytest.mark.parametrize("name", ["torchattacks:pgd", "torchattacks:ni-fgsm"])
def test_an_image_out_of_queries_hands_in_an_example_of_its_own_ball(digits, name):
    """NI-FGSM asks about points outside of the ball; a point outside of one image's may be inside of another's."""
    labels = digits.labels.clone()
    labels[[1, 7, 8]] = (labels[[1, 7, 8]] + 1) % 10  # not attacked: the calls have other rows than the batches
    radii, case = SHARES * 0.2, (digits.classifier, digits.inputs, labels)
    settings = {"steps": 10, "max_queries": 5, "batch_size": 6} | ({"random_start": False} if "pgd" in name else {})
    result = run_attack(name, *case, ThreatModel("linf", 0.2), step_size=0.5 * radii, radii=radii, **settings)
    assert (result.forwards + result.backwards <= 5).all()
    assert result.violations == ((),) * 16
    assert (perturbation_norm(result.adv_inputs - digits.inputs, "linf") <= radii + 1e-6).all()
    for radius in radii.unique().tolist():
        single, rows = (
            run_attack(name, *case, ThreatModel("linf", radius), step_size=0.5 * radius, **settings),
            radii == radius,
        )
        assert torch.allclose(result.adv_inputs[rows], single.adv_inputs[rows], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "norm", "parameters", "takes"),
    [
        ("foolbox:pgd", "linf", {"random_start": False}, True),
        ("foolbox:pgd", "linf", {}, False),
        ("foolbox:bim", "l2", {}, True),
        ("foolbox:bim", "l2", {"random_start": True}, False),
        ("art:pgd", "l1", {}, True),
        ("torchattacks:vmi-fgsm", "linf", {}, False),
        ("art:square", "linf", {}, False),
        ("torchattacks:fgsm", "linf", {}, True),
    ],
)
def test_a_random_start_or_another_row_wants_one_radius(digits, name, norm, parameters, takes):
    assert supports_per_image_radii(IMPLEMENTATIONS[name], norm, parameters) is takes
    if not takes:
        case = digits.classifier, digits.inputs, digits.labels
        with pytest.raises(Unsupported, match="does not accept a radius per image"):
            run_attack(name, *case, ThreatModel(norm, 0.2), radii=SHARES * 0.2, **parameters)


@pytest.mark.parametrize(
    ("radii", "got"),
    [
        (torch.tensor(0.1), r"one for each image, got a tensor of shape \(\)"),
        (SHARES[:, None], r"got a tensor of shape \(16, 1\)"),
        (SHARES[:0], r"got a tensor of shape \(0,\)"),
        ([0.1] * 16, "got list"),
        (SHARES[:3], r"16 radii above 0 and at most 0\.2, got \(3,\) from 0\.1 to 1"),
        (SHARES, r"at most 0\.2, got \(16,\) from 0\.1 to 1"),
        (SHARES * 0, "from 0 to 0"),
        (SHARES * torch.nan, "from nan to nan"),
    ],
)
def test_wrong_radii_are_refused(digits, radii, got):
    case = digits.classifier, digits.inputs, digits.labels
    with pytest.raises(InvalidInput, match=got):
        run_attack("foolbox:fgsm", *case, ThreatModel("linf", 0.2), radii=radii)


def test_wrong_step_sizes_are_refused(digits):
    case = digits.classifier, digits.inputs, digits.labels
    settings = {"steps": 2, "random_start": False, "radii": SHARES * 0.2}
    for steps in (-SHARES, SHARES[:3], SHARES * torch.nan):
        with pytest.raises(InvalidInput, match=r"^expected .*step_size"):
            run_attack("foolbox:pgd", *case, ThreatModel("linf", 0.2), step_size=steps, **settings)
    del settings["radii"]
    with pytest.raises(InvalidInput, match=r"^got 16 step sizes, but no radii"):
        run_attack("foolbox:pgd", *case, ThreatModel("linf", 0.2), step_size=SHARES, **settings)
