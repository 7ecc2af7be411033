"""Every adversarial-library row against the same call made on the library itself: the same images, the same queries."""

import inspect
import math
from collections import Counter
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, ThreatModel, run_attack
from davylamp.adapters.libraries.adv_lib import functions
from davylamp.adapters.running.queries import distinguishable
from davylamp.adapters.running.seeding import call_seed

SEED = 7
COUNT = 3
BALLS = (("linf", math.inf, 0.1), ("l2", 2, 1.5), ("l1", 1, 20.0))
NORMS = {"linf": math.inf, "l2": 2, "l1": 1, "l0": 0}


class Direct(NamedTuple):
    """A row in our words and in adv-lib's, and its (forwards, backwards) per image where they are known exactly."""

    row: str
    norm: str
    epsilon: float | None
    parameters: dict[str, Any]
    function: str
    words: dict[str, Any]
    queries: tuple[int, int] | None = None


PGD = {"steps": 3, "step_size": 0.04}
PGD_WORDS = {"ε": 0.1, "steps": 3, "absolute_step_size": 0.04}
CW = {"steps": 12, "binary_search_steps": 2, "initial_const": 10.0, "learning_rate": 0.05}
CW_WORDS = {"max_iterations": 12, "initial_const": 10.0, "learning_rate": 0.05}
FMN, FMN_WORDS = {"steps": 8, "learning_rate": 0.8, "gamma": 0.1}, {"steps": 8, "α_init": 0.8, "γ_init": 0.1}
DDN, DDN_WORDS = {"steps": 8, "gamma": 0.1, "initial_epsilon": 0.7}, {"steps": 8, "γ": 0.1, "init_norm": 0.7}
ALMA, ALMA_WORDS = {"steps": 6, "learning_rate": 0.2}, {"num_steps": 6, "lr_init": 0.2}
SURE, SURE_WORDS = {**ALMA, "confidence": 0.5}, {**ALMA_WORDS, "logit_tolerance": 0.5}
DUAL, DUAL_WORDS = {"steps": 6, "learning_rate": 0.2}, {"num_steps": 6, "primal_lr": 0.2}
SIGMA, SIGMA_WORDS = {"steps": 6, "learning_rate": 0.8}, {"num_steps": 6, "η_0": 0.8}
FOLDED, FOLDED_WORDS = {"steps": 4, "trials": 3}, {"max_iter": 4, "n_samples": 3}
STRUCTURED = {"steps": 5, "binary_search_steps": 2, "initial_const": 3.0, "confidence": 0.5}
STRUCTURED_WORDS = {"max_iterations": 5, "binary_search_steps": 2, "initial_const": 3.0, "confidence": 0.5}

CASES = (
    Direct("pgd", "linf", 0.1, PGD, "pgd_linf", PGD_WORDS, (3, 3)),
    Direct("pgd", "linf", 0.1, {**PGD, "random_start": False}, "pgd_linf", {**PGD_WORDS, "random_init": False}, (3, 3)),
    Direct(
        "pgd@repaired",
        "linf",
        0.1,
        {**PGD, "random_start": False},
        "pgd_linf",
        {**PGD_WORDS, "steps": 4, "random_init": False},
        (4, 4),
    ),
    *(
        Direct(
            f"apgd-{loss}",
            norm,
            eps,
            {"steps": 9},
            "apgd",
            {"norm": p, "eps": eps, "n_iter": 9, "loss_function": loss},
            (10, 10),
        )
        for loss in ("ce", "dlr")
        for norm, p, eps in BALLS
    ),
    *(
        Direct(
            "apgd-t",
            norm,
            eps,
            {"steps": 4, "candidates": 3},
            "apgd_targeted",
            {"norm": p, "eps": eps, "n_iter": 4, "num_targets": 2},
        )
        for norm, p, eps in BALLS
    ),
    *(
        Direct(
            "minimal-apgd",
            norm,
            None,
            {"steps": 3, "binary_search_steps": 4},
            "minimal_apgd",
            {"norm": p, "max_eps": most, "n_iter": 3, "binary_search_steps": 4},
            (4 * (4 + 1), 4 * 4),
        )
        for norm, p, most in (("linf", math.inf, 0.5), ("l2", 2, math.sqrt(768) / 2), ("l1", 1, 384.0))
    ),
    *(Direct("fab", norm, None, {"steps": 3}, "fab", {"norm": p, "n_iter": 3}, (7, 27)) for norm, p, _ in BALLS),
    *(
        Direct(
            "fab-t",
            norm,
            None,
            {"steps": 3, "candidates": 4},
            "fab",
            {"norm": p, "n_iter": 3, "restarts": 3, "targeted_restarts": True},
            (22, 9),
        )
        for norm, p, _ in BALLS
    ),
    *(
        Direct("deepfool", norm, None, {"steps": 4, "overshoot": 0.1}, "df", {"steps": 4, "overshoot": 0.1, "norm": p})
        for norm, p, _ in BALLS[:2]
    ),
    Direct("superdeepfool", "l2", None, {"steps": 3, "overshoot": 0.1}, "sdf", {"steps": 3, "overshoot": 0.1}),
    Direct(
        "cw",
        "l2",
        None,
        {**CW, "confidence": 0.5},
        "carlini_wagner_l2",
        {**CW_WORDS, "binary_search_steps": 2, "confidence": 0.5},
    ),
    Direct(
        "cw",
        "l2",
        None,
        {**CW, "steps": 5},
        "carlini_wagner_l2",
        {**CW_WORDS, "max_iterations": 5, "binary_search_steps": 2, "abort_early": False},
        (10, 10),
    ),
    Direct("cw", "linf", None, CW, "carlini_wagner_linf", {**CW_WORDS, "largest_const": 40.0}),
    Direct("ddn", "l2", None, DDN, "ddn", DDN_WORDS, (8, 8)),
    Direct("ddn@repaired", "l2", None, DDN, "ddn", {**DDN_WORDS, "levels": None}, (8, 8)),
    *(Direct("fmn", norm, None, FMN, "fmn", {**FMN_WORDS, "norm": p}, (8, 8)) for norm, p in NORMS.items()),
    *(Direct("alma", norm, None, SURE, "alma", {**SURE_WORDS, "distance": norm}, (6, 6)) for norm in ("l2", "l1")),
    *(
        Direct(f"alma-{d}", "unrestricted", None, SURE, "alma", {**SURE_WORDS, "distance": d}, (6, 6))
        for d in ("ssim", "ciede2000")
    ),
    Direct("pdgd", "l2", None, DUAL, "pdgd", DUAL_WORDS, (6, 6)),
    *(Direct("pdpgd", norm, None, DUAL, "pdpgd", {**DUAL_WORDS, "norm": p}, (6, 6)) for norm, p in NORMS.items()),
    Direct("pdpgd@repaired", "l0", None, DUAL, "pdpgd", {**DUAL_WORDS, "norm": 0, "proximal_operator": 23}, (6, 6)),
    Direct("sigma-zero", "l0", None, SIGMA, "sigma_zero", SIGMA_WORDS, (6, 6)),
    Direct("fga", "l0", None, FOLDED, "fga", {**FOLDED_WORDS, "targeted": False}, (16, 4)),
    Direct("vfga", "l0", None, FOLDED, "vfga", {**FOLDED_WORDS, "targeted": False}, (28, 4)),
    *(
        Direct(row, norm, None, {"steps": 4, "step_size": 0.02}, "tr", {"iter": 4, "eps": 0.02, "p": p, **more})
        for row, more in (("trust-region", {}), ("trust-region-adaptive", {"adaptive": True}))
        for norm, p, _ in BALLS[:2]
    ),
    Direct("strattack", "l2", None, STRUCTURED, "str_attack", STRUCTURED_WORDS, (2 * 2 * 5 + 8 * 9, 2 * 5 + 8 * 9)),
    Direct("perc-al", "unrestricted", None, {"steps": 4}, "perc_al", {"max_iterations": 4, "num_classes": 10}, (9, 4)),
)

# Rows whose function is a repair of ours: test_repairs_adv_lib.py.
REPAIRED = (
    *(("fmn@repaired", norm) for norm in ("l2", "l1", "l0")),
    *(("alma@repaired", norm) for norm in ("l2", "l1")),
    ("alma-ssim@repaired", "unrestricted"),
    ("alma-ciede2000@repaired", "unrestricted"),
)

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


@pytest.fixture(autouse=True)
def _short_last_stage(monkeypatch):
    """StrAttack's last stage with 9 steps a round in place of 400."""
    shorter = lambda *bounds: range(*(9 if bound == 400 else bound for bound in bounds))  # noqa: E731
    monkeypatch.setattr(inspect.getmodule(functions.str_attack), "range", shorter, raising=False)


def is_alone(case: Direct, inputs: Tensor) -> bool:
    """Whether the row gets one image a call: it couples them, or shrinks a batch that cannot be told apart."""
    row = IMPLEMENTATIONS[f"adv-lib:{case.row}"]
    mixed = row.order == "content" and not distinguishable(inputs, ThreatModel(case.norm, case.epsilon))
    return row.alone or mixed


def call_directly(case: Direct, digits: Any, targets: Tensor | None = None) -> tuple[Tensor, list[Counter]]:
    """What adv-lib returns and asks, in one call, or image by image where the row says so."""
    size = 1 if is_alone(case, digits.inputs) else COUNT
    images, queries = [], []
    for first in range(0, COUNT, size):
        part, model = slice(first, first + size), Counted(digits.module)
        torch.manual_seed(call_seed(SEED, first, 0))
        goal = digits.labels[part] if targets is None else targets[part]
        words = case.words if targets is None else {**case.words, "targeted": True}
        images.append(getattr(functions, case.function)(model, digits.inputs[part].clone(), goal, **words))
        queries.append(model.queries)
    return torch.cat(images).detach(), queries


def run(case: Direct, digits: Any, targets: Tensor | None = None) -> Any:
    return run_attack(
        f"adv-lib:{case.row}",
        digits.classifier,
        digits.inputs,
        digits.labels,
        ThreatModel(case.norm, case.epsilon, targeted=targets is not None),
        targets=targets,
        seed=SEED,
        **case.parameters,
    )


def test_every_row_and_norm_is_compared():
    ours = {
        (row.name.removeprefix("adv-lib:"), norm)
        for row in IMPLEMENTATIONS.values()
        if row.library == "adv-lib"
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
    [case for case in CASES if IMPLEMENTATIONS[f"adv-lib:{case.row}"].targeted == "yes"],
    ids=lambda case: f"{case.row}-{case.norm}",
)
def test_targeted_images_are_those_of_the_library(digits, case):
    digits = digits.first(COUNT)
    targets = digits.module(digits.inputs).argsort(1)[:, -2]
    expected, _ = call_directly(case, digits, targets)
    result = run(case, digits, targets)
    assert torch.equal(result.adv_inputs, expected.clamp(0, 1))
    assert torch.equal(result.success, digits.module(result.adv_inputs).argmax(1) == targets)


@pytest.mark.parametrize("name", dict.fromkeys(f"adv-lib:{case.row}" for case in CASES))
def test_every_parameter_of_a_row_is_passed_by_some_case(name):
    row = IMPLEMENTATIONS[name]
    cases = [case for case in CASES if f"adv-lib:{case.row}" == name]
    passed = {word for case in cases for word in case.parameters} | {"num_classes"}
    assert set(row.params) <= passed
