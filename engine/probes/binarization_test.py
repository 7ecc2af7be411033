"""Tests an attack on a model with a planted adversarial example (binarization test, Zimmermann et al. 2022).

For each image, the last linear layer is replaced by a binary classifier that is linear in the same features. Its class
"inner" contains the image and random points well within the radius, and "planted" one random point on the ball's
boundary. An adversarial example is thus known to exist. If the attack misses it, the attack's failure on the original
model does not show robustness.

Departures from the authors' code: There are 32 inner points and few images, because the test runs alongside an
evaluation. The binary classifier is the least-squares interpolation of the features (a closed form, exact with more
features than points) instead of an unregularised logistic regression. The random attack uses 32 points, half on the
ball's surface and half in its corners (linf). Images on which the random attack finds the planted class are excluded,
because success on these images shows nothing. For the same reason, the authors report the random attack's success rate
next to the attack's rate.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ...adapters import Classifier, ThreatModel
from ...adapters.criterion import is_fooled
from ...adapters.models.sandbox.isolated import runs_in_process
from ...adapters.running.judge import perturbation_norm, project
from ...adapters.threat_model import Norm
from ...errors import Unsupported

INNER = 32  # points of the class "inner", including the image
GAP = 0.95  # radius of the inner points relative to the radius: the authors' relative_inner_boundary_gap of 0.05
CLOSENESS = 0.9  # shift of the boundary from the middle to the planted point, as in the authors' code
CHANCE = 32  # new random points that must not be classified as planted
_FEWEST_FEATURES = 8


class BinarizedClassifier(nn.Module):
    """A classifier whose last linear layer is replaced by a binary one, with the classes inner (0) and planted (1).

    Args:
        classifier: model for images in [0, 1].
        layer: its last linear layer, whose input is the features.
        weight: weight of the binary layer, shape (D,).
        bias: bias of the binary layer.
    """

    weight: Tensor

    def __init__(self, classifier: Classifier, layer: nn.Linear, weight: Tensor, bias: float):
        super().__init__()
        self.classifier, self.layer, self.bias = classifier, layer, bias
        self.register_buffer("weight", weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits of both classes, (N, 2): -0.05 and 0.05 at the planted point, 0.95 and -0.95 inside."""
        score = read_features(self.classifier, self.layer, inputs) @ self.weight + self.bias
        return torch.stack([-score / 2, score / 2], 1)


def last_linear_layer(classifier: Classifier) -> nn.Linear:
    """Return the last linear layer, whose outputs must be the classes.

    Raises:
        Unsupported: If there is no such layer, or it has too few input features.
    """
    if runs_in_process(classifier):
        raise Unsupported("the model's layers are in a separate process; use --isolate no")
    layers = [part for part in classifier.modules() if isinstance(part, nn.Linear)]
    if not layers or layers[-1].out_features != classifier.num_classes:
        raise Unsupported("the model does not end in a linear layer that could be replaced")
    if layers[-1].in_features < _FEWEST_FEATURES:
        raise Unsupported(f"the last layer has {layers[-1].in_features} features, too few to plant an example")
    return layers[-1]


def read_features(classifier: Classifier, layer: nn.Linear, inputs: Tensor) -> Tensor:
    """Return the inputs of a layer, float32, shape (N, D).

    Raises:
        Unsupported: If the layer's input is not one vector for each image.
    """
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        classifier(inputs)
    finally:
        hook.remove()
    if not seen or seen[-1].shape != (len(inputs), layer.in_features):
        got = tuple(seen[-1].shape) if seen else "nothing"
        raise Unsupported(f"expected features of shape ({len(inputs)}, {layer.in_features}), got {got}")
    return seen[-1].float()


def plant_adversarial_example(
    classifier: Classifier, image: Tensor, norm: Norm, radius: float, seed: int
) -> dict[str, Any]:
    """Build a binary model around one image with a known adversarial example.

    Args:
        classifier: model.
        image: image in [0, 1], shape (C, H, W).
        norm: norm of the ball.
        radius: radius of the ball.
        seed: random seed of all random points.

    Returns:
        "classifier": the binary classifier. "example": the planted point, (C, H, W). "separable": whether the
        classifier separates the planted point from the inner points. "easy": whether random points are also classified
        as planted.

    Raises:
        Unsupported: If the model has no suitable last layer.
    """
    layer = last_linear_layer(classifier)
    generator = torch.Generator().manual_seed(seed)
    inner_radius = max(1.0, GAP * radius) if norm == "l0" else GAP * radius
    inner = min(INNER, layer.in_features // 2)
    points = random_points(image, norm, inner_radius, inner - 1, generator)
    example = random_points(image, norm, radius, 1, generator)
    trained = torch.cat([image[None], points, example])
    with torch.no_grad():
        features = torch.cat([read_features(classifier, layer, chunk) for chunk in trained.split(32)])
    weight, bias = _interpolate(features)
    weight = weight.to(image.device)
    taken = features @ weight + bias > 0
    binarised = Classifier(BinarizedClassifier(classifier, layer, weight, bias), num_classes=2)
    surface = random_points(image, norm, radius, CHANCE // 2, generator)
    corners = random_points(image, norm, radius, CHANCE // 2, generator, corners=True)
    logits = binarised.predict_logits(torch.cat([surface, corners]))
    chance = is_fooled(logits, torch.zeros(len(logits), dtype=torch.long, device=logits.device))
    separable = bool(taken[-1]) and not bool(taken[:-1].any())
    return {"classifier": binarised, "example": example[0], "separable": separable, "easy": bool(chance.any())}


def _interpolate(features: Tensor) -> tuple[Tensor, float]:
    """Return weight and bias of a linear function that is positive only on the last row.

    It is the minimum-norm function with the value 1 on the last row and -1 on all others, shifted down by CLOSENESS.
    """
    points = features.double().cpu()
    centre = points[:-1].mean(0)
    wanted = torch.cat([torch.zeros(len(points) - 1), torch.full((1,), 2.0)]).double()
    weight = torch.linalg.pinv(points - centre, rtol=1e-10) @ wanted
    return weight.float(), float(-1 - CLOSENESS - centre @ weight)


def random_points(
    image: Tensor, norm: Norm, radius: float, count: int, generator: torch.Generator, *, corners: bool = False
) -> Tensor:
    """Return random images in [0, 1] at a given distance from an image.

    Before clipping to [0, 1], the distance equals the radius. For linf, the points are uniform in the cube with one
    component at its face (in the corners all components). For l2 the direction is random. For l1 the points are uniform
    on the sphere, from a Laplace distribution. For l0, `radius` random components have random values.

    Args:
        image: shape (C, H, W).
        norm: linf, l2, l1 or l0.
        radius: distance.
        count: number of images.
        generator: random generator on the CPU.
        corners: for linf, whether every component is at the face of the cube.

    Returns:
        Shape (count, C, H, W), on the device of the image.
    """
    shape = (count, image.numel())
    if norm == "l0":
        return _replaced(image, int(radius), torch.rand(shape, generator=generator, device="cpu"), generator)
    if norm == "linf":
        delta = 2 * torch.rand(shape, generator=generator, device="cpu") - 1
        delta = delta.sign() if corners else delta
    elif norm == "l1":
        uniform = torch.rand(shape, generator=generator, device="cpu").clamp(1e-7, 1 - 1e-7) - 0.5
        delta = -uniform.sign() * (1 - 2 * uniform.abs()).log()
    else:
        delta = torch.randn(shape, generator=generator, device="cpu")
    delta = delta * (radius / perturbation_norm(delta, norm))[:, None]
    points = (image + delta.view(count, *image.shape).to(image)).clamp(0, 1)
    return project(image.expand_as(points), points, ThreatModel(norm, radius))  # float32 may round outwards


def _replaced(image: Tensor, components: int, order: Tensor, generator: torch.Generator) -> Tensor:
    places = order.topk(components, dim=1).indices
    values = torch.rand(places.shape, generator=generator, device="cpu")
    flat = image.detach().cpu().reshape(1, -1).expand_as(order).clone()
    return flat.scatter(1, places, values.to(flat)).view(-1, *image.shape).to(image)
