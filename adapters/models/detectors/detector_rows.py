"""The named detectors, and the reasons why others are omitted."""

from collections.abc import Mapping

from ....errors import UnknownName
from ...attack import Parameter
from .scorer import DetectorSpec

_EPOCHS = (Parameter(int, 1, 10**6, "number of training epochs of the network"), 20)
_RATE = (Parameter(float, 1e-12, 1e3, "learning rate of its optimiser (Adam)"), 1e-3)
_BATCH = (Parameter(int, 1, 10**6, "batch size of its optimiser"), 64)
_LAYER = (
    Parameter(str, 0, 0, "layer of the model whose output is read; empty for the input of its last linear layer"),
    "",
)
_NETWORK = {"epochs": _EPOCHS, "learning_rate": _RATE, "batch_size": _BATCH}

ROWS = (
    DetectorSpec(
        "binary-input",
        "art",
        "Network on the images",
        "Gong et al. 2017, Adversarial and Clean Data Are Not Twins",
        ".detectors.art_detectors:BinaryInput",
        _NETWORK,
        learns_examples=True,
        differentiable=True,
    ),
    DetectorSpec(
        "binary-activation",
        "art",
        "Network on the activations of a layer",
        "Metzen et al. 2017, On Detecting Adversarial Perturbations",
        ".detectors.art_detectors:BinaryActivation",
        {**_NETWORK, "layer": _LAYER},
        learns_examples=True,
        differentiable=True,
        reads_layers=True,
    ),
    DetectorSpec(
        "subset-scanning",
        "art",
        "Subset scanning of the activations of a layer",
        "Speakman et al. 2018, Subset Scanning Over Neural Network Activations",
        ".detectors.art_detectors:SubsetScanning",
        {"layer": _LAYER},
        reads_layers=True,
    ),
    DetectorSpec(
        "feature-squeezing",
        "davylamp",
        "Change of the outputs when the image is squeezed",
        "Xu et al. 2018, Feature Squeezing, section V",
        ".detectors.squeezing:Squeezing",
        {
            "bits": (Parameter(int, 1, 8, "bits per channel of the first squeezer"), 4),
            "window": (Parameter(int, 3, 31, "side of the window of the second squeezer, a median filter (odd)"), 3),
        },
        module="art",
    ),
    DetectorSpec(
        "kernel-density",
        "davylamp",
        "Density of the activations among those of the predicted class",
        "Feinman et al. 2017, Detecting Adversarial Samples from Artifacts, section 4.1",
        ".detectors.density:KernelDensity",
        {
            "layer": _LAYER,
            "bandwidth": (
                Parameter(
                    float, 0, 1e6, "bandwidth of the Gaussian kernel; 0 for the highest leave-one-out likelihood"
                ),
                0.0,
            ),
        },
        differentiable=True,
        reads_layers=True,
    ),
    DetectorSpec(
        "lid",
        "davylamp",
        "Local intrinsic dimensionality of every layer",
        "Ma et al. 2018, Characterizing Adversarial Subspaces Using Local Intrinsic Dimensionality",
        ".detectors.dimensionality:LocalDimensionality",
        {
            "neighbours": (Parameter(int, 2, 10**6, "number of nearest clean images used to estimate a dimension"), 20),
            "reference": (Parameter(int, 3, 10**6, "number of clean images used as reference for distances"), 100),
        },
        module="sklearn",
        learns_examples=True,
        reads_layers=True,
    ),
)

DETECTORS: Mapping[str, DetectorSpec] = {row.full_name: row for row in ROWS}
LEFT_OUT: Mapping[str, str] = {
    "art: BEYONDDetectorPyTorch": "needs a model trained without labels on the same images, which no package provides",
    "Feinman et al.: Bayesian uncertainty": "needs a model with dropout at inference",
}


def find_detector(name: str) -> DetectorSpec:
    """Find a detector by name, with or without its library. Raises UnknownName."""
    row = DETECTORS.get(name) or next((row for row in ROWS if row.name == name), None)
    if row is None:
        raise UnknownName("detector", name, [*(row.name for row in ROWS), *DETECTORS])
    return row
