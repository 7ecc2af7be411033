"""Tests the verdict of `davylamp challenge` on known defences, broken ones and others.

    python -m davylamp.tools.challenge.known_defences [--quick] [--images 40] [--out FOLDER] [--only NAME,...]

Broken defences: bit depth (He et al. 2017), JPEG (Shin and Song 2017; Athalye et al. 2018), random resizing and padding
(Athalye et al. 2018), defensive distillation (Carlini and Wagner 2017). Defences that hold, as far as known:
adversarial training with PGD and with TRADES, at the radius of the training.

The models are digits CNNs at radii 0.1 and 0.2 (only 0.1 for the two defences that hold), EfficientNet-Lite0 at 1/255
on 10 photos, and Advertorch's LeNets at 0.3 on Foolbox's 20 digits, of which one was trained at that radius.
EfficientNet-Lite0 gets little effort, because a pass takes a tenth of a second. Random resizing gets more effort,
because little effort does not break it.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from davylamp.adapters import Classifier, defend
from davylamp.adapters.data.datasets import Data
from davylamp.benchmarks.shared.small_models import (
    TRAINED_ON,
    load_digits_data,
    load_small_model,
    load_training_inputs,
)
from davylamp.engine.challenge.challenge import challenge
from davylamp.engine.challenge.challenge_result import ChallengeResult, document_of, keep_document
from davylamp.engine.challenge.challenger import ChallengedModel, ChallengeRunner
from davylamp.engine.challenge.gradient_variants import gradient_variants, split_original
from davylamp.engine.challenge.suite import ChallengeBudget
from davylamp.engine.training.harden import harden
from davylamp.engine.training.methods import make_settings

STANDARD, PHOTOS, LENET = "standard", "demo:efficientnet-lite0", "demo:mnist-lenet5"
BROKEN = ("bit-depth:bits=3", "pillow:jpeg:quality=50", "resize-pad")
EFFORT = ChallengeBudget(steps=20, candidates=3, queries=100, eot=10)
LITTLE = ChallengeBudget(steps=8, candidates=2, queries=40, eot=4, judge_samples=10)
ENOUGH = ChallengeBudget(steps=30, candidates=2, queries=40, eot=6, judge_samples=20)  # for random resizing of photos
TINY = ChallengeBudget(steps=4, candidates=2, queries=10, eot=2, judge_samples=5)


class KnownDefence(NamedTuple):
    """A defended model, the setting of its challenge, whether it is known to fall there, and its own effort, if any."""

    model: str
    epsilon: float
    falls: bool
    effort: ChallengeBudget | None = None


CASES = (
    *(KnownDefence(f"{STANDARD}+{defence}", epsilon, True) for defence in BROKEN for epsilon in (0.1, 0.2)),
    KnownDefence("distilled", 0.1, True),
    KnownDefence("distilled", 0.2, True),
    KnownDefence("pgd-training", 0.1, False),
    KnownDefence("trades", 0.1, False),
    *(KnownDefence(f"{PHOTOS}+{defence}", 1 / 255, True, LITTLE) for defence in BROKEN[:2]),
    KnownDefence(f"{PHOTOS}+{BROKEN[2]}", 1 / 255, True, ENOUGH),
    KnownDefence(f"{LENET}+bit-depth:bits=2", 0.3, True),
    KnownDefence(f"{LENET}-robust", 0.3, False),
)


def challenge_digits(case: KnownDefence, images: int, effort: ChallengeBudget, folder: Path) -> ChallengeResult:
    """Challenge a digits CNN, with the defences in its name in front of it."""
    models = {STANDARD: load_small_model(STANDARD)}
    stand_ins: Mapping[str, str] = {}
    if case.model == "distilled":
        model = distilled()
    elif "+" in case.model:
        stand_ins = gradient_variants(case.model)
        model = defended(models[STANDARD], case.model)
        models |= {name: defended(models[STANDARD], name) for name in stand_ins}
    else:
        model = load_small_model(case.model)
    defendant = ChallengedModel(case.model, model, STANDARD, stand_ins, models)
    rules: dict[str, Any] = {"norm": "linf", "epsilon": case.epsilon, "effort": effort, "say": None}
    done = ChallengeRunner(defendant, load_digits_data(images), "digits", folder, **rules).run()
    keep_document(folder, document_of(done))
    return done


def challenge_embedded(case: KnownDefence, photos: int, effort: ChallengeBudget, folder: Path) -> ChallengeResult:
    """Challenge an embedded model by its name. `effort` is used if the case has no effort of its own."""
    digits = case.model.startswith(LENET)
    data, limit = ("demo:mnist", None) if digits else ("demo:imagenet", photos)
    effort = case.effort or effort
    settings = {name: getattr(effort, name) for name in ("steps", "candidates", "queries", "eot", "judge_samples")}
    original = LENET if digits else PHOTOS
    return challenge(
        case.model, data, original=original, out=folder, epsilon=case.epsilon, limit=limit, effort=settings
    )


def defended(classifier: Classifier, name: str) -> Classifier:
    """Return a classifier with the named defences in front of it."""
    for part in split_original(name)[1]:
        classifier = defend(classifier, part)
    classifier.name = name
    return classifier


def distilled() -> Classifier:
    """Return the digits CNN distilled at temperature 100 (Papernot et al. 2016)."""
    inputs, scored = load_training_inputs(), load_digits_data()
    labels = digits_labels()
    numbers = {"epochs": 8, "batch_size": 100, "learning_rate": 3e-3, "optimiser": "adam", "schedule": "constant"}
    settings = make_settings("distillation", "linf", 0.1, {**numbers, "weight_decay": 0.0, "temperature": 100.0})
    training = Data(inputs, labels, [f"digit_{place}" for place in range(len(labels))])
    return harden(load_small_model(STANDARD), training, scored, settings).classifier


def digits_labels() -> Any:
    """Return the labels of the training images."""
    import torch
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    return torch.tensor(digits.target)[:TRAINED_ON]


def print_line(case: KnownDefence, done: ChallengeResult, seconds: float) -> None:
    """Print a row of the table."""
    undefended = "-" if done.undefended is None else f"{done.undefended.value:.3f}"
    within = "" if done.undefended is None else f"{100 * (done.worst.value - done.undefended.value):+.1f}"
    last, share = done.radii[-1]
    print(
        f"| {case.model} | {case.epsilon:.4g} | {done.worst.n} | {done.clean.value:.3f} | {done.worst.value:.3f} "
        f"[{done.worst.low:.2f}, {done.worst.high:.2f}] | {undefended} | {within} | {share.value:.3f} at {last:.3g} | "
        f"{done.verdict} | {'falls' if case.falls else 'stands'} | {'; '.join(done.ruling.masking) or '-'} | "
        f"{seconds:.0f} |",
        flush=True,
    )


def main() -> None:
    """Print a table with a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="run four models on 6 images with minimal effort")
    parser.add_argument("--images", type=int, default=40, help="number of digits for each case")
    parser.add_argument("--photos", type=int, default=10, help="number of photos for each case")
    parser.add_argument("--out", type=Path, default=Path("challenge-benchmark"), help="folder for the results folders")
    parser.add_argument("--only", default="", help="run only models whose names contain one of these")
    options = parser.parse_args()
    wanted = options.only.split(",")
    cases = [case for case in CASES if any(word in case.model for word in wanted)]
    if options.quick:
        cases = [CASES[0], CASES[6], CASES[8], CASES[-1]]
    names = ("model", "radius", "n", "clean", "worst case", "undefended", "points above", "largest radius", "verdict")
    print(f"| {' | '.join((*names, 'known to', 'masking', 'seconds'))} |\n|{'---|' * 12}")
    for place, case in enumerate(cases):
        start = time.perf_counter()
        folder = options.out / f"{place}"
        if case.model.startswith("demo:"):
            done = challenge_embedded(case, options.photos, TINY if options.quick else EFFORT, folder)
        else:
            images = 6 if options.quick else options.images
            done = challenge_digits(case, images, TINY if options.quick else EFFORT, folder)
        print_line(case, done, time.perf_counter() - start)
        print(f"{case.model}: {done.ruling.sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
