"""AISafety's Tables VI and VII: neuron coverage of adversarial test sets."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters import Classifier
from ...engine.statistics.bootstrap import Estimate
from ...metrics import boundary_coverage, multisection_coverage, strong_activation_coverage, top_k_coverage
from ..shared.paper_numbers import find_value
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import run_setting
from ..shared.small_models import load_training_inputs
from .setting import attack_name, missing_rows, paper_model, setting_of

_ATTACKS = ("FGSM", "PGD-l1", "PGD-l2", "PGD-linf", "SPSA")
_SECTIONS, _TOP = 20, 1
_READINGS = {
    "KMNCov": f"{_SECTIONS} sections, as in the program; the paper gives no number. A neuron is a scalar after a ReLU; "
    "ranges are those on the training images",
    "NBCov": "both ends of every neuron, out of 2 |N|",
    "SNACov": "upper ends, out of |N|",
    "TKNCov": f"k = {_TOP}; the paper defines neither the metric nor k",
}


def compare_coverage(table: str, options: Options, *, dataset: str) -> dict[str, Any]:
    """Compare the coverage of each attack's examples on each model with a published table, without intervals.

    Args:
        table: "aisafety_table6" or "aisafety_table7".
        options: options of the command. The neurons' ranges are those on the training digits of the small models, or on
            the clean images of given data.
        dataset: data set of the table.
    """
    with run_setting(setting_of(_ATTACKS, table, images=100, quick=20, keep_images=True, measures=()), options) as run:
        lines, on_digits = [], run.plan.config.data == "digits"
        for model, classifier in run.models.items():
            known = load_training_inputs() if on_digits else run.plan.data.load(classifier).inputs
            profile = read_activations(classifier, known.to(classifier.device))
            for cell in (cell for cell in run.plan.cells if cell.subject.model == model):
                name = attack_name(cell.attack, cell.threat_model.norm)
                examples = run.read_examples(cell).to(classifier.device)
                for symbol, value in _cover(read_activations(classifier, examples), profile).items():
                    estimate = Estimate(value, math.nan, math.nan, len(examples))
                    published = find_value(table, symbol, model=paper_model(model, table), attack=name)
                    beside = f"{dataset} {paper_model(model, table)}"
                    row = f"{model}, {name}"
                    lines.append(PaperLine(row, symbol, estimate, published, beside, data_set=dataset))
        notes = ["n is the size of the test set; the paper's are of 10000 images: coverage grows with n"]
        if not on_digits:
            notes.append("neuron ranges are from the clean images, not from training images, which increases NBCov")
        return run.report(table, lines, readings=_READINGS, left_out=missing_rows(table, _ATTACKS), notes=notes)


def _cover(layers: list[Tensor], profile: list[Tensor]) -> Mapping[str, float]:
    units, known = torch.cat(layers, 1), torch.cat(profile, 1)
    low, high = known.amin(0), known.amax(0)
    measures: Mapping[str, Callable[[], Tensor]] = {
        "KMNCov": lambda: multisection_coverage(units, low, high, _SECTIONS),
        "NBCov": lambda: boundary_coverage(units, low, high),
        "SNACov": lambda: strong_activation_coverage(units, low, high),
        "TKNCov": lambda: top_k_coverage(layers, _TOP),
    }
    return {symbol: float(measure()) for symbol, measure in measures.items()}


def read_activations(classifier: Classifier, inputs: Tensor) -> list[Tensor]:
    """Return the outputs of every ReLU for all images, each (N, units), in order of first execution.

    The images pass through the model in batches, which a model may split further, and outputs are joined layer by
    layer. A ReLU that is used at several positions of a network counts as several layers.

    Args:
        classifier: model.
        inputs: images in [0, 1], shape (N, C, H, W).

    Raises:
        ValueError: If a layer did not run equally often for every image.
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
    """Split a ReLU's outputs by its positions in the network, which alternate from call to call."""
    runs = sum(map(len, parts))
    count = runs // images
    places = [parts[place::count] for place in range(count)] if count * images == runs else []
    for place in places:
        if sum(map(len, place)) != images or len({each.shape[1] for each in place}) > 1:
            places = []
    if not places:
        raise ValueError(f"expected each ReLU to run equally often for each of {images} images, got {runs} runs")
    return places
