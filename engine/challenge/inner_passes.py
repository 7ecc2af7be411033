"""Detects test-time optimisation: a model that calls autograd inside its forward pass."""

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
    """Cost of one query of a model, and whether its gradients include those of an optimisation in its forward pass.

    Args:
        forwards: largest number of calls of one layer with parameters; at least 1.
        backwards: number of calls of autograd.
        differentiated: whether the gradient of the output includes the derivative of these calls. None if unknown.
    """

    forwards: int
    backwards: int
    differentiated: bool | None = False


class _CountBackward(TorchFunctionMode):
    """Counts the calls of autograd. With `cut`, their results are constants for later derivatives."""

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
    """Count the passes that one query costs, by one query; by a second if it differentiates inner gradients.

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
    """Return a note if the model optimises in its forward pass, or fails; arguments as for `count_inner_passes`.

    Raises:
        ModelFailed: if the model's process returns no numbers.
    """
    try:
        counted = call_where_layers_are(model, count_inner_passes, image)
    except ModelFailed as failure:  # as it may fail under an attack
        return [f"{model.name}: the passes inside its forward pass were not counted ({one_line(failure)})"]
    if not isinstance(counted, (list, tuple)) or len(counted) != 3 or {type(each) for each in counted[:2]} != {int}:
        raise ModelFailed(f"expected the process of {model.name} to count its passes, got {type(counted).__name__}")
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
    """Query once; return the gradient of a mean over the logits, the passes, and the counter of autograd's calls."""
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
