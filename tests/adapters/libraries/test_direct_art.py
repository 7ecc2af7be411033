"""Every ART row against the same call made on the library itself: the same images, the same queries."""

import inspect
import random
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from art.attacks import evasion
from art.estimators.classification import PyTorchClassifier
from torch import Tensor, nn

from davylamp.adapters import IMPLEMENTATIONS, ThreatModel, run_attack
from davylamp.adapters.running.queries import QueryCounter
from davylamp.adapters.running.seeding import call_seed
from davylamp.adapters.running.starting_points import find_starting_points

SEED = 7
COUNT = 3
INFINITY = np.inf


class Direct(NamedTuple):
    """A row in our words and in ART's, and its (forwards, backwards) per image where they are known exactly."""

    row: str
    norm: str
    epsilon: float | None
    parameters: dict[str, Any]
    library_class: str
    words: dict[str, Any]
    queries: tuple[int, int] | None = None
    softmax: bool = False
    count: int = COUNT
    start: str = ""
    aims_at: str = ""
    inner_steps: int = 0
    data: str = "digits"


ORDERS = {"linf": INFINITY, "l2": 2, "l1": 1}
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
SINKHORN, SINKHORN_WORDS = {"steps": 2, "initial_epsilon": 0.2}, {"max_iter": 2, "eps": 0.2}
PIXELS, LEVELS = {"th": 5, "es": 1, "max_iter": 2}, {"th": 24.5, "es": 1, "max_iter": 1}
CAPITALS = {"ead-en": "EN", "ead-l1": "L1"}
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
    return Direct("autoattack", norm, radius, {"steps": 4, "step_size": step}, "AutoAttack", words, inner_steps=4)


CASES = (
    in_ball("fgsm", "linf", "FastGradientMethod", (1, 1)),
    in_ball("fgsm", "linf", "FastGradientMethod", (1, 1), START, STARTS),
    in_ball("fgm", "l2", "FastGradientMethod", (1, 1)),
    in_ball("fgm", "l1", "FastGradientMethod", (1, 1), START, STARTS),
    Direct("bim", "linf", 0.1, THREE_STEPS, "BasicIterativeMethod", BIM, (5, 3)),
    # One query more finds the class to aim at; a targeted attack needs no prediction of the clean image afterwards.
    Direct("least-likely", "linf", 0.1, THREE_STEPS, "BasicIterativeMethod", BIM, (5, 3), aims_at="least-likely"),
    *(steps("pgd", norm, "ProjectedGradientDescent") for norm in RADII),
    *(steps("pgd", norm, "ProjectedGradientDescent", START, STARTS) for norm in RADII),
    *(steps("mi-fgsm", norm, "MomentumIterativeMethod", DECAY, DECAY) for norm in RADII),
    *(apgd(loss, norm) for loss in LOSSES for norm in RADII),
    *(autoattack(norm) for norm in RADII),
    *(in_ball("uap", norm, "UniversalPerturbation", None, {"steps": 1}, {"max_iter": 1}) for norm in ("linf", "l2")),
    # A query per component and two more.
    Direct(
        "virtual-adversarial", "l2", 1.5, VIRTUAL, "VirtualAdversarialMethod", VIRTUAL_WORDS, (194, 0), True, **LINEAR
    ),
    free("deepfool", "l2", DEEPFOOL, "DeepFool", DEEPFOOL_WORDS),
    free("cw", "l2", CW, "CarliniL2Method", CW_WORDS),
    free("cw", "linf", CW, "CarliniLInfMethod", {"max_iter": 4, "largest_const": 40.0, **COMMON}),
    free("cw", "l0", CW, "CarliniL0Method", CW_WORDS, count=1),
    # Per round and step: two forwards for the gradients, one for their choice, one to score; two at the end.
    *(free(row, "l1", EAD, "ElasticNet", {**EAD_WORDS, "decision_rule": CAPITALS[row]}, (50, 24)) for row in CAPITALS),
    free("newtonfool", "l2", NEWTON, "NewtonFool", NEWTON_WORDS, (11, 5), softmax=True),
    Direct("jsma", "l0", 22, {"theta": 0.4}, "SaliencyMapMethod", JSMA_WORDS, aims_at="second"),
    free("wasserstein", "unrestricted", SINKHORN, "Wasserstein", SINKHORN_WORDS),
    *(in_ball("square", norm, "SquareAttack", None, SQUARE, SQUARE_WORDS) for norm in ("linf", "l2")),
    *(
        free("simba", "l2", {**SIMBA, "basis": basis}, "SimBA", {**SIMBA_WORDS, "attack": basis}, softmax=True)
        for basis in ("dct", "px")
    ),
    # Per round 2 x 128 numerical derivatives and a score; two at the end.
    free("zoo", "l2", ZOO, "ZooAttack", ZOO_WORDS, (3 * 257 + 2, 0), **LINEAR),
    # 400 candidates a generation and the first one; a check after each, and one at the end.
    Direct("one-pixel", "l0", 17, {"steps": 2}, "PixelAttack", PIXELS, (3 * 400 + 3, 0)),
    Direct("threshold", "linf", 0.1, {"steps": 1}, "ThresholdAttack", LEVELS, (2 * 384 + 2, 0), **LINEAR),
    free("boundary", "l2", BOUNDARY, "BoundaryAttack", BOUNDARY_WORDS, start="x_adv_init"),
    *(
        free("hopskipjump", norm, HSJ, "HopSkipJump", {**HSJ_WORDS, "norm": ORDERS[norm]}, start="x_adv_init")
        for norm in ("l2", "linf")
    ),
    free("sign-opt", "l2", SIGN_OPT, "SignOPTAttack", SIGN_OPT_WORDS),
    # Three shifts each way, two angles; a prediction of the clean image.
    free("spatial", "unrestricted", SPATIAL, "SpatialTransformation", SPATIAL_WORDS, (3 * 3 * 2 + 1, 0)),
)

# Rows whose class is a repair of ours, and those that cannot be called on the library as it is: test_repairs_art.py.
ELSEWHERE = {
    *((f"{row}@repaired", norm) for row in ("uap", "hopskipjump") for norm in ("linf", "l2")),
    *((f"{row}@repaired", "l2") for row in ("deepfool", "square")),
    ("cw@repaired", "linf"),
    ("spatial@repaired", "unrestricted"),
    *(("brendel-bethge", norm) for norm in ("linf", "l2", "l1", "l0")),
    *(("geoda", norm) for norm in RADII),
}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.row}-{case.norm}")


class Counted(nn.Module):
    """The plain module on float32 inputs, with every image that goes through it counted."""

    def __init__(self, module: nn.Module, softmax: bool):
        super().__init__()
        self.module, self.softmax = module, softmax
        self.queries = Counter()

    def forward(self, inputs: Tensor) -> Tensor:
        logits = self.module(inputs.float())
        self.queries["forwards"] += len(inputs)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self.queries.update(backwards=len(gradient)))
        return logits.softmax(1) if self.softmax else logits


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def call(case: Direct, model: nn.Module, inputs: Tensor, labels: Tensor, targeted: bool, **start: Any) -> Tensor:
    classes, shape = model.module(inputs).shape[1], tuple(inputs.shape[1:])
    estimator = PyTorchClassifier(
        model, nn.CrossEntropyLoss(), shape, classes, clip_values=(0.0, 1.0), device_type="cpu"
    )
    attack_class = getattr(evasion, case.library_class)
    words = dict(case.words)
    for word, value in (("verbose", False), ("targeted", targeted)):
        if word in inspect.signature(attack_class).parameters:
            words[word] = value
    attack = attack_class(estimator, **words)
    for inner in getattr(attack, "attacks", ()):
        inner.verbose = False
        if type(inner).__name__ == "AutoProjectedGradientDescent":
            inner.max_iter = case.inner_steps
    y = np.eye(classes)[labels.numpy()] if case.library_class == "SimBA" else labels.numpy()
    return torch.from_numpy(attack.generate(inputs.numpy().copy(), y, **start))


def call_directly(case: Direct, digits: Any, targets: Tensor | None = None) -> tuple[Tensor, list[Counter]]:
    """What ART returns and asks, in one call, or image by image where the row says so."""
    alone = IMPLEMENTATIONS[f"art:{case.row}"].alone
    images, queries = [], []
    for first in range(0, case.count, 1 if alone else case.count):
        part = slice(first, first + 1 if alone else case.count)
        inputs, labels, aims = digits.inputs[part], digits.labels[part], None if targets is None else targets[part]
        model, seed, start = Counted(digits.module, case.softmax), call_seed(SEED, first, 0), {}
        if case.start:
            counter = QueryCounter(digits.classifier, inputs, labels, ThreatModel(case.norm))
            counter.classifier.check(inputs)
            points, has_start = find_starting_points(counter, inputs, labels, aims, seed)
            model.queries["forwards"] += int(counter.forwards.sum())
            if not has_start.all():
                images.append(inputs)
                queries.append(model.queries)
                continue
            start[case.start] = points.numpy()
        if aims is None and case.aims_at:
            logits = model(inputs)
            aims = logits.argmin(1) if case.aims_at == "least-likely" else logits.topk(2).indices[:, 1]
        seed_everything(seed)
        examples = call(case, model, inputs, labels if aims is None else aims, aims is not None, **start)
        if case.library_class in ("PixelAttack", "ThresholdAttack"):
            examples = inputs.where((examples - inputs).abs() < 1e-6, examples)
        images.append(examples)
        queries.append(model.queries)
    return torch.cat(images), queries


def run(case: Direct, digits: Any, targets: Tensor | None = None) -> Any:
    threat_model, name = ThreatModel(case.norm, case.epsilon, targeted=targets is not None), f"art:{case.row}"
    return run_attack(
        name,
        digits.classifier,
        digits.inputs,
        digits.labels,
        threat_model,
        targets=targets,
        seed=SEED,
        **case.parameters,
    )


def first_of(request: Any, case: Direct) -> Any:
    data = request.getfixturevalue(case.data)
    return data._replace(inputs=data.inputs[: case.count], labels=data.labels[: case.count])


def test_every_row_and_norm_is_compared():
    rows = [row for row in IMPLEMENTATIONS.values() if row.library == "art"]
    ours = {(row.name.removeprefix("art:"), norm) for row in rows for norm in row.classes}
    assert {(case.row, case.norm) for case in CASES} | ELSEWHERE == ours


@every_case
def test_the_images_and_the_queries_are_those_of_the_library(request, case):
    digits = first_of(request, case)
    expected, queries = call_directly(case, digits)
    result = run(case, digits)
    assert torch.equal(result.adv_inputs, expected.clamp(0, 1))
    for kind in ("forwards", "backwards"):
        counted, asked = getattr(result, kind), [each[kind] for each in queries]
        assert counted.sum() == sum(asked)
        assert len(asked) == 1 or counted.tolist() == asked
    if case.queries is not None:
        assert result.forwards.tolist() == [case.queries[0]] * case.count
        assert result.backwards.tolist() == [case.queries[1]] * case.count


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if IMPLEMENTATIONS[f"art:{case.row}"].targeted != "no" and case.row != "wasserstein"],
    ids=lambda case: f"{case.row}-{case.norm}",
)
def test_targeted_images_are_those_of_the_library(request, case):
    digits = first_of(request, case)
    targets = digits.module(digits.inputs).topk(2).indices[:, 1]
    expected, _ = call_directly(case, digits, targets)
    result = run(case, digits, targets)
    assert torch.equal(result.adv_inputs, expected.clamp(0, 1))
    assert torch.equal(result.success, digits.module(result.adv_inputs).argmax(1) == targets)


@pytest.mark.parametrize("name", dict.fromkeys(f"art:{case.row}" for case in CASES))
def test_every_parameter_of_a_row_is_passed_by_some_case(name):
    row = IMPLEMENTATIONS[name]
    cases = [case for case in CASES if f"art:{case.row}" == name]
    passed = {word for case in cases for word in case.parameters} | {"starting_points"}
    assert set(row.params) <= passed
