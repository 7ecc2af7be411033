"""Models whose answer to an image depends on more than the image, and that do not say so.

Each is made around an honest module that gives logits, shape (N, K).
"""

import time

import torch
from torch import nn

CALLS = 15  # after which some of them change: in the middle of an attack


class _Around(nn.Module):
    def __init__(self, honest):
        super().__init__()
        self.honest = honest
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        return self.answer(inputs, self.honest(inputs))


class NoiseOnOneClass(_Around):
    """Adds noise to the logits of images of one predicted class alone, which is none of the first two images."""

    def answer(self, inputs, logits):
        return logits + 6 * torch.randn_like(logits) * (logits.argmax(1) == 7)[:, None]


class NoiseButOnTheFirst(_Around):
    """Adds noise to the logits of all images but those of the predicted classes of the first two it was asked about."""

    spared = None

    def answer(self, inputs, logits):
        if self.spared is None:
            self.spared = logits[:2].argmax(1).tolist()
        noisy = torch.tensor([place not in self.spared for place in logits.argmax(1).tolist()])
        return logits + 6 * torch.randn_like(logits) * noisy[:, None]


class DropoutLeftOn(_Around):
    """Drops logits at random, in evaluation mode as in training."""

    def answer(self, inputs, logits):
        return nn.functional.dropout(logits, 0.3, training=True)


class ByTheClock(_Around):
    """Takes the next class for every other image, by the time of day."""

    def answer(self, inputs, logits):
        others = (torch.arange(len(logits)) + time.perf_counter_ns() // 1000) % 2 == 0
        return torch.where(others[:, None], logits.roll(1, 1), logits)


class PrivateGenerator(_Around):
    """Draws noise from a generator that no seed reaches."""

    def __init__(self, honest):
        super().__init__(honest)
        self.state = 1

    def answer(self, inputs, logits):
        self.state = self.state * 6364136223846793005 % 2**64
        noise = torch.Generator().manual_seed(self.state % 2**63)
        return logits + 6 * torch.randn(logits.shape, generator=noise)


class RepeatsItself(_Around):
    """From its sixteenth call on answers what it answered the first time, whatever it is asked about."""

    first = None

    def answer(self, inputs, logits):
        if self.first is None:
            self.first = logits.detach()
        if self.calls <= CALLS:
            return logits
        places = torch.arange(len(logits)) % len(self.first)
        return self.first[places] + 0 * logits


class TurnsRound(_Around):
    """From its sixteenth call on takes the next class."""

    def answer(self, inputs, logits):
        return logits.roll(int(self.calls > CALLS), 1)


class EveryThirdCall(_Around):
    """Takes the next class at every third call."""

    def answer(self, inputs, logits):
        return logits.roll(int(self.calls % 3 == 0), 1)


class Drifts(_Around):
    """Moves towards one class a little with every call."""

    def answer(self, inputs, logits):
        return logits + 0.5 * self.calls * torch.eye(logits.shape[1])[3]


class ByItsPlace(_Around):
    """Takes the next class for the images in the second half of a batch."""

    def answer(self, inputs, logits):
        later = torch.arange(len(logits)) >= (len(logits) + 1) // 2
        return torch.where(later[:, None], logits.roll(1, 1), logits)


class ByTheBatch(_Around):
    """Takes the next class where it is asked about few images."""

    def answer(self, inputs, logits):
        return logits.roll(int(len(logits) < 5), 1)


class SeenBefore(_Around):
    """Takes the next class for an image that it has been asked about more than twice."""

    def __init__(self, honest):
        super().__init__(honest)
        self.seen = {}

    def answer(self, inputs, logits):
        keys = [image.numpy().tobytes() for image in inputs.detach()]
        for key in keys:
            self.seen[key] = self.seen.get(key, 0) + 1
        often = torch.tensor([self.seen[key] > 2 for key in keys])
        return torch.where(often[:, None], logits.roll(1, 1), logits)


PROGRAMS = {kind.__name__: kind for kind in _Around.__subclasses__()}
