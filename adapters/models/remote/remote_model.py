"""A model behind a server, by its name: a module whose forward pass asks, in a classifier."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ....errors import InvalidInput, ModelFailed
from ..classifier import Classifier
from ..identity.fingerprint import Fingerprint, digest_answers, fingerprint, outputs_match
from .address import Address, read_address
from .answer_cache import AnswerCache
from .client import RetryingClient
from .protocols import JsonForm, OpenInference, batch_limit_from_error, check_answer, check_components
from .server_usage import ServerUsage
from .tensors import encode_images
from .transport import Transport

PATTERNS = ("http://HOST:PORT/v2/models/NAME", "json+http://HOST:PORT/PATH")
_SHORTER_EDGE = 256 / 224  # of a photo, relative to the crop: the customary one
_SMALL = 128  # models of smaller images are of data sets whose images have that size already
_UNSTEADY = "its server answers differently when it is asked again about the same image"
_NO_SHAPE = "the size of its images is not known, so that its answers could not be looked at"


class RemoteModel(nn.Module):
    """Images in, the server's scores or labels out; without a gradient.

    It can be sent to another process, where it opens its own connection. The server is asked for its metadata when it
    is made, and about the images of its fingerprint when it is first asked about any.

    Args:
        address: where it is.
        transport: how it is asked.

    Raises:
        DavylampError: if the server cannot be reached, has no such model, or one that takes no images.
    """

    gradients = False
    layers_note = "a remote model"
    said_version = ""  # of the model, see `Classifier.say_version`

    def __init__(self, address: Address, transport: Transport):
        super().__init__()
        self.address, self.transport = address, transport
        self.traffic, self.taken = ServerUsage(), ServerUsage()  # in all; of which somebody has taken note
        self.form = self._connect()
        self.encoding, self.notes = self.form.encoding, self.form.notes
        self.image_shape: tuple[int, int, int] | None = self.form.image_shape
        self._limit = min(transport.request_size, self.form.rows or transport.request_size)
        self._width: int | None = None  # of an answer, once one was seen: 0 for labels
        self._known: Fingerprint | None = None
        self._is_fresh = False
        self._answers = AnswerCache(transport.answers) if transport.answers else None

    @property
    def image_channels(self) -> int | None:
        """How many channels its images have, where the server says so."""
        return self.form.channels

    @property
    def stated_identity(self) -> tuple[Any, str]:
        """What it is, as JSON types, and why that is not all of it; "" if it is.

        The server is asked about the fixed images of `identity.fingerprint`, once.
        """
        known = self._fingerprint()
        if known is None:
            return self._about, _NO_SHAPE
        if not known.steady:
            return self._about, "" if self.encoding.random else _UNSTEADY
        return [self._about, known.digest], ""

    @property
    def is_nondeterministic(self) -> bool:
        """Whether it answered fixed images otherwise when it was asked again, also where it is said to be random."""
        known = self._fingerprint()
        return known is not None and not known.steady

    @contextmanager
    def bypass_cache(self) -> Iterator[None]:
        """In the block the server is asked, whatever answers are kept."""
        before, self._is_fresh = self._is_fresh, True
        try:
            yield
        finally:
            self._is_fresh = before

    def has_changed(self) -> bool:
        """Whether a steady server answers otherwise now than when it was first asked; asks as `fingerprint` does."""
        known = self._known
        if known is None or not known.steady or self.image_shape is None:
            return False
        with self.bypass_cache():
            now = fingerprint(self, self.image_shape)
        return now.steady and not outputs_match(now.answers, known.answers)

    def forward(self, inputs: Tensor) -> Tensor:
        """What the server gives: float32 scores of shape (N, K), or int64 labels of shape (N,).

        Raises:
            ModelFailed: if it does not answer, or something else.
            InvalidInput: if it takes images of another size.
        """
        shape = tuple(inputs.shape[1:])
        if isinstance(self.form, OpenInference):
            check_components(shape, self.form.input, self.encoding, self.address.name)
        if self.image_shape is None:
            self.image_shape = (shape[0], shape[1], shape[2])
        rows = encode_images(inputs, self.encoding, self.address.name)
        self.traffic.asked += len(rows)
        answers = self._ask(rows) if self._is_fresh or self._keeper() is None else self._recall(rows)
        return torch.from_numpy(np.stack(answers)).to(inputs.device)

    def close(self) -> None:
        """Close the connection and the file of answers."""
        self._client.connection.close()
        if self._answers is not None:
            self._answers.close()

    @property
    def _about(self) -> Any:
        encoding = self.encoding
        said = {"layout": encoding.layout, "datatype": encoding.datatype, "scale": encoding.scale}
        said |= {"input": encoding.input, "output": encoding.output, "writing": encoding.writing}
        said |= {"version": self.said_version} if self.said_version else {}
        return {"address": self.address.name, "form": self.address.form, **said, "metadata": self.form.identity}

    def _connect(self) -> Any:
        self._client = RetryingClient(self.address, self.transport, self.traffic)
        return JsonForm(self.address) if self.address.form == "json" else OpenInference(self.address, self._client)

    def _fingerprint(self) -> Fingerprint | None:
        """What the server answers about the fixed images; one that was known under these answers keeps its digest."""
        if self._known is None and self.image_shape is not None:
            with self.bypass_cache():
                known = fingerprint(self, self.image_shape)
            if self._answers is not None and known.steady:
                static = _digest(self._about)
                kept = self._answers.fingerprints(static)
                alike = (digest for digest, answers in kept.items() if outputs_match(known.answers, answers))
                digest = next(alike, "")
                if not digest:
                    self._answers.keep_fingerprint(static, known.digest, known.answers)
                known = known._replace(digest=digest or digest_answers(known.answers))
            self._known = known
        return self._known

    def _keeper(self) -> tuple[AnswerCache, str] | None:
        """Where answers are kept, and under which name; None where they are not, or the server is not steady."""
        if self._answers is None or self.encoding.random:
            return None
        known = self._fingerprint()
        if known is None or not known.steady:
            return None
        return self._answers, _digest([self._about, known.digest])

    def _recall(self, rows: np.ndarray) -> list[np.ndarray]:
        """The answers to some images: those that are kept, and the others asked for, each once."""
        keeper = self._keeper()
        assert keeper is not None
        store, name = keeper
        hashes = [hashlib.sha256(row.tobytes()).digest() for row in rows]
        answers = store.look_up(name, list(dict.fromkeys(hashes)))
        new = {image: place for place, image in enumerate(hashes) if image not in answers}
        places = list(new.values())

        def keep(start: int, given: np.ndarray) -> None:
            part = {hashes[place]: answer for place, answer in zip(places[start:], given, strict=False)}
            answers.update(part)
            # A NaN may be the server's bad moment.
            store.store(name, {image: answer for image, answer in part.items() if np.isfinite(answer).all()})

        if places:
            self._ask(rows[places], keep)
        return [answers[image] for image in hashes]

    def _ask(self, rows: np.ndarray, keep: Callable[[int, np.ndarray], object] | None = None) -> list[np.ndarray]:
        """The server's answers, request by request; `keep` is called with each as it comes, and its first place."""
        answers: list[np.ndarray] = []
        while len(answers) < len(rows):
            start = len(answers)
            part = rows[start : start + self._limit]
            given = self._exchange(part)
            if given is None:  # it takes fewer at once
                continue
            answers += list(given)
            if keep is not None:
                keep(start, given)
        return answers

    def _exchange(self, rows: np.ndarray) -> np.ndarray | None:
        """The answers to one request; None if the server takes fewer images at once, which is remembered."""
        count, fixed = len(rows), self.form.rows
        if fixed is not None and count < fixed:
            rows = np.concatenate([rows, np.repeat(rows[-1:], fixed - count, 0)])
        request = self.form.write(rows)
        reply = self._client.send("POST", request.path, request.body, request.headers, images=len(rows))
        if reply.status != 200:
            limit = batch_limit_from_error(reply, len(rows))
            if limit and fixed is None:
                self._limit = limit
                return None
            raise self._failure(f"an answer to {len(rows)} images", self._client.describe(reply))
        try:
            given = self.form.read(reply)
            answer, self._width = check_answer(given, len(rows), self._width, self.form.classes)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            wanted = f"scores of shape ({len(rows)}, {self._width or self.form.classes or 'classes'}), or labels"
            raise self._failure(wanted, str(error) if isinstance(error, ValueError) else type(error).__name__) from None
        self.encoding = self.form.encoding
        self._count(len(rows))
        return answer[:count]

    def _count(self, images: int) -> None:
        self.traffic.paid += images
        self.traffic.probes += images if self._is_fresh else 0
        self.traffic.requests += 1
        self.traffic.cost += images * self.transport.cost
        if self._answers is not None:
            self._answers.add_usage(self.address.name, images, images * self.transport.cost)

    def _failure(self, wanted: str, got: str) -> ModelFailed:
        where = f"{self.address.place}{self.address.path}"
        return ModelFailed(f"expected {wanted} from {where}, got {' '.join(got.split())[:240]}")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_client": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._client = RetryingClient(self.address, self.transport, self.traffic)

    def __deepcopy__(self, memo: dict[int, Any]) -> "RemoteModel":
        return self  # a copy would ask and count apart

    def __del__(self) -> None:
        try:  # the interpreter may be ending, where other names than the built-in ones are gone
            self.close()
        except Exception:
            return


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def _check_kind(model: RemoteModel) -> None:
    """Raise InvalidInput where what a name says of a server cannot be."""
    encoding, classes = model.encoding, model.form.classes
    if encoding.classes is not None and classes is not None and encoding.classes != classes:
        raise InvalidInput(
            f"{model.address.name}: expected {classes} classes, as the server says, got {encoding.classes}"
        )
    if encoding.datatype == "UINT8" and encoding.scale not in (1.0, 255.0):
        raise InvalidInput(f"{model.address.name}: bytes are pixels times 255; got scale {encoding.scale:g}")


def load_remote(name: str, device: str = "cpu", transport: Transport | None = None) -> Classifier:
    """The model of a server; what it takes and gives is read from its metadata, and from what the name adds.

    Where the metadata fix a square size, photos are resized to 256/224 of it and cropped, as is customary; those of
    small images (CIFAR) are resized to it, so that images of that size stay as they are.

    Args:
        name: "http://HOST:PORT/v2/models/NAME", "json+http://HOST:PORT/PATH", with `?KEY=VALUE` of `RequestEncoding`.
        device: where the attack computes.
        transport: how the server is asked.

    Raises:
        InvalidInput: if it is no such name.
        Unavailable: if there is no such model.
        Unsupported: if it takes no images.
        ModelFailed: if the server cannot be reached.
    """
    model = RemoteModel(read_address(name), transport or Transport())
    _check_kind(model)
    shape, encoding = model.image_shape, model.encoding
    side = shape[1] if shape is not None and shape[1] == shape[2] else None
    classifier = Classifier(
        model,
        num_classes=model.form.classes or encoding.classes,
        name=name,
        device=device,
        resize=side if side is None or side < _SMALL else round(side * _SHORTER_EDGE),
        crop=side,
        random=encoding.random,
        outputs=encoding.outputs or None,
        gradients=False,
    )
    if model.image_channels is not None:
        classifier.stated_channels = model.image_channels
    if model.notes:
        classifier.loading_notes = tuple(f"{name}: {note}" for note in model.notes)
    return classifier
