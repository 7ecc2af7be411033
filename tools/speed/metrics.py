"""Measures the speed of the distortion metrics, compared with the loop over images in CANARY's program.

The program is canary-sefi 2.1.2. The loop makes its calls, image by image. Arrays (H, W, 3) in 0..255 become tensors
("conversion", twice per image: once unchanged, once truncated to integers for APCR). `torch.norm` gives AMD, AED and
APCR. NumPy's Fourier transforms with four filters, of which two are discarded, give FDL and FDH.
`piq.MultiScaleGMSDLoss` with colour gives ALMS. OpenCV's part is replaced by NumPy (grey images) or omitted (drawing a
circle). piq's DISTS is built once instead of for every image. Both favour the loop.

davylamp's side gets the same images as tensors, new ones in every round, because it checks a tensor's values only once.
It computes its default interpretations. Below the total are the two metrics whose default differs from the loop's, ALMS
and FDL with FDH, in the loop's interpretation. If `canary-sefi` is installed (`make bench` does this), its own class is
also timed on the same images: its conversion and its five functions.

Both sides alternate within every round, so that a busy machine slows both. Each figure is the median over the rounds,
and the ratio has its interquartile range. DISTS (ADMS) has random VGG16 weights. It is compared with two passes of the
same images through VGG16, which is its minimal cost.

Run: python -m davylamp.tools.speed.metrics [--quick] [--device cuda] [--threads 1] [--images 64] [--rounds 9]
"""

import importlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import piq
import torch
import torchvision
from torch import Tensor

from davylamp import metrics
from davylamp.tools.speed.figures import SpeedFigure, benchmark_parser, finish, ratio_of

LUMA = np.array((0.299, 0.587, 0.114), dtype=np.float32)
CUTOFF = 5  # of the Gaussian filter
SMALL = 1e-5
PUBLISHED = "canary_sefi.evaluator.tester.adv_disturbance_aware"
ALL_FIVE = "speed of AMD, AED, APCR, FDL, FDH and ALMS"
Call = Callable[[], object]
Metrics = Callable[..., object]


class TimedPair(NamedTuple):
    """A clean and an adversarial image in the loop's forms: arrays, tensors, and tensors truncated to integers."""

    arrays: tuple[np.ndarray, np.ndarray]
    tensors: tuple[Tensor, Tensor]
    whole: tuple[Tensor, Tensor]


def main(arguments: list[str] | None = None) -> None:
    """Time both sides, and print images per second."""
    parser = benchmark_parser("Speed of the disturbance metrics.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch; default: torch's own choice")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    images, side = (4, 64) if options.quick else (options.images, 224)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(images, 3, side, side, generator=generator)
    adv_inputs = (inputs + 16 / 255 * torch.randn(inputs.shape, generator=generator).sign()).clamp(0, 1)
    inputs, adv_inputs = inputs.to(options.device), adv_inputs.to(options.device)
    success = torch.ones(images, dtype=torch.bool, device=options.device)
    rounds = 1 if options.quick else options.rounds
    print(f"{images} images of {side} x {side}, {options.device}, {torch.get_num_threads()} threads, {rounds} rounds")
    figures = measure_disturbance(inputs, adv_inputs, success, rounds)
    figures.append(measure_published(inputs, adv_inputs, success, rounds))
    few = min(images, 6 if options.device == "cpu" else images)
    figures.append(measure_dists(inputs[:few], adv_inputs[:few], success[:few], rounds))
    finish(figures, options.json)


def measure_disturbance(inputs: Tensor, adv_inputs: Tensor, success: Tensor, rounds: int) -> list[SpeedFigure]:
    """Time each metric except DISTS, all of them together, and two in the loop's interpretation.

    Print a line for each.
    """
    device = inputs.device
    pairs = [loop_pair(*pair, device) for pair in zip(loop_arrays(inputs), loop_arrays(adv_inputs), strict=True)]
    sides: dict[str, tuple[Metrics, Callable[[TimedPair], object]]] = {
        "conversion": (lambda *_: None, lambda pair: loop_pair(*pair.arrays, device)),
        "AMD": (metrics.maximum_distortion, loop_maximum),
        "AED": (metrics.euclidean_distortion, loop_euclidean),
        "APCR": (metrics.pixel_change_ratio, loop_changed),
        "FDL, FDH": (both_bands, loop_bands),
        "ALMS": (metrics.multi_scale_gmsd, loop_gmsd),
        "all five": (five, lambda pair: [part(pair) for part in LOOP_PARTS]),
        "FDL, FDH as the loop": (partial(both_bands, method="published"), loop_bands),
        "ALMS as the loop": (partial(metrics.multi_scale_gmsd, chromatic=True), loop_gmsd),
    }
    taken = {
        name: turns(
            {
                "ours": on_new(ours, inputs, adv_inputs, success),
                "loop": lambda loop=loop: [loop(pair) for pair in pairs],
            },
            rounds,
            device,
        )
        for name, (ours, loop) in sides.items()
    }
    print(f"{'metric':22} {'davylamp':>10} {'loop':>10} {'ratio':>7}   (middle half; images per second)")
    conversion = taken.pop("conversion")
    ratios = {name: print_line(name, len(inputs), [each]) for name, each in taken.items()}
    print_line("and loop's conversion", len(inputs), [taken["all five"], conversion])
    return [replace(ratios["all five"], name=ALL_FIVE, peer="a loop of canary-sefi's calls")]


def on_new(function: Metrics, inputs: Tensor, adv_inputs: Tensor, success: Tensor) -> Iterator[Call]:
    """Yield calls of a function, each on new copies of the images, which are made before the call."""
    while True:
        yield partial(function, inputs.clone(), adv_inputs.clone(), success)


def five(inputs: Tensor, adv_inputs: Tensor, success: Tensor) -> None:
    """Compute all metrics except DISTS."""
    for metric in (metrics.maximum_distortion, metrics.euclidean_distortion, metrics.pixel_change_ratio, both_bands):
        metric(inputs, adv_inputs, success)
    metrics.multi_scale_gmsd(inputs, adv_inputs, success)


def measure_published(inputs: Tensor, adv_inputs: Tensor, success: Tensor, rounds: int) -> SpeedFigure:
    """Time the same metrics in canary-sefi's own class, called for every image."""
    name, peer = ALL_FIVE, "canary-sefi 2.1.2"
    try:
        tester = importlib.import_module(PUBLISHED).AdvDisturbanceAwareTester()
    except ImportError as error:
        return SpeedFigure(name, math.nan, peer=peer, at_least=10, note=f"not measured: {error}")
    tester.device = str(inputs.device)
    pairs = list(zip(loop_arrays(inputs), loop_arrays(adv_inputs), strict=True))

    def published() -> None:
        for clean, attacked in pairs:
            images = {"ori_img": clean, "img": attacked}
            whole = {f"{key}_forced_int": tester.img_handler(image, forced_int=True) for key, image in images.items()}
            tester.test_all_handled_img = {key: tester.img_handler(image) for key, image in images.items()} | whole
            tester.calculate_freq_euclidean_distortion(clean, attacked)
            tester.calculate_maximum_disturbance(test_all_model=True)
            tester.calculate_euclidean_distortion(test_all_model=True)
            tester.calculate_pixel_change_ratio(test_all_model=True)
            tester.calculate_low_level_metrics_similarity(test_all_model=True)

    taken = turns({"ours": on_new(five, inputs, adv_inputs, success), "loop": published}, rounds, inputs.device)
    return replace(print_line("all, canary-sefi", len(inputs), [taken]), name=name, peer=peer, at_least=10)


def measure_dists(inputs: Tensor, adv_inputs: Tensor, success: Tensor, rounds: int) -> SpeedFigure:
    """Time DISTS, two passes through VGG16, and piq's DISTS, one image at a time."""
    network = torchvision.models.vgg16(weights=None).eval().requires_grad_(False).to(inputs.device)
    reference = piq_dists(network.features)

    def passes() -> None:
        with torch.no_grad():
            for images in (inputs, adv_inputs):
                for group in images.split(6):
                    network(group)

    calls: dict[str, Call] = {
        "ours": lambda: metrics.dists(inputs, adv_inputs, success, features=network),
        "loop": lambda: [reference(x[None], y[None]) for x, y in zip(inputs, adv_inputs, strict=True)],
        "passes": passes,
    }
    taken = turns(calls, rounds, inputs.device)
    print_line("ADMS", len(inputs), [taken])
    return ratio_of("time of ADMS (DISTS)", taken["ours"], taken["passes"], at_most=1.3, peer="two passes of VGG16")


def print_line(name: str, images: int, parts: list[dict[str, list[float]]]) -> SpeedFigure:
    """Print the rates of the two sides and their ratio, summed over some parts."""
    ours, theirs = (
        [sum(times) for times in zip(*(part[side] for part in parts), strict=True)] for side in ("ours", "loop")
    )
    ratio = ratio_of(name, theirs, ours)
    rates = (images / statistics.median(times) for times in (ours, theirs))
    spread = f"({ratio.low:.1f} to {ratio.high:.1f})"
    print(f"{name:22} {next(rates):10.1f} {next(rates):10.1f} {ratio.value:7.1f}   {spread}")
    return ratio


def turns(calls: dict[str, Call | Iterator[Call]], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Return the seconds of each call in every round, after one warm-up call each."""
    measured = []
    for _ in range(rounds + 1):
        ready = {name: next(call) if isinstance(call, Iterator) else call for name, call in calls.items()}
        measured.append({name: seconds(call, device) for name, call in ready.items()})
    return {name: [each[name] for each in measured[1:]] for name in calls}


def seconds(call: Call, device: torch.device) -> float:
    """Return the duration of a call, including work that is queued on a GPU."""
    finish = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    finish()
    start = time.perf_counter()
    call()
    finish()
    return time.perf_counter() - start


def both_bands(inputs: Tensor, adv_inputs: Tensor, success: Tensor, **options: str) -> None:
    """Compute the low-frequency and the high-frequency distortion."""
    metrics.low_frequency_distortion(inputs, adv_inputs, success, **options)
    metrics.high_frequency_distortion(inputs, adv_inputs, success, **options)


def loop_arrays(images: Tensor) -> list[np.ndarray]:
    """Return images in the form of the loop: arrays (H, W, 3) in 0..255."""
    return [np.ascontiguousarray(255 * image.cpu().numpy().transpose(1, 2, 0)) for image in images]


def loop_tensor(image: np.ndarray, device: torch.device) -> Tensor:
    """Convert an array in 0..255 to a tensor in 0..1, channels first."""
    scaled = image / 255.0
    return torch.from_numpy(scaled.transpose(2, 0, 1) if scaled.ndim == 3 else scaled).to(device).float()


def loop_pair(x: np.ndarray, y: np.ndarray, device: torch.device) -> TimedPair:
    """Return the four tensors that the loop makes of two images."""
    tensors = loop_tensor(x, device), loop_tensor(y, device)
    return TimedPair((x, y), tensors, (loop_tensor(x.astype(int), device), loop_tensor(y.astype(int), device)))


def loop_maximum(pair: TimedPair) -> float:
    """Return the largest change of an image."""
    x, y = pair.tensors
    return float(torch.norm(torch.abs(y - x), float("inf")).cpu().numpy())


def loop_euclidean(pair: TimedPair) -> float:
    """Return the L2 norm of an image's change, divided by half the number of its values, as in the program."""
    x, y = pair.tensors
    return float(torch.norm(y - x, 2).cpu().numpy() / (x.numel() / 2))


def loop_changed(pair: TimedPair) -> float:
    """Return the share of an image's 8-bit values that changed."""
    x, y = pair.whole
    return float(torch.norm(y - x, 0).cpu().numpy() / x.numel())


def loop_gmsd(pair: TimedPair) -> float:
    """Return MS-GMSD of an image, with colour."""
    x, y = pair.tensors
    loss = piq.MultiScaleGMSDLoss(chromatic=True, data_range=1.0, reduction="none")
    return float(loss(x[None], y[None]).cpu().numpy()[0])


def loop_bands(pair: TimedPair) -> list[float]:
    """Return the norms of the change in the two bands of the grey image. As in the program, the high band is first."""
    device = pair.tensors[0].device
    bands = [fourier_bands(image @ LUMA) for image in pair.arrays]
    (low, high), (adv_low, adv_high) = ([loop_tensor(part, device) for part in parts] for parts in bands)
    return [loop_euclidean(pair._replace(tensors=change)) for change in ((high, adv_high), (low, adv_low))]


LOOP_PARTS = (loop_maximum, loop_euclidean, loop_changed, loop_bands, loop_gmsd)


def fourier_bands(grey: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the low and the high band of a grey image, each stretched to 8 bits."""
    spectrum = np.fft.fftshift(np.fft.fftn(grey))
    for start in (np.ones, np.zeros):  # the circular filters, whose results the program throws away
        _ = start(spectrum.shape, np.uint8) * spectrum.copy()
    high, low = (filtered(spectrum.copy(), keep_low) for keep_low in (False, True))
    low = (low - low.min()) / (low.max() - low.min() + SMALL)
    high = (high - high.min() + SMALL) / (high.max() - high.min() + SMALL)
    return np.array(low * 255, np.uint8), np.array(high * 255, np.uint8)


def filtered(spectrum: np.ndarray, keep_low: bool) -> np.ndarray:
    """Return the image of a centred spectrum, weighted by a Gaussian or by its complement."""
    rows, columns = np.mgrid[: spectrum.shape[0], : spectrum.shape[1]]
    middle = [(side - 1) // 2 for side in spectrum.shape]
    gain = np.exp(-((rows - middle[0]) ** 2 + (columns - middle[1]) ** 2) / (2 * CUTOFF**2))
    return np.abs(np.fft.ifftn(np.fft.ifftshift((gain if keep_low else 1 - gain) * spectrum)))


def piq_dists(features: torch.nn.Module) -> piq.DISTS:
    """Return piq's DISTS with the given layers. Nothing is downloaded by its constructor."""
    weights = dict.fromkeys(("alpha", "beta"), torch.full((1, 1475, 1, 1), 1 / 2950))
    network = SimpleNamespace(features=deepcopy(features))
    with (
        patch("torch.hub.load_state_dict_from_url", return_value=weights),
        patch("piq.perceptual.vgg16", return_value=network),
    ):
        return piq.DISTS().to(next(features.parameters()).device)


if __name__ == "__main__":
    main()
