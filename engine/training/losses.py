"""Losses of the training methods.

Each method is a generator that yields one or several losses for a batch. After each loss, the training loop makes a
step of the optimiser and then resumes the generator. All generators have the same arguments:

- `student`: the model;
- `inputs`: the images of the batch in [0, 1], shape (N, C, H, W);
- `labels`: the true classes, shape (N,);
- `settings`: the settings of the training;
- `memory`: a dictionary for tensors that a method needs again in later batches. Checkpoints contain the memory.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from ...adapters.models.clamp import clamp_with_edge_gradient
from .inner_maximisation import ascend, initial_perturbation, step_change
from .settings import TrainingSettings
from .student import TrainableModel, evaluating

Memory = dict[str, Any]
Losses = Callable[[TrainableModel, Tensor, Tensor, TrainingSettings, Memory], Iterator[Tensor]]
_AWAY_FROM_0 = 1e-12  # offset in logarithms, as in MART's code
_BELOW_1 = 1.0001


def natural(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the cross-entropy of clean images."""
    del settings, memory
    yield functional.cross_entropy(student(inputs), labels)


def natural_noise(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield a weighted mean of the cross-entropy of clean images and of images with Gaussian noise.

    Source: Zantedeschi et al. 2017. The parameter `clean_share` is the weight of the clean images.
    """
    del memory
    noisy = (inputs + settings["std"] * torch.randn_like(inputs)).clamp(0, 1)
    yield _mixed(student, inputs, noisy, labels, settings)


def fgsm(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield a weighted mean of the cross-entropy of clean images and of FGSM examples.

    Source: Goodfellow et al. 2015, section 6. The parameter `clean_share` is the weight of the clean images.
    """
    del memory
    adv_inputs = _climb(student, inputs, labels, settings, (settings.norm, settings.epsilon, 1, settings.epsilon))
    yield _mixed(student, inputs, adv_inputs, labels, settings)


def least_likely(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield a weighted mean of the cross-entropy of clean images and of examples made for the least likely class.

    An example is made by one step that lowers the cross-entropy of the least likely class. The radius of each image's
    step is random. Source: Kurakin et al. 2017. The parameter `clean_share` is the weight of the clean images.
    """
    del memory
    radii = torch.empty(len(inputs), 1, 1, 1, device=inputs.device)
    torch.nn.init.trunc_normal_(radii, 0, settings.epsilon / 2, 0, settings.epsilon)
    with evaluating(student):
        leaf = inputs.clone().requires_grad_()
        logits = student(leaf)
        (gradient,) = torch.autograd.grad(functional.cross_entropy(logits, logits.argmin(1)), leaf)
    adv_inputs = (inputs - radii * gradient.sign()).clamp(0, 1)
    yield _mixed(student, inputs, adv_inputs, labels, settings)


def pgd(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the cross-entropy of examples of PGD (Madry et al. 2018).

    If the parameter `clean_share` is above 0, the loss is a weighted mean with the cross-entropy of clean images. With
    one step of PGD, the method is fast adversarial training (FBF, Wong et al. 2020).
    """
    del memory
    adv_inputs = _climb(student, inputs, labels, settings, settings.ball)
    yield _mixed(student, inputs, adv_inputs, labels, settings)


def logit_pairing(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the loss of adversarial logit pairing (Kannan et al. 2018).

    The loss is a weighted mean of the cross-entropy of clean images and of PGD examples, plus `beta` times the mean
    squared difference of their logits. As in the authors' code, the mean is over images and classes.
    """
    del memory
    adv_inputs = _climb(student, inputs, labels, settings, settings.ball)
    clean, changed = student(torch.cat([inputs, adv_inputs])).chunk(2)
    share = settings["clean_share"]
    mixed = share * functional.cross_entropy(clean, labels) + (1 - share) * functional.cross_entropy(changed, labels)
    yield mixed + settings["beta"] * functional.mse_loss(clean, changed)


def trades(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the loss of TRADES (Zhang et al. 2019, equation 5).

    The loss is the cross-entropy of clean images, plus `beta` times the Kullback-Leibler divergence between the outputs
    for clean images and for examples. The examples maximise this divergence.
    """
    del memory
    with evaluating(student):
        clean = student(inputs).softmax(1).detach()
        adv_inputs = ascend(
            inputs,
            initial_perturbation(inputs, settings.norm, settings.epsilon, settings["start"]),
            lambda adv: functional.kl_div(student(adv).log_softmax(1), clean, reduction="sum"),
            settings.ball,
        )
    logits = student(inputs)
    gap = functional.kl_div(student(adv_inputs).log_softmax(1), logits.softmax(1), reduction="batchmean")
    yield functional.cross_entropy(logits, labels) + settings["beta"] * gap


def mart(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the loss of MART (Wang et al. 2020, equation 11).

    The loss is the boosted cross-entropy of PGD examples, plus `beta` times a weighted Kullback-Leibler divergence
    between the outputs for clean images and for examples. The weight of an image is 1 minus the probability of its true
    class.
    """
    del memory
    adv_inputs = _climb(student, inputs, labels, settings, settings.ball)
    logits = student(inputs)
    adv_logits = student(adv_inputs)
    adv_probabilities, probabilities = adv_logits.softmax(1), logits.softmax(1)
    others = adv_probabilities.scatter(1, labels[:, None], -1).amax(1)
    boosted = functional.cross_entropy(adv_logits, labels) - (_BELOW_1 - others + _AWAY_FROM_0).log().mean()
    logarithms = (adv_probabilities + _AWAY_FROM_0).log()
    gaps = functional.kl_div(logarithms, probabilities, reduction="none").sum(1)
    unsure = 1 - probabilities.gather(1, labels[:, None])[:, 0]
    yield boosted + settings["beta"] * (gaps * unsure).mean()


def awp(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the loss of adversarial weight perturbation (AT-AWP, Wu et al. 2020).

    The loss is the cross-entropy of PGD examples at perturbed weights. The weights of each layer are moved along the
    gradient of the loss, by `gamma` times the norm of these weights. The optimiser then applies the gradient at the
    perturbed weights to the original weights.
    """
    del memory
    adv_inputs = _climb(student, inputs, labels, settings, settings.ball)
    weights = {name: p for name, p in student.named_parameters() if p.requires_grad and p.ndim > 1}
    with evaluating(student):  # update running statistics once per batch only
        proxy = functional.cross_entropy(student(adv_inputs), labels)
    gradients = torch.autograd.grad(proxy, list(weights.values()), allow_unused=True)
    moved = {}
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        if gradient is not None:
            length = settings["gamma"] * weight.detach().norm() / gradient.norm().clamp_min(_AWAY_FROM_0)
            moved[name] = weight + length * gradient
    yield functional.cross_entropy(functional_call(student, moved, (adv_inputs,)), labels)


def free(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the losses of free adversarial training (Shafahi et al. 2019).

    Each batch gives `replays` losses. The gradient of each loss updates the weights, and also the perturbation of the
    images. The perturbation is kept for the next batch.
    """
    if "change" not in memory:
        memory["change"] = torch.zeros_like(inputs)
    if len(memory["change"]) < len(inputs):  # a last batch with one extra image
        memory["change"] = torch.cat([memory["change"], torch.zeros_like(inputs[len(memory["change"]) :])])
    for _ in range(settings["replays"]):
        change = memory["change"][: len(inputs)].clone().requires_grad_()
        yield functional.cross_entropy(student(clamp_with_edge_gradient(inputs + change)), labels)
        if change.grad is None:
            raise RuntimeError("expected the training loop to call backward() on each loss")
        memory["change"][: len(inputs)] = step_change(
            change.detach(), change.grad, settings.norm, settings.epsilon, settings["step_size"]
        )


def distillation(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the loss of defensive distillation (Papernot et al. 2016).

    In the first stage, the model learns the labels. In the second stage, a new model learns the outputs of the first
    model, which is the teacher. The logits are divided by the parameter `temperature`, and the loss is multiplied by
    the temperature, so that the learning rates of other methods remain suitable.
    """
    temperature = settings["temperature"]
    logits = student(inputs) / temperature
    if "teacher" not in memory:
        yield temperature * functional.cross_entropy(logits, labels)
        return
    with evaluating(student), torch.no_grad():
        answers = functional_call(student, memory["teacher"], (inputs,)) / temperature
    yield temperature * functional.cross_entropy(logits, answers.softmax(1))


def _climb(
    student: TrainableModel,
    inputs: Tensor,
    labels: Tensor,
    settings: TrainingSettings,
    ball: tuple[str, float, int, float],
) -> Tensor:
    """Return examples of PGD on the cross-entropy, shape (N, C, H, W). The model is in evaluation mode meanwhile."""
    first = initial_perturbation(inputs, settings.norm, settings.epsilon, settings.values.get("start", "none"))
    with evaluating(student):
        return ascend(inputs, first, lambda adv: functional.cross_entropy(student(adv), labels), ball)


def _mixed(
    student: TrainableModel, inputs: Tensor, others: Tensor, labels: Tensor, settings: TrainingSettings
) -> Tensor:
    """Return a weighted mean of the cross-entropy of clean images and of changed images."""
    share = settings["clean_share"]
    if not share:
        return functional.cross_entropy(student(others), labels)
    clean, changed = student(torch.cat([inputs, others])).chunk(2)
    return share * functional.cross_entropy(clean, labels) + (1 - share) * functional.cross_entropy(changed, labels)
