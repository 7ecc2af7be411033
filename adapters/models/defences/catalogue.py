"""The named defences, and the reasons why others are omitted."""

from collections.abc import Mapping

from ...attack import Parameter
from .model_change_rows import MODEL_CHANGE_ROWS
from .random_rows import RANDOM_ROWS
from .spec import DefenceSpec, Gradients

_QUALITY = Parameter(int, 1, 100, "quality of the compression, at most 100")
_WINDOW = Parameter(int, 3, 31, "side of the filter's window in pixels, an odd number")
_XU = "Xu et al. 2018, Feature Squeezing"
_GUO = "Guo et al. 2018, Countering Adversarial Images using Input Transformations"
_YIN = "Yin et al. 2020, WAR: its compression without the resizing"
_EXACT: tuple[Gradients, ...] = ("exact", "straight-through", "none")

ROWS = (
    DefenceSpec(
        "jpeg",
        "art",
        "JPEG compression",
        _GUO,
        ".transforms:ArtJpeg",
        "art",
        {"quality": (_QUALITY, 50)},
        findings=("truncates pixels to 8 bits instead of rounding, so images are half a grey level darker",),
    ),
    DefenceSpec(
        "jpeg",
        "pillow",
        "JPEG compression",
        _GUO,
        ".transforms:PillowJpeg",
        "PIL",
        {"quality": (_QUALITY, 50)},
    ),
    DefenceSpec(
        "jpeg",
        "kornia",
        "JPEG compression, differentiable",
        "Reich et al. 2024, Differentiable JPEG",
        ".transforms:KorniaJpeg",
        "kornia",
        {"quality": (_QUALITY, 50)},
        _EXACT,
    ),
    DefenceSpec(
        "webp", "pillow", "WebP compression", _YIN, ".transforms:PillowWebp", "PIL", {"quality": (_QUALITY, 80)}
    ),
    DefenceSpec(
        "bit-depth",
        "art",
        "Bit depth reduction",
        _XU,
        ".transforms:ArtBitDepth",
        "art",
        {"bits": (Parameter(int, 1, 8, "bits of each channel"), 4)},
    ),
    DefenceSpec("median", "art", "Median filter", _XU, ".transforms:ArtMedian", "art", {"window": (_WINDOW, 3)}),
    DefenceSpec(
        "median",
        "kornia",
        "Median filter",
        _XU,
        ".transforms:KorniaMedian",
        "kornia",
        {"window": (_WINDOW, 3)},
        _EXACT,
    ),
    DefenceSpec(
        "blur",
        "torchvision",
        "Gaussian blur",
        _XU,
        ".transforms:TorchvisionBlur",
        "torchvision",
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
        ".transforms:TorchvisionRescale",
        "torchvision",
        {"scale": (Parameter(float, 0, 1, "size of the smaller image relative to the image", 0), 0.5)},
        _EXACT,
    ),
    *RANDOM_ROWS,
    *MODEL_CHANGE_ROWS,
)

DEFENCES: Mapping[str, DefenceSpec] = {row.full_name: row for row in ROWS}
LEFT_OUT: Mapping[str, str] = {
    "art: ThermometerEncoding": "changes the number of channels, so the model must be trained for it",
    "art: PixelDefend": "needs a PixelCNN, which no package provides",
    "art: Cutout, CutMix, Mixup, LabelSmoothing": "they change training, not the outputs of a trained model",
}
