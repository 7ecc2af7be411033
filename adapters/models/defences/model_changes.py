"""Defences that change the model instead of its input: pruning, quantised weights, and an ensemble."""

from collections.abc import Iterable, Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.parametrize import is_parametrized

from ....errors import InvalidInput, ModelFailed, Unsupported
from ...user_code_guard import one_line
from ..classifier import Classifier


def prune_weights(classifier: Classifier, amount: float) -> Classifier:
    """Set the smallest weights of a copy of a classifier to 0, by torch's global L1 pruning.

    Args:
        classifier: unchanged.
        amount: share of the weights, in (0, 1), smallest absolute values of all layers together.

    Raises:
        Unsupported: if the model has no weights here.
        ModelFailed: if it cannot be copied.
    """
    changed = _copy(classifier)
    places = list(_weights(changed))
    strides = [getattr(layer, name).stride() for layer, name in places]
    for layer, name in places:  # torch prunes contiguous weights only
        weight = getattr(layer, name)
        weight.data = weight.data.contiguous()
    prune.global_unstructured(places, pruning_method=prune.L1Unstructured, amount=amount)
    for (layer, name), stride in zip(places, strides, strict=True):
        prune.remove(layer, name)
        weight = getattr(layer, name)
        weight.data = torch.empty_strided(weight.shape, stride, dtype=weight.dtype, device=weight.device).copy_(weight)
    return changed


def quantise_weights(classifier: Classifier, bits: int) -> Classifier:
    """Round the weights of a copy of a classifier to `bits` bits, by torch's `fake_quantize_per_channel_affine`.

    Each output channel has its scale, the largest absolute value over 2^(bits - 1) - 1, and the zero point 0. The model
    computes in floating point with the rounded weights, which are constants, so gradients of images are exact.

    Args:
        classifier: unchanged.
        bits: bits of a weight, 2 to 8.

    Raises:
        Unsupported: if the model has no weights here.
        ModelFailed: if it cannot be copied.
    """
    changed, most = _copy(classifier), 2 ** (bits - 1) - 1
    with torch.no_grad():
        for layer, name in _weights(changed):
            weight = getattr(layer, name)
            values = weight.detach().float()
            scales = values.flatten(1).abs().amax(1) / most
            scales = scales.where(scales > 0, 1.0)
            zeros = torch.zeros_like(scales, dtype=torch.int32)
            weight.copy_(torch.fake_quantize_per_channel_affine(values, scales, zeros, 0, -most, most))
    return changed


class MeanProbabilities(nn.Module):
    """The logarithm of the mean probability of several classifiers (Strauss et al. 2017); gradients are exact."""

    def __init__(self, members: Iterable[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of shape (N, K) for images (N, C, H, W) in [0, 1].

        Raises:
            InvalidInput: if the members have different numbers of classes.
        """
        answers = [member(inputs).log_softmax(1) for member in self.members]
        if len({answer.shape[1] for answer in answers}) > 1:
            counts = " and ".join(str(answer.shape[1]) for answer in answers)
            raise InvalidInput(f"expected members of an ensemble with the same classes, got {counts} classes")
        stacked = torch.stack([answer.to(answers[0].device) for answer in answers])
        return stacked.logsumexp(0) - torch.log(torch.tensor(float(len(answers))))


def join_ensemble(classifier: Classifier, member: str) -> MeanProbabilities:
    """Build an ensemble of a classifier and a model by name; a third one joins an ensemble with equal weight.

    Args:
        classifier: unchanged.
        member: one of `model_name_patterns()` without "+".

    Raises:
        DavylampError: as `load_model`, for the member.
    """
    from ..zoo.load import load_model  # which imports this package

    joined = load_model(member, str(classifier.device))
    inside = classifier.model
    members = inside.members if isinstance(inside, MeanProbabilities) else [classifier]
    return MeanProbabilities([*members, joined])


def _copy(classifier: Classifier) -> Classifier:
    try:
        return deepcopy(classifier)
    except Exception as error:
        raise ModelFailed(f"the model {classifier.name} cannot be copied ({one_line(error)})") from error


def _weights(classifier: Classifier) -> Iterator[tuple[nn.Module, str]]:
    """Yield layers with the names of their weights: parameters of two or more dimensions, each once.

    Raises:
        Unsupported: if there are none, as for a remote model or an ONNX file, or if they are computed from others.
    """
    seen: set[int] = set()
    for layer in classifier.modules():
        if is_parametrized(layer):
            raise Unsupported(f"expected plain weights, {classifier.name} computes some from others (weight_norm)")
        for name, parameter in layer.named_parameters(recurse=False):
            is_weight = name.endswith("weight") and parameter.ndim > 1 and parameter.is_floating_point()
            if is_weight and id(parameter) not in seen:
                seen.add(id(parameter))
                yield layer, name
    if not seen:
        raise Unsupported(f"expected a model whose layers have weights in this process, {classifier.name} has none")
