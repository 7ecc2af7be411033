"""Times forward and backward passes of torchvision's models. The weights are random, which does not affect the time."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torchvision

ARCHITECTURES = {
    "AlexNet": "alexnet",
    "VGG": "vgg16",
    "GoogLeNet": "googlenet",
    "InceptionV3": "inception_v3",
    "ResNet": "resnet50",
    "DenseNet": "densenet161",
    "SqueezeNet": "squeezenet1_1",
    "MobileNetV3": "mobilenet_v3_large",
    "ShuffleNetV2": "shufflenet_v2_x2_0",
    "MNASNet": "mnasnet1_3",
    "EfficientNetV2": "efficientnet_v2_s",
    "ViT": "vit_b_16",
    "RegNet": "regnet_y_8gf",
    "Swin": "swin_b",
    "ConvNeXt": "convnext_base",
}  # CANARY's


class Passes(NamedTuple):
    """Seconds of one image's forward pass, and of the backward pass after it."""

    forward: float
    backward: float


def build(architecture: str, device: str) -> torch.nn.Module:
    """Build a torchvision model with random weights."""
    options = {"init_weights": False} if architecture in ("googlenet", "inception_v3") else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torchvision.models.get_model(architecture, weights=None, **options).eval().to(device)


def gflops(architecture: str) -> float:
    """Return the multiply-adds of a forward pass at the model's own input size, in 1e9, as torchvision states them."""
    return torchvision.models.get_model_weights(architecture).DEFAULT.meta["_ops"]


def time_passes(architecture: str, device: str, *, batch: int, rounds: int) -> Passes:
    """Return the median over rounds of the seconds per image."""
    model = build(architecture, device)
    inputs = torch.rand(batch, 3, *[299 if architecture == "inception_v3" else 224] * 2, device=device)
    forward, both = [], []
    for turn in range(rounds + 1):
        inputs.requires_grad_(True)
        with torch.no_grad():
            forward.append(seconds(lambda: model(inputs), device))
        both.append(seconds(lambda: torch.autograd.grad(model(inputs).sum(), inputs), device))
        if not turn:
            forward.clear(), both.clear()
    alone = statistics.median(forward) / batch
    return Passes(alone, statistics.median(both) / batch - alone)


def seconds(call: Callable[[], object], device: str) -> float:
    """Return the duration of a call, including work that is queued on a GPU."""
    finish = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    finish()
    start = time.perf_counter()
    call()
    finish()
    return time.perf_counter() - start
