"""SSAH: changes the high frequencies of an image such that its features become similar to those of another image."""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, cosine_similarity, normalize, smooth_l1_loss

from .features import Features
from .queries import Model

_INSIDE = 3e-7  # distance from black and white, where tanh would need infinity
_POOLED = 4  # pixels per number of Haar's low band


def ssah(
    model: Model,
    inputs: Tensor,
    labels: Tensor,  # noqa: ARG001 - every attack takes them; this one asks for features alone
    *,
    steps: int = 150,
    learning_rate: float = 0.001,
    low_frequency: float = 0.1,
    margin: float = 0.2,
) -> Tensor:
    """Run SSAH (Luo et al. 2022): move an image's features towards those of the least similar image of the batch.

    Let a be the cosine similarity between the features of the adversarial image and of its clean image. Let b be the
    similarity between the adversarial image and that clean image of the batch which is least similar to it. The first
    term of the loss is the positive part of max(a - m, 0) a - max(1 + m - b, 0) b, where the factors max(...) are
    treated as constants. The second term is `low_frequency` times the smooth l1 distance of the low bands of the Haar
    wavelet (averages of 2 x 2 pixels, each counted four times). Adam optimises a variable that tanh maps to pixels.

    The result for an image depends on the other images of the batch. If the batch has only one image, its least similar
    image is the image itself. The features are defined by `Features`.

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: clean images in [0, 1], shape (n, C, H, W), of at least 2 x 2 pixels.
        labels: not used. The attack needs only the features of the images.
        steps: number of steps of Adam.
        learning_rate: learning rate of Adam.
        low_frequency: weight of the second term, lambda in the paper. With 0, the attack is the paper's SSA.
        margin: m in the paper and above.

    Returns:
        The last iterate of each image, shape (n, C, H, W).
    """
    rows = torch.arange(len(inputs), device=inputs.device)
    variable = (inputs * (2 - 2 * _INSIDE) - 1 + _INSIDE).atanh().requires_grad_()
    optimiser = torch.optim.Adam([variable], lr=learning_rate)
    low = avg_pool2d(inputs, 2)
    with Features(model) as features:
        with torch.no_grad():
            clean, _ = features.of(inputs, rows)
        other = torch.zeros_like(clean)
        for step in range(steps):
            points = (variable.tanh() + 1) / 2
            now, answered = features.of(points, rows)
            if step == 0:
                similarity = normalize(now.detach(), dim=1) @ normalize(clean, dim=1).T
                other = clean[similarity.argmin(1)]
            towards, away = cosine_similarity(now, clean), cosine_similarity(now, other)
            pull = (towards.detach() - margin).clamp(min=0) * towards
            push = (1 + margin - away.detach()).clamp(min=0) * away
            band = smooth_l1_loss(avg_pool2d(points, 2), low, reduction="none").flatten(1).sum(1)
            loss = (pull - push).clamp(min=0) + _POOLED * low_frequency * band
            optimiser.zero_grad()
            loss[answered].sum().backward()
            optimiser.step()
    return (variable.detach().tanh() + 1) / 2
