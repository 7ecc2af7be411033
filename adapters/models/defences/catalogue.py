"""The named defences, and the reasons why others are omitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ...attack import Parameter
from ..component import Component

Gradients = Literal["exact", "straight-through", "none"]
WAYS: tuple[Gradients, ...] = get_args(Gradients)
MEMBER = "member"  # parameter of a defence that `takes` something


@dataclass(frozen=True)
class DefenceSpec(Component):
    """A defence: a library's transformation of the input images, or a change of the model itself.

    It is built from its parameters, as a module that maps images (N, C, H, W) in [0, 1] to such images.

    Args:
        gradients: the supported ways in which gradients pass through, with the default first. "exact": the derivative
            of the transformation. "straight-through": as if the transformation were the identity (BPDA, Athalye et al.
            2018). "none": zero gradients, as if a library transformed the images outside the model. Gradient attacks
            then fail for this reason alone.
        random: whether the defence draws random numbers in every query. The model is then judged on several samples,
            and an attack should average several samples (EOT, Athalye et al. 2018).
        wraps: whether it is built from the classifier and the parameters, as a module from images to logits.
        changes_weights: whether the defence changes the model's weights. The model is then loaded without folding batch
            normalisation into them.
        takes: "model" if the name is followed by that of a model, as in "ensemble:demo:digits-cnn". "denoiser" if it is
            followed by a file or folder, as in "purify:denoiser.py:make:steps=2".
    """

    gradients: tuple[Gradients, ...] = ("straight-through", "none")
    random: bool = False
    wraps: bool = False
    changes_weights: bool = False
    takes: Literal["", "model", "denoiser"] = ""


_QUALITY = Parameter(int, 1, 100, "quality of the compression, at most 100")
_WINDOW = Parameter(int, 3, 31, "side of the filter's window in pixels, an odd number")
_SIGMA = Parameter(float, 0, 100, "standard deviation of the noise, for pixels in [0, 1]", 0)
_XU = "Xu et al. 2018, Feature Squeezing"
_GUO = "Guo et al. 2018, Countering Adversarial Images using Input Transformations"
_YIN = "Yin et al. 2020, WAR: its compression without the resizing"
_COHEN = "Cohen et al. 2019, Certified Adversarial Robustness via Randomized Smoothing"
_EXACT: tuple[Gradients, ...] = ("exact", "straight-through", "none")

ROWS = (
    DefenceSpec(
        "jpeg",
        "art",
        "JPEG compression",
        _GUO,
        ".defences.transforms:ArtJpeg",
        {"quality": (_QUALITY, 50)},
        findings=("truncates pixels to 8 bits instead of rounding, so images are half a grey level darker",),
    ),
    DefenceSpec(
        "jpeg",
        "pillow",
        "JPEG compression",
        _GUO,
        ".defences.transforms:PillowJpeg",
        {"quality": (_QUALITY, 50)},
    ),
    DefenceSpec(
        "jpeg",
        "kornia",
        "JPEG compression, differentiable",
        "Reich et al. 2024, Differentiable JPEG",
        ".defences.transforms:KorniaJpeg",
        {"quality": (_QUALITY, 50)},
        _EXACT,
    ),
    DefenceSpec(
        "webp", "pillow", "WebP compression", _YIN, ".defences.transforms:PillowWebp", {"quality": (_QUALITY, 80)}
    ),
    DefenceSpec(
        "bit-depth",
        "art",
        "Bit depth reduction",
        _XU,
        ".defences.transforms:ArtBitDepth",
        {"bits": (Parameter(int, 1, 8, "bits of each channel"), 4)},
    ),
    DefenceSpec("median", "art", "Median filter", _XU, ".defences.transforms:ArtMedian", {"window": (_WINDOW, 3)}),
    DefenceSpec(
        "median",
        "kornia",
        "Median filter",
        _XU,
        ".defences.transforms:KorniaMedian",
        {"window": (_WINDOW, 3)},
        _EXACT,
    ),
    DefenceSpec(
        "blur",
        "torchvision",
        "Gaussian blur",
        _XU,
        ".defences.transforms:TorchvisionBlur",
        {
            "window": (_WINDOW, 3),
            "sigma": (Parameter(float, 0, 100, "standard deviation of the blur, in pixels", 0), 1.0),
        },
        _EXACT,
    ),
    DefenceSpec(
        "rescale",
        "torchvision",
        "Rescaling",
        f"{_GUO}: its rescaling without the crop",
        ".defences.transforms:TorchvisionRescale",
        {"scale": (Parameter(float, 0, 1, "size of the smaller image relative to the image", 0), 0.5)},
        _EXACT,
    ),
    DefenceSpec(
        "resize-pad",
        "torchvision",
        "Random resizing and padding",
        "Xie et al. 2018, Mitigating Adversarial Effects through Randomization (AISafety's RAND)",
        ".defences.random_transforms:TorchvisionResizePad",
        {"smallest": (Parameter(float, 0, 1, "smallest size of the resized image, relative to the image", 0), 0.9)},
        _EXACT,
        random=True,
        findings=(
            "shrinks the image by up to a tenth and pads it to its original size, because the model's input size is "
            "fixed; the paper enlarges it (from 299 to 310-331 pixels) and pads it to 331",
        ),
    ),
    DefenceSpec(
        "crop-rescale",
        "torchvision",
        "Random crop, rescaled",
        f"{_GUO}: one crop; the paper averages 30",
        ".defences.random_transforms:TorchvisionCropRescale",
        {"scale": (Parameter(float, 0, 1, "side of the crop relative to the image", 0), 0.9)},
        _EXACT,
        random=True,
    ),
    DefenceSpec(
        "noise",
        "torchvision",
        "Gaussian noise",
        "Liu et al. 2018, Towards Robust Neural Networks via Random Self-ensemble: its noise before the first layer",
        ".defences.random_transforms:TorchvisionNoise",
        {"sigma": (_SIGMA, 0.1)},
        _EXACT,
        random=True,
    ),
    DefenceSpec(
        "noise",
        "art",
        "Gaussian noise",
        "Zantedeschi et al. 2017, Efficient Defenses Against Adversarial Attacks: its noise at inference",
        ".defences.random_transforms:ArtNoise",
        {"sigma": (_SIGMA, 0.1)},
        random=True,
    ),
    DefenceSpec(
        "tv-min",
        "art",
        "Total variance minimisation",
        _GUO,
        ".defences.random_transforms:ArtTotalVarMin",
        {
            "kept": (Parameter(float, 0, 1, "probability of keeping each pixel", 0), 0.3),
            "weight": (
                Parameter(float, 0, 1e6, "weight of the total variation relative to the error at the kept pixels"),
                0.5,
            ),
            "steps": (Parameter(int, 1, 10_000, "iterations of L-BFGS-B for each channel"), 10),
        },
        random=True,
        findings=("runs SciPy's optimiser on one channel of one image at a time: seconds per image at 224 x 224",),
    ),
    DefenceSpec(
        "smoothing",
        "davylamp",
        "Randomized smoothing",
        _COHEN,
        ".defences.random_transforms:Smoothed",
        {
            "sigma": (_SIGMA, 0.25),
            "draws": (Parameter(int, 1, 100_000, "noisy images per query"), 20),
        },
        ("exact",),
        random=True,
        wraps=True,
        findings=(
            "returns the mean of the probabilities (Salman et al. 2019), which has gradients; the certificate "
            "(`davylamp certify`) counts predictions as Cohen et al. do",
        ),
    ),
    DefenceSpec(
        "prune",
        "torch",
        "Pruning of the smallest weights",
        "Guo et al. 2018, Sparse DNNs with Improved Adversarial Robustness",
        ".defences.model_changes:prune_weights",
        {"amount": (Parameter(float, 0, 0.9999, "proportion of the weights that become 0", 0), 0.5)},
        ("exact",),
        wraps=True,
        changes_weights=True,
        findings=("prunes a trained model once, whereas the paper trains again after each of several steps",),
    ),
    DefenceSpec(
        "quantise-weights",
        "torch",
        "Quantised weights",
        "Zhao et al. 2019, To Compress or Not to Compress: its weights, not its activations",
        ".defences.model_changes:quantise_weights",
        {"bits": (Parameter(int, 2, 8, "bits of each weight"), 8)},
        ("exact",),
        wraps=True,
        changes_weights=True,
        findings=(
            "computes in floating point with the rounded weights, so an integer kernel may give different results",
        ),
    ),
    DefenceSpec(
        "ensemble",
        "davylamp",
        "Ensemble (ensemble:MODEL): mean of the probabilities",
        "Strauss et al. 2017, Ensemble Methods as a Defense to Adversarial Perturbations",
        ".defences.model_changes:join_ensemble",
        gradients=("exact",),
        wraps=True,
        takes="model",
    ),
    DefenceSpec(
        "purify",
        "davylamp",
        "Purification (purify:FILE.py:NAME or purify:FOLDER): noise, removed in steps by a denoiser",
        "Nie et al. 2022, Diffusion Models for Adversarial Purification",
        ".defences.purify:Purifier",
        {
            "noise": (_SIGMA, 0.1),
            "t": (Parameter(int, 0, 100_000, "timestep of a diffusers scheduler in place of `noise`; 0 for none"), 0),
            "steps": (Parameter(int, 1, 10_000, "calls of the denoiser"), 4),
        },
        _EXACT,
        random=True,
        takes="denoiser",
        findings=(
            "removes noise by DDIM's deterministic steps; the paper solves a stochastic differential equation, so its "
            "accuracies differ",
        ),
    ),
)

DEFENCES: Mapping[str, DefenceSpec] = {row.full_name: row for row in ROWS}
LEFT_OUT: Mapping[str, str] = {
    "art: ThermometerEncoding": "changes the number of channels, so the model must be trained for it",
    "art: PixelDefend": "needs a PixelCNN, which no package provides",
    "art: Cutout, CutMix, Mixup, LabelSmoothing": "they change training, not the outputs of a trained model",
}
