"""Results of examples that were made on one model and tested on a different one, determined when a folder is read."""

import numpy as np
import torch

from ...metrics import METRICS
from .checksummed import Record
from .image_results import DETECTED
from .results import CleanResult, Results, RunResult
from .transfers import Transferred

_UNKNOWN = "on examples of the undefended model: records of an earlier version lack the rate of samples"
_DETECTOR = "on examples of the undefended model: it has a detector"


def rate_when_shown(
    outcomes: Results, made: RunResult, tested: CleanResult, shown: Transferred
) -> tuple[np.ndarray, str]:
    """Compute to what extent the examples of a run fool a different model.

    Args:
        outcomes: results of the folder.
        made: the run that made the examples.
        tested: the tested model's clean predictions.
        shown: the tested model's logits on the examples, all finite.

    Returns:
        MR of each image, (n,): 0 or 1, or the rate over samples of a random model; NaN if the image is misclassified
        when clean. Also a phrase for the condition under which the majority of the samples is used instead of their
        rate; "" if it is not used.
    """
    labels = torch.tensor(tested.columns["label"])
    fooled = METRICS["MR"].function(tested.logits, shown.logits, labels, reduction="none").double().numpy()
    where = made.results.by_majority
    if not where and shown.share is not None:
        fooled = np.where(np.isnan(fooled), np.nan, shown.share)
    elif not where and outcomes.is_random(tested.subject):
        where = _UNKNOWN if shown.detected is None else _DETECTOR
    if shown.detected is not None:
        fooled = np.where(shown.detected & ~np.isnan(fooled), 0.0, fooled)
    return fooled, where


def robust_when_shown(outcomes: Results, made: RunResult, tested: str) -> tuple[np.ndarray, np.ndarray]:
    """Compute how robust a model is to a different model's examples, (n,): 0 or 1, or the rate over its samples.

    If the attack has no example within the radius, the clean image counts.

    Args:
        outcomes: results of the folder, read with "OTR".
        made: the run that made the examples.
        tested: key of the tested model and its data.

    Returns:
        The values with invalid results counted as 0, and the values with invalid results counted as 1.
    """
    clean = outcomes.clean[tested].columns
    predicted = (outcomes.transfers or {})[made.cell.key][tested]
    wrong = outcomes.shown_shares.get(made.cell.key, {}).get(tested)
    if wrong is None:
        answers, right = predicted == made.columns["label"], clean["predicted"] == clean["label"]
    else:
        answers, right = 1 - wrong, clean["CA"]
    shown = made.usable | ~made.results.attacked
    robust = np.where(shown, np.where(np.isnan(predicted), 0.0, answers), right).astype(float)
    unknown = made.results.invalid  # no example was tested
    return np.where(unknown, 0.0, robust), np.where(unknown, 1.0, robust)


def fooled_when_shown(outcomes: Results, made: RunResult, tested: str) -> np.ndarray | None:
    """Return whether the tested model misclassifies each valid example of an untargeted run, (n,) bool.

    None if the examples were not tested on the model.

    Args:
        outcomes: results of the folder, read with "OTR".
        made: the run that made the examples.
        tested: key of the tested model and its data.
    """
    predicted = (outcomes.transfers or {}).get(made.cell.key, {}).get(tested)
    if predicted is None or made.cell.threat_model.targeted:
        return None
    return (predicted != made.columns["label"]) & ~np.isnan(predicted) & made.results.proven


def change_when_shown(made: RunResult, clean: CleanResult, record: Record) -> dict[str, np.ndarray]:
    """Compute AIAC and ARTC of each example of a run on a different model, (n,); NaN if the example does not count.

    Args:
        made: the run that made the examples.
        clean: clean predictions of the tested model.
        record: transfer record of the tested model on the examples.
    """
    if "adv_probability" not in record.table.column_names or not clean.has_confidences:
        nothing = np.full(len(clean.columns["label"]), np.nan)  # it returns labels only
        return {"AIAC": nothing, "ARTC": nothing}
    before = clean.logits.double().softmax(1).numpy()
    labels, images = clean.columns["label"], np.arange(len(before))
    predicted = record.table["adv_predicted"].to_numpy().astype(float)
    silent = np.isnan(predicted)
    adversarial = np.where(silent, 0, predicted).astype(int)
    after, left = (record.table[name].to_numpy() for name in ("adv_probability", "label_probability"))
    counts = made.usable & (clean.columns["predicted"] == labels) & ~silent
    if DETECTED in record.table.column_names:  # detected: no class of the data
        counts = counts & ~record.table[DETECTED].to_numpy()
    return {
        "AIAC": np.where(counts, after - before[images, adversarial], np.nan),
        "ARTC": np.where(counts, before[images, labels] - left, np.nan),
    }
