"""Defects of ART's algorithms that its rows carry as findings, each shown as shipped; and what davylamp mends."""

import importlib.util
import inspect
import sys
import warnings
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from art.attacks import evasion
from art.estimators.classification import PyTorchClassifier
from scipy.ndimage import rotate, shift
from torch import Tensor, nn

import davylamp
from davylamp.adapters import IMPLEMENTATIONS, Classifier, ThreatModel, run_attack
from davylamp.adapters.catalogue.known_issues import known_issues_of
from davylamp.adapters.libraries.art import patches as art_repairs
from davylamp.adapters.running.judge import perturbation_norm
from davylamp.adapters.running.library_call import CallLimits, Images, call_library
from davylamp.adapters.running.queries import QueryCounter
from davylamp.adapters.running.seeding import call_seed
from davylamp.adapters.running.starting_points import find_starting_points
from davylamp.errors import AttackFailed
from davylamp.tools.sweep.running import make_images, make_model

from .direct import SEED, part, rows_of, second_likely, seed_everything

attack = rows_of("art")


class Recorded(nn.Module):
    """The module, its logits in another order or as probabilities, and all that it is asked.

    It is no Sequential: ART would call the parts of one itself.
    """

    def __init__(self, module: nn.Module, order: Tensor | None = None, softmax: bool = False):
        super().__init__()
        self.module, self.order, self.softmax, self.asked = module, order, softmax, []

    def forward(self, inputs: Tensor) -> Tensor:
        self.asked.append(inputs.detach().clone())
        logits = self.module(inputs.float())
        logits = logits if self.order is None else logits[:, self.order]
        return logits.softmax(1) if self.softmax else logits


def build(library_class: Any, case: Any, module: nn.Module | None = None, **words: Any) -> Any:
    """An attack of ART on a case."""
    classes, shape = case.module(case.inputs).shape[1], tuple(case.inputs.shape[1:])
    if "verbose" in inspect.signature(library_class).parameters:
        words["verbose"] = False
    module, loss = module or Recorded(case.module), nn.CrossEntropyLoss()
    estimator = PyTorchClassifier(module, loss, shape, classes, clip_values=(0.0, 1.0), device_type="cpu")
    return library_class(estimator, **words)


def directly(library_class: str, case: Any, module: nn.Module | None = None, **words: Any) -> Tensor:
    """What ART's own attack returns."""
    seed_everything(SEED)
    attack = build(getattr(evasion, library_class), case, module, **words)
    return torch.from_numpy(attack.generate(case.inputs.numpy().copy(), case.labels.numpy()))


def least_likely(case: Any) -> Tensor:
    return case.module(case.inputs).argmin(1)


@pytest.mark.parametrize("row", ["apgd-ce", "apgd-dlr"])
def test_final_iterate_a_failure_of_apgd_is_its_random_start(digits, row):
    few, many = (attack(row, digits, "linf", 0.02, steps=k, step_size=0.04, restarts=1) for k in (1, 20))
    failed = ~few.success & ~many.success
    assert failed.any()
    assert torch.equal(few.adv_inputs[failed], many.adv_inputs[failed])
    assert (few.distances.linf[failed] > 0.019).all()


def test_untargeted_ratio_hits_fewer_targets_than_cross_entropy(digits):
    targets, words = least_likely(digits), {"steps": 30, "step_size": 0.4, "restarts": 1}
    ratio, entropy = (attack(row, digits, "linf", 0.2, targets, **words) for row in ("apgd-dlr", "apgd-ce"))
    assert ratio.success.sum() < entropy.success.sum()


def test_no_square_in_l1(digits):
    assert torch.equal(directly("SquareAttack", digits, norm=1, eps=20.0, max_iter=5), digits.inputs)


def test_deepfool_for_fab_and_short_of_classes(digits):
    names = [type(each).__name__ for each in build(evasion.AutoAttack, digits).attacks]
    assert names == ["AutoProjectedGradientDescent", "AutoProjectedGradientDescent", "DeepFool", "SquareAttack"]
    assert build(evasion.AutoAttack, digits).attacks[2].nb_grads == 10


def test_clip_before_project_is_the_order_of_l2_steps(digits):
    epsilon, step = 3.0, 1.0
    result = attack("pgd", digits, "l2", epsilon, steps=6, step_size=step)
    images = digits.inputs.clone()
    for _ in range(6):
        images.requires_grad_()
        loss = nn.functional.cross_entropy(digits.module(images), digits.labels)
        (gradient,) = torch.autograd.grad(loss, images)
        images = images.detach() + step * gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        delta = images.clamp(0, 1) - digits.inputs
        images = digits.inputs + delta * (epsilon / delta.flatten(1).norm(dim=1)).clamp(max=1).view(-1, 1, 1, 1)
    assert torch.allclose(result.adv_inputs, images, atol=1e-5)


def test_small_difference_gives_another_direction(digits):
    case = part(digits, 5)
    small, large = (
        directly("VirtualAdversarialMethod", case, Recorded(case.module, softmax=True), eps=1.0, max_iter=1, **words)
        - case.inputs
        for words in ({}, {"finite_diff": 1e-2})
    )
    assert torch.cosine_similarity(small.flatten(), large.flatten(), dim=0) < 0.5


def test_doubling_constant_stays_small(digits):
    case, words = digits.first(3), {"steps": 10, "binary_search_steps": 4}
    small, large = (attack("cw", case, "l2", initial_const=c, **words) for c in (0.01, 10.0))
    assert large.success.all()
    assert not small.success.any()


def test_b20_l0_changes_every_component(digits):
    case = digits.first(2)
    result = attack("cw", case, "l0", steps=5, binary_search_steps=2, initial_const=10.0)
    assert result.success.all()
    assert (result.distance > 700).all()


def test_any_class_is_target_until_repaired(digits):
    case, words = digits.first(4), {"steps": 20, "binary_search_steps": 3, "initial_const": 1.0, "learning_rate": 0.1}
    shipped, repaired = (attack(name, case, "linf", None, least_likely(case), **words) for name in ("cw", "cw@fixed"))
    assert repaired.success.all()
    assert not shipped.success.all()
    assert (shipped.adv_logits.argmax(1) != least_likely(case))[shipped.distance < repaired.distance].any()


@pytest.mark.parametrize("repaired", [True, False])
def test_b20_linf_weighs_its_gradient_once_repaired(linear, repaired):
    """Against the gradient of the loss that both minimise, by automatic differentiation."""
    const, tau, smoother, labels = 3.0, 0.01, 0.999999, np.eye(4)[linear.labels.numpy()]
    library_class = art_repairs.CarliniLInfMethod if repaired else evasion.CarliniLInfMethod
    library_attack = build(library_class, linear)
    library_attack.const = const
    free = torch.atanh((linear.inputs * 2 - 1) * smoother) + 0.1 * torch.randn(linear.inputs.shape)
    free.requires_grad_()
    images = (free.tanh() / smoother + 1) / 2
    logits = linear.module(images)
    rest = logits.masked_fill(torch.from_numpy(labels) == 1, -torch.inf).amax(1)
    margin = logits.gather(1, linear.labels[:, None])[:, 0] - rest
    wall = ((images - linear.inputs).abs() - tau).clamp(min=0).sum()
    (expected,) = torch.autograd.grad(const * margin.sum() + wall, free)
    arrays = [each.detach().numpy() for each in (logits, images, free)]
    gradient = library_attack._loss_gradient(
        arrays[0], labels, arrays[1], arrays[2], 0.0, 1.0, linear.inputs.numpy(), tau
    )
    assert torch.allclose(torch.from_numpy(gradient).float(), expected, rtol=1e-3, atol=1e-3) == repaired


@pytest.mark.parametrize("row", ["ead-en", "ead-l1"])
def test_confidence_ignored_by_ead(digits, row):
    result = attack(row, digits.first(4), "l1", steps=20, binary_search_steps=2, initial_const=10.0, confidence=8.0)
    assert result.success.all()
    logits = result.adv_logits
    margin = logits.amax(1) - logits.gather(1, digits.labels[:4, None])[:, 0]
    assert (margin < 8).any()


def test_b19_the_noise_of_zoo_only_makes_brighter(linear):
    case = linear.first(1)
    words = {"use_resize": False, "use_importance": False, "initial_const": 100.0, "learning_rate": 0.05}
    delta = directly("ZooAttack", case, max_iter=2, nb_parallel=64, **words) - case.inputs
    assert delta.max() > 0
    assert delta.min() >= 0


def test_largest_gradients_are_those_that_jsma_takes(digits):
    case = digits.first(4)
    result = attack("jsma", case, "l0", 2, second_likely(case), theta=0.04)
    images = case.inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(case.module(images).gather(1, second_likely(case)[:, None]).sum(), images)
    largest = gradient.flatten(1).topk(2).indices.sort(1).values
    changed = (result.adv_inputs != case.inputs).flatten(1)
    assert changed.sum(1).tolist() == [2] * 4
    assert torch.equal(changed.nonzero()[:, 1].view(4, 2), largest)


def test_truncates_levels_past_its_threshold_but_not_past_the_radius(linear):
    case = linear.first(1)
    levels = (directly("ThresholdAttack", case, th=3, es=1, max_iter=1) - case.inputs).abs() * 255
    assert 3 < levels.max() <= 4
    result = attack("threshold", case, "linf", 4 / 255, steps=1)
    assert result.success.all()
    assert result.violations == ((),)
    assert result.distance <= 4 / 255


def test_not_fixed_budget_wasserstein_goes_past_its_radius(digits):
    case = digits.first(1)
    images = directly("Wasserstein", case, eps=0.01, ball="2", norm="2", eps_iter=1, eps_factor=2.0, max_iter=12)
    assert perturbation_norm(images - case.inputs, "l2") > 0.01


def test_batch_mean_wasserstein_forgets_the_images_that_fail_together(digits):
    words = {"eps": 3.0, "ball": "2", "norm": "2", "eps_step": 0.5, "max_iter": 2}
    together = directly("Wasserstein", digits, batch_size=16, **words)
    alone = torch.cat(
        [
            directly(
                "Wasserstein",
                part(digits, i),
                **words,
            )
            for i in range(16)
        ]
    )
    untouched = (alone == digits.inputs).flatten(1).all(1)
    assert untouched.any()
    assert not torch.equal(together[untouched], digits.inputs[untouched])


def test_gradient_overflow_is_a_failed_attack_with_its_reason(digits):
    case = digits.first(1)
    with pytest.raises(AttackFailed, match="Overflow error in `_conjugate_sinkhorn`"):
        attack("wasserstein", case, "unrestricted", None, second_likely(case), steps=1)


@pytest.mark.parametrize("name", ["acg", "reacg"])
def test_conjugate_gradients_step_along_the_sign_only_when_repaired(digits, name):
    """sign-unused."""
    given = {"steps": 40, "step_size": 0.24, "restarts": 1}
    shipped, repaired = (attack(f"{name}{kind}", digits, "linf", 0.12, **given) for kind in ("", "@fixed"))
    pgd = attack("pgd", digits, "linf", 0.12, steps=40, step_size=0.0075)
    assert shipped.success.sum() < 5
    assert repaired.success.sum() >= pgd.success.sum() > 12


@pytest.mark.parametrize("name", ["acg", "reacg"])
def test_conjugate_gradients_stop_where_the_loss_is_zero(digits, name):
    """stops-at-zero-loss."""
    given = {"steps": 20, "step_size": 0.24, "restarts": 1, "batch_size": 1}
    shipped, repaired = (attack(f"{name}{kind}", digits, "linf", 0.12, **given) for kind in ("", "@fixed"))
    assert (shipped.backwards == 2).any()
    assert (repaired.backwards == 20).all()


def test_step_alone_short_steps_of_a_targeted_universal_perturbation_learn_nothing(digits):
    """A step of 0.5 leads no image to class 2 by itself; summed over images, such steps would."""
    others = digits.labels != 2
    case = digits._replace(inputs=digits.inputs[others], labels=digits.labels[others])
    words = {"max_iter": 10, "eps": 3.0, "norm": 2}
    wanted = np.eye(10, dtype=np.float32)[np.full(len(case.labels), 2)]
    noise = {}
    for step in (0.5, 3.0):
        inner = {"targeted": True, "norm": 2, "eps": step}
        learner = build(evasion.TargetedUniversalPerturbation, case, attacker_params=inner, **words)
        learner.generate(case.inputs.numpy().copy(), wanted)
        noise[step] = learner.noise
    assert not noise[0.5].any()
    assert noise[3.0].any()
    shared = torch.zeros_like(case.inputs[:1])
    for _ in range(10):
        shared.requires_grad_()
        loss = nn.functional.cross_entropy(
            case.module((case.inputs + shared).clamp(0, 1)), torch.full_like(case.labels, 2)
        )
        (gradient,) = torch.autograd.grad(loss, shared)
        shared = (shared - 0.5 * gradient / gradient.norm()).detach()
        shared = shared * (3.0 / shared.norm()).clamp(max=1)
    assert (case.module((case.inputs + shared).clamp(0, 1)).argmax(1) == 2).float().mean() > 0.3


def test_by_default_a_targeted_universal_perturbation_steps_away_from_its_target(digits):
    """Why the row tells the FGSM inside that it is targeted."""
    shipped = build(evasion.TargetedUniversalPerturbation, digits, eps=3.0, norm=2)
    assert not shipped._get_attack("fgsm", shipped.attacker_params).targeted


PAIR = ("art:deepfool@fixed", "foolbox:deepfool")


def test_deepfool_adds_its_overshoot_once_it_has_crossed_without_it():
    """overshoot-at-the-end: with the overshoot of 2 % that Foolbox looks with, it goes a little farther, if at all."""
    model, (inputs, labels) = make_model(3, 1), make_images(3, 1, 16)
    shared = {"norm": "l2", "overshoot": 0.02, "candidates": 10, "steps": 20}
    late, early = (davylamp.run_attack(name, model, inputs, labels, **shared) for name in PAIR)
    ratio = late.distance / early.distance
    assert "overshoot-at-the-end" in IMPLEMENTATIONS[PAIR[0]].findings
    assert late.success.all()
    assert early.success.all()
    assert ratio.median() > 1.001
    assert 1.01 < ratio.max() < 1.021


def test_linf_carlini_takes_any_wrong_class_whatever_the_confidence():
    """confidence-in-the-loss: a margin below 5 counts as success with a confidence of 5."""
    model, (inputs, labels) = make_model(3, 1), make_images(3, 1, 1)
    few = {"steps": 5, "binary_search_steps": 2, "initial_const": 1.0, "confidence": 5.0}
    result = davylamp.run_attack("art:cw", model, inputs, labels, norm="linf", **few)
    assert "confidence-in-the-loss" in known_issues_of(IMPLEMENTATIONS["art:cw"], "linf")
    assert "confidence-in-the-loss" not in known_issues_of(IMPLEMENTATIONS["art:cw"], "l2")
    assert result.success.all()
    top = result.adv_logits.topk(2).values
    assert (top[:, 0] - top[:, 1] < 1).all()


def call(name: str, case: Any, threat_model: ThreatModel, seed: int = SEED, **words: Any) -> Any:
    """One library call in ART's words, without a limit on queries; and all that it asks."""
    classifier = Classifier(Recorded(case.module))
    classifier.check(case.inputs)
    classifier.model.asked.clear()
    images = Images(case.inputs, case.labels, None)
    result = call_library(IMPLEMENTATIONS[f"art:{name}"], classifier, images, threat_model, words, seed, CallLimits())
    assert result.error is None
    return result, classifier.model.asked


@cache
def uncompiled_brendel_bethge() -> Any:
    """ART's module without numba's compiler, which would take minutes for the same images."""

    def plain(spec: Any = None) -> Any:
        return lambda cls: setattr(cls, "class_type", SimpleNamespace(instance_type=None)) or cls

    from art.attacks.evasion import brendel_bethge
    from numba import experimental

    spec = importlib.util.spec_from_file_location("uncompiled_brendel_bethge", brendel_bethge.__file__)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experimental, "jitclass", plain)
        spec.loader.exec_module(module)
    sys.modules[spec.name] = module
    return module


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize(("norm", "order"), [("linf", np.inf), ("l2", 2), ("l1", 1), ("l0", 0)])
def test_brendel_bethge_is_the_library_s_one_by_one_and_silent(linear, norm, order, targeted, capfd):
    case, words = linear.first(2), {"steps": 3, "lr": 0.02}
    targets = case.module(case.inputs).topk(2).indices[:, 1] if targeted else None
    library_class = uncompiled_brendel_bethge().BrendelBethgeAttack
    capfd.readouterr()
    row = IMPLEMENTATIONS["art:brendel-bethge"]
    row = replace(row, classes={norm: "uncompiled_brendel_bethge:BrendelBethgeAttack"})
    result = run_attack(
        row,
        Classifier(case.module),
        case.inputs,
        case.labels,
        ThreatModel(norm, targeted=targeted),
        targets=targets,
        steps=3,
        learning_rate=0.02,
        seed=SEED,
    )
    assert capfd.readouterr().err == ""
    for i in range(2):
        one = part(case, i)
        target = None if targets is None else targets[i : i + 1]
        counter = QueryCounter(linear.classifier, one.inputs, one.labels, ThreatModel(norm))
        counter.classifier.check(one.inputs)
        starts, _ = find_starting_points(counter, one.inputs, one.labels, target, call_seed(SEED, i, 0))
        model = Recorded(case.module)
        library_attack = build(library_class, one, model, norm=order, targeted=targeted, **words)
        wanted = (one.labels if target is None else target).numpy()
        expected = library_attack.generate(one.inputs.numpy().copy(), wanted, starting_points=starts.numpy())
        assert torch.equal(result.adv_inputs[i : i + 1], torch.from_numpy(expected).clamp(0, 1))
        assert result.backwards[i] == 3


@pytest.mark.parametrize(("norm", "order"), [("l2", 2), ("linf", np.inf), ("l1", 1)])
def test_geoda_is_the_library_s_without_np_mat_and_without_a_file(digits, norm, order, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = digits.first(1)
    result, asked = call("geoda", case, ThreatModel(norm), max_iter=400, sub_dim=3)
    assert list(tmp_path.iterdir()) == []
    assert not hasattr(np, "mat")
    assert inspect.getmodule(evasion.GeoDA).np is np
    monkeypatch.setattr(np, "mat", np.asmatrix, raising=False)
    direct = Recorded(digits.module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        expected = directly("GeoDA", case, direct, norm=order, max_iter=400, sub_dim=3)
    assert torch.equal(result.adv_inputs, expected)
    assert result.forwards.item() == sum(map(len, direct.asked)) == sum(map(len, asked))


def test_multiprocess_is_the_standard_module_only_where_it_is_missing(monkeypatch):
    monkeypatch.delitem(sys.modules, "multiprocess", raising=False)
    monkeypatch.setattr(art_repairs, "find_spec", lambda _: None)
    with art_repairs.multiprocess_alias():
        assert sys.modules["multiprocess"].__name__ == "multiprocessing"
    assert "multiprocess" not in sys.modules
    monkeypatch.setattr(art_repairs, "find_spec", lambda _: "found")
    with art_repairs.multiprocess_alias():
        assert "multiprocess" not in sys.modules


@pytest.mark.parametrize(("loss", "words"), [("ce", "cross_entropy"), ("dlr", "difference_logits_ratio")])
def test_queries_of_a_shrinking_batch_belong_to_the_images_still_attacked(digits, loss, words):
    step, sizes = {"steps": 4, "step_size": 0.12}, {"eps": 0.06, "eps_step": 0.12, "max_iter": 4}
    result = attack(f"apgd-{loss}", digits, "linf", 0.06, restarts=2, **step)
    module = Recorded(digits.module)
    first = directly("AutoProjectedGradientDescent", digits, module, nb_random_init=1, loss_type=words, **sizes)
    robust = digits.module(first).argmax(1) == digits.labels
    assert 0 < robust.sum() < len(robust)
    # A restart: a prediction of all; of the robust ones 4 gradients, 5 losses and a prediction.
    expected = 2 + 10 + 10 * robust.long()
    # And an image of ones, to see whether the model gives probabilities.
    expected[(1 - digits.inputs).flatten(1).norm(dim=1).argmin()] += 1
    assert torch.equal(result.forwards, expected)
    assert torch.equal(result.backwards, 4 + 4 * robust.long())


class Padded(nn.Module):
    """Two classes that are never predicted, before the others."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.pad(self.module(inputs), (2, 0), value=-100.0)


def test_deepfool_repaired_is_the_shipped_one_on_classes_in_order_of_likelihood(digits):
    """In that order the places of the classes are the classes, so that the shipped one looks them up rightly."""
    case, words = digits.first(6), {"steps": 20, "overshoot": 0.02, "candidates": 3}
    shipped, repaired = (attack(name, case, "l2", **words) for name in ("deepfool", "deepfool@fixed"))
    assert repaired.success.all()
    assert (~shipped.success | (shipped.distance > 1.1 * repaired.distance)).sum() >= 4
    for i in range(6):
        one = part(case, i)
        ordered = Recorded(case.module, case.module(one.inputs)[0].argsort(descending=True))
        expected = directly("DeepFool", one, ordered, max_iter=20, epsilon=0.02, nb_grads=3)
        assert torch.equal(repaired.adv_inputs[i : i + 1], expected)


@pytest.mark.parametrize(("norm", "order", "epsilon"), [("l2", 2, 3.0), ("linf", np.inf, 0.3)])
def test_uap_repaired_is_not_misled_by_unlikely_classes(digits, norm, order, epsilon):
    case = digits.first(1)
    padded, threat_model = case._replace(module=Padded(case.module), labels=case.labels + 2), ThreatModel(norm, epsilon)
    expected = directly("UniversalPerturbation", case, norm=order, eps=epsilon, max_iter=1)
    repaired, _ = call("uap@fixed", padded, threat_model, max_iter=1)
    shipped, _ = call("uap", padded, threat_model, max_iter=1)
    assert torch.allclose(repaired.adv_inputs, expected, atol=1e-6)
    assert not torch.allclose(shipped.adv_inputs, expected, atol=1e-2)


@pytest.mark.parametrize(("repaired", "rows"), [(True, 4), (False, 1)])
def test_spatial_repaired_asks_about_shifts_of_that_many_pixels(digits, repaired, rows):
    case, words = digits.first(1), {"max_translation": 4.0, "num_translations": 3}
    name = "spatial@fixed" if repaired else "spatial"
    _, asked = call(name, case, ThreatModel("unrestricted"), max_rotation=20.0, num_rotations=2, **words)
    expected = [
        rotate(shift(case.inputs.numpy(), [0, 0, down, right]), angle, axes=(2, 3), reshape=False).clip(0, 1)
        for down in (-rows, 0, rows)
        for right in (-4, 0, 4)
        for angle in (-20, 20)
    ]
    assert torch.equal(torch.cat(asked[1:]), torch.from_numpy(np.concatenate(expected)))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_hopskipjump_repaired_ends_on_the_boundary(digits, norm):
    case, words = digits.first(4), {"steps": 2, "initial_evaluations": 30}
    shipped, repaired = (attack(name, case, norm, **words) for name in ("hopskipjump", "hopskipjump@fixed"))
    before, after = shipped.adv_inputs - case.inputs, repaired.adv_inputs - case.inputs
    assert (repaired.distance < 0.9 * shipped.distance).all()
    assert repaired.success.all()
    for i, (far, near) in enumerate(zip(shipped.distance.tolist(), repaired.distance.tolist(), strict=True)):
        towards = (
            (lambda d, i=i, far=far: before[i] * d / far) if norm == "l2" else lambda d, i=i: before[i].clamp(-d, d)
        )
        assert torch.allclose(after[i], towards(near), atol=1e-5)
        assert case.module((case.inputs[i] + towards(0.98 * near))[None]).argmax() == case.labels[i]


def test_square_repaired_scales_its_window_as_the_paper_does(digits):
    """Of a full ball: the new window's energy, per channel, is that of what both windows erase."""
    radius, checked = 0.1, 0
    for name, expected in (("square", lambda erased: 3 / erased), ("square@fixed", lambda erased: 3 * erased)):
        for i in range(16):
            case = part(digits, i)
            _, asked = call(name, case, ThreatModel("l2", radius), seed=i, max_iter=1, p_init=0.3)
            if not torch.equal(asked[2], asked[3]):
                continue
            old, new = (asked[k].double() - case.inputs for k in (2, 5))
            kept = (new[old != 0] / old[old != 0]).median()
            changed = (new - kept * old).abs() > 1e-6
            erased = old[changed].square().sum()
            ratio = new[changed].square().sum() / new[~changed].square().sum()
            assert ratio.item() == pytest.approx((expected(erased) / (radius**2 - erased)).item(), rel=0.02)
            checked += 1
    assert checked >= 4
