"""Models and attacks with one known fault each, and the sound ones: every indicator that asks the model itself."""

import pytest
import scipy
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.running.judge import perturbation_norm
from davylamp.adapters.running.library_call import LibraryOutput
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.checks.model_checks import model_checks
from davylamp.engine.probes.binarization_test import plant_adversarial_example, random_points
from davylamp.engine.probes.probe_cell import probe_cell
from davylamp.engine.probes.probe_folder import probe_folder
from davylamp.engine.probes.probe_model import probe_model, probe_normalisation
from davylamp.errors import InvalidInput, Unavailable

PGD = AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 10})


class Before(nn.Module):
    """A module with a function in front."""

    def __init__(self, change, module):
        super().__init__()
        self.change, self.module = change, module

    def forward(self, inputs):
        return self.module(self.change(inputs))


class After(Before):
    """A module with a function behind."""

    def forward(self, inputs):
        return self.change(self.module(inputs))


class StuckInTraining(nn.Module):
    """Dropout that does not listen to eval()."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def train(self, mode=True):
        return super().train(True)

    def forward(self, inputs):
        return nn.functional.dropout(self.module(inputs), 0.5, training=self.training)


class Straight(torch.autograd.Function):
    """Made-up gradients: one for every input."""

    @staticmethod
    def forward(_, inputs):
        return inputs.clone()

    @staticmethod
    def backward(_, gradient):
        return torch.ones_like(gradient)


def steps(inputs):
    return torch.round(inputs * 8) / 8


def judge(module, digits, **preprocessing):
    """The checks of a model by name."""
    classifier = module if isinstance(module, Classifier) else Classifier(module, **preprocessing)
    logits = classifier.predict_logits(digits.inputs)
    names = [f"digit_{i}" for i in range(len(logits))]
    probes = probe_model(classifier, digits.inputs, digits.labels, logits)
    return {check.name: check for check in model_checks("net", probes, names, "")}


def states(checks):
    return {name: check.state for name, check in checks.items() if check.state != "pass"}


def test_a_sound_model_raises_nothing(digits):
    assert states(judge(digits.module, digits)) == {}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (steps, "fail"),
        (lambda inputs: inputs.detach(), "unknown"),
        (Straight.apply, "fail"),
        (lambda inputs: inputs + 0 * (inputs - inputs).sqrt(), "fail"),
        (lambda inputs: inputs.clamp(0.02, 0.98), "pass"),
    ],
    ids=["steps", "cut", "constant", "nan", "smooth"],
)
def test_unusable_gradients(digits, change, expected):
    checks = judge(Before(change, digits.module), digits)
    assert states(checks) == ({} if expected == "pass" else {"gradients": expected})


def test_a_few_images_without_a_gradient_are_named(digits):
    """The gradient is cut for images that are dark on the whole, as a saturated activation would."""
    means = digits.inputs[:8].mean((1, 2, 3))
    threshold = float(means.sort().values[0] + 1e-6)

    def cut(inputs):
        dark = inputs.mean((1, 2, 3), keepdim=True) < threshold
        return torch.where(dark, inputs.detach(), inputs)

    check = judge(Before(cut, digits.module), digits)["gradients"]
    assert check.images == (f"digit_{int(means.argmin())}",)
    assert check.state == "fail"  # one of eight is more than a tenth


def test_a_random_model(digits):
    module = After(lambda logits: logits + torch.randn_like(logits), digits.module)
    checks = judge(module, digits)
    assert checks["deterministic"].state == "fail"
    state = torch.get_rng_state()
    probe_model(Classifier(module), digits.inputs, digits.labels, digits.module(digits.inputs))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_that_stays_in_training_mode(digits):
    checks = judge(StuckInTraining(digits.module), digits)
    assert checks["eval-mode"].state == "fail"
    assert checks["deterministic"].state == "fail"
    assert "StuckInTraining" in checks["eval-mode"].detail


def test_batch_norm_over_the_batch(digits):
    module = Before(nn.BatchNorm2d(3, affine=False, track_running_stats=False), digits.module)
    checks = judge(module, digits)
    assert checks["eval-mode"].state == "fail"
    assert checks["zero-epsilon"].state in ("warn", "fail")
    assert checks["deterministic"].state == "pass"


def test_a_model_that_was_in_training_mode_is_told_and_passes(digits):
    module = Before(lambda inputs: inputs, digits.module)
    module.train()
    check = judge(module, digits)["eval-mode"]
    assert (check.state, "passed in training mode" in check.detail) == ("pass", True)
    assert "unchanged" in judge(digits.module.eval(), digits)["eval-mode"].detail


def test_softmax_outputs(digits, tmp_path):
    module = After(lambda logits: logits.softmax(1), digits.module)
    data = Data(digits.inputs, digits.labels, [str(i) for i in range(16)])
    plan = make_plan(Config(attacks=(PGD,), measures=()), models={"net": Classifier(module)}, data=data)
    evaluate(plan, ResultsStore(tmp_path))
    checks = {check.name: check for check in check_folder(tmp_path)}
    assert checks["logits"].state == "warn"
    assert "probabilities" in checks["logits"].detail


@pytest.mark.parametrize("change", [lambda logits: logits.log_softmax(1), torch.sigmoid], ids=["log", "sigmoid"])
def test_outputs_that_look_like_something_else(digits, change):
    assert judge(After(change, digits.module), digits)["logits"].state == "warn"


@pytest.mark.parametrize(
    ("mean", "std", "wrong", "state"),
    [(127.0, 128.0, 14, "fail"), (1.0, 1.0, 10, "fail"), (0.5, 0.5, 3, "pass"), (0.0, 1 / 255, 0, "pass")],
)
def test_wrong_normalisation(digits, mean, std, wrong, state):
    """Found where it costs enough predictions: three mistakes prove nothing, and a scale costs this network none."""
    classifier = Classifier(digits.module, mean=[mean] * 3, std=[std] * 3)
    assert int((classifier.predict_logits(digits.inputs).argmax(1) != digits.labels).sum()) == wrong
    check = judge(classifier, digits)["normalisation"]
    assert check.state == state
    assert ("16 correct with [0, 1], not normalised" in check.detail) == (state == "fail")
    assert ("too few errors" in check.detail) == (state == "pass")  # no pass is spent where it could prove nothing


def test_another_normalisation_that_corrects_too_little_is_asked_about_the_wrong_images_only(digits):
    """Ten labels are wrong here, not the normalisation."""
    sizes = []
    module = Before(lambda inputs: (sizes.append(len(inputs)), inputs)[1], digits.module)
    labels = torch.cat([(digits.labels[:10] + 5) % 10, digits.labels[10:]])
    classifier = Classifier(module, mean=[0.0] * 3, std=[1 / 255] * 3)
    logits = classifier.predict_logits(digits.inputs)
    wrong = logits.argmax(1) != labels
    sizes.clear()
    probe = probe_normalisation(classifier, digits.inputs, labels, logits)
    assert sizes == [int(wrong.sum())] * len(probe["tried"])
    assert judge(classifier, digits._replace(labels=labels))["normalisation"].state == "pass"


def test_normalisations_that_could_be_better_are_asked_about_all(digits):
    """Against every normalisation asked about every image, and McNemar's test of SciPy's."""
    classifier = Classifier(digits.module, mean=[127.0] * 3, std=[128.0] * 3)
    logits = classifier.predict_logits(digits.inputs)
    hits = logits.argmax(1) == digits.labels
    probe = probe_normalisation(classifier, digits.inputs, digits.labels, logits)
    others = {"[0, 1], not normalised": digits.inputs, "[-1, 1]": 2 * digits.inputs - 1}
    for name, changed in others.items():
        right = digits.module(changed).argmax(1) == digits.labels
        gained, lost = int((right & ~hits).sum()), int((hits & ~right).sum())
        expected = scipy.stats.binomtest(lost, gained + lost).pvalue
        assert probe["tried"][name] == {"right": int(right.sum()), "p": pytest.approx(expected)}


def test_labels_of_other_classes_are_guesses(digits):
    shifted = digits._replace(labels=(digits.labels + 1) % 10)
    assert judge(digits.module, shifted)["normalisation"].state == "warn"


def test_a_model_that_cannot_answer_does_not_stop_the_evaluation(digits):
    def picky(inputs):
        if len(inputs) == 1:
            raise ZeroDivisionError("one image")
        return inputs

    checks = judge(Before(picky, digits.module), digits)
    assert "ZeroDivisionError: one image" in checks["zero-epsilon"].detail
    assert states(checks) == {"zero-epsilon": "fail"}


@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "l0"])
def test_random_points_lie_at_their_distance(norm):
    image = torch.full((3, 8, 8), 0.5)
    radius = {"linf": 0.1, "l2": 0.4, "l1": 2.0, "l0": 9.0}[norm]
    points = random_points(image, norm, radius, 50, torch.Generator().manual_seed(0))
    sizes = perturbation_norm(points.double() - image.double(), norm)
    assert points.shape == (50, 3, 8, 8)
    torch.testing.assert_close(sizes, torch.full_like(sizes, radius), rtol=1e-4, atol=0)
    again = random_points(image, norm, radius, 50, torch.Generator().manual_seed(0))
    assert torch.equal(points, again)
    assert not torch.equal(points[0], points[1])


def test_the_corners_of_a_cube():
    points = random_points(torch.full((1, 4, 4), 0.5), "linf", 0.1, 5, torch.Generator().manual_seed(0), corners=True)
    torch.testing.assert_close((points - 0.5).abs(), torch.full_like(points, 0.1))


def test_a_planted_example_is_there_and_hidden_from_chance(digits):
    classifier = digits.classifier
    classifier.check(digits.inputs)
    for place in range(4):
        image = digits.inputs[place]
        planted = plant_adversarial_example(classifier, image, "linf", 0.1, place)
        assert planted["separable"]
        assert not planted["easy"]
        example = planted["example"]
        assert 0 < float((example - image).abs().max()) <= 0.1 + 1e-6
        logits = planted["classifier"](torch.stack([image, example]))
        torch.testing.assert_close(logits, torch.tensor([[0.95, -0.95], [-0.05, 0.05]]), atol=2e-3, rtol=0)
        aim = ThreatModel("linf", 0.1)
        result = run_attack("foolbox:pgd", planted["classifier"], image[None], torch.tensor([0]), aim, steps=10)
        assert bool(result.success[0])


@pytest.fixture(scope="module")
def cell_of(digits):
    def find(choice, module=None):
        data = Data(digits.inputs, digits.labels, [str(i) for i in range(16)])
        plan = make_plan(Config(attacks=(choice,)), models={"net": Classifier(module or digits.module)}, data=data)
        return plan.cells[0]

    return find


def test_a_sound_attack_raises_nothing(digits, cell_of):
    answers = probe_cell(cell_of(PGD), digits.classifier, digits.inputs, digits.labels, images=4)
    assert answers["images"] == [0, 1, 2, 3]
    assert [answers[name]["reason"] for name in ("more-steps", "unbounded", "random-noise", "active-test")] == [""] * 4
    assert answers["unbounded"]["fooled"] == answers["images"]
    assert answers["active-test"]["found"] == answers["active-test"]["planted"] == answers["images"]
    assert set(answers["more-steps"]["fooled"]) == set(answers["base"]["fooled"])
    assert answers["random-noise"]["fooled"] == []


def test_masked_gradients_blind_the_attack(digits, cell_of):
    """In front of the linear-read-out network a staircase: nothing is found, with any radius, nor what was planted."""
    module = Before(steps, digits.module)
    answers = probe_cell(cell_of(PGD, module), Classifier(module), digits.inputs, digits.labels, images=3)
    assert answers["base"]["fooled"] == answers["unbounded"]["fooled"] == answers["active-test"]["found"] == []
    assert len(answers["active-test"]["planted"]) == 3


def test_chance_finds_what_a_blind_attack_does_not(linear):
    """A radius of 60 times the least perturbation: random noise crosses the boundary, a zero gradient does not."""
    epsilon = 60 * float(linear.least["linf"].max())
    module = Before(lambda inputs: inputs.detach() + 0 * inputs, linear.module)
    data = Data(linear.inputs, linear.labels, list("abcd"))
    choice = AttackChoice("foolbox:pgd", "linf", epsilon, parameters={"steps": 5})
    cell = make_plan(Config(attacks=(choice,)), models={"net": Classifier(module)}, data=data).cells[0]
    answers = probe_cell(cell, Classifier(module), linear.inputs, linear.labels, images=4)
    assert answers["base"]["fooled"] == []
    assert answers["random-noise"]["fooled"] == [0, 1, 2, 3]


def test_chance_finds_nothing_where_the_model_has_no_finite_answer(digits, cell_of):
    """In the middle between two images of a batch and beside each: an image of class 5 is no class 0 for a NaN."""
    known = digits.inputs.flatten(1)

    class Knowing(nn.Module):
        def forward(self, inputs):
            known_here = (torch.cdist(inputs.flatten(1), known).amin(1) < 1e-5)[:, None]
            return digits.module(inputs).where(known_here, torch.nan)

    choice = AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 1})
    cell = cell_of(choice, Knowing())
    probed = probe_cell(cell, Classifier(Knowing()), digits.inputs, digits.labels, images=3)
    assert probed["random-noise"]["fooled"] == []


def test_a_normalisation_that_gives_no_finite_answer_corrects_nothing(digits):
    """Every label is 0, which is what argmax makes of NaN."""
    module = After(lambda logits: logits.where(logits.argmax(1, keepdim=True) != 0, torch.nan), digits.module)
    labels = torch.zeros_like(digits.labels)
    logits = torch.tensor([[0.0, 1.0] + 8 * [0.0]]).expand(len(labels), -1)
    probe = probe_normalisation(Classifier(module, mean=[0.0] * 3, std=[1 / 255] * 3), digits.inputs, labels, logits)
    assert all(each["corrected"] == 0 for each in probe["tried"].values())


def test_too_few_steps_show(digits, cell_of):
    choice = AttackChoice("foolbox:pgd", "linf", 0.3, parameters={"steps": 2, "step_size": 0.02})
    answers = probe_cell(cell_of(choice), digits.classifier, digits.inputs, digits.labels, images=6)
    assert len(answers["more-steps"]["fooled"]) > len(answers["base"]["fooled"])


def test_without_a_bound_the_steps_are_as_long_as_the_ball_is_wide(digits, cell_of):
    choice = AttackChoice("foolbox:pgd", "linf", 0.02, parameters={"steps": 4, "step_size": 0.005})
    answers = probe_cell(cell_of(choice), digits.classifier, digits.inputs, digits.labels, images=4)
    assert len(answers["base"]["fooled"]) < 4
    assert answers["unbounded"]["radius"] == 0.5
    assert answers["unbounded"]["fooled"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "name", "kind"),
    [
        (torch.zeros_like, "returns", "16 black and 0 unchanged"),
        (torch.clone, "returns", "0 black and 16 unchanged"),
        (lambda inputs: (inputs + 0.2).clamp(0, 1), "bounds", "16 out-of-ball"),
        (lambda inputs: inputs - 0.1, "bounds", "16 out-of-bounds"),
        (lambda inputs: inputs * torch.nan, "bounds", "16 nan"),
    ],
    ids=["black", "clean", "out-of-ball", "out-of-bounds", "nan"],
)
def test_a_broken_attack(digits, tmp_path, monkeypatch, change, name, kind):
    """The library call is replaced; the judge, the records and the indicators are those of every evaluation."""

    def broken(_row, _classifier, images, *_, **_options):
        none = torch.zeros_like(images.labels)
        flags = ("denied", "moved", "silent", "odd_gradient", "odd_query", "scored")
        seen = {name: none.bool() for name in flags} | {"gradients": none}
        return LibraryOutput(
            change(images.inputs), none, none, 0.0, ((),) * len(none), **seen, put_back=(), torch_seeds=(), error=None
        )

    monkeypatch.setattr("davylamp.adapters.running.run.call_library", broken)
    data = Data(digits.inputs, digits.labels, [str(i) for i in range(16)])
    plan = make_plan(Config(attacks=(PGD,), measures=()), models={"net": digits.classifier}, data=data)
    evaluate(plan, ResultsStore(tmp_path))
    checks = {check.name: check for check in check_folder(tmp_path) if check.cell}
    assert kind in checks[name].detail
    failed = {each for each in ("bounds", "returns") if checks[each].state == "fail"}
    assert failed == ({"bounds", "returns"} if change is torch.zeros_like else {name})  # black is out of the ball, too
    assert all(checks[each].state == "pass" for each in {"bounds", "returns"} - failed)


@pytest.mark.parametrize(
    ("choice", "name", "reason"),
    [
        (AttackChoice("foolbox:fgsm", "linf", 0.1), "more-steps", "number of steps"),
        (AttackChoice("foolbox:fgsm", "linf", 0.1), "unbounded", "a single step"),
        (AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 9}), "more-steps", "more than the limit of 50"),
        (AttackChoice("torchattacks:apgd-dlr", "linf", 0.1, parameters={"steps": 2}), "active-test", "at least"),
    ],
)
def test_what_cannot_be_asked_says_why(digits, cell_of, choice, name, reason, monkeypatch):
    monkeypatch.setattr("davylamp.engine.probes.probe_cell.MOST_QUERIES", 50)
    answers = probe_cell(cell_of(choice), digits.classifier, digits.inputs, digits.labels, images=1)
    assert reason in answers[name]["reason"]


def test_a_search_over_radii_is_probed_as_its_attack(digits, cell_of):
    choice = AttackChoice("best(foolbox:pgd)", "linf", parameters={"steps": 5})
    answers = probe_cell(cell_of(choice), digits.classifier, digits.inputs, digits.labels, images=2)
    assert answers["epsilon"] == pytest.approx(4 / 255)
    assert answers["active-test"]["found"] == [0, 1]


def test_no_image_to_probe_on(digits, cell_of):
    with pytest.raises(InvalidInput, match="classifies none"):
        probe_cell(cell_of(PGD), digits.classifier, digits.inputs, (digits.labels + 1) % 10)
    with pytest.raises(InvalidInput, match="images >= 1"):
        probe_cell(cell_of(PGD), digits.classifier, digits.inputs, digits.labels, images=0)


def test_a_folder_is_probed_once_and_only_with_its_own_model(digits, tmp_path):
    data = Data(digits.inputs, digits.labels, [str(i) for i in range(16)])
    evaluate(make_plan(Config(attacks=(PGD,)), models={"net": digits.classifier}, data=data), ResultsStore(tmp_path))
    before = {check.name: check.state for check in check_folder(tmp_path)}
    assert before["active-test"] == "unknown"
    assert before["gradients"] == "pass"
    other = Classifier(Before(steps, digits.module))
    refused = probe_folder(tmp_path, models={"net": other}, data=data, images=2)
    assert "the model differs from the evaluated model" in refused.notes[0]
    fewer = Data(digits.inputs[:8], digits.labels[:8], data.names[:8])
    refused = probe_folder(tmp_path, models={"net": digits.classifier}, data=fewer, images=2)
    assert "differ from the images of the evaluation" in refused.notes[0]
    (note,) = probe_folder(tmp_path, images=1).notes
    assert note.startswith("net: unknown model")
    assert probe_folder(tmp_path, models={"net": digits.classifier}, data=data, images=2)[:2] == (1, 0)
    assert probe_folder(tmp_path, models={"net": digits.classifier}, data=data, images=2)[:2] == (0, 1)
    after = {check.name: check.state for check in check_folder(tmp_path)}
    asked = {"more-steps", "unbounded", "random-noise", "active-test"}
    assert {name for name in before if after[name] != before[name]} == asked
    assert after["active-test"] == "pass"
    with pytest.raises(Unavailable):
        probe_folder(tmp_path / "nothing")


def test_an_embedded_model_under_a_sound_attack(tmp_path, monkeypatch):
    for name in ("binarization_test.INNER", "binarization_test.CHANCE", "probe_cell.DRAWS"):
        monkeypatch.setattr(f"davylamp.engine.probes.{name}", 8)
    choice = AttackChoice("foolbox:pgd", "linf", 4 / 255, parameters={"steps": 2})
    plan = make_plan(Config(attacks=(choice,), limit=2, libraries=("foolbox",), measures=()))
    evaluate(plan, ResultsStore(tmp_path))
    probe_folder(tmp_path, images=1)
    checks = check_folder(tmp_path)
    assert [check for check in checks if check.state in ("warn", "fail")] == []
    passed = {check.name for check in checks if check.state == "pass"}
    assert passed >= {"eval-mode", "deterministic", "zero-epsilon", "logits", "gradients", "bounds", "returns"}
    assert passed >= {"more-steps", "unbounded", "random-noise", "active-test"}
