"""Computes the columns of a record for each image: outcome, distances, queries and metrics."""

import math
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pyarrow as pa
import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier
from ...adapters.models.sandbox.isolated import call_where_layers_are
from ...adapters.paths import is_file_name
from ...adapters.result import SURROGATE_PASSES
from ...adapters.running.judge import perturbation_distances, projection_of, quantise
from ...adapters.running.requirements import has_gradients
from ...adapters.running.seeding import seeded
from ...adapters.torch_state import full_float32
from ...errors import DavylampError, ModelFailed, Unsupported
from ...metrics import METRICS, PLAIN, grad_cam, imagenet_wup
from ...metrics.registry import Metric
from ..cell_defaults import ALL_MEASURES
from ..hierarchy import similarity_of_file
from ..measure_groups import find_group, group_names, is_group
from ..metric_names import NO_CONFIDENCES, base_symbol, is_parametrised, metric_parameter, needs_confidences
from ..searches.portfolio import PortfolioResult
from ..searches.radius_search import RadiusSearchResult
from ..searches.worst_case import WorstCaseResult
from ..store.columns import (
    EXAMPLES,
    column_of_logits,
    column_of_maps,
    column_of_pictures,
    column_of_values,
    columns_of_curves,
)
from ..store.image_results import DETECTED, LEFT_OUT, NOT_MISCLASSIFIED, is_left_out
from ..user_metrics import UserMetric, find_metric, plain_name, sealed_name

__all__ = [
    "EXAMPLES",
    "Memory",
    "RecordedOutputs",
    "clean_table",
    "label_activation_maps",
    "measured_symbols",
    "metric_columns",
    "minimal_distance",
    "needs_images",
    "needs_model",
    "result_table",
]

Memory = MutableMapping[Any, Any]
_CAMS = ("predicted_cams", "predicted_adv_cams", "true_cams", "true_adv_cams")
_LACKING = "this model, its data or the attack lacks something that the metric needs"


def measured_symbols(measures: Sequence[str]) -> list[str]:
    """Return the symbols of the metrics that have a column in records with these groups, in the order of `METRICS`."""
    known = {"inputs", "adv_inputs", "success", "logits", "adv_logits", "labels", "targets", "forwards", "backwards"}
    known |= {*_CAMS, "similarity", "weight"}
    return [
        symbol
        for symbol, metric in METRICS.items()
        if metric.group in measures and metric.of_images and known.issuperset(metric.arguments)
    ]


@full_float32()
def clean_table(
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    names: Sequence[str],
    logits: Tensor,
    drawn: Tensor | None = None,
) -> pa.Table:
    """Build the record of clean images.

    It has predictions, logits, activation maps of the labels, and pictures of the first images.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W).
        labels: true classes, shape (N,).
        names: names of the images.
        logits: logits of the images, shape (N, K), as from `Classifier.check`.
        drawn: for a random model, the rate of wrong samples for each image, shape (N,). The clean accuracy is 1 minus
            this rate. None for other models.
    """
    cams = label_activation_maps(classifier, inputs[:EXAMPLES], labels[:EXAMPLES])
    right = (logits.argmax(1) == labels).double() if drawn is None else 1 - drawn
    columns = {
        "index": pa.array(range(len(labels))),
        "image": pa.array(list(names)),
        "label": column_of_values(labels),
        "predicted": column_of_values(logits.argmax(1)),
        "CA": column_of_values(right),
        "CC": column_of_values(_confidence_in(classifier, logits, labels)),
        "logits": column_of_logits(logits),
        "cam": column_of_maps(cams, range(len(labels))),
        "picture": column_of_pictures(inputs, range(len(labels))),
    }
    return pa.table(columns)


def _confidence_in(classifier: Classifier, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the probability of each label, shape (N,), float64. NaN if the model returns labels only."""
    confidence = logits.softmax(1).gather(1, labels[:, None])[:, 0].double()
    return torch.full_like(confidence, math.nan) if classifier.outputs == "labels" else confidence


@full_float32()
def result_table(
    result: AttackResult,
    classifier: Classifier,
    inputs: Tensor,
    names: Sequence[str],
    *,
    first: int,
    measures: Sequence[str],
    memory: Memory | None = None,
) -> tuple[pa.Table, dict[str, str]]:
    """Build the table of a result, with a row for each image.

    Args:
        result: result of the attack.
        classifier: the attacked model.
        inputs: clean images, shape (N, C, H, W).
        names: names of the images.
        first: index of the first image in the data.
        measures: groups of metrics to compute.
        memory: see `metric_columns`.

    Returns:
        The table, and the reasons why some metrics have no column.
    """
    count = len(result.labels)
    columns: dict[str, pa.Array] = {
        "index": pa.array(range(first, first + count)),
        "image": pa.array(list(names)),
        "label": column_of_values(result.labels),
        "target": pa.nulls(count, pa.int64()) if result.targets is None else column_of_values(result.targets),
        "attacked": column_of_values(result.attacked),
        "success": column_of_values(result.success),
        "success_8bit": column_of_values(result.success_8bit),
        "violated": column_of_values(result.invalid),
        "usable": column_of_values(result.usable),
        "robust": column_of_values(result.robust),
        "violations": pa.array([" ".join(kinds) for kinds in result.violations]),
        "predicted": column_of_values(result.logits.argmax(1)),
        "adv_predicted": column_of_values(result.adv_logits.argmax(1)),
        "projection": column_of_values(projection_of(result.adv_inputs)),
        "forwards": column_of_values(result.forwards),
        "backwards": column_of_values(result.backwards),
        "seconds": column_of_values(result.seconds),
        "distance": column_of_values(minimal_distance(result)),
        "R8": column_of_values(result.success_8bit.double().where(result.success, math.nan)),
    }
    for name in SURROGATE_PASSES:
        if result.surrogate:
            columns[name] = column_of_values(getattr(result, name))
    columns |= _columns_of_model(result, classifier)
    if result.budget is not None:  # radius searches
        columns["budget"] = column_of_values(result.budget)
    if isinstance(result, RadiusSearchResult | PortfolioResult):
        columns["searched"] = column_of_values(result.searched)
    if result.curves is not None:
        columns |= columns_of_curves(result.curves)
    if isinstance(result, PortfolioResult):
        columns["winner"] = column_of_values(result.winner)  # index of the attack in the name, -1 if not fooled
    if isinstance(result, WorstCaseResult):
        columns["winner"] = column_of_values(result.winner)  # likewise
        columns["tried"] = column_of_values(result.tried)  # number of attacks that ran on the image
    on_grid = perturbation_distances(inputs, quantise(result.adv_inputs))
    for name in result.distances._fields:
        columns[name] = column_of_values(getattr(result.distances, name))
        columns[f"{name}_8bit"] = column_of_values(getattr(on_grid, name))
    how: dict[str, Any] = {"first": first, "measures": measures, "memory": memory}
    measured, maps, unmeasured = metric_columns(result, classifier, inputs, **how)
    columns |= measured
    columns["adv_logits"] = column_of_logits(result.adv_logits)
    columns["adv_cam"] = maps
    columns["adv_picture"] = column_of_pictures(result.adv_inputs, range(first, first + count))
    return pa.table(columns), unmeasured


class RecordedOutputs(NamedTuple):
    """Facts about a model from the record of a run. They replace the model for metrics that do not query it."""

    outputs: str | None
    detects: bool
    random: bool = False


@full_float32()
def metric_columns(
    result: AttackResult,
    classifier: Classifier | RecordedOutputs,
    inputs: Tensor,
    *,
    first: int,
    measures: Sequence[str],
    memory: Memory | None = None,
) -> tuple[dict[str, pa.Array], pa.Array, dict[str, str]]:
    """Compute the metrics of a result.

    Args:
        result: result of the attack.
        classifier: the attacked model. If `needs_model` is False, its recorded outputs suffice.
        inputs: clean images, shape (N, C, H, W).
        first: index of the first image in the data.
        measures: groups of metrics to compute.
        memory: cache of values of these clean images, which are the same for all attacks. None for no cache.

    Returns:
        A column for each metric, a column of activation maps, and the reasons why some metrics have no value.
    """
    usable, adv_cams = result.usable, dict[str, Tensor]()
    with same_draws(classifier):
        if "attention" in group_names(tuple(measures)) and isinstance(classifier, Classifier):
            memory = {} if memory is None else memory
            if "cams" not in memory:
                memory["cams"] = label_activation_maps(classifier, inputs, result.labels)
            adv_cams = _adv_cams(result, classifier, memory["cams"], usable)
        elif isinstance(classifier, Classifier):
            adv_cams = _shown_cams(result, classifier, first, usable)
        measured, unmeasured = _measure(result, classifier, inputs, measures, adv_cams, usable)
    maps = column_of_maps(adv_cams.get("predicted_adv_cams"), range(first, first + len(result.labels)))
    return {symbol: column_of_values(values) for symbol, values in measured.items()}, maps, unmeasured


def same_draws(classifier: Classifier | RecordedOutputs) -> AbstractContextManager[None]:
    """Return a context in which a random model gives the same outputs in every run."""
    return seeded(0) if classifier.random else nullcontext()


def needs_model(measures: Sequence[str]) -> bool:
    """Whether a measure needs the model itself. False if the stored outputs of the model suffice."""
    return _needs(measures, {"weight", *_CAMS}, ("model",)) or any(
        name not in ALL_MEASURES for name in group_names(tuple(measures))
    )


def needs_images(measures: Sequence[str]) -> bool:
    """Whether a measure needs the clean or the adversarial images."""
    return needs_model(measures) or _needs(measures, {"inputs", "adv_inputs"}, ("inputs", "adv_inputs"))


def _needs(measures: Sequence[str], arguments: set[str], of_users: Sequence[str]) -> bool:
    symbols = [*measured_symbols(group_names(tuple(measures))), *filter(is_parametrised, measures)]
    users = [name for each in measures if is_file_name(name := plain_name(each)) and not is_group(each)]
    return any(not arguments.isdisjoint(METRICS[base_symbol(symbol)].arguments) for symbol in symbols) or any(
        not {*of_users}.isdisjoint(find_metric(name).needs) for name in users
    )


def _columns_of_model(result: AttackResult, classifier: Classifier) -> dict[str, pa.Array]:
    """Return the additional columns of random models and of models with a detector."""
    columns = {} if result.draws_fooled is None else {"draws_fooled": column_of_values(result.draws_fooled)}
    return columns | ({DETECTED: column_of_values(_detected(result))} if classifier.detects else {})


def minimal_distance(result: AttackResult) -> Tensor:
    """Return the distance of each image for curves, shape (N,).

    It is inf if no example was found, and 0 if the clean image is misclassified.
    """
    known = result.distance.where(result.success, math.inf)
    return known.where(result.attacked, 0.0)


def label_activation_maps(classifier: Classifier, inputs: Tensor, labels: Tensor) -> Tensor | None:
    """Compute the activation map of the label of each image, shape (N, h, w).

    None if the model has no gradients, or no layer with maps.
    """
    if not has_gradients(classifier, inputs):
        return None
    try:
        with same_draws(classifier):
            return _maps_of(classifier, inputs, labels)
    except ModelFailed:
        raise
    except ValueError:  # no layer is known for this architecture
        return None


def _maps_of(classifier: Classifier, inputs: Tensor, classes: Tensor) -> Tensor:
    """Compute activation maps of classes, in the process that runs the model.

    Args:
        classifier: the model.
        inputs: images, shape (N, C, H, W).
        classes: one class per image, shape (N,), or several, shape (N, M).

    Returns:
        The maps, shape (N, h, w) or (N, M, h, w).
    """
    maps = call_where_layers_are(classifier, grad_cam, inputs, classes)
    if not isinstance(maps, Tensor) or maps.shape[: classes.ndim] != classes.shape or maps.ndim != classes.ndim + 2:
        raise ModelFailed(f"the model {classifier.name}: expected activation maps of {tuple(classes.shape)} classes")
    return maps


def _adv_cams(result: AttackResult, classifier: Classifier, cams: Tensor | None, usable: Tensor) -> dict[str, Tensor]:
    """Compute the activation maps for the two attention metrics. They are zero for images that do not count."""
    if cams is None:
        return {}
    true, predicted = torch.zeros_like(cams), torch.zeros_like(cams)
    rows = usable.nonzero()[:, 0]
    if len(rows):
        classes = torch.stack((result.labels[rows], result.adv_logits[rows].argmax(1)), 1)
        both = _maps_of(classifier, result.adv_inputs[rows], classes)
        true[rows], predicted[rows] = both[:, 0], both[:, 1]
    return {"predicted_cams": cams, "true_cams": cams, "predicted_adv_cams": predicted, "true_adv_cams": true}


def _shown_cams(result: AttackResult, classifier: Classifier, first: int, usable: Tensor) -> dict[str, Tensor]:
    """Compute the activation maps of the predicted classes for images that are stored as pictures.

    They are zero for images that do not count.
    """
    shown = max(0, min(EXAMPLES - first, len(usable)))
    rows = usable[:shown].nonzero()[:, 0]
    if not len(rows):
        return {}
    maps = label_activation_maps(classifier, result.adv_inputs[rows], result.adv_logits[rows].argmax(1))
    if maps is None:
        return {}
    predicted = torch.zeros_like(maps[:1]).repeat(shown, 1, 1)
    predicted[rows] = maps
    return {"predicted_adv_cams": predicted}


def _measure(
    result: AttackResult,
    classifier: Classifier | RecordedOutputs,
    inputs: Tensor,
    measures: Sequence[str],
    cams: Mapping[str, Tensor],
    usable: Tensor,
) -> tuple[dict[str, Tensor], dict[str, str]]:
    given = {**_arguments(result, classifier, inputs, measures), **cams}
    columns, unmeasured = {}, {}
    for symbol in measured_symbols(group_names(tuple(measures))):
        metric = METRICS[symbol]
        values = torch.full(usable.shape, math.nan, dtype=torch.double, device=usable.device)
        if any(given.get(name) is None for name in metric.arguments):
            continue
        try:
            _check_confidences(classifier, symbol)
            columns[symbol] = _values(metric, given, usable, values)
        except (
            ValueError,
            FileNotFoundError,
        ) as error:  # small images; DISTS without VGG16
            columns[symbol], unmeasured[symbol] = values, " ".join(str(error).split())
    chosen, reasons = _parametrised(classifier, given, usable, measures)
    columns |= chosen
    unmeasured |= reasons
    _correct_outcomes(columns, result, usable)
    unmeasured |= _leave_detected(columns, result) if classifier.detects else {}
    for measure in measures:
        if is_group(measure) or not is_file_name(name := plain_name(measure)):
            continue
        known = {**given, "model": classifier, **_spent(result)}
        if classifier.outputs == "labels":  # a function may use more than the largest logit
            known |= {"logits": None, "adv_logits": None}
        columns[name], reason = _users(find_metric(name), known, usable)
        if sealed_name(name) != measure:
            columns[name], reason = torch.full_like(columns[name], math.nan), f"{name} was edited during the evaluation"
        unmeasured |= {name: reason} if reason else {}
    return columns, unmeasured


def _arguments(
    result: AttackResult, classifier: Classifier | RecordedOutputs, inputs: Tensor, measures: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments of metric functions by name, without activation maps.

    An argument is None or missing if it does not exist for this model or attack.
    """
    given: dict[str, Any] = {name: getattr(result, name) for name in ("logits", "adv_logits", "labels", "targets")}
    given |= {name: getattr(result, name) for name in ("success", "forwards", "backwards", "adv_inputs")}
    given |= {"inputs": inputs}
    similarity = _similarity_of(measures, result.logits.shape[1])
    if similarity is not None:
        given["similarity"] = similarity.to(result.success.device)
    if isinstance(classifier, Classifier) and _needs(measures, {"weight"}, ()):
        weight = call_where_layers_are(classifier, last_weight, result.logits.shape[1])
        if isinstance(weight, Tensor) and weight.ndim == 2 and weight.shape[0] <= 2000:
            given["weight"] = weight
    return given


def _check_confidences(classifier: Classifier | RecordedOutputs, symbol: str) -> None:
    """Raise Unsupported if a metric needs confidences, but the model returns labels only."""
    if classifier.outputs == "labels" and needs_confidences(symbol):
        raise Unsupported(NO_CONFIDENCES)


def _parametrised(
    classifier: Classifier | RecordedOutputs, given: Mapping[str, Any], usable: Tensor, measures: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Compute the metrics that have an interpretation or parameter in their symbol.

    Returns:
        The reasons why some metrics have no value.
    """
    columns, unmeasured = {}, {}
    for symbol in filter(is_parametrised, measures):
        metric = METRICS[base_symbol(symbol)]
        options = metric_parameter(symbol)
        if any(given.get(name) is None for name in metric.arguments if name not in options):
            unmeasured[symbol] = _LACKING
            continue
        values = torch.full(usable.shape, math.nan, dtype=torch.double, device=usable.device)
        try:
            _check_confidences(classifier, symbol)
            columns[symbol] = _values(metric, given, usable, values, options)
        except ValueError as error:  # small images; channels that a reading does not take
            columns[symbol], unmeasured[symbol] = values, " ".join(str(error).split())
    return columns, unmeasured


def _similarity_of(measures: Sequence[str], classes: int) -> Tensor | None:
    """Return the similarity of every two classes, shape (K, K).

    It is computed from the given hierarchy, or from WordNet for ImageNet's classes. None in all other cases.

    Raises:
        DavylampError: if the hierarchy has different classes, or its file is missing.
    """
    confusion = find_group(tuple(measures), "confusion")
    if confusion is None:
        return None
    if confusion["hierarchy"]:
        return similarity_of_file(confusion["hierarchy"], classes)
    return imagenet_wup() if classes == 1000 else None


def _spent(result: AttackResult) -> dict[str, Tensor]:
    return {"seconds": result.seconds.to(result.success.device), "distance": result.distance}


def _users(metric: UserMetric, given: Mapping[str, Any], usable: Tensor) -> tuple[Tensor, str]:
    """Compute a user's metric on usable images.

    Returns:
        The value of each image, and an error text. "" if the metric succeeded.
    """
    values = torch.full(usable.shape, math.nan, dtype=torch.double, device=usable.device)
    missing = [name for name in metric.needs if given.get(name) is None]
    if missing or not bool(usable.any()):
        return values, f"it needs {', '.join(missing)}, which this attack does not provide" if missing else ""
    picked = {name: each[usable] if isinstance(each, Tensor) and len(each) == len(usable) else each
              for name, each in given.items() if name in (*metric.needs, "labels", "inputs")}  # fmt: skip
    try:
        values[usable] = metric.values(picked).to(values)
    except DavylampError as error:
        return values, str(error)
    return values, ""


def _values(
    metric: Metric,
    given: Mapping[str, Any],
    usable: Tensor,
    values: Tensor,
    options: Mapping[str, Any] | None = None,
) -> Tensor:
    """Compute a metric for the usable images for which it is defined. The values are written into `values`."""
    # Metrics of the change are computed for successes only, which saves passes over robust images.
    rows = (given["success"] if "success" in metric.arguments else usable).nonzero()[:, 0]
    if not len(rows):
        return values
    options = {metric.parameter: metric.usual} if metric.usual is not None and options is None else options or {}
    options = {name: each.to(values.device) if isinstance(each, Tensor) else each for name, each in options.items()}
    arguments = {
        name: given[name] if name in ("similarity", "weight") else given[name][rows]
        for name in metric.arguments
        if name not in options
    }
    values[rows] = metric.function(**arguments, **options, reduction="none").to(values)
    return values


def _correct_outcomes(columns: dict[str, Tensor], result: AttackResult, usable: Tensor) -> None:
    """Correct the rates for invalid results. Such results count neither as fooled nor as robust.

    If the nearest example of a minimum-norm attack is outside the radius, the image counts as robust.
    """
    if result.draws_fooled is not None:
        _take_shares(columns, result)
    knowledge = "white-box" if result.knowledge == "white-box" else "black-box"
    for symbol, values in columns.items():
        metric = METRICS.get(symbol, PLAIN)
        if metric.invalid == "not fooled":
            columns[symbol] = values.where(usable | ~result.attacked, 0.0)
        elif metric.invalid == "not robust":
            columns[symbol] = values.where(usable, result.robust_rate.to(values))
        if metric.knowledge not in ("", knowledge):
            columns[symbol] = torch.full_like(values, math.nan)


def _detected(result: AttackResult) -> Tensor:
    """Find the usable examples that a detector assigns to its additional class "detected", (n,) bool."""
    return result.usable & (result.adv_logits.argmax(1) == result.adv_logits.shape[1] - 1)


def _leave_detected(columns: dict[str, Tensor], result: AttackResult) -> dict[str, str]:
    """Count detected examples as not misclassified.

    Returns:
        The metrics that omit detected examples, with the reason.
    """
    detected = _detected(result)
    for symbol, right in NOT_MISCLASSIFIED.items():
        if symbol in columns:
            columns[symbol] = columns[symbol].where(~detected | columns[symbol].isnan(), right)
    lacking = [symbol for symbol in columns if is_left_out(symbol)]
    for symbol in lacking:
        columns[symbol] = columns[symbol].where(~detected, math.nan)
    return dict.fromkeys(lacking, LEFT_OUT) if bool(detected.any()) else {}


def _take_shares(columns: dict[str, Tensor], result: AttackResult) -> None:
    """For a random model, replace the rates by rates over its samples."""
    for symbol, values in columns.items():
        metric = METRICS.get(symbol, PLAIN)
        of_target = "target" in metric.needs
        if metric.invalid and of_target == (result.targets is not None):
            share = result.fooled_rate if metric.invalid == "not fooled" else 1 - result.fooled_rate
            columns[symbol] = share.to(values).where(result.attacked, values)


def last_weight(classifier: Classifier, classes: int) -> Tensor | None:
    """Return the weight of the last linear layer with one output per class, shape (K, D).

    None if the model has no such layer.
    """
    layers = [
        part for part in classifier.modules() if isinstance(part, torch.nn.Linear) and part.out_features == classes
    ]
    return layers[-1].weight.detach() if layers else None
