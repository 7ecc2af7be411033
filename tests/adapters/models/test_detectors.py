"""Detectors give the scores of the library called directly, or of the paper's formula; a file gives them again."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from art.defences.detector.evasion import BinaryActivationDetector, BinaryInputDetector, SubsetScanningDetector
from art.defences.preprocessor import FeatureSqueezing, SpatialSmoothing
from art.estimators.classification import PyTorchClassifier
from sklearn.datasets import load_digits
from sklearn.neighbors import KernelDensity
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.models.detectors.detector_file import TrainedDetector, pack_detector, read_detector, threshold_at
from davylamp.adapters.models.detectors.detector_rows import DETECTORS, find_detector
from davylamp.adapters.models.detectors.dimensionality import dimension
from davylamp.adapters.models.detectors.joint_classifier import add_detector
from davylamp.adapters.models.detectors.layer_outputs import collect_activations
from davylamp.adapters.models.detectors.scorer import ExamplePairs
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.running.seeding import seeded
from davylamp.adapters.running.targets import choose_targets, class_logits
from davylamp.errors import InvalidInput, Unavailable, UnknownName, Unsupported

QUICK = {"epochs": 2, "batch_size": 32}


@pytest.fixture(scope="module")
def world(digits) -> Any:
    """The digits CNN, 120 clean images with labels, and 30 of them moved a step up the loss."""
    data: Any = load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1) * 0.9 + 0.05
    images = nn.functional.interpolate(images, scale_factor=2)[:120].contiguous()
    labels = torch.tensor(data.target)[:120]
    leaf = images[:30].clone().requires_grad_()
    nn.functional.cross_entropy(digits.module(leaf), labels[:30]).backward()
    adversarial = (images[:30] + 0.15 * leaf.grad.sign()).clamp(0, 1)
    classifier = Classifier(digits.module, num_classes=10, name="digits").freeze()
    return SimpleNamespace(
        classifier=classifier, images=images, labels=labels, pairs=ExamplePairs(images[:30], adversarial)
    )


def fitted(world, name, **given):
    row = find_detector(name)
    scorer = row.load()(world.classifier, **row.complete(given))
    with seeded(5):
        scorer.fit(world.images, world.labels, world.pairs if row.learns_examples else None)
    return scorer


def in_arts_hands(network, shape, rate=1e-3):
    optimiser = torch.optim.Adam(network.parameters(), rate)
    return PyTorchClassifier(network, nn.CrossEntropyLoss(), shape, 2, optimizer=optimiser, device_type="cpu")


def both_kinds(world):
    images = torch.cat([world.images, world.pairs.adversarial])
    return images, np.repeat([0, 1], [len(world.images), len(world.pairs.adversarial)])


def test_binary_input_is_arts_detector_with_the_same_network(world):
    scorer = fitted(world, "binary-input", **QUICK)
    images, truth = both_kinds(world)
    with seeded(5):
        network = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()),
            nn.Linear(512, 2),
        )
        direct = BinaryInputDetector(in_arts_hands(network, (3, 16, 16)))
        direct.fit(images.numpy(), truth, batch_size=32, nb_epochs=2)
    report, flags = direct.detect(images.numpy())
    scores = scorer.score(images)
    assert torch.allclose(scores.float(), torch.tensor(report["predictions"][:, 1] - report["predictions"][:, 0]))
    assert ((scores > 0).numpy() == flags).all()


def test_binary_activation_is_arts_detector_on_a_layer_that_art_can_name(world, digits):
    scorer = fitted(world, "binary-activation", **QUICK)
    images, truth = both_kinds(world)
    model = PyTorchClassifier(deepcopy(digits.module), nn.CrossEntropyLoss(), (3, 16, 16), 10, device_type="cpu")
    with seeded(5):
        network = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 2))
        direct = BinaryActivationDetector(model, in_arts_hands(network, (256,)), layer=4)
        direct.fit(images.numpy(), truth, batch_size=32, nb_epochs=2)
    report, _ = direct.detect(images.numpy())
    expected = torch.tensor(report["predictions"][:, 1] - report["predictions"][:, 0])
    assert torch.allclose(scorer.score(images).float(), expected, atol=1e-5)


def test_subset_scanning_is_arts_detector_on_a_layer_that_art_can_name(world, digits):
    scorer = fitted(world, "subset-scanning")
    model = PyTorchClassifier(deepcopy(digits.module), nn.CrossEntropyLoss(), (3, 16, 16), 10, device_type="cpu")
    direct = SubsetScanningDetector(model, world.images.numpy(), layer=4, verbose=False)
    some = torch.cat([world.images[:4], world.pairs.adversarial[:4]])
    report, _ = direct.detect(some.numpy())
    assert np.allclose(scorer.score(some).numpy(), report["scores"])


def test_squeezing_is_the_larger_of_two_l1_distances(world):
    scores = fitted(world, "feature-squeezing", bits=3).score(world.images[:5])
    arrays = world.images[:5].numpy()
    clean = world.classifier(world.images[:5]).softmax(1)
    squeezers = (
        FeatureSqueezing((0.0, 1.0), bit_depth=3),
        SpatialSmoothing(3, channels_first=True, clip_values=(0.0, 1.0)),
    )
    moved = [
        (world.classifier(torch.tensor(squeeze(arrays)[0], dtype=torch.float32)).softmax(1) - clean).abs().sum(1)
        for squeeze in squeezers
    ]
    assert torch.allclose(scores.float(), torch.maximum(*moved), atol=1e-6)
    assert scores.max() <= 2


def test_kernel_density_is_scikit_learns_of_the_predicted_class(world):
    scorer = fitted(world, "kernel-density", bandwidth=0.7)
    points = collect_activations(world.classifier, world.images)
    right = world.classifier(world.images).argmax(1) == world.labels
    images = torch.cat([world.images[:6], world.pairs.adversarial[:6]])
    seen, predicted = collect_activations(world.classifier, images), world.classifier(images).argmax(1)
    for score, activation, label in zip(scorer.score(images), seen, predicted, strict=True):
        of_class = points[right & (world.labels == label)].double().numpy()
        direct = KernelDensity(bandwidth=0.7).fit(of_class).score_samples(activation.double().numpy()[None])[0]
        assert float(score) == pytest.approx(-direct, rel=1e-5)


def test_the_bandwidth_makes_images_likeliest_when_each_is_left_out(world):
    scorer = fitted(world, "kernel-density")
    points, chosen = scorer.state()["points"], float(scorer.state()["bandwidth"])
    classes = scorer.state()["classes"]

    def left_out(bandwidth):
        lines = []
        for place, label in enumerate(classes):
            others = points[(classes == label) & (torch.arange(len(points)) != place)].numpy()
            lines.append(KernelDensity(bandwidth=bandwidth).fit(others).score_samples(points[place].numpy()[None])[0])
        return np.mean(lines)

    assert left_out(chosen) > max(left_out(chosen * 1.5), left_out(chosen / 1.5))


@pytest.mark.parametrize("truth", [2, 5])
def test_the_dimension_of_a_flat_cloud_is_its_number_of_directions(truth):
    generator = torch.Generator().manual_seed(0)
    cloud = torch.rand(4000, truth, generator=generator) @ torch.randn(truth, 20, generator=generator)
    estimates = dimension(cloud[:200], cloud[200:], 50)
    assert float(estimates.mean()) == pytest.approx(truth, rel=0.15)


def test_the_dimension_is_its_formula():
    generator = torch.Generator().manual_seed(0)
    points, others = torch.rand(3, 4, generator=generator), torch.rand(30, 4, generator=generator)
    for point, estimate in zip(points, dimension(points, others, 7), strict=True):
        distances = np.sort(np.linalg.norm(others.double().numpy() - point.double().numpy(), axis=1))[:7]
        assert float(estimate) == pytest.approx(-1 / np.mean(np.log(distances / distances[-1])), rel=1e-6)


def test_dimensions_tell_an_attack_from_noise(world):
    scorer = fitted(world, "lid", neighbours=10, reference=50)
    clean, strange = scorer.score(world.images), scorer.score(world.pairs.adversarial)
    assert strange.median() > clean.median()
    assert len(scorer.state()["weights"]) == 3  # two convolutions and a linear layer


def trained(world, name, tmp_path, **given) -> tuple[Any, Any]:
    scorer = fitted(world, name, **given)
    row = find_detector(name)
    parameters = row.complete(given)
    digest = digest_model(world.classifier)
    calibration = scorer.score(world.images[30:])
    made = TrainedDetector(
        row, parameters, scorer.state(), calibration, "digits", digest, frozenset(["a"]), {"seed": 5}
    )
    torch.save(pack_detector(made), tmp_path / "d.pt")
    return scorer, read_detector(tmp_path / "d.pt")


GIVEN = {"art:binary-input": QUICK, "art:binary-activation": QUICK, "davylamp:lid": {"neighbours": 10, "reference": 50}}


@pytest.mark.parametrize("name", ["art:subset-scanning", "davylamp:lid"])
def test_what_is_compared_on_the_cpu_stays_there_whatever_the_models_device(world, name, tmp_path, monkeypatch):
    """A GPU's model had their state on the GPU, which NumPy and the regression do not take; "meta" holds no values."""
    before, stored = trained(world, name, tmp_path, **GIVEN.get(name, {}))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Classifier, "device", torch.device("meta"))
        again = stored.bind(world.classifier, stored.model_digest)
    assert {tensor.device.type for tensor in again.state().values()} == {"cpu"}
    assert torch.equal(again.score(world.images[:6]), before.score(world.images[:6]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", DETECTORS)
def test_a_gpu_gives_the_scores_of_a_cpu(world, name, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    before, stored = trained(world, name, tmp_path, **GIVEN.get(name, {}))
    there = Classifier(deepcopy(world.classifier.model), num_classes=10, name="digits", device="cuda")
    images = world.images[:6] * 0.93 + 0.02  # not seen in training: ranks of those are ties that a rounding breaks
    scores = stored.bind(there, stored.model_digest).score(images.cuda())
    assert scores.device.type == "cpu"
    torch.testing.assert_close(scores, before.score(images), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", DETECTORS)
def test_a_file_gives_the_same_scores(world, tmp_path, name):
    scorer, stored = trained(world, name, tmp_path, **GIVEN.get(name, {}))
    again = stored.bind(world.classifier, digest_model(world.classifier))
    assert torch.equal(again.score(world.images[:8]), scorer.score(world.images[:8]))
    assert (stored.row.full_name, stored.seen, stored.card) == (name, frozenset(["a"]), {"seed": 5})
    with pytest.raises(InvalidInput, match="was trained for a different version"):
        stored.bind(world.classifier, "0" * 20)


@pytest.mark.parametrize("name", [name for name, row in DETECTORS.items() if row.differentiable])
def test_what_is_differentiable_has_the_gradient_of_its_score(world, tmp_path, name):
    scorer = fitted(world, name, **GIVEN.get(name, {}))
    image = world.images[3:4].clone().requires_grad_()
    value = scorer.score_with_gradients(image)
    assert torch.allclose(value.detach().double(), scorer.score(image.detach()), rtol=1e-4)
    (gradient,) = torch.autograd.grad(value.sum(), image)
    direction = torch.randn(image.shape, generator=torch.Generator().manual_seed(0))
    ahead, behind = (scorer.score(image.detach() + side * 1e-3 * direction) for side in (1, -1))
    assert float((gradient * direction).sum()) == pytest.approx(float(ahead - behind) / 2e-3, rel=0.05, abs=0.05)


def test_the_line_leaves_at_most_the_rate_above_it(world, tmp_path):
    _, stored = trained(world, "feature-squeezing", tmp_path)
    scores = torch.rand(90, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stored = replace(stored, calibration=scores)
    for rate in (0.0, 0.01, 0.05, 0.5):
        line = threshold_at(stored.calibration, rate)
        assert int((scores > line).sum()) <= rate * len(scores)
        lower = scores[scores < line].max()
        assert int((scores > lower).sum()) > rate * len(scores)
    assert threshold_at(stored.calibration, 1 - 1e-12) == scores.min()
    with pytest.raises(InvalidInput, match="false-positive rate"):
        threshold_at(stored.calibration, 1.0)


@pytest.fixture
def joint(world, tmp_path):
    _, stored = trained(world, "art:binary-input", tmp_path, **QUICK)
    return add_detector(world.classifier, f"detector:{tmp_path / 'd.pt'},fpr=0.1", "", "joint"), stored


def test_the_last_class_of_the_joint_model_wins_where_the_detector_speaks(world, joint):
    model, stored = joint
    images = torch.cat([world.images[:60], world.pairs.adversarial])
    logits = model(images)
    assert torch.equal(logits[:, :10], world.classifier(images))
    score = stored.bind(world.classifier, stored.model_digest).score(images)
    assert torch.equal(logits.argmax(1) == 10, score > threshold_at(stored.calibration, 0.1))
    assert model.detects
    assert digest_model(model) != digest_model(world.classifier)


def test_with_a_detector_a_random_model_stays_random(world, tmp_path):
    trained(world, "art:binary-input", tmp_path, **QUICK)
    for is_random in (False, True):
        inner = Classifier(world.classifier.model, num_classes=10, name="digits", random=is_random)
        assert add_detector(inner, f"detector:{tmp_path / 'd.pt'}", "", "joint").random is is_random


def test_an_attack_on_the_joint_model_counts_only_what_is_not_detected(world, joint):
    model, stored = joint
    images, labels = world.images[60:80], world.labels[60:80]
    targets = choose_targets(class_logits(model, model(images)), labels, "random", 0)
    assert int(targets.max()) < 10
    rules = ThreatModel("linf", 0.3, targeted=True)
    result = run_attack("foolbox:pgd", model, images, labels, rules, targets=targets, steps=20)
    scorer = stored.bind(world.classifier, stored.model_digest)
    undetected = scorer.score(result.adv_inputs) <= threshold_at(stored.calibration, 0.1)
    at_target = world.classifier(result.adv_inputs).argmax(1) == targets
    assert torch.equal(result.success, result.attacked & undetected & at_target)
    assert result.success.any()
    with pytest.raises(Unsupported, match="must be targeted"):
        run_attack("foolbox:pgd", model, images, labels, ThreatModel("linf", 0.3))


class _Answering(nn.Module):
    """A model of which only answers are here."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, inputs):
        return self.answer(inputs)


@pytest.mark.parametrize("name", ["lid", "kernel-density", "binary-activation"])
def test_a_model_whose_layers_are_elsewhere_is_refused(world, name):
    """A detector of activations would get the logits in their place."""
    elsewhere = Classifier(_Answering(world.classifier.model.forward), num_classes=10)
    assert torch.equal(elsewhere(world.images), world.classifier(world.images))
    with pytest.raises(Unsupported, match="expected a model whose layers can be read"):
        fitted(SimpleNamespace(**vars(world) | {"classifier": elsewhere}), name)


def test_bad_input_is_one_line(world, tmp_path):
    with pytest.raises(UnknownName, match=r"unknown detector 'binary'; did you mean"):
        find_detector("binary")
    with pytest.raises(UnknownName, match="parameter of davylamp:lid 'steps'"):
        find_detector("lid").complete({"steps": 3})
    with pytest.raises(InvalidInput, match="odd number"):
        find_detector("feature-squeezing").complete({"window": 4})
    with pytest.raises(UnknownName, match="unknown layer '7'"):
        fitted(world, "kernel-density", layer="7")
    with pytest.raises(Unavailable, match="train a detector with davylamp fit"):
        read_detector(tmp_path / "none.pt")
    torch.save(world.classifier.model, tmp_path / "program.pt")
    with pytest.raises(Unavailable, match=r"expected a trained detector in .* contains code"):
        read_detector(tmp_path / "program.pt")
    torch.save({"format": "else"}, tmp_path / "else.pt")
    with pytest.raises(InvalidInput, match="expected a trained detector in"):
        read_detector(tmp_path / "else.pt")
    trained(world, "subset-scanning", tmp_path)
    with pytest.raises(Unsupported, match="art:subset-scanning has no gradients"):
        add_detector(world.classifier, f"detector:{tmp_path / 'd.pt'}", "", "joint")
    with pytest.raises(InvalidInput, match="expected more than 240 clean images for 120 neighbours, got 120"):
        fitted(world, "lid", neighbours=120)


class Lost(nn.Module):
    """Logits that are not finite, of a network whose layers are."""

    def forward(self, logits):
        return logits * torch.nan


def test_an_answer_that_is_not_finite_is_of_no_class_whose_density_could_be_asked(world):
    scorer = fitted(world, "kernel-density", bandwidth=0.7)
    scorer.classifier = Classifier(nn.Sequential(world.classifier.model, Lost()), num_classes=10)
    assert scorer.score(world.images[:3]).isnan().all()
