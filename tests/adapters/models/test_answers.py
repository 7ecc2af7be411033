"""What a model gives: seen, said, inside of a defence; read as logits; no older model has another digest for it."""

import copy

import pytest
import torch
from torch import nn

from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.defences.defend import defend
from davylamp.adapters.models.ensemble import mean_logit_ensemble
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.running.targets import class_logits
from davylamp.errors import InvalidInput, ModelFailed

IMAGES = torch.rand(9, 3, 8, 8, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.randn(192, 5, generator=torch.Generator().manual_seed(1))


class Ending(nn.Module):
    """A linear model, and what it makes of its logits."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def forward(self, inputs):
        return self.end(inputs.flatten(1) @ WEIGHT)


def logits_of(inputs):
    return inputs.flatten(1) @ WEIGHT


def softmax(logits):
    return logits.softmax(1)


def winner(logits):
    return logits.argmax(1)


def test_logits_are_seen_as_such():
    classifier = Classifier(Ending(lambda z: z))
    assert classifier.outputs is None
    assert torch.equal(classifier(IMAGES), logits_of(IMAGES))
    assert (classifier.outputs, classifier.gradients, classifier.output_note) == ("logits", True, "")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 9])
def test_probabilities_are_seen_and_taken_the_logarithm_of(count, dtype):
    classifier = Classifier(Ending(lambda z: softmax(z).to(dtype)), name="m")
    given = classifier.check(IMAGES[:count])
    assert classifier.outputs == "probabilities"
    assert classifier.output_note.startswith("the model m returns probabilities. ")
    tolerance = 2e-2 if dtype is torch.float16 else 1e-5
    wanted = logits_of(IMAGES[:count]).log_softmax(1)
    likely = wanted > -7  # below, half precision has few bits
    torch.testing.assert_close(given[likely], wanted[likely], rtol=tolerance, atol=tolerance)


def test_a_probability_of_zero_is_finite():
    classifier = Classifier(Ending(lambda z: softmax(1e4 * z)))
    logits = classifier.check(IMAGES)
    assert logits.min() == pytest.approx(-87.3365, abs=1e-3)
    assert torch.equal(logits.argmax(1), winner(logits_of(IMAGES)))


def test_one_row_that_sums_to_one_by_chance_is_not_enough():
    by_chance = Ending(lambda z: z - z + 0.2 if len(z) == 1 else z)
    classifier = Classifier(by_chance)
    assert torch.equal(classifier(IMAGES[:1]), torch.full((1, 5), 0.2))
    assert classifier.outputs == "logits"


@pytest.mark.parametrize("end", [winner, lambda z: winner(z).int()[:, None], lambda z: winner(z).to(torch.uint8)])
def test_labels_are_seen_and_become_one_hot(end):
    classifier = Classifier(Ending(end))
    labels = torch.arange(9) % 5
    logits = classifier.check(IMAGES, labels)
    assert torch.equal(logits, nn.functional.one_hot(winner(logits_of(IMAGES)), 6).float())
    assert (classifier.outputs, classifier.gradients) == ("labels", False)
    assert "labels only" in classifier.output_note


def test_a_label_that_nobody_knew_of_is_another_class():
    label = 1
    classifier = Classifier(Ending(lambda z: torch.full((len(z),), label)))
    assert classifier.check(IMAGES, torch.arange(9) % 3).shape == (9, 4)
    for label, place in ((2, 2), (3, 3), (999, 3)):  # noqa: B007 - what the model answers
        assert classifier(IMAGES).argmax(1).tolist() == [place] * 9
    assert class_logits(classifier, classifier(IMAGES)).shape == (9, 3)
    label = -1
    with pytest.raises(ModelFailed, match="expected labels from 0 to 3, got -1"):
        classifier(IMAGES)


def test_other_data_may_have_more_classes():
    label = 5
    classifier = Classifier(Ending(lambda z: torch.full((len(z),), label)))
    assert classifier.check(IMAGES[:2], torch.tensor([0, 1])).tolist() == [[0, 0, 1]] * 2
    assert classifier.check(IMAGES[:2], torch.tensor([2, 5])).argmax(1).tolist() == [5, 5]
    assert classifier.num_classes == 7
    later = Classifier(classifier.model)
    known = torch.nn.functional.one_hot(torch.tensor([1, 2]), 7).float()
    later.check(IMAGES[:2], torch.tensor([1, 2]), logits=known)
    assert later(IMAGES[:2]).shape == (2, 7)


def test_labels_know_their_number_of_classes_from_what_is_said_or_from_the_data():
    with pytest.raises(InvalidInput, match="number of classes is needed"):
        Classifier(Ending(winner))(IMAGES)
    assert Classifier(Ending(winner), num_classes=7)(IMAGES).shape == (9, 7)
    saying = Ending(winner)
    saying.num_classes = 6
    assert Classifier(saying)(IMAGES).shape == (9, 6)
    small = Classifier(Ending(winner), num_classes=2)
    with pytest.raises(ModelFailed, match=r"the model Ending: expected labels from 0 to 1, got \d"):
        small(IMAGES)


def test_scores_that_are_said_to_be_labels_are_no_more():
    classifier = Classifier(Ending(lambda z: z), outputs="labels")
    assert torch.equal(classifier(IMAGES).argmax(1), winner(logits_of(IMAGES)))
    assert classifier(IMAGES).unique().tolist() == [0, 1]


def test_a_module_says_it_itself():
    saying = Ending(softmax)
    saying.outputs, saying.gradients = "probabilities", False
    classifier = Classifier(saying)
    assert (classifier.outputs, classifier.gradients) == ("probabilities", False)
    assert not classifier(IMAGES.clone().requires_grad_()).requires_grad
    saying.outputs = ["not", "ours"]
    assert Classifier(saying).outputs is None


@pytest.mark.parametrize(
    ("end", "said", "words"),
    [
        (softmax, "logits", "expected logits as declared, got probabilities"),
        (lambda z: z, "probabilities", "expected probabilities as declared .* got a row that sums to"),
        (lambda z: z.amax(1), "labels", r"expected labels of shape \(9,\), got torch.float32"),
        (lambda z: z, "scores", "expected outputs as logits, .*, labels, logit, probability or None, got 'scores'"),
    ],
)
def test_what_is_said_and_is_not_so_is_one_line(end, said, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        Classifier(Ending(end), outputs=said, num_classes=5).check(IMAGES)
    assert "\n" not in str(caught.value)


def test_first_answers_that_mislead_are_one_line():
    misleading = Classifier(Ending(lambda z: softmax(z) if len(z) < 9 else z))
    misleading(IMAGES[:5])
    with pytest.raises(InvalidInput, match="expected probabilities as in its first outputs"):
        misleading.check(IMAGES)


@pytest.mark.parametrize(("end", "outputs"), [(softmax, "probabilities"), (winner, "labels"), (lambda z: z, "logits")])
def test_a_defence_and_an_ensemble_give_what_their_models_give(end, outputs):
    plain = Classifier(Ending(end), num_classes=5)
    wrapped = Classifier(nn.Sequential(nn.Identity(), Classifier(Ending(end), num_classes=5)))
    defended = defend(Classifier(Ending(end), num_classes=5), "bit-depth:bits=8")
    both = mean_logit_ensemble([Classifier(Ending(end), num_classes=5) for _ in "12"])
    images = (IMAGES * 255).round() / 255
    for classifier in (wrapped, defended, both):
        torch.testing.assert_close(classifier.check(images), plain.check(images))
        assert (classifier.outputs, classifier.gradients) == (outputs, outputs != "labels")


class Averaging(nn.Module):
    """A defence that averages probabilities."""

    def __init__(self, classifier):
        super().__init__()
        self.classifier = classifier

    def forward(self, inputs):
        return torch.stack([self.classifier(inputs).softmax(1), self.classifier(inputs.flip(3)).softmax(1)]).mean(0)


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: nn.Sequential(inner, nn.Softmax(1)),
        lambda inner: nn.Sequential(nn.Sequential(nn.Identity(), nn.Sequential(inner)), nn.Softmax(1)),
        lambda inner: Classifier(nn.Sequential(inner, nn.Softmax(1))),
        lambda inner: defend(Classifier(nn.Sequential(inner, nn.Softmax(1))), "bit-depth:bits=8"),
        Averaging,
    ],
)
def test_probabilities_made_of_a_classifiers_logits_are_seen_at_any_depth(wrap, count):
    asked = []
    inner = Classifier(Ending(lambda z: asked.append(len(z)) or z))
    made = wrap(inner)
    classifier = made if isinstance(made, Classifier) else Classifier(made)
    images = (IMAGES[:count] * 255).round() / 255
    logits = classifier.check(images)
    assert classifier.outputs == "probabilities"
    assert classifier.output_note
    assert logits.max() <= 0
    torch.testing.assert_close(logits.exp().sum(1), torch.ones(count))
    if count > 3:
        assert sum(asked) == count * (2 if wrap is Averaging else 1)  # it takes no pass to see that


ONE = torch.randn(192, 1, generator=torch.Generator().manual_seed(2))


class OneNumber(nn.Module):
    """One logit, or its sigmoid, of the second of two classes."""

    def __init__(self, end=lambda z: z):
        super().__init__()
        self.end = end

    def forward(self, inputs):
        return self.end(inputs.flatten(1) @ ONE)


@pytest.mark.parametrize("end", [lambda z: z, lambda z: z[:, 0], lambda z: (z, inputs_of(z))])
def test_one_logit_that_is_said_to_be_one_becomes_two(end):
    classifier = Classifier(OneNumber(end), outputs="logit")
    z = (IMAGES.flatten(1) @ ONE)[:, 0]
    logits = classifier.check(IMAGES, (z > 0).long())
    assert torch.equal(logits, torch.stack([-z / 2, z / 2], 1))
    torch.testing.assert_close(logits.softmax(1)[:, 1], z.sigmoid())
    assert (classifier.outputs, classifier.num_classes, classifier.gradients) == ("logits", 2, True)
    assert "one logit" in classifier.output_note
    leaf = IMAGES.clone().requires_grad_()
    for place in (0, 1):  # an attack that looks at one class alone has a gradient
        assert torch.autograd.grad(classifier(leaf)[:, place].sum(), leaf)[0].abs().sum() > 0


def inputs_of(z):
    return torch.zeros(len(z), 7)


@pytest.mark.parametrize("end", [torch.sigmoid, lambda z: z.sigmoid()[:, 0]])
def test_one_probability_that_is_said_to_be_one_becomes_two_logarithms(end):
    classifier = Classifier(OneNumber(end), outputs="probability")
    z = (IMAGES.flatten(1) @ ONE)[:, 0]
    logits = classifier.check(IMAGES, (z > 0).long())
    torch.testing.assert_close(logits.softmax(1)[:, 1], z.sigmoid())
    assert (classifier.outputs, classifier.num_classes) == ("probabilities", 2)


@pytest.mark.parametrize(
    ("said", "end", "classes", "words"),
    [
        (None, lambda z: z, None, "declare `outputs='logit'` or `outputs='probability'` if"),
        (None, lambda z: z[:, 0], None, "declare `outputs='logit'` or `outputs='probability'` if"),
        (None, lambda z: z, 2, "declare `outputs='logit'` or `outputs='probability'` if"),
        ("logit", lambda z: torch.cat([z, z], 1), None, r"expected one logit for 2 classes .* got \(9, 2\)"),
        ("logit", lambda z: z, 3, r"expected one logit for 2 classes .* for 3 classes"),
        ("logit", lambda z: z > 0, None, "expected real logits"),
        ("probability", lambda z: z, None, "declare `outputs='logit'` if"),
    ],
)
def test_one_number_is_read_only_as_what_it_is_said_to_be(said, end, classes, words):
    with pytest.raises(InvalidInput, match=words):
        Classifier(OneNumber(end), outputs=said, num_classes=classes).check(IMAGES)


def test_a_module_says_itself_that_it_gives_one_logit_and_has_another_identity():
    saying = OneNumber()
    unsaid = digest_model(Classifier(saying))
    saying.outputs = "logit"
    classifier = Classifier(saying)
    assert classifier.check(IMAGES).shape == (9, 2)
    assert digest_model(Classifier(OneNumber(), outputs="logit")) != unsaid
    defended = defend(Classifier(OneNumber(), outputs="logit"), "bit-depth:bits=8")
    assert defended.check(IMAGES).shape == (9, 2)


def test_what_is_said_is_part_of_the_identity_and_what_is_seen_is_not():
    net = Ending(softmax)
    unsaid, logits = (Classifier(net, num_classes=5, outputs=said) for said in (None, "logits"))
    digests = [digest_model(each) for each in (unsaid, logits, Classifier(net, outputs="probabilities"))]
    labels = Classifier(net, outputs="labels", num_classes=5)
    assert digests[0] == digests[1]
    assert len({*digests, digest_model(labels)}) == 3
    inside = [digest_model(defend(each, "bit-depth:bits=8")) for each in (unsaid, logits, labels)]
    assert inside[0] == inside[1] != inside[2]
    asked = Classifier(Ending(lambda z: z), num_classes=5)
    before = digest_model(defend(asked, "bit-depth:bits=8"))
    asked.check(IMAGES)
    assert digest_model(defend(asked, "bit-depth:bits=8")) == before
    assert copy.deepcopy(labels)(IMAGES).shape == (9, 5)


def test_digests_from_before_models_said_what_they_give():
    """Made with the commit before this file: of a model, with a defence, and an ensemble."""
    first, second = make_net(0), make_net(1)
    assert digest_model(Classifier(first)) == "0c63559e8f5386d2383a"
    assert digest_model(defend(Classifier(first, num_classes=5), "jpeg")) == "56d166716dd1f0c25bd6"
    pair = mean_logit_ensemble([Classifier(net, num_classes=5) for net in (first, second)])
    assert digest_model(pair) == "0558b6dd81ccc8b0fc7e"


def make_net(seed):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    with torch.no_grad():
        for tensor in net.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return net
