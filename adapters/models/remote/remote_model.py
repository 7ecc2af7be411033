"""A model on a server, as a module that queries the server in its forward pass."""

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
_SHORTER_EDGE = 256 / 224  # customary size of a photo's shorter edge relative to the crop
_SMALL = 128  # models of smaller images are for data sets whose images already have that size
_UNSTEADY = "its server returns different outputs for the same image"
_NO_SHAPE = "its image size is unknown, so its outputs could not be checked"


class RemoteModel(nn.Module):
    """A module that sends images to a server and returns the server's scores or labels, without gradients.

    The server's metadata are requested when the object is created. The fingerprint is computed at the first query. The
    object can be sent to a different process, which then opens its own connection.

    Args:
        address: address of the model.
        transport: settings for requests.

    Raises:
        DavylampError: if the server cannot be reached or does not have the model, or if the model does not take images.
    """

    gradients = False
    layers_note = "a remote model"
    said_version = ""  # version of the model, see `Classifier.say_version`

    def __init__(self, address: Address, transport: Transport):
        super().__init__()
        self.address, self.transport = address, transport
        self.traffic, self.taken = ServerUsage(), ServerUsage()  # in total; already reported
        self._client = RetryingClient(address, transport, self.traffic)
        self.form: Any = JsonForm(address) if address.form == "json" else OpenInference(address, self._client)
        self.encoding, self.notes = self.form.encoding, self.form.notes
        self.image_shape: tuple[int, int, int] | None = self.form.image_shape
        self._limit = min(transport.request_size, self.form.rows or transport.request_size)
        self._width: int | None = None  # number of classes in outputs, once known: 0 for labels
        self._known: Fingerprint | None = None
        self._is_fresh = False
        self._answers = AnswerCache(transport.answers) if transport.answers else None

    @property
    def stated_identity(self) -> tuple[Any, str]:
        """The identity of the model as JSON types, and the reason why it is incomplete, or "".

        The first access queries the server on the fixed images of `identity.fingerprint`.
        """
        known = self._fingerprint()
        if known is None:
            return self._about, _NO_SHAPE
        if not known.steady:
            return self._about, "" if self.encoding.random else _UNSTEADY
        return [self._about, known.digest], ""

    @property
    def is_nondeterministic(self) -> bool:
        """Whether the server gave different outputs for the same image. True for models that are declared random."""
        known = self._fingerprint()
        return known is not None and not known.steady

    @contextmanager
    def bypass_cache(self) -> Iterator[None]:
        """Send all queries inside the block to the server, without the answer cache."""
        before, self._is_fresh = self._is_fresh, True
        try:
            yield
        finally:
            self._is_fresh = before

    def has_changed(self) -> bool:
        """Whether the server's model has changed: query the server again and compare its outputs with the fingerprint.

        False for models that are not deterministic.
        """
        known = self._known
        if known is None or not known.steady or self.image_shape is None:
            return False
        with self.bypass_cache():
            now = fingerprint(self, self.image_shape)
        return now.steady and not outputs_match(now.answers, known.answers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the server's outputs: scores, float32, shape (N, K), or labels, int64, shape (N,).

        Raises:
            ModelFailed: if the server does not respond, or its response is invalid.
            InvalidInput: if the server takes images of a different size.
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
        """Close the connection and the answer cache."""
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

    def _fingerprint(self) -> Fingerprint | None:
        """Return the fingerprint of the model, which is computed at the first call.

        If the fingerprint matches a stored one up to rounding, it gets the digest of the stored one.
        """
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
        """Return the answer cache and the key of this model in the cache.

        None without a cache, and for a server whose outputs vary.
        """
        if self._answers is None or self.encoding.random:
            return None
        known = self._fingerprint()
        if known is None or not known.steady:
            return None
        return self._answers, _digest([self._about, known.digest])

    def _recall(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return the outputs for images. Images that are not in the cache are sent to the server, each only once."""
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
            # A NaN may be a temporary failure of the server.
            store.store(name, {image: answer for image, answer in part.items() if np.isfinite(answer).all()})

        if places:
            self._ask(rows[places], keep)
        return [answers[image] for image in hashes]

    def _ask(self, rows: np.ndarray, keep: Callable[[int, np.ndarray], object] | None = None) -> list[np.ndarray]:
        """Send images to the server, in as many requests as necessary.

        Args:
            rows: images, one per row.
            keep: called after each request, with the position of its first image and with its outputs.

        Returns:
            The output for each image.
        """
        answers: list[np.ndarray] = []
        while len(answers) < len(rows):
            start = len(answers)
            part = rows[start : start + self._limit]
            given = self._exchange(part)
            if given is None:  # its batch limit is smaller
                continue
            answers += list(given)
            if keep is not None:
                keep(start, given)
        return answers

    def _exchange(self, rows: np.ndarray) -> np.ndarray | None:
        """Send one request and return the outputs.

        None if the server accepts fewer images per request. The limit is then stored for later requests.
        """
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
            raise self._failure(f"outputs for {len(rows)} images", self._client.describe(reply))
        try:
            given = self.form.read(reply)
            answer, self._width = check_answer(given, len(rows), self._width, self.form.classes)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            wanted = f"scores of shape ({len(rows)}, {self._width or self.form.classes or 'classes'}), or labels"
            raise self._failure(wanted, str(error) if isinstance(error, ValueError) else type(error).__name__) from None
        self.encoding = self.form.encoding
        images, price = len(rows), len(rows) * self.transport.cost
        self.traffic.paid += images
        self.traffic.probes += images if self._is_fresh else 0
        self.traffic.requests += 1
        self.traffic.cost += price
        if self._answers is not None:
            self._answers.add_usage(self.address.name, images, price)
        return answer[:count]

    def _failure(self, wanted: str, got: str) -> ModelFailed:
        where = f"{self.address.place}{self.address.path}"
        return ModelFailed(f"expected {wanted} from {where}, got {' '.join(got.split())[:240]}")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_client": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._client = RetryingClient(self.address, self.transport, self.traffic)

    def __deepcopy__(self, memo: dict[int, Any]) -> "RemoteModel":
        return self  # a copy would query and count separately

    def __del__(self) -> None:
        try:  # at interpreter exit, only built-in names may be left
            self.close()
        except Exception:
            return


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def load_remote(name: str, device: str = "cpu", transport: Transport | None = None) -> Classifier:
    """Load a model on a server. Its inputs and outputs follow from the metadata and from settings in the name.

    If the metadata require square images of a certain size, photos are resized to 256/224 of this size and cropped, as
    is usual. For small sizes (CIFAR), they are resized to exactly this size, so that images of this size do not change.

    Args:
        name: "http://HOST:PORT/v2/models/NAME" or "json+http://HOST:PORT/PATH", which `?KEY=VALUE` may follow, see
            `RequestEncoding`.
        device: device on which the attack computes.
        transport: settings for requests.

    Raises:
        InvalidInput: if the name is not valid, or its settings contradict the server's metadata.
        Unavailable: if there is no such model.
        Unsupported: if the model does not take images.
        ModelFailed: if the server cannot be reached.
    """
    model = RemoteModel(read_address(name), transport or Transport())
    shape, encoding, classes = model.image_shape, model.encoding, model.form.classes
    if None not in (encoding.classes, classes) and encoding.classes != classes:
        raise InvalidInput(f"{name}: expected {classes} classes, as stated by the server, got {encoding.classes}")
    if encoding.datatype == "UINT8" and encoding.scale not in (1.0, 255.0):
        raise InvalidInput(f"{name}: the server takes bytes, so scale must be 255 or omitted, got {encoding.scale:g}")
    side = shape[1] if shape is not None and shape[1] == shape[2] else None
    classifier = Classifier(
        model,
        num_classes=classes or encoding.classes,
        name=name,
        device=device,
        resize=side if side is None or side < _SMALL else round(side * _SHORTER_EDGE),
        crop=side,
        random=encoding.random,
        outputs=encoding.outputs or None,
        gradients=False,
    )
    if model.form.channels is not None:
        classifier.stated_channels = model.form.channels
    if model.notes:
        classifier.loading_notes = tuple(f"{name}: {note}" for note in model.notes)
    return classifier
