"""The findings and limits of CleverHans that its rows carry, each shown in the library as shipped."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, Classifier, ThreatModel, run_attack
from davylamp.adapters.contract.linear import make_linear_case
from davylamp.adapters.libraries.cleverhans import functions
from davylamp.errors import AttackFailed, Unsupported

BOX = {"clip_min": 0.0, "clip_max": 1.0}


def attack(name: str, case: Any, rules: ThreatModel, **parameters: Any) -> Any:
    return run_attack(name, Classifier(case.module), case.inputs, case.labels, rules, **parameters)


def sizes(case: Any, images: Tensor, norm: float) -> Tensor:
    return (images - case.inputs).flatten(1).norm(p=norm, dim=1)


class Confident(nn.Module):
    """The same classes with logits so far apart that gradients are tiny."""

    def __init__(self, module: nn.Module, factor: float = 3.0):
        super().__init__()
        self.module, self.factor = module, factor

    def forward(self, inputs: Tensor) -> Tensor:
        return self.factor * self.module(inputs)


def test_confident_images_take_shorter_steps_and_shorter_ones_in_a_batch(digits):
    """floor-on-mean-gradient."""
    case = digits._replace(module=Confident(digits.module))
    call = {"eps": 0.1, "norm": 2, **BOX}
    together = functions.fast_gradient_method(case.module, case.inputs, y=case.labels, **call).detach()
    alone = [
        functions.fast_gradient_method(case.module, one[None], y=label[None], **call)[0].detach()
        for one, label in zip(case.inputs, case.labels, strict=True)
    ]
    short, less_short = sizes(case, together, 2), sizes(case, torch.stack(alone), 2)
    tiny = less_short < 0.01
    assert 0 < tiny.sum() < len(tiny)
    torch.testing.assert_close(short[tiny] * len(tiny), less_short[tiny], rtol=0.02, atol=2e-5)
    repaired = attack("cleverhans:fgm@repaired", case, ThreatModel("l2", 0.1)).adv_inputs
    has_gradient = sizes(case, attack("foolbox:fgm", case, ThreatModel("l2", 0.1)).adv_inputs, 2) > 0  # in float32
    assert (sizes(case, repaired, 2)[has_gradient] > 0.09).all()
    assert (tiny & has_gradient).any()


def test_a_flat_image_crashes_fgm_in_l1(digits):
    """crashes-on-flat; the repaired row leaves that image and moves the others."""
    case = digits.first(3)
    module, flat = case.module, case.inputs[1].sum()

    class FlatForOne(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            is_flat = (inputs.sum((1, 2, 3)) - flat).abs() < 1e-3
            return module(inputs).where(~is_flat[:, None], nn.functional.one_hot(case.labels[1], 10).float())

    case = case._replace(module=FlatForOne())
    with pytest.raises(AttackFailed, match="AssertionError"):
        attack("cleverhans:fgm", case, ThreatModel("l1", 0.9))
    moved = sizes(case, attack("cleverhans:fgm@repaired", case, ThreatModel("l1", 0.9)).adv_inputs, 0)
    assert moved.tolist() == [1, 0, 1]


@pytest.mark.filterwarnings("ignore:To copy construct")
def test_slide_throws_its_random_start_away(digits):
    """start-thrown-away: drawn or not, the same images; without a box it counts."""
    call = {"eps": 20.0, "eps_iter": 5.0, "nb_iter": 2, "y": digits.labels}
    ends = [
        functions.sparse_l1_descent(digits.module, digits.inputs, rand_init=start, **call, **box)
        for box in (BOX, {})
        for start in (False, True)
    ]
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[2], ends[3])


def test_slide_shrinks_where_the_paper_projects(linear):
    """shrinks-to-the-ball: in a ball of 1.1 times the least perturbation, where Foolbox's succeeds."""
    for i, least in enumerate(linear.least["l1"].tolist()[1:], 1):
        one = linear._replace(inputs=linear.inputs[i : i + 1], labels=linear.labels[i : i + 1])
        words = {"steps": 20, "step_size": 0.22 * least, "quantile": 0.99}
        fooled = [
            bool(attack(f"{library}:sparse-l1-descent", one, ThreatModel("l1", 1.1 * least), **words).success)
            for library in ("cleverhans", "foolbox")
        ]
        assert fooled == [False, True]


def test_a_round_of_cw_goes_on_where_the_last_one_ended(digits):
    """rounds-continue: the second round begins farther from the image than the first ends after one step."""
    asked, one = [], digits.first(1)

    class Seen(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            asked.append((inputs.detach() - one.inputs).abs().max().item())
            return one.module(inputs)

    functions.carlini_wagner_l2(
        Seen(), one.inputs, 10, y=one.labels, lr=0.1, initial_const=10.0, binary_search_steps=2, max_iterations=5
    )
    assert asked[0] < 1e-4
    assert asked[5] > 10 * asked[1] or asked[5] > 0.05


def test_spsa_asks_about_twice_the_image(digits):
    """twice-the-image: at every step the same points, 0.01 from twice the clean image; not so in the repaired row."""
    one = digits.first(1)

    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.asked: list[Tensor] = []

        def forward(self, inputs: Tensor) -> Tensor:
            self.asked.append(inputs.detach().clone())
            return one.module(inputs)

    def centres(name: str) -> list[Tensor]:
        seen = Seen()
        attack(name, one._replace(module=seen), ThreatModel("linf", 0.1), steps=3, samples=4)
        return [batch.mean(0, keepdim=True) for batch in seen.asked if len(batch) == 8]

    shipped, repaired = centres("cleverhans:spsa"), centres("cleverhans:spsa@repaired")
    assert len(shipped) == len(repaired) == 3
    for centre in shipped:
        torch.testing.assert_close(centre, 2 * one.inputs)
    for centre in repaired:
        assert 0 < (centre - one.inputs).abs().max() <= 0.1 + 1e-6
    assert (repaired[0] - repaired[1]).abs().max() > 0.005


@pytest.mark.parametrize(
    ("name", "norm", "parameters", "message"),
    [
        ("pgd", "linf", {"steps": 2, "step_size": 0.2}, "step_size <= epsilon"),
        ("sparse-l1-descent", "l1", {"quantile": 0.001}, "needs quantile >= 0.0013"),
    ],
)
def test_what_a_function_cannot_take_is_said_in_one_line(digits, name, norm, parameters, message):
    with pytest.raises(Unsupported, match=message):
        attack(f"cleverhans:{name}", digits, ThreatModel(norm, 0.1), **parameters)


def test_a_word_that_a_function_lacks_is_refused(digits):
    from davylamp.adapters.libraries.cleverhans.driver import run

    function: Any = functions.noise
    assert "alpha" not in inspect.signature(function).parameters
    with pytest.raises(ValueError, match="expected parameters of noise, got alpha"):
        run(function, digits.module, digits.inputs, digits.labels, ThreatModel("linf", 0.1), alpha=1.0)


@pytest.mark.parametrize("name", ["art:fgm", "cleverhans:fgm", "cleverhans:fgm@repaired"])
def test_a_step_in_l1_moves_one_pixel(name):
    """l1-one-pixel: the box ends its step long before the radius."""
    case = make_linear_case()
    result = run_attack(name, case.classifier, case.inputs, case.labels, ThreatModel("l1", 5.0))
    assert "l1-one-pixel" in IMPLEMENTATIONS[name].findings
    assert ((result.adv_inputs - case.inputs).abs().flatten(1) > 1e-6).sum(1).tolist() == [1] * 4
    assert float(result.distance.max()) < 0.6
