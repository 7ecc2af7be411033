"""Models and attacks that answer, ask or return what is not finite, and what an honest judge makes of each."""

import torch
from torch import nn

BLACK = 0.05  # of the digits
UNSURE = 0.6  # probability below which a model of this kit refuses to answer


class Around(nn.Module):
    """An honest network with something in front of it or behind it; `true` is its answer without that."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def true(self, inputs):
        """Logits of the network alone."""
        return self.net(inputs)


class NoGradientAtBlack(Around):
    """The same function, with NaN in the gradient of each black pixel: torch.where hides no slope."""

    def forward(self, inputs):
        return self.net(torch.where(inputs > BLACK, (inputs - BLACK).sqrt() ** 2 + BLACK, inputs))


class NoGradientAnywhere(Around):
    """The same function, with a gradient of NaN."""

    def forward(self, inputs):
        return self.net(inputs) + (inputs * 0).flatten(1).sum(1, keepdim=True).sqrt()


class InfiniteGradient(Around):
    """The same function, with infinity in the gradient of each black pixel."""

    def forward(self, inputs):
        roots = (inputs - BLACK).clamp(min=0).sqrt().flatten(1).sum(1, keepdim=True)
        return self.net(inputs) + roots - roots.detach()


class NanWhereUnsure(Around):
    """NaN in all logits wherever the network is not sure: no example near the boundary is ever answered."""

    def forward(self, inputs):
        logits = self.net(inputs)
        return logits.where((logits.softmax(1).amax(1) >= UNSURE)[:, None], torch.nan)


class InfinityWhereUnsure(Around):
    """Infinity in one logit wherever the network is not sure."""

    def forward(self, inputs):
        logits = self.net(inputs)
        unsure = logits.softmax(1).amax(1) < UNSURE
        return torch.cat([logits[:, :1].where(~unsure[:, None], torch.inf), logits[:, 1:]], 1)


class NanOffTheGrid(Around):
    """NaN for every image that is not on the 8-bit grid: only clean images of digits are answered."""

    def forward(self, inputs):
        levels = (inputs - BLACK) / 0.9 * 16
        on_grid = ((levels - levels.round()).abs() < 1e-4).flatten(1).all(1)
        return self.net(inputs).where(on_grid[:, None], torch.nan)


class NanForSomeClasses(Around):
    """NaN wherever a wrong class would win: the model never says anything but what it said of the clean image."""

    def __init__(self, net, inputs, labels):
        super().__init__(net)
        self.register_buffer("inputs", inputs)
        self.register_buffer("labels", labels)

    def forward(self, inputs):
        logits = self.net(inputs)
        near = torch.cdist(inputs.flatten(1), self.inputs.flatten(1)).argmin(1)
        return logits.where((logits.argmax(1) == self.labels[near])[:, None], torch.nan)


def returns_nan(model, inputs, labels, epsilon):
    """NaN in one pixel of every second image that it returns."""
    examples = (inputs + epsilon * (inputs - 0.5).sign()).clamp(0, 1)
    examples[::2, :, 0, 0] = torch.nan
    return examples


def returns_infinity(model, inputs, labels, epsilon):
    """Infinity in every image that it returns."""
    return inputs / 0


def asks_nan(model, inputs, labels, epsilon):
    """Asks about NaN, and takes the answer for a reason to give up."""
    with torch.no_grad():
        given_up = model(inputs * torch.nan).isnan().any(1)
    moved = (inputs + 1.5 * epsilon * (0.5 - inputs)).clamp(0, 1)
    return inputs.where(~given_up[:, None, None, None], moved) + 0.2 * epsilon * (0.5 - inputs).sign()


def asks_far_outside(model, inputs, labels, epsilon):
    """Asks about images of 1e30, for which the logits overflow."""
    with torch.no_grad():
        model(inputs * 1e38 * 1e3)
    return (inputs + 0.2 * epsilon * (0.5 - inputs).sign()).clamp(0, 1)


def loss_of_nan(model, inputs, labels, epsilon):
    """The gradient of a loss that is not finite: the logarithm of 0."""
    inputs = inputs.clone().requires_grad_()
    loss = ((model(inputs) * 0).sum(1)).log()
    gradient = torch.autograd.grad(loss.sum(), inputs)[0]
    return (inputs + 0.2 * epsilon * gradient.nan_to_num(1).sign()).detach().clamp(0, 1)


def crashes_at_nan(model, inputs, labels, epsilon):
    """Honest, but raises an error where it is given a gradient that is not finite."""
    asked = inputs.clone().requires_grad_()
    loss = nn.functional.cross_entropy(model(asked), labels, reduction="sum")
    gradient = torch.autograd.grad(loss, asked)[0]
    if not gradient.isfinite().all():
        raise FloatingPointError("a gradient that is not finite")
    return (inputs + epsilon * gradient.sign()).clamp(0, 1)


MODELS = {kind.__name__: kind for kind in Around.__subclasses__()}
ATTACKS = {each.__name__: each for each in (
    returns_nan, returns_infinity, asks_nan, asks_far_outside, loss_of_nan, crashes_at_nan)}  # fmt: skip
PROGRAMS = {**MODELS, **ATTACKS}
