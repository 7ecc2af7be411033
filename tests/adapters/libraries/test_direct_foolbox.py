"""Every Foolbox row against the same call made on Foolbox itself: the same images, bit by bit, and the same queries."""

import random
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import IMPLEMENTATIONS, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import load_class
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.parameters import SUPPLIED
from davylamp.adapters.running import run
from davylamp.adapters.running.queries import QueryCounter
from davylamp.adapters.running.seeding import call_seed
from davylamp.adapters.running.starting_points import find_starting_points

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import foolbox
    from foolbox import attacks as fa

SEED = 11
LINF, L2, L1 = 0.15, 2.5, 30.0
STEP = {"linf": 0.06, "l2": 1.0, "l1": 12.0}
ROWS = {name: row for name, row in IMPLEMENTATIONS.items() if row.library == "foolbox"}
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
    given = {"directions": 4, "steps": 9}
    for norm in ("l2", "linf", "l1"):
        yield "blended-noise", norm, None, given, fa.LinearSearchBlendedUniformNoiseAttack(**given)
        attack = fa.BinarySearchContrastReductionAttack(binary_search_steps=6, target=0.4)
        yield "contrast", norm, None, {"steps": 6, "target_value": 0.4}, attack
    given = {"steps": 6, "max_sigma": 3.0}
    yield "blur", "unrestricted", None, given, fa.GaussianBlurAttack(**given)
    yield "fixed-contrast", "l2", L2, {"target_value": 0.4}, fa.L2ContrastReductionAttack(target=0.4)
    yield "inversion", "unrestricted", None, {}, fa.InversionAttack()


CASES = [("foolbox:" + name, *rest) for name, *rest in cases()]


def over(cases):
    names = ("name", "norm", "epsilon", "given", "attack")
    return pytest.mark.parametrize(names, cases, ids=[f"{name}-{norm}" for name, norm, *_ in cases])


@pytest.fixture(scope="module")
def three(digits):
    """Three images of three classes; each is aimed at the class of the one before."""
    rows = torch.tensor([0, 1, 4])
    return SimpleNamespace(module=digits.module, inputs=digits.inputs[rows], labels=digits.labels[rows])


@pytest.fixture
def returned(monkeypatch):
    """What the library returned in each call of run_attack, before the judge sees it."""
    calls = []

    def record(*arguments):
        calls.append(original(*arguments))
        return calls[-1]

    original = run.call_library
    monkeypatch.setattr(run, "call_library", record)
    return calls


class Watched(nn.Module):
    """The model as Foolbox gets it in these tests; counts calls and asserts that each is about the whole batch."""

    def __init__(self, module, images):
        super().__init__()
        self.module, self.images, self.forwards, self.backwards = module, images, 0, 0
        self.eval()

    def forward(self, inputs):
        assert len(inputs) == self.images
        self.forwards += 1
        logits = self.module(inputs)
        if logits.requires_grad:
            logits.register_hook(lambda _: setattr(self, "backwards", self.backwards + 1))
        return logits


def directly(attack, module, inputs, labels, targets, epsilon, seed, *, starts=False):
    """One call of Foolbox: the images (clipped to the ball by Foolbox), forwards and backwards per image."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    watched, more, extra = Watched(module, len(inputs)), {}, 0
    if starts:
        counter = QueryCounter(Classifier(module), inputs, labels, ThreatModel("l2"), targets=targets)
        more["starting_points"], has_start = find_starting_points(counter, inputs, labels, targets, seed)
        assert has_start.all()
        extra = int(counter.forwards)
    if not isinstance(attack, fa.SpatialAttack):
        more["epsilons"] = epsilon
    wanted = foolbox.Misclassification(labels) if targets is None else foolbox.TargetedMisclassification(targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = foolbox.PyTorchModel(watched, bounds=(0, 1), device="cpu")
        images = attack(model, inputs, wanted, **more)[1]
    return images, watched.forwards + extra, watched.backwards


def aimed(row, case):
    """Targets that the attack needs, and the forwards that finding them costs."""
    if row.targeted != "only":
        return None, 0
    logits = case.module(case.inputs)
    return logits.argsort(1)[:, 0 if row.aims_at == "least-likely" else -2], 1


def assert_same(row, calls, attack, case, targets, epsilon, extra=0):
    """The recorded calls equal the direct ones: images bit by bit (NaN included), forwards and backwards per image."""
    count = len(case.labels)
    rows = [torch.tensor([i]) for i in range(count)] if row.alone else [torch.arange(count)]
    assert len(calls) == len(rows)
    for call, of_call in zip(calls, rows, strict=True):
        assert call.error is None
        wanted, forwards, backwards = directly(
            attack,
            case.module,
            case.inputs[of_call],
            case.labels[of_call],
            None if targets is None else targets[of_call],
            epsilon,
            call_seed(SEED, int(of_call[0]), 0),
            starts="starting_points" in row.params,
        )
        assert torch.equal(torch.isnan(call.adv_inputs), torch.isnan(wanted))
        assert torch.equal(call.adv_inputs.nan_to_num(), wanted.nan_to_num())
        assert call.forwards.tolist() == [forwards + extra] * len(of_call)
        assert call.backwards.tolist() == [backwards] * len(of_call)


@over(CASES)
def test_a_row_is_the_call_itself(three, returned, name, norm, epsilon, given, attack):
    row = ROWS[name]
    assert set(given) == set(row.params) - set(SUPPLIED), "a canonical parameter is not tried"
    targets, extra = aimed(row, three)
    threat_model = ThreatModel(norm, epsilon)
    run_attack(row, Classifier(three.module), three.inputs, three.labels, threat_model, seed=SEED, **given)
    assert_same(row, returned, attack, three, targets, epsilon, extra)


@over([case for case in CASES if ROWS[case[0]].targeted != "no"])
def test_a_targeted_row_is_the_targeted_call(three, returned, name, norm, epsilon, given, attack):
    row, targets, threat_model = ROWS[name], three.labels.roll(1), ThreatModel(norm, epsilon, targeted=True)
    classifier = Classifier(three.module)
    run_attack(row, classifier, three.inputs, three.labels, threat_model, targets=targets, seed=SEED, **given)
    assert_same(row, returned, attack, three, targets, epsilon)


def test_every_row_as_shipped_is_compared():
    apart = ("foolbox:brendel-bethge", "foolbox:pointwise")
    shipped = {(name, norm) for name, row in ROWS.items() if not row.variant for norm in row.classes}
    assert {(name, norm) for name, norm, *_ in CASES} == {item for item in shipped if item[0] not in apart}


@pytest.fixture
def tiny():
    """A linear model of three classes and two images of 48 components, for attacks that take long."""
    generator = torch.Generator().manual_seed(3)
    layer = nn.Linear(48, 3)
    layer.weight.data = torch.randn(3, 48, generator=generator)
    inputs = 0.5 + 0.1 * torch.randn(2, 3, 4, 4, generator=generator)
    layer.bias.data = -(layer.weight.data @ inputs.flatten(1).mean(0))
    module = nn.Sequential(nn.Flatten(), layer).eval().requires_grad_(False)
    return SimpleNamespace(module=module, inputs=inputs, labels=module(inputs).argmax(1))


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "l0"])
@pytest.mark.usefixtures("interpreted")
def test_brendel_bethge_is_the_call_itself(tiny, returned, norm, targeted):
    row, given = ROWS["foolbox:brendel-bethge"], {"steps": 3, "learning_rate": 0.01, "decay": 0.5}
    targets = (tiny.labels + 1) % 3 if targeted else None
    attack = load_class(row, norm)(steps=3, lr=0.01, momentum=0.5)
    threat_model = ThreatModel(norm, targeted=targeted)
    classifier = Classifier(tiny.module)
    result = run_attack(row, classifier, tiny.inputs, tiny.labels, threat_model, targets=targets, seed=SEED, **given)
    assert_same(row, returned, attack, tiny, targets, None)
    assert (result.distance > 0).all()


@pytest.mark.parametrize("norm", ["l0", "l2"])
def test_pointwise_is_the_call_itself(tiny, returned, norm):
    row, attack = ROWS["foolbox:pointwise"], fa.PointwiseAttack(l2_binary_search=norm == "l2")
    one = SimpleNamespace(module=tiny.module, inputs=tiny.inputs[:1], labels=tiny.labels[:1])
    result = run_attack(row, Classifier(one.module), one.inputs, one.labels, ThreatModel(norm), seed=SEED)
    assert result.success.all()
    assert_same(row, returned, attack, one, None, None)


def test_a_batch_costs_each_image_as_much_as_its_slowest(three):
    attack, classifier = fa.L2DeepFoolAttack(), Classifier(three.module)
    alone = [
        directly(attack, three.module, three.inputs[i : i + 1], three.labels[i : i + 1], None, None, 0)
        for i in range(3)
    ]
    assert len({forwards for _, forwards, _ in alone}) > 1
    result = run_attack("foolbox:deepfool", classifier, three.inputs, three.labels, ThreatModel("l2"))
    assert result.forwards.tolist() == [max(forwards for _, forwards, _ in alone)] * 3
    assert result.backwards.tolist() == [max(backwards for _, _, backwards in alone)] * 3
    single = run_attack("foolbox:deepfool", classifier, three.inputs, three.labels, ThreatModel("l2"), batch_size=1)
    assert single.forwards.tolist() == [forwards for _, forwards, _ in alone]
