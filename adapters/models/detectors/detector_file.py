"""Trained detectors as files: fitted state, digest of the model, and scores of clean images."""

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
    """Contents of a detector file.

    Args:
        row: the detector in the catalogue.
        parameters: all its parameters.
        state: fitted state, by name.
        calibration: scores of clean images that are used neither for fitting nor for testing the detector, (n,),
            float64.
        model: name of its model.
        model_digest: digest of that model.
        seen: digests of the images used for fitting and calibration.
        card: description of the training.
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
        """Return the score above which an image is flagged, for a false-positive rate of at most `rate`.

        It is the score of a calibration image; at most a proportion `rate` of these scores is higher. The true rate may
        differ.

        Args:
            rate: false-positive rate, in [0, 1).

        Raises:
            InvalidInput: if the rate is out of range.
        """
        return threshold_at(self.calibration, rate)

    def bind(self, classifier: Classifier, model_digest: str) -> Scorer:
        """Bind the detector to its model.

        Raises:
            InvalidInput: if the detector was trained for a different model.
            MissingLibrary: if the library that implements the detector is not installed.
        """
        if model_digest != self.model_digest:
            raise InvalidInput(
                f"{self.row.full_name} was trained for a different version of {self.model} than {classifier.name} (its "
                "weights, layers, code or preprocessing differ); train it again with davylamp fit"
            )
        scorer = make_scorer(self.row, classifier, self.parameters)
        scorer.load_state({name: tensor.cpu() for name, tensor in self.state.items()})
        return scorer


def threshold_at(calibration: Tensor, rate: float) -> float:
    """Return the score that is exceeded by at most a proportion `rate` of the calibration scores."""
    if not 0 <= rate < 1:
        raise InvalidInput(f"expected a false-positive rate in [0, 1), got {rate}")
    ordered = calibration.sort(descending=True).values
    return float(ordered[min(math.floor(rate * len(ordered) + 1e-9), len(ordered) - 1)])


def make_scorer(row: DetectorSpec, classifier: Classifier, parameters: Mapping[str, Any]) -> Scorer:
    """Build an unfitted detector; MissingLibrary if its library is not installed."""
    if find_spec(row.module) is None:
        raise MissingLibrary(row.module, row.extra, f"for {row.full_name}")
    module, _, made = row.build.partition(":")
    return getattr(import_module(module, __package__), made)(classifier, **parameters)


def read_detector_name(name: str, given: Mapping[str, Any]) -> tuple[DetectorSpec, dict[str, Any]]:
    """Find a detector by name, and complete its parameters.

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
    """Return the detector's parameters. Raises UnknownName for other names, including parameters of attacks."""
    from ....errors import UnknownName

    if word not in known:
        raise UnknownName("parameter of the detector", word, known)
    return known


def pack_detector(trained: TrainedDetector) -> dict[str, Any]:
    """Return the data that `torch.save` writes."""
    state = {name: tensor.detach().cpu() for name, tensor in trained.state.items()}
    parts = {"detector": trained.row.full_name, "parameters": dict(trained.parameters), "state": state}
    parts |= {"calibration": trained.calibration, "seen": sorted(trained.seen), "card": json.dumps(dict(trained.card))}
    return {"format": _FORMAT, "model": trained.model, "model_digest": trained.model_digest, **parts}


def read_detector(path: Path) -> TrainedDetector:
    """Read a detector from its file, without running code from it.

    Raises:
        Unavailable: if there is no such file, or it cannot be read.
        InvalidInput: if it is not a detector.
    """
    if not path.is_file():
        raise Unavailable(f"no such file: {path}; train a detector with davylamp fit")
    stored = read_tensor_file(path, "a trained detector", "make one with davylamp fit")
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise InvalidInput(f"{path} is not a detector trained by davylamp (davylamp fit)")
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
