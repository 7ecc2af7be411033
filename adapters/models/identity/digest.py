"""What a model and its images are, as hashes that are the same on every machine."""

import hashlib
import types
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..classifier import Classifier
from .encoding import Encoder, feed
from .source_files import SourceFiles

_SETTINGS = ("resize", "crop", "interpolation", "mean", "std")
_BOUND = ("model", "_model", "estimator", "_estimator", "device")  # where attacks keep what they are bound to
_DEEP = "its parts are nested too deeply to be read"


class ModelIdentity(NamedTuple):
    """What a model is, as far as that can be known.

    Args:
        digest: 20 hexadecimal digits of a hash over all that could be read.
        reasons: why there may be more to it: a session with another machine, the state of a library in C; empty if the
            digest says all.
    """

    digest: str
    reasons: tuple[str, ...]


def identify_model(classifier: Classifier, source: str = "") -> ModelIdentity:
    """Hash whatever can change a model's answers, right after it was loaded: running may change counters in it.

    That is: the structure; parameters, buffers (also those that are not saved) and other tensors; every plain attribute
    of every layer and of the objects in them; training flags, hooks and replaced methods; the code of the classes and
    functions used, as the files that hold it, the local files that these import, and the globals that they use; and
    the preprocessing. The device is not in it, nor are comments, the name, or the place of the files. Of torch there
    is nothing either: its version is part of a cell.

    Of a model with folded layers (`fold_batch_norms`), the hash that it had before; of one in a room, what is hashed
    there. What was said of a model is in it: that it gives probabilities or labels, and its version (`version=`,
    "MODEL+version:2"). What is seen of its answers is not.

    Args:
        classifier: a model, best just loaded.
        source: the name that it was loaded by; of "path/to/file.py:factory", all of that file counts.
    """
    identity = _read_identity(classifier, source) if classifier.stated_identity is None else classifier.stated_identity
    return ModelIdentity(_with(identity[0], "version", classifier.model_version), tuple(identity[1]))


def _read_identity(classifier: Classifier, source: str) -> ModelIdentity:
    reasons: list[str] = []
    sources = SourceFiles()
    # "NAME+defence.py:function" is a model with a defence in front
    names = [Path(part.rpartition(":")[0]).expanduser() for part in source.split("+")] if source else []
    files = [file for file in names if file.suffix == ".py" and file.is_file()]
    for file in files:
        sources.add_file(file)
    encoder = Encoder(sources, reasons, str(files[0].resolve().parent) if files else "")
    settings = {name: getattr(classifier, name) for name in _SETTINGS} | {"dtype": classifier.anchor.dtype}
    try:
        with classifier.frozen():
            encoder.add(settings, "preprocessing")
            encoder.add(classifier.model, "model")
            _add_changes(encoder, classifier)
    except RecursionError:
        reasons.append(_DEEP)
    encoder.put("code", "\n".join(sources.digests()))
    digest = encoder.hash.hexdigest()[:20]
    digest = classifier.known_as.get(digest, digest)
    return ModelIdentity(_with(digest, "outputs", classifier.answers.declared), tuple(reasons))


def _with(digest: str, word: str, said: str) -> str:
    """The digest of what is the same but for something that was said of it; itself where nothing was said."""
    return hashlib.sha256(f"{digest} {word} {said}".encode()).hexdigest()[:20] if said else digest


def digest_model(classifier: Classifier, source: str = "") -> str:
    """The digest of `identify_model` alone."""
    return identify_model(classifier, source).digest


def identify_code(thing: Any, file: Path | None = None) -> ModelIdentity:
    """Hash what a function, class or object does: its code, what that uses, and what it holds, as for a model.

    Args:
        thing: a user's attack or metric. A model or an estimator that it is bound to is not part of it.
        file: that it is from; all of it counts, with the local files that it imports.
    """
    reasons: list[str] = []
    sources = SourceFiles()
    if file is not None:
        sources.add_file(file)
    encoder = Encoder(sources, reasons, str(file.resolve().parent) if file is not None else "")
    encoder.names_readers = True
    try:
        if isinstance(thing, (type, types.FunctionType)):
            encoder.add(thing, "code")
        else:
            encoder.add(type(thing), "code")
            encoder.add({word: value for word, value in vars(thing).items() if word not in _BOUND}, "settings")
    except RecursionError:
        reasons.append(_DEEP)
    encoder.put("code", "\n".join(sources.digests()))
    return ModelIdentity(encoder.hash.hexdigest()[:20], tuple(reasons))


def digest_data(inputs: Tensor, labels: Tensor) -> str:
    """A hash over pixels and labels."""
    digest = hashlib.sha256(str(tuple(inputs.shape)).encode())
    for tensor in (inputs, labels):
        feed(digest, tensor)
    return digest.hexdigest()[:20]


def _add_changes(encoder: Encoder, classifier: Classifier) -> None:
    """What a user's class, or a replaced method, adds to a plain classifier."""
    attributes = vars(classifier)
    if type(classifier) is not Classifier:
        encoder.put("classifier")
        encoder.add_class(type(classifier))
        known = {*vars(Classifier(torch.nn.Identity())), "loading_notes", "stated_channels", "class_names", "all_named"}
        attributes = {name: value for name, value in attributes.items() if name not in known}
        encoder.add(attributes, "classifier")
    if "forward" in vars(classifier):
        encoder.add(vars(classifier)["forward"], "classifier.forward")
