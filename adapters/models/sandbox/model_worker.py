"""The worker process of a model. It runs the model, and those of davylamp's functions that need the model's layers."""

import importlib
import json
import os
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from ....errors import DavylampError, ModelFailed
from ....memory import keep_freed_memory
from ...torch_state import attack_precision, model_autocast
from ...user_code_guard import describe_error, one_line
from ..classifier import Classifier
from ..identity.digest import identify_model
from ..state_guard import StateGuard
from ..zoo.load import load_model
from . import serialisation as values
from .messages import Channel
from .model_facts import describe_answers, describe_model
from .worker_base import Answer, KeptGraphs, WorkerBase


class ModelWorker(WorkerBase):
    """Worker that runs a model in a separate process.

    Args:
        channel: see `WorkerBase`.
    """

    def __init__(self, channel: Channel):
        super().__init__(channel)
        self._kept = KeptGraphs()

    def answer(self, question: dict[str, Any], tensors: list[Tensor]) -> Answer:
        """Handle a request with the random states or the seed that the request contains.

        If the request contains no states or seed and the model draws random numbers, the reply only reports this.
        """
        self._kept.forget(question.get("forget", ()))
        states, before = question.get("states"), None
        if states is not None:
            values.set_states(states)
        elif "seed" in question:
            values.seed_all(question["seed"])
        elif question["do"] == "forward":
            before = values.state_bytes()
        answer, results = super().answer(question, tensors)
        if before is not None and values.state_bytes() != before:
            self._kept.forget([answer.get("graph")])
            return {"draws": True}, []
        return {**answer, **({} if states is None else {"states": values.read_states()})}, results

    def describe(self, error: BaseException) -> dict[str, Any]:
        """Describe an error in JSON types: the class of the error and its text."""
        if isinstance(error, DavylampError):
            return super().describe(error)
        kind = next((kind.__name__ for kind in (ValueError, TypeError) if isinstance(error, kind)), "")
        return {"error": kind or "ModelFailed", "text": str(error) if kind else one_line(describe_error(error))}

    def do_load(self, _: list[Tensor], name: str, device: str, fold: bool, threads: int, folder: str) -> Answer:
        """Load a model by name, and return its metadata."""
        self.settle_in(folder, threads)
        keep_freed_memory()
        self.classifier: Classifier = load_model(name, device, fold=fold)
        self._guard = StateGuard(self.classifier)
        return {"facts": describe_model(self.classifier, identify_model(self.classifier, name))}, []

    def do_forward(self, tensors: list[Tensor], gradients: bool, expected: int, precision: str | None) -> Answer:
        """Compute logits.

        If the logits have gradients, also return a number with which the gradient can be requested.
        """
        self.classifier.answers.expect_classes(expected)
        inputs = tensors[0].to(self.classifier.device)
        asked = model_autocast(precision, self.classifier.device)
        with torch.set_grad_enabled(gradients), attack_precision(precision), asked:
            inputs = inputs.requires_grad_(gradients)
            logits = self.classifier(inputs)
        answer = {"note": self.classifier.output_note, "answers": describe_answers(self.classifier.answers)}
        if logits.requires_grad:
            answer["graph"] = self._kept.keep(inputs, logits, precision)
        return answer, [logits.detach().cpu()]

    def do_backward(self, tensors: list[Tensor], graph: int) -> Answer:
        """Return the gradient of an output with respect to its images."""
        try:
            with self.classifier.surroundings, attack_precision(self._kept.said_of(graph)):
                return {}, self._kept.gradient(graph, tensors[0])
        except Exception as error:
            failure = f"the model {self.classifier.name} {describe_error(error)} while its gradient was computed"
            raise ModelFailed(failure) from error

    def do_call(self, tensors: list[Tensor], function: str, arguments: Any, precision: str | None) -> Answer:
        """Call one of davylamp's functions on the classifier and the arguments."""
        given = values.from_plain(arguments, [each.to(self.classifier.device) for each in tensors])
        results: list[Tensor] = []
        with attack_precision(precision):
            value = values.to_plain(_function(function)(self.classifier, *given), results)
        return {"value": value}, [each.detach().cpu() for each in results]

    def do_read(self, tensors: list[Tensor], function: str, folder: str) -> Answer:
        """Call one of davylamp's functions on JSON values and files, without loading a model.

        The JSON values arrive as bytes in a tensor.
        """
        with suppress(OSError):
            os.chdir(folder)
        return {}, _function(function)(*json.loads(tensors[0].numpy().tobytes()))

    def do_renew(self, _: list[Tensor]) -> Answer:
        """Restore the state that the model had after loading, for a new attack."""
        self._guard.restore_silently()
        return {}, []


def run_model_worker(channel: Channel) -> None:
    """Run the model worker until the parent process closes the connection."""
    ModelWorker(channel).serve()


def _function(where: str) -> Any:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)
