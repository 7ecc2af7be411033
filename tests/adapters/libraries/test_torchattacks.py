"""Findings and limits of torchattacks's rows, each shown as shipped; and what davylamp mends, gone after it."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torchattacks
from torch import Tensor, nn
from torchattacks.attacks import apgdt, eaden

from davylamp.errors import AttackFailed

from .direct import SEED, part, rows_of, second_likely, seed_everything

attack = rows_of("torchattacks")


STEPS = {"steps": 3, "step_size": 0.04}


def directly(library_class: str, case: Any, targets: Tensor | None = None, **words: Any) -> Tensor:
    seed_everything(SEED)
    library_attack = getattr(torchattacks, library_class)(case.module, **words)
    if targets is not None:
        library_attack.set_mode_targeted_by_function(lambda *_: targets, quiet=True)
    return library_attack(case.inputs, case.labels).detach()


def test_ead_goes_on_between_rounds_and_runs_below_ten_steps(digits):
    case, asked = digits.first(1), []
    words = {"max_iterations": 5, "binary_search_steps": 2, "initial_const": 10.0}
    with pytest.raises(ZeroDivisionError):
        directly("EADEN", case, **words)
    result = attack("ead-en", case, "l1", steps=5, binary_search_steps=2, initial_const=10.0)
    hook = case.module.register_forward_pre_hook(lambda _, given: asked.append(given[0].detach().clone()))
    assert torch.equal(result.adv_inputs, directly("EADEN", case, **words, abort_early=False).clamp(0, 1))
    hook.remove()
    assert torch.equal(asked[1], case.inputs)
    assert not torch.allclose(asked[1 + 2 * 5], case.inputs, atol=1e-3)
    assert result.forwards.item() == len(asked) == 1 + 2 * 2 * 5


def test_pgd_starts_near_the_image_in_l2(digits):
    copies = digits._replace(inputs=digits.inputs[:1].expand(64, -1, -1, -1), labels=digits.labels[:1].expand(64))
    starts = directly("PGDL2", copies, eps=0.04, alpha=0.0, steps=1) - copies.inputs
    assert 0.4 < (starts.flatten(1).norm(dim=1) / 0.04).mean() < 0.6


@pytest.mark.parametrize("name", ["mi-fgsm", "ni-fgsm", "si-ni-fgsm", "vmi-fgsm", "vni-fgsm", "upgd", "di-fgsm"])
def test_a_zero_gradient_stops_the_momentum_attacks_for_good(digits, name):
    class FlatAtFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.asked = 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.asked += torch.is_grad_enabled()
            return digits.module(inputs) * (1.0 if self.asked != 1 else 0.0)

    case = digits.first(1)
    for row, moves in ((name, False), ("bim", True)):
        flat = case._replace(module=FlatAtFirst())
        parameters = {"scales": 1} if row == "si-ni-fgsm" else {}
        moved = attack(row, flat, "linf", 0.1, **STEPS, **parameters).adv_inputs != case.inputs
        assert bool(moved.any()) == moves


def test_attacks_that_take_labels_for_targets(digits):
    case, targets = digits.first(3), second_likely(digits.first(3))
    for library_class in ("SPSA", "PIFGSMPP"):
        by_function = directly(library_class, case, targets)
        library_attack = getattr(torchattacks, library_class)(case.module)
        library_attack.set_mode_targeted_by_label(quiet=True)
        torch.manual_seed(SEED)
        by_label = library_attack(case.inputs, case.labels)
        assert torch.equal(by_function, by_label)  # targets-ignored: the labels, not the targets
    parameters = {"steps": 10, "samples": 64, "learning_rate": 0.05}
    assert attack("spsa", case, "linf", 0.3, targets=targets, **parameters).success.any()
    assert attack("pi-fgsm++", case, "linf", 0.3, targets=targets).success.any()


def test_defaults_that_leave_something_out(digits):
    case = digits.first(2)
    assert (directly("SPSA", case) - case.inputs).abs().max() < 0.0101  # of 0.3
    inner = torchattacks.AutoAttack(case.module)._autoattack.attacks
    assert [getattr(each, "steps", None) for each in inner] == [10, 10, 10, None]
    for library_class in ("PIFGSM", "PIFGSMPP"):
        plain, other = (directly(library_class, case, momentum=m, prob=p) for m, p in ((1.0, 0.7), (0.0, 0.1)))
        assert torch.equal(plain, other)
    assert torch.equal(directly("TIFGSM", case, len_kernel=1), directly("DIFGSM", case))
    assert torchattacks.DIFGSM(case.module).decay == torchattacks.TIFGSM(case.module).decay == 0


def test_fewer_classes_than_the_library_expects(linear):
    least = float(linear.least["linf"].min())
    with pytest.raises(IndexError):
        directly("APGDT", linear, eps=least / 2)
    assert not attack("apgd-t", linear, "linf", least / 2).success.any()


LINF = {"eps": 0.1, "alpha": 0.04, "steps": 3}


class Shifted(nn.Module):
    """The module with a constant added to all logits, and all logits scaled."""

    def __init__(self, module: nn.Module, shift: float = 0.0, scale: float = 1.0):
        super().__init__()
        self.module, self.shift, self.scale = module, shift, scale

    def forward(self, inputs: Tensor) -> Tensor:
        return self.module(inputs) * self.scale + self.shift


def one_by_one(library_class: str, case: Any, targets: Tensor, **words: Any) -> Tensor:
    parts = [part(case, i) for i in range(len(targets))]
    return torch.cat([directly(library_class, part, targets[i : i + 1], **words) for i, part in enumerate(parts)])


def record_runs(monkeypatch: pytest.MonkeyPatch, *, separately: bool) -> list[Tensor]:
    """Notes the clean images of each inner run of APGDT; optionally it gets them one at a time."""
    seen, whole = [], apgdt.APGDT.attack_single_run

    def wrapped(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        seen.extend(x)
        if not separately:
            return whole(self, x, y)
        return tuple(map(torch.cat, zip(*(whole(self, x[i, None], y[i, None]) for i in range(len(x))), strict=True)))

    monkeypatch.setattr(apgdt.APGDT, "attack_single_run", wrapped)
    return seen


@pytest.mark.parametrize(("norm", "word", "eps"), [("linf", "Linf", 0.1), ("l2", "L2", 1.5)])
def test_apgd_t_counts_each_image_and_takes_its_own_l2_steps(digits, monkeypatch, norm, word, eps):
    case = digits.first(4)
    words = {"norm": word, "eps": eps, "steps": 9, "n_classes": 4, "seed": SEED}
    shipped = directly("APGDT", case, **words)
    result = attack("apgd-t", case, norm, eps, steps=9, candidates=4)
    seen = record_runs(monkeypatch, separately=norm == "l2")
    assert torch.equal(result.adv_inputs, directly("APGDT", case, **words))
    assert torch.equal(result.adv_inputs, shipped) == (norm == "linf")
    runs = torch.tensor([sum(torch.equal(image, other) for other in seen) for image in case.inputs])
    assert len(set(runs.tolist())) > 1
    assert torch.equal(result.forwards, 1 + runs * (9 + 2))
    assert torch.equal(result.backwards, runs * (9 + 1))


def test_square_counts_as_the_library_does(digits, monkeypatch):
    case, returned = digits.first(8), []
    whole = torchattacks.Square.attack_single_run
    monkeypatch.setattr(
        torchattacks.Square, "attack_single_run", lambda *args: returned.append(whole(*args)) or returned[-1]
    )
    result = attack("square", case, "linf", 0.12, steps=200)
    ((queries, _),) = returned
    assert len(set(queries.tolist())) > 1
    assert result.forwards.tolist() == (queries + 2).tolist()  # and one before the search, one after it


def test_fab_l1_is_the_inner_attack(digits):
    case = digits.first(3)
    with pytest.raises(UnboundLocalError):
        directly("FAB", case, norm="L1", eps=20.0)
    expected = torchattacks.FAB(case.module, norm="L1", steps=5).attack_single_run(case.inputs, case.labels)
    result = attack("fab", case, "l1", steps=5)
    assert torch.equal(result.adv_inputs, expected)
    assert result.success.all()
    targets = second_likely(case)
    aimed = attack("fab", case, "l1", targets=targets, steps=20)
    assert aimed.success.any()


def test_fab_finds_any_wrong_class_and_forgets_what_is_too_far(digits):
    library_attack = torchattacks.FAB(digits.module, eps=1.0, steps=5)
    library_attack.set_mode_targeted_by_label(quiet=True)
    assert torch.equal(library_attack(digits.inputs, second_likely(digits)), digits.inputs)  # target-compared
    targets = digits.module(digits.inputs).argsort(1)[:, -4]
    reached = digits.module(attack("fab", digits, "linf", targets=targets).adv_inputs).argmax(1)
    assert ((reached != targets) & (reached != digits.labels)).any()
    assert (reached == targets).any()
    free = attack("fab", digits, "linf")
    bound = attack("fab", digits, "linf", 0.1)
    assert free.success.all()
    assert torch.equal((bound.adv_inputs == digits.inputs).flatten(1).all(1), free.distance > 0.1)


def test_least_likely_is_bim_at_the_least_likely_class(digits):
    case = digits.first(3)
    targets = case.module(case.inputs).argmin(1)
    result = attack("least-likely", case, "linf", 0.1, **STEPS)
    assert torch.equal(result.adv_inputs, directly("BIM", case, targets, **LINF))
    assert result.forwards.tolist() == [4] * 3


def test_deepfool_with_the_authors_constant_passes_the_boundary(digits):
    digits = digits.first(8)
    result = attack("deepfool@fixed", digits, "l2")
    other = attack("foolbox:deepfool", digits, "l2")
    assert result.success.all()
    assert not attack("deepfool", digits, "l2").success.all()
    torch.testing.assert_close(result.distance, other.distance, rtol=2e-3, atol=0)
    few = attack("deepfool@fixed", digits.first(3), "l2", candidates=2)
    assert torch.equal(few.backwards, 2 * (few.forwards - 2))  # the clean image, and the stop, have no gradient
    assert few.success.all()


def test_cw_repaired_is_blind_to_a_shift_and_keeps_its_confidence(digits):
    case = digits.first(4)
    words = {"steps": 40, "initial_const": 10.0, "learning_rate": 0.05}
    low = case._replace(module=Shifted(case.module, -100))
    assert not attack("cw", low, "l2", **words).success.any()
    results = [attack("cw@fixed", each, "l2", **words) for each in (case, low)]
    assert results[0].success.all()
    torch.testing.assert_close(results[0].distance, results[1].distance, rtol=1e-2, atol=0)
    for name, kept in (("cw", False), ("cw@fixed", True)):
        result = attack(name, case, "l2", **words, confidence=2.0)
        margin = result.adv_logits.amax(1) - result.adv_logits.gather(1, case.labels[:, None])[:, 0]
        assert bool((margin[result.success] >= 2 - 1e-3).all()) == kept
    targets = second_likely(case)
    aimed = attack("cw@fixed", case, "l2", targets=targets, **words, confidence=1.0)
    top = aimed.adv_logits.topk(2).values
    assert aimed.success.all()
    assert (top[:, 0] - top[:, 1] >= 1 - 1e-3).all()


def test_cw_repaired_moves_saturated_pixels(digits):
    case = digits.first(3)
    case = case._replace(inputs=(case.inputs > 0.5).float())
    words = {"steps": 100, "initial_const": 10.0, "learning_rate": 0.1}
    shipped, repaired = (attack(name, case, "l2", **words) for name in ("cw", "cw@fixed"))
    assert repaired.attacked.any()
    assert torch.equal(repaired.success, repaired.attacked)
    assert torch.equal(shipped.adv_inputs, case.inputs)


@pytest.mark.parametrize("rule", ["EN", "L1"])
def test_ead_repaired_has_its_own_reference(digits, monkeypatch, rule):
    case = digits.first(3)
    case = case._replace(module=Shifted(case.module, 50))  # no logit is negative: margin-against-zero plays no part
    words = {"steps": 12, "initial_const": 1.0, "learning_rate": 0.05, "regularization": 0.01}
    arguments = {"max_iterations": 12, "initial_const": 1.0, "lr": 0.05, "beta": 0.01}
    shipped, repaired = (attack(f"ead-{rule.lower()}{v}", case, "l1", **words) for v in ("", "@fixed"))
    cloned = SimpleNamespace(
        Parameter=lambda images: nn.Parameter(images.clone()), MSELoss=nn.MSELoss, Flatten=nn.Flatten
    )
    module = eaden if rule == "EN" else inspect.getmodule(torchattacks.EADL1)
    monkeypatch.setattr(module, "nn", cloned)
    for i in range(3):
        one = part(case, i)
        expected = directly(f"EAD{rule}", one, **arguments)
        torch.testing.assert_close(repaired.adv_inputs[i : i + 1], expected, rtol=0, atol=1e-4)
    assert (shipped.distances.l0 == 768).all(), "every component moves with the reference"
    assert (repaired.distances.l0 < 500).all()
    low = case._replace(module=Shifted(case.module, -200))
    assert attack(f"ead-{rule.lower()}@fixed", low, "l1", **words).success.all()


def test_jsma_repaired_aims_at_the_second_class(digits):
    case = digits.first(3)
    result = attack("jsma@fixed", case, "l0", 5)  # two pairs; the library would round up to three
    assert torch.equal(result.adv_inputs, one_by_one("JSMA", case, second_likely(case), gamma=4 / 768))
    assert (result.distances.l0 <= 4).all()
    shipped = attack("jsma", case, "l0", 4)
    assert torch.equal(shipped.adv_inputs, one_by_one("JSMA", case, (case.labels + 1) % 10, gamma=4 / 768))


def test_pixle_repaired_takes_images_wider_than_high():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 24, 3)).requires_grad_(False)
    inputs = torch.rand(2, 3, 8, 24)
    case = SimpleNamespace(module=module, inputs=inputs, labels=module(inputs).argmax(1))
    with pytest.raises(AttackFailed, match="out of bounds"):
        attack("pixle", case, "l0")
    result = attack("pixle@fixed", case, "l0")
    changed = (result.adv_inputs != inputs).any(1)
    assert changed.flatten(1).any(1).all()
    assert changed[:, :, 8:].any(), "columns beyond the height are reached"


def test_pgd_repaired_takes_full_steps_where_the_gradient_is_tiny(digits):
    case = digits.first(4)._replace(module=Shifted(digits.module, scale=1.5))
    inputs = case.inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(case.module(inputs), case.labels), inputs)
    size = gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    assert size.min() < 1e-9
    expected = (case.inputs + 0.02 * gradient / size).clamp(0, 1)
    result = attack("fgm@fixed", case, "l2", 0.02)
    torch.testing.assert_close(result.adv_inputs, expected, rtol=0, atol=1e-6)
    assert attack("fgm", case, "l2", 0.02).distance.min() < 0.019
    one = attack("pgd@fixed", case, "l2", 0.02, steps=1, step_size=0.02, random_start=False)
    torch.testing.assert_close(one.adv_inputs, expected, rtol=0, atol=1e-6)
