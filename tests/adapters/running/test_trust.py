"""The judge trusts nobody: libraries and models that misbehave during a run, and what is made of each."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.attack import Implementation
from davylamp.adapters.models.state_guard import StateGuard
from davylamp.errors import ModelFailed

LINF = ThreatModel("linf", 0.1)
MINIMUM = Implementation("deepfool", "torchattacks", {"linf": "torchattacks:DeepFool"})
FOUR = slice(0, 4)


class Wrapped(nn.Module):
    """A model with something done to its input or its output."""

    def __init__(self, net, before=lambda x: x, after=lambda x, z: z):
        super().__init__()
        self.net, self.before, self.after = net, before, after

    def forward(self, x):
        x = self.before(x)
        return self.after(x, self.net(x))


def neither(result, kind):
    assert all(kind in kinds for kinds in result.violations), result.violations
    assert result.invalid.all()
    assert not (result.success | result.success_8bit | result.robust | result.usable).any()
    return True


def gradient_step(model, inputs, labels):
    asked = inputs.clone().requires_grad_()
    loss = nn.functional.cross_entropy(model(asked), labels)
    (gradient,) = torch.autograd.grad(loss, asked)
    return (inputs + 0.1 * gradient.sign()).clamp(0, 1)


def test_logits_that_are_not_finite_off_the_clean_image_are_a_violation(library, digits):
    clean = digits.inputs[FOUR]

    def spoil(x, logits):
        off = torch.cdist(x.flatten(1), clean.flatten(1)).amin(1) > 1e-3
        return logits.where(~off[:, None], torch.nan)

    model = Wrapped(digits.module, after=spoil)
    assert neither(library(gradient_step, model=model), "nan-logits")
    returns_input = Implementation("pgd", "torchattacks", {"linf": "torchattacks:PGD"}, failure="input")

    def give_up(model, inputs, labels):
        model(inputs + 0.05)
        return inputs

    assert neither(library(give_up, returns_input, model=model), "nan-logits")


def test_logits_that_are_not_finite_on_8_bits_are_a_violation(library, digits):
    far = (digits.inputs[FOUR] + 0.55 * (digits.inputs[[1, 2, 3, 0]] - digits.inputs[FOUR])).clamp(0, 1) + 1e-4
    on_grid = (far * 255).round() / 255

    def spoil(x, logits):
        off = torch.cdist(x.flatten(1), on_grid.flatten(1)).amin(1) < 1e-4
        return logits.where(~off[:, None], torch.inf)

    honest = library(lambda m, x, y: far, MINIMUM, ThreatModel("linf"))
    assert honest.success.any()
    result = library(lambda m, x, y: far, MINIMUM, ThreatModel("linf"), model=Wrapped(digits.module, after=spoil))
    assert all(result.violations[i] == ("nan-logits",) for i in honest.success.nonzero()[:, 0])
    assert not result.success.any()


def test_an_attack_that_asked_off_the_clean_image_and_was_answered_with_nan_may_still_find_an_example(library, digits):
    def spoil(x, logits):
        return logits.where((x.flatten(1).amax(1) <= 1)[:, None], torch.nan)

    def look_everywhere(model, inputs, labels):
        model(inputs + 1)
        return gradient_step(model, inputs, labels)

    honest = library(gradient_step)
    result = library(look_everywhere, model=Wrapped(digits.module, after=spoil))
    assert torch.equal(result.success, honest.success)
    assert result.success.any()
    assert torch.equal(result.invalid, ~honest.success)  # what is not fooled was not looked at properly


def test_a_library_that_changes_the_images_that_it_is_given_changes_nobody_elses(library, digits):
    before = digits.inputs.clone(), digits.labels.clone()

    def scribble(model, inputs, labels):
        model(inputs + 0.05)
        inputs.zero_()
        labels.fill_(0)
        return inputs + 0.5

    result = library(scribble)
    assert torch.equal(digits.inputs, before[0])
    assert torch.equal(digits.labels, before[1])
    assert torch.equal(result.labels, before[1][FOUR])
    assert result.distances.linf.max() <= 0.1 + 1e-6


CHANGES = {
    "weights": lambda net: net[0].weight.data.mul_(-1),
    "a bias in place": lambda net: torch.no_grad()(net[-1].bias.add_)(100 * torch.eye(10)[3]),
    "a storage": lambda net: setattr(net[-1].weight, "data", torch.zeros(10, 256)),
    "a parameter": lambda net: setattr(net[-1], "weight", nn.Parameter(torch.zeros(10, 256), requires_grad=False)),
    "a module": lambda net: net.__setitem__(-1, nn.Linear(256, 10)),
    "the forward": lambda net: setattr(net, "forward", lambda x: x.flatten(1)[:, :10]),
    "a hook": lambda net: net[-1].register_forward_hook(lambda module, inputs, output: -output),
    "a need of gradients": lambda net: net[0].weight.requires_grad_(),
    "training": lambda net: [setattr(module, "training", True) for module in net.modules()],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_attack_that_changes_the_model_proves_nothing_and_leaves_it_as_it_was(library, digits, change):
    inputs = digits.inputs[FOUR]
    before, state = digits.module(inputs), {k: v.clone() for k, v in digits.module.state_dict().items()}

    def cheat(model, inputs, labels):
        change(model.classifier.model)
        return gradient_step(model, inputs, labels)

    classifier = digits.classifier
    result = library(cheat, model=classifier)
    assert neither(result, "model-changed")
    assert torch.equal(digits.module(inputs), before)
    assert all(torch.equal(value, state[name]) for name, value in digits.module.state_dict().items())
    assert not any(p.requires_grad for p in digits.module.parameters())
    assert not any(module.training for module in digits.module.modules())
    assert "forward" not in vars(digits.module)
    assert not digits.module[-1]._forward_hooks
    assert torch.equal(library(gradient_step, model=classifier).success, library(gradient_step).success)


def test_statistics_of_batch_normalisation_are_part_of_the_state(library, digits):
    net = nn.Sequential(nn.BatchNorm2d(3), digits.module).eval()

    def update(model, inputs, labels):
        model.classifier.model[0].running_mean += 0.3
        return gradient_step(model, inputs, labels)

    assert neither(library(update, model=net), "model-changed")
    assert not net[0].running_mean.any()


def test_what_the_model_itself_changes_is_not_put_down_to_the_library(library, digits):
    class Counting(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.register_buffer("asked", torch.zeros(()))
            self.calls = 0

        def forward(self, x):
            self.asked += 1
            self.calls += 1
            return self.net(x)

    result, honest = library(gradient_step, model=Counting(digits.module)), library(gradient_step)
    assert not result.invalid.any()
    assert torch.equal(result.adv_inputs, honest.adv_inputs)


def test_only_the_images_attacked_since_the_last_look_are_in_doubt():
    module = nn.Linear(3, 2)
    guard = StateGuard(module)
    assert not guard.restore(lambda: None)
    module.weight.data += 1
    assert guard.restore(lambda: None)
    assert not guard.restore(lambda: None)


def test_the_switches_of_torch_are_as_they_were(library):
    def flip(model, inputs, labels):
        returned = gradient_step(model, inputs, labels)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.autograd.set_detect_anomaly(True)
        torch.set_num_threads(3)
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        return returned

    threads, benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    result = library(flip)
    assert not result.invalid.any()
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert not torch.is_anomaly_enabled()
    assert (torch.get_num_threads(), torch.backends.cudnn.benchmark) == (threads, benchmark)


def test_a_white_box_attack_that_was_given_no_gradient_has_shown_nothing(library, digits):
    def random_start(model, inputs, labels):
        asked = (inputs + 0.05 * (torch.rand_like(inputs) - 0.5)).clamp(0, 1).requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(asked), labels), asked)
        return (asked.detach() + 0.02 * gradient.sign()).clamp(0, 1)

    saturated = Wrapped(digits.module, after=lambda x, logits: 1e6 * logits)
    for attack in (random_start, gradient_step):  # the second one does not even move
        assert neither(library(attack, model=saturated), "no-gradient")
        assert library(attack, model=saturated).violations == (("no-gradient",),) * 4
    assert library(random_start).robust.any()


@pytest.mark.parametrize("how", ["logits", "batch", "batch-norm"])
def test_a_model_that_does_not_say_the_same_twice_is_neither_fooled_nor_robust(library, digits, how):
    statistics = torch.zeros(10), torch.ones(10)
    changes = {
        "logits": lambda x, logits: 0 * logits + torch.rand_like(logits),
        "batch": lambda x, logits: logits.roll(1, 1) if len(x) % 2 else logits,
        "batch-norm": lambda x, logits: nn.functional.batch_norm(logits, *statistics, training=len(x) > 1),
    }
    model = Wrapped(digits.module, after=changes[how])
    classifier = Classifier(model)
    case = digits.first(4)
    attacked = library(gradient_step, model=classifier, logits=digits.module(case.inputs))
    decided = attacked.success | attacked.robust
    for size in (1, 4):  # whatever is decided holds alone and among the others
        for images, fooled in (
            (case.inputs, torch.zeros(4, dtype=torch.bool)),
            (attacked.adv_inputs, attacked.success),
        ):
            wrong = classifier.predict_logits(images, batch_size=size).argmax(1) != case.labels
            assert torch.equal(wrong[decided], fooled[decided])
    assert attacked.invalid.any()


def test_a_steady_model_is_asked_once_whether_it_is(digits):
    asked = []
    classifier = Classifier(Wrapped(digits.module, before=lambda x: asked.append(len(x)) or x))
    for expected in ([1, 4, 1, 1], []):  # the first one, whether it has gradients
        asked.clear()
        run_attack("torchattacks:fgsm", classifier, digits.inputs[FOUR], digits.labels[FOUR], LINF)
        assert asked[1 : 1 + len(expected)] == expected
        assert classifier.steady
    assert len(asked) <= 4  # clean, attack, examples, examples on 8 bits


def test_swapped_examples_prove_nothing(library, digits):
    honest = (digits.inputs[FOUR] * 0.97 + 0.01).clamp(0, 1)
    result = library(lambda m, x, y: honest[[1, 0, 3, 2]], MINIMUM, ThreatModel("linf"))
    assert neither(result, "another-image")


@pytest.mark.parametrize("given", [(), (MINIMUM, ThreatModel("linf"))])
def test_the_clean_image_with_rounding_noise_proves_nothing(library, given):
    assert neither(library(lambda m, x, y: (x + 1e-8 * torch.randn_like(x)).clamp(0, 1), *given), "unchanged")


@pytest.mark.parametrize(
    ("name", "limit"), [("foolbox:pgd", 5), ("foolbox:pgd", 4), ("art:deepfool", 7), ("torchattacks:fgsm", 1)]
)
def test_what_is_counted_within_a_budget_is_what_ran(digits, name, limit):
    ran = {"forwards": 0, "backwards": 0}
    case, classifier = digits.first(1), digits.classifier

    def note(module, inputs, output):
        ran["forwards"] += len(output)
        if inputs[0].requires_grad and torch.is_grad_enabled():
            inputs[0].register_hook(lambda gradient: ran.update(backwards=ran["backwards"] + len(gradient)))

    threat_model = ThreatModel("l2") if "deepfool" in name else LINF
    run_attack(name, classifier, case.inputs, case.labels, threat_model)  # finds out whether the model is steady
    handle = case.module.register_forward_hook(note)
    logits = case.module(case.inputs)
    ran.update(forwards=0, backwards=0)
    result = run_attack(name, classifier, case.inputs, case.labels, threat_model, max_queries=limit, logits=logits)
    handle.remove()
    judged = 1 + int(result.success.any())
    assert (ran["forwards"] - judged, ran["backwards"]) == (int(result.forwards), int(result.backwards))
    assert sum(ran.values()) - judged <= limit


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step_size", 0.0),
        ("step_size", float("inf")),
        ("learning_rate", 0),
        ("initial_const", 0.0),
        ("theta", 0.0),
        ("steps", 10**23),
        ("basis", "cosine"),
    ],
)
def test_a_value_with_which_an_attack_can_do_nothing_is_refused(name, value):
    from davylamp.adapters.parameters import check_parameter
    from davylamp.errors import InvalidInput

    with pytest.raises(InvalidInput, match=name):
        check_parameter(name, value)


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("planted: no way back")


class NoWayBack(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(Backward.apply(x))


@pytest.mark.parametrize("name", ["art:pgd", "foolbox:pgd", "torchattacks:pgd"])
def test_a_gradient_that_the_models_own_code_refuses_is_no_fault_of_the_library(digits, name):
    classifier = Classifier(NoWayBack(digits.module))
    with pytest.raises(ModelFailed, match="the model NoWayBack raised RuntimeError: planted: no way back"):
        run_attack(name, classifier, digits.inputs[FOUR], digits.labels[FOUR], LINF, steps=2)
