"""Digests of models and images, which are the same on every machine."""

import hashlib
import types
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..classifier import Classifier
from ..defences.names import member_of
from .encoding import Encoder, feed

_SETTINGS = ("resize", "crop", "interpolation", "mean", "std")
_BOUND = ("model", "_model", "estimator", "_estimator", "device")  # attributes with an attack's model


class ModelIdentity(NamedTuple):
    """Identity of a model, as far as it can be computed.

    Args:
        digest: 20 hexadecimal digits of a hash of everything that could be read.
        reasons: reasons why the digest may be incomplete, such as a connection to a server or state in a C library.
            Empty if the digest is complete.
    """

    digest: str
    reasons: tuple[str, ...]


def identify_model(classifier: Classifier, source: str = "") -> ModelIdentity:
    """Compute the identity of a model. Call this right after loading, because a forward pass may change counters.

    The hash covers:

    - the structure, parameters, buffers (including unsaved ones) and other tensors;
    - every plain attribute of every layer, and of the objects in the attributes;
    - training flags, hooks and replaced methods;
    - the code of the classes and functions used: their files, the local files that these import, and the globals that
      they use;
    - the preprocessing, the declared output format and the declared version (`version=`, "MODEL+version:2").

    It does not cover the device, comments, the model's name, the location of files, a detected output format, or torch,
    whose version is stored with each attack run. The identity of a model with folded layers (`fold_batch_norms`) is
    that before folding. The identity of an isolated model is computed in its own process.

    Args:
        classifier: a model, preferably just loaded.
        source: name by which the model was loaded. For "path/to/file.py:factory", the whole file is covered.
    """
    identity = _read_identity(classifier, source) if classifier.stated_identity is None else classifier.stated_identity
    return ModelIdentity(_with(identity[0], "version", classifier.model_version), tuple(identity[1]))


def _read_identity(classifier: Classifier, source: str) -> ModelIdentity:
    # "NAME+defence.py:function" is a model with a defence in front
    parts = [member_of(part) or part for part in source.split("+")] if source else []
    names = [Path(part.rpartition(":")[0]).expanduser() for part in parts]
    encoder = Encoder([file for file in names if file.suffix == ".py" and file.is_file()])
    settings = {name: getattr(classifier, name) for name in _SETTINGS} | {"dtype": classifier.anchor.dtype}
    with encoder.reading(), classifier.frozen():
        encoder.add(settings, "preprocessing")
        encoder.add(classifier.model, "model")
        _add_changes(encoder, classifier)
    digest = encoder.hash.hexdigest()[:20]
    digest = classifier.known_as.get(digest, digest)
    return ModelIdentity(_with(digest, "outputs", classifier.answers.declared), tuple(encoder.reasons))


def _with(digest: str, word: str, said: str) -> str:
    """Add a declared property, such as the output format, to a digest.

    Args:
        digest: digest of the model without the property.
        word: name of the property.
        said: its declared value. "" leaves the digest unchanged.
    """
    return hashlib.sha256(f"{digest} {word} {said}".encode()).hexdigest()[:20] if said else digest


def digest_model(classifier: Classifier, source: str = "") -> str:
    """Compute the identity of a model and return its digest, see `identify_model`."""
    return identify_model(classifier, source).digest


def identify_code(thing: Any, file: Path | None = None) -> ModelIdentity:
    """Compute the identity of a function, class or object.

    The identity covers its code, the code that it uses, and its attributes.

    Args:
        thing: a user's attack or metric. Models and estimators in its attributes are not covered.
        file: file that defines `thing`. The whole file is covered, with the local files that it imports.
    """
    encoder = Encoder([] if file is None else [file])
    encoder.names_readers = True
    with encoder.reading():
        if isinstance(thing, (type, types.FunctionType)):
            encoder.add(thing, "code")
        else:
            encoder.add(type(thing), "code")
            encoder.add({word: value for word, value in vars(thing).items() if word not in _BOUND}, "settings")
    return ModelIdentity(encoder.hash.hexdigest()[:20], tuple(encoder.reasons))


def digest_data(inputs: Tensor, labels: Tensor) -> str:
    """Return a hash of a data set, from the pixels and labels of its images."""
    digest = hashlib.sha256(str(tuple(inputs.shape)).encode())
    for tensor in (inputs, labels):
        feed(digest, tensor)
    return digest.hexdigest()[:20]


def _add_changes(encoder: Encoder, classifier: Classifier) -> None:
    """Add the code of a user's subclass of `Classifier` and of replaced methods to the hash."""
    attributes = vars(classifier)
    if type(classifier) is not Classifier:
        encoder.put("classifier")
        encoder.add_class(type(classifier))
        known = {*vars(Classifier(torch.nn.Identity())), "loading_notes", "stated_channels", "class_names", "all_named"}
        attributes = {name: value for name, value in attributes.items() if name not in known}
        encoder.add(attributes, "classifier")
    if "forward" in vars(classifier):
        encoder.add(vars(classifier)["forward"], "classifier.forward")
