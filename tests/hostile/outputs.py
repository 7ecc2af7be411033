"""Models of two classes that give something else than what they say, or than what they are asked for.

Each is made around an honest logit w.x + b of class 1, shape (N,).
"""

import torch
from torch import nn


class _Around(nn.Module):
    def __init__(self, honest):
        super().__init__()
        self.honest = honest
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        return self.answer(self.honest(inputs))


def pair(z):
    """Two logits of one."""
    return torch.stack([-z / 2, z / 2], 1)


class SaturatedLogits(_Around):
    """Logits so large that the cross-entropy has no gradient."""

    def answer(self, z):
        return pair(1e4 * z)


class SoftmaxSaidLogits(_Around):
    """Says that its probabilities are logits."""

    outputs = "logits"

    def answer(self, z):
        return pair(z).softmax(1)


class SaturatedSoftmax(_Around):
    """Probabilities that are 0 and 1, without a gradient."""

    def answer(self, z):
        return pair(1e4 * z).softmax(1)


class ProbabilitySaidLogit(_Around):
    """Says that the probability of class 1 is its logit: it is never negative."""

    outputs = "logit"

    def answer(self, z):
        return z.sigmoid()


class LogitSaidProbability(_Around):
    """Says that a logit is a probability."""

    outputs = "probability"

    def answer(self, z):
        return z[:, None]


class LogitsSaidLogit(_Around):
    """Says that it gives one logit, and gives two."""

    outputs = "logit"

    def answer(self, z):
        return pair(z)


class LogitUnsaid(_Around):
    """Gives one logit and says nothing."""

    def answer(self, z):
        return z[:, None]


class ProbabilitiesAtFirst(_Around):
    """Gives probabilities the first time, logits from then on."""

    def answer(self, z):
        return pair(z).softmax(1) if self.calls == 1 else pair(z)


class RoundedLogits(_Around):
    """Rounds its logits, so that they have no gradient."""

    def answer(self, z):
        return pair(z.sign() * z.abs().ceil())


class HiddenGradient(_Around):
    """Gives logits without a gradient and adds one of the wrong sign."""

    def answer(self, z):
        return pair(2 * z.detach() - z)


class OtherOrder(_Around):
    """Gives its two classes in the other order."""

    def answer(self, z):
        return pair(z).flip(1)


class OneClass(_Around):
    """Gives every image one class."""

    def answer(self, z):
        return pair(z.abs() + 1)


class ThirdClass(_Around):
    """Has a third class that nothing is of, which wins wherever it is not sure."""

    def answer(self, z):
        return torch.cat([pair(z), (0.4 - z.abs())[:, None]], 1)


class NotANumberWhereUnsure(_Around):
    """Gives no number where it is not sure."""

    def answer(self, z):
        return pair(z.where(z.abs() > 0.3, torch.nan))


PROGRAMS = {kind.__name__: kind for kind in _Around.__subclasses__()}
