"""Every pyautoattack row against the same call made on the library itself: the same images, the same queries."""

import logging
from collections.abc import Mapping
from typing import Any

from pyautoattack import AutoAttack
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor

from davylamp.adapters.running.library_call import Images

from .direct import Counted, Direct, DirectCalls

BALLS = (("linf", "Linf", 0.1, 1.0), ("l2", "L2", 1.5, 768**0.5), ("l1", "L1", 20.0, 768.0))
INNER = {"n_iter": 4, "n_iter_orig": 4, "n_iter_2": 1, "n_iter_min": 1, "size_decr": 1}


def each(row: str, attack: Any, ours: Mapping[str, Any], theirs: Mapping[str, Any], queries: Any = None) -> Any:
    """In the ball of each norm; without a radius for FAB, whose ball then holds the box."""
    for norm, word, eps, box in BALLS:
        radius = None if attack is FABAttack_PT else eps
        words = {"norm": word, "eps": box if radius is None else eps, **theirs}
        yield Direct(row, norm, radius, ours, attack, words, queries)


SQUARE, SQUARE_WORDS = {"steps": 30, "initial_probability": 0.3}, {"n_queries": 30, "p_init": 0.3}
AIMED = {"steps": 3, "candidates": 4}
CASES = (
    # A look at the clean image, the random start, and each step.
    *(
        case
        for loss in ("ce", "dlr")
        for case in each(f"apgd-{loss}", APGDAttack, {"steps": 9}, {"n_iter": 9, "loss": loss}, (11, 10))
    ),
    *each("apgd-t", APGDAttack_targeted, AIMED, {"n_iter": 3, "n_target_classes": 3}),
    # Two looks at the clean image, a query and a gradient of every class at each step, and two looks at the results.
    *each("fab", FABAttack_PT, {"steps": 3}, {"n_iter": 3}, (2 + 2 * 3 + 1, 3 * 10)),
    *each("fab-t", FABAttack_PT, AIMED, {"n_iter": 3, "n_target_classes": 3, "targeted": True}),
    *each("square", SquareAttack, SQUARE, SQUARE_WORDS),
    # All are fooled by its first two attacks: its Square takes seconds to fail.
    *(
        Direct("autoattack", norm, 3 * eps, {"steps": 4, "candidates": 4}, AutoAttack, {"norm": word, "eps": 3 * eps})
        for norm, word, eps, _ in BALLS
    ),
)

# Rows whose class is a repair of ours: test_pyautoattack.py; those on the margin: tests/adapters/running.
ELSEWHERE = {(row, norm) for row in ("fab-t@fixed", "apgd-margin", "margin-ensemble") for norm, *_ in BALLS}


class TestDirect(DirectCalls):
    library, cases, elsewhere = "pyautoattack", CASES, frozenset(ELSEWHERE)

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        inputs, labels, targets = images
        if case.theirs is AutoAttack:
            return ensemble(case, model, inputs, labels, seed)
        words = {**case.words, "seed": seed, **({} if targets is None else {"targeted": True})}
        return case.theirs(model, **words).perturb(inputs, labels if targets is None else targets)


def ensemble(case: Direct, model: Counted, inputs: Tensor, labels: Tensor, seed: int) -> Tensor:
    attack = AutoAttack(model, seed=seed, **case.words)
    for inner in (attack.apgd, attack.apgd_targeted):
        vars(inner).update(INNER)
    attack.fab.n_iter = 4
    attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = 3
    logging.getLogger("auto-attack").disabled = True
    try:
        return attack.run_standard_evaluation(inputs, labels, batch_size=len(inputs))[0]
    finally:
        logging.getLogger("auto-attack").disabled = False
