"""Findings and limits of CleverHans's rows, each shown as shipped; and what davylamp mends so that it runs."""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS
from davylamp.adapters.contract.linear_model import make_linear_case
from davylamp.adapters.libraries.cleverhans import functions
from davylamp.errors import AttackFailed

from .direct import part, rows_of, sizes

attack = rows_of("cleverhans")


BOX = {"clip_min": 0.0, "clip_max": 1.0}


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
    repaired = attack("cleverhans:fgm@fixed", case, "l2", 0.1).adv_inputs
    has_gradient = sizes(case, attack("foolbox:fgm", case, "l2", 0.1).adv_inputs, 2) > 0  # in float32
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
        attack("cleverhans:fgm", case, "l1", 0.9)
    moved = sizes(case, attack("cleverhans:fgm@fixed", case, "l1", 0.9).adv_inputs, 0)
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
        one = part(linear, i)
        words = {"steps": 20, "step_size": 0.22 * least, "quantile": 0.99}
        fooled = [
            bool(attack(f"{library}:sparse-l1-descent", one, "l1", 1.1 * least, **words).success)
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
        attack(name, one._replace(module=seen), "linf", 0.1, steps=3, samples=4)
        return [batch.mean(0, keepdim=True) for batch in seen.asked if len(batch) == 8]

    shipped, repaired = centres("cleverhans:spsa"), centres("cleverhans:spsa@fixed")
    assert len(shipped) == len(repaired) == 3
    for centre in shipped:
        torch.testing.assert_close(centre, 2 * one.inputs)
    for centre in repaired:
        assert 0 < (centre - one.inputs).abs().max() <= 0.1 + 1e-6
    assert (repaired[0] - repaired[1]).abs().max() > 0.005


@pytest.mark.parametrize("name", ["art:fgm", "cleverhans:fgm", "cleverhans:fgm@fixed"])
def test_a_step_in_l1_moves_one_pixel(name):
    """l1-one-pixel: the box ends its step long before the radius."""
    case = make_linear_case()
    result = attack(name, case, "l1", 5.0)
    assert "l1-one-pixel" in IMPLEMENTATIONS[name].findings
    assert ((result.adv_inputs - case.inputs).abs().flatten(1) > 1e-6).sum(1).tolist() == [1] * 4
    assert float(result.distance.max()) < 0.6


HOPSKIPJUMP: Any = inspect.getmodule(functions.hop_skip_jump_attack)


def test_cw_weighs_every_image_with_the_constants_of_all(digits):
    """In a batch the constants add up: images end elsewhere than alone, where davylamp lets each be."""
    case, words = digits.first(6), {"lr": 0.05, "binary_search_steps": 4, "max_iterations": 20, "initial_const": 0.3}
    rows = zip(case.inputs.split(1), case.labels.split(1), strict=True)
    alone = torch.cat([functions.carlini_wagner_l2(case.module, one, 10, y=label, **words) for one, label in rows])
    together = functions.carlini_wagner_l2(case.module, case.inputs, 10, y=case.labels, **words)
    assert ((alone - together).flatten(1).abs().amax(1) > 0.01).sum() >= 4
    ours = {"learning_rate": 0.05, "binary_search_steps": 4, "steps": 20, "initial_const": 0.3}
    result = attack("cw", case, "l2", **ours)
    assert torch.equal(result.adv_inputs, alone)


def test_inversion_is_given_the_self_that_it_asks_for(digits):
    with pytest.raises(NameError, match="self"):
        functions.semantic(digits.inputs)
    result = attack("inversion", digits, "unrestricted")
    torch.testing.assert_close(result.adv_inputs, 1 - digits.inputs)
    assert not hasattr(inspect.getmodule(functions.semantic), "self")


def test_hopskipjump_in_linf_crashes_on_a_number_for_its_threshold(digits):
    one, noise = digits.first(1), torch.rand(1, 1, 3, 16, 16)
    with pytest.raises(TypeError):
        functions.hop_skip_jump_attack(
            one.module, one.inputs, np.inf, image_target=noise, constraint=np.inf, verbose=False, num_iterations=1
        )


def test_hopskipjump_takes_the_channels_of_a_starting_point_for_a_batch(digits, monkeypatch):
    batches, one = [], digits.first(1)
    search = HOPSKIPJUMP.binary_search_batch

    def look(original: Tensor, perturbed: Tensor, *rest: Any) -> Any:
        batches.append(tuple(perturbed.shape))
        return search(original, perturbed, *rest)

    monkeypatch.setattr(HOPSKIPJUMP, "binary_search_batch", look)
    words = {"norm": 2, "verbose": False, "num_iterations": 1, "initial_num_evals": 2}
    functions.hop_skip_jump_attack(one.module, one.inputs, image_target=1 - one.inputs, **words)
    assert batches[0] == (3, 16, 16)
    batches.clear()
    result = attack("hopskipjump", one, "l2", steps=1)
    assert set(batches) == {(1, 3, 16, 16)}
    assert result.success.all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_search_of_hopskipjump_ends_on_large_images(norm):
    """As shipped its threshold lies below what float32 tells apart: the search asks about one point for ever."""
    inputs = torch.full((1, 3, 224, 224), 0.5)

    class Brightness(nn.Module):
        """Fooled by what is brighter than 0.73 in the mean."""

        def __init__(self):
            super().__init__()
            self.asked = 0

        def forward(self, images: Tensor) -> Tensor:
            self.asked += 1
            if self.asked > 300:
                raise TimeoutError
            bright = images.mean((1, 2, 3)) - 0.73
            return torch.stack((-bright, bright), 1)

    def search(gamma: Tensor) -> Tensor:
        order = {"l2": 2, "linf": math.inf}[norm]
        words = {"constraint": order, "verbose": False, "num_iterations": 0, "gamma": gamma}
        start = torch.ones(1, 1, 3, 224, 224)
        return functions.hop_skip_jump_attack(Brightness(), inputs, norm=order, image_target=start, **words)

    with pytest.raises(TimeoutError):
        search(torch.tensor(1.0))
    from davylamp.adapters.libraries.cleverhans.driver import _searchable

    gamma = _searchable({"constraint": 2 if norm == "l2" else math.inf}, inputs)["gamma"]
    assert search(gamma).mean().item() == pytest.approx(0.73, abs=1e-4)
    small = _searchable({"constraint": 2}, torch.zeros(1, 3, 16, 16))["gamma"]
    assert small == 1  # as shipped where that is possible
