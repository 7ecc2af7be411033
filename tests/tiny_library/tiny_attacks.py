"""The library itself, which knows nothing of davylamp: plain PGD in linf, and random corners of the ball."""

import torch

__version__ = "0.1"


def pgd(model, images, labels, eps, n_steps=10, lr=None, maximise=True):
    """Projected gradient ascent on the cross-entropy (descent towards `labels` unless `maximise`)."""
    lr = eps / 4 if lr is None else lr
    adv = images.clone()
    for _ in range(n_steps):
        adv.requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(model(adv), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, adv)
        adv = adv.detach() + (lr if maximise else -lr) * gradient.sign()
        adv = (images + (adv - images).clamp(-eps, eps)).clamp(0, 1)
    return adv


class Corners:
    """Asks about random corners of the ball and keeps the one with the lowest score of the label."""

    def __init__(self, tries=20):
        self.tries = tries

    def attack(self, model, images, labels, eps):
        best, lowest = images.clone(), torch.full((len(images),), float("inf"))
        for _ in range(self.tries):
            corners = (images + eps * torch.randn_like(images).sign()).clamp(0, 1)
            scores = model(corners).detach().gather(1, labels[:, None])[:, 0]
            better = scores < lowest
            best[better], lowest[better] = corners[better], scores[better]
        return best
