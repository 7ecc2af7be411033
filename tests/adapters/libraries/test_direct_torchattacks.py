"""Every torchattacks row against the same call made on the library itself: the same images, the same queries."""

from dataclasses import replace
from typing import Any

import torchattacks
from torch import Tensor

from davylamp.adapters.running.library_call import Images

from .direct import SEED, Counted, Direct, DirectCalls

LABELS_ARE_TARGETS = ("SPSA", "PIFGSMPP")


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


STILL, TINY_DIVISOR = {"random_start": False}, {"eps_for_division": 1e-20}
FOUR, FOUR_OF = {"steps": 4}, {"steps": 4, "candidates": 3}
IN_L2 = {**ENSEMBLE, "norm": "L2", "eps": 3.0}  # all are fooled before APGDT, whose l2 is repaired


def ensemble(row: str, norm: str, ours: Any, words: Any, inner_steps: int) -> Direct:
    """The steps of the attacks inside are no words of the library's."""
    peculiar = {"inner_steps": inner_steps}
    return Direct(row, norm, words["eps"], ours, "AutoAttack", words, peculiar=peculiar)


CASES = (
    Direct("fgsm", "linf", 0.1, {}, "FGSM", {"eps": 0.1}, (1, 1)),
    Direct("fgm", "l2", 1.5, {}, "PGDL2", ONE_L2_STEP, (1, 1)),
    Direct("fgm@fixed", "l2", 1.5, {}, "PGDL2", {**ONE_L2_STEP, **TINY_DIVISOR}, (1, 1)),
    Direct("f-fgsm", "linf", 0.1, {"step_size": 0.12}, "FFGSM", {"eps": 0.1, "alpha": 0.12}, (1, 1)),
    steps("r-fgsm", "RFGSM", 3),
    steps("bim", "BIM", 3),
    steps("pgd", "PGD", 3),
    steps("pgd", "PGD", 3, STILL, STILL),
    Direct("pgd", "l2", 1.5, L2_STEPS, "PGDL2", L2, (3, 3)),
    Direct("pgd", "l2", 1.5, {**L2_STEPS, **STILL}, "PGDL2", {**L2, **STILL}, (3, 3)),
    Direct("pgd@fixed", "l2", 1.5, {**L2_STEPS, "random_start": True}, "PGDL2", {**L2, **TINY_DIVISOR}, (3, 3)),
    steps("eot-pgd", "EOTPGD", 6, {"samples": 2, **STILL}, {"eot_iter": 2, **STILL}),
    replace(steps("trades-pgd", "TPGD", 3), queries=(4, 3)),
    steps("jitter", "Jitter", 3, STILL, STILL),
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
            FOUR,
            "APGD",
            {"norm": word, "eps": eps, "loss": loss, **FOUR, "seed": SEED},
            (6, 5),
        )
        for loss in ("ce", "dlr")
        for norm, word, eps in BALLS
    ),
    Direct("apgd-t", "linf", 0.15, FOUR_OF, "APGDT", {**ENSEMBLE, "steps": 4, "n_classes": 3}),
    ensemble("autoattack", "linf", FOUR_OF, {**ENSEMBLE, "n_classes": 3}, 4),
    ensemble("autoattack", "l2", FOUR_OF, {**IN_L2, "n_classes": 3}, 4),
    ensemble("autoattack@fixed", "l2", {"candidates": 4}, {**IN_L2, "n_classes": 4}, 100),
    ensemble("autoattack@fixed", "linf", {"candidates": 4}, {**ENSEMBLE, "n_classes": 4}, 100),
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

# Rows whose class is a repair of ours: test_torchattacks.py.
REPAIRED = {
    ("apgd-t", "l2"),
    ("fab", "l1"),
    ("least-likely", "linf"),
    ("deepfool@fixed", "l2"),
    ("cw@fixed", "l2"),
    ("ead-en@fixed", "l1"),
    ("ead-l1@fixed", "l1"),
    ("jsma@fixed", "l0"),
    ("pixle@fixed", "l0"),
}


class TestDirect(DirectCalls):
    library, cases, elsewhere = "torchattacks", CASES, frozenset(REPAIRED)

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        inputs, labels, targets = images
        attack: Any = getattr(torchattacks, case.theirs)(model, **case.words)
        if "inner_steps" in case.peculiar:
            for inner in attack._autoattack.attacks[:3]:
                inner.steps = case.peculiar["inner_steps"]
        if targets is not None and case.theirs in LABELS_ARE_TARGETS:
            attack.set_mode_targeted_by_label(quiet=True)
            labels = targets
        elif targets is not None:
            attack.set_mode_targeted_by_function(lambda *_: targets, quiet=True)
        return attack(inputs, labels)
