"""Attacks of users, honest and not."""

import torch
from torch.nn.functional import cross_entropy


def honest(model, inputs, labels, epsilon):
    """One step along the sign of the gradient."""
    asked = inputs.clone().requires_grad_()
    gradient = torch.autograd.grad(cross_entropy(model(asked), labels, reduction="sum"), asked)[0]
    return (inputs + epsilon * gradient.sign()).clamp(0, 1)


def too_far(model, inputs, labels, epsilon):
    """Every second image lies outside the ball."""
    examples = honest(model, inputs, labels, epsilon)
    examples[::2] = (inputs[::2] + 3 * (examples[::2] - inputs[::2])).clamp(0, 1)
    return examples


def returns_nan(model, inputs, labels, epsilon):
    """NaN in one pixel of every third image."""
    examples = honest(model, inputs, labels, epsilon)
    examples[::3, :, 0, 0] = torch.nan
    return examples


def crashes(model, inputs, labels, epsilon):
    """An error each time."""
    raise ArithmeticError("an attack that cannot")
