"""In a room: the model and our code that needs its layers, answering one question after the other."""

import importlib
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from torch import Tensor

from ....errors import DavylampError, ModelFailed
from ....memory import keep_freed_memory
from ...switches import asked_in, in_precision
from ...user_code import describe_error, one_line
from ..classifier import Classifier
from ..identity.digest import identify_model
from ..innermost import is_float32_in_torch
from ..restoring import StateGuard
from ..zoo.load import load_model
from . import random_states
from .channel import receive_with_files, send_message
from .facts import describe_answers
from .plain_values import from_plain, to_plain
from .shared_bytes import SharedBytes, bytes_of

Answer = tuple[dict[str, Any], list[Tensor]]
_PASSED = (
    "num_classes",
    "stated_classes",
    "resize",
    "crop",
    "interpolation",
    "detects",
    "random",
    "channels",
    "all_named",
)


class Resident:
    """A model in its room.

    Args:
        wire: where questions come from.
    """

    def __init__(self, wire: socket.socket):
        self._wire = wire
        self._memory: dict[str, SharedBytes] = {}  # "inward" with questions, "outward" with answers
        self._graphs: dict[int, tuple[Tensor, Tensor, str | None]] = {}
        self._numbers = count()
        self._pending: Answer | None = None
        self._operations: Mapping[str, Callable[..., Answer]] = {
            "load": self._load,
            "forward": self._forward,
            "backward": self._backward,
            "call": self._call,
            "renew": self._renew,
            "read": self._read,
        }

    def serve(self) -> None:
        """Answer until nobody asks any more.

        Raises:
            EOFError: when the other side closes.
        """
        while True:
            question, files = receive_with_files(self._wire)
            self._take_memory(question.get("memory", {}), files)
            try:
                answer = self._answer(question)
            except Exception as error:  # the wall: whatever goes wrong here is one line over there
                answer = {"error": _kind_of(error), "text": _text_of(error)}
            sys.stderr.flush()
            sys.stdout.flush()
            send_message(self._wire, answer)

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["do"] == "collect":
            assert self._pending is not None
            return self._put(*self._pending)
        for number in question.get("forget", ()):
            self._graphs.pop(number, None)
        states, before = question.get("states"), None
        if states is not None:
            random_states.set_states(states)
        elif "seed" in question:
            random_states.seed_all(question["seed"])
        elif question["do"] == "forward":
            before = random_states.fingerprint()
        tensors = self._memory["inward"].take(question["tensors"]) if question["tensors"] else []
        try:
            values, results = self._operations[question["do"]](tensors, **question["values"])
        finally:
            drew = {"states": random_states.read_states()} if states is not None else {}
        if before is not None and random_states.fingerprint() != before:
            self._graphs.pop(values.get("graph", -1), None)
            return {"draws": True}
        return self._put({**values, **drew}, results)

    def _put(self, values: dict[str, Any], tensors: list[Tensor]) -> dict[str, Any]:
        needed, outward = bytes_of(tensors), self._memory.get("outward")
        if tensors and (outward is None or needed > outward.size):
            self._pending = values, tensors
            return {"needs": needed}
        self._pending = None
        described = [] if outward is None else outward.put(tensors)
        return {**values, "tensors": described}

    def _take_memory(self, sizes: Mapping[str, int], files: list[int]) -> None:
        for (name, size), file in zip(sizes.items(), files, strict=True):
            memory = SharedBytes(file, size)
            before, self._memory[name] = self._memory.get(name), memory
            if before is not None:
                before.close()

    def _load(self, _: list[Tensor], name: str, device: str, fold: bool, threads: int, folder: str) -> Answer:
        torch.set_num_threads(threads)
        keep_freed_memory()
        with suppress(OSError):
            os.chdir(folder)
        self.classifier: Classifier = load_model(name, device, fold=fold)
        self._guard = StateGuard(self.classifier)
        identity = identify_model(self.classifier, name)
        facts: dict[str, Any] = {word: getattr(self.classifier, word) for word in _PASSED}
        facts |= {"digest": identity.digest, "reasons": list(identity.reasons)}
        facts["loading_notes"] = list(self.classifier.loading_notes)
        facts["class_names"] = list(self.classifier.class_names)
        facts |= {"dtype": str(self.classifier.anchor.dtype).removeprefix("torch.")}
        facts["in_torch"] = is_float32_in_torch(self.classifier)
        facts |= {"answers": describe_answers(self.classifier.answers)}
        facts |= {"handed_over_training": self.classifier.handed_over_training}
        return {"facts": facts}, []

    def _forward(self, tensors: list[Tensor], gradients: bool, expected: int, precision: str | None) -> Answer:
        self.classifier.answers.expect_classes(expected)
        inputs = tensors[0].to(self.classifier.device)
        asked = asked_in(precision, self.classifier.device)
        with torch.set_grad_enabled(gradients), in_precision(precision), asked:
            leaf = inputs.requires_grad_(gradients)
            logits = self.classifier(leaf)
        values: dict[str, Any] = {
            "note": self.classifier.output_note,
            "answers": describe_answers(self.classifier.answers),
        }
        if logits.requires_grad:
            values["graph"] = next(self._numbers)
            self._graphs[values["graph"]] = leaf, logits, precision
        return values, [logits.detach().cpu()]

    def _backward(self, tensors: list[Tensor], graph: int) -> Answer:
        leaf, logits, precision = self._graphs[graph]
        try:
            with self.classifier.surroundings, in_precision(precision):
                (gradient,) = torch.autograd.grad(
                    logits, leaf, tensors[0].to(logits), retain_graph=True, allow_unused=True
                )
        except Exception as error:
            name = self.classifier.name
            failure = f"the model {name} {describe_error(error)} while its gradient was computed"
            raise ModelFailed(failure) from error
        return {}, [] if gradient is None else [gradient.cpu()]

    def _call(self, tensors: list[Tensor], function: str, arguments: Any, precision: str | None) -> Answer:
        """What a function of ours makes of the classifier and the arguments."""
        module, _, name = function.partition(":")
        given = [_placed(each, self.classifier.device) for each in from_plain(arguments, tensors)]
        results: list[Tensor] = []
        with in_precision(precision):
            value = to_plain(getattr(importlib.import_module(module), name)(self.classifier, *given), results)
        return {"value": value}, [each.detach().cpu() for each in results]

    def _read(self, tensors: list[Tensor], function: str, folder: str) -> Answer:
        """What a function of ours makes of the JSON values in a tensor, and of files; there is no model here."""
        with suppress(OSError):
            os.chdir(folder)
        module, _, name = function.partition(":")
        return {}, getattr(importlib.import_module(module), name)(*json.loads(tensors[0].numpy().tobytes()))

    def _renew(self, _: list[Tensor]) -> Answer:
        """The model as it was loaded, for another attack."""
        self._guard.put_back()
        return {}, []


def serve_model(wire: socket.socket) -> None:
    """Live in a room until nobody asks any more."""
    Resident(wire).serve()


def _placed(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _kind_of(error: Exception) -> str:
    if isinstance(error, DavylampError):
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == DavylampError.__module__)
    return next((kind.__name__ for kind in (ValueError, TypeError) if isinstance(error, kind)), "ModelFailed")


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, (DavylampError, ValueError, TypeError)) else one_line(describe_error(error))
