"""Every torchattacks row against the same call made on the library itself: the same images, the same queries."""

import random
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torchattacks
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, ThreatModel, run_attack
from davylamp.adapters.running.seeding import call_seed

SEED = 7
COUNT = 3
LABELS_ARE_TARGETS = ("SPSA", "PIFGSMPP")


class Direct(NamedTuple):
    """A row in our words and in torchattacks', and its (forwards, backwards) per image where they are known exactly."""

    row: str
    norm: str
    epsilon: float | None
    parameters: dict[str, Any]
    library_class: str
    words: dict[str, Any]
    queries: tuple[int, int] | None = None
    inner_steps: int | None = None


L2_STEPS = {"steps": 3, "step_size": 0.6}
L2 = {"eps": 1.5, "alpha": 0.6, "steps": 3}
ONE_L2_STEP = {"eps": 1.5, "alpha": 1.5, "steps": 1, "random_start": False}
SMOOTH, SMOOTH_WORDS = {"samples": 2, "std": 0.1}, {"noise_batch_size": 2, "noise_sd": 0.1}
VARIANCE, VARIANCE_WORDS = {"decay": 0.9, "samples": 2, "neighbourhood": 1.2}, {"decay": 0.9, "N": 2, "beta": 1.2}
DIVERSE = {"decay": 0.9, "diversity_probability": 0.7, "resize_rate": 0.8, "random_start": True}
DIVERSE_WORDS = {"decay": 0.9, "diversity_prob": 0.7, "resize_rate": 0.8, "random_start": True}
DECAY, AVERAGED = {"decay": 0.9}, {"eot_iter": 2, "random_start": True}
CW = {"steps": 10, "initial_const": 10.0, "learning_rate": 0.05, "confidence": 0.5}
CW_WORDS = {"steps": 10, "c": 10.0, "lr": 0.05, "kappa": 0.5}
EAD = CW | {"steps": 12, "binary_search_steps": 2, "initial_const": 1.0, "regularization": 0.01}
EAD_WORDS = {
    "max_iterations": 12,
    "binary_search_steps": 2,
    "initial_const": 1.0,
    "lr": 0.05,
    "beta": 0.01,
    "kappa": 0.5,
}
SQUARE, SQUARE_WORDS = {"steps": 30, "initial_probability": 0.3}, {"n_queries": 30, "p_init": 0.3, "seed": SEED}
SPSA = {"steps": 2, "samples": 70, "finite_difference": 0.02, "learning_rate": 0.03}
SPSA_WORDS = {"eps": 0.1, "nb_iter": 2, "nb_sample": 70, "delta": 0.02, "lr": 0.03}
BALLS = (("linf", "Linf", 0.1), ("l2", "L2", 1.5))
ENSEMBLE = {"norm": "Linf", "eps": 0.15, "seed": SEED}
PI_WORDS = {"max_epsilon": 0.1, "num_iter_set": 3}


def steps(row: str, library_class: str, queries: int, ours: Any = (), theirs: Any = ()) -> Direct:
    """Three steps of 0.04 in the linf ball of radius 0.1."""
    words = {"eps": 0.1, "alpha": 0.04, "steps": 3, **dict(theirs)}
    return Direct(
        row, "linf", 0.1, {"steps": 3, "step_size": 0.04, **dict(ours)}, library_class, words, (queries, queries)
    )


CASES = (
    Direct("fgsm", "linf", 0.1, {}, "FGSM", {"eps": 0.1}, (1, 1)),
    Direct("fgm", "l2", 1.5, {}, "PGDL2", ONE_L2_STEP, (1, 1)),
    Direct("fgm@repaired", "l2", 1.5, {}, "PGDL2", {**ONE_L2_STEP, "eps_for_division": 1e-20}, (1, 1)),
    Direct("f-fgsm", "linf", 0.1, {"step_size": 0.12}, "FFGSM", {"eps": 0.1, "alpha": 0.12}, (1, 1)),
    steps("r-fgsm", "RFGSM", 3),
    steps("bim", "BIM", 3),
    steps("pgd", "PGD", 3),
    steps("pgd", "PGD", 3, {"random_start": False}, {"random_start": False}),
    Direct("pgd", "l2", 1.5, L2_STEPS, "PGDL2", L2, (3, 3)),
    Direct(
        "pgd@repaired",
        "l2",
        1.5,
        {**L2_STEPS, "random_start": True},
        "PGDL2",
        {**L2, "eps_for_division": 1e-20},
        (3, 3),
    ),
    steps("eot-pgd", "EOTPGD", 6, {"samples": 2, "random_start": False}, {"eot_iter": 2, "random_start": False}),
    Direct(
        "trades-pgd",
        "linf",
        0.1,
        {"steps": 3, "step_size": 0.04},
        "TPGD",
        {"eps": 0.1, "alpha": 0.04, "steps": 3},
        (4, 3),
    ),
    steps("jitter", "Jitter", 3, {"random_start": False}, {"random_start": False}),
    steps("upgd", "UPGD", 6, {**DECAY, "samples": 2, "random_start": True}, {**DECAY, **AVERAGED}),
    steps("smoothed-pgd", "PGDRS", 6, SMOOTH, SMOOTH_WORDS),
    Direct("smoothed-pgd", "l2", 1.5, {**L2_STEPS, **SMOOTH}, "PGDRSL2", {**L2, **SMOOTH_WORDS}, (6, 6)),
    steps("mi-fgsm", "MIFGSM", 3, DECAY, DECAY),
    steps("ni-fgsm", "NIFGSM", 3, DECAY, DECAY),
    steps("si-ni-fgsm", "SINIFGSM", 6, {**DECAY, "scales": 2}, {**DECAY, "m": 2}),
    steps("vmi-fgsm", "VMIFGSM", 9, VARIANCE, VARIANCE_WORDS),
    steps("vni-fgsm", "VNIFGSM", 9, VARIANCE, VARIANCE_WORDS),
    steps("di-fgsm", "DIFGSM", 3, DIVERSE, DIVERSE_WORDS),
    steps("ti-fgsm", "TIFGSM", 3, {**DIVERSE, "kernel_size": 5}, {**DIVERSE_WORDS, "len_kernel": 5}),
    Direct("pi-fgsm", "linf", 0.1, {"steps": 3}, "PIFGSM", PI_WORDS, (3, 3)),
    Direct("pi-fgsm++", "linf", 0.1, {"steps": 3}, "PIFGSMPP", PI_WORDS, (3, 3)),
    *(
        Direct(
            f"apgd-{loss}",
            norm,
            eps,
            {"steps": 4},
            "APGD",
            {"norm": word, "eps": eps, "steps": 4, "loss": loss, "seed": SEED},
            (6, 5),
        )
        for loss in ("ce", "dlr")
        for norm, word, eps in BALLS
    ),
    Direct("apgd-t", "linf", 0.15, {"steps": 4, "candidates": 3}, "APGDT", {**ENSEMBLE, "steps": 4, "n_classes": 3}),
    Direct(
        "autoattack",
        "linf",
        0.15,
        {"steps": 4, "candidates": 3},
        "AutoAttack",
        {**ENSEMBLE, "n_classes": 3},
        inner_steps=4,
    ),
    # All are fooled before APGDT, whose l2 is repaired.
    Direct("autoattack", "l2", 3.0, {}, "AutoAttack", {"norm": "L2", "eps": 3.0, "seed": SEED}),
    Direct("autoattack@repaired", "l2", 3.0, {}, "AutoAttack", {**ENSEMBLE, "norm": "L2", "eps": 3.0}, inner_steps=100),
    Direct(
        "autoattack@repaired",
        "linf",
        0.15,
        {"candidates": 4},
        "AutoAttack",
        {**ENSEMBLE, "n_classes": 4},
        inner_steps=100,
    ),
    *(
        Direct("fab", norm, epsilon, {"steps": 3}, "FAB", {"norm": word, "eps": eps, "steps": 3}, (9, 30))
        for norm, word, epsilon, eps in (
            ("linf", "Linf", None, 1.0),
            ("linf", "Linf", 0.1, 0.1),
            ("l2", "L2", None, 99.0),
        )
    ),
    Direct("deepfool", "l2", None, {"steps": 4, "overshoot": 0.1}, "DeepFool", {"steps": 4, "overshoot": 0.1}),
    Direct("cw", "l2", None, CW, "CW", CW_WORDS),
    Direct("ead-en", "l1", None, EAD, "EADEN", EAD_WORDS),
    Direct("ead-l1", "l1", None, EAD, "EADL1", EAD_WORDS),
    Direct("jsma", "l0", 6, {"theta": 0.5}, "JSMA", {"theta": 0.5, "gamma": 6 / 768}),
    Direct("sparsefool", "l0", None, {"steps": 3, "overshoot": 0.1}, "SparseFool", {"steps": 3, "overshoot": 0.1}),
    Direct("one-pixel", "l0", 8, {"steps": 2, "population": 30}, "OnePixel", {"pixels": 2, "steps": 2, "popsize": 30}),
    Direct("pixle", "l0", None, {"steps": 3, "trials": 4}, "Pixle", {"restarts": 3, "max_iterations": 4}),
    *(
        Direct("square", norm, eps, SQUARE, "Square", {"norm": word, "eps": eps, **SQUARE_WORDS})
        for norm, word, eps in BALLS
    ),
    Direct("spsa", "linf", 0.1, SPSA, "SPSA", SPSA_WORDS, (280, 0)),
    Direct("gaussian-noise", "unrestricted", None, {"std": 0.2}, "GN", {"std": 0.2}, (0, 0)),
)

# Rows whose class is a repair of ours: test_repairs_torchattacks.py.
REPAIRED = (
    ("apgd-t", "l2"),
    ("fab", "l1"),
    ("least-likely", "linf"),
    ("deepfool@repaired", "l2"),
    ("cw@repaired", "l2"),
    ("ead-en@repaired", "l1"),
    ("ead-l1@repaired", "l1"),
    ("jsma@repaired", "l0"),
    ("pixle@repaired", "l0"),
)

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # SparseFool, NumPy 2
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.row}-{case.norm}")


class Counted(nn.Module):
    """The plain module, with every image that goes through it counted."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        self.queries = Counter()

    def forward(self, inputs: Tensor) -> Tensor:
        logits = self.module(inputs)
        self.queries["forwards"] += len(inputs)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self.queries.update(backwards=len(gradient)))
        return logits


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def call(case: Direct, model: nn.Module, inputs: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    attack = getattr(torchattacks, case.library_class)(model, **case.words)
    if case.inner_steps is not None:
        for inner in attack._autoattack.attacks[:3]:
            inner.steps = case.inner_steps
    if targets is not None and case.library_class in LABELS_ARE_TARGETS:
        attack.set_mode_targeted_by_label(quiet=True)
        labels = targets
    elif targets is not None:
        attack.set_mode_targeted_by_function(lambda *_: targets, quiet=True)
    return attack(inputs, labels)


def call_directly(case: Direct, digits: Any, targets: Tensor | None = None) -> tuple[list[Tensor], list[Counter]]:
    """What torchattacks returns and asks, in one call, or image by image where the row says so."""
    size = 1 if IMPLEMENTATIONS[f"torchattacks:{case.row}"].alone else COUNT
    images, queries = [], []
    for first in range(0, COUNT, size):
        part, model = slice(first, first + size), Counted(digits.module)
        seed_everything(call_seed(SEED, first, 0))
        aims = None if targets is None else targets[part]
        images.append(call(case, model, digits.inputs[part], digits.labels[part], aims))
        queries.append(model.queries)
    return torch.cat(images).detach(), queries


def run(case: Direct, digits: Any, targets: Tensor | None = None) -> Any:
    return run_attack(
        f"torchattacks:{case.row}",
        digits.classifier,
        digits.inputs,
        digits.labels,
        ThreatModel(case.norm, case.epsilon, targeted=targets is not None),
        targets=targets,
        seed=SEED,
        **case.parameters,
    )


def second_likely(digits: Any) -> Tensor:
    logits = digits.module(digits.inputs)
    return logits.scatter(1, digits.labels[:, None], -torch.inf).argmax(1)


def test_every_row_and_norm_is_compared():
    ours = {
        (row.name.removeprefix("torchattacks:"), norm)
        for row in IMPLEMENTATIONS.values()
        if row.library == "torchattacks"
        for norm in row.classes
    }
    assert {(case.row, case.norm) for case in CASES} | set(REPAIRED) == ours


@every_case
def test_the_images_and_the_queries_are_those_of_the_library(digits, case):
    digits = digits.first(COUNT)
    expected, queries = call_directly(case, digits)
    result = run(case, digits)
    assert torch.equal(result.adv_inputs, expected.clamp(0, 1))
    for kind in ("forwards", "backwards"):
        counted, asked = getattr(result, kind), [each[kind] for each in queries]
        assert counted.sum() == sum(asked)
        assert len(asked) == 1 or counted.tolist() == asked
    if case.queries is not None:
        assert result.forwards.tolist() == [case.queries[0]] * COUNT
        assert result.backwards.tolist() == [case.queries[1]] * COUNT


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if IMPLEMENTATIONS[f"torchattacks:{case.row}"].targeted == "yes"],
    ids=lambda case: f"{case.row}-{case.norm}",
)
def test_targeted_images_are_those_of_the_library(digits, case):
    digits = digits.first(COUNT)
    targets = second_likely(digits)
    expected, _ = call_directly(case, digits, targets)
    result = run(case, digits, targets)
    assert torch.equal(result.adv_inputs, expected.clamp(0, 1))
    assert torch.equal(result.success, digits.module(result.adv_inputs).argmax(1) == targets)


@pytest.mark.parametrize("name", dict.fromkeys(f"torchattacks:{case.row}" for case in CASES))
def test_every_parameter_of_a_row_is_passed_by_some_case(name):
    row = IMPLEMENTATIONS[name]
    cases = [case for case in CASES if f"torchattacks:{case.row}" == name]
    passed = {word for case in cases for word in case.parameters} | {"seed"}
    assert set(row.params) <= passed
