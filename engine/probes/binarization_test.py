"""An attack tested on a model with a planted adversarial example (Zimmermann et al. 2022, the binarization test).

For each image the last linear layer is replaced by a read-out of two classes, linear in the same features: "inner" for
the image and random points well inside the ball, "planted" for one random point on the ball's boundary. An adversarial
example is thus known to exist; an attack that misses it says nothing when it fails on the model itself.

Departures from the authors' code: 32 inner points on few images, since it has to run beside an evaluation; the read-out
is the least-squares interpolation of the features (a closed form, exact where there are more features than points)
instead of an unregularised logistic regression; the random attack draws 32 points, half on the ball's surface and half
in its corners (linf). An image where that finds the planted class is left out: finding it would prove nothing, which is
why the authors report the random attack's success rate beside the attack's.
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

INNER = 32  # points of the class "inner", the image among them
GAP = 0.95  # radius of the inner points relative to the ball's: the authors' relative_inner_boundary_gap of 0.05
CLOSENESS = 0.9  # how far the boundary is moved from the middle to the planted point, as the authors do it
CHANCE = 32  # fresh random points that must not be taken for planted ones
_FEWEST_FEATURES = 8


class BinarizedClassifier(nn.Module):
    """A classifier with a read-out of two classes, inner (0) and planted (1), in place of its last linear layer.

    Args:
        classifier: takes images in [0, 1].
        layer: its last linear layer, whose input is read.
        weight: shape (D,).
        bias: of the read-out.
    """

    weight: Tensor

    def __init__(self, classifier: Classifier, layer: nn.Linear, weight: Tensor, bias: float):
        super().__init__()
        self.classifier, self.layer, self.bias = classifier, layer, bias
        self.register_buffer("weight", weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of both classes, shape (N, 2): -0.05 and 0.05 on the planted point, 0.95 and -0.95 inside."""
        score = read_features(self.classifier, self.layer, inputs) @ self.weight + self.bias
        return torch.stack([-score / 2, score / 2], 1)


def last_linear_layer(classifier: Classifier) -> nn.Linear:
    """The last linear layer, if its outputs are the classes.

    Raises:
        Unsupported: if there is none, or too few features go into it.
    """
    if runs_in_process(classifier):
        raise Unsupported("the model's layers are in a process of their own; --isolate no runs it here")
    layers = [part for part in classifier.modules() if isinstance(part, nn.Linear)]
    if not layers or layers[-1].out_features != classifier.num_classes:
        raise Unsupported("the model does not end in a linear layer that could be replaced")
    if layers[-1].in_features < _FEWEST_FEATURES:
        raise Unsupported(f"the last layer has {layers[-1].in_features} features, too few to plant an example")
    return layers[-1]


def read_features(classifier: Classifier, layer: nn.Linear, inputs: Tensor) -> Tensor:
    """What goes into a layer, float32, shape (N, D).

    Raises:
        Unsupported: if that is not one vector for each image.
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
    """A model around one image with an adversarial example that is known.

    Args:
        classifier: the model.
        image: in [0, 1], shape (C, H, W).
        norm: of the ball.
        radius: of the ball.
        seed: random seed of every random point.

    Returns:
        "classifier": the two-class classifier; "example": the planted point, (C, H, W); "separable": whether the
        read-out tells it from the inner points; "easy": whether random points are taken for planted ones, too.

    Raises:
        Unsupported: if the model has no features that a read-out can be put on.
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
    """The smallest read-out that gives -1 on all rows but the last, and 1 on that one; then moved by CLOSENESS."""
    points = features.double().cpu()
    centre = points[:-1].mean(0)
    wanted = torch.cat([torch.zeros(len(points) - 1), torch.full((1,), 2.0)]).double()
    weight = torch.linalg.pinv(points - centre, rtol=1e-10) @ wanted
    return weight.float(), float(-1 - CLOSENESS - centre @ weight)


def random_points(
    image: Tensor, norm: Norm, radius: float, count: int, generator: torch.Generator, *, corners: bool = False
) -> Tensor:
    """Random images at a distance from one image, in [0, 1].

    Before they are clipped to [0, 1] their distance is the radius: linf uniform in the cube with one component at its
    face (or all of them, in the corners), l2 a random direction, l1 Laplace's distribution, which is uniform on the
    sphere, l0 that many random components at random values.

    Args:
        image: shape (C, H, W).
        norm: linf, l2, l1 or l0.
        radius: the distance.
        count: how many.
        generator: of the random numbers, on the CPU.
        corners: linf only: every component at the face of the cube.

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
