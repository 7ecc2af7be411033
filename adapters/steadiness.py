"""Does the model predict the same of the same image, whatever it is asked about beside it, and asked again?"""

import torch
from torch import Tensor

from .classifier import Classifier
from .judge import fooled
from .seeding import seeded

TOLERANCE = 1e-2  # relative to the largest logit: what another batch may change (TF32, half precision)
NOISE = 8 / 255  # of the images that are not clean
DRAWS = 8
_SIZES = (1, 7, 64, 2, 3, 33, 5, 16)  # of the batches that the draws are asked in


def is_steady(classifier: Classifier, inputs: Tensor, logits: Tensor, seed: int) -> bool:
    """Whether two images, clean and under noise, get the same logits alone, in another batch, and asked again.

    Known of a classifier once it was found out: it costs seven forward passes.

    Args:
        classifier: the model.
        inputs: clean images, shape (N, C, H, W).
        logits: what is known of them, shape (N, K).
        seed: of what the model draws.
    """
    if classifier.steady is None:
        noise = torch.rand(inputs[:2].shape, generator=torch.Generator().manual_seed(0)).to(inputs)
        images = torch.cat([inputs[:2], (inputs[:2] + NOISE * (2 * noise - 1)).clamp(0, 1)]).flip(0)
        with seeded(seed):
            together = classifier.predict_logits(images)
            alone = classifier.predict_logits(images[[0, -1]], batch_size=1)
        expected = torch.cat([logits[:2].flip(0), together[[0, -1]]])
        classifier.steady = _agree(torch.cat([together[len(images) // 2 :], alone]), expected)
    return classifier.steady


def find_unstable(
    classifier: Classifier,
    inputs: Tensor,
    adv_inputs: Tensor,
    labels: Tensor,
    targets: Tensor | None,
    hit: Tensor,
    seed: int,
) -> Tensor:
    """Images of an unsteady model of which it says now this, now that, shape (N,) bool.

    Each clean image and each example is asked about `DRAWS` times, in another order and in batches of another size
    every time. An image is stable if the clean one is right every time, and the example fools every time or never, as
    it was first judged (`hit`).
    """
    unstable = torch.zeros_like(hit)
    generator = torch.Generator().manual_seed(seed)
    with seeded(seed):
        for size in _SIZES[:DRAWS]:
            order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
            back = order.argsort()
            clean, adv = (
                classifier.predict_logits(images[order], batch_size=size)[back] for images in (inputs, adv_inputs)
            )
            unstable |= (clean.argmax(1) != labels) | (fooled(adv, labels, targets) != hit)
    return unstable


def _agree(logits: Tensor, expected: Tensor) -> bool:
    scale = expected.abs().amax(1, keepdim=True)
    close = (logits - expected).abs() <= TOLERANCE * scale
    return bool((close | (~torch.isfinite(logits) & ~torch.isfinite(expected))).all())
