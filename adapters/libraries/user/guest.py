"""In a room: a user's attack, and a model in front of it that asks the process outside."""

import os
import socket
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import DavylampError, ModelFailed
from ....memory import keep_freed_memory
from ...models.question import check_question
from ...models.room import random_states
from ...models.room.channel import receive_with_files, send_message
from ...models.room.isolated import RemoteLayers
from ...models.room.plain_values import from_plain
from ...models.room.shared_bytes import SharedBytes, bytes_of
from ...threat_model import ThreatModel
from ...user_code import name_error, one_line
from .described import describe_row
from .driver import run
from .row import row_in_file, stated_defaults, stated_epsilon


def serve_attack(wire: socket.socket) -> None:
    """Live in a room until nobody asks any more.

    Raises:
        EOFError: when the other side closes.
    """
    Guest(wire).serve()


class Guest:
    """The attack in its room: it is asked for examples, and asks about images meanwhile.

    Args:
        wire: to the process outside.
    """

    died, opened, name = "", 0, "the model"  # of what the stand-in asks, as of a model's room

    def __init__(self, wire: socket.socket):
        self._wire = wire
        self._memory: dict[str, SharedBytes] = {}  # "inward" with what comes, "outward" with what goes
        self._forgotten: list[int] = []

    def serve(self) -> None:
        """Answer until nobody asks any more."""
        while True:
            question = self._receive()
            try:
                answer, tensors = getattr(self, f"_do_{question['do']}")(self._taken(question), **question["values"])
            except BaseException as error:  # the wall: whatever goes wrong here is one line over there
                answer, tensors = _described(error), []
            with suppress(Exception):
                sys.stderr.flush()
                sys.stdout.flush()
            self._send({"do": "done", **answer}, tensors)

    def ask(self, do: str, tensors: Sequence[Tensor] = (), **values: Any) -> tuple[dict[str, Any], list[Tensor]]:
        """What the process outside answers: values and tensors."""
        forget, self._forgotten = self._forgotten, []
        self._send({"do": do, "forget": forget, **values}, tensors)
        answer = self._receive()
        return answer, self._taken(answer)

    def forget(self, graph: int) -> None:
        """Let the process outside drop an answer that no gradient will be asked of; said with the next question."""
        self._forgotten.append(graph)

    def refuse(self, reason: str) -> RuntimeError:
        """An error to raise for an answer that is none."""
        return RuntimeError(reason)

    def _do_describe(self, _: list[Tensor], path: str, where: str, folder: str) -> tuple[dict[str, Any], list[Tensor]]:
        self._settle(folder)
        row = row_in_file(Path(path), where)
        return {"facts": describe_row(row, stated_epsilon(row), stated_defaults(row))}, []

    def _do_attack(self, tensors: list[Tensor], **values: Any) -> tuple[dict[str, Any], list[Tensor]]:
        torch.set_num_threads(values["threads"])
        keep_freed_memory()
        self._settle(values["folder"])
        given = row_in_file(Path(values["path"]), values["where"]).given
        if given.identity.digest != values["digest"]:
            raise ModelFailed(
                f"{values['where']} is not what it was when it was planned: its file was edited meanwhile"
            )
        inputs, labels, targets, words = from_plain(values["given"], tensors)
        threat_model = ThreatModel(values["norm"], values["epsilon"], values["targeted"])
        model = AskingModel(self, getattr(torch, values["dtype"]), values["classes"])
        random_states.set_states(values["states"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = run(given, model, inputs, labels, threat_model, targets, **words)
        return {}, [returned.detach().cpu()]

    def _settle(self, folder: str) -> None:
        with suppress(OSError):
            os.chdir(folder)

    def _receive(self) -> dict[str, Any]:
        message, files = receive_with_files(self._wire)
        for (name, size), file in zip(message.get("memory", {}).items(), files, strict=True):
            before, self._memory[name] = self._memory.get(name), SharedBytes(file, size)
            if before is not None:
                before.close()
        return message

    def _taken(self, message: dict[str, Any]) -> list[Tensor]:
        return self._memory["inward"].take(message["tensors"]) if message.get("tensors") else []

    def _send(self, message: dict[str, Any], tensors: Sequence[Tensor]) -> None:
        outward = self._memory.get("outward")
        if tensors and (outward is None or bytes_of(tensors) > outward.size):
            send_message(self._wire, {"do": "needs", "bytes": bytes_of(tensors)})
            self._receive()
            outward = self._memory["outward"]
        described = outward.put(tensors) if outward is not None and tensors else []
        send_message(self._wire, {**message, "tensors": described})


class AskingModel(RemoteLayers):
    """The model under attack as the attack sees it: every pass is a question to the process outside, which counts it.

    Args:
        guest: who asks.
        dtype: what the model computes in.
        num_classes: how many there are.
    """

    def __init__(self, guest: Guest, dtype: torch.dtype, num_classes: int):
        nn.Module.__init__(self)
        self.room, self.num_classes = guest, num_classes  # pyright: ignore[reportAttributeAccessIssue]
        self.place = nn.Parameter(torch.zeros(0, dtype=dtype), requires_grad=False)
        self.training = False

    def train(self, mode: bool = True) -> "AskingModel":  # noqa: ARG002 - the signature is torch's
        """Stay in evaluation mode, whatever is asked for."""
        return super().train(False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, K) of images in [0, 1], shape (N, C, H, W)."""
        check_question(inputs)
        return super().forward(inputs)

    def _ask(self, inputs: Tensor, *, gradients: bool) -> tuple[Tensor, int | None]:
        answer, tensors = self.room.ask("forward", [inputs.detach()], gradients=gradients)
        return tensors[0], answer.get("graph")


def _described(error: BaseException) -> dict[str, Any]:
    kind = type(error).__name__
    if isinstance(error, DavylampError):
        kind = next(each.__name__ for each in type(error).__mro__ if each.__module__ == DavylampError.__module__)
        return {"error": kind, "text": str(error)[:1000], "ours": True}
    said = name_error(error)
    return {"error": kind, "text": one_line(said.removeprefix(kind).removeprefix(": ")), "ours": False}
