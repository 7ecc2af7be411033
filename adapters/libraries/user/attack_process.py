"""Runs a user's attack in a separate process. This module is the part in the parent process.

The parent process sends images, answers the attack's model queries, and checks all messages of the separate process.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from .... import errors
from ....errors import AttackDied, AttackFailed, DavylampError, ModelFailed, Unsupported
from ...attack import Implementation
from ...models.sandbox.bubblewrap import visible_paths
from ...models.sandbox.isolation import Isolation
from ...models.sandbox.messages import bytes_of
from ...models.sandbox.serialisation import read_states, to_plain
from ...models.sandbox.worker_base import KeptGraphs
from ...models.sandbox.worker_client import Surroundings, Worker, WorkerSpec, clean_text, memory_limit_bytes
from ...user_code_guard import one_line
from .isolated_attack import IsolatedAttack, implementation_from_description

_MODULE = f"{__package__}.attack_worker"
_SLOW: Mapping[str, tuple[str, ...]] = {  # what a file mentions -> what is imported for all of its workers
    "torchattacks": ("torchattacks",),
    "foolbox": ("foolbox",),
    "art": ("art.attacks.evasion", "art.estimators.classification"),
    "torchvision": ("torchvision",),
}
_LARGEST_QUESTION = 1 << 30  # bytes of images per query
_LARGEST_FILE = 1 << 27
_PROCESSES = 32
_MOST_ANSWERS = 4096  # outputs kept for later gradients
_NAME = re.compile(r"[A-Za-z_]\w{0,60}")


def isolated_implementation(name: str, path: Path, isolation: Isolation) -> Implementation:
    """Return the implementation of "path/to/file.py:NAME". The file is loaded only in a separate process.

    Raises:
        Unavailable, UnknownName, ModelFailed, InvalidInput: see `implementation_from_file`.
        AttackDied: if the separate process ends or sends an invalid description.
    """
    if not path.is_file():
        raise errors.Unavailable(f"no such file: {path} (expected a Python file with an attack)")
    with _worker(name, path, isolation) as worker:
        values = {"path": str(path), "where": name, "folder": str(Path.cwd())}
        answer, _ = worker.ask("describe", values=values)
        if "error" in answer:
            raise _error_of(answer, loading=True)
        try:
            return implementation_from_description(answer.get("facts"), name, path, isolation)
        except (ValueError, TypeError) as error:
            raise worker.refuse(one_line(error)) from None


def run_isolated_attack(
    given: IsolatedAttack, model: nn.Module, call: tuple[Tensor, Tensor, Any, Tensor | None], words: Mapping[str, Any]
) -> Tensor:
    """Run a user's attack in a separate process and return its images.

    Args:
        given: the attack.
        model: the model, which answers every query of the attack. It counts passes and enforces limits.
        call: inputs (n, C, H, W), labels (n,), the threat model, and targets (n,) or None.
        words: arguments by the attack's names.

    Raises:
        AttackDied: if the separate process ends, takes too long, or sends an invalid message.
        AttackFailed: if the attack raises an error. The class of the exception has the name of the attack's error.
    """
    inputs, labels, threat_model, targets = call
    if threat_model.per_image_step_radius is not None:
        raise Unsupported(f"{given.where} runs in a separate process and needs one radius for all images")
    tensors: list[Tensor] = []
    cpu = [None if each is None else each.detach().cpu() for each in (inputs, labels, targets)]
    values: dict[str, Any] = {"given": to_plain([*cpu, dict(words)], tensors)}
    values |= {"path": str(given.path), "where": given.where, "folder": str(Path.cwd())}
    values |= {"digest": given.identity.digest, "threads": torch.get_num_threads()}
    values |= {"norm": threat_model.norm, "epsilon": threat_model.epsilon, "targeted": threat_model.targeted}
    dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    values |= {"dtype": str(dtype).removeprefix("torch."), "classes": int(getattr(model, "num_classes", 0))}
    values["states"] = read_states()
    most = max(4 * bytes_of([inputs]) + (1 << 16), _LARGEST_QUESTION)
    with _worker(given.where, given.path, given.isolation, most) as worker:
        answers = _Answers(model, inputs, worker, memory_limit_bytes(given.isolation, "cpu") // 2)
        answer, returned = worker.ask("attack", tensors, answering=answers.answer, values=values)
        if "error" in answer:
            raise _error_of(answer, loading=False)
        if len(returned) != 1:
            raise worker.refuse(f"expected one tensor of images, got {len(returned)} tensors")
    return returned[0].to(inputs.device)


@contextmanager
def _worker(name: str, path: Path, isolation: Isolation, most: int = 1) -> Iterator[Worker]:
    """Context manager that starts a process for an attack, and ends it with its child processes on exit.

    `most` is the largest total size, in bytes, of the tensors in a message of the process.
    """
    strict = isolation.isolate == "strict"
    around = Surroundings(strict, visible_paths([path], strict=strict), guest=True)
    text = path.read_bytes()
    used = [name for name in _SLOW if re.search(rb"\b(?:import|from)\s+" + name.encode() + rb"\b", text)]
    packages = (_MODULE, *(module for each in used for module in _SLOW[each]))
    serve, size = f"{_MODULE}:run_attack_worker", memory_limit_bytes(isolation, "cpu")
    spec = WorkerSpec(serve, packages, size, _LARGEST_FILE, _PROCESSES, most)
    too_long = f"was killed after {isolation.seconds:g} seconds (--time-limit), to which model queries do not count"
    worker = Worker(name, around, spec, seconds=isolation.seconds, too_long=too_long, died=AttackDied)
    try:
        yield worker
    finally:
        worker.close()


class _Answers:
    """Answers the model queries of an attack in a separate process. Queries are counted and limited.

    Args:
        model: the queried model.
        inputs: the clean images, shape (n, C, H, W).
        worker: the process that sends the queries.
        most_held: largest total size, in bytes, of outputs that are stored for later gradients.
    """

    def __init__(self, model: nn.Module, inputs: Tensor, worker: Worker, most_held: int):
        self._model, self._inputs, self._worker = model, inputs, worker
        self._kept, self._held, self._most_held = KeptGraphs(), 0, most_held
        self._most_rows = max(1024, 64 * len(inputs))

    def answer(self, question: dict[str, Any], tensors: list[Tensor]) -> tuple[dict[str, Any], list[Tensor]]:
        forget = question.get("forget")
        self._held -= sum(self._kept.forget(forget if isinstance(forget, list) else ()))
        if len(tensors) != 1 or not tensors[0].is_floating_point():
            raise self._worker.refuse("expected each query to contain one tensor of real numbers")
        (tensor,) = tensors
        if question["do"] == "backward":
            return {}, self._gradient(question.get("graph"), tensor)
        if tensor.ndim != 4 or not tensor.numel():
            raise AttackFailed(
                f"expected images of shape (N, C, H, W) in a query of the attack, got {tuple(tensor.shape)}"
            )
        return self._logits(tensor.to(self._inputs.device), wants_gradient=question.get("gradients") is True)

    def _logits(self, asked: Tensor, *, wants_gradient: bool) -> tuple[dict[str, Any], list[Tensor]]:
        if not wants_gradient:
            with torch.no_grad():
                return {}, [self._model(asked).detach().cpu()]
        if len(asked) > self._most_rows:
            raise AttackFailed(
                f"expected at most {self._most_rows} images in a query that needs gradients, got {len(asked)}"
            )
        size = 0

        def measure(tensor: Tensor) -> Tensor:
            nonlocal size
            size += 0 if tensor.is_leaf else tensor.numel() * tensor.element_size()
            return tensor

        with torch.enable_grad(), saved_tensors_hooks(measure, lambda tensor: tensor):
            logits = self._model(asked.requires_grad_(True))
        if not logits.requires_grad:
            return {}, [logits.detach().cpu()]
        number, self._held = self._kept.keep(asked, logits, size), self._held + size
        if len(self._kept) > _MOST_ANSWERS or self._held > self._most_held:
            raise AttackFailed(
                "the attack keeps more outputs for later gradients than memory allows; delete outputs that it no "
                "longer needs"
            )
        return {"graph": number}, [logits.detach().cpu()]

    def _gradient(self, number: Any, gradient: Tensor) -> list[Tensor]:
        shape = self._kept.shape_of(number)
        if shape is None:
            raise self._worker.refuse("it requested the gradient of an output that is not stored")
        if gradient.shape != shape:
            raise self._worker.refuse(f"expected a gradient of shape {tuple(shape)}, got {tuple(gradient.shape)}")
        return self._kept.gradient(number, gradient)


def _error_of(answer: Mapping[str, Any], *, loading: bool) -> Exception:
    """Convert an error message of the separate process to an exception.

    An error raised by the attack becomes an `AttackFailed`, even if its name is that of an error of the model.
    """
    name, text = str(answer.get("error")), clean_text(answer)
    if not loading:
        return type(name if _NAME.fullmatch(name) else "Exception", (AttackFailed,), {})(text)
    kind = getattr(errors, name, None)
    known = isinstance(kind, type) and issubclass(kind, DavylampError) and answer.get("ours") is True
    error = (kind if known else ModelFailed).__new__(kind if known else ModelFailed)  # type: ignore[arg-type]
    Exception.__init__(error, text if known else one_line(f"{name}: {text}"))
    return error
