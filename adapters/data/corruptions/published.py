"""The corruptions of Hendrycks and Dietterich (2019), and AlexNet's errors on ImageNet-C."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from ....errors import InvalidInput, UnknownName

SEVERITIES = (1, 2, 3, 4, 5)


class Corruption(NamedTuple):
    """A kind of corruption.

    Args:
        name: name used by the authors. It is also the name of the folder in ImageNet-C.
        title: name for display.
        kind: group to which the authors assign the corruption, such as "noise".
        alexnet: published top-1 error of AlexNet on ImageNet-C, the mean over the five severities. None for the four
            corruptions that are meant for tuning and do not count in the benchmark.
        coloured: whether the corruption adds colour. Such a corruption cannot be applied to grey images.
    """

    name: str
    title: str
    kind: Literal["noise", "blur", "weather", "digital"]
    alexnet: float | None = None
    coloured: bool = False


_ROWS = (
    Corruption("gaussian_noise", "Gaussian noise", "noise", 0.886428),
    Corruption("shot_noise", "Shot noise", "noise", 0.894468),
    Corruption("impulse_noise", "Impulse noise", "noise", 0.922640),
    Corruption("defocus_blur", "Defocus blur", "blur", 0.819880),
    Corruption("glass_blur", "Frosted glass blur", "blur", 0.826268),
    Corruption("motion_blur", "Motion blur", "blur", 0.785948),
    Corruption("zoom_blur", "Zoom blur", "blur", 0.798360),
    Corruption("snow", "Snow", "weather", 0.866816),
    Corruption("frost", "Frost", "weather", 0.826572, coloured=True),
    Corruption("fog", "Fog", "weather", 0.819324),
    Corruption("brightness", "Brightness", "weather", 0.564592),
    Corruption("contrast", "Contrast", "digital", 0.853204),
    Corruption("elastic_transform", "Elastic", "digital", 0.646056),
    Corruption("pixelate", "Pixelate", "digital", 0.717840),
    Corruption("jpeg_compression", "JPEG", "digital", 0.606500),
    Corruption("speckle_noise", "Speckle noise", "noise"),
    Corruption("gaussian_blur", "Gaussian blur", "blur"),
    Corruption("spatter", "Spatter", "weather", coloured=True),
    Corruption("saturate", "Saturate", "digital", coloured=True),
)
CORRUPTIONS: Mapping[str, Corruption] = {row.name: row for row in _ROWS}
BENCHMARK = tuple(row.name for row in _ROWS if row.alexnet is not None)  # what a mean corruption error is over


def find_corruption(name: str) -> Corruption:
    """Return the corruption with a name. In the name, `-` may be written instead of `_`.

    Raises:
        UnknownName: if there is no such corruption.
    """
    known = name.replace("-", "_")
    if known not in CORRUPTIONS:
        raise UnknownName("corruption", name, CORRUPTIONS)
    return CORRUPTIONS[known]


def check_severity(severity: object, name: str) -> int:
    """Convert a value to a severity, an integer from 1 to 5.

    Raises:
        InvalidInput: if the value is not a severity.
    """
    number = int(severity) if isinstance(severity, str) and severity.isdecimal() and len(severity) < 9 else severity
    if isinstance(number, bool) or number not in SEVERITIES:
        got = severity if severity != "" else "none"
        raise InvalidInput(f"expected a severity from 1 to 5, as in {name}:3, got {got}")
    return int(number)  # type: ignore[call-overload]


def alexnet_errors(names: list[str] | tuple[str, ...]) -> list[float]:
    """Return AlexNet's published error on ImageNet-C under each corruption, as the mean over the severities.

    Raises:
        InvalidInput: if a corruption is not part of the benchmark.
    """
    lacking = [name for name in names if name not in BENCHMARK]
    if lacking:
        raise InvalidInput(f"expected corruptions with published AlexNet errors, got {', '.join(lacking)}")
    return [error for name in names if (error := CORRUPTIONS[name].alexnet) is not None]
