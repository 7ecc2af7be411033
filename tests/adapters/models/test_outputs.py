"""What a model may return and do: logits taken out of it, one line where there are none, its images its own."""

import time
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters.models import extract_logits
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.extract_logits import explain_accuracy, explain_predictions
from davylamp.adapters.running.requirements import has_gradients
from davylamp.engine.training.student import TrainableModel
from davylamp.errors import InvalidInput, ModelFailed

IMAGES = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Inception = namedtuple("Inception", ("logits", "aux_logits"))


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None


@dataclass
class Nameless:
    scores: Tensor
    notes: list = field(default_factory=list)


class ModelOutput(OrderedDict):
    """As transformers' class: a dict whose entries are attributes, too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, inputs):
        return self.function(inputs)


def model(function, **settings):
    return Classifier(Lambda(function), name="m", **settings)


def score(inputs):
    return inputs.flatten(1)[:, :5] * 3 - 1


@pytest.mark.parametrize(
    ("wrap", "note"),
    [
        (lambda z: z, ""),
        (lambda z: (z,), "took the first tensor of the tuple that the model m returns"),
        (lambda z: [z, z[:2]], "took the first tensor of the list that the model m returns (ignored: (2, 5))"),
        (lambda z: (None, z), "took the first tensor of the tuple"),
        (
            lambda z: (z[:, :, None, None], z, z.sum(), [z]),
            "took the tensor of shape (N, classes) of the tuple that the model m returns (ignored: (3, 5, 1, 1), ())",
        ),
        (lambda z: (z.argmax(1), z), "took the tensor of shape (N, classes) of the tuple"),
        (lambda z: {"logits": z, "loss": z.sum()}, "took the entry 'logits' of the dict"),
        (lambda z: {"out": z, "aux": z * 0}, "took the entry 'out' of the dict"),
        (lambda z: {"whatever": z, "text": "x"}, "took the entry 'whatever' of the dict"),
        (lambda z: Output(z, z * 0), "took .logits of the Output"),
        (Nameless, "took the entry 'scores' of the Nameless"),
        (lambda z: Inception(z, z * 0), "took .logits of the Inception"),
        (lambda z: ModelOutput(hidden=z * 0, logits=z), "took .logits of the ModelOutput"),
    ],
)
def test_logits_are_taken_out_of_what_a_model_returns(wrap, note):
    classifier = model(lambda x: wrap(score(x)))
    inputs = IMAGES.clone().requires_grad_()
    logits = classifier(inputs)
    assert torch.equal(logits, score(IMAGES))
    assert torch.autograd.grad(logits.sum(), inputs)[0].sum() == pytest.approx(45)
    assert classifier.output_note.startswith(note)
    assert bool(note) == bool(classifier.output_note)


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (
            lambda z: (z.repeat(1, 4), z),
            "got a tuple with 2: (3, 20), (3, 5); return the logits alone, with a wrapper such as model(x)[1]"
            "; or give the module the attribute num_classes",
        ),
        (
            lambda z: [z, None, z * 2],
            "got a list with 2: (3, 5), (3, 5); return the logits alone, with a wrapper such as",
        ),
    ],
)
def test_of_two_tensors_that_could_be_logits_none_is_guessed(wrap, words):
    with pytest.raises(ModelFailed, match="the model m: expected one tensor that could be the logits") as caught:
        model(lambda x: wrap(score(x))).check(IMAGES)
    assert words in str(caught.value)
    assert ("num_classes" in str(caught.value)) == ("(3, 20)" in words)


@pytest.mark.parametrize("one", [lambda z: z[:, :1], lambda z: z[:, 0]])
def test_one_logit_before_features_is_not_passed_over(one):
    """A model of two classes that gives (logit, features); with num_classes the logits behind a value are meant."""
    with pytest.raises(
        ModelFailed, match=r"then one of shape \(3, 5\); return the logits alone \(declare `outputs='logit'`"
    ):
        model(lambda x: (one(score(x)), score(x))).check(IMAGES)
    assert torch.equal(model(lambda x: (one(score(x)), score(x)), num_classes=5).check(IMAGES), score(IMAGES))


def test_said_labels_are_the_first_tensor():
    said = model(lambda x: (score(x).argmax(1), score(x).flip(1)), outputs="labels", num_classes=5)
    assert torch.equal(said.check(IMAGES).argmax(1), score(IMAGES).argmax(1))


def test_of_two_tensors_that_of_so_many_classes_is_taken():
    classifier = model(lambda x: (score(x).repeat(1, 4), score(x)), num_classes=5)
    assert torch.equal(classifier.check(IMAGES), score(IMAGES))
    module = Lambda(lambda x: (score(x).repeat(1, 4), score(x)))
    module.num_classes = 5
    classifier = Classifier(module, name="m")
    assert torch.equal(classifier.check(IMAGES), score(IMAGES))
    assert classifier.output_note.startswith("took the tensor of shape (N, classes) of the tuple")
    with pytest.raises(ModelFailed, match="expected one tensor that could be the logits"):
        model(lambda x: (score(x), score(x) * 2), num_classes=5).check(IMAGES)


def test_a_model_in_training_guesses_no_logits_either():
    layer = nn.Linear(192, 5)
    both = nn.Sequential(nn.Flatten(), layer, Lambda(lambda z: (z.repeat(1, 4), z)))
    with pytest.raises(ModelFailed, match="expected one tensor that could be the logits"):
        TrainableModel(Classifier(both))(IMAGES)
    assert torch.equal(TrainableModel(Classifier(both, num_classes=5))(IMAGES), layer(IMAGES.flatten(1)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32(dtype):
    assert model(lambda x: score(x).to(dtype))(IMAGES).dtype == torch.float32


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: None, "NoneType"),
        (lambda x: ("a", 3), "tuple of str, int"),
        (lambda x: (), "tuple"),
        (lambda x: score(x).numpy(), "ndarray"),
        (lambda x: {"a": score(x), "b": score(x)}, "dict with a, b"),
        (lambda x: {}, "dict with nothing"),
        (lambda x: score(x) + 0j, "complex64"),
        (lambda x: score(x).long(), "integers (torch.int64)"),
        (lambda x: nn.functional.one_hot(score(x).argmax(1), 5), "one-hot labels (torch.int64)"),
        (lambda x: score(x) > 0, "bool"),
        (lambda x: score(x).to_sparse(), "torch.sparse_coo"),
        (lambda x: score(x)[:, 0], "(3,); declare `outputs='logit'` or `outputs='probability'` if"),
        (lambda x: score(x)[:, :, None, None], "(3, 5, 1, 1); return outputs.flatten(1)"),
        (lambda x: x, "(3, 3, 8, 8)"),
        (lambda x: score(x)[:2], "(2, 5)"),
        (lambda x: score(x).sum(), "()"),
    ],
)
def test_what_is_no_logits_is_one_line(function, words):
    with pytest.raises(ModelFailed) as caught:
        model(function).check(IMAGES)
    assert str(caught.value).startswith("the model m: expected ")
    assert f"got {words}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_that_change_between_calls():
    widths = iter([5, 4])
    classifier = model(lambda x: x.flatten(1)[:, : next(widths)])
    classifier.check(IMAGES)
    with pytest.raises(ModelFailed, match=r"expected model outputs of shape \(3, 5\), got \(3, 4\)"):
        classifier(IMAGES)


def only(condition):
    def function(x):
        if not condition(x):
            raise RuntimeError("shapes cannot be\nmultiplied")
        return score(x)

    return function


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        (lambda x: x.shape[-1] == 299, "; it works on images of 3 x 299 x 299, got 3 x 8 x 8"),
        (lambda x: x.shape[1] == 1, "; it works on images of 1 x 8 x 8, got 3 x 8 x 8"),
        (lambda x: x.shape[1:] == (1, 28, 28), "; it works on images of 1 x 28 x 28, got 3 x 8 x 8"),
        (lambda x: len(x) == 1, "; it accepts only one image at a time; make it accept batches"),
        (lambda x: x[-1].sum() == x[0].sum(), "; it fails on some images only"),
        (lambda x: False, ""),
    ],
)
def test_a_failure_says_on_which_images_and_what_works(condition, hint):
    with pytest.raises(ModelFailed) as caught:
        model(only(condition)).check(IMAGES)
    line = "the model m raised RuntimeError: shapes cannot be multiplied (line"
    assert str(caught.value).startswith(line)
    assert str(caught.value).endswith(f") on images of shape (3, 3, 8, 8){hint}")


def test_a_model_that_refuses_a_single_image_is_told_that_davylamp_asks_about_one():
    classifier = model(only(lambda x: len(x) > 1))
    assert has_gradients(classifier, IMAGES)  # that it takes no single image is told by what asks it next
    with pytest.raises(ModelFailed) as caught:
        classifier.predict_logits(IMAGES, batch_size=1)
    assert str(caught.value).endswith(
        "on images of shape (1, 3, 8, 8); it does not accept a single image; make it accept any number, "
        "because davylamp also queries single images"
    )


@pytest.mark.parametrize("error", [OSError(11, "no process left"), SystemExit(3), MemoryError(), ImportError("no x")])
def test_a_model_that_fails_for_no_image_is_not_asked_about_others(error):
    asked = []

    def function(x):
        asked.append(x.shape)
        raise error

    with pytest.raises(ModelFailed, match="on images of shape"):
        model(function).check(IMAGES)
    assert len(asked) == 1


def test_a_slow_model_that_fails_is_asked_what_it_wants_for_some_seconds_only(monkeypatch):
    monkeypatch.setattr(extract_logits, "_SECONDS", 0.2)
    asked = []

    def function(x):
        asked.append(x.shape)
        time.sleep(0.1)
        raise RuntimeError("never")

    with pytest.raises(ModelFailed):
        model(function).check(IMAGES)
    assert len(asked) <= 5  # of more than thirty


@pytest.mark.parametrize("settings", [{}, {"mean": [0.1] * 3, "std": [0.5] * 3}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_that_works_in_place_changes_nothing_else(settings, dtype):
    weight = torch.randn(192, 5, generator=torch.Generator().manual_seed(1))
    changing = model(lambda x: x.mul_(0.97).clamp_(min=0.1).flatten(1) @ weight, **settings)
    same = model(lambda x: (x * 0.97).clamp(min=0.1).flatten(1) @ weight, **settings)
    inputs = IMAGES.to(dtype)
    before = inputs.clone()
    assert torch.equal(changing.check(inputs), same.check(inputs))
    assert torch.equal(changing(inputs), changing(inputs))
    assert torch.equal(inputs, before)
    leaf, other = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    torch.autograd.backward([changing(leaf).square().sum(), same(other).square().sum()])
    assert torch.equal(leaf, before)
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, other.grad)


def test_answers_written_to_the_same_memory_are_kept_apart():
    """As a compiled model's are (`mode="reduce-overhead"`)."""
    memory = torch.empty(1, 5)
    classifier = model(lambda x: memory.copy_(score(x)))
    assert torch.equal(classifier.predict_logits(IMAGES, batch_size=1), score(IMAGES))


def test_a_forward_in_inference_mode_can_be_computed_with():
    classifier = model(torch.inference_mode()(score))
    logits = classifier(IMAGES.clone().requires_grad_())
    assert not logits.is_inference()
    logits.requires_grad_().square().sum().backward()


def test_a_normalisation_for_other_channels_is_no_broadcast():
    classifier = model(score, mean=[0.5] * 3, std=[0.5] * 3)
    with pytest.raises(
        InvalidInput, match="its `mean` and `std` have 3 values; give one value of each for grey images"
    ):
        classifier.check(IMAGES[:, :1])
    with pytest.raises(
        InvalidInput, match=r"the model m: expected images with 3 channels, got images of shape \(3, 1, 8"
    ):
        classifier.check(IMAGES[:, :1])


def test_gradients_switched_off_inside_are_on_again():
    def function(x):
        torch.set_grad_enabled(False)
        return score(x)

    model(function)(IMAGES)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        (lambda y: y - 1, "0 of 40 images are classified correctly: the labels seem to start at 1 instead of 0"),
        (lambda y: (y + 1) % 10, "the labels seem to lack the model's first class"),
        (lambda y: (y * 3 + 5) % 10, "the classes seem to be in a different order (label 0 is mostly predicted as 5)"),
        (lambda y: torch.full_like(y, 7), "the model assigns class 7 to every image; check the normalisation"),
        (lambda y: torch.randint(0, 10, y.shape, generator=torch.Generator().manual_seed(4)), "check the order of the"),
        (lambda y: y, None),
        (lambda y: y.where(torch.arange(40) % 2 == 0, 0), None),
    ],
)
def test_accuracy_near_chance_is_explained(predict, words):
    labels = torch.arange(40) % 10
    if words is not None and "every image" in words:
        labels = torch.tensor([1, 2] * 20)
    logits = nn.functional.one_hot(predict(labels) % 10, 10).float()
    if words is not None and "check the order" in words:
        logits[logits.argmax(1) == labels] = logits[logits.argmax(1) == labels].roll(3, 1)
    line = explain_accuracy(logits, labels)
    assert (line is None) == (words is None)
    assert words is None or words in str(line)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 12, 20, 100])
@pytest.mark.parametrize("classes", [2, 3, 4, 10, 1000])
def test_a_good_model_is_not_explained_away_whatever_the_classes(classes, count):
    labels = torch.arange(count) % classes
    assert explain_predictions(labels, labels, classes) is None
    wrong = labels.clone()
    wrong[: count // 4] = (wrong[: count // 4] + 1) % classes  # at least three of four are right
    assert explain_predictions(wrong, labels, classes) is None


@pytest.mark.parametrize("count", [8, 12, 100])
def test_two_classes_that_are_swapped_are_another_order(count):
    labels = torch.arange(count) % 2
    line = explain_predictions(1 - labels, labels, 2)
    assert line is not None
    assert line.startswith(f"0 of {count} images")
    assert "a different order (label 0 is mostly predicted as 1)" in line
    unbalanced = torch.tensor([1] * (count - 2) + [0] * 2)
    assert "a different order" in str(explain_predictions(1 - unbalanced, unbalanced, 2))


def test_three_classes_that_are_swapped_are_another_order():
    labels = torch.arange(12) % 3
    swapped = torch.tensor([1, 0, 2])[labels]  # four of twelve are right
    assert "a different order (label 0 is mostly predicted as 1)" in str(explain_predictions(swapped, labels, 3))


def test_chance_is_seldom_called_another_order():
    """Two classes predicted by a coin: hints at an order are errors; 5 % of them are what the test allows."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12) % 2
    lines = [str(explain_predictions(torch.randint(0, 2, (12,), generator=generator), labels, 2)) for _ in range(400)]
    assert sum("a different order" in line for line in lines) <= 20
    good = [torch.where(torch.rand(12, generator=generator) < 0.9, labels, 1 - labels) for _ in range(400)]
    assert all(explain_predictions(each, labels, 2) is None for each in good)


@pytest.mark.parametrize("digits", [2, 3, 4])
@pytest.mark.parametrize("classes", [2, 10])
def test_rounded_probabilities_are_read_as_probabilities(classes, digits):
    """A row rounded to some decimals sums to 1 within half a unit for each class, which may be more than 0.001."""

    def rounded(inputs):
        return (inputs.flatten(1)[:, :classes].softmax(1) * 10**digits).round() / 10**digits

    images = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    made = model(rounded)
    logits = made.check(images)
    assert made.outputs == "probabilities"
    torch.testing.assert_close(logits.exp(), rounded(images))
    sums = rounded(images).sum(1)
    assert (sums - 1).abs().max() <= classes * 0.5 * 10**-digits + 1e-6


@pytest.mark.parametrize(
    "change",
    [
        lambda scores: scores.softmax(1) * 1.004,  # not rounded
        lambda scores: (scores.softmax(1) * 1.2 * 100).round() / 100,  # too far from 1
        lambda scores: (scores.softmax(1) * 100).round() / 100 - 0.01,  # some are negative
        lambda scores: (scores.softmax(1) * 10).round() / 10,  # one decimal: ten classes may sum to anything
    ],
)
def test_logits_are_not_taken_for_rounded_probabilities(change):
    images = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    made = model(lambda inputs: change(inputs.flatten(1)[:, :10] * 3))
    made.check(images)
    assert made.outputs == "logits"
