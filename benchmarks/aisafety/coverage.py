"""AISafety's Tables VI and VII (Liu, Guo et al.): neuron coverage of adversarial test sets."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters import Classifier
from ...adapters.data.datasets import load_data_for
from ...engine.statistics.bootstrap import Estimate
from ...metrics import boundary_coverage, multisection_coverage, strong_activation_coverage, top_k_coverage
from ..shared.paper_table import Options
from ..shared.reproduction import SettingRun, run_setting
from ..shared.small_models import load_training_inputs
from .setting import attack_name, beside_both, missing_rows, setting_of

_ATTACKS = ("FGSM", "PGD-l1", "PGD-l2", "PGD-linf", "NATTACK", "SPSA")
_SECTIONS, _TOP = 20, 1
_BATCH, _TRAINING = 256, 2000  # images at once, and of a training part unless all are asked for
_READINGS = {
    "KMNCov": f"{_SECTIONS} sections, as in the program; the paper gives no number. A neuron is a scalar after a ReLU",
    "NBCov": "outputs below or above the usual range of each neuron, out of 2 |N|",
    "SNACov": "outputs above the usual range of each neuron, out of |N|",
    "TKNCov": f"k = {_TOP}; the paper defines neither the metric nor k",
}


def compare_coverage(table: str, options: Options) -> dict[str, Any]:
    """Compute the neuron coverage of each attack's examples on each model, and compare it with a published table.

    Coverage has no confidence interval. The usual range of each neuron is measured on training images of the digits or
    of torchvision's data set. For other data, the range is measured on the clean evaluation images.

    Args:
        table: "aisafety_table6" or "aisafety_table7".
        options: options of the command.
    """
    with run_setting(setting_of(_ATTACKS, table, images=100, quick=20, keep_images=True, measures=()), options) as run:
        lines = []
        for model, classifier in run.models.items():
            low, high = read_ranges(classifier, _known_images(run, classifier, full=options.full))
            for cell in (cell for cell in run.plan.cells if cell.subject.model == model):
                name = attack_name(cell.attack, cell.threat_model.norm)
                examples = run.read_examples(cell).to(classifier.device)
                for symbol, value in _cover(read_activations(classifier, examples), low, high).items():
                    estimate = Estimate(value, math.nan, math.nan, len(examples))
                    lines += beside_both(run, table, symbol, model, f"{model}, {name}", estimate, attack=name)
        notes = ["coverage grows with the number n of images in the test set; the paper's test sets have 10000"]
        known = _known_name(run.plan.config.data)
        part = f"the first {_TRAINING} images of " if known.startswith("torchvision:") and not options.full else ""
        notes.append(f"neuron ranges are from {part}{known or 'the clean images'}")
        if not _known_name(run.plan.config.data):
            notes[-1] += ", not from training images, which increases NBCov"
        return run.report(table, lines, readings=_READINGS, left_out=missing_rows(table, _ATTACKS), notes=notes)


def _known_name(data: str) -> str:
    """Return the name of the training images that belong to evaluation data; "" if unknown."""
    name = data.partition("+")[0].split(":")
    if data == "digits":
        return "the digits' training images"
    if len(name) > 1 and name[0] == "torchvision" and not name[1].endswith("-train"):
        return ":".join([name[0], f"{name[1]}-train", *name[2:]])
    return ""


def _known_images(run: SettingRun, classifier: Classifier, *, full: bool) -> Tensor:
    data = run.plan.config.data
    if data == "digits":
        return load_training_inputs()
    name = _known_name(data)
    if name:
        return load_data_for(classifier, name, None if full else _TRAINING).inputs
    return run.plan.data.load(classifier).inputs


def _cover(layers: list[Tensor], low: Tensor, high: Tensor) -> Mapping[str, float]:
    units = torch.cat(layers, 1)
    measures: Mapping[str, Callable[[], Tensor]] = {
        "KMNCov": lambda: multisection_coverage(units, low, high, _SECTIONS),
        "NBCov": lambda: boundary_coverage(units, low, high),
        "SNACov": lambda: strong_activation_coverage(units, low, high),
        "TKNCov": lambda: top_k_coverage(layers, _TOP),
    }
    return {symbol: float(measure()) for symbol, measure in measures.items()}


def read_ranges(classifier: Classifier, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest output of each ReLU unit over all images, shape (units,) each.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W).
    """
    ends = []
    for part in inputs.split(_BATCH):
        units = torch.cat(read_activations(classifier, part.to(classifier.device)), 1)
        ends.append((units.amin(0), units.amax(0)))
    return torch.stack([low for low, _ in ends]).amin(0), torch.stack([high for _, high in ends]).amax(0)


def read_activations(classifier: Classifier, inputs: Tensor) -> list[Tensor]:
    """Return the outputs of every ReLU layer, shape (N, units) each, in the order in which the layers first run.

    A ReLU module that is used at several positions of the network counts as several layers.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W).

    Raises:
        ValueError: If a ReLU module did not run equally often for every image.
    """
    kept: dict[nn.Module, list[Tensor]] = {}

    def store_output(layer: nn.Module, _: Any, output: Tensor) -> None:
        kept.setdefault(layer, []).append(output.detach().flatten(1))

    hooks = [part.register_forward_hook(store_output) for part in classifier.modules() if isinstance(part, nn.ReLU)]
    try:
        classifier.predict_logits(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return [torch.cat(place) for parts in kept.values() for place in _places(parts, len(inputs))]


def _places(parts: list[Tensor], images: int) -> list[list[Tensor]]:
    """Group the outputs of a ReLU module by its positions in the network."""
    runs = sum(map(len, parts))
    count = runs // images
    places = [parts[place::count] for place in range(count)] if count * images == runs else []
    for place in places:
        if sum(map(len, place)) != images or len({each.shape[1] for each in place}) > 1:
            places = []
    if not places:
        raise ValueError(f"expected each ReLU to run equally often for each of {images} images, got {runs} runs")
    return places
