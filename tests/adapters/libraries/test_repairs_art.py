"""What davylamp mends in ART, and the defects that it leaves: each shown in the library as shipped."""

import importlib.util
import inspect
import random
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

from davylamp.adapters import IMPLEMENTATIONS, Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.art import repairs as art_repairs
from davylamp.adapters.running.call import Images, Meter, call_library
from davylamp.adapters.running.queries import QueryCounter
from davylamp.adapters.running.seeding import call_seed
from davylamp.adapters.running.starting_points import find_starting_points

SEED = 7


class Recorded(nn.Module):
    """The module, its logits in another order, and all that it is asked."""

    def __init__(self, module: nn.Module, order: Tensor | None = None):
        super().__init__()
        self.module, self.order, self.asked = module, order, []

    def forward(self, inputs: Tensor) -> Tensor:
        self.asked.append(inputs.detach().clone())
        logits = self.module(inputs.float())
        return logits if self.order is None else logits[:, self.order]


def estimate(module: nn.Module, inputs: Tensor) -> PyTorchClassifier:
    classes, shape = module.module(inputs).shape[1], tuple(inputs.shape[1:])
    return PyTorchClassifier(module, nn.CrossEntropyLoss(), shape, classes, clip_values=(0.0, 1.0), device_type="cpu")


def directly(library_class: Any, case: Any, module: nn.Module | None = None, **words: Any) -> Tensor:
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    attack_class = getattr(evasion, library_class) if isinstance(library_class, str) else library_class
    if "verbose" in inspect.signature(attack_class).parameters:
        words["verbose"] = False
    attack = attack_class(estimate(module or Recorded(case.module), case.inputs), **words)
    return torch.from_numpy(attack.generate(case.inputs.numpy().copy(), case.labels.numpy()))


def call(name: str, case: Any, threat_model: ThreatModel, seed: int = SEED, **words: Any) -> Any:
    """One library call in ART's words, without a limit on queries; and all that it asks."""
    classifier = Classifier(Recorded(case.module))
    classifier.check(case.inputs)
    classifier.model.asked.clear()
    images = Images(case.inputs, case.labels, None)
    result = call_library(IMPLEMENTATIONS[f"art:{name}"], classifier, images, threat_model, words, seed, Meter())
    assert result.error is None
    return result, classifier.model.asked


def attack(name: str, case: Any, norm: str, epsilon: float | None = None, targets: Any = None, **words: Any) -> Any:
    threat_model, classifier = ThreatModel(norm, epsilon, targeted=targets is not None), Classifier(case.module)
    return run_attack(
        f"art:{name}", classifier, case.inputs, case.labels, threat_model, targets=targets, seed=SEED, **words
    )


def part(case: Any, start: int, stop: int) -> Any:
    return case._replace(inputs=case.inputs[start:stop], labels=case.labels[start:stop])


# What keeps a row from running.


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
    case, words = part(linear, 0, 2), {"steps": 3, "lr": 0.02}
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
        one = part(case, i, i + 1)
        target = None if targets is None else targets[i : i + 1]
        counter = QueryCounter(linear.classifier, one.inputs, one.labels, ThreatModel(norm))
        counter.classifier.check(one.inputs)
        starts, _ = find_starting_points(counter, one.inputs, one.labels, target, call_seed(SEED, i, 0))
        model = Recorded(case.module)
        library_attack = library_class(estimate(model, one.inputs), norm=order, targeted=targeted, **words)
        wanted = (one.labels if target is None else target).numpy()
        expected = library_attack.generate(one.inputs.numpy().copy(), wanted, starting_points=starts.numpy())
        assert torch.equal(result.adv_inputs[i : i + 1], torch.from_numpy(expected).clamp(0, 1))
        assert result.backwards[i] == 3


@pytest.mark.parametrize(("norm", "order"), [("l2", 2), ("linf", np.inf), ("l1", 1)])
def test_geoda_is_the_library_s_without_np_mat_and_without_a_file(digits, norm, order, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = part(digits, 0, 1)
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


def test_geoda_ends_where_no_noise_fools_the_model(digits, monkeypatch):
    monkeypatch.setattr(art_repairs, "DRAWS", 20)
    constant = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    constant[1].weight.data.zero_()
    constant[1].bias.data = torch.arange(10.0).flip(0)
    case = digits._replace(module=constant, inputs=digits.inputs[:1], labels=torch.tensor([0]))
    result = attack("geoda", case, "l2", max_queries=400)
    assert (result.violations, result.success.tolist()) == ((("no-start",),), [False])
    assert inspect.getmodule(evasion.GeoDA).np is np


@pytest.mark.parametrize("queries", [1, 249, 250, 251, 499, 750, 1000])
def test_geoda_has_a_plan_for_every_number_of_queries(digits, queries):
    assert attack("geoda", part(digits, 0, 1), "l2", max_queries=queries).forwards <= queries


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


# The few lines of the repaired rows.


class Padded(nn.Module):
    """Two classes that are never predicted, before the others."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.pad(self.module(inputs), (2, 0), value=-100.0)


def test_deepfool_repaired_is_the_shipped_one_on_classes_in_order_of_likelihood(digits):
    """In that order the places of the classes are the classes, so that the shipped one looks them up rightly."""
    case, words = part(digits, 0, 6), {"steps": 20, "overshoot": 0.02, "candidates": 3}
    shipped, repaired = (attack(name, case, "l2", **words) for name in ("deepfool", "deepfool@repaired"))
    assert repaired.success.all()
    assert (~shipped.success | (shipped.distance > 1.1 * repaired.distance)).sum() >= 4
    for i in range(6):
        one = part(case, i, i + 1)
        ordered = Recorded(case.module, case.module(one.inputs)[0].argsort(descending=True))
        expected = directly("DeepFool", one, ordered, max_iter=20, epsilon=0.02, nb_grads=3)
        assert torch.equal(repaired.adv_inputs[i : i + 1], expected)


@pytest.mark.parametrize(("norm", "order", "epsilon"), [("l2", 2, 3.0), ("linf", np.inf, 0.3)])
def test_uap_repaired_is_not_misled_by_unlikely_classes(digits, norm, order, epsilon):
    case = part(digits, 0, 2)
    padded, threat_model = case._replace(module=Padded(case.module), labels=case.labels + 2), ThreatModel(norm, epsilon)
    expected = directly("UniversalPerturbation", case, norm=order, eps=epsilon, max_iter=1)
    repaired, _ = call("uap@repaired", padded, threat_model, max_iter=1)
    shipped, _ = call("uap", padded, threat_model, max_iter=1)
    assert torch.allclose(repaired.adv_inputs, expected, atol=1e-6)
    assert not torch.allclose(shipped.adv_inputs, expected, atol=1e-2)


@pytest.mark.parametrize(("repaired", "rows"), [(True, 4), (False, 1)])
def test_spatial_repaired_asks_about_shifts_of_that_many_pixels(digits, repaired, rows):
    case, words = part(digits, 0, 1), {"max_translation": 4.0, "num_translations": 3}
    name = "spatial@repaired" if repaired else "spatial"
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
    case, words = part(digits, 0, 4), {"steps": 2, "initial_evaluations": 30}
    shipped, repaired = (attack(name, case, norm, **words) for name in ("hopskipjump", "hopskipjump@repaired"))
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
    for name, expected in (("square", lambda erased: 3 / erased), ("square@repaired", lambda erased: 3 * erased)):
        for i in range(16):
            case = part(digits, i, i + 1)
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
