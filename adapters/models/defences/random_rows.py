"""The named defences that draw random numbers."""

from ...attack import Parameter
from .spec import DefenceSpec, Gradients

_GUO = "Guo et al. 2018, Countering Adversarial Images using Input Transformations"
_COHEN = "Cohen et al. 2019, Certified Adversarial Robustness via Randomized Smoothing"
_EXACT: tuple[Gradients, ...] = ("exact", "straight-through", "none")
_SIGMA = Parameter(float, 0, 100, "standard deviation of the noise, for pixels in [0, 1]", 0)

RANDOM_ROWS = (
    DefenceSpec(
        "resize-pad",
        "torchvision",
        "Random resizing and padding",
        "Xie et al. 2018, Mitigating Adversarial Effects through Randomization (AISafety's RAND)",
        ".random_transforms:TorchvisionResizePad",
        "torchvision",
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
        ".random_transforms:TorchvisionCropRescale",
        "torchvision",
        {"scale": (Parameter(float, 0, 1, "side of the crop relative to the image", 0), 0.9)},
        _EXACT,
        random=True,
    ),
    DefenceSpec(
        "noise",
        "torchvision",
        "Gaussian noise",
        "Liu et al. 2018, Towards Robust Neural Networks via Random Self-ensemble: its noise before the first layer",
        ".random_transforms:TorchvisionNoise",
        "torchvision",
        {"sigma": (_SIGMA, 0.1)},
        _EXACT,
        random=True,
    ),
    DefenceSpec(
        "noise",
        "art",
        "Gaussian noise",
        "Zantedeschi et al. 2017, Efficient Defenses Against Adversarial Attacks: its noise at inference",
        ".random_transforms:ArtNoise",
        "art",
        {"sigma": (_SIGMA, 0.1)},
        random=True,
    ),
    DefenceSpec(
        "tv-min",
        "art",
        "Total variance minimisation",
        _GUO,
        ".random_transforms:ArtTotalVarMin",
        "art",
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
        ".random_transforms:Smoothed",
        "torch",
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
)
