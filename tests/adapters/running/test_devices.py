"""Where things are computed: the same on a GPU, no waiting for it, and nothing of it touched that is not in use."""

import subprocess
import sys
from collections import Counter
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import davylamp
from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.models.state_guard import StateGuard
from davylamp.adapters.running.seeding import seeded
from davylamp.adapters.torch_state import current_precision, full_float32, preserve_torch_state
from davylamp.engine.run.measure import _spent

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LINF, L2 = ThreatModel("linf", 0.1), ThreatModel("l2")
# Deterministic ones, and ones whose random numbers are drawn on the CPU: the same on every device.
ROWS = [
    ("foolbox:fgsm", LINF, {}),
    ("art:pgd", LINF, {"steps": 5}),
    ("torchattacks:apgd-ce", LINF, {"steps": 5}),
    ("foolbox:ddn", L2, {"steps": 20}),
    ("art:hopskipjump", L2, {"steps": 1, "max_queries": 60}),
    ("art:square", LINF, {"steps": 20}),
]
# What a GPU has to be waited for: the host reads a value, or the shape depends on one.
WAITS = ("_local_scalar_dense", "equal", "nonzero", "bincount", "masked_select", "_unique2")


class Waits(TorchDispatchMode):
    """Counts what davylamp itself would wait for on a GPU, by its line."""

    def __init__(self):
        super().__init__()
        self.lines: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        masks = [index for each in args if isinstance(each, (list, tuple)) for index in each]
        by_mask = any(isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in masks)
        name = func.__name__.split(".")[0]
        if name in WAITS or (name.startswith("index") and by_mask):
            frame = sys._getframe(1)
            while frame and "/torch/" in frame.f_code.co_filename:
                frame = frame.f_back
            if frame and "/adapters/" in frame.f_code.co_filename and "/libraries/" not in frame.f_code.co_filename:
                self.lines[f"{frame.f_code.co_filename}:{frame.f_lineno}"] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["foolbox:pgd", "torchattacks:square", "art:square"])
def test_the_device_is_not_waited_for_at_every_step(digits, name):
    case, rules = digits.first(4), ThreatModel("linf", 0.01)

    def waits(steps):
        with Waits() as seen:
            run_attack(name, case.classifier, case.inputs, case.labels, rules, steps=steps)
        return seen.lines

    short, long = waits(4), waits(44)
    assert long.total() <= short.total() + 3, long - short


def test_gpus_that_are_not_in_use_are_left_alone(monkeypatch):
    """As on a machine with two that this process has not touched: to look at them would set them up."""

    def touch(*_, **__):
        raise AssertionError("a GPU was touched")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("get_rng_state", "set_rng_state", "manual_seed_all", "manual_seed"):
        monkeypatch.setattr(torch.cuda, name, touch)
    before = torch.get_rng_state()
    with seeded(3):
        drawn = torch.rand(4)
    with seeded(3):
        assert torch.equal(torch.rand(4), drawn)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def newer_way():
    """Matrix products in TF32, set in the way of torch 2.9, after which the older way cannot be asked."""
    matmul = torch.backends.cuda.matmul
    try:
        before = matmul.fp32_precision
    except AttributeError:
        pytest.skip("this torch has the older way only")
    matmul.fp32_precision = "tf32"
    yield matmul
    matmul.fp32_precision = before


def test_tf32_in_the_newer_way_is_taken_and_put_back(newer_way, digits):
    matmul, case = newer_way, digits.first(4)
    with pytest.raises(RuntimeError, match="mix of the legacy and new"):
        torch.get_float32_matmul_precision()
    with preserve_torch_state():
        matmul.fp32_precision = "ieee"
    assert matmul.fp32_precision == "tf32"
    assert run_attack("foolbox:fgsm", case.classifier, case.inputs, case.labels, LINF).attacked.all()


class Watched(nn.Module):
    """A model that notes for each pass whether float32 is rounded, and whether a gradient is asked for."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module, self.passes = module, []

    def forward(self, inputs):
        self.passes.append((current_precision() == "float32", inputs.requires_grad))
        return self.module(inputs)


def test_attacks_may_round_float32_and_the_judge_never_does(digits):
    case, watched = digits.first(4), Watched(digits.module)
    with preserve_torch_state():
        torch.set_float32_matmul_precision("high")
        run_attack("torchattacks:pgd", Classifier(watched), case.inputs, case.labels, LINF, steps=3)
        assert torch.get_float32_matmul_precision() == "high"
    attack = [exact for exact, differentiated in watched.passes if differentiated]
    judge = [exact for exact, differentiated in watched.passes if not differentiated]
    assert len(attack) >= 3
    assert not any(attack)
    assert len(judge) >= 3
    assert all(judge)


def test_full_float32_leaves_every_precision_as_it_was():
    places = torch.backends.cudnn, torch.backends.cudnn.conv, torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    with preserve_torch_state():
        torch.set_float32_matmul_precision("medium")
        before = [place.fp32_precision for place in places]
        with full_float32():
            assert current_precision() == "float32"
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert [place.fp32_precision for place in places] == before
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cudnn.allow_tf32
        assert current_precision() != "float32"


def test_full_float32_in_the_newer_way(newer_way):
    with full_float32():
        assert current_precision() == "float32"
        assert newer_way.fp32_precision == "ieee"
    assert newer_way.fp32_precision == "tf32"
    assert current_precision() != "float32"


@pytest.mark.parametrize(
    ("name", "rules"), [("foolbox:pgd", LINF), ("foolbox:hopskipjump", L2), ("torchattacks:pgd", LINF)]
)
def test_a_default_device_is_not_where_our_numbers_are_made(digits, name, rules):
    """`torch.set_default_device("cuda")` is in many scripts; on "meta" nothing can be read back."""
    case = digits.first(4)
    words: dict[str, Any] = {"steps": 2} | ({"max_queries": 40} if rules is L2 else {})
    expected = run_attack(name, case.classifier, case.inputs, case.labels, rules, **words)
    with torch.device("meta"):
        result = run_attack(name, case.classifier, case.inputs, case.labels, rules, **words)
    assert torch.equal(result.adv_inputs, expected.adv_inputs)


def test_times_are_where_the_other_numbers_of_a_user_metric_are():
    there = torch.zeros(3, dtype=torch.bool, device="meta")
    spent = _spent(SimpleNamespace(seconds=torch.zeros(3), distance=there, success=there))  # type: ignore[arg-type]
    assert {value.device.type for value in spent.values()} == {"meta"}


@needs_gpu
def test_a_run_on_the_cpu_sets_up_no_gpu():
    code = (
        "import torch, davylamp\n"
        "net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))\n"
        "x = torch.rand(4, 3, 4, 4)\n"
        "davylamp.run_attack('foolbox:pgd', net, x, net(x).argmax(1), norm='linf', epsilon=0.1, steps=2)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def exact(monkeypatch):
    """Convolutions with all bits of float32, as on a CPU."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@needs_gpu
@pytest.mark.parametrize(("name", "rules", "words"), ROWS, ids=[row[0] for row in ROWS])
def test_a_gpu_finds_what_a_cpu_finds(digits, exact, name, rules, words):
    here = run_attack(name, Classifier(deepcopy(digits.module)), digits.inputs, digits.labels, rules, **words)
    classifier = Classifier(deepcopy(digits.module), device="cuda")
    there = run_attack(name, classifier, digits.inputs.cuda(), digits.labels.cuda(), rules, **words)
    mixed = run_attack(name, classifier, digits.inputs, digits.labels, rules, **words)
    assert {there.adv_inputs.device.type, there.success.device.type, there.adv_logits.device.type} == {"cuda"}
    assert {mixed.adv_inputs.device.type, mixed.success.device.type, mixed.adv_logits.device.type} == {"cpu"}
    assert torch.equal(there.adv_inputs.cpu(), mixed.adv_inputs)
    assert torch.equal(there.success.cpu(), here.success)
    fooled = here.success & here.attacked
    torch.testing.assert_close(there.distance.cpu()[fooled], here.distance[fooled], rtol=1e-3, atol=1e-6)


class Writes(TorchDispatchMode):
    """In which mode of determinism torch was at each write to places that may repeat."""

    def __init__(self):
        super().__init__()
        self.modes: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        frame = sys._getframe(1)
        while frame and frame.f_code.co_name != "_perturb":
            frame = frame.f_back
        if frame and func.__name__.startswith("index_put_"):
            self.modes.add(torch.get_deterministic_debug_mode())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["torchattacks:pixle", "torchattacks:pixle@fixed"])
def test_pixle_writes_in_an_order_that_does_not_change(digits, name):
    case = digits.first(1)
    with Writes() as seen:
        run_attack(name, case.classifier, case.inputs, case.labels, ThreatModel("l0"), steps=1, trials=2)
    assert seen.modes == {1}  # deterministic, with warnings
    assert torch.get_deterministic_debug_mode() == 0


@needs_gpu
@pytest.mark.parametrize("name", ["torchattacks:pixle", "torchattacks:pixle@fixed", "torchattacks:square"])
def test_the_same_seed_gives_the_same_images_on_a_gpu(digits, name):
    """Pixle writes several pixels to one place: which one stays was up to the GPU."""
    rules = ThreatModel("l0") if "pixle" in name else LINF
    classifier = Classifier(deepcopy(digits.module), device="cuda")
    runs = [run_attack(name, classifier, digits.inputs, digits.labels, rules, steps=5, seed=4) for _ in range(3)]
    assert torch.equal(runs[0].adv_inputs, runs[1].adv_inputs)
    assert torch.equal(runs[0].adv_inputs, runs[2].adv_inputs)


@needs_gpu
def test_a_model_on_a_gpu_is_put_back(digits):
    net = deepcopy(digits.module).cuda()
    net.register_buffer("undefined", torch.full((3,), torch.nan, device="cuda"))
    guard, kept = StateGuard(net), net[0].weight.clone()
    assert not guard.restore(lambda: None)
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] += 1
    assert guard.restore(lambda: None)
    assert torch.equal(net[0].weight, kept)


@needs_gpu
def test_an_evaluation_on_a_gpu_has_every_number(digits, tmp_path):
    metric = tmp_path / "my.py"
    metric.write_text("def took(seconds, adv_logits):\n    return seconds\n")

    class Thousand(nn.Module):
        """As many classes as ImageNet has, whose meanings have similarities."""

        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            return nn.functional.pad(self.net(x), (0, 990), value=-20.0)

    settings = {"measures": ("effect", "cost", "distance", "confusion", f"{metric}:took")}
    choice = {"attacks": "foolbox:pgd", "norm": "linf", "epsilon": 0.1, "parameters": {"steps": 5}, **settings}
    net = Thousand(deepcopy(digits.module)).cuda()
    done = davylamp.evaluate(net, digits.inputs.cuda(), digits.labels.cuda(), out=tmp_path / "out", **choice)
    assert done.summary is not None
    assert (done.summary.done, len(done.summary.failed)) == (1, 0)
    frame = done.to_frame()
    assert frame.loc[frame["success"], ["MR", "QI_Wup"]].notna().all(axis=None)
    again = davylamp.evaluate(net.cpu(), digits.inputs, digits.labels, out=tmp_path / "out", **choice)
    assert again.summary is not None
    assert (again.summary.done, again.summary.kept) == (1, 0)  # a CPU rounds otherwise: another cell


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has the older way only")
def test_a_precision_of_all_parts_can_be_set_again_after_a_judgement(run_fresh):
    """In a process of its own: no switch of torch gives the first state back."""
    code = (
        "import torch\n"
        "from davylamp.adapters.torch_state import full_float32\n"
        "torch.backends.fp32_precision = 'tf32'\n"
        "with full_float32():\n"
        "    assert torch.backends.cuda.matmul.fp32_precision == torch.backends.cudnn.conv.fp32_precision == 'ieee'\n"
        "assert torch.backends.cuda.matmul.fp32_precision == torch.backends.cudnn.conv.fp32_precision == 'tf32'\n"
        "torch.backends.fp32_precision = 'ieee'\n"
        "assert torch.backends.cuda.matmul.fp32_precision == torch.backends.cudnn.conv.fp32_precision == 'ieee'\n"
    )
    assert run_fresh(code) == ""
