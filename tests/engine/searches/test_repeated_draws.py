"""EOT around an attack that averages by itself: as many draws as it says, and only where it says so."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import find_implementation
from davylamp.adapters.catalogue.step_reach import warn_repeated_draws


class Counting(nn.Module):
    """A random model that counts the images whose gradients may be asked for."""

    def __init__(self, inside):
        super().__init__()
        self.inside, self.asked = inside, 0

    def forward(self, inputs):
        self.asked += len(inputs) if inputs.requires_grad else 0
        return self.inside(inputs + 0.01 * torch.randn_like(inputs))


@pytest.mark.parametrize(("samples", "eot"), [(2, 3), (1, 3), (2, 1)])
def test_the_line_counts_the_draws_of_a_step(digits, samples, eot):
    module = Counting(digits.module)
    model = Classifier(module, num_classes=10, random=True)
    row, rules = find_implementation("torchattacks:eot-pgd"), ThreatModel("linf", 1e-6)
    given = {"samples": samples, "step_size": 1e-6, "random_start": False}
    asked = []
    for steps in (1, 2, 3):  # the first asks, too, whether there are gradients
        module.asked = 0
        run_attack(row, model, digits.inputs[:1], digits.labels[:1], rules, eot=eot, steps=steps, **given)
        asked.append(module.asked)
    draws = asked[2] - asked[1]  # of a step
    line = warn_repeated_draws(row, "linf", given, eot)
    assert draws == samples * eot
    assert (line is not None) == (samples > 1 and eot > 1)
    assert line is None or f"with `eot={eot}`, each of its gradients costs {draws} samples" in line


def test_what_is_not_given_is_the_librarys_default():
    upgd = find_implementation("torchattacks:upgd")
    assert warn_repeated_draws(upgd, "linf", {}, 5) is None  # one answer
    assert "averages 2 samples" in (
        warn_repeated_draws(find_implementation("torchattacks:eot-pgd"), "linf", {}, 5) or ""
    )
    for name in ("foolbox:pgd", "torchattacks:vmi-fgsm"):  # the second: points around, not answers at one
        assert warn_repeated_draws(find_implementation(name), "linf", {"samples": 8}, 5) is None


def test_the_commands_say_it_before_they_run(run, tmp_path):
    common = ("--param", "steps=1", "--limit", "1", "--eot", "2", "--judge-samples", "2")
    where = ("--data", "demo:mnist", "--norm", "linf", "--epsilon", "0.1")
    model = "demo:mnist-lenet5+resize-pad"
    _, _, err = run("evaluate", "--models", model, "--attacks", "torchattacks:eot-pgd", *where, *common, "-o", "r")
    assert err.count("- torchattacks:eot-pgd averages 2 samples by itself: with --eot 2") == 1
    _, _, err = run("compare", "eot-pgd", "--model", model, *where, *common)
    assert "- torchattacks:eot-pgd averages 2 samples by itself: with --eot 2" in err
    _, _, err = run("compare", "eot-pgd", "--model", "demo:mnist-lenet5", *where, *common)
    assert "averages" not in err
