"""SSAH: changes high frequencies so that an image's features become similar to those of a different image."""

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
    """SSAH (Luo et al. 2022): moves an image's features towards those of the least similar image, at high frequencies.

    Let a be the cosine similarity of the features of the adversarial image and its clean image. Let b be the similarity
    of the adversarial image and the clean image of the batch that is least similar to it. The loss is the positive part
    of max(a - m, 0) a - max(1 + m - b, 0) b, in which the max factors are held fixed. `low_frequency` times the smooth
    l1 distance of the low bands of the Haar wavelet is added: the averages of 2 x 2 pixels, each counted four times.
    Adam optimises a variable that tanh maps to pixels.

    The results for the images of a batch depend on each other. If an image is alone, the least similar image is the
    image itself. The features are the input of the model's last linear layer or convolution, averaged over positions
    (`Features`).

    Args:
        model: maps images in [0, 1] to logits, differentiably.
        inputs: clean images in [0, 1], shape (n, C, H, W), of at least 2 x 2 pixels.
        labels: not used, because the attack moves away from the image's features, whatever its class.
        steps: number of steps of Adam.
        learning_rate: learning rate of Adam.
        low_frequency: weight of the low-frequency term, lambda in the paper; 0 for the paper's SSA.
        margin: margin of the loss, m in the paper and above.

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
