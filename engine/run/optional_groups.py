"""Metrics of the optional groups, which are computed on request: coverage, boundary, neurons and consistency."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torchvision.transforms.functional import gaussian_blur

from ...adapters import AttackResult, Classifier
from ...adapters.models.sandbox.isolated import is_isolated
from ...adapters.running.requirements import has_gradients
from ...errors import DavylampError, InvalidInput, Unsupported
from ...metrics import boundary_steps, empirical_boundary_distance, noise_ratios, orthogonal_directions
from ...metrics.coverage import beyond_ranges, most_active, neuron_values, sections_reached
from ...metrics.neurons import neuron_sensitivity, neuron_uncertainty
from ..cell_defaults import ALL_MEASURES, CURVE
from ..measure_groups import GROUP_OF, MeasureGroup, is_group, read_group
from ..metric_names import NO_CONFIDENCES, NO_GRADIENTS
from ..store.columns import Coverage, Reached, column_of_values, pack
from .activations import GROUP, Ranges, visit_layers
from .measure import Memory, same_draws

Columns = dict[str, Any]


class RangesOf(Protocol):
    """Function that returns the range of each neuron of a model, on the data that a coverage measure names."""

    def __call__(self, classifier: Classifier, measure: str) -> Ranges:
        """Return the ranges by layer."""
        ...


def optional_columns(
    result: AttackResult,
    classifier: Classifier,
    inputs: Tensor,
    measures: tuple[str, ...],
    *,
    ranges_of: RangesOf,
    memory: Memory,
) -> tuple[dict[str, pa.Array], dict[str, str]]:
    """Compute a column for each requested metric of the optional groups.

    Args:
        result: result of the attack.
        classifier: the model.
        inputs: clean images, shape (N, C, H, W).
        measures: measures of the run.
        ranges_of: returns the ranges of the neurons, for coverage.
        memory: cache of values of these clean images, which are the same for all attacks.

    Returns:
        The columns, and the reasons why metrics have no column.
    """
    columns: dict[str, pa.Array] = {}
    unmeasured: dict[str, str] = {}
    for measure in measures:
        group = read_group(measure) if is_group(measure) else None
        if group is None or group.name in (*ALL_MEASURES, CURVE):
            continue
        unmeasured |= _missing(classifier, inputs, group)
        try:
            _check_layers(classifier, group)
            with same_draws(classifier):
                if group.name == "coverage":
                    made = _coverage_columns(result, classifier, inputs, group, ranges_of(classifier, measure))
                elif group.name == "neurons":
                    made = _neuron_columns(result, classifier, inputs)
                elif group.name == "consistency" and "adversarial" in group["noise"].split("+"):
                    made = _consistency_columns(classifier, inputs, result, group)
                else:
                    if measure not in memory:
                        memory[measure] = _OF_CLEAN[group.name](classifier, inputs, result, group)
                    made = memory[measure]
        except (ValueError, DavylampError) as error:
            reason = " ".join(str(error).split())
            symbols = [symbol for symbol, name in GROUP_OF.items() if name == group.name]
            unmeasured |= dict.fromkeys(symbols, reason)
            empty = torch.full((len(inputs),), torch.nan, dtype=torch.double)
            made = {symbol: column_of_values(empty) for symbol in symbols if group.name != "coverage"}
        columns |= made
    return columns, unmeasured


def _missing(classifier: Classifier, inputs: Tensor, group: MeasureGroup) -> dict[str, str]:
    """Return the metrics of a group that the model does not support, with the reasons."""
    return {"EBD2": NO_GRADIENTS} if group.name == "boundary" and not has_gradients(classifier, inputs) else {}


def _check_layers(classifier: Classifier, group: MeasureGroup) -> None:
    """Raise Unsupported if metrics of layers are requested, but the model's layers cannot be read."""
    note = getattr(classifier.model, "layers_note", "")
    if note and group.name in ("coverage", "neurons") and not is_isolated(classifier):  # its worker process reads them
        raise Unsupported(note)


def tally_coverage(classifier: Classifier, inputs: Tensor, ranges: Ranges, group: MeasureGroup) -> Coverage:
    """Compute the coverage of every layer by a set of images. A few images are processed per pass.

    Raises:
        InvalidInput: if k exceeds the number of neurons of a layer, or if the ranges are those of other layers.
    """
    reached: dict[str, Reached] = {}

    def tally(name: str, output: Tensor) -> None:
        if name not in ranges:
            raise InvalidInput(f"no ranges of neurons are known for the layer {name}, only for others")
        units, (low, high) = neuron_values(output, group["neurons"]), ranges[name]
        if group["k"] > units.shape[1]:
            raise InvalidInput(f"expected k from 1 to {units.shape[1]}, the neurons of {name}, got {group['k']}")
        sections = sections_reached(units, low, high, group["sections"])
        parts = (sections, *beyond_ranges(units, low, high), most_active(units, group["k"]))
        here = Reached(*(part.cpu().numpy() for part in parts))
        reached[name] = reached[name].united(here) if name in reached else here

    for part in inputs.split(GROUP):
        visit_layers(classifier, part, tally)
    return reached


def _coverage_columns(
    result: AttackResult, classifier: Classifier, inputs: Tensor, group: MeasureGroup, ranges: Ranges
) -> Columns:
    """Return the coverage by usable images before and after the attack.

    It is stored as bits in the first row of the shard.
    """
    rows, count = result.usable.nonzero()[:, 0], len(inputs)
    names = ("coverage", "coverage_clean", "coverage_layers", "coverage_sizes")
    kinds = (pa.binary(), pa.binary(), pa.list_(pa.string()), pa.list_(pa.int64()))
    if not len(rows):
        return {name: pa.nulls(count, kind) for name, kind in zip(names, kinds, strict=True)}
    after = tally_coverage(classifier, result.adv_inputs[rows], ranges, group)
    before = tally_coverage(classifier, inputs[rows], ranges, group)
    sizes = [group["sections"], *(len(each.above) for each in after.values())]
    values = (pack(after), pack(before), list(after), sizes)
    rest = [None] * (count - 1)
    return {name: pa.array([value, *rest], kind) for name, value, kind in zip(names, values, kinds, strict=True)}


def _neuron_columns(result: AttackResult, classifier: Classifier, inputs: Tensor) -> Columns:
    """Compute NS of adversarial images and NU of clean images: the mean over layers, and a column for each layer."""
    sensitive: dict[str, list[Tensor]] = {}
    uncertain: dict[str, list[Tensor]] = {}
    adversarial = result.adv_inputs.where(result.usable[:, None, None, None], inputs)
    for clean, attacked in zip(inputs.split(GROUP), adversarial.split(GROUP), strict=True):
        size = len(clean)

        def compare(name: str, output: Tensor, size: int = size) -> None:
            before, after = output[:size], output[size:]
            sensitive.setdefault(name, []).append(neuron_sensitivity(before, after, reduction="none").cpu())
            uncertain.setdefault(name, []).append(neuron_uncertainty(before, reduction="none").cpu())

        visit_layers(classifier, torch.cat((clean, attacked)), compare)
    columns: Columns = {}
    usable = result.usable.cpu()
    for symbol, by_layer in (("NS", sensitive), ("NU", uncertain)):
        values = {name: torch.cat(parts).double() for name, parts in by_layer.items()}
        if symbol == "NS":
            values = {name: each.where(usable, torch.nan) for name, each in values.items()}
        columns[symbol] = column_of_values(torch.stack(list(values.values())).mean(0))
        columns |= {f"{symbol}@{name}": column_of_values(each) for name, each in values.items()}
    return columns


def _boundary_columns(classifier: Classifier, inputs: Tensor, result: AttackResult, group: MeasureGroup) -> Columns:
    """Compute EBD (random orthogonal directions) and EBD2 (small attack steps), on clean images."""
    count = min(group["directions"], inputs[0].numel())
    directions = orthogonal_directions(count, inputs[0])
    magnitudes = torch.arange(0, group["largest"] + group["spacing"] / 2, group["spacing"], device=inputs.device)
    distance = empirical_boundary_distance(classifier, inputs, result.labels, directions, magnitudes, reduction="none")
    steps = torch.full_like(distance, torch.nan)
    if classifier.gradients:
        sizes, towards = (group["step_size"], group["limit"]), group["towards"]
        steps = boundary_steps(classifier, inputs, result.labels, *sizes, towards=towards, reduction="none")
    return {"EBD": column_of_values(distance.double()), "EBD2": column_of_values(steps.double())}


def _consistency_columns(classifier: Classifier, inputs: Tensor, result: AttackResult, group: MeasureGroup) -> Columns:
    """Compute ENI of each clean image: the mean over noisy versions of the image within epsilon.

    As in equation 21, every version counts once: `versions` versions for each kind of noise, and one adversarial
    example. The random seed follows from the image.
    """
    if classifier.outputs == "labels":
        raise Unsupported(NO_CONFIDENCES)
    versions, epsilon, kinds = group["versions"], group["epsilon"], group["noise"].split("+")
    examples = result.adv_inputs.where(result.usable[:, None, None, None], inputs)
    values = []
    for image, example, logits, label in zip(inputs, examples, result.logits, result.labels, strict=True):
        drawn = [noisy_versions(image, versions, epsilon, kind) for kind in kinds if kind != "adversarial"]
        noisy = torch.cat([*drawn, *([_within(image, example[None], epsilon)] if "adversarial" in kinds else [])])
        answers = classifier.predict_logits(noisy)
        ratios = noise_ratios(logits[None], answers[None], image[None], noisy[None], label[None], epsilon)
        values.append(ratios.double().nanmean())
    return {"ENI": column_of_values(torch.stack(values))}


def noisy_versions(image: Tensor, versions: int, epsilon: float, kind: str = "uniform") -> Tensor:
    """Return noisy versions of an image, (versions, C, H, W), in [0, 1], within epsilon of its values.

    Args:
        image: shape (C, H, W), in [0, 1].
        versions: number of versions.
        epsilon: largest change of a value; larger changes are clipped.
        kind: "uniform" noise within epsilon, "gaussian" noise of standard deviation epsilon / 2, or "blur": Gaussian,
            with standard deviations from 0.5 to 1.5 pixels in equal steps.
    """
    if kind == "blur":
        blurred = [gaussian_blur(image, [7, 7], [sigma]) for sigma in np.linspace(0.5, 1.5, versions)]
        return _within(image, torch.stack(blurred), epsilon)
    digest = sha256(image.detach().cpu().contiguous().numpy().tobytes()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    if kind == "gaussian":
        noise = torch.randn(versions, *image.shape, generator=generator, device="cpu").mul_(epsilon / 2)
        return _within(image, image + noise.to(image), epsilon)
    noise = torch.rand(versions, *image.shape, generator=generator, device="cpu").mul_(2).sub_(1).mul_(epsilon)
    return (image + noise.to(image)).clamp(0, 1)


def _within(image: Tensor, versions: Tensor, epsilon: float) -> Tensor:
    """Clip images so that each value is in [0, 1] and differs from the original by at most epsilon.

    Args:
        image: the original, shape (C, H, W).
        versions: images to clip, shape (n, C, H, W).
        epsilon: largest difference.
    """
    return (image + (versions - image).clamp(-epsilon, epsilon)).clamp(0, 1)


_OF_CLEAN: Mapping[str, Callable[..., Columns]] = {"boundary": _boundary_columns, "consistency": _consistency_columns}
