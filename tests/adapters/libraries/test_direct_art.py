"""Every ART row against the same call made on the library itself: the same images, the same queries."""

import inspect
from typing import Any

import numpy as np
import torch
from art.attacks import evasion
from art.estimators.classification import PyTorchClassifier
from torch import Tensor, nn

from davylamp.adapters import ThreatModel
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.running.library_call import Images
from davylamp.adapters.running.queries import QueryCounter
from davylamp.adapters.running.starting_points import find_starting_points

from .direct import Counted, Direct, DirectCalls

ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}
RADII = {"linf": 0.1, "l2": 1.5, "l1": 8.0}


def in_ball(row: str, norm: str, library_class: str, queries: Any, ours: Any = (), theirs: Any = ()) -> Direct:
    """In the ball of the norm's usual radius."""
    radius = RADII[norm]
    words = {"norm": ORDERS[norm], "eps": radius, **dict(theirs)}
    return Direct(row, norm, radius, dict(ours), library_class, words, queries)


def steps(row: str, norm: str, library_class: str, ours: Any = (), theirs: Any = ()) -> Direct:
    """Three steps of 0.4 radii: each asks forwards and backwards, and two predictions are made for a log line."""
    step = 0.4 * RADII[norm]
    ours, theirs = {"steps": 3, "step_size": step, **dict(ours)}, {"max_iter": 3, "eps_step": step, **dict(theirs)}
    return in_ball(row, norm, library_class, (5, 3), ours, theirs)


def free(row: str, norm: str, ours: Any, library_class: str, theirs: Any, queries: Any = None, **more: Any) -> Direct:
    """Without a radius."""
    return Direct(row, norm, None, ours, library_class, theirs, queries, **more)


BIM, THREE_STEPS = {"eps": 0.1, "eps_step": 0.04, "max_iter": 3}, {"steps": 3, "step_size": 0.04}
START, STARTS, DECAY = {"random_start": True}, {"num_random_init": 1}, {"decay": 0.8}
LOSSES = {"ce": "cross_entropy", "dlr": "difference_logits_ratio"}
COMMON = {"initial_const": 5.0, "learning_rate": 0.05, "confidence": 0.5}
CW, CW_WORDS = {"steps": 4, "binary_search_steps": 3, **COMMON}, {"max_iter": 4, "binary_search_steps": 3, **COMMON}
EAD, EAD_WORDS = {**CW, "regularization": 0.02}, {**CW_WORDS, "beta": 0.02}
DEEPFOOL = {"steps": 4, "overshoot": 0.1, "candidates": 4}
DEEPFOOL_WORDS = {"max_iter": 4, "epsilon": 0.1, "nb_grads": 4}
SQUARE, SQUARE_WORDS = {"steps": 30, "initial_probability": 0.3}, {"max_iter": 30, "p_init": 0.3}
HSJ = {"steps": 2, "initial_evaluations": 30, "max_evaluations": 35}
HSJ_WORDS = {"max_iter": 2, "init_eval": 30, "max_eval": 35}
BOUNDARY = {"steps": 3, "orthogonal_step": 0.05, "source_step": 0.06, "trials": 7}
BOUNDARY_WORDS = {"max_iter": 3, "delta": 0.05, "epsilon": 0.06, "num_trial": 7}
SIGN_OPT = {"steps": 2, "max_queries": 800, "samples": 20, "directions": 9, "finite_difference": 0.01}
SIGN_OPT_WORDS = {"max_iter": 2, "query_limit": 800, "k": 20, "num_trial": 9, "epsilon": 0.01, "targeted": False}
SPATIAL = {"max_translation": 4.0, "translations": 3, "max_rotation": 20.0, "rotations": 2}
SPATIAL_WORDS = {"max_translation": 25.0, "num_translations": 3, "max_rotation": 20.0, "num_rotations": 2}
ZOO, ZOO_WORDS = {**CW, "steps": 1, "finite_difference": 1e-3}, {**CW_WORDS, "max_iter": 1, "variable_h": 1e-3}
SIMBA = {"steps": 60, "step_size": 0.3, "subspace": 5}
SIMBA_WORDS = {"max_iter": 60, "epsilon": 0.3, "freq_dim": 5}
VIRTUAL, VIRTUAL_WORDS = {"steps": 1, "finite_difference": 0.01}, {"eps": 1.5, "max_iter": 1, "finite_diff": 0.01}
NEWTON, NEWTON_WORDS = {"steps": 5, "learning_rate": 0.02}, {"max_iter": 5, "eta": 0.02}
JSMA_WORDS = {"theta": 0.4, "gamma": 20.5 / 768}  # goes on up to 20 components, and so ends at 22 of the 768
SHADOW = {"steps": 3, "learning_rate": 0.2, "samples": 4, "std": 0.3}
SHADOW_WORDS = {"nb_steps": 3, "learning_rate": 0.2, "batch_size": 4, "sigma": 0.3}
SINKHORN, SINKHORN_WORDS = {"steps": 2, "initial_epsilon": 0.2}, {"max_iter": 2, "eps": 0.2}
PIXELS, LEVELS = {"th": 5, "es": 1, "max_iter": 2}, {"th": 24.5, "es": 1, "max_iter": 1}
CAPITALS = {"ead-en": "EN", "ead-l1": "L1"}
SOFTMAX, START_AT = {"peculiar": {"softmax": True}}, {"peculiar": {"start": "x_adv_init"}}
LINEAR = {"count": 1, "data": "linear"}  # 192 components, 4 classes


def apgd(loss: str, norm: str) -> Direct:
    step = 2 * RADII[norm]
    ours = {"steps": 4, "restarts": 2, "step_size": step}
    theirs = {"max_iter": 4, "nb_random_init": 2, "eps_step": step, "loss_type": LOSSES[loss]}
    return in_ball(f"apgd-{loss}", norm, "AutoProjectedGradientDescent", None, ours, theirs)


def autoattack(norm: str) -> Direct:
    """All are fooled by the first attack: its Square takes minutes to fail."""
    radius, step = 4 * RADII[norm], 8 * RADII[norm]
    words = {"norm": ORDERS[norm], "eps": radius, "eps_step": step}
    return Direct(
        "autoattack", norm, radius, {"steps": 4, "step_size": step}, "AutoAttack", words, peculiar={"inner_steps": 4}
    )


def towards_a_class(norm: str) -> Direct:
    """The FGSM inside is told where to, in which norm and how far."""
    step = RADII[norm]
    inner = {"targeted": True, "norm": ORDERS[norm], "eps": step}
    theirs = {"max_iter": 1, "attacker_params": inner}
    return in_ball("targeted-uap", norm, "TargetedUniversalPerturbation", None, {"steps": 1, "step_size": step}, theirs)


def conjugate(row: str, library_class: str, norm: str) -> Direct:
    step = 2 * RADII[norm]
    ours = {"steps": 4, "restarts": 2, "step_size": step}
    theirs = {"max_iter": 4, "nb_random_init": 2, "eps_step": step, "loss_type": "cross_entropy"}
    return in_ball(row, norm, library_class, None, ours, theirs)


ONE_HOT = ("SimBA", "TargetedUniversalPerturbation")  # of the labels

CASES = (
    in_ball("fgsm", "linf", "FastGradientMethod", (1, 1)),
    in_ball("fgsm", "linf", "FastGradientMethod", (1, 1), START, STARTS),
    in_ball("fgm", "l2", "FastGradientMethod", (1, 1)),
    in_ball("fgm", "l2", "FastGradientMethod", (1, 1), START, STARTS),
    in_ball("fgm", "l1", "FastGradientMethod", (1, 1), START, STARTS),
    Direct("bim", "linf", 0.1, THREE_STEPS, "BasicIterativeMethod", BIM, (5, 3)),
    # One query more finds the class to aim at; a targeted attack needs no prediction of the clean image afterwards.
    Direct("least-likely", "linf", 0.1, THREE_STEPS, "BasicIterativeMethod", BIM, (5, 3)),
    *(steps("pgd", norm, "ProjectedGradientDescent") for norm in RADII),
    *(steps("pgd", norm, "ProjectedGradientDescent", START, STARTS) for norm in RADII),
    *(steps("mi-fgsm", norm, "MomentumIterativeMethod", DECAY, DECAY) for norm in RADII),
    *(apgd(loss, norm) for loss in LOSSES for norm in RADII),
    *(conjugate("acg", "AutoConjugateGradient", norm) for norm in RADII),
    *(conjugate("reacg", "RescalingAutoConjugateGradient", norm) for norm in RADII),
    *(autoattack(norm) for norm in RADII),
    *(in_ball("uap", norm, "UniversalPerturbation", None, {"steps": 1}, {"max_iter": 1}) for norm in ("linf", "l2")),
    *(towards_a_class(norm) for norm in ("linf", "l2")),
    # A query per component and two more.
    Direct(
        "virtual-adversarial",
        "l2",
        1.5,
        VIRTUAL,
        "VirtualAdversarialMethod",
        VIRTUAL_WORDS,
        (194, 0),
        **LINEAR,
        **SOFTMAX,
    ),
    free("deepfool", "l2", DEEPFOOL, "DeepFool", DEEPFOOL_WORDS),
    free("cw", "l2", CW, "CarliniL2Method", CW_WORDS),
    free("cw", "linf", CW, "CarliniLInfMethod", {"max_iter": 4, "largest_const": 40.0, **COMMON}),
    free("cw", "l0", CW, "CarliniL0Method", CW_WORDS, count=1),
    # Per round and step: two forwards for the gradients, one for their choice, one to score; two at the end.
    *(free(row, "l1", EAD, "ElasticNet", {**EAD_WORDS, "decision_rule": CAPITALS[row]}, (50, 24)) for row in CAPITALS),
    free("newtonfool", "l2", NEWTON, "NewtonFool", NEWTON_WORDS, (11, 5), **SOFTMAX),
    Direct("jsma", "l0", 22, {"theta": 0.4}, "SaliencyMapMethod", JSMA_WORDS),
    # One query finds the class to aim at.
    free("shadow", "unrestricted", SHADOW, "ShadowAttack", SHADOW_WORDS, (13, 12)),
    free("wasserstein", "unrestricted", SINKHORN, "Wasserstein", SINKHORN_WORDS),
    *(in_ball("square", norm, "SquareAttack", None, SQUARE, SQUARE_WORDS) for norm in ("linf", "l2")),
    *(
        free("simba", "l2", {**SIMBA, "basis": basis}, "SimBA", {**SIMBA_WORDS, "attack": basis}, **SOFTMAX)
        for basis in ("dct", "px")
    ),
    # Per round 2 x 128 numerical derivatives and a score; two at the end.
    free("zoo", "l2", ZOO, "ZooAttack", ZOO_WORDS, (3 * 257 + 2, 0), **LINEAR),
    # 400 candidates a generation and the first one; a check after each, and one at the end.
    Direct("one-pixel", "l0", 17, {"steps": 2}, "PixelAttack", PIXELS, (3 * 400 + 3, 0)),
    Direct("threshold", "linf", 0.1, {"steps": 1}, "ThresholdAttack", LEVELS, (2 * 384 + 2, 0), **LINEAR),
    free("boundary", "l2", BOUNDARY, "BoundaryAttack", BOUNDARY_WORDS, **START_AT),
    *(
        free("hopskipjump", norm, HSJ, "HopSkipJump", {**HSJ_WORDS, "norm": ORDERS[norm]}, **START_AT)
        for norm in ("l2", "linf")
    ),
    free("sign-opt", "l2", SIGN_OPT, "SignOPTAttack", SIGN_OPT_WORDS),
    # Three shifts each way, two angles; a prediction of the clean image.
    free("spatial", "unrestricted", SPATIAL, "SpatialTransformation", SPATIAL_WORDS, (3 * 3 * 2 + 1, 0)),
)

# Rows whose class is a repair of ours, and those that cannot be called on the library as it is: test_art.py.
ELSEWHERE = {
    *((f"{row}@fixed", norm) for row in ("uap", "hopskipjump") for norm in ("linf", "l2")),
    *((f"{row}@fixed", "l2") for row in ("deepfool", "square")),
    *((f"{row}@fixed", "linf") for row in ("acg", "reacg", "cw")),
    ("spatial@fixed", "unrestricted"),
    *(("brendel-bethge", norm) for norm in ("linf", "l2", "l1", "l0")),
    *(("geoda", norm) for norm in RADII),
}


class TestDirect(DirectCalls):
    library, cases, elsewhere = "art", CASES, frozenset(ELSEWHERE)

    def can_be_targeted(self, case: Direct) -> bool:
        """Not the Wasserstein attack here: its conjugate Sinkhorn iteration overflows on these images."""
        return self.row_of(case).targeted != "no" and case.row != "wasserstein"

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        start: dict[str, Any] = {}
        if "start" in case.peculiar:
            counter = QueryCounter(Classifier(model.module), images.inputs, images.labels, ThreatModel(case.norm))
            counter.classifier.check(images.inputs)
            points, has_start = find_starting_points(counter, *images, seed)
            model.queries["forwards"] += int(counter.forwards.sum())
            if not has_start.all():
                return images.inputs
            start[case.peculiar["start"]] = points.numpy()
        examples = generate(case, model, images, **start)
        if case.theirs in ("PixelAttack", "ThresholdAttack"):
            return images.inputs.where((examples - images.inputs).abs() < 1e-6, examples)
        return examples


def generate(case: Direct, model: Counted, images: Images, **start: Any) -> Tensor:
    inputs, labels, targets = images
    classes, shape = model.module(inputs).shape[1], tuple(inputs.shape[1:])
    outputs = nn.Sequential(model, nn.Softmax(1)) if "softmax" in case.peculiar else model
    estimator = PyTorchClassifier(
        outputs, nn.CrossEntropyLoss(), shape, classes, clip_values=(0.0, 1.0), device_type="cpu"
    )
    attack_class = getattr(evasion, case.theirs)
    words = dict(case.words)
    for word, value in (("verbose", False), ("targeted", targets is not None)):
        if word in inspect.signature(attack_class).parameters:
            words[word] = value
    attack = attack_class(estimator, **words)
    for inner in getattr(attack, "attacks", ()):
        inner.verbose = False
        if type(inner).__name__ == "AutoProjectedGradientDescent":
            inner.max_iter = case.peculiar["inner_steps"]
    y = (labels if targets is None else targets).numpy()
    return torch.from_numpy(
        attack.generate(inputs.numpy(), np.eye(classes)[y] if case.theirs in ONE_HOT else y, **start)
    )
