"""In how many bits attacks ask, and that the judge asks in full float32 whatever they do."""

import contextlib
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from davylamp.adapters import (
    IMPLEMENTATIONS,
    Classifier,
    QueryCounter,
    ThreatModel,
    as_implementation,
    find_implementation,
    run_attack,
)
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.defences.defend import Defended
from davylamp.adapters.models.ensemble import mean_logit_ensemble
from davylamp.adapters.parameters import PRECISIONS
from davylamp.adapters.running.fit import fit_attack
from davylamp.adapters.running.precision import check_precision, precision_of
from davylamp.adapters.running.requirements import has_gradients
from davylamp.adapters.torch_state import attack_precision, current_precision, full_float32, preserve_torch_state, tf32
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.store.results import as_results
from davylamp.engine.tables.distance_curves import has_curves
from davylamp.errors import InvalidInput, Unsupported

LINF, PGD = ThreatModel("linf", 0.1), find_implementation("torchattacks:pgd")


class Noting(nn.Module):
    """Notes of each pass what its first layer computed in, what torch was set to, and whether a gradient is asked."""

    def __init__(self, module):
        super().__init__()
        self.module, self.passes = module, []
        self.backwards = []

    def forward(self, inputs):
        first = self.module[0](inputs)
        self.passes.append((first.dtype, current_precision(), inputs.requires_grad))
        if first.requires_grad:
            first.register_hook(lambda gradient: self.backwards.append((gradient.dtype, current_precision())))
        return self.module[1:](first)


@pytest.fixture
def noting(digits):
    return Noting(deepcopy(digits.module))


def known(noting, inputs):
    """A classifier that was asked already whether it has gradients: what is noted are the attack and the judge."""
    classifier = Classifier(noting)
    assert has_gradients(classifier, inputs)
    noting.passes.clear()
    return classifier


@pytest.mark.parametrize("name", ["torchattacks:pgd", "foolbox:pgd", "art:pgd", "adv-lib:pgd"])
def test_an_attack_asks_in_bfloat16_and_the_judge_in_float32(digits, noting, name):
    case = digits.first(4)
    result = run_attack(name, known(noting, case.inputs), case.inputs, case.labels, LINF, steps=3, precision="bfloat16")
    assert {dtype for dtype, _, asked in noting.passes if asked} == {torch.bfloat16}
    assert {dtype for dtype, _ in noting.backwards} == {torch.bfloat16}
    judged = [(dtype, now) for dtype, now, asked in noting.passes if not asked]
    assert (torch.float32, "float32") in judged
    assert result.parameters["precision"] == "bfloat16"
    again = case.classifier.predict_logits(result.adv_inputs)
    torch.testing.assert_close(result.adv_logits, again, rtol=0, atol=1e-5)  # bfloat16 is off by some 1e-2
    assert result.adv_inputs.dtype == torch.float32
    assert torch.equal(result.success, again.argmax(1) != case.labels)


def test_what_fools_in_bfloat16_alone_is_no_success():
    """Logits 256 and 256.4: in bfloat16 both are 256 and the first counts, in float32 the label's is larger."""
    close = nn.Sequential(nn.Flatten(), nn.Linear(48, 2, bias=False))
    with torch.no_grad():
        close[1].weight[0], close[1].weight[1] = 256 / 48, 256.4 / 48
    ones, labels = torch.ones(1, 3, 4, 4), torch.tensor([1])
    with torch.autocast("cpu", torch.bfloat16):
        assert close(ones).argmax(1) == 0  # what the attack sees
    result = run_attack(
        "foolbox:fgsm", Classifier(close), ones, labels, ThreatModel("linf", 1e-4), precision="bfloat16"
    )
    assert result.attacked.all()
    assert not result.success.any()


def test_a_users_autocast_holds_for_attacks_and_not_for_the_judge(digits, noting):
    case = digits.first(4)
    classifier = known(noting, case.inputs)
    for precision, computed in ((None, torch.bfloat16), ("float32", torch.float32)):
        noting.passes.clear()
        chosen = {} if precision is None else {"precision": precision}
        with torch.autocast("cpu", torch.bfloat16):
            result = run_attack("torchattacks:pgd", classifier, case.inputs, case.labels, LINF, steps=3, **chosen)
            assert torch.is_autocast_enabled("cpu")
        assert {dtype for dtype, _, asked in noting.passes if asked} == {computed}
        assert torch.equal(result.adv_logits, case.classifier.predict_logits(result.adv_inputs))


def test_float32_holds_for_the_backward_pass_too(digits, noting):
    case = digits.first(2)
    with preserve_torch_state():
        torch.set_float32_matmul_precision("high")
        run_attack(
            "foolbox:pgd", known(noting, case.inputs), case.inputs, case.labels, LINF, steps=2, precision="float32"
        )
        assert torch.get_float32_matmul_precision() == "high"
    assert {now for _, now, _ in noting.passes} == {"float32"}
    assert {now for _, now in noting.backwards} == {"float32"}


def test_the_counter_counts_the_same(digits):
    case = digits.first(3)
    counts = []
    for precision in (None, "bfloat16"):
        counter = QueryCounter(case.classifier, case.inputs, case.labels, LINF, precision=precision)
        logits = counter(case.inputs.clone().requires_grad_())
        logits.sum().backward()
        assert logits.dtype == torch.float32
        counts.append((counter.forwards.tolist(), counter.backwards.tolist()))
    assert counts[0] == counts[1] == ([1] * 3, [1] * 3)


def test_what_learns_once_learns_in_the_precision(digits, noting):
    case = digits.first(2)
    fitted = fit_attack(
        "art:uap", Classifier(noting), case.inputs, case.labels, LINF, steps=1, precision="bfloat16", seed=0
    )
    assert fitted.parameters["precision"] == "bfloat16"
    assert torch.bfloat16 in {dtype for dtype, _, asked in noting.passes if asked}


class Box(nn.Module):
    """A model without weights that torch sees, as one behind a server is."""

    def forward(self, inputs):
        return inputs.flatten(1)[:, :3]


def behind(classifier):
    return Classifier(Defended(classifier, nn.AvgPool2d(3, 1, 1), "blur", "exact"))


@pytest.mark.parametrize(
    ("make", "precision", "line"),
    [
        (Classifier, "tf32", "precision tf32 needs an NVIDIA GPU, and .* computes on cpu; choose float32 or bfloat16"),
        (lambda net: Classifier(net.bfloat16()), "float32", "computes in bfloat16 by itself; omit precision"),
        (lambda _: Classifier(Box()), "bfloat16", "Box is not computed by torch here; omit precision"),
        (lambda _: behind(Classifier(Box())), "bfloat16", "Box is not computed by torch here; omit precision"),
        (
            lambda net: mean_logit_ensemble([Classifier(net), Classifier(Box())]),
            "bfloat16",
            "Box is not computed by torch here",
        ),
        (lambda net: behind(Classifier(net.bfloat16())), "float32", "computes in bfloat16 by itself"),
    ],
)
def test_what_cannot_be_is_refused(digits, make, precision, line):
    with pytest.raises(Unsupported, match=line):
        check_precision(precision, make(deepcopy(digits.module)), PGD)


def test_weights_may_be_buffers(digits):
    class Held(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.rand(10, 3))

        def forward(self, inputs):
            return inputs.mean((2, 3)) @ self.weight.T

    check_precision("bfloat16", Classifier(Held()), PGD)
    check_precision("bfloat16", behind(Classifier(deepcopy(digits.module))), PGD)


def test_an_attack_that_computes_with_layers_is_not_rounded_with_them(digits):
    row = next(row for row in IMPLEMENTATIONS.values() if row.reads_layers and not row.broken)
    check_precision("float32", Classifier(deepcopy(digits.module)), row)
    with pytest.raises(Unsupported, match="reads layer outputs; choose float32 or tf32"):
        check_precision("bfloat16", Classifier(deepcopy(digits.module)), row)


def test_every_judgement_is_in_float32_in_somebodys_autocast(digits, noting):
    classifier = Classifier(noting)
    exact = classifier.predict_logits(digits.inputs)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(classifier.predict_logits(digits.inputs), exact)
        assert classifier.predict_batched(digits.inputs).sub(exact).abs().max() > 0
    assert torch.bfloat16 in {dtype for dtype, *_ in noting.passes}


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_a_named_precision_is_that_in_somebodys_autocast(kind):
    with torch.autocast(kind, torch.bfloat16):
        for precision, now in (("float32", "float32"), ("tf32", "tf32")):
            with attack_precision(precision):
                assert current_precision() == now
        with attack_precision("bfloat16"):
            assert not torch.is_autocast_enabled(kind)  # the attack around the questions
        assert current_precision() == "bfloat16"


def test_a_users_attack_may_have_a_precision_of_its_own(digits):
    given = []

    def mine(model, inputs, labels, epsilon, precision=0.5, amp=False):
        given.append((precision, amp))
        model(inputs)
        return inputs + epsilon

    row, case = as_implementation(mine), digits.first(2)
    run_attack(row, case.classifier, case.inputs, case.labels, LINF, precision=0.25, amp=True)
    assert given == [(0.25, True)]
    assert precision_of(row, {"precision": 0.25}) is None
    assert precision_of(PGD, {"precision": "tf32"}) == "tf32"


def test_no_curve_of_what_fools_in_fewer_bits(digits, tmp_path):
    data = Data(digits.inputs[:4], digits.labels[:4], ["a", "b", "c", "d"])
    curves = []
    for precision in (None, "float32", "bfloat16"):
        folder = tmp_path / str(precision)
        config = Config(
            attacks=(AttackChoice("adv-lib:ddn", "l2", parameters={"steps": 10}),),
            measures=("curve",),
            precision=precision,
        )
        plan = make_plan(config, models={"net": digits.classifier}, data=data)
        assert evaluate(plan, ResultsStore(folder)).done == 1
        curves.append(has_curves(as_results(folder)))
    assert curves == [True, True, False]


def test_an_old_gpu_is_refused(digits, monkeypatch):
    classifier = Classifier(deepcopy(digits.module))
    monkeypatch.setattr(Classifier, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    for major, refused in ((7, True), (8, False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, major=major: (major, 5))
        check_precision("float32", classifier, PGD)
        for precision in ("tf32", "bfloat16"):
            with pytest.raises(Unsupported, match="got Tesla T4; choose") if refused else contextlib.nullcontext():
                check_precision(precision, classifier, PGD)


def test_an_unknown_precision_is_named(digits):
    case = digits.first(1)
    with pytest.raises(InvalidInput, match="expected precision as float32 or tf32 or bfloat16, got 'float16'"):
        run_attack("foolbox:fgsm", case.classifier, case.inputs, case.labels, LINF, precision="float16")
    assert PRECISIONS == ("float32", "tf32", "bfloat16")


def test_a_defended_model_is_asked_in_it_too(digits, noting):
    case = digits.first(4)
    smooth = Classifier(Defended(Classifier(noting), nn.AvgPool2d(3, 1, 1), "blur", "exact"))
    assert has_gradients(smooth, case.inputs)
    noting.passes.clear()
    result = run_attack("torchattacks:pgd", smooth, case.inputs, case.labels, LINF, steps=2, precision="bfloat16")
    assert {dtype for dtype, _, asked in noting.passes if asked} == {torch.bfloat16}
    assert np.isfinite(result.adv_logits.numpy()).all()


def test_a_block_in_a_block_is_exact_whatever_was_set_between():
    with full_float32():
        with full_float32():
            assert current_precision() == "float32"
        with tf32():
            assert current_precision() == "tf32"
            with full_float32():
                assert current_precision() == "float32"
            assert current_precision() == "tf32"
        with torch.autocast("cpu", torch.bfloat16), full_float32():
            assert current_precision() == "float32"
        assert current_precision() == "float32"
    assert current_precision() != "float32"
