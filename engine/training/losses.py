"""Losses of the training methods, as generators. The training loop takes an optimiser step on each yielded loss.

A generator receives the model, images (N, C, H, W) in [0, 1], labels (N,), the settings, and a memory. The memory
persists across batches, is stored with every checkpoint, and contains tensors or dicts of tensors. The generator is
resumed after the optimiser step.
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
    """Yield the weighted cross-entropy of images with Gaussian noise and of clean ones (Zantedeschi et al. 2017)."""
    del memory
    noisy = (inputs + settings["std"] * torch.randn_like(inputs)).clamp(0, 1)
    yield _mixed(student, inputs, noisy, labels, settings)


def fgsm(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the weighted cross-entropy of FGSM examples and clean images (Goodfellow et al. 2015, section 6)."""
    del memory
    adv_inputs = _climb(student, inputs, labels, settings, (settings.norm, settings.epsilon, 1, settings.epsilon))
    yield _mixed(student, inputs, adv_inputs, labels, settings)


def least_likely(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield the weighted cross-entropy of least-likely-class steps and clean images (Kurakin et al. 2017).

    The radius of each step is random.
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
    """Yield the cross-entropy after PGD steps (Madry et al. 2018).

    With one step, this is also FBF (Wong et al. 2020).
    """
    del memory
    adv_inputs = _climb(student, inputs, labels, settings, settings.ball)
    yield _mixed(student, inputs, adv_inputs, labels, settings)


def logit_pairing(
    student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings, memory: Memory
) -> Iterator[Tensor]:
    """Yield PGD's loss with clean images, plus the mean squared difference of the logits (Kannan et al. 2018).

    As in the authors' code, the mean is over images and classes.
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
    """Yield clean cross-entropy plus the divergence of adversarial from clean outputs (Zhang et al. 2019, eq. 5)."""
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
    """Yield boosted cross-entropy plus a divergence weighted by misclassification (Wang et al. 2020, eq. 11)."""
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
    """Yield the PGD loss under the worst perturbation of the weights (Wu et al. 2020, AT-AWP).

    The weights are moved along the loss gradient, each layer by `gamma` times its norm. The gradient at that point is
    applied to the original weights.
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
    """Yield losses whose gradients update the weights and a perturbation that persists (Shafahi et al. 2019)."""
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
    """Yield the loss of a teacher on the labels, then of a student on its outputs (Papernot et al. 2016).

    Both losses use a temperature and are multiplied by it. This does not move their minimum, and makes learning rates
    comparable with other methods.
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
    """Return images after PGD steps on the cross-entropy, with the model in evaluation mode."""
    first = initial_perturbation(inputs, settings.norm, settings.epsilon, settings.values.get("start", "none"))
    with evaluating(student):
        return ascend(inputs, first, lambda adv: functional.cross_entropy(student(adv), labels), ball)


def _mixed(
    student: TrainableModel, inputs: Tensor, others: Tensor, labels: Tensor, settings: TrainingSettings
) -> Tensor:
    """Return the mean of the cross-entropies of `others` and of clean images.

    `clean_share` is the weight of the clean images.
    """
    share = settings["clean_share"]
    if not share:
        return functional.cross_entropy(student(others), labels)
    clean, changed = student(torch.cat([inputs, others])).chunk(2)
    return share * functional.cross_entropy(clean, labels) + (1 - share) * functional.cross_entropy(changed, labels)
