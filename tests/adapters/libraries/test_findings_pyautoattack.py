"""The findings and limits of pyautoattack that its rows carry, each shown in the library as shipped."""

from typing import Any

import pytest
import torch
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor, nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.errors import Unsupported


def attack(name: str, case: Any, rules: ThreatModel, **parameters: Any) -> Any:
    return run_attack(f"pyautoattack:{name}", case.classifier, case.inputs, case.labels, rules, **parameters)


def test_square_never_reaches_the_last_row_and_column(digits):
    """last-row-and-column: 300 squares change nothing of them; without a square there are the stripes of the start."""
    case = digits.first(2)

    def ends_at(queries: int) -> Tensor:
        torch.manual_seed(0)
        square = SquareAttack(case.module, eps=0.01, n_queries=queries, resc_schedule=False)
        square.init_hyperparam(case.inputs)
        return square.attack_single_run(case.inputs, case.labels)[1]

    changed = (ends_at(300) != ends_at(0)).any(0).any(0)
    assert changed[:-1, :-1].float().mean() > 0.9
    assert not changed[-1].any()
    assert not changed[:, -1].any()


def test_fab_discards_what_lies_outside_its_radius(digits):
    """distance-discarded: the same example is kept within the ball that holds the box."""
    ends = [FABAttack_PT(digits.module, n_iter=5, eps=eps).perturb(digits.inputs, digits.labels) for eps in (0.03, 1.0)]
    sizes = [(end - digits.inputs).flatten(1).abs().amax(1) for end in ends]
    beyond = sizes[1] > 0.03
    assert 0 < beyond.sum() < len(beyond)
    assert (sizes[0][beyond] == 0).all()
    torch.testing.assert_close(sizes[0][~beyond], sizes[1][~beyond])


def test_fab_t_takes_the_first_class_that_it_reaches():
    """first-class-taken: the second likeliest class lies four times as far as the third; the repaired row finds it."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).requires_grad_(False)
    module[1].weight.zero_()
    module[1].weight[1, 0], module[1].weight[2, 1] = 1.0, 8.0
    module[1].bias.copy_(torch.tensor([0.0, -0.2, -0.4, -5.0]))
    inputs = torch.zeros(1, 3, 2, 2)
    label = torch.tensor([0])
    distances = [
        run_attack(f"pyautoattack:{row}", Classifier(module), inputs, label, ThreatModel("linf"), steps=5).distance
        for row in ("fab-t", "fab-t@repaired")
    ]
    assert distances[0].item() == pytest.approx(0.2, rel=0.06)
    assert distances[1].item() == pytest.approx(0.05, rel=0.06)


@pytest.mark.parametrize(
    ("shape", "norm", "parameters", "message"),
    [((3, 4, 4), "l2", {}, "at least 5 rows in l2, got 4")],
)
def test_what_a_class_cannot_take_is_said_in_one_line(shape, norm, parameters, message):
    torch.manual_seed(0)
    inputs = torch.rand(1, *shape)
    module = nn.Sequential(nn.Flatten(), nn.Linear(inputs.numel(), 4)).requires_grad_(False)
    labels = module(inputs).argmax(1)
    with pytest.raises(Unsupported, match=message):
        run_attack("pyautoattack:square", Classifier(module), inputs, labels, ThreatModel(norm, 0.1), **parameters)


def test_a_word_that_a_class_lacks_is_refused(digits):
    from davylamp.adapters.libraries.pyautoattack.driver import run

    digits.module.num_classes = 10
    with pytest.raises(ValueError, match="expected parameters of SquareAttack, got n_iter"):
        run(SquareAttack, digits.module, digits.inputs, digits.labels, ThreatModel("linf", 0.1), n_iter=3)
