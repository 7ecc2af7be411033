"""A model by its name: of a provider, looked up by its prefix, or of a factory in a file; perhaps with a defence."""

from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatch

import torch

from ....errors import InvalidInput, Unavailable, UnknownName
from ...paths import expand_path, is_file_name, split_file_name
from ...user_code_guard import one_line
from ..classifier import Classifier
from ..defences.defend import defend
from ..defences.names import is_defence, known_defences, parse_defence
from ..detectors.joint_classifier import add_detector, is_detector_part
from ..fold_batch_norm import fold_batch_norms
from ..remote.address import is_address
from ..remote.remote_model import PATTERNS, load_remote
from ..remote.transport import Transport
from ..sandbox.isolated import load_isolated
from ..sandbox.isolation import Isolation
from . import demo, hf, onnx, robustbench, timm, torchvision
from .declared_outputs import PREFIX, VERSION, declare_outputs, is_outputs_part, read_outputs, read_version, version_in
from .input_settings import apply_input_settings, is_input_part, parse_input_settings, write_input
from .provider import Provider
from .python_file import defend_from_file, load_from_file
from .state_dict import load_into_architecture, load_into_classifier, read_state
from .weights_file import base_model_name, is_trained, is_weights_name, load_weights

__all__ = [
    "add_input",
    "add_outputs",
    "add_version",
    "check_device",
    "list_models",
    "load_model",
    "match_models",
    "model_name_patterns",
]

_SOURCES = (demo, torchvision, timm, hf, robustbench, onnx)
PROVIDERS: Mapping[str, Provider] = {each.PROVIDER.prefix: each.PROVIDER for each in _SOURCES}
_OF_FILES = (
    *("path/to/file.py:factory", "model+path/to/file.py:defend", "model+defence:key=value", "model+input:crop=224"),
    *("weights.pt", "model+weights.pt", "state.pth+architecture", "model+detector:detector.pt"),
    *("model+outputs:labels", "model+version:2"),
)


def model_name_patterns() -> list[str]:
    """Every fixed model name and the patterns of the others, for help texts."""
    of_providers = [name for each in PROVIDERS.values() for name in each.patterns or each.list_names()]
    return [*of_providers, *_OF_FILES, *PATTERNS]


def list_models(pattern: str) -> list[str]:
    """The names that a `*` may stand for, of the provider that a pattern names; of the embedded models if of none."""
    return _provider_of(pattern).list_names()


def match_models(pattern: str, data: str) -> list[str]:
    """The names that a pattern with a `*` stands for on some data, empty if it matches none.

    Of the embedded models those of the data's classes: "demo:*" is others on "demo:mnist" than on "demo:imagenet". A
    pattern that matches none of them stands for all that it matches.
    """
    provider = _provider_of(pattern)
    matches = [name for name in provider.list_names() if fnmatch(name, pattern)]
    return [name for name in matches if provider.fits(name.partition(":")[2], data)] or matches


def _provider_of(pattern: str) -> Provider:
    return PROVIDERS.get(pattern.partition(":")[0], demo.PROVIDER)


def load_model(
    name: str,
    device: str = "cpu",
    *,
    fold: bool = True,
    transport: Transport | None = None,
    isolation: Isolation | None = None,
) -> Classifier:
    """Load a pretrained classifier with the preprocessing that its weights were published with.

    Loading leaves torch's random state as it was, except for what a factory in a file draws.

    Args:
        name: one of `model_name_patterns()`: an embedded model (`demo:...`), a torchvision classifier with its default
            weights or the named ones, a timm model, an ONNX file ("onnx:FILE"), or a function without arguments in a
            Python file that returns a `torch.nn.Module` (taking images in [0, 1]) or a `Classifier`. Any of them may
            have defences behind it, from left to right: "+jpeg:quality=50" (see `defend`), "+path/to/file.py:defend":
            what that function Classifier -> Classifier makes of it. "weights.pt" is what `davylamp harden` made of the
            model that the file names, "MODEL+weights.pt" any model of that architecture with these weights. So has
            "state.pth+ARCHITECTURE" those of a plain state dict; its pretrained weights are not fetched.
            "MODEL+input:crop=224,mean=0.5,std=0.5" is what it wants of an image (`input_part`), right behind the model;
            "MODEL+outputs:labels" what it gives. "MODEL+version:2" is the same model to torch and another to results:
            to be changed with what cannot be seen of it.
            "MODEL+detector:FILE" has one class more, "detected" (`detectors.joint`).
        device: where the model computes.
        fold: fold batch normalisation into the convolutions before it (`folding.fold_batch_norms`): logits move by some
            1e-5, attacks are faster; not for a factory's model.
        transport: how the server of a remote model is asked, "http://HOST:PORT/v2/models/NAME"; None: by default.
        isolation: run the model in a process of its own, if that covers its name; None: in this process.

    Returns:
        The classifier; its `resize`, `crop` and `interpolation` are what image files need. timm's "squash" and
        "border" crops are replaced by the resizing of the shorter edge and the centre crop of the same sizes. On a CPU
        the weights of all but a factory's model have their channels last, which is faster there.

    Raises:
        UnknownName: if no model, weights or factory has that name.
        MissingLibrary: if the package that holds the model is not installed.
        Unavailable: if weights or a file could not be fetched or read, or the device is not there.
        Unsupported: if the weights have no classification head.
        ModelFailed: if a file or its factory fails.
        InvalidInput: if a factory needs arguments or returns no model.
    """
    check_device(device)
    if isolation is not None and isolation.covers(name):
        return load_isolated(name, device, isolation, fold=fold)
    version = version_in(name)  # a mistake in it is named before anything is loaded
    classifier = _load_here(name, device, fold=fold, transport=transport)
    if version:
        classifier.say_version(version)
    return classifier


def _load_here(name: str, device: str, *, fold: bool, transport: Transport | None) -> Classifier:
    """A model in this process, perhaps with a defence or the like."""
    original, _, last = name.rpartition("+")
    if any(is_detector_part(part) for part in original.split("+")):
        raise InvalidInput(f"expected a detector as the last part of a name, got {name}")
    changed = _load_changed(name, original, last, device, fold=fold, transport=transport) if original else None
    if changed is not None:
        return changed
    if is_address(name):
        return load_remote(name, device, transport).freeze()
    return _load_bare(name, device, fold=fold)


def _load_bare(name: str, device: str, *, fold: bool) -> Classifier:
    """A model in this process, without a defence: of a provider, of a weights file, or of a factory in a file."""
    original, _, last = name.rpartition("+")
    if is_weights_name(name):
        return _load_trained(name, device, fold=fold)
    source, _, rest = name.partition(":")
    provider = PROVIDERS.get(source)
    if provider is not None and provider.matches(rest):
        return _quickened(provider.load(name, rest), device, fold=fold)
    if original.partition(":")[0] in PROVIDERS or is_file_name(original):
        raise UnknownName("defence", last.partition(":")[0], known_defences())
    if name.endswith(".py"):
        raise InvalidInput(f"expected a file and a function as path/to/file.py:factory, got {name!r}")
    path, _, factory = name.rpartition(":")
    if path.endswith(".py"):
        return load_from_file(name, expand_path(path), factory, device)
    raise UnknownName("model", name, model_name_patterns(), meant=_meant_source(name))


def _meant_source(name: str) -> str:
    """The name with the source that its misspelt one is nearest to: "torchvison:resnet18"; "" if none is near."""
    before, plus, last = name.rpartition("+")
    source, colon, rest = last.partition(":")
    if not colon and f"torchvision:{last}" in PROVIDERS["torchvision"].list_names():
        return f"{before}{plus}torchvision:{last}"
    close = get_close_matches(source, PROVIDERS, n=1) if colon else []
    return f"{before}{plus}{close[0]}:{rest}" if close and close[0] != source else ""


def _load_changed(
    name: str, original: str, last: str, device: str, *, fold: bool, transport: Transport | None
) -> Classifier | None:
    """A model of which the last part of the name is a defence, a detector or the like; None of any other."""
    if is_weights_name(original) and _is_architecture(last, original):
        return _load_state(name, last, original, device, fold=fold)
    if is_input_part(last):
        return _load_with_input(name, original, last, device, fold=fold, transport=transport)
    if is_defence(last):
        parse_defence(last)  # a mistake in it is named before anything is loaded
    if is_outputs_part(last):
        read_outputs(last)
    is_version = last.startswith(VERSION)
    if not (is_file_name(last) or is_defence(last) or is_detector_part(last) or is_outputs_part(last) or is_version):
        return None
    classifier = load_model(original, device, fold=fold, transport=transport)
    if is_version:
        classifier.name = name
        return classifier
    if is_outputs_part(last):
        return declare_outputs(classifier, last, name)
    if is_file_name(last):
        changed = defend_from_file(name, *split_file_name(last), classifier)
    elif is_defence(last):
        changed = defend(classifier, last, name).freeze()
    else:
        changed = add_detector(classifier, last, original, name).freeze()
    return _noted(changed, classifier)


def _load_trained(name: str, device: str, *, fold: bool) -> Classifier:
    """A model with the weights of a file: "weights.pt", "MODEL+weights.pt", or "ARCHITECTURE+state.pth"."""
    base, _, file = ("", "", name) if expand_path(name).is_file() else name.rpartition("+")
    path = expand_path(file)
    if path.is_file() and not is_trained(path):
        if base:
            return _load_state(name, base, file, device, fold=fold)
        read_state(path)  # which says what is wrong with it, if it is no state dict
        raise InvalidInput(f"expected {file}+ARCHITECTURE (torchvision:NAME, timm:NAME, FILE.py:FACTORY), got it alone")
    classifier = load_weights(file, base, lambda model: load_model(model, fold=False))
    if base_model_name(name).partition(":")[0] in PROVIDERS:
        return _quickened(classifier, device, fold=fold)
    return classifier.to(device).freeze()


def _is_architecture(part: str, weights: str) -> bool:
    """Whether what stands behind a file of weights is what they are put into; it may be a defence of what they are."""
    if "+" in weights and not expand_path(weights).is_file():  # a model with weights
        return False
    return part.partition(":")[0] in PROVIDERS or (is_file_name(part) and not is_trained(expand_path(weights)))


def _load_state(name: str, base: str, file: str, device: str, *, fold: bool) -> Classifier:
    """An architecture, or a model, with the weights of a file: "state.pth+torchvision:resnet18"."""
    path, (source, _, rest) = expand_path(file), base.partition(":")
    if is_trained(path):
        return _load_trained(f"{base}+{file}", device, fold=fold)
    provider = PROVIDERS.get(source)
    if provider is not None and provider.matches(rest) and provider.architecture is not None:
        classifier = load_into_architecture(name, path, provider.architecture(rest), base)
    else:
        read_state(path)  # before the model is loaded, which may take long
        classifier = load_into_classifier(name, path, load_model(base, fold=False))
    return classifier.to(device).freeze() if provider is None else _quickened(classifier, device, fold=fold)


def _load_with_input(
    name: str, original: str, part: str, device: str, *, fold: bool, transport: Transport | None
) -> Classifier:
    """A model of which it was said what it wants of an image, in place of what it was published with."""
    if _parts(original)[1]:
        raise InvalidInput(f"expected {part} right behind the model, before its defences, got {name}")
    if any(is_outputs_part(each) for each in original.split("+")):
        raise InvalidInput(f"expected {part} before what the model gives, got {name}")
    said = parse_input_settings(part)  # a mistake in it is named before anything is loaded
    classifier = apply_input_settings(load_model(original, fold=False, transport=transport), said, name)
    if any(each.partition(":")[0] in PROVIDERS for each in original.split("+")):
        return _quickened(classifier, device, fold=fold)
    return classifier.to(device).freeze()


def add_input(name: str, settings: Mapping[str, str]) -> str:
    """The name of a model with what options say that it wants of an image: behind the model, before its defences.

    Args:
        name: one of `model_name_patterns()`; one that says so itself keeps what it says.
        settings: by word, see `input_part`; empty: the name stays.

    Raises:
        DavylampError: if a value is none.
    """
    if not settings or any(is_input_part(part) for part in name.split("+")):
        return name
    model, defences = _parts(name)
    return "+".join([model, write_input(settings), *defences])


def add_outputs(name: str, outputs: str | None) -> str:
    """The name of a model with what an option says that it gives: behind the model, before its defences.

    Args:
        name: one of `model_name_patterns()`; one that says so itself keeps what it says.
        outputs: "logits", "probabilities", "labels"; None: the name stays.

    Raises:
        InvalidInput: if there are no such outputs.
    """
    if outputs is None or any(is_outputs_part(part) for part in name.split("+")):
        return name
    model, defences = _parts(name)
    return "+".join([model, f"{PREFIX}{read_outputs(outputs)}", *defences])


def add_version(name: str, version: str) -> str:
    """The name of a model with the version that an option says: behind the model, before its defences.

    Args:
        name: one of `model_name_patterns()`; one that says so itself keeps what it says.
        version: letters, digits, "-", "_" and "."; "": the name stays.

    Raises:
        InvalidInput: if it is something else.
    """
    if version == "" or version_in(name):
        return name
    model, defences = _parts(name)
    return "+".join([model, f"{VERSION}{read_version(version)}", *defences])


def _parts(name: str) -> tuple[str, list[str]]:
    """A model's name, and the defences behind it."""
    model, *rest = name.split("+")
    while rest and not is_defence(rest[0]) and not is_detector_part(rest[0]):
        if is_file_name(rest[0]) and not (is_weights_name(model) and _is_architecture(rest[0], model)):
            break
        model = f"{model}+{rest.pop(0)}"
    return model, rest


def _noted(defended: Classifier, classifier: Classifier) -> Classifier:
    """The defended classifier with what loading the original decided."""
    if classifier.stated_channels is not None:
        defended.stated_channels = classifier.stated_channels
    if classifier.class_names:
        defended.class_names, defended.all_named = classifier.class_names, classifier.all_named
    if classifier.loading_notes:
        defended.loading_notes = classifier.loading_notes
    return defended


def _quickened(classifier: Classifier, device: str, *, fold: bool) -> Classifier:
    """The classifier, loaded on the CPU, with its batch normalisation folded there, on its device (`speed_models.py`).

    On the CPU because other devices may round to fewer bits (TF32) than tell one function from another.
    """
    classifier.freeze()
    if torch.device(device).type == "cpu":
        classifier = classifier.to(memory_format=torch.channels_last)
    if fold and classifier.crop is not None:
        fold_batch_norms(classifier, classifier.crop)
    return classifier.to(device)


def check_device(device: str) -> None:
    """Raise Unavailable if torch cannot compute there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise Unavailable(f"expected a device that torch can use here, got {device!r} ({one_line(error)})") from error
