"""What every worker is: it answers one question after the other, in a process of its own."""

import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from torch import Tensor

from ...user_code_guard import one_line, protect_process
from .messages import WorkerChannel

Answer = tuple[dict[str, Any], list[Tensor]]


class WorkerBase:
    """A worker: what it can be asked for are its methods `do_...`.

    Args:
        wire: to the process that asks.
    """

    def __init__(self, wire: socket.socket):
        self.channel = WorkerChannel(wire)

    def serve(self) -> None:
        """Answer until nobody asks any more.

        Raises:
            EOFError, ConnectionError: when the other side closes.
        """
        protect_process()
        while True:
            self._serve_once()

    def _serve_once(self) -> None:  # whose variables, tensors among them, are gone before the next question
        question, tensors = self.channel.receive()
        try:
            answer, results = self.answer(question, tensors)
            self._flush()
            self.channel.send({"do": "done", **answer}, results)
        except BaseException as error:  # whatever goes wrong here is one line over there
            self._flush()
            self.channel.send({"do": "done", **self.describe(error)})

    def answer(self, question: dict[str, Any], tensors: list[Tensor]) -> Answer:
        """Values and tensors for a question."""
        return getattr(self, f"do_{question['do']}")(tensors, **question["values"])

    def describe(self, error: BaseException) -> dict[str, Any]:
        """An error as JSON types: the name of its class as "error", and "text"."""
        return {"error": type(error).__name__, "text": one_line(error)}

    def settle_in(self, folder: str, threads: int) -> None:
        """Compute with so many threads, in the folder of the process that asks."""
        torch.set_num_threads(threads)
        with suppress(OSError):
            os.chdir(folder)

    def _flush(self) -> None:
        with suppress(Exception):
            sys.stderr.flush()
            sys.stdout.flush()


class KeptGraphs:
    """A model's answers whose gradients may still be asked for, by number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._kept: dict[int, tuple[Tensor, Tensor, Any]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, inputs: Tensor, logits: Tensor, more: Any = None) -> int:
        """The number of an answer, and keep it with `more` about it."""
        number = next(self._numbers)
        self._kept[number] = inputs, logits, more
        return number

    def said_of(self, number: int) -> Any:
        """What was said of an answer."""
        return self._kept[number][2]

    def shape_of(self, number: Any) -> torch.Size | None:
        """Of the logits; None if there is no such answer."""
        return self._kept[number][1].shape if type(number) is int and number in self._kept else None

    def forget(self, numbers: Iterable[Any]) -> list[Any]:
        """Drop answers, if they are there; what was said of them."""
        return [self._kept.pop(each)[2] for each in numbers if type(each) is int and each in self._kept]

    def gradient(self, number: int, of_logits: Tensor) -> list[Tensor]:
        """The gradient with respect to the images, on the CPU; none if the logits do not depend on them."""
        inputs, logits, _ = self._kept[number]
        (gradient,) = torch.autograd.grad(logits, inputs, of_logits.to(logits), retain_graph=True, allow_unused=True)
        return [] if gradient is None else [gradient.cpu()]
