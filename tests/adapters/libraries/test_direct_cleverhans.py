"""Every CleverHans row against the same call made on the library itself: the same images, the same queries."""

import math
from typing import Any

import torch
from cleverhans.torch.attacks.sparse_l1_descent import sparse_l1_descent
from torch import Tensor

from davylamp.adapters import ThreatModel
from davylamp.adapters.libraries.cleverhans import functions
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.running.library_call import Images
from davylamp.adapters.running.queries import QueryCounter
from davylamp.adapters.running.starting_points import find_starting_points

from .direct import Counted, Direct, DirectCalls

NORMS = {"linf": math.inf, "l2": 2, "l1": 1}
RADII = {"linf": 0.1, "l2": 1.5, "l1": 20.0}
CW = {"binary_search_steps": 3, "initial_const": 5.0, "confidence": 0.5}
SEARCH = {"steps": 2, "initial_evaluations": 20, "max_evaluations": 25}
SEARCH_WORDS = {"num_iterations": 2, "initial_num_evals": 20, "max_num_evals": 25, "verbose": False}


def within(row: str, norm: str, function: str, queries: Any, ours: Any = (), theirs: Any = ()) -> Direct:
    """In the ball of the norm's usual radius."""
    words = {"eps": RADII[norm], "norm": NORMS[norm], "clip_min": 0.0, "clip_max": 1.0, **dict(theirs)}
    return Direct(row, norm, RADII[norm], dict(ours), function, words, queries)


def steps(row: str, norm: str, ours: Any = (), theirs: Any = ()) -> Direct:
    """Three steps of 0.4 radii."""
    ours = {"steps": 3, "step_size": 0.4 * RADII[norm], **dict(ours)}
    theirs = {"nb_iter": 3, "eps_iter": 0.4 * RADII[norm], **dict(theirs)}
    return within(row, norm, "projected_gradient_descent", (3, 3), ours, theirs)


def spsa(norm: str) -> Direct:
    """A step asks about 9 points and their mirror images, and about where it ends."""
    ours = {"steps": 2, "samples": 9, "finite_difference": 0.02, "learning_rate": 0.03}
    theirs = {"nb_iter": 2, "spsa_samples": 9, "delta": 0.02, "learning_rate": 0.03, "sanity_checks": False}
    return within("spsa", norm, "spsa", (2 * 19, 0), ours, theirs)


STILL, THEIRS_STILL = {"random_start": False}, {"rand_init": False}
SPARSE = {"steps": 3, "step_size": 8.0, "quantile": 0.9}
SPARSE_WORDS = {"eps": 20.0, "nb_iter": 3, "eps_iter": 8.0, "grad_sparsity": 90.0, "clip_min": 0.0, "clip_max": 1.0}

CASES = (
    within("fgsm", "linf", "fast_gradient_method", (1, 1)),
    *(within("fgm", norm, "fast_gradient_method", (1, 1)) for norm in ("l2", "l1")),
    steps("bim", "linf", theirs=THEIRS_STILL),
    *(steps("pgd", norm, {"random_start": True}) for norm in ("linf", "l2")),
    *(steps("pgd", norm, STILL, THEIRS_STILL) for norm in ("linf", "l2")),
    Direct("sparse-l1-descent", "l1", 20.0, SPARSE, sparse_l1_descent, SPARSE_WORDS, (3, 3)),
    Direct(
        "cw",
        "l2",
        None,
        {"steps": 4, "learning_rate": 0.05, **CW},
        "carlini_wagner_l2",
        {"n_classes": 10, "max_iterations": 4, "lr": 0.05, **CW},
        (12, 12),
    ),
    *(spsa(norm) for norm in ("linf", "l2")),
    *(
        Direct("hopskipjump", norm, None, SEARCH, "hop_skip_jump_attack", {**SEARCH_WORDS, "norm": NORMS[norm]})
        for norm in ("l2", "linf")
    ),
    Direct("uniform-noise", "linf", 0.3, {}, "noise", {"eps": 0.3, "clip_min": 0.0, "clip_max": 1.0}, (0, 0)),
)

# Rows that are repaired, or cannot be called on the library as it is: test_cleverhans.py.
ELSEWHERE = {
    *(("fgm@fixed", norm) for norm in ("l2", "l1")),
    *(("spsa@fixed", norm) for norm in ("linf", "l2")),
    ("pgd@fixed", "l2"),
    ("inversion", "unrestricted"),
}


class TestDirect(DirectCalls):
    library, cases, elsewhere = "cleverhans", CASES, frozenset(ELSEWHERE)

    def aim(self, data: Any) -> Tensor:
        """The class of the image before: a class that a starting point is known of."""
        return data.labels.roll(1)

    def pick(self, case: Direct, data: Any) -> Any:
        """Three images of three classes."""
        rows = torch.tensor([0, 1, 4])
        return data._replace(inputs=data.inputs[rows], labels=data.labels[rows])

    def call(self, case: Direct, model: Counted, images: Images, seed: int) -> Tensor:
        inputs, labels, targets = images
        attack: Any = case.theirs if callable(case.theirs) else getattr(functions, case.theirs)
        if case.theirs == "noise":
            return attack(inputs, **case.words)
        if case.theirs != "hop_skip_jump_attack":
            goal = labels if targets is None else targets
            return attack(model, inputs, y=goal, targeted=targets is not None, **case.words)
        counter = QueryCounter(Classifier(model.module), inputs, labels, ThreatModel(case.norm), targets=targets)
        counter.classifier.check(inputs)
        points, has_start = find_starting_points(counter, *images, seed)
        assert has_start.all()
        model.queries["forwards"] += int(counter.forwards.sum())
        # A batch of one starting point for the one image; 1 as a tensor, as linf needs it.
        words = {**case.words, "constraint": NORMS[case.norm], "gamma": torch.tensor(1.0)}
        return attack(model, inputs, y_target=targets, image_target=points[:, None], **words)
