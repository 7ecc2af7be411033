"""What an attack in a room asks of the model, answered in this process, where it is counted and limited."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ....errors import AttackDied, AttackFailed

_MOST_ANSWERS = 4096  # whose gradients may still be asked for


class Refusing(Protocol):
    """Who can end a room for what it sent."""

    def refuse(self, reason: str) -> AttackDied:
        """End it: an error to raise."""
        ...


class Answering:
    """The model's answers to what an attack in a room asks, and those whose gradients it may still ask for.

    Args:
        model: that is asked.
        inputs: the clean images, shape (n, C, H, W).
        visit: who asks.
        most_held: bytes that may be kept for gradients.
    """

    def __init__(self, model: nn.Module, inputs: Tensor, visit: Refusing, most_held: int):
        self._model, self._inputs, self._visit = model, inputs, visit
        self._graphs: dict[int, tuple[Tensor, Tensor, int]] = {}
        self._count, self._held = 0, 0
        self._most_rows = max(1024, 64 * len(inputs))
        self._most_held = most_held

    def answer(self, question: dict[str, Any], tensors: list[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
        """Logits, or a gradient."""
        forget = question.get("forget")
        for number in forget if isinstance(forget, list) else ():
            if type(number) is int and number in self._graphs:
                self._held -= self._graphs.pop(number)[2]
        if len(tensors) != 1 or not tensors[0].is_floating_point():
            raise self._visit.refuse("expected one tensor of real numbers with a question")
        (tensor,) = tensors
        if question["do"] == "backward":
            return {}, self._gradient(question.get("graph"), tensor)
        if tensor.ndim != 4 or not tensor.numel():
            raise AttackFailed(f"expected images (rows, C, H, W) in a question, got {tuple(tensor.shape)}")
        return self._logits(tensor.to(self._inputs.device), wants_gradient=question.get("gradients") is True)

    def _logits(self, asked: Tensor, *, wants_gradient: bool) -> tuple[dict[str, Any], list[Tensor]]:
        if not wants_gradient:
            with torch.no_grad():
                return {}, [self._model(asked).detach().cpu()]
        if len(asked) > self._most_rows:
            raise AttackFailed(f"expected at most {self._most_rows} rows with a gradient at once, got {len(asked)}")
        size = 0

        def measure(tensor: Tensor) -> Tensor:
            nonlocal size
            size += 0 if tensor.is_leaf else tensor.numel() * tensor.element_size()
            return tensor

        with torch.enable_grad(), saved_tensors_hooks(measure, lambda tensor: tensor):
            logits = self._model(asked.requires_grad_(True))
        if not logits.requires_grad:
            return {}, [logits.detach().cpu()]
        self._count, self._held = self._count + 1, self._held + size
        self._graphs[self._count] = asked, logits, size
        if len(self._graphs) > _MOST_ANSWERS or self._held > self._most_held:
            raise AttackFailed("kept more answers to ask their gradients than there is memory for")
        return {"graph": self._count}, [logits.detach().cpu()]

    def _gradient(self, number: Any, gradient: Tensor) -> list[Tensor]:
        if type(number) is not int or number not in self._graphs:
            raise self._visit.refuse("expected the number of an answer")
        asked, logits, _ = self._graphs[number]
        if gradient.shape != logits.shape:
            raise self._visit.refuse(f"expected a gradient of shape {tuple(logits.shape)}")
        (result,) = torch.autograd.grad(logits, asked, gradient.to(logits), retain_graph=True, allow_unused=True)
        return [] if result is None else [result.cpu()]
