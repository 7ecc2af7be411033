"""Detects models with test-time optimisation, which call autograd inside their forward pass."""

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...adapters import Classifier
from ...adapters.models.sandbox.isolated import call_where_layers_are
from ...adapters.running.seeding import seeded
from ...adapters.user_code_guard import one_line
from ...errors import ModelFailed

_BACKWARD = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)


class InnerPasses(NamedTuple):
    """Number of passes that a model makes inside one query.

    Args:
        forwards: number of forward passes, at least 1: the largest number of calls of a layer with parameters.
        backwards: number of backward passes inside the forward pass, which are calls of autograd.
        differentiated: whether the gradient of the output includes the derivative of these backward passes. None if
            unknown.
    """

    forwards: int
    backwards: int
    differentiated: bool | None = False


class _CountBackward(TorchFunctionMode):
    """Context that counts calls of autograd."""

    def __init__(self, *, cut: bool):
        super().__init__()
        self.cut, self.calls, self.differentiable = cut, 0, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func in _BACKWARD:
            self.calls += 1
            self.differentiable += bool(given.get("create_graph"))
            if self.cut and given.get("create_graph"):
                given |= {"create_graph": False, "retain_graph": True}
        return func(*args, **given)


def count_inner_passes(model: Classifier, image: Tensor) -> InnerPasses:
    """Count the passes that a model makes inside one query.

    The model is queried once. If the model calls autograd with `create_graph`, it is queried a second time.

    Args:
        model: classifier with gradients.
        image: image in [0, 1], shape (1, C, H, W), on the model's device.

    Raises:
        ModelFailed: if the model raises an error.
    """
    gradient, passes, mode = _query(model, image, cut=False)
    if not mode.differentiable:
        return InnerPasses(passes, mode.calls)
    try:
        constant, _, _ = _query(model, image, cut=True)
    except ModelFailed:  # it needs second derivatives
        return InnerPasses(passes, mode.calls, None)
    return InnerPasses(passes, mode.calls, bool((gradient - constant).norm() > 1e-4 * gradient.norm()))


def optimisation_note(model: Classifier, image: Tensor) -> list[str]:
    """Return a note if a model optimises in its forward pass, or if its passes could not be counted.

    Returns:
        One note, or [] for a model without test-time optimisation.

    Raises:
        ModelFailed: if the model runs in a separate process, and this process returns an invalid result.
    """
    try:
        counted = call_where_layers_are(model, count_inner_passes, image)
    except ModelFailed as failure:  # as it may fail under an attack
        return [f"{model.name}: could not count the passes that one query costs ({one_line(failure)})"]
    if not isinstance(counted, (list, tuple)) or len(counted) != 3 or {type(each) for each in counted[:2]} != {int}:
        raise ModelFailed(
            f"expected the numbers of forward and backward passes from the process of {model.name}, got "
            f"{type(counted).__name__}; run the challenge again"
        )
    inner = InnerPasses(*counted)
    if not inner.backwards:
        return []
    if inner.differentiated is None:
        passing = "it was not determined whether gradients pass through this optimisation"
    elif inner.differentiated:
        passing = "the gradients of the attacks pass through this optimisation"
    else:
        passing = "no gradients pass through this optimisation, so the attacks treat its result as a constant"
    cost = f"one query costs {inner.forwards} forward and {inner.backwards} backward passes"
    return [f"{model.name} calls autograd in its forward pass (test-time optimisation): {cost}; {passing}"]


def _query(model: Classifier, image: Tensor, *, cut: bool) -> tuple[Tensor, int, _CountBackward]:
    """Query a model once.

    Returns:
        Gradient of a weighted sum of the logits, shape (1, C, H, W). Number of forward passes. Counter of the calls of
        autograd.
    """
    calls: Counter[nn.Module] = Counter()
    without = Classifier, torch.jit.ScriptModule  # classifiers may call themselves; the others accept no hooks
    layers = [
        part
        for part in model.model.modules()
        if next(part.parameters(recurse=False), None) is not None and not isinstance(part, without)
    ]
    leaf, mode = image.detach().clone().requires_grad_(), _CountBackward(cut=cut)
    with ExitStack() as stack:
        for layer in layers:
            handle = layer.register_forward_pre_hook(lambda part, _: calls.update([part]))
            stack.callback(handle.remove)
        for context in (model.frozen(), seeded(0), torch.enable_grad()):
            stack.enter_context(context)
        with mode:
            logits = model(leaf)
        if logits.requires_grad:
            weights = torch.linspace(-1, 1, logits.shape[1], device=logits.device)
            (gradient,) = torch.autograd.grad((logits * weights).sum(), leaf, allow_unused=True)
        else:
            gradient = None
    return torch.zeros_like(leaf) if gradient is None else gradient, max(calls.values(), default=1), mode
