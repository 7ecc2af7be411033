"""Random points of a ball around an image: what chance finds, and where an example can be planted."""

import torch
from torch import Tensor

from ...adapters import ThreatModel
from ...adapters.running.judge import norm_of, project
from ...adapters.threat_model import Norm


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
    delta = delta * (radius / norm_of(delta, norm))[:, None]
    points = (image + delta.view(count, *image.shape).to(image)).clamp(0, 1)
    return project(image.expand_as(points), points, ThreatModel(norm, radius))  # float32 may round outwards


def _replaced(image: Tensor, components: int, order: Tensor, generator: torch.Generator) -> Tensor:
    places = order.topk(components, dim=1).indices
    values = torch.rand(places.shape, generator=generator, device="cpu")
    flat = image.detach().cpu().reshape(1, -1).expand_as(order).clone()
    return flat.scatter(1, places, values.to(flat)).view(-1, *image.shape).to(image)
