"""Runs models, and reads files, in a worker process. Random numbers are the same as in this process."""

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
from .worker_client import Surroundings, Worker, WorkerSpec, error_of, memory_limit_bytes

_PROCESSES = 64  # for an untrusted model; four times as many threads
_SERVE = f"{__package__}.model_worker:run_model_worker"


class ModelProcess:
    """A model that runs in a worker process.

    If the process has ended, it starts again only after a call of `renew`. A model that hangs therefore reaches its
    time limit only once per attack.

    Args:
        name: name of the model.
        device: device of the model.
        fold: see `load_model`.
        isolation: limits of the process.
    """

    def __init__(self, name: str, device: str, fold: bool, isolation: Isolation):
        self.name, self.device, self.fold, self.isolation = name, device, fold, isolation
        self.facts: dict[str, Any] | None = None
        self.opened = 0  # number of starts: outputs of an earlier process have no gradients any more
        self.died = ""
        self._lock = threading.RLock()
        self._worker: Worker | None = None
        self._states: dict[str, Any] | None = None
        self._draws = False
        self._forgotten: list[int] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelProcess, (self.name, self.device, self.fold, self.isolation)

    def __del__(self) -> None:
        try:  # at interpreter exit, only built-in names may be left
            if self._worker is not None:
                self._worker.abandon()
        except Exception:
            return

    def load(self) -> dict[str, Any]:
        """Start the process if necessary, and return the model's metadata.

        Raises:
            DavylampError: as for `load_model`, or `ModelDied` if the process ends.
        """
        with self._lock:
            if self._worker is None:
                self._start()
            assert self.facts is not None
            return self.facts

    def ask(self, do: str, tensors: Sequence[Tensor] = (), **given: Any) -> tuple[dict[str, Any], list[Tensor]]:
        """Send a request to the worker.

        Args:
            do: name of the request.
            tensors: tensors sent with the request.
            **given: further values, as JSON types.

        Returns:
            The values and the tensors of the reply. The tensors are on the CPU. Their shapes and contents are not
            checked.

        Raises:
            ModelDied: if the process ends, does not reply in time, or sends an invalid reply.
            DavylampError, ValueError, TypeError: errors raised in the process.
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
        """Tell the worker that the gradient of an output is no longer needed.

        The worker deletes its data at the next request.
        """
        self._forgotten.append(graph)  # called by a finaliser, perhaps during a request

    def renew(self) -> None:
        """Prepare the model for a new attack: restore its state. A process that has ended may start again.

        Raises:
            DavylampError: as for `load`.
        """
        with self._lock:
            self.died = ""
            if self._worker is not None:
                self.ask("renew")

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def refuse(self, reason: str) -> ModelDied:
        """End the process because its reply is invalid.

        Args:
            reason: reason why the reply is invalid.

        Returns:
            The error that the caller must raise.
        """
        with self._lock:
            return self._note_end(self._worker.refuse(reason)) if self._worker is not None else ModelDied(self.died)

    def _ask_of_random(
        self, do: str, tensors: Sequence[Tensor], given: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """Query a model that draws random numbers.

        The worker continues from the states of this process's random generators. Then the generators of this process
        get the worker's new states. An untrusted model (`strict`) could return arbitrary states. Therefore it gets only
        a seed, which is drawn from this process's generators.
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
        try:
            answer, results = self._worker.ask(do, tensors, values=dict(given), forget=forget, **more)
        except ModelDied as error:
            raise self._note_end(error) from None
        if "error" in answer:
            raise error_of(answer)
        return answer, results

    def _start(self) -> None:
        if self.died:
            raise ModelDied(self.died)
        around, packages = surroundings_of(self.name, self.isolation), packages_of(self.name)
        self._worker = _start_worker(f"the model {self.name}", around, self.device, self.isolation, packages)
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
            raise ModelDied(f"{error} (while loading)") from None
        except BaseException:
            self.close()
            raise
        if self.facts is not None and self.facts["digest"] != facts["digest"]:
            self.close()
            why = "its file was edited in the meantime, or it is built randomly (set a seed)"
            raise ModelFailed(f"the model {self.name} has changed since its process was first started: {why}")
        self.facts = facts

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """End the process if the block raises a ValueError or TypeError. The worker's reply was then invalid."""
        try:
            yield
        except DavylampError:
            raise
        except (ValueError, TypeError) as error:
            raise self.refuse(one_line(error)) from None

    def _note_end(self, error: Exception) -> ModelDied:
        self._worker, self.died = None, str(error)
        return ModelDied(self.died)


def surroundings_of(name: str, isolation: Isolation) -> Surroundings:
    """Return the surroundings of the worker of a model.

    Raises:
        InvalidInput: if a file is in the folder of a davylamp server.
    """
    strict = isolation.isolate == "strict"
    return Surroundings(strict, visible_paths(read_files(name), strict=strict))


def _start_worker(
    name: str, around: Surroundings, device: str, isolation: Isolation, packages: Sequence[str] = ()
) -> Worker:
    """Start a worker for a model. For an untrusted model, the number of processes is limited."""
    processes = _PROCESSES if isolation.isolate == "strict" else 0
    spec = WorkerSpec(_SERVE, tuple(packages), memory_limit_bytes(isolation, device), processes=processes)
    too_long = f"did not respond within {isolation.seconds:g} s (--time-limit) and was stopped"
    return Worker(name, around, spec, seconds=isolation.seconds, too_long=too_long)


def read_apart(
    function: Callable[..., list[Tensor]], given: Any, paths: Sequence[Path], how: Isolation, *types: torch.dtype
) -> list[Tensor]:
    """Call one of davylamp's functions in a strict sandbox that shows only some files.

    Args:
        function: function that returns as many tensors as there are `types`.
        given: arguments of the function, as JSON types.
        paths: files and folders that the sandbox shows.
        how: limits of the process.
        *types: dtypes of the returned tensors. The caller checks their shapes and values.

    Raises:
        Unavailable: if the process ends, takes too long, or sends an invalid reply.
        DavylampError: if the function raises such an error.
    """
    text = torch.frombuffer(bytearray(json.dumps(given).encode()), dtype=torch.uint8)
    question = {"function": f"{function.__module__}:{function.__qualname__}", "folder": str(Path.cwd())}
    around = Surroundings(True, visible_paths(paths, strict=True))
    worker = _start_worker(", ".join(path.name for path in paths), around, "cpu", how)
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
