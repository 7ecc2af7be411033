"""Measures every detector on a digits CNN, against attacks that do not know the detector and attacks that do.

    python -m davylamp.tools.detectors.seen_attacks [--quick] [--images 200]

Detectors that are trained on examples get PGD at radius 0.1 on the model's training images. They are evaluated on other
images. If a detector's score has gradients, it is also attacked together with the model (PGD towards the second most
likely class). The same attack on the model alone is the comparison. The results are the examples that fool the model
without being detected.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import resolve_implementation
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.detectors.detector_rows import ROWS
from davylamp.adapters.models.detectors.joint_classifier import add_detector
from davylamp.adapters.running.targets import choose_targets
from davylamp.benchmarks.shared.small_models import load_digits_data, load_small_model, load_training_inputs
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.detection.detect import DetectionSummary, detect_folder
from davylamp.engine.detection.train_detector import TrainingAttack, save_detector, train_detector
from davylamp.tools.challenge.known_defences import digits_labels

NAME, RADIUS, RATE = "standard", 0.1, 0.05
SHOWN = TrainingAttack("foolbox:pgd", ThreatModel("linf", RADIUS), {"steps": 20})
ATTACKS = (
    AttackChoice("foolbox:pgd", "linf", RADIUS, parameters={"steps": 20}),
    AttackChoice("foolbox:fgsm", "linf", RADIUS),
    AttackChoice("torchattacks:square", "linf", RADIUS, parameters={"steps": 500}),
    AttackChoice("foolbox:deepfool", "l2"),
    AttackChoice("foolbox:ddn", "l2", parameters={"steps": 50}),
)


def train_all(classifier: Classifier, data: Data, folder: Path) -> dict[str, Path]:
    """Train every detector, and return its file by name."""
    files = {}
    for row in ROWS:
        shown = SHOWN if row.learns_examples else None
        trained = train_detector(row.full_name, classifier, data, shown, model=NAME, seed=0)
        files[row.full_name] = save_detector(trained, folder / f"{row.name}.pt")
    return files


def main() -> None:
    """Measure all detectors and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="run two attacks on 20 images")
    parser.add_argument("--images", type=int, default=200, help="number of digits that were not used for training")
    options = parser.parse_args()
    classifier = load_small_model(NAME)
    data, inputs = load_digits_data(20 if options.quick else options.images), load_training_inputs()
    training = Data(inputs, digits_labels(), [f"digit_{place}" for place in range(len(inputs))])
    with tempfile.TemporaryDirectory() as name:
        files = train_all(classifier, training, Path(name))
        attacks = ATTACKS[:2] if options.quick else ATTACKS
        store = ResultsStore(Path(name) / "results")
        config = Config((NAME,), attacks, "digits", keep_images=True, measures=("effect",))
        evaluate(make_plan(config, models={NAME: classifier}, data=data), store)
        measured = detect_folder(store.folder, [*files.values()], rates=(RATE,), models={NAME: classifier}, data=data)
        _print_unknowing(measured)
        _print_knowing(classifier, data, files)


def _print_unknowing(measured: DetectionSummary) -> None:
    columns = ("detector", "attack", "fooled", "AUC", f"detected at {RATE:g}", "false alarms", "fooled, not detected")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in measured.rows:
        (at,) = row.rates
        shares = " | ".join(_text(share) for share in (at.detected, at.false_alarms, at.missed))
        area = f"{row.area.value:.3f} [{row.area.low:.3f}, {row.area.high:.3f}]"
        print(f"| {row.name} | {row.cell.title} | {row.fooled} of {row.clean} | {area} | {shares} |", flush=True)
    print()


def _print_knowing(classifier: Classifier, data: Data, files: dict[str, Path]) -> None:
    """Run a targeted attack on model and detector together, and on the model alone, and print both."""
    print("| detector | attack | attacked | fooled and not detected, unknowing | knowing |\n|---|---|---|---|---|")
    row, rules = resolve_implementation("foolbox:pgd"), ThreatModel("linf", RADIUS, targeted=True)
    targets = choose_targets(classifier.predict_logits(data.inputs), data.labels, "second-likely", 0)
    for detector in (each for each in ROWS if each.differentiable):
        joint = add_detector(classifier, f"detector:{files[detector.full_name]},fpr={RATE}", NAME, "joint")
        both: list[Any] = []
        for attacked in (classifier, joint):
            made = run_attack(row, attacked, data.inputs, data.labels, rules, targets=targets, seed=0, steps=100)
            answers = joint.predict_logits(made.adv_inputs).argmax(1)
            right = joint.predict_logits(data.inputs).argmax(1) == data.labels
            both.append(int(((answers == targets) & right).sum()))
        count = f"{both[0]} of {int(right.sum())} | {both[1]} of {int(right.sum())}"
        print(f"| {detector.full_name} | {row.name}, 100 steps, second-likely | {len(right)} | {count} |", flush=True)


def _text(share: Any) -> str:
    return f"{share.value:.2f} [{share.low:.2f}, {share.high:.2f}] ({share.count} of {share.n})"


if __name__ == "__main__":
    main()
