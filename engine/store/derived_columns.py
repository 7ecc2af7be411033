"""Columns that are computed when a folder is read: FR@K for any K, QI_Wup@T, NTE@all, OTR, users' metrics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...adapters.paths import is_file_name
from ...adapters.running.judge import RULES
from ...metrics import (
    METRICS,
    confusion_within,
    demotion_rank,
    fooling_rate_at_k,
    imagenet_wup,
    reached_classes,
    semantic_confusion,
    targeted_semantic_confusion,
)
from ..hierarchy import similarity_of_file
from ..measure_groups import find_group
from ..metric_names import base_symbol, is_parametrised, metric_parameter, needs_confidences
from ..user_metrics import find_metric, of_record, sealed_name
from .transfers import Predictions, mean_rate, transfer_rates

if TYPE_CHECKING:
    from .results import RunResult

_RATE = "FR@"
STORED_RATE = "FR@K"  # name in records, for one K
STORED_K = METRICS[STORED_RATE].usual
_SEMANTIC = ("QI_Wup", "QI_Wup_T")
_OF_ANSWERS = ("NTE", "ACTC")  # their readings follow from logits on adversarial images
_OF_LABELS = ("RANK", "RANK_max", "CLASSES", "WITHIN")
_IMAGENET = 1000  # classes


def is_rate(symbol: str) -> bool:
    """Whether a symbol is the fooling rate at some K, such as "FR@10"."""
    count = symbol[len(_RATE) :]
    return symbol.startswith(_RATE) and count.isascii() and count.isdecimal() and int(count) > 0


def needs_logits(symbol: str) -> bool:
    """Whether the column of a metric can be computed only from the logits of every run."""
    is_stored = symbol == _RATE + str(STORED_K)  # in all runs except old ones
    derived = base_symbol(symbol) in (*_SEMANTIC, *_OF_LABELS) or (
        base_symbol(symbol) in _OF_ANSWERS and is_parametrised(symbol)
    )
    return (is_rate(symbol) and not is_stored) or is_file_name(symbol) or derived


def lacks_rate(outcome: "RunResult", symbol: str) -> bool:
    """Whether a metric is FR@K for a K that the run does not store.

    Values of FR@K that older versions stored are ignored, because they include images with non-finite logits.
    """
    is_stored = symbol == _RATE + str(STORED_K) and STORED_RATE in outcome.columns and outcome.cell.rules >= RULES
    return is_rate(symbol) and not is_stored


def derive_columns(
    outcome: "RunResult", logits: Tensor | None, symbols: Sequence[str], tested: Predictions | None
) -> dict[str, np.ndarray]:
    """Compute the columns of metrics that a record does not store, but that follow from the record.

    Args:
        outcome: the run, with its logits on adversarial images if a metric needs them.
        logits: the model's logits on the clean images, (n, K). None if unknown.
        symbols: symbols of metrics. Those that do not follow from the record are ignored.
        tested: predictions of other models on the run's examples. None if not requested.

    Returns:
        Columns by symbol, shape (n,).
    """
    further: dict[str, np.ndarray] = {}
    for name in symbols:
        if is_rate(name):
            missing = lacks_rate(outcome, name)
            further[name] = _fooling_rate(outcome, logits, name) if missing else outcome.columns[STORED_RATE]
        elif is_file_name(name):
            further[name] = _users_metric(outcome, logits, name)
        elif base_symbol(name) in _SEMANTIC and name not in outcome.columns:
            values = _semantic_column(outcome, logits, name)
            further |= {} if values is None else {name: values}
        elif base_symbol(name) in _OF_LABELS and name not in outcome.columns:
            further[name] = _labels_column(outcome, logits, name)
        elif base_symbol(name) in _OF_ANSWERS and is_parametrised(name) and name not in outcome.columns:
            further[name] = _reading_column(outcome, name)
    if tested is not None:
        further["OTR"] = mean_rate([*transfer_rates(outcome.columns, outcome.usable, tested).values()])
    return further


def _fooling_rate(outcome: "RunResult", logits: Tensor | None, symbol: str) -> np.ndarray:
    """Compute FR@K of each image, (n,). NaN for unusable images, and if the clean logits are unknown."""
    unknown = needs_confidences(symbol) and not outcome.has_confidences
    if unknown or logits is None or outcome.adv_logits is None:
        return np.full(len(outcome.columns["label"]), np.nan)
    rates = fooling_rate_at_k(logits, _answers(outcome), int(symbol.removeprefix(_RATE)), reduction="none")
    return _over_usable(outcome, rates.numpy())


def _semantic_column(outcome: "RunResult", logits: Tensor | None, symbol: str) -> np.ndarray | None:
    """Compute QI_Wup@T or QI_Wup_T@T, (n,), with the hierarchy of the run or with WordNet.

    None if the run has no hierarchy and its classes are not ImageNet's.
    """
    if outcome.adv_logits is None or logits is None or not is_parametrised(symbol):
        return None
    answers, options = _answers(outcome), metric_parameter(symbol)
    group = find_group(outcome.cell.measured, "confusion")
    if "similarity" in options:
        if answers.shape[1] != _IMAGENET:
            return None
        similarity = options.pop("similarity")
    elif group is not None and group["hierarchy"]:
        similarity = similarity_of_file(group["hierarchy"], answers.shape[1])
    elif answers.shape[1] == _IMAGENET:
        similarity = imagenet_wup()
    else:
        return None
    if base_symbol(symbol) == "QI_Wup":
        values = semantic_confusion(logits, answers, similarity, **options, reduction="none")
        return _over_usable(outcome, values.numpy())
    targets = outcome.columns["target"].astype(float)
    known = ~np.isnan(targets)
    aims = torch.tensor(np.where(known, targets, 0)).long()
    values = targeted_semantic_confusion(aims, answers, similarity, **options, reduction="none")
    return np.where(known, _over_usable(outcome, values.numpy()), np.nan)


def _reading_column(outcome: "RunResult", symbol: str) -> np.ndarray:
    """Compute a metric with the parameter in its symbol, such as "AMD@2", from logits on adversarial images, (n,).

    All values are NaN if the model returns no confidences.
    """
    if outcome.adv_logits is None or not outcome.has_confidences:
        return np.full(len(outcome.columns["label"]), np.nan)
    labels, function = torch.tensor(outcome.columns["label"]), METRICS[base_symbol(symbol)].function
    values = function(_answers(outcome), labels, **metric_parameter(symbol), reduction="none")
    return _over_usable(outcome, values.double().numpy())


def _labels_column(outcome: "RunResult", logits: Tensor | None, symbol: str) -> np.ndarray:
    """Compute a metric of the rank of the class that was predicted on the clean image, (n,).

    A metric that is one number for a set of images has this value for each image.
    """
    nothing = np.full(len(outcome.columns["label"]), np.nan)
    base = base_symbol(symbol)
    if outcome.adv_logits is None or logits is None or (needs_confidences(base) and not outcome.has_confidences):
        return nothing
    answers = _answers(outcome)
    counting = ~np.isnan(_over_usable(outcome, np.ones(len(nothing))))
    if base == "CLASSES":
        return np.where(counting, float(reached_classes(answers[torch.tensor(counting)].double())), np.nan)
    if base != "WITHIN":
        return np.where(counting, demotion_rank(logits, answers, reduction="none").numpy(), np.nan)
    options = metric_parameter(symbol) if is_parametrised(symbol) else {}
    if max(options.get("classes", (0,))) >= answers.shape[1]:
        return nothing
    return np.where(counting, confusion_within(logits, answers, **options, reduction="none").numpy(), np.nan)


def _users_metric(outcome: "RunResult", logits: Tensor | None, name: str) -> np.ndarray:
    """Compute a user's metric with its current code, (n,).

    All values are NaN if the metric can be computed only during an evaluation, and the evaluation did not compute it.
    """
    metric, missing = find_metric(name), np.full(len(outcome.columns["label"]), np.nan)
    if not outcome.has_confidences and {"logits", "adv_logits"} & {*metric.needs}:
        return missing
    if metric.of_records and outcome.adv_logits is not None:
        return of_record(metric, outcome.columns, outcome.usable, logits, outcome.adv_logits)
    return outcome.columns.get(name, missing) if sealed_name(name) in outcome.cell.measured else missing


def _answers(outcome: "RunResult") -> Tensor:
    """Return the logits on adversarial images, (n, K). Non-finite logits are replaced by zeros."""
    assert outcome.adv_logits is not None
    silent = outcome.non_finite
    return outcome.adv_logits.masked_fill(torch.tensor(silent)[:, None], 0.0) if silent.any() else outcome.adv_logits


def _over_usable(outcome: "RunResult", values: np.ndarray) -> np.ndarray:
    """Set the values of some images to NaN: unusable images, and images without a predicted class.

    Args:
        outcome: the run.
        values: value of each image, (n,).
    """
    results = outcome.results
    return results.leave_detected(np.where(results.usable & ~outcome.non_finite, values, np.nan))
