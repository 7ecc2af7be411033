"""Choice of the memory layout of a model's convolutions, by a timed trial. No layout is faster for all models."""

import statistics
import time
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor, nn

from ...errors import DavylampError
from .classifier import Classifier

_BATCH = 8
_ROUNDS = 5
_GAIN = 1.1  # factor by which channels last must be faster, so that noise does not decide


def seconds_of_batch(classifier: Classifier, inputs: Tensor, rounds: int = 3) -> float:
    """Measure the time of a forward and backward pass for a batch of images.

    Args:
        classifier: the model.
        inputs: images in [0, 1], shape (N, C, H, W), on the model's device.
        rounds: number of timed passes, after one pass as warm-up.

    Returns:
        The median wall time in seconds.

    Raises:
        RuntimeError: if memory is exhausted.
    """
    times = []
    for _ in range(rounds + 1):
        images = inputs.clone().requires_grad_()
        start = time.perf_counter()
        torch.autograd.grad(classifier(images).logsumexp(1).sum(), images)
        if images.is_cuda:
            torch.cuda.synchronize(images.device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def choose_layout(
    classifier: Classifier, side: int, seconds: Callable[[Classifier, Tensor, int], float] = seconds_of_batch
) -> torch.memory_format:
    """Move a model to the faster memory layout, in place.

    The layout is channels first if the trial shows no clear difference. It is also channels first if the trial fails,
    or if the model has no convolutions or no gradients.

    Args:
        classifier: the frozen model, on the device on which it will run.
        side: height and width of the model's images.
        seconds: function that returns the time of a batch, given the model, the images and the number of repetitions.

    Returns:
        The layout: `torch.contiguous_format` or `torch.channels_last`.
    """
    first, last = torch.contiguous_format, torch.channels_last
    classifier.to(memory_format=first)
    if not classifier.gradients or not any(isinstance(layer, nn.Conv2d) for layer in classifier.modules()):
        return first
    shape = (_BATCH, classifier.channels or 3, side, side)
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0), device="cpu").to(classifier.device)
    devices = [classifier.device] if classifier.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), suppress(RuntimeError, DavylampError), torch.enable_grad():
        plain = seconds(classifier, images, _ROUNDS)
        classifier.to(memory_format=last)
        if _GAIN * seconds(classifier, images.contiguous(memory_format=last), _ROUNDS) <= plain:
            return last
    classifier.to(memory_format=first)
    return first
