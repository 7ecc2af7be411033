"""What a library cannot be run on is said before it is called, at the smallest case where that is so and beside it."""

from importlib import import_module

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import require_library
from davylamp.adapters.libraries.library import Library
from davylamp.errors import MissingLibrary, Unsupported


def linear_model(shape: tuple[int, ...], classes: int) -> tuple[Classifier, torch.Tensor, torch.Tensor]:
    """A linear model, two images of this shape, and what it says of them."""
    torch.manual_seed(0)
    inputs = torch.rand(2, *shape)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(inputs[0].numel(), classes)), outputs="logits")
    return model, inputs, model.predict_logits(inputs).argmax(1)


SIGN_OPT, L2T, MARGIN = "art:sign-opt", "torchattack:l2t", "pyautoattack:margin-ensemble"
FEW = {"steps": 1, "max_queries": 200}
REFUSED = [  # attack, norm, radius, shape, classes, parameters, what the line says that is needed
    (SIGN_OPT, "l2", None, (1, 8, 8), 2, FEW, "classes"),
    (L2T, "linf", 1.0, (1, 9, 9), 3, {"steps": 1}, "10"),
    (MARGIN, "l1", 1.0, (1, 8, 8), 3, {"steps": 2}, "3"),
    ("adv-lib:perc-al", "unrestricted", None, (1, 12, 12), 10, {}, "3 channels"),
    ("adv-lib:alma-ciede2000", "unrestricted", None, (1, 12, 12), 10, {}, "3 channels"),
    ("adv-lib:alma-ssim", "unrestricted", None, (3, 8, 12), 10, {}, "11 x 11"),
    ("adv-lib:pdgd", "l2", None, (3, 8, 8), 10, {"steps": 1}, "2 steps"),
    ("adv-lib:pdpgd", "linf", None, (3, 8, 8), 10, {"steps": 1}, "2 steps"),
    ("adv-lib:cw", "linf", None, (3, 8, 8), 10, {"confidence": 1.0}, "confidence in linf"),
    ("cleverhans:pgd", "linf", 0.1, (3, 16, 16), 10, {"steps": 2, "step_size": 0.2}, "step_size <= epsilon"),
    ("cleverhans:sparse-l1-descent", "l1", 0.1, (3, 16, 16), 10, {"quantile": 0.001}, "quantile >= 0.0013"),
    ("pyautoattack:square", "l2", 0.1, (3, 4, 4), 4, {}, "5 rows"),
    ("torchattack:ti-fgsm", "linf", 0.5, (1, 8, 8), 2, {}, "3 channels"),
    ("torchattack:di-fgsm", "linf", 0.5, (3, 8, 12), 2, {}, "square images"),
    ("torchattack:decowa", "linf", 0.5, (3, 8, 12), 2, {}, "square images"),
    ("torchattack:mumodig", "linf", 0.5, (3, 8, 12), 2, {}, "square images"),
    (L2T, "linf", 0.5, (3, 10, 12), 2, {}, "square images"),
    ("torchattack:mumodig", "linf", 0.5, (3, 245, 245), 2, {}, "244 pixels"),
    ("torchattack:geoda", "l2", None, (3, 8, 12), 2, {}, "square images"),
    ("torchattack:geoda", "l2", None, (1, 8, 8), 2, {}, "3 channels"),
    ("torchattack:bsr", "linf", 0.5, (3, 5, 12), 2, {}, "2 blocks"),
    ("torchattacks:ti-fgsm", "linf", 0.1, (1, 8, 8), 12, {}, "3 channels"),
    ("torchattacks:pi-fgsm", "linf", 0.1, (1, 8, 8), 12, {}, "3 channels"),
    ("torchattacks:one-pixel", "l0", 2, (3, 8, 8), 12, {}, "epsilon >= 3"),
    ("torchattacks:jsma", "l0", 1, (3, 8, 8), 12, {}, "epsilon >= 2"),
    ("torchattacks:jsma", "l0", 4, (3, 90, 90), 12, {}, "20000 components"),
]
TAKEN = [
    (SIGN_OPT, "l2", None, (1, 8, 8), 3, FEW),
    (L2T, "linf", 1.0, (1, 10, 10), 3, {"steps": 1}),
    (MARGIN, "l1", 20.0, (1, 8, 8), 3, {"steps": 3}),
    (MARGIN, "l2", 1.0, (1, 8, 8), 3, {"steps": 1}),
]


@pytest.mark.parametrize(("attack", "norm", "epsilon", "shape", "classes", "parameters", "needed"), REFUSED)
def test_what_a_library_cannot_take_is_refused_with_what_it_needs(
    attack, norm, epsilon, shape, classes, parameters, needed
):
    with pytest.raises(Unsupported) as caught:
        run_attack(attack, *linear_model(shape, classes), ThreatModel(norm, epsilon), **parameters)
    assert needed in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("attack", "norm", "epsilon", "shape", "classes", "parameters"), TAKEN)
def test_what_lies_beside_that_is_not_refused(attack, norm, epsilon, shape, classes, parameters):
    model = linear_model(shape, classes)
    assert run_attack(attack, *model, ThreatModel(norm, epsilon), **parameters).errors == ()


def test_alma_needs_four_classes_to_aim_at_one():
    model, inputs, labels = linear_model((3, 8, 8), 3)
    assert run_attack("adv-lib:alma", model, inputs, labels, ThreatModel("l2"), steps=50).success.all()
    aimed, targets = ThreatModel("l2", targeted=True), (labels + 1) % 3
    with pytest.raises(Unsupported, match="4 classes"):
        run_attack("adv-lib:alma", model, inputs, labels, aimed, targets=targets, steps=50)


@pytest.mark.parametrize(
    ("library", "attack"),
    [
        ("adv_lib", "davylamp.adapters.libraries.adv_lib.functions:fmn"),
        ("cleverhans", "davylamp.adapters.libraries.cleverhans.functions:noise"),
        ("pyautoattack", "pyautoattack.square:SquareAttack"),
        ("secml_torch", "davylamp.adapters.libraries.secml_torch.native_attacks:DDNNative"),
        ("torchattack", "torchattack:FGSM"),
    ],
)
def test_a_word_that_a_library_s_function_lacks_is_refused(digits, library, attack):
    place, _, name = attack.partition(":")
    driver = import_module(f"davylamp.adapters.libraries.{library}.driver")
    digits.module.num_classes = 10
    arguments = digits.module, digits.inputs, digits.labels, ThreatModel("l2", 0.1)
    with pytest.raises(ValueError, match=f"{name} does not have these parameters: no_word"):
        driver.run(getattr(import_module(place), name), *arguments, no_word=3)


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("adv-lib", "pip install --no-deps adv-lib"),
        ("cleverhans", "pip install --no-deps cleverhans six"),
        ("art", 'pip install "davylamp[art]"'),
    ],
)
def test_where_a_library_is_missing_the_message_has_the_command_that_works(library, command, monkeypatch):
    monkeypatch.setattr(Library, "is_installed", property(lambda library: False))
    with pytest.raises(MissingLibrary) as caught:
        require_library(library)
    assert str(caught.value).endswith(f"run: {command}")


GEODAS = {
    "art": ("davylamp.adapters.libraries.art.patches", {}),
    "torchattack": ("davylamp.adapters.libraries.torchattack.geoda", {"subspace": 4}),
}
QUERIES = {"art": (1, 249, 250, 251, 499, 750, 1000), "torchattack": (1, 250, 280, 378, 454, 1000)}


@pytest.mark.parametrize(("library", "queries"), [(name, each) for name, some in QUERIES.items() for each in some])
def test_geoda_has_a_plan_for_every_number_of_queries(digits, library, queries):
    case, words = digits.first(1), {"max_queries": queries, **GEODAS[library][1]}
    result = run_attack(f"{library}:geoda", case.classifier, case.inputs, case.labels, ThreatModel("l2"), **words)
    assert result.forwards <= queries


@pytest.mark.parametrize("library", GEODAS)
def test_geoda_ends_where_no_noise_fools_the_model(digits, monkeypatch, library):
    place, words = GEODAS[library]
    monkeypatch.setattr(import_module(place), "DRAWS", 20)
    constant = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    constant[1].weight.data.zero_()
    constant[1].bias.data = torch.arange(10.0).flip(0)
    case = Classifier(constant), digits.inputs[:1], torch.tensor([0])
    result = run_attack(f"{library}:geoda", *case, ThreatModel("l2"), max_queries=400, **words)
    assert (result.violations, result.success.tolist()) == ((("no-start",),), [False])
