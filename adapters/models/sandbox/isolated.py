"""A classifier whose model runs in a worker process. It is used like any other classifier."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ....errors import ModelDied, Unsupported
from ...torch_state import current_precision
from ...user_code_guard import one_line
from ..classifier import Classifier
from ..extract_logits import check_logits
from .bubblewrap import find_sandbox
from .isolation import Isolation
from .model_facts import RemoteOutputFormat
from .model_process import ModelProcess, surroundings_of
from .serialisation import from_plain, to_plain
from .worker_client import prestart

_LAYERS_NOTE = "the model runs in a separate process (--isolate no runs it in this one)"


class RemoteModuleStub(nn.Module):
    """Placeholder for a model whose layers are in a different process.

    Args:
        process: process of the model.
        dtype: dtype of the model.
        answers: output format of the model.
    """

    layers_note = _LAYERS_NOTE

    def __init__(self, process: ModelProcess, dtype: torch.dtype, answers: RemoteOutputFormat):
        super().__init__()
        self.process, self.answers, self.note = process, answers, ""
        self.place = nn.Parameter(torch.zeros(0, dtype=dtype), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits (N, K) of images in [0, 1], shape (N, C, H, W)."""
        if not (inputs.requires_grad and torch.is_grad_enabled()):
            return self._ask(inputs, gradients=False)[0]
        given: list[Any] = []
        with saved_tensors_hooks(lambda tensor: _GraphHandle(tensor, given), lambda pinned: pinned.tensor):
            return _Answer.apply(inputs, self, given)  # pyright: ignore[reportReturnType]

    def _ask(self, inputs: Tensor, *, gradients: bool) -> tuple[Tensor, int | None]:
        expected = self.answers.expected_classes
        how = {"gradients": gradients, "expected": expected, "precision": current_precision()}
        answer, tensors = self.process.ask("forward", [inputs.detach()], **how)
        if len(tensors) != 1:
            raise self.process.refuse(f"expected one tensor with the logits, got {len(tensors)} tensors")
        graph = answer.get("graph")
        if graph is not None and type(graph) is not int:
            raise self.process.refuse(f"expected the number of the output as an integer, got {type(graph).__name__}")
        self.note = one_line(answer.get("note", ""))
        try:
            self.answers.update_from(answer.get("answers"))
        except ValueError as error:
            raise self.process.refuse(str(error)) from None
        return tensors[0].to(inputs.device), graph

    def __deepcopy__(self, memo: dict[int, Any]) -> "RemoteModuleStub":
        return self  # immutable


class _GraphHandle:
    """Handle of a computation graph that the worker process stores for a backward pass.

    When the handle is freed, the worker process deletes the graph.
    """

    def __init__(self, tensor: Tensor, given: list[Any]):
        self.tensor, self.given = tensor, given

    def __del__(self) -> None:
        if self.given:
            process, opened, graph = self.given
            if process.opened == opened:
                process.forget(graph)


class _Answer(torch.autograd.Function):
    """Autograd function for logits whose value and gradient a worker process computes."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, layers: RemoteModuleStub, given: list[Any]) -> Tensor:
        logits, graph = layers._ask(inputs, gradients=True)
        ctx.process, ctx.opened, ctx.graph = layers.process, layers.process.opened, graph
        ctx.save_for_backward(inputs)
        if graph is None:  # the model detaches them from its images
            ctx.mark_non_differentiable(logits)
        else:
            given += [layers.process, layers.process.opened, graph]
        return logits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (inputs,) = ctx.saved_tensors
        (gradient,) = gradients
        computed = _gradient(ctx, gradient.detach(), inputs)
        if computed is not None and torch.is_grad_enabled():
            computed = _FirstOrderOnly.apply(inputs, gradient, computed, ctx.process.name)
        return computed, None, None


class _FirstOrderOnly(torch.autograd.Function):
    """Autograd function for a gradient that has no second derivative."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, gradient: Tensor, computed: Tensor, name: str) -> Tensor:  # noqa: ARG004
        ctx.name = name
        return computed.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise Unsupported(
            f"second derivatives of {ctx.name} are not available, because the model runs in a separate "
            "process; use --isolate no to run it in this process"
        )


def _gradient(ctx: Any, gradient: Tensor, inputs: Tensor) -> Tensor | None:
    process: ModelProcess = ctx.process
    if process.opened != ctx.opened or process.died:
        raise ModelDied(
            process.died or f"the process of {process.name} was restarted, so gradients of its earlier outputs are gone"
        )
    _, tensors = process.ask("backward", [gradient], graph=ctx.graph)
    if not tensors:
        return None
    if len(tensors) != 1 or tensors[0].shape != inputs.shape or tensors[0].dtype != inputs.dtype:
        raise process.refuse(f"expected a gradient of shape {tuple(inputs.shape)}")
    return tensors[0].to(inputs.device)


class IsolatedClassifier(Classifier):
    """A classifier whose model and preprocessing are in a separate process.

    Args:
        process: process of the model.
    """

    def __init__(self, process: ModelProcess):
        facts = process.load()
        sizes = {word: facts[word] for word in ("resize", "crop", "interpolation", "random")}
        layers = RemoteModuleStub(process, getattr(torch, facts["dtype"]), facts["answers"])
        super().__init__(layers, num_classes=facts["stated_classes"], name=process.name, device=process.device, **sizes)
        for word in ("answers", "num_classes", "detects", "handed_over_training", "loading_notes", "in_torch"):
            setattr(self, word, facts[word])
        self.class_names, self.all_named = facts["class_names"], facts["all_named"]
        self.stated_identity = facts["digest"], facts["reasons"]
        self.stated_channels = facts["channels"]

    @property
    def process(self) -> ModelProcess:
        """Process of the model."""
        return self.model.process  # pyright: ignore[reportReturnType]

    def _ask(self, inputs: Tensor) -> Tensor:
        count = len(inputs)
        inputs = inputs.to(device=self.anchor.device, dtype=self.anchor.dtype)
        if inputs.requires_grad:
            inputs.register_hook(Tensor.contiguous)
        logits = self.model(inputs)
        self.output_note = self.model.note  # pyright: ignore[reportAttributeAccessIssue]
        check_logits(logits, count, self.num_classes, f"the model {self.name}")
        return logits


def load_isolated(name: str, device: str, isolation: Isolation, *, fold: bool = True) -> Classifier:
    """Load a model by name in a separate process.

    Args:
        name: a name for `load_model`.
        device: device of the model.
        isolation: limits of the process.
        fold: see `load_model`.

    Raises:
        DavylampError: as for `load_model`.
        ModelDied: if the process ends while it loads the model.
        Unsupported: if a sandbox is required and not available.
    """
    return IsolatedClassifier(ModelProcess(name, device, fold, isolation)).freeze()


def reset_processes(classifier: nn.Module) -> None:
    """Prepare the worker processes of a classifier for a new attack. Processes that have ended may start again."""
    for part in classifier.modules():
        if isinstance(part, RemoteModuleStub):
            part.process.renew()


def runs_in_process(classifier: nn.Module) -> bool:
    """Whether some layers of a classifier, such as those behind a defence, are in a worker process."""
    return any(isinstance(part, RemoteModuleStub) for part in classifier.modules())


def is_isolated(classifier: nn.Module) -> bool:
    """Whether the classifier itself, without its defences, runs in a worker process."""
    return isinstance(classifier, IsolatedClassifier)


def call_where_layers_are(classifier: nn.Module, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call one of davylamp's functions on a classifier, in the process that has the classifier's layers.

    Args:
        classifier: first argument of the function.
        function: a function of a davylamp module.
        *arguments: further arguments: numbers, strings, tensors, None, or lists of these.

    Returns:
        The result of the function: numbers, shortened strings, tensors, lists and mappings. A malicious model may have
        changed the result, so the caller must check it.

    Raises:
        ModelDied: if the process ends.
        DavylampError, ValueError, TypeError: if the function raises such an error.
    """
    if not isinstance(classifier, IsolatedClassifier):
        return function(classifier, *arguments)
    tensors: list[Tensor] = []
    where = f"{function.__module__}:{function.__qualname__}"
    given = to_plain(list(arguments), tensors)
    answer, results = classifier.process.ask(
        "call", tensors, function=where, arguments=given, precision=current_precision()
    )
    try:
        return from_plain(answer.get("value"), [each.to(classifier.device) for each in results])
    except ValueError as error:
        raise classifier.process.refuse(str(error)) from None


def prestart_processes(isolation: Isolation, names: Iterable[str]) -> None:
    """Start the processes for these models in the background."""
    for name in names:
        if isolation.covers(name):
            prestart(surroundings_of(name, isolation))


def describe_isolated(isolation: Isolation, names: Iterable[str]) -> list[str]:
    """Describe in one sentence how the isolated models run. The list is empty if no model is isolated."""
    covered = [name for name in names if isolation.covers(name)]
    if not covered:
        return []
    sandbox = find_sandbox()
    if not sandbox.program:
        more = f" and {len(covered) - 1} more" if len(covered) > 1 else ""
        return [f"{covered[0]}{more}: in a separate process, without a sandbox ({sandbox.reason})"]
    models = f"{', '.join(covered)}: in {'a separate process' if len(covered) == 1 else 'separate processes'}"
    sees = "only Python and the model's folder visible" if isolation.isolate == "strict" else "no writing"
    return [f"{models}, in a sandbox: no network, {sees} (--isolate no turns this off)"]
