"""Attacks and models that cannot be measured as they are: each has to be refused in one line, and blamed on nobody."""

import torch
from torch import nn

from davylamp.errors import Unsupported


def by_functional_gradient(model, inputs, labels, epsilon=0.1):
    """Asks inside `torch.func.grad`, where the counter saw one question or crashed."""
    gradient = torch.func.grad(lambda images: nn.functional.cross_entropy(model(images), labels))(inputs)
    return (inputs + epsilon * gradient.sign()).clamp(0, 1)


def by_vmap(model, inputs, labels, epsilon=0.1):
    """Asks about a whole batch as if it were one image."""
    single = torch.func.grad(lambda image, label: nn.functional.cross_entropy(model(image[None]), label[None]))
    return (inputs + epsilon * torch.func.vmap(single)(inputs, labels).sign()).clamp(0, 1)


def by_reverse_jacobian(model, inputs, labels, epsilon=0.1):
    """Has the gradients of all classes for one backward pass."""
    jacobian = torch.func.jacrev(lambda images: model(images).sum(0))(inputs)
    return (inputs - epsilon * jacobian[int(labels[0])].sign()).clamp(0, 1)


def by_forward_gradient(model, inputs, labels, epsilon=0.1):
    """Takes a directional derivative forwards, with no backward pass to count."""
    _, tangent = torch.func.jvp(model, (inputs,), (torch.ones_like(inputs),))
    return (inputs + epsilon * tangent.mean(1).sign().view(-1, 1, 1, 1)).clamp(0, 1)


def by_vectorised_jacobian(model, inputs, labels, epsilon=0.1):
    """Asks in the ordinary way, and takes the gradients of all classes in one backward pass of a batched gradient."""
    jacobian = torch.autograd.functional.jacobian(lambda images: model(images).sum(0), inputs, vectorize=True)
    return (inputs - epsilon * jacobian[int(labels[0])].sign()).clamp(0, 1)


def says_unsupported(model, inputs, labels, epsilon=0.1):
    """Claims for itself that davylamp cannot run it, after it has asked, so as not to be called weak."""
    model(inputs)
    raise Unsupported("is not for such images")


class WithoutWeights(nn.Linear):
    """Lies on the device meta: a shape without numbers."""

    def __init__(self):
        super().__init__(64, 10, device="meta")

    def forward(self, inputs):
        return super().forward(inputs.flatten(1))


class SaysUnsupported(nn.Module):
    """A model that claims, whenever a gradient is wanted, that the attack cannot be run on it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs):
        if inputs.requires_grad:
            raise Unsupported("foolbox:pgd does not support the norm linf; supported: none")
        return self.layer(inputs.flatten(1))


ATTACKS = {
    each.__name__: each
    for each in (
        by_functional_gradient,
        by_vmap,
        by_reverse_jacobian,
        by_forward_gradient,
        by_vectorised_jacobian,
        says_unsupported,
    )
}
MODELS = {each.__name__: each for each in (WithoutWeights, SaysUnsupported)}
PROGRAMS = {**ATTACKS, **MODELS}
