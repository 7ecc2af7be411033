"""Starting points of decision-based attacks. They follow from the seed and are the same for every library."""

import torch
from torch import Tensor

from ..criterion import is_fooled
from .queries import QueryCounter

DRAWS = 100
BISECTIONS = 10


@torch.no_grad()
def find_starting_points(
    counter: QueryCounter, inputs: Tensor, labels: Tensor, targets: Tensor | None, seed: int
) -> tuple[Tensor, Tensor]:
    """Find an adversarial image for each clean image, and move it towards the clean image by bisection.

    Uniform noise images are drawn until one is misclassified, or classified as the target. If this fails, the other
    images of the batch are tried. Every query is counted, including those of the bisection.

    Args:
        counter: the model.
        inputs: clean images, shape (N, C, H, W).
        labels: labels of the images, shape (N,).
        targets: target classes, shape (N,). None for an untargeted attack.
        seed: random seed of the noise. Each image has its own random stream.

    Returns:
        The starting points, shape (N, C, H, W), and whether each was found, shape (N,), bool. An image without a
        starting point gets the clean image.
    """
    starts = inputs.clone()
    has_start = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    generators = [torch.Generator().manual_seed(seed + i) for i in range(len(inputs))]

    def try_candidates(candidates: Tensor, owners: Tensor) -> None:
        wanted = None if targets is None else targets[owners]
        hit = is_fooled(counter.query(candidates, owners), labels[owners], wanted)
        starts[owners[hit]] = candidates[hit]
        has_start[owners[hit]] = True

    for _ in range(DRAWS):
        missing = (~has_start).nonzero()[:, 0]
        if not len(missing):
            break
        streams = (generators[i] for i in missing.tolist())
        noise = torch.stack([torch.rand(inputs.shape[1:], generator=each, device="cpu") for each in streams])
        try_candidates(noise.to(inputs), missing)
    for other in range(len(inputs)):
        missing = (~has_start).nonzero()[:, 0]
        missing = missing[missing != other]
        if len(missing):
            try_candidates(inputs[other].expand(len(missing), *inputs.shape[1:]), missing)
    return _bisect(counter, inputs, starts, labels, targets, has_start), has_start


def _bisect(
    counter: QueryCounter, inputs: Tensor, starts: Tensor, labels: Tensor, targets: Tensor | None, has_start: Tensor
) -> Tensor:
    low, high = torch.zeros(len(inputs), device=inputs.device), torch.ones(len(inputs), device=inputs.device)
    rows = has_start.nonzero()[:, 0]
    if not len(rows):
        return starts
    wanted = None if targets is None else targets[rows]
    for _ in range(BISECTIONS):
        middle = ((low + high) / 2)[rows].view(-1, 1, 1, 1)
        blend = inputs[rows] + middle * (starts[rows] - inputs[rows])
        hit = is_fooled(counter.query(blend, rows), labels[rows], wanted)
        high[rows] = middle.flatten().where(hit, high[rows])
        low[rows] = middle.flatten().where(~hit, low[rows])
    blended = inputs + high.view(-1, 1, 1, 1) * (starts - inputs)
    return starts.where((high == 1).view(-1, 1, 1, 1), blended)
