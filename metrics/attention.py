"""Attention maps of a model (Grad-CAM), and how much an attack changes them."""

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .common import (
    FINITE,
    at_least_float32,
    check,
    check_choice,
    check_classes,
    check_images,
    check_logits,
    nan_where_undefined,
)
from .registry import Reduction, metric, reduce

Layout = Literal["maps", "maps-last", "tokens"]
IMAGES = 16  # images per model call
CAMS_WITHIN = (0.0, FINITE[1])

# Output of the last stage before the pooling, after its activation; a number counts from the end of a container.
LAYERS: dict[str, tuple[str, ...]] = {
    "AlexNet": ("features.-2",),
    "ConvNeXt": ("features",),
    "DenseNet": ("features",),
    "EfficientNet": ("features", "_swish"),
    "GoogLeNet": ("inception5b",),
    "Inception3": ("Mixed_7c",),
    "MNASNet": ("layers",),
    "MobileNetV2": ("features",),
    "MobileNetV3": ("features",),
    "RegNet": ("trunk_output",),
    "ResNet": ("layer4",),
    "ShuffleNetV2": ("conv5",),
    "SqueezeNet": ("features",),
    "SwinTransformer": ("norm",),
    "VGG": ("features.-2",),
    "VisionTransformer": ("encoder.layers.-1.ln_1",),
}
CHANNELS_LAST = ("SwinTransformer",)


def grad_cam(
    model: nn.Module,
    inputs: Tensor,
    classes: Tensor,
    layer: str | nn.Module | None = None,
    *,
    score: Literal["logit", "softmax"] = "logit",
    layout: Layout | None = None,
) -> Tensor:
    """Compute class activation maps of a layer (Grad-CAM), at the resolution of the layer and without normalisation.

    A map is the positive part of a weighted sum of the layer's channels. The weight of a channel is the gradient of the
    class score, averaged over the channel's positions. Only the part of the model after the layer is differentiated.

    Args:
        model: classifier in evaluation mode that returns logits (N, K).
        inputs: images in [0, 1], shape (N, C, H, W).
        classes: class for which each map is computed, int64, shape (N,). Shape (N, M) computes M maps per image from a
            single forward pass.
        layer: name of the layer (as in `model.named_modules()`) or the module itself. None selects the output of the
            last stage, after its activation, in torchvision's classifiers and EfficientNet-Lite, also inside a wrapper.
            In vision transformers, None selects the first norm of the last block, and in Swin the last norm.
        score: class score to differentiate: "logit", as in the Grad-CAM paper, or "softmax", the probability.
        layout: layout of the layer's output. "maps" is (N, c, h, w), "maps-last" is (N, h, w, c), and "tokens" is (N,
            t, c), where the t positions form a square and a class token may come first. None selects "tokens" for an
            output of three dimensions, "maps-last" for Swin, and otherwise "maps".

    Returns:
        Maps of shape (N, h, w), or (N, M, h, w) for M classes per image, >= 0.

    Raises:
        ValueError: if shapes, types or values are not as described, no layer is known for the model, or the score does
            not depend on the layer.
    """
    sizes = check_images(inputs=inputs)
    several = isinstance(classes, Tensor) and classes.ndim == 2
    check({"classes": classes}, "N M" if several else "N", kind="int64", within=(0, float("inf")), sizes=sizes)
    if several and not classes.shape[1]:
        raise ValueError(f"expected at least one class for each image, got shape {tuple(classes.shape)}")
    check_choice("score", score, ("logit", "softmax"))
    module, layout = _layer(model, layer), _layout(model, layout)
    groups = zip(inputs.split(IMAGES), (classes if several else classes[:, None]).split(IMAGES), strict=True)
    maps = torch.cat([_maps_of_each(*_gradients(model, module, *group, score), layout) for group in groups])
    return maps if several else maps[:, 0]


@metric(
    symbol="ACAMC_A",
    title="Attention similarity, predicted class",
    robust_when="higher",
    between=(0, 1),
    unit="cosine",
    source="CANARY (Sun et al. 2023), 3.1.2; Selvaraju et al. 2017",
    formula="mean over valid of cos(L(x, F(x)), L(xa, F(xa))), L the Grad-CAM map of an image and a class",
    latex=r"\operatorname{mean}_{\text{valid}} \cos\left( L(x, F(x)), L(x_a, F(x_a)) \right)",
    aliases=("ACAMC",),
    needs=("attention",),
    tables=("attacks", "models"),
)
def predicted_attention_similarity(
    predicted_cams: Tensor,
    predicted_adv_cams: Tensor,
    logits: Tensor,
    labels: Tensor,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cosine similarity of the predicted class's activation maps before and after the attack, over valid images.

    Valid images are those that the model classifies correctly before the attack.

    Args:
        predicted_cams: maps of the class predicted for the clean image, shape (N, h, w), >= 0.
        predicted_adv_cams: maps of the class predicted for the adversarial image, shape (N, h, w), >= 0.
        logits: logits of the clean images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A cosine, as a scalar. For "none", one value for each image, shape (N,), and NaN where the clean image is
        misclassified or a map is all zero. Unchanged images give 1.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_classes(check_logits(logits=logits), labels=labels)
    named = {"predicted_cams": predicted_cams, "predicted_adv_cams": predicted_adv_cams}
    check(named, "N h w", within=CAMS_WITHIN, sizes=sizes)
    return reduce(
        nan_where_undefined(_cosine(predicted_cams, predicted_adv_cams), logits.argmax(1) == labels), reduction
    )


@metric(
    symbol="ACAMC_T",
    title="Attention similarity, true class",
    robust_when="higher",
    between=(0, 1),
    unit="cosine",
    source="CANARY (Sun et al. 2023), 3.1.2; Selvaraju et al. 2017",
    formula="mean over valid of cos(L(x, y), L(xa, y)), L the Grad-CAM map of an image and a class",
    latex=r"\operatorname{mean}_{\text{valid}} \cos\left( L(x, y), L(x_a, y) \right)",
    aliases=("ACAMC",),
    needs=("attention",),
    tables=("attacks", "models"),
)
def true_attention_similarity(
    true_cams: Tensor, true_adv_cams: Tensor, logits: Tensor, labels: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Cosine similarity of the true class's activation maps before and after the attack, over valid images.

    Valid images are those that the model classifies correctly before the attack.

    Args:
        true_cams: maps of the true class on the clean image, shape (N, h, w), >= 0.
        true_adv_cams: maps of the true class on the adversarial image, shape (N, h, w), >= 0.
        logits: logits of the clean images, shape (N, K).
        labels: true classes, shape (N,), int64.
        reduction: "mean" or "sum" over the images that count, or "none".

    Returns:
        A cosine, as a scalar. For "none", one value for each image, shape (N,), and NaN where the clean image is
        misclassified or a map is all zero. Unchanged images give 1.

    Raises:
        ValueError: if shapes, types or values are not as described.
    """
    sizes = check_classes(check_logits(logits=logits), labels=labels)
    check({"true_cams": true_cams, "true_adv_cams": true_adv_cams}, "N h w", within=CAMS_WITHIN, sizes=sizes)
    return reduce(nan_where_undefined(_cosine(true_cams, true_adv_cams), logits.argmax(1) == labels), reduction)


def _cosine(cams: Tensor, adv_cams: Tensor) -> Tensor:
    """Return the cosine similarity of each pair of maps. NaN if a map of the pair is all zero.

    Each map is first divided by its maximum, because the squares of small values would underflow.
    """
    pairs = [at_least_float32(maps).flatten(1) for maps in (cams, adv_cams)]
    directions = [maps / maps.amax(1, keepdim=True) for maps in pairs]
    norms = [torch.linalg.vector_norm(maps, dim=1) for maps in directions]
    return (torch.linalg.vecdot(*directions) / (norms[0] * norms[1])).clamp(0, 1)


def _layer(model: nn.Module, layer: str | nn.Module | None) -> nn.Module:
    if isinstance(layer, nn.Module):
        return layer
    if layer is not None:
        try:
            return model.get_submodule(layer)
        except AttributeError as error:
            raise ValueError(f"expected the name of a layer of {type(model).__name__}, got {layer!r}") from error
    known_layer = next(_known_layers(model), None)
    if known_layer is None:
        known = ", ".join(LAYERS)
        raise ValueError(
            f"no default layer is known for {type(model).__name__}, only for {known}; give the name of a layer "
            "as `layer`"
        )
    return known_layer


def _layout(model: nn.Module, layout: Layout | None) -> Layout | None:
    check_choice("layout", layout, (None, "maps", "maps-last", "tokens"))
    if layout is None and any(type(part).__name__ in CHANNELS_LAST for part in model.modules()):
        return "maps-last"
    return layout


def _known_layers(model: nn.Module) -> Iterator[nn.Module]:
    for part in model.modules():
        for path in LAYERS.get(type(part).__name__, ()):
            module: Any = part
            for name in path.split("."):
                container = isinstance(module, nn.Sequential) and name.startswith("-")
                module = module[int(name)] if container else getattr(module, name, None)
            if isinstance(module, nn.Module):
                yield module


def _gradients(
    model: nn.Module, module: nn.Module, inputs: Tensor, classes: Tensor, score: str
) -> tuple[Tensor, list[Tensor]]:
    """Return the output of a layer, and the gradients of the class scores with respect to this output.

    There is one gradient for each column of `classes`. If the model runs the layer on parts of the batch, the outputs
    are joined. If the layer runs twice for each image, for example with shared weights, the last run counts.
    """
    caught: list[Tensor] = []

    def catch(_module: nn.Module, _inputs: Any, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            raise ValueError(f"expected a layer whose output is a tensor, got {type(output).__name__}")
        caught.append(output.detach().requires_grad_())
        return caught[-1].clone()  # what follows may work in place

    handle = module.register_forward_hook(catch)
    try:
        with torch.enable_grad():
            logits = model(inputs)
    finally:
        handle.remove()
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not caught:
        raise ValueError("expected a model that runs the chosen layer and returns logits of shape (N, K)")
    if len(classes) and int(classes.max()) >= logits.shape[1]:
        raise ValueError(f"expected classes below {logits.shape[1]}, got {int(classes.max())}")
    if len(caught[-1]) == len(logits):
        del caught[:-1]
    passes = sum(map(len, caught))
    if passes != len(logits):
        raise ValueError(f"expected a layer that sees each of {len(logits)} images once, got {passes} outputs")
    with torch.enable_grad():
        scores = (logits if score == "logit" else logits.softmax(1)).gather(1, classes).sum(0)
        gradients = [_gradient(each, caught, keep=place + 1 < len(scores)) for place, each in enumerate(scores)]
    return torch.cat(caught).detach(), gradients


def _gradient(score: Tensor, outputs: list[Tensor], *, keep: bool) -> Tensor:
    gradients: tuple[Tensor | None, ...] = (None,)
    if score.requires_grad:
        gradients = torch.autograd.grad(score, outputs, retain_graph=keep, allow_unused=True)
    known = [gradient for gradient in gradients if gradient is not None]
    if len(known) < len(outputs):
        raise ValueError("the class scores do not depend on the output of the layer; choose another layer")
    return torch.cat(known)


def _maps_of_each(activations: Tensor, gradients: Sequence[Tensor], layout: Layout | None) -> Tensor:
    """Return the Grad-CAM maps for each gradient, shape (N, M, h, w)."""
    return torch.stack([_maps(activations, gradient, layout) for gradient in gradients], 1)


def _maps(activations: Tensor, gradient: Tensor, layout: Layout | None) -> Tensor:
    activations, gradient = (at_least_float32(_channels_first(values, layout)) for values in (activations, gradient))
    return torch.einsum("nchw,nc->nhw", activations, gradient.mean((2, 3))).relu()


def _channels_first(values: Tensor, layout: Layout | None) -> Tensor:
    if values.ndim == 3 and layout in (None, "tokens", "maps-last"):
        side = isqrt(values.shape[1])
        if values.shape[1] - side**2 not in (0, 1):
            raise ValueError(
                f"expected a square number of tokens, or one more with a class token, got {values.shape[1]}"
            )
        return values[:, -(side**2) :].transpose(1, 2).unflatten(2, (side, side))
    if values.ndim != 4 or layout == "tokens":
        raise ValueError(f"expected a layer whose output is maps or tokens, got shape {tuple(values.shape)}")
    return values.permute(0, 3, 1, 2) if layout == "maps-last" else values
