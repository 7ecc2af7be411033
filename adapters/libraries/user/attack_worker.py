"""Runs a user's attack in a separate process. This module is the part in the separate process (the worker)."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import ModelFailed
from ....memory import keep_freed_memory
from ...models.images import check_model_input
from ...models.sandbox import serialisation
from ...models.sandbox.isolated import RemoteModuleStub
from ...models.sandbox.messages import Channel
from ...models.sandbox.worker_base import Answer, WorkerBase
from ...threat_model import ThreatModel
from .as_implementation import declared_defaults, declared_epsilon, row_in_file
from .driver import run
from .isolated_attack import describe_row


def run_attack_worker(channel: Channel) -> None:
    """Handle requests of the parent process until it closes the connection.

    Raises:
        EOFError: when the parent process closes the connection.
    """
    AttackWorker(channel).serve()


class AttackWorker(WorkerBase):
    """Handles the requests of the parent process to describe or run an attack.

    While the attack runs, its model queries are sent to the parent process.

    Args:
        channel: connection to the parent process.
    """

    died, opened, name = "", 0, "the model"  # of the proxy's queries, like those of a `ModelProcess`

    def __init__(self, channel: Channel):
        super().__init__(channel)
        self._forgotten: list[int] = []

    def ask(self, do: str, tensors: Sequence[Tensor] = (), **values: Any) -> Answer:
        """Send a request to the parent process, and return the values and tensors of the response."""
        forget, self._forgotten = self._forgotten, []
        self.channel.send({"do": do, "forget": forget, **values}, tensors)
        return self.channel.receive()

    def forget(self, graph: int) -> None:
        """Record that the gradient of an output is not needed. The parent process learns this by the next query."""
        self._forgotten.append(graph)

    def refuse(self, reason: str) -> RuntimeError:
        """Build the error for an invalid response of the parent process."""
        return RuntimeError(reason)

    def do_describe(self, _: list[Tensor], path: str, where: str, folder: str) -> Answer:
        """Handle the request for a description: load the attack from its file and describe the implementation."""
        self.settle_in(folder, torch.get_num_threads())
        row = row_in_file(Path(path), where)
        return {"facts": describe_row(row, declared_epsilon(row), declared_defaults(row))}, []

    def do_attack(self, tensors: list[Tensor], **values: Any) -> Answer:
        """Handle the request to run the attack, and return the adversarial images."""
        self.settle_in(values["folder"], values["threads"])
        keep_freed_memory()
        given = row_in_file(Path(values["path"]), values["where"]).given
        if given.identity.digest != values["digest"]:
            raise ModelFailed(
                f"{values['where']} has changed since the run was planned, because its file was edited; run the "
                "command again"
            )
        inputs, labels, targets, words = serialisation.from_plain(values["given"], tensors)
        threat_model = ThreatModel(values["norm"], values["epsilon"], values["targeted"])
        model = ModelProxy(self, getattr(torch, values["dtype"]), values["classes"])
        serialisation.set_states(values["states"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = run(given, model, inputs, labels, threat_model, targets, **words)
        return {}, [returned.detach().cpu()]


class ModelProxy(RemoteModuleStub):
    """Stands for the attacked model in the separate process. Every pass is sent as a query to the parent process.

    Args:
        worker: the worker that sends the queries.
        dtype: precision of the model.
        num_classes: number of classes of the model.
    """

    def __init__(self, worker: AttackWorker, dtype: torch.dtype, num_classes: int):
        nn.Module.__init__(self)
        self.process, self.num_classes = worker, num_classes  # pyright: ignore[reportAttributeAccessIssue]
        self.place = nn.Parameter(torch.zeros(0, dtype=dtype), requires_grad=False)
        self.training = False

    def train(self, mode: bool = True) -> "ModelProxy":  # noqa: ARG002 - the signature is torch's
        """Return the proxy unchanged. The model always stays in evaluation mode."""
        return super().train(False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits (N, K) of images in [0, 1], shape (N, C, H, W)."""
        check_model_input(inputs)
        return super().forward(inputs)

    def _ask(self, inputs: Tensor, *, gradients: bool) -> tuple[Tensor, int | None]:
        answer, tensors = self.process.ask("forward", [inputs.detach()], gradients=gradients)
        return tensors[0], answer.get("graph")
