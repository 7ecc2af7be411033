"""Defences that change the model instead of its input: pruning, quantised weights, and ensembles."""

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
    """Return a copy of a classifier whose smallest weights are set to 0, by torch's global L1 pruning.

    Args:
        classifier: the classifier, which is not changed.
        amount: proportion of the weights to prune, in (0, 1). The smallest absolute values are selected from all layers
            together.

    Raises:
        Unsupported: if the model has no weights in this process.
        ModelFailed: if the model cannot be copied.
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
    """Return a copy of a classifier whose weights are rounded to `bits` bits.

    The rounding is torch's `fake_quantize_per_channel_affine`, with zero point 0. The scale of each output channel is
    its largest absolute value divided by 2^(bits - 1) - 1. The model computes in floating point with the rounded
    weights, so gradients with respect to the images are exact.

    Args:
        classifier: the classifier, which is not changed.
        bits: bits per weight, 2 to 8.

    Raises:
        Unsupported: if the model has no weights in this process.
        ModelFailed: if the model cannot be copied.
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
    """Ensemble that returns the logarithm of the mean probability of its members (Strauss et al. 2017).

    Gradients pass through all members and are exact.
    """

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
            raise InvalidInput(
                f"expected all members of an ensemble to have the same number of classes, got {counts} classes"
            )
        stacked = torch.stack([answer.to(answers[0].device) for answer in answers])
        return stacked.logsumexp(0) - torch.log(torch.tensor(float(len(answers))))


def join_ensemble(classifier: Classifier, member: str) -> MeanProbabilities:
    """Build an ensemble of a classifier and a named model.

    If the classifier is an ensemble already, the model becomes another member with equal weight.

    Args:
        classifier: the classifier, which is not changed.
        member: a name that matches `model_name_patterns()`, without "+".

    Raises:
        DavylampError: as for `load_model`, if the member cannot be loaded.
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
    """Yield each layer together with the name of its weights, which are parameters of two or more dimensions.

    Raises:
        Unsupported: if the model has no weights in this process (a remote model, an ONNX file), or computes its weights
            from other parameters.
    """
    seen: set[int] = set()
    for layer in classifier.modules():
        if is_parametrized(layer):
            raise Unsupported(
                f"{classifier.name} computes some weights from other parameters (weight_norm), so they cannot be "
                "changed"
            )
        for name, parameter in layer.named_parameters(recurse=False):
            is_weight = name.endswith("weight") and parameter.ndim > 1 and parameter.is_floating_point()
            if is_weight and id(parameter) not in seen:
                seen.add(id(parameter))
                yield layer, name
    if not seen:
        raise Unsupported(f"{classifier.name} has no weights in this process that could be changed")
