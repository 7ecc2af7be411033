"""Base class of workers, which handle one request after another in a separate process."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from torch import Tensor

from ....errors import DavylampError
from ...user_code_guard import name_error, one_line, protect_process
from .messages import Channel

Answer = tuple[dict[str, Any], list[Tensor]]
_LONGEST_TEXT = 1000


class WorkerBase:
    """Base class of workers. A request with the name NAME is handled by the method `do_NAME`.

    Args:
        channel: connection to the parent process.
    """

    def __init__(self, channel: Channel):
        self.channel = channel

    def serve(self) -> None:
        """Serve requests until the parent process closes the connection.

        Raises:
            EOFError, ConnectionError: when the connection is closed.
        """
        protect_process()
        while True:
            self._serve_once()

    def _serve_once(self) -> None:  # frees its variables, including tensors, before the next request
        question, tensors = self.channel.receive()
        try:
            answer, results = self.answer(question, tensors)
            self._flush()
            self.channel.send({"do": "done", **answer}, results)
        except BaseException as error:  # every error is sent to the parent process
            self._flush()
            self.channel.send({"do": "done", **self.describe(error)})

    def answer(self, question: dict[str, Any], tensors: list[Tensor]) -> Answer:
        """Handle a request.

        Args:
            question: the request, as JSON types.
            tensors: tensors of the request.

        Returns:
            The values and the tensors of the reply.
        """
        return getattr(self, f"do_{question['do']}")(tensors, **question["values"])

    def describe(self, error: BaseException) -> dict[str, Any]:
        """Describe an error in JSON types: the name of its class, its text, and whether davylamp defines the class."""
        if isinstance(error, DavylampError):
            kind = next(each for each in type(error).__mro__ if each.__module__ == DavylampError.__module__)
            return {"error": kind.__name__, "text": str(error)[:_LONGEST_TEXT], "ours": True}
        kind = type(error).__name__
        return {"error": kind, "text": one_line(name_error(error).removeprefix(kind).removeprefix(": ")), "ours": False}

    def settle_in(self, folder: str, threads: int) -> None:
        """Set the number of threads, and change to the working directory of the parent process."""
        torch.set_num_threads(threads)
        with suppress(OSError):
            os.chdir(folder)

    def _flush(self) -> None:
        with suppress(Exception):
            sys.stderr.flush()
            sys.stdout.flush()


class KeptGraphs:
    """Outputs of a model whose gradients may still be requested. Each output has a number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._kept: dict[int, tuple[Tensor, Tensor, Any]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, inputs: Tensor, logits: Tensor, more: Any = None) -> int:
        """Store an output.

        Args:
            inputs: images of the query.
            logits: logits for the images, with gradients.
            more: additional data to store.

        Returns:
            The number of the output.
        """
        number = next(self._numbers)
        self._kept[number] = inputs, logits, more
        return number

    def said_of(self, number: int) -> Any:
        """Return the additional data that was stored with an output."""
        return self._kept[number][2]

    def shape_of(self, number: Any) -> torch.Size | None:
        """Return the shape of the logits with this number. None if there is no such output."""
        return self._kept[number][1].shape if type(number) is int and number in self._kept else None

    def forget(self, numbers: Iterable[Any]) -> list[Any]:
        """Delete outputs by their numbers, and return their additional data. Unknown numbers are ignored."""
        return [self._kept.pop(each)[2] for each in numbers if type(each) is int and each in self._kept]

    def gradient(self, number: int, of_logits: Tensor) -> list[Tensor]:
        """Compute the gradient with respect to the images of an output.

        Args:
            number: number of the output.
            of_logits: gradient of the loss with respect to the logits.

        Returns:
            A list with the gradient, on the CPU. Empty if the logits do not depend on the images.
        """
        inputs, logits, _ = self._kept[number]
        (gradient,) = torch.autograd.grad(logits, inputs, of_logits.to(logits), retain_graph=True, allow_unused=True)
        return [] if gradient is None else [gradient.cpu()]
