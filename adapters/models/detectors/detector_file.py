"""A trained detector as a file: what it learned, for which model, and what its scores are on clean images."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from ....errors import InvalidInput, MissingLibrary, Unavailable
from ...parameters import check_parameter, parse_parameter
from ...tensor_file import read_tensor_file
from ..classifier import Classifier
from .detector_rows import find_detector
from .scorer import DetectorSpec, Scorer

_FORMAT = "davylamp detector 1"


@dataclass(frozen=True)
class TrainedDetector:
    """What is in the file.

    Args:
        row: of the catalogue.
        parameters: all of them.
        state: what it learned, by name.
        calibration: scores of clean images that it neither learned from nor is tested on, (n,), float64.
        model: name of the model that it stands beside.
        model_digest: of that model.
        seen: digests of the images that it learned from or was calibrated on.
        card: how it was made.
    """

    row: DetectorSpec
    parameters: Mapping[str, Any]
    state: Mapping[str, Tensor]
    calibration: Tensor
    model: str
    model_digest: str
    seen: frozenset[str]
    card: Mapping[str, Any]

    def threshold(self, rate: float) -> float:
        """The score above which an image is called adversarial, so that at most a share of clean ones are.

        It is a score of the calibration images: at most `rate` of them lie above. The true rate is some number around.

        Args:
            rate: of false alarms, inside [0, 1).

        Raises:
            InvalidInput: if the rate is none.
        """
        return threshold_at(self.calibration, rate)

    def bind(self, classifier: Classifier, model_digest: str) -> Scorer:
        """The detector bound to its model.

        Raises:
            InvalidInput: if the model is another one.
            MissingLibrary: if the library whose code it is is not installed.
        """
        if model_digest != self.model_digest:
            raise InvalidInput(
                f"expected {self.model} as it was when {self.row.full_name} was trained, got {classifier.name}"
                ": other weights, layers, code or preprocessing; train the detector for it (davylamp train)"
            )
        scorer = make_scorer(self.row, classifier, self.parameters)
        scorer.load_state({name: tensor.cpu() for name, tensor in self.state.items()})
        return scorer


def threshold_at(calibration: Tensor, rate: float) -> float:
    """The score that at most a share of the calibration images lie above: see `TrainedDetector.threshold`."""
    if not 0 <= rate < 1:
        raise InvalidInput(f"expected a rate of false alarms in [0, 1), got {rate}")
    ordered = calibration.sort(descending=True).values
    return float(ordered[min(math.floor(rate * len(ordered) + 1e-9), len(ordered) - 1)])


def make_scorer(row: DetectorSpec, classifier: Classifier, parameters: Mapping[str, Any]) -> Scorer:
    """A detector that has not learned yet; MissingLibrary if what it is made of is not installed."""
    if find_spec(row.module) is None:
        raise MissingLibrary(row.module, row.extra, f"for {row.full_name}")
    module, _, made = row.build.partition(":")
    return getattr(import_module(module, __package__), made)(classifier, **parameters)


def read_detector_name(name: str, given: Mapping[str, Any]) -> tuple[DetectorSpec, dict[str, Any]]:
    """A row by its name, and all its parameters.

    Raises:
        UnknownName: if there is no such detector or parameter.
        InvalidInput: if a value is out of range.
    """
    row = find_detector(name)
    known = {word: parameter for word, (parameter, _) in row.params.items()}
    values = {word: default for word, (_, default) in row.params.items()}
    for word, value in given.items():
        text = isinstance(value, str) and word in known and known[word].type is not str
        values[word] = parse_parameter(word, value, known) if text else check_parameter(word, value, _only(known, word))
    if values.get("window", 1) % 2 == 0:
        raise InvalidInput(f"expected window as an odd number, got {values['window']}")
    return row, values


def _only(known: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    """The row's parameters; UnknownName for another, even one of the attacks' vocabulary."""
    from ....errors import UnknownName

    if word not in known:
        raise UnknownName("parameter of the detector", word, known)
    return known


def pack_detector(trained: TrainedDetector) -> dict[str, Any]:
    """What `torch.save` writes."""
    state = {name: tensor.detach().cpu() for name, tensor in trained.state.items()}
    parts = {"detector": trained.row.full_name, "parameters": dict(trained.parameters), "state": state}
    parts |= {"calibration": trained.calibration, "seen": sorted(trained.seen), "card": json.dumps(dict(trained.card))}
    return {"format": _FORMAT, "model": trained.model, "model_digest": trained.model_digest, **parts}


def read_detector(path: Path) -> TrainedDetector:
    """A detector from its file, never run as a program.

    Raises:
        Unavailable: if there is none, or it cannot be read.
        InvalidInput: if it holds something else.
    """
    if not path.is_file():
        raise Unavailable(f"expected a file of a trained detector, found none at {path}; make one with davylamp train")
    stored = read_tensor_file(path, "a trained detector", "make one with davylamp train")
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise InvalidInput(f"expected a detector that davylamp trained (davylamp train), got something else in {path}")
    return TrainedDetector(
        find_detector(stored["detector"]),
        stored["parameters"],
        stored["state"],
        stored["calibration"],
        stored["model"],
        stored["model_digest"],
        frozenset(stored["seen"]),
        json.loads(stored["card"]),
    )
