"""Files of trained detectors: the fitted state, the digest of the model, and the scores of clean images."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ....errors import InvalidInput, Unavailable
from ...tensor_file import read_tensor_file
from ..classifier import Classifier
from .detector_rows import find_detector
from .scorer import DetectorSpec, Scorer

_FORMAT = "davylamp detector 1"


@dataclass(frozen=True)
class TrainedDetector:
    """A trained detector, as stored in a detector file.

    Args:
        row: the detector in the catalogue.
        parameters: all parameters of the detector.
        state: fitted tensors by name.
        calibration: scores of clean images that were used neither for fitting nor for testing the detector, (n,),
            float64.
        model: name of the model for which the detector was trained.
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

    def bind(self, classifier: Classifier, model_digest: str) -> Scorer:
        """Build the scorer of this detector for a classifier.

        Args:
            classifier: the model for which the detector was trained.
            model_digest: digest of this model.

        Raises:
            InvalidInput: if the detector was trained for a different model.
            MissingLibrary: if the library that implements the detector is not installed.
        """
        if model_digest != self.model_digest:
            raise InvalidInput(
                f"{self.row.full_name} was trained for a different version of {self.model} than {classifier.name} (its "
                "weights, layers, code or preprocessing differ); train it again with davylamp fit"
            )
        scorer = self.row.load()(classifier, **self.parameters)
        scorer.load_state({name: tensor.cpu() for name, tensor in self.state.items()})
        return scorer


def threshold_at(calibration: Tensor, rate: float) -> float:
    """Return the threshold for a false-positive rate. Images with a higher score are reported as adversarial.

    The threshold is the score of one of the calibration images. At most a proportion `rate` of the calibration images
    has a higher score. On other images, the false-positive rate may differ.

    Args:
        calibration: scores of clean images, shape (n,).
        rate: false-positive rate, in [0, 1).

    Raises:
        InvalidInput: if the rate is out of range.
    """
    if not 0 <= rate < 1:
        raise InvalidInput(f"expected a false-positive rate in [0, 1), got {rate}")
    ordered = calibration.sort(descending=True).values
    return float(ordered[min(math.floor(rate * len(ordered) + 1e-9), len(ordered) - 1)])


def pack_detector(trained: TrainedDetector) -> dict[str, Any]:
    """Convert a trained detector to the data that `torch.save` writes into its file."""
    state = {name: tensor.detach().cpu() for name, tensor in trained.state.items()}
    parts = {"detector": trained.row.full_name, "parameters": dict(trained.parameters), "state": state}
    parts |= {"calibration": trained.calibration, "seen": sorted(trained.seen), "card": json.dumps(dict(trained.card))}
    return {"format": _FORMAT, "model": trained.model, "model_digest": trained.model_digest, **parts}


def read_detector(path: Path) -> TrainedDetector:
    """Read a detector from its file. No code in the file is run.

    Raises:
        Unavailable: if there is no such file, or it cannot be read.
        InvalidInput: if the file is not a detector.
    """
    if not path.is_file():
        raise Unavailable(f"no such file: {path}; train a detector with davylamp fit")
    stored = read_tensor_file(path, "a trained detector", "make one with davylamp fit", _FORMAT)
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
