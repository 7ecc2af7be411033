"""A model, or files, in a worker: asked as if they were here, with the random numbers that they would draw here."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....errors import DavylampError, ModelDied, ModelFailed, Unavailable
from ...user_code_guard import one_line
from . import serialisation as values
from .bubblewrap import visible_paths
from .isolation import Isolation, packages_of, read_files
from .model_facts import parse_model_metadata
from .shared_bytes import bytes_of
from .worker_client import ForkServer, Worker, WorkerSpec, error_of, forkserver_for, memory_limit_bytes

_ANSWER_BYTES = 1 << 20  # beside what a gradient takes
_PROCESSES = 64  # of a stranger's model; a fourfold of that in threads
_SERVE = f"{__package__}.model_worker:run_model_worker"


class ModelProcess:
    """A model in a process of its own.

    One whose process has died stays dead, so that a model that hangs does so once in an attack; `renew` has it start
    anew.

    Args:
        name: of the model.
        device: where it computes.
        fold: see `load_model`.
        isolation: what it may use.
    """

    def __init__(self, name: str, device: str, fold: bool, isolation: Isolation):
        self.name, self.device, self.fold, self.isolation = name, device, fold, isolation
        self.facts: dict[str, Any] | None = None
        self.opened = 0  # how often it was started: an answer of an earlier process has no gradients any more
        self.died = ""
        self._lock = threading.RLock()
        self._worker: Worker | None = None
        self._states: dict[str, Any] | None = None
        self._draws = False
        self._forgotten: list[int] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelProcess, (self.name, self.device, self.fold, self.isolation)

    def __del__(self) -> None:
        try:  # the interpreter may be ending, where other names than the built-in ones are gone
            if self._worker is not None:
                self._worker.abandon()
        except Exception:
            return

    def load(self) -> dict[str, Any]:
        """Start it, if it is not: what is known of its model.

        Raises:
            DavylampError: as `load_model`; `ModelDied` if its process ends.
        """
        with self._lock:
            if self._worker is None:
                self._start()
            assert self.facts is not None
            return self.facts

    def ask(self, do: str, tensors: Sequence[Tensor] = (), **given: Any) -> tuple[dict[str, Any], list[Tensor]]:
        """The answer to a question: values, and tensors on the CPU; both are what the process says, shapes and all.

        Raises:
            ModelDied: if the process of the model ends, or gives no answer in time, or none that is one.
            DavylampError, ValueError, TypeError: what was raised in there.
        """
        with self._lock:
            self.load()
            if not (self._draws and do == "forward"):
                answer, results = self._ask(do, tensors, given)
                if not answer.get("draws"):
                    return answer, results
                self._draws = True
            return self._ask_of_random(do, tensors, given)

    def forget(self, graph: int) -> None:
        """Drop an answer that nobody will ask gradients of; said with the next question."""
        self._forgotten.append(graph)  # from a finaliser, perhaps in the middle of a question

    def renew(self) -> None:
        """Make ready for another attack: a dead one may start again, and the model's tensors are as they were loaded.

        Raises:
            DavylampError: as `load`.
        """
        with self._lock:
            self.died = ""
            if self._worker is not None:
                self.ask("renew")

    def close(self) -> None:
        """End its process."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def refuse(self, reason: str) -> ModelDied:
        """End the process for what it sent: an error to raise."""
        with self._lock:
            return self._note_end(self._worker.refuse(reason)) if self._worker is not None else ModelDied(self.died)

    def _ask_of_random(
        self, do: str, tensors: Sequence[Tensor], given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """The answer of a model that draws numbers: from our generators, which then go on behind them.

        A stranger's model (`strict`) gets a seed from them instead, as it could set them to what it likes.
        """
        if self.isolation.isolate == "strict":
            return self._ask(do, tensors, given, seed=int(torch.randint(1 << 62, (1,), device="cpu")))
        answer, results = self._ask(do, tensors, given, states=values.read_states())
        with self._checked():
            values.set_states(answer.get("states"))
        return answer, results

    def _ask(
        self, do: str, tensors: Sequence[Tensor], given: Mapping[str, Any], **more: Any
    ) -> tuple[dict[str, Any], list[Tensor]]:
        if self._worker is None:
            raise ModelDied(self.died)
        forget, self._forgotten = self._forgotten, []
        outward = bytes_of(tensors) + _ANSWER_BYTES
        try:
            answer, results = self._worker.ask(do, tensors, outward=outward, values=dict(given), forget=forget, **more)
        except ModelDied as error:
            raise self._note_end(error) from None
        if "error" in answer:
            raise error_of(answer)
        return answer, results

    def _start(self) -> None:
        if self.died:
            raise ModelDied(self.died)
        server = forkserver_of(self.name, self.isolation)
        packages = packages_of(self.name)
        self._worker = _start_worker(f"the model {self.name}", server, self.device, self.isolation, packages)
        self.opened += 1
        self._forgotten = []
        if self._states is None:
            self._states = values.read_states()
        given = {"name": self.name, "device": self.device, "fold": self.fold}
        given |= {"threads": torch.get_num_threads(), "folder": str(Path.cwd())}
        try:
            answer, _ = self._ask("load", (), given, states=self._states)
            with self._checked():
                facts = parse_model_metadata(answer.get("facts"))
                if self.facts is None and self.isolation.isolate != "strict":
                    values.set_states(answer.get("states"))
        except ModelDied as error:
            raise ModelDied(f"{error} (while it was loaded)") from None
        except BaseException:
            self.close()
            raise
        if self.facts is not None and self.facts["digest"] != facts["digest"]:
            self.close()
            why = "its file was edited meanwhile, or what it makes is random (seed it)"
            raise ModelFailed(f"the model {self.name} is not what it was when its process started first: {why}")
        self.facts = facts

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """In the block a ValueError means that the process has sent what it must not: it is ended for that."""
        try:
            yield
        except DavylampError:
            raise
        except (ValueError, TypeError) as error:
            raise self.refuse(one_line(error)) from None

    def _note_end(self, error: Exception) -> ModelDied:
        self._worker, self.died = None, str(error)
        return ModelDied(self.died)


def forkserver_of(name: str, isolation: Isolation) -> ForkServer:
    """The process that workers of a model are forked from.

    Raises:
        Unsupported: if there is to be a sandbox, and there is none.
    """
    strict = isolation.isolate == "strict"
    return forkserver_for(strict, visible_paths(read_files(name), strict=strict))


def _start_worker(
    name: str, server: ForkServer, device: str, isolation: Isolation, packages: Sequence[str] = ()
) -> Worker:
    """A worker for a model; a stranger's cannot have any number of processes."""
    processes = _PROCESSES if isolation.isolate == "strict" else 0
    spec = WorkerSpec(_SERVE, tuple(packages), memory_limit_bytes(isolation, device), processes=processes)
    too_long = f"gave no answer in {isolation.seconds:g} seconds and was killed"
    return Worker(name, server, spec, seconds=isolation.seconds, too_long=too_long)


def read_apart(
    function: Callable[..., list[Tensor]], given: Any, paths: Sequence[Path], how: Isolation, *types: torch.dtype
) -> list[Tensor]:
    """What a function of ours makes of JSON values and of files, in a strict sandbox that shows these files.

    Args:
        function: gives a tensor for each of the types.
        given: its arguments.
        paths: files and folders.
        how: what its process may use.
        *types: of the tensors, which the caller checks.

    Raises:
        Unavailable: if its process ends, takes too long, or sends something else.
        DavylampError: what the function raises.
    """
    text = torch.frombuffer(bytearray(json.dumps(given).encode()), dtype=torch.uint8)
    question = {"function": f"{function.__module__}:{function.__qualname__}", "folder": str(Path.cwd())}
    server = forkserver_for(True, visible_paths(paths, strict=True))
    worker = _start_worker(", ".join(path.name for path in paths), server, "cpu", how)
    try:
        answer, tensors = worker.ask("read", [text], values=question)
        if "error" in answer:
            raise error_of(answer)
        if [each.dtype for each in tensors] != [*types]:
            raise worker.refuse("expected images")
    except ModelDied as error:
        raise Unavailable(f"could not read the data: {error}") from None
    finally:
        worker.close()
    return tensors
