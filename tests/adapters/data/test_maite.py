"""MAITE both ways: its protocols accept ours, its workflow evaluates ours, and its models are attacked as ours are."""

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.errors import InvalidInput, Unsupported

maite = pytest.importorskip("maite.tasks", reason="needs the extra maite")
from maite.protocols import generic  # noqa: E402


class Stacked(nn.Module):
    """A MAITE model in torch: differentiable."""

    def __init__(self, module):
        super().__init__()
        self.module, self.metadata = module, {"id": "theirs"}

    def forward(self, batch):
        return list(self.module(torch.stack(batch)))


class Opaque:
    """A MAITE model that gives NumPy's arrays, of images in [0, 255]."""

    def __init__(self, module):
        self.module, self.metadata = module, {"id": "opaque"}

    def __call__(self, batch):
        images = torch.as_tensor(np.stack([np.asarray(image) for image in batch])) / 255
        with torch.no_grad():
            return list(self.module(images).softmax(1).double().numpy())


class Accuracy:
    """A MAITE metric."""

    def __init__(self):
        self.metadata = {"id": "accuracy"}

    def reset(self):
        self.right, self.count = 0, 0

    def update(self, predictions, targets, metadata):
        for prediction, target in zip(predictions, targets, strict=True):
            self.right += int(np.asarray(prediction).argmax() == np.asarray(target).argmax())
            self.count += 1

    def compute(self):
        return {"accuracy": self.right / self.count}


@pytest.fixture
def data(digits):
    labels = digits.labels.clone()
    labels[:4] = (labels[:4] + 1) % 10
    return Data(digits.inputs, labels, [f"digit {place}" for place in range(16)])


def test_ours_are_theirs(digits, data):
    model, dataset = davylamp.to_maite(digits.classifier), davylamp.to_maite(data, num_classes=10, name="digits")
    assert isinstance(model, generic.Model)
    assert isinstance(dataset, generic.Dataset)
    measured, predictions, _ = maite.evaluate(
        model=model, dataset=dataset, metric=Accuracy(), batch_size=5, return_preds=True
    )
    assert measured == {"accuracy": 12 / 16}
    given = torch.cat([torch.stack(list(batch)) for batch in predictions])
    assert torch.allclose(given, digits.module(data.inputs), atol=1e-5)
    assert dataset[3][2] == {"id": "digit 3"}
    assert len(list(dataset)) == len(dataset) == 16
    assert dataset.metadata["id"] == "digits"


def test_their_data_sets_are_ours(data):
    theirs = davylamp.to_maite(data, num_classes=10)
    back = davylamp.from_maite(theirs)
    assert torch.equal(back.inputs, data.inputs)
    assert torch.equal(back.labels, data.labels)
    assert back.names == data.names


def test_their_differentiable_models_are_attacked_as_ours(digits):
    theirs = Stacked(digits.module)
    assert isinstance(theirs, generic.Model)
    case = (digits.inputs[:4], digits.labels[:4], ThreatModel("linf", 0.1))
    wanted = run_attack("foolbox:pgd", digits.classifier, *case, steps=5)
    classifier = davylamp.from_maite(theirs)
    assert (classifier.name, classifier.gradients) == ("theirs", True)
    assert torch.equal(run_attack("foolbox:pgd", classifier, *case, steps=5).adv_inputs, wanted.adv_inputs)


def test_their_opaque_models_are_black_boxes(digits):
    theirs = Opaque(digits.module)
    assert isinstance(theirs, generic.Model)
    classifier = davylamp.from_maite(theirs, mean=[0.0] * 3, std=[1 / 255] * 3)
    logits = classifier.check(digits.inputs, digits.labels)
    assert classifier.outputs == "probabilities"
    assert torch.allclose(logits.softmax(1), digits.module(digits.inputs).softmax(1), atol=1e-5)
    case = (digits.inputs[:4], digits.labels[:4], ThreatModel("linf", 0.3))
    square = {"max_queries": 100, "seed": 0}
    result = run_attack("foolbox:pgd", digits.classifier, *case, steps=1)
    assert result.adv_inputs.shape == case[0].shape
    fooled = run_attack("torchattacks:square", classifier, *case, **square)
    assert torch.equal(fooled.success, run_attack("torchattacks:square", digits.classifier, *case, **square).success)
    with pytest.raises(Unsupported, match="gradients"):
        run_attack("foolbox:pgd", classifier, *case)


@pytest.mark.parametrize("thing", [3, nn.Identity(), type("Empty", (), {"metadata": {"id": "x"}})()])
def test_what_is_neither_is_one_line(thing):
    with pytest.raises(InvalidInput, match="expected a MAITE model or data set") as caught:
        davylamp.from_maite(thing)
    assert "\n" not in str(caught.value)


class Rows:
    """A MAITE data set of three images with these targets and what is said of each."""

    def __init__(self, targets, about=None):
        self.targets, self.metadata = targets, {"id": "rows"}
        self.about = about or [{"id": str(place)} for place in range(3)]

    def __len__(self):
        return 3

    def __getitem__(self, place):
        return np.full((1, 2, 2), 0.5), self.targets[place], self.about[place]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, bool])
def test_the_label_is_the_largest_of_a_target(kind):
    given = davylamp.from_maite(Rows([np.eye(4)[label].astype(kind) for label in (3, 0, 2)]))
    assert given.labels.tolist() == [3, 0, 2]
    soft = [np.array([0.2, 0.5, 0.3]), np.array([-1.0, -3.0, -2.0]), torch.tensor([0.4, 0.35, 0.25])]
    assert davylamp.from_maite(Rows(soft)).labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (np.full(4, np.nan), "got NaN or infinity for image 1"),
        (np.zeros(4), "without a unique largest entry for image 1"),
        (np.array([0.0, 1.0, 1.0, 0.0]), "without a unique largest entry for image 1"),
        (2, r"got int64 of shape \(\) for image 1"),
        (np.eye(4)[:1], r"got float64 of shape \(1, 4\) for image 1"),
        (["a", "b"], r"got <U1 of shape \(2,\) for image 1"),
    ],
)
def test_a_target_that_names_no_class_is_refused(target, said):
    with pytest.raises(InvalidInput, match=said):
        davylamp.from_maite(Rows([np.eye(4)[0], target, np.eye(4)[0]]))


@pytest.mark.parametrize("about", [{}, None, "1"])
def test_an_image_without_an_id_is_refused(about):
    with pytest.raises(InvalidInput, match=r'"id" .* image 2'):
        davylamp.from_maite(Rows([np.eye(4)[0]] * 3, [{"id": 0}, {"id": 1}, about]))


@pytest.mark.parametrize("count", [0, 3])
def test_labels_beyond_the_classes_are_refused(data, count):
    with pytest.raises(InvalidInput, match=f"below num_classes={count}, got 0 to 9"):
        davylamp.to_maite(data, num_classes=count)
    with pytest.raises(InvalidInput, match="expected labelled images, got none"):
        davylamp.to_maite(Data(data.inputs[:0], data.labels[:0], []))
