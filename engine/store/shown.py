"""Results of examples that were made on one model and tested on another. They are determined when a folder is read."""

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
    """Compute to what extent the examples of a run fool another model.

    Args:
        outcomes: results of the folder.
        made: the run that made the examples.
        tested: the tested model's clean predictions.
        shown: the tested model's predictions and logits on the examples. All logits are finite.

    Returns:
        MR of each image, (n,): 0 or 1. For a random model, it is the rate over samples. NaN if the clean image is
        misclassified. Also a phrase for the case in which the majority of a random model's samples is used instead of
        their rate. "" in all other cases.
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
    """Compute to what extent a model is robust to the examples of another model.

    If the attack has no example within the radius, the clean image counts as its example.

    Args:
        outcomes: results of the folder, read with "OTR".
        made: the run that made the examples.
        tested: key of the tested model and its data.

    Returns:
        The robustness of each image, (n,): 0 or 1, or the rate over samples of a random model. In the first array,
        invalid results count as 0, in the second as 1.
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
    """Return whether the tested model misclassifies each valid example of an untargeted run.

    Args:
        outcomes: results of the folder, read with "OTR".
        made: the run that made the examples.
        tested: key of the tested model and its data.

    Returns:
        Whether each example is misclassified, (n,) bool. None if the examples were not tested on the model.
    """
    predicted = (outcomes.transfers or {}).get(made.cell.key, {}).get(tested)
    if predicted is None or made.cell.threat_model.targeted:
        return None
    return (predicted != made.columns["label"]) & ~np.isnan(predicted) & made.results.proven


def change_when_shown(made: RunResult, clean: CleanResult, record: Record) -> dict[str, np.ndarray]:
    """Compute AIAC and ARTC of each example of a run on another model.

    Args:
        made: the run that made the examples.
        clean: clean predictions of the tested model.
        record: transfer record of the tested model on the examples.

    Returns:
        The values by symbol, (n,). NaN if the example does not count.
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
