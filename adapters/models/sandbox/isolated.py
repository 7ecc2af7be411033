"""A classifier whose model runs in a worker process: to every attack and metric a classifier as any other."""

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
from .model_facts import RemoteOutputFormat, check_answers
from .model_process import ModelProcess, forkserver_of
from .serialisation import from_plain, placed, to_plain

_LAYERS_NOTE = "the model runs in a process of its own (--isolate no runs it here)"


class RemoteModuleStub(nn.Module):
    """Stands for a model whose layers are in another process; it has none here.

    Args:
        process: where the model is.
        dtype: what it computes in.
        answers: how its answers are read there.
    """

    layers_note = _LAYERS_NOTE

    def __init__(self, process: ModelProcess, dtype: torch.dtype, answers: RemoteOutputFormat):
        super().__init__()
        self.process, self.answers, self.note = process, answers, ""
        self.place = nn.Parameter(torch.zeros(0, dtype=dtype), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, K) of images in [0, 1], shape (N, C, H, W)."""
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
            raise self.process.refuse(f"expected logits, got {len(tensors)} tensors")
        graph = answer.get("graph")
        if graph is not None and type(graph) is not int:
            raise self.process.refuse("expected the number of an answer")
        self.note = one_line(answer.get("note", ""))
        try:
            self.answers.update_from(check_answers(answer.get("answers")))
        except ValueError as error:
            raise self.process.refuse(str(error)) from None
        return tensors[0].to(inputs.device), graph

    def __deepcopy__(self, memo: dict[int, Any]) -> "RemoteModuleStub":
        return self  # nothing in it can be changed


class _GraphHandle:
    """A tensor that the backward pass needs, and the answer in the process that is dropped with it."""

    def __init__(self, tensor: Tensor, given: list[Any]):
        self.tensor, self.given = tensor, given

    def __del__(self) -> None:
        if self.given:
            process, opened, graph = self.given
            if process.opened == opened:
                process.forget(graph)


class _Answer(torch.autograd.Function):
    """Logits from another process, whose gradient it is asked for."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, layers: RemoteModuleStub, given: list[Any]) -> Tensor:
        logits, graph = layers._ask(inputs, gradients=True)
        ctx.process, ctx.opened, ctx.graph = layers.process, layers.process.opened, graph
        ctx.save_for_backward(inputs)
        if graph is None:  # the model cuts them off its images
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
    """A gradient that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, gradient: Tensor, computed: Tensor, name: str) -> Tensor:  # noqa: ARG004
        ctx.name = name
        return computed.clone()

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise Unsupported(
            f"expected first derivatives of {ctx.name}, got a question for second ones: the model runs in a process of "
            "its own (--isolate no runs it here)"
        )


def _gradient(ctx: Any, gradient: Tensor, inputs: Tensor) -> Tensor | None:
    process: ModelProcess = ctx.process
    if process.opened != ctx.opened or process.died:
        raise ModelDied(
            process.died or f"the model {process.name} was started anew: the gradient of its old answer is gone"
        )
    _, tensors = process.ask("backward", [gradient], graph=ctx.graph)
    if not tensors:
        return None
    if len(tensors) != 1 or tensors[0].shape != inputs.shape or tensors[0].dtype != inputs.dtype:
        raise process.refuse(f"expected a gradient of shape {tuple(inputs.shape)}")
    return tensors[0].to(inputs.device)


class IsolatedClassifier(Classifier):
    """A classifier in a process of its own: the preprocessing runs there, too.

    Args:
        process: where it is.
    """

    def __init__(self, process: ModelProcess):
        facts = process.load()
        sizes = {word: facts[word] for word in ("resize", "crop", "interpolation", "random")}
        answers = RemoteOutputFormat(facts["answers"])
        layers = RemoteModuleStub(process, getattr(torch, facts["dtype"]), answers)
        super().__init__(layers, num_classes=facts["stated_classes"], name=process.name, device=process.device, **sizes)
        self.answers = answers
        self.num_classes, self.detects = facts["num_classes"], facts["detects"]
        self.handed_over_training = facts["handed_over_training"]
        self.stated_identity = facts["digest"], facts["reasons"]
        self.loading_notes = facts["loading_notes"]
        self.class_names, self.all_named = facts["class_names"], facts["all_named"]
        self._channels = facts["channels"]
        self.in_torch = facts["in_torch"]  # see `innermost.is_float32_in_torch`

    @property
    def process(self) -> ModelProcess:
        """Where the model is."""
        return self.model.process  # pyright: ignore[reportReturnType]

    @property
    def channels(self) -> int | None:
        """As the classifier in there has it."""
        return self._channels

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
    """A model by name, in a process of its own.

    Args:
        name: one that `load_model` knows.
        device: where it computes.
        isolation: what it may use.
        fold: see `load_model`.

    Raises:
        DavylampError: as `load_model`.
        ModelDied: if its process does not survive that.
        Unsupported: if a sandbox is required, and there is none.
    """
    return IsolatedClassifier(ModelProcess(name, device, fold, isolation)).freeze()


def reset_processes(classifier: nn.Module) -> None:
    """Make every process of a classifier ready for another attack: one that has died may start again."""
    for part in classifier.modules():
        if isinstance(part, RemoteModuleStub):
            part.process.renew()


def runs_in_process(classifier: nn.Module) -> bool:
    """Whether layers that a classifier asks are in another process: its own, or those of a part of it."""
    return any(isinstance(part, RemoteModuleStub) for part in classifier.modules())


def is_isolated(classifier: nn.Module) -> bool:
    """Whether a classifier's layers are in another process."""
    return isinstance(classifier, IsolatedClassifier)


def call_where_layers_are(classifier: nn.Module, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of ours makes of a classifier: called here, or beside the layers where those are.

    From there come numbers, texts (cut), tensors, lists and mappings of them: whoever calls knows what to expect, and
    checks it.

    Args:
        classifier: the first argument.
        function: of a module of davylamp.
        *arguments: numbers, texts, tensors, None, or lists of them.

    Raises:
        ModelDied: if the process does not survive it.
        DavylampError, ValueError, TypeError: what the function raises.
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
        value = from_plain(answer.get("value"), results)
    except ValueError as error:
        raise classifier.process.refuse(str(error)) from None
    return placed(value, classifier.device)


def prestart_processes(isolation: Isolation, names: Iterable[str]) -> None:
    """Begin to start what the processes of these models need, while this process loads what it needs."""
    for name in names:
        if isolation.covers(name):
            forkserver_of(name, isolation).prepare()


def describe_isolated(isolation: Isolation, names: Iterable[str]) -> list[str]:
    """How those of these models are run that are isolated, in a line; none if none is."""
    covered = [name for name in names if isolation.covers(name)]
    if not covered:
        return []
    sandbox = find_sandbox()
    if not sandbox.program:
        more = f" and {len(covered) - 1} more" if len(covered) > 1 else ""
        return [f"{covered[0]}{more}: in its own process, without a sandbox ({sandbox.reason})"]
    said = f"{', '.join(covered)}: in a process of {'its' if len(covered) == 1 else 'their'} own"
    sees = (
        "Python and the model's folder are all that is seen" if isolation.isolate == "strict" else "nothing is written"
    )
    return [f"{said}, in a sandbox: no network, {sees}; --isolate no runs it here"]
