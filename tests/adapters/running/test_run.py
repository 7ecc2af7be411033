"""run_attack around a library that misbehaves in every known way, and the arguments that it refuses."""

import threading
import time

import pytest
import torch

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.attack import Implementation
from davylamp.adapters.libraries.torchattacks import driver as torchattacks
from davylamp.adapters.parameters import check_parameter, parse_number, parse_parameter
from davylamp.adapters.running.seeding import call_seed
from davylamp.errors import AttackFailed, InvalidInput, UnknownName, Unsupported

LINF = ThreatModel("linf", 0.1)


def test_nan_never_counts_as_robust_or_fooled(library):
    result = library(lambda model, inputs, labels: inputs * torch.nan)
    assert result.violations == (("nan",),) * 4
    assert not result.success.any()
    assert not result.robust.any()
    assert result.invalid.all()


def test_a_black_image_is_no_success_even_if_it_fools(library):
    row = Implementation("cw", "torchattacks", {"linf": "torchattacks:CW"})
    result = library(lambda model, inputs, labels: torch.zeros_like(inputs), row, ThreatModel("linf"))
    assert (result.adv_logits.argmax(1) != result.labels).any()
    assert not result.success.any()
    assert not result.robust.any()


def test_the_clean_image_counts_as_robust_only_where_it_is_how_the_library_fails(library):
    rows = {
        failure: Implementation("pgd", "torchattacks", {"linf": "torchattacks:PGD"}, failure=failure)
        for failure in ("input", "last")
    }

    def try_in_vain(model, inputs, labels):
        model(inputs + 0.01)
        return inputs

    assert library(try_in_vain, row=rows["input"]).robust.all()
    for function, row in ((try_in_vain, rows["last"]), (lambda m, x, y: x, rows["input"])):
        result = library(function, row=row)
        assert not result.robust.any()
        assert result.violations == (("unchanged",),) * 4


def test_an_image_outside_the_ball_is_scored_after_it_is_brought_back(library):
    result = library(lambda m, x, y: 1 - x)
    assert all("out-of-ball" in kinds for kinds in result.violations)
    assert result.distances.linf.max() <= 0.1 + 1e-6
    assert result.invalid.all()  # even those that fool the model after they were brought back
    assert not result.success.any()
    assert not result.robust.any()


def test_a_crash_of_every_batch_is_an_error_with_its_cause(library):
    def crash(model, inputs, labels):
        raise KeyError("deep inside")

    with pytest.raises(AttackFailed, match=r"torchattacks:pgd crashed: KeyError: 'deep inside'") as error:
        library(crash)
    assert isinstance(error.value.__cause__, KeyError)


def test_a_crash_of_one_batch_costs_only_its_images(library):
    calls = []

    def crash_once(model, inputs, labels):
        calls.append(len(inputs))
        if len(calls) == 2:
            raise RuntimeError("one bad batch")
        return inputs + 0.05

    result = library(crash_once, batch_size=2)
    assert result.violations[2:] == (("crashed",), ("crashed",))
    assert result.violations[:2] == ((), ())
    assert not result.robust[2:].any()
    (error,) = result.errors
    assert error.startswith("RuntimeError: one bad batch (line ")
    assert error.endswith("of test_run.py)")


def test_a_wrong_shape_is_a_crash(library):
    with pytest.raises(AttackFailed, match="expected images of shape"):
        library(lambda m, x, y: x[:1])


def test_only_images_that_the_classifier_gets_right_are_attacked(library, digits):
    seen = []
    labels = digits.labels[:4].clone()
    labels[1] = (labels[1] + 1) % 10
    row = Implementation("pgd", "torchattacks", {"linf": "torchattacks:PGD"})
    library(lambda m, x, y: (seen.append(len(x)), x)[1])
    result = run_attack(row, digits.classifier, digits.inputs[:4], labels, LINF)
    assert seen == [4, 3]
    assert result.attacked.tolist() == [True, False, True, True]
    assert not result.success[1]
    assert not result.robust[1]
    assert torch.equal(result.adv_inputs[1], digits.inputs[1])


def test_restarts_draw_anew_stop_at_success_and_add_up(library):
    seeds, sizes = [], []

    def noise(model, inputs, labels):
        seeds.append(torch.initial_seed())
        sizes.append(len(inputs))
        model(inputs)
        return inputs + 0.1 * (torch.rand_like(inputs) * 2 - 1)

    result = library(noise, restarts=3, seed=7)
    assert seeds == [7, call_seed(7, 0, 1), call_seed(7, 0, 2)]
    assert len(set(seeds)) == 3
    assert sizes[0] == 4
    assert sizes == [int((result.forwards > restart).sum()) for restart in range(3)]
    assert (result.forwards[~result.success] == 3).all()


def test_a_restart_never_loses_a_success(library, digits):
    wrong = (digits.inputs[:4] + 0.55 * (digits.inputs[[1, 2, 3, 0]] - digits.inputs[:4])).clamp(0, 1)
    fooled = digits.classifier.predict_logits(wrong).argmax(1) != digits.labels[:4]
    calls = []

    def succeed_first(model, inputs, labels):
        calls.append(len(inputs))
        model(inputs + 0.01)
        return wrong[: len(inputs)] if len(calls) == 1 else inputs

    row = Implementation("deepfool", "torchattacks", {"linf": "torchattacks:DeepFool"}, random=("torch",))
    result = library(succeed_first, row, ThreatModel("linf"), restarts=2)
    assert calls == [4, 4]
    assert torch.equal(result.success, fooled)
    assert result.success.any()


def test_a_minimum_norm_success_must_lie_within_a_given_epsilon(library, digits):
    row = Implementation("deepfool", "torchattacks", {"linf": "torchattacks:DeepFool"})
    far = (digits.inputs[:4] + 0.55 * (digits.inputs[[1, 2, 3, 0]] - digits.inputs[:4])).clamp(0, 1)
    assert library(lambda m, x, y: far, row, ThreatModel("linf")).success.any()
    result = library(lambda m, x, y: far, row, ThreatModel("linf", 0.1))
    assert not result.success.any()
    assert result.violations == ((),) * 4


def test_success_is_scored_again_on_8_bits(library, digits):
    case = digits.first(4)
    row = Implementation("deepfool", "torchattacks", {"linf": "torchattacks:DeepFool"})
    far = (case.inputs + 0.55 * (case.inputs[[1, 2, 3, 0]] - case.inputs)).clamp(0, 1)
    result = library(lambda m, x, y: far, row, ThreatModel("linf"))
    rounded = torch.floor(far * 255 + 0.5) / 255
    assert torch.equal(result.success_8bit, result.success & (case.module(rounded).argmax(1) != case.labels))


def test_prints_and_warnings_of_a_library_stay_inside(library, capsys):
    import warnings

    def loud(model, inputs, labels):
        print("progress")
        warnings.warn("old habits", DeprecationWarning, stacklevel=1)
        return inputs + 0.05

    library(loud)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"implementation": "foolbox:pgdd"}, UnknownName, "unknown attack 'pgdd'; did you mean"),
        ({"implementation": "deeprobust:pgd"}, UnknownName, "unknown library 'deeprobust'"),
        ({"implementation": "pgd"}, UnknownName, "unknown implementation 'pgd'; did you mean art:pgd"),
        ({"implementation": "foolbox:pgd@repared"}, UnknownName, "unknown implementation"),
        (
            {"threat_model": ThreatModel("l0", 5)},
            Unsupported,
            "foolbox:pgd does not support the norm l0; supported: linf",
        ),
        ({"threat_model": ThreatModel("linf")}, Unsupported, "needs an epsilon"),
        ({"threat_model": ThreatModel("l2", 100.0)}, InvalidInput, r"expected l2 epsilon <= 27\.7"),
        ({"threat_model": ThreatModel("linf", 0.1, targeted=True)}, InvalidInput, "needs targets"),
        ({"targets": torch.zeros(16, dtype=torch.long)}, InvalidInput, "model is untargeted"),
        ({"seed": -1}, InvalidInput, "expected a seed"),
        ({"stepps": 3}, UnknownName, "unknown parameter 'stepps'; did you mean steps"),
        ({"confidence": 1.0}, Unsupported, "foolbox:pgd has no parameter confidence; its parameters: steps"),
        ({"steps": 0}, InvalidInput, "expected steps >= 1, got 0"),
        ({"steps": 2.5}, InvalidInput, "expected steps as int"),
        ({"steps": True}, InvalidInput, "expected steps as int"),
        ({"inputs": torch.full((16, 3, 16, 16), 2.0)}, InvalidInput, r"expected images in \[0, 1\]"),
        ({"labels": torch.full((16,), 12)}, InvalidInput, "expected labels from 0 to 9"),
    ],
)
def test_misuse_is_refused_in_one_line(digits, change, error, message):
    arguments = {"implementation": "foolbox:pgd", "inputs": digits.inputs, "labels": digits.labels}
    arguments |= {"threat_model": LINF, "classifier": digits.classifier} | change
    with pytest.raises(error, match=message) as caught:
        run_attack(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("norm", "epsilon", "message"),
    [
        ("l3", 0.1, "expected a norm"),
        ("linf", 0.0, "expected epsilon > 0"),
        ("linf", -1.0, "expected epsilon > 0"),
        ("linf", 8.0, "so use 8/255"),
        ("l2", float("nan"), "expected epsilon > 0"),
        ("l0", 0.5, "expected l0 epsilon"),
        ("l0", 2.5, "expected l0 epsilon"),
        ("unrestricted", 0.5, "expected no epsilon"),
    ],
)
def test_a_threat_model_that_makes_no_sense_is_refused(norm, epsilon, message):
    with pytest.raises(InvalidInput, match=message):
        ThreatModel(norm, epsilon)


def test_targets_equal_to_the_label_are_refused(digits):
    with pytest.raises(InvalidInput, match="every target to differ"):
        run_attack(
            "foolbox:pgd",
            digits.classifier,
            digits.inputs,
            digits.labels,
            ThreatModel("linf", 0.1, targeted=True),
            targets=digits.labels,
        )


def test_parameters_are_read_from_text():
    assert parse_parameter("steps", "40") == 40
    assert parse_parameter("step_size", "2/255") == pytest.approx(2 / 255)
    assert parse_parameter("random_start", "no") is False
    assert parse_number("1e-3") == 0.001
    assert check_parameter("step_size", 1) == 1.0
    for name, text in (("steps", "4.5"), ("steps", "many"), ("random_start", "maybe"), ("step_size", "1/0")):
        with pytest.raises(InvalidInput):
            parse_parameter(name, text)


_SCRIPT = """
import hashlib, torch
from torch import nn
from davylamp.adapters import Classifier, ThreatModel, run_attack
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
for p in net.parameters():
    p.data = torch.randn(p.shape, generator=g)
x = torch.rand(3, 3, 8, 8, generator=g)
y = net(x).argmax(1)
for name, norm, kwargs in [
    ("art:pgd", "linf", dict(steps=3, random_start=True)),
    ("foolbox:pgd", "linf", dict(steps=3, random_start=True)),
    ("torchattacks:pgd", "linf", dict(steps=3, random_start=True)),
    ("art:hopskipjump", "l2", dict(steps=1)),
]:
    epsilon = None if "hop" in name else 0.05
    adv = run_attack(name, Classifier(net), x, y, ThreatModel(norm, epsilon), seed=3, **kwargs).adv_inputs
    print(name, hashlib.sha256(adv.numpy().tobytes()).hexdigest())
"""


def test_the_same_seed_gives_the_same_images_in_a_new_process(capsys, run_fresh):
    exec(_SCRIPT, {})
    here = capsys.readouterr().out
    assert run_fresh(_SCRIPT) == here
    assert len(here.splitlines()) == 4


def test_an_image_without_a_starting_point_is_neither_fooled_nor_robust(monkeypatch, digits):
    from davylamp.adapters.running import library_call

    def find_some(counter, inputs, labels, targets, seed):
        counter(inputs)
        return 1 - inputs, torch.tensor([True, False, True, False])

    def run(attack_class, model, inputs, labels, threat_model, targets=None, *, starting_points):
        assert torch.equal(starting_points, 1 - inputs)
        model(inputs)
        return inputs + 0.01

    monkeypatch.setattr(library_call, "find_starting_points", find_some)
    monkeypatch.setattr(torchattacks, "run", run)
    row = Implementation("boundary", "torchattacks", {"l2": "torchattacks:CW"}, {"starting_points": "starting_points"})
    case = digits.first(4)
    result = run_attack(row, case.classifier, case.inputs, case.labels, ThreatModel("l2"))
    assert result.violations == ((), ("no-start",), (), ("no-start",))
    assert result.forwards.tolist() == [2, 1, 2, 1]
    assert result.robust.tolist() == [True, False, True, False]


def test_images_that_cannot_be_told_apart_go_one_by_one_unless_the_perturbation_is_universal(library):
    sizes = []

    def record(model, inputs, labels):
        sizes.append(len(inputs))
        return inputs + 0.05

    wide = ThreatModel("linf", 0.9)
    for universal in (False, True):
        row = Implementation("pgd", "torchattacks", {"linf": "torchattacks:PGD"}, order="content", universal=universal)
        library(record, row, wide)
    assert sizes == [1, 1, 1, 1, 4]


def test_known_logits_spare_a_pass_and_change_nothing(digits):
    case, asked = digits.first(6), []
    arguments = ("torchattacks:fgsm", case.classifier, case.inputs, case.labels, LINF)
    run_attack(*arguments)  # the first run finds out, once and for all, whether the model is steady
    handle = case.classifier.model.register_forward_hook(lambda module, inputs, output: asked.append(len(inputs[0])))
    whole = run_attack(*arguments)
    passes = len(asked)
    again = run_attack(*arguments, logits=whole.logits)
    handle.remove()
    assert len(asked) - passes == passes - 1
    assert torch.equal(whole.adv_inputs, again.adv_inputs)
    assert torch.equal(whole.attacked, again.attacked)
    wrong = 5 * torch.eye(10)[(case.labels + 1) % 10]
    assert not run_attack(*arguments, logits=wrong).attacked.any()
    with pytest.raises(InvalidInput, match=r"expected model outputs of shape \(6, 10\), got \(5, 10\)"):
        run_attack(*arguments, logits=whole.logits[:5])


@pytest.mark.parametrize("name", ["art:pgd", "torchattacks:fab"])  # both have to know how many classes there are
def test_known_logits_tell_how_many_classes_there_are(digits, name):
    case = digits.first(4)
    whole = run_attack(name, Classifier(case.module), case.inputs, case.labels, LINF, steps=2)
    classifier = Classifier(case.module)
    again = run_attack(name, classifier, case.inputs, case.labels, LINF, steps=2, logits=whole.logits)
    assert classifier.num_classes == 10
    assert torch.equal(whole.adv_inputs, again.adv_inputs)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # SystemExit ends them
def test_threads_of_an_attack_end_and_those_of_others_go_on(digits):
    """Also where the others are started while the attack is running."""
    stop, go, started = threading.Event(), threading.Event(), threading.Event()
    started_by_it: list[threading.Thread] = []
    others: list[threading.Thread] = []

    def wait():
        while not stop.is_set():
            time.sleep(0.005)

    def start(threads):
        threads.append(threading.Thread(target=wait, daemon=True))
        threads[-1].start()

    def other():
        go.wait(10)
        start(others)
        started.set()

    def attack(model, inputs, labels, epsilon):
        go.set()
        child = threading.Thread(target=start, args=(started_by_it,), daemon=True)
        child.start()
        child.join()
        start(started_by_it)
        assert started.wait(10)
        return inputs

    outer = threading.Thread(target=other)
    outer.start()
    before = threading.Thread.start
    run_attack(attack, digits.classifier, digits.inputs[:2], digits.labels[:2], LINF)
    outer.join()
    try:
        assert len(started_by_it) == 2
        assert not any(thread.is_alive() for thread in started_by_it)
        assert [thread.is_alive() for thread in others] == [True]
        assert threading.Thread.start is before
    finally:
        stop.set()
