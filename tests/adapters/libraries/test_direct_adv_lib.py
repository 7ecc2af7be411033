"""Every adversarial-library row against the same call made on the library itself: the same images, the same queries."""

import inspect
import math
from collections.abc import Iterator
from typing import Any

import pytest
from torch import Tensor

from davylamp.adapters.libraries.adv_lib import functions
from davylamp.adapters.running.library_call import Images

from .direct import Counted, Direct, DirectCalls

BALLS = (("linf", math.inf, 0.1), ("l2", 2, 1.5), ("l1", 1, 20.0))
NORMS = {"linf": math.inf, "l2": 2, "l1": 1, "l0": 0}

PGD = {"steps": 3, "step_size": 0.04}
PGD_WORDS = {"ε": 0.1, "steps": 3, "absolute_step_size": 0.04}
CW = {"steps": 12, "binary_search_steps": 2, "initial_const": 10.0, "learning_rate": 0.05}
ROUNDS, FIVE_STEPS = {"binary_search_steps": 2}, {"max_iterations": 5, "abort_early": False}
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

NORM_BOUND = tuple((norm, {"norm": p, "eps": eps}, eps) for norm, p, eps in BALLS)
FREE = tuple((norm, {"norm": p}, None) for norm, p, _ in BALLS)
EVERY_NORM = tuple((norm, {"norm": p}, None) for norm, p in NORMS.items())
STILL, THEIRS_STILL = {**PGD, "random_start": False}, {**PGD_WORDS, "random_init": False}
BOUNDS = (("linf", math.inf, 0.5), ("l2", 2, math.sqrt(768) / 2), ("l1", 1, 384.0))  # of the box
BISECTED, BISECTED_WORDS = {"steps": 3, "binary_search_steps": 4}, {"n_iter": 3, "binary_search_steps": 4}
OVERSHOOT = {"steps": 4, "overshoot": 0.1}


def in_norms(row: str, function: str, norms: Any, ours: Any, theirs: Any, queries: Any = None) -> Iterator[Direct]:
    """In each of these norms."""
    for norm, words, epsilon in norms:
        yield Direct(row, norm, epsilon, ours, function, {**words, **theirs}, queries)


CASES = (
    Direct("pgd", "linf", 0.1, PGD, "pgd_linf", PGD_WORDS, (3, 3)),
    Direct("pgd", "linf", 0.1, STILL, "pgd_linf", THEIRS_STILL, (3, 3)),
    Direct("pgd@fixed", "linf", 0.1, STILL, "pgd_linf", {**THEIRS_STILL, "steps": 4}, (4, 4)),
    *in_norms("apgd-ce", "apgd", NORM_BOUND, {"steps": 9}, {"n_iter": 9, "loss_function": "ce"}, (10, 10)),
    *in_norms("apgd-dlr", "apgd", NORM_BOUND, {"steps": 9}, {"n_iter": 9, "loss_function": "dlr"}, (10, 10)),
    *in_norms("apgd-t", "apgd_targeted", NORM_BOUND, {"steps": 4, "candidates": 3}, {"n_iter": 4, "num_targets": 2}),
    *(
        Direct(
            "minimal-apgd",
            norm,
            None,
            BISECTED,
            "minimal_apgd",
            {**BISECTED_WORDS, "norm": p, "max_eps": most},
            (20, 16),
        )
        for norm, p, most in BOUNDS
    ),
    *in_norms("fab", "fab", FREE, {"steps": 3}, {"n_iter": 3}, (7, 27)),
    *in_norms(
        "fab-t",
        "fab",
        FREE,
        {"steps": 3, "candidates": 4},
        {"n_iter": 3, "restarts": 3, "targeted_restarts": True},
        (22, 9),
    ),
    *in_norms("deepfool", "df", FREE[:2], OVERSHOOT, OVERSHOOT),
    Direct("superdeepfool", "l2", None, {**OVERSHOOT, "steps": 3}, "sdf", {**OVERSHOOT, "steps": 3}),
    Direct("cw", "l2", None, {**CW, "confidence": 0.5}, "carlini_wagner_l2", {**CW_WORDS, **ROUNDS, "confidence": 0.5}),
    Direct("cw", "l2", None, {**CW, "steps": 5}, "carlini_wagner_l2", {**CW_WORDS, **ROUNDS, **FIVE_STEPS}, (10, 10)),
    Direct("cw", "linf", None, {**CW, "confidence": 0.0}, "carlini_wagner_linf", {**CW_WORDS, "largest_const": 40.0}),
    Direct("ddn", "l2", None, DDN, "ddn", DDN_WORDS, (8, 8)),
    Direct("ddn@fixed", "l2", None, DDN, "ddn", {**DDN_WORDS, "levels": None}, (8, 8)),
    *in_norms("fmn", "fmn", EVERY_NORM, FMN, FMN_WORDS, (8, 8)),
    *(Direct("alma", norm, None, SURE, "alma", {**SURE_WORDS, "distance": norm}, (6, 6)) for norm in ("l2", "l1")),
    *(
        Direct(f"alma-{d}", "unrestricted", None, SURE, "alma", {**SURE_WORDS, "distance": d}, (6, 6))
        for d in ("ssim", "ciede2000")
    ),
    Direct("pdgd", "l2", None, DUAL, "pdgd", DUAL_WORDS, (6, 6)),
    *in_norms("pdpgd", "pdpgd", EVERY_NORM, DUAL, DUAL_WORDS, (6, 6)),
    Direct("pdpgd@fixed", "l0", None, DUAL, "pdpgd", {**DUAL_WORDS, "norm": 0, "proximal_operator": 23}, (6, 6)),
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

# Rows whose function is a repair of ours: test_adv_lib.py.
REPAIRED = {
    *(("fmn@fixed", norm) for norm in ("linf", "l2", "l1", "l0")),
    *(("alma@fixed", norm) for norm in ("l2", "l1")),
    ("alma-ssim@fixed", "unrestricted"),
    ("alma-ciede2000@fixed", "unrestricted"),
}


class TestDirect(DirectCalls):
    library, cases, elsewhere = "adv-lib", CASES, frozenset(REPAIRED)

    @pytest.fixture(autouse=True)
    def _short_last_stage(self, monkeypatch):
        """StrAttack's last stage with 9 steps a round in place of 400."""
        shorter = lambda *bounds: range(*(9 if bound == 400 else bound for bound in bounds))  # noqa: E731
        monkeypatch.setattr(inspect.getmodule(functions.str_attack), "range", shorter, raising=False)

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        inputs, labels, targets = images
        attack: Any = getattr(functions, case.theirs)
        if targets is None:
            return attack(model, inputs, labels, **case.words)
        return attack(model, inputs, targets, **{**case.words, "targeted": True})
