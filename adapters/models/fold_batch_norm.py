"""Folding of batch normalisation into the preceding convolution: the same function with less computation."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import fuse_conv_bn_weights

from .classifier import Classifier
from .identity.digest import digest_model

_WITH_ACTIVATION = "BatchNormAct2d"  # timm's class, which also contains dropout and activation
_TOLERANCE = 1e-3  # relative to the largest logit; correct folding changes logits by about 1e-6


@torch.no_grad()
def fold_batch_norms(classifier: Classifier, side: int) -> int:
    """Fold, in place, each `BatchNorm2d` that follows a `Conv2d` into that convolution.

    A convolution and the normalisation after it, with fixed statistics, are one affine map. A single layer takes less
    time and memory, above all for gradients (`tools/speed/models.py`). The pairs of layers are found by running the
    model once. If the logits differ after folding, nothing is folded, because the model uses the convolution's output
    elsewhere or computes its weights. Each folded normalisation is replaced by its remaining operations, usually
    `nn.Identity`.

    Args:
        classifier: the model to change. Its `digest_model` stays the same.
        side: side of the images that the model takes.

    Returns:
        The number of folded layers.
    """
    with classifier.frozen():
        if not any(isinstance(layer, nn.BatchNorm2d) for layer in _candidates(classifier)):
            return 0
        digest = digest_model(classifier)  # before a forward pass, which may change counters
        shape = (1, classifier.channels or 3, side, side)
        probe = torch.rand(shape, generator=torch.Generator().manual_seed(0), device="cpu").to(classifier.device)
        pairs, before = _find_pairs(classifier, probe)
        if not pairs:
            return 0
        modules = classifier.model.modules()
        parents = {layer: (parent, name) for parent in modules for name, layer in parent.named_children()}
        originals = [(convolution, convolution.weight, convolution.bias) for convolution, _ in pairs]
        for convolution, norm in pairs:
            _fold(convolution, norm)
            setattr(*parents[norm], _rest(norm))
        after = torch.full_like(before, torch.nan)
        with suppress(Exception):  # the model may use an attribute of the replaced layer
            after = classifier(probe)
        if (after - before).abs().max() <= _TOLERANCE * before.abs().max():
            classifier.known_as[digest_model(classifier)] = digest
            return len(pairs)
        for (convolution, weight, bias), (_, norm) in zip(originals, pairs, strict=True):
            convolution.weight, convolution.bias = weight, bias
            setattr(*parents[norm], norm)
        return 0


def _find_pairs(classifier: Classifier, probe: Tensor) -> tuple[list[tuple[nn.Conv2d, nn.BatchNorm2d]], Tensor]:
    """Find each convolution with the batch normalisation that follows it.

    Only layers that run exactly once count.

    Returns:
        The pairs of layers, and the logits of `probe`.
    """
    # Keyed by the output's id; the output is stored so that its id is not reused. Its version reveals in-place changes.
    made: dict[int, tuple[nn.Conv2d, Tensor, int]] = {}
    runs: dict[nn.Module, int] = {}
    pairs = []

    def note(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        runs[layer] = runs.get(layer, 0) + 1
        if isinstance(layer, nn.Conv2d):
            made[id(output)] = (layer, output, output._version)
        elif isinstance(layer, nn.BatchNorm2d) and id(inputs[0]) in made:
            convolution, made_there, version = made[id(inputs[0])]
            if made_there._version == version:
                pairs.append((convolution, layer))

    handles = [layer.register_forward_hook(note) for layer in _candidates(classifier)]
    try:
        logits = classifier(probe)
    finally:
        for handle in handles:
            handle.remove()
    return [pair for pair in pairs if all(runs[layer] == 1 for layer in pair)], logits


def _candidates(classifier: Classifier) -> list[nn.Module]:
    return [layer for layer in classifier.model.modules() if _takes_part(layer)]


def _takes_part(layer: nn.Module) -> bool:
    """Whether a layer can be folded: a float32 convolution, or a float32 batch normalisation with fixed statistics."""
    if isinstance(layer, nn.Conv2d):
        weight = dict(layer.named_parameters(recurse=False)).get("weight")  # missing if it is computed
        return weight is not None and weight.dtype == torch.float32
    plain = type(layer) is nn.BatchNorm2d or type(layer).__name__ == _WITH_ACTIVATION
    return plain and layer.running_mean is not None and not layer.training


def _fold(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    """Change the weight and bias of a convolution so that it also does the normalisation after it.

    The new values are computed in double precision.
    """
    of_norm = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, variance, scale, shift = map(_doubled, of_norm)
    device = convolution.weight.device
    weight, bias = _doubled(convolution.weight), _doubled(convolution.bias)
    both = fuse_conv_bn_weights(weight, bias, mean, variance, norm.eps, scale, shift)  # pyright: ignore[reportArgumentType]
    convolution.weight, convolution.bias = (
        nn.Parameter(tensor.to(device, torch.float32), requires_grad=False) for tensor in both
    )


def _doubled(tensor: Tensor | None) -> Tensor | None:
    """Copy a tensor to the CPU in double precision, which some devices do not support."""
    return None if tensor is None else tensor.detach().cpu().double()


def _rest(norm: Any) -> nn.Module:
    """Return the layer that replaces a folded normalisation. Usually this is `nn.Identity`."""
    rest = nn.Sequential(norm.drop, norm.act) if type(norm).__name__ == _WITH_ACTIVATION else nn.Identity()
    return rest.eval()
