"""What davylamp mends in CleverHans so that it runs: each defect shown as shipped, and gone after the repair."""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import require_library
from davylamp.adapters.libraries.cleverhans import functions
from davylamp.adapters.libraries.library import Library
from davylamp.errors import MissingLibrary

HOPSKIPJUMP: Any = inspect.getmodule(functions.hop_skip_jump_attack)


def test_where_it_is_missing_the_message_has_the_command_that_works(monkeypatch):
    monkeypatch.setattr(Library, "is_installed", property(lambda library: False))
    with pytest.raises(MissingLibrary, match=r"run: pip install --no-deps cleverhans six$"):
        require_library("cleverhans")


def test_cw_weighs_every_image_with_the_constants_of_all(digits):
    """In a batch the constants add up: images end elsewhere than alone, where davylamp lets each be."""
    case, words = digits.first(6), {"lr": 0.05, "binary_search_steps": 4, "max_iterations": 20, "initial_const": 0.3}
    rows = zip(case.inputs.split(1), case.labels.split(1), strict=True)
    alone = torch.cat([functions.carlini_wagner_l2(case.module, one, 10, y=label, **words) for one, label in rows])
    together = functions.carlini_wagner_l2(case.module, case.inputs, 10, y=case.labels, **words)
    assert ((alone - together).flatten(1).abs().amax(1) > 0.01).sum() >= 4
    ours = {"learning_rate": 0.05, "binary_search_steps": 4, "steps": 20, "initial_const": 0.3}
    result = run_attack("cleverhans:cw", case.classifier, case.inputs, case.labels, ThreatModel("l2"), **ours)
    assert torch.equal(result.adv_inputs, alone)


def test_inversion_is_given_the_self_that_it_asks_for(digits):
    with pytest.raises(NameError, match="self"):
        functions.semantic(digits.inputs)
    result = run_attack(
        "cleverhans:inversion", digits.classifier, digits.inputs, digits.labels, ThreatModel("unrestricted")
    )
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
    result = run_attack("cleverhans:hopskipjump", one.classifier, one.inputs, one.labels, ThreatModel("l2"), steps=1)
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
