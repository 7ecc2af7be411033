"""Speed of the disturbance metrics against the per-image loop of NumPy and piq calls that CANARY's program makes.

Both sides run on the same random images, in one process. DISTS (ADMS) has random VGG16 weights and is
set beside two passes of the same images through VGG16's features, the least that it can cost.

Run: python benchmarks/speed_metrics.py [--quick] [--device cuda] [--threads 1]
"""

import argparse
import time
from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import piq
import torch
import torchvision
from torch import Tensor

from davylamp import metrics

LUMA = np.array((0.299, 0.587, 0.114))


def main(arguments: list[str] | None = None) -> None:
    """Time both sides and print images per second."""
    options = parsed(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    images, side = (4, 64) if options.quick else (options.images, 224)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(images, 3, side, side, generator=generator)
    adv_inputs = (inputs + 16 / 255 * torch.randn(inputs.shape, generator=generator).sign()).clamp(0, 1)
    inputs, adv_inputs = inputs.to(options.device), adv_inputs.to(options.device)
    success = torch.ones(images, dtype=torch.bool, device=options.device)
    rounds = 1 if options.quick else options.rounds
    print(f"{images} images of {side} x {side}, {options.device}, {torch.get_num_threads()} threads, best of {rounds}")
    print_disturbance(inputs, adv_inputs, success, rounds)
    few = min(images, 6 if options.device == "cpu" else images)
    print_dists(inputs[:few], adv_inputs[:few], success[:few], rounds)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Speed of the disturbance metrics.")
    parser.add_argument("--quick", action="store_true", help="a few small images, once: does it run?")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch; default: torch's own choice")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


def print_disturbance(inputs: Tensor, adv_inputs: Tensor, success: Tensor, rounds: int) -> None:
    """One line for each metric without DISTS, and one for all of them."""
    pairs = [(x[None].cpu(), y[None].cpu()) for x, y in zip(inputs, adv_inputs, strict=True)]
    arrays = [(x[0].numpy(), y[0].numpy()) for x, y in pairs]
    sides = {
        "AMD": (metrics.maximum_distortion, lambda: [loop_maximum(*pair) for pair in arrays]),
        "AED": (metrics.euclidean_distortion, lambda: [loop_euclidean(*pair) for pair in arrays]),
        "APCR": (metrics.pixel_change_ratio, lambda: [loop_changed(*pair) for pair in arrays]),
        "FDL, FDH": (both_bands, lambda: [loop_bands(*pair) for pair in arrays]),
        "ALMS": (metrics.multi_scale_gmsd, lambda: [loop_gmsd(*pair) for pair in pairs]),
    }
    print(f"{'metric':10} {'davylamp':>10} {'loop':>10} {'ratio':>7}   images per second")
    total_ours = total_loop = 0.0
    for name, (function, loop) in sides.items():
        ours, theirs = alternating(lambda f=function: f(inputs, adv_inputs, success), loop, rounds)
        total_ours, total_loop = total_ours + ours, total_loop + theirs
        print_line(name, len(inputs), ours, theirs)
    print_line("all five", len(inputs), total_ours, total_loop)


def print_dists(inputs: Tensor, adv_inputs: Tensor, success: Tensor, rounds: int) -> None:
    """DISTS beside two passes through VGG16 and beside piq, one image at a time."""
    network = torchvision.models.vgg16(weights=None).eval().requires_grad_(False).to(inputs.device)
    reference = piq_dists(network.features)

    def passes() -> None:
        with torch.no_grad():
            for images in (inputs, adv_inputs):
                for group in images.split(6):
                    network(group)

    def loop() -> None:
        for x, y in zip(inputs, adv_inputs, strict=True):
            reference(x[None], y[None])

    ours, two = alternating(lambda: metrics.dists(inputs, adv_inputs, success, features=network), passes, rounds)
    theirs = timed(loop, 1)
    print_line("ADMS", len(inputs), ours, theirs)
    print(f"ADMS takes {ours / two:.2f} times two passes through VGG16 ({len(inputs) / two:.2f} images per second)")


def print_line(name: str, images: int, ours: float, theirs: float) -> None:
    """Rates and their ratio."""
    print(f"{name:10} {images / ours:10.1f} {images / theirs:10.1f} {theirs / ours:7.1f}")


def timed(call: Callable[[], object], rounds: int) -> float:
    """Least seconds of some calls, after one to warm up."""
    call()
    return min(seconds(call) for _ in range(rounds))


def alternating(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Least seconds of each side, taken in turns so that both meet the same load of the machine."""
    ours(), theirs()
    measured = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    return min(first for first, _ in measured), min(second for _, second in measured)


def seconds(call: Callable[[], object]) -> float:
    """Duration of one call, the work queued on a GPU included."""
    finish = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    finish()
    start = time.perf_counter()
    call()
    finish()
    return time.perf_counter() - start


def both_bands(inputs: Tensor, adv_inputs: Tensor, success: Tensor) -> None:
    """Low and high frequency."""
    metrics.low_frequency_distortion(inputs, adv_inputs, success)
    metrics.high_frequency_distortion(inputs, adv_inputs, success)


def loop_maximum(x: np.ndarray, y: np.ndarray) -> float:
    """Largest change of an image."""
    return float(np.max(np.abs(y - x)))


def loop_euclidean(x: np.ndarray, y: np.ndarray) -> float:
    """Normalised L2 norm of the change of an image."""
    return float(np.linalg.norm((y - x).ravel()) / np.sqrt(x.size))


def loop_changed(x: np.ndarray, y: np.ndarray) -> float:
    """Share of the 8-bit values of an image that changed."""
    return float(np.mean((x * 255).astype(np.uint8) != (y * 255).astype(np.uint8)))


def loop_bands(x: np.ndarray, y: np.ndarray) -> list[float]:
    """Norms of the change of the two bands of the grey image, filtered in Fourier space."""
    bands = [fourier_bands(image) for image in (x, y)]
    return [float(np.linalg.norm(after - before) / np.sqrt(after.size)) for before, after in zip(*bands, strict=True)]


def fourier_bands(image: np.ndarray) -> list[np.ndarray]:
    """Low and high band of an 8-bit grey image, each stretched to 8 bits."""
    grey = np.tensordot(LUMA, (image * 255).astype(np.uint8), axes=1)
    spectrum = np.fft.fftshift(np.fft.fft2(grey))
    rows, columns = (np.arange(side) - side // 2 for side in grey.shape)
    gain = np.exp(-(rows[:, None] ** 2 + columns**2) / (2 * 5.0**2))
    parts = [np.abs(np.fft.ifft2(np.fft.ifftshift(spectrum * each))) for each in (gain, 1 - gain)]
    return [np.round((part - part.min()) / (part.max() - part.min()) * 255) / 255 for part in parts]


def loop_gmsd(x: Tensor, y: Tensor) -> float:
    """MS-GMSD of an image by piq, with colour as CANARY calls it."""
    return float(piq.multi_scale_gmsd(x, y, data_range=1.0, chromatic=True))


def piq_dists(features: torch.nn.Module) -> piq.DISTS:
    """Piq's DISTS on the given layers; what its constructor would download is put in its place."""
    weights = dict.fromkeys(("alpha", "beta"), torch.full((1, 1475, 1, 1), 1 / 2950))
    network = SimpleNamespace(features=deepcopy(features))
    with (
        patch("torch.hub.load_state_dict_from_url", return_value=weights),
        patch("piq.perceptual.vgg16", return_value=network),
    ):
        return piq.DISTS().to(next(features.parameters()).device)


if __name__ == "__main__":
    main()
