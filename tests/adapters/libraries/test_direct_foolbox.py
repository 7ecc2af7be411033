"""Every Foolbox row against the same call made on Foolbox itself: the same images, bit by bit, and the same queries."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import load_class
from davylamp.adapters.contract.linear_model import ContractCase
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.running.library_call import Images
from davylamp.adapters.running.queries import QueryCounter
from davylamp.adapters.running.starting_points import find_starting_points

from .direct import Counted, Direct, DirectCalls, seed_everything

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import foolbox
    from foolbox import attacks as fa

LINF, L2, L1 = 0.15, 2.5, 30.0
STEP = {"linf": 0.06, "l2": 1.0, "l1": 12.0}
DIMENSIONS = 3 * 16 * 16
RATE = {"steps": 15, "learning_rate": 0.1, "gamma": 0.1}
SEARCH = {"steps": 15, "binary_search_steps": 2, "initial_const": 1.0, "confidence": 0.5, "learning_rate": 0.05}
ELASTIC = SEARCH | {"regularization": 0.02}


def iterated(suffix, canonical=None, words=None, per_component=()):
    """(norm, epsilon, canonical parameters, Foolbox's attack) of a gradient attack in each of three norms."""
    for norm, epsilon, name in (("linf", LINF, "Linf"), ("l2", L2, "L2"), ("l1", L1, "L1")):
        step = STEP[norm]
        scale = DIMENSIONS ** {"l2": 0.5, "l1": 1.0}[norm] if norm in per_component else 1.0
        given = {"steps": 4, "step_size": step, "random_start": True} | (canonical or {})
        arguments = {"steps": 4, "abs_stepsize": step / scale, "random_start": True} | (words or {})
        yield norm, epsilon, given, getattr(fa, name + suffix)(**arguments)


def cases():
    """(row, norm, epsilon, canonical parameters, the same in Foolbox's words) of every row but the repaired ones."""
    start = {"random_start": True}
    yield "fgsm", "linf", LINF, start, fa.LinfFastGradientAttack(random_start=True)
    yield "fgm", "l2", L2, start, fa.L2FastGradientAttack(random_start=True)
    yield "fgm", "l1", L1, start, fa.L1FastGradientAttack(random_start=True)
    for name, suffix, more in (
        ("bim", "BasicIterativeAttack", {}),
        ("pgd", "ProjectedGradientDescentAttack", {}),
        ("adam-bim", "AdamBasicIterativeAttack", {}),
        ("adam-pgd", "AdamProjectedGradientDescentAttack", {"per_component": ("l2", "l1")}),
        ("mi-fgsm", "MomentumIterativeFastGradientMethod", {"canonical": {"decay": 0.7}, "words": {"momentum": 0.7}}),
    ):
        for item in iterated(suffix, **more):
            yield name, *item
    given = {"steps": 4, "step_size": 0.06, "random_start": True}
    arguments = {"steps": 4, "abs_stepsize": 0.06, "random_start": True}
    yield "least-likely", "linf", LINF, given, fa.LinfBasicIterativeAttack(**arguments)
    given, arguments = given | {"step_size": 12.0, "quantile": 0.9}, arguments | {"abs_stepsize": 12.0, "quantile": 0.9}
    yield "sparse-l1-descent", "l1", L1, given, fa.SparseL1DescentAttack(**arguments)
    given = {"steps": 3, "finite_difference": 1e-3}
    yield "virtual-adversarial", "l2", L2, given, fa.VirtualAdversarialAttack(3, xi=1e-3)
    yield from minimum_norm_cases()
    yield from black_box_cases()


def minimum_norm_cases():
    given = {"steps": 4, "overshoot": 0.1, "candidates": 3}
    yield "deepfool", "l2", None, given, fa.L2DeepFoolAttack(**given)
    yield "deepfool", "linf", None, given, fa.LinfDeepFoolAttack(**given)
    arguments = {word: value for word, value in SEARCH.items() if word != "learning_rate"}
    yield "cw", "l2", None, SEARCH, fa.L2CarliniWagnerAttack(**arguments, stepsize=0.05)
    for rule in ("EN", "L1"):
        attack = fa.EADAttack(**arguments, initial_stepsize=0.05, regularization=0.02, decision_rule=rule)
        yield f"ead-{rule.lower()}", "l1", None, ELASTIC, attack
    yield "newtonfool", "l2", None, {"steps": 3, "learning_rate": 0.1}, fa.NewtonFoolAttack(3, stepsize=0.1)
    given = {"steps": 15, "gamma": 0.1, "initial_epsilon": 0.5}
    yield "ddn", "l2", None, given, fa.DDNAttack(steps=15, gamma=0.1, init_epsilon=0.5)
    for norm, attack in {"linf": fa.LInfFMNAttack, "l2": fa.L2FMNAttack, "l1": fa.L1FMNAttack}.items():
        yield "fmn", norm, None, RATE, attack(steps=15, max_stepsize=0.1, gamma=0.1)
    yield "fmn", "l0", None, RATE, fa.L0FMNAttack(steps=15, max_stepsize=0.1, gamma=0.1)


def black_box_cases():
    yield "genattack", "linf", LINF, {"steps": 3, "population": 4}, fa.GenAttack(steps=3, population=4)
    given = {"steps": 25, "orthogonal_step": 0.2, "source_step": 0.1}
    yield "boundary", "l2", None, given, fa.BoundaryAttack(steps=25, spherical_step=0.2, source_step=0.1)
    given = {"steps": 2, "initial_evaluations": 20, "max_evaluations": 25}
    arguments = {"steps": 2, "initial_gradient_eval_steps": 20, "max_gradient_eval_steps": 25}
    for norm in ("l2", "linf"):
        yield "hopskipjump", norm, None, given, fa.HopSkipJumpAttack(**arguments, constraint=norm)
    given = {"max_translation": 2.0, "translations": 2, "max_rotation": 20.0, "rotations": 3}
    attack = fa.SpatialAttack(max_translation=2.0, num_translations=2, max_rotation=20.0, num_rotations=3)
    yield "spatial", "unrestricted", None, given, attack
    yield "salt-and-pepper", "l2", None, {"steps": 30}, fa.SaltAndPepperNoiseAttack(steps=30)
    yield "gaussian-noise", "l2", 6.0, {}, fa.L2AdditiveGaussianNoiseAttack()
    yield "uniform-noise", "linf", 0.3, {}, fa.LinfAdditiveUniformNoiseAttack()
    yield "uniform-noise", "l2", 6.0, {}, fa.L2AdditiveUniformNoiseAttack()
    given = {"noise_samples": 4}
    yield "repeated-gaussian-noise", "l2", 6.0, given, fa.L2RepeatedAdditiveGaussianNoiseAttack(repeats=4)
    yield "repeated-uniform-noise", "linf", 0.3, given, fa.LinfRepeatedAdditiveUniformNoiseAttack(repeats=4)
    yield "repeated-uniform-noise", "l2", 6.0, given, fa.L2RepeatedAdditiveUniformNoiseAttack(repeats=4)
    for kind in ("Gaussian", "Uniform"):
        name = f"full-{kind.lower()}-noise"
        yield name, "l2", 6.0, {}, getattr(fa, f"L2ClippingAwareAdditive{kind}NoiseAttack")()
        attack = getattr(fa, f"L2ClippingAwareRepeatedAdditive{kind}NoiseAttack")(repeats=4)
        yield f"repeated-{name}", "l2", 6.0, {"noise_samples": 4}, attack
    given = {"directions": 4, "steps": 9}
    for norm in ("l2", "linf", "l1"):
        yield "blended-noise", norm, None, given, fa.LinearSearchBlendedUniformNoiseAttack(**given)
        attack = fa.BinarySearchContrastReductionAttack(binary_search_steps=6, target=0.4)
        yield "contrast", norm, None, {"steps": 6, "target_value": 0.4}, attack
        attack = fa.LinearSearchContrastReductionAttack(steps=9, target=0.4)
        yield "linear-contrast", norm, None, {"steps": 9, "target_value": 0.4}, attack
    given = {"steps": 6, "max_sigma": 3.0}
    yield "blur", "unrestricted", None, given, fa.GaussianBlurAttack(**given)
    yield "fixed-contrast", "l2", L2, {"target_value": 0.4}, fa.L2ContrastReductionAttack(target=0.4)
    yield "inversion", "unrestricted", None, {}, fa.InversionAttack()


CASES = tuple(Direct(*case) for case in cases())

# The repaired rows (test_foolbox.py), and those that are compared below, on a model that is fast enough.
ELSEWHERE = {
    ("mi-fgsm@fixed", "linf"),
    *(("fmn@fixed", norm) for norm in ("l2", "l1", "l0")),
    ("adam-bim@fixed", "l2"),
    *((f"{row}@fixed", "l1") for row in ("adam-bim", "sparse-l1-descent", "ead-en", "ead-l1")),
    ("cw@fixed", "l2"),
    *(("brendel-bethge", norm) for norm in ("linf", "l2", "l1", "l0")),
    *(("pointwise", norm) for norm in ("l2", "l0")),
}


class TestDirect(DirectCalls):
    library, cases, elsewhere = "foolbox", CASES, frozenset(ELSEWHERE)

    def pick(self, case: Direct, data: ContractCase) -> ContractCase:
        """Three images of three classes."""
        rows = torch.tensor([0, 1, 4])
        return ContractCase(data.module, data.inputs[rows], data.labels[rows])

    def aim(self, data: ContractCase) -> Tensor:
        """The class of the image before: a class that a starting point is known of."""
        return data.labels.roll(1)

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        inputs, labels, targets = images
        more: dict[str, Any] = {} if isinstance(case.theirs, fa.SpatialAttack) else {"epsilons": case.epsilon}
        if "starting_points" in self.row_of(case).params:
            counter = QueryCounter(Classifier(model.module), inputs, labels, ThreatModel("l2"), targets=targets)
            more["starting_points"], has_start = find_starting_points(counter, *images, seed)
            assert has_start.all()
            model.queries["forwards"] += int(counter.forwards.sum())
        wanted = foolbox.Misclassification(labels) if targets is None else foolbox.TargetedMisclassification(targets)
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        returned = case.theirs(wrapped, inputs, wanted, **more)[1]
        assert model.sizes == {len(inputs)}, "a query is not about the whole batch"
        return returned


@pytest.fixture
def tiny() -> ContractCase:
    """A linear model of three classes and two images of 48 components, for attacks that take long."""
    generator = torch.Generator().manual_seed(3)
    layer = nn.Linear(48, 3)
    layer.weight.data = torch.randn(3, 48, generator=generator)
    inputs = 0.5 + 0.1 * torch.randn(2, 3, 4, 4, generator=generator)
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    module = nn.Sequential(nn.Flatten(), layer).eval().requires_grad_(False)
    return ContractCase(module, inputs, module(inputs).argmax(1))


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "l0"])
@pytest.mark.usefixtures("interpreted")
def test_brendel_bethge_is_the_call_itself(tiny, norm, targeted):
    row, given = IMPLEMENTATIONS["foolbox:brendel-bethge"], {"steps": 3, "learning_rate": 0.01, "decay": 0.5}
    attack = load_class(row, norm)(steps=3, lr=0.01, momentum=0.5)
    targets = (tiny.labels + 1) % 3 if targeted else None
    result = TestDirect().compare(Direct("brendel-bethge", norm, None, given, attack), tiny, targets)
    assert (result.distance > 0).all()


@pytest.mark.parametrize("norm", ["l0", "l2"])
def test_pointwise_is_the_call_itself(tiny, norm):
    attack = fa.PointwiseAttack(l2_binary_search=norm == "l2")
    result = TestDirect().compare(Direct("pointwise", norm, None, {}, attack), tiny.first(1))
    assert result.success.all()


def test_a_batch_costs_each_image_as_much_as_its_slowest(digits):
    direct, case = TestDirect(), Direct("deepfool", "l2", None, {}, fa.L2DeepFoolAttack())
    three = direct.pick(case, digits)

    def alone(image: int) -> Counted:
        """The model after one image has been attacked."""
        model, rows = Counted(three.module), slice(image, image + 1)
        seed_everything(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            direct.call(case, model, Images(three.inputs[rows], three.labels[rows], None), seed=0)
        return model

    costs = [alone(image).queries for image in range(3)]
    assert len({cost["forwards"] for cost in costs}) > 1
    together, single = (
        run_attack(
            "foolbox:deepfool", three.classifier, three.inputs, three.labels, ThreatModel("l2"), batch_size=batch_size
        )
        for batch_size in (3, 1)
    )
    assert together.forwards.tolist() == [max(cost["forwards"] for cost in costs)] * 3
    assert together.backwards.tolist() == [max(cost["backwards"] for cost in costs)] * 3
    assert single.forwards.tolist() == [cost["forwards"] for cost in costs]
