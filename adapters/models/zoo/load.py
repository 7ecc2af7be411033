"""Loads models by name. The part of the name before the first ":" selects a collection or a Python file.

Defences may follow.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatch
from types import MappingProxyType
from typing import NamedTuple

import torch

from ....errors import InvalidInput, Unavailable, UnknownName
from ...paths import expand_path, is_file_name, split_file_name
from ...user_code_guard import one_line
from ..classifier import Classifier
from ..defences.defend import defend
from ..defences.names import is_defence, known_defences, parse_defence
from ..detectors.joint_classifier import add_detector, is_detector_part
from ..fold_batch_norm import fold_batch_norms
from ..layout import choose_layout
from ..multi_label import PART as MULTI_LABEL
from ..multi_label import apply_criterion, read_criterion
from ..remote.address import is_address
from ..remote.remote_model import PATTERNS, load_remote
from ..remote.transport import Transport
from ..sandbox.isolated import load_isolated
from ..sandbox.isolation import Isolation
from . import clip, demo, hf, onnx, robustbench, timm, torchvision
from .declared_outputs import (
    PREFIX,
    RANDOM,
    VERSION,
    check_declaration,
    declare,
    is_declaration,
    is_outputs_part,
    read_outputs,
    read_version,
    version_in,
)
from .input_settings import apply_input_settings, is_input_part, parse_input_settings, write_input
from .provider import Provider
from .python_file import defend_from_file, load_from_file
from .state_dict import load_into_architecture, load_into_classifier, read_state
from .weights_file import base_model_name, is_trained, is_weights_name, load_weights

__all__ = [
    "add_parts",
    "check_device",
    "list_models",
    "load_model",
    "match_models",
    "model_name_patterns",
]

_SOURCES = (demo, torchvision, timm, hf, clip, robustbench, onnx)
PROVIDERS: Mapping[str, Provider] = {each.PROVIDER.prefix: each.PROVIDER for each in _SOURCES}
_OF_FILES = (
    *("path/to/file.py:factory", "model+path/to/file.py:defend", "model+defence:key=value", "model+input:crop=224"),
    *("weights.pt", "model+weights.pt", "state.pth+architecture", "model+detector:detector.pt"),
    *("model+outputs:labels", "model+random:yes", "model+version:2"),
    *("model+multi-label:label=3", "model+multi-label:any=labels.npz"),
)
ALL_GPUS = "cuda:all"  # of `evaluate`: the runs are distributed over all GPUs


def model_name_patterns() -> list[str]:
    """Return the names of models for help texts: fixed names, and patterns for all other names."""
    of_providers = [name for each in PROVIDERS.values() for name in each.patterns or each.list_names()]
    return [*of_providers, *_OF_FILES, *PATTERNS]


def list_models(pattern: str) -> list[str]:
    """Return the names among which the matches of a pattern with `*` are searched.

    Args:
        pattern: a pattern such as "demo:*". Its prefix selects a collection of models. Without a prefix, the names of
            the built-in models are returned.
    """
    return _provider_of(pattern).list_names()


def match_models(pattern: str, data: str) -> list[str]:
    """Return the model names that match a pattern with `*` and fit the data.

    "demo:*" matches the built-in models with the classes of the data, so the matches differ between "demo:mnist" and
    "demo:imagenet". If no matching model fits the data, all matching names are returned.

    Args:
        pattern: pattern of names.
        data: name of the data.

    Returns:
        The names. Empty if no name matches.
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
    """Load a pretrained classifier with the published preprocessing of its weights.

    The base of the name is one of:

    - "demo:...": a built-in model;
    - "torchvision:...", with its default or named weights, "timm:...", "hf:..." or "robustbench:...";
    - "clip:ORG/NAME?prompts=classes.txt": a zero-shot model with a prompt for each class;
    - "http://HOST:PORT/v2/models/NAME": a remote model;
    - "onnx:FILE": an ONNX file;
    - "path/to/file.py:factory": a function without arguments that returns a `torch.nn.Module` (for images in [0, 1])
      or a `Classifier`;
    - "weights.pt": the model in a file that `davylamp harden` wrote. "MODEL+weights.pt" is any model of that
      architecture with these weights;
    - "state.pth+ARCHITECTURE": an architecture with the weights of a plain state dict. Pretrained weights are then not
      downloaded.

    These parts may follow, and are applied from left to right:

    - "+input:crop=224,mean=0.5,std=0.5", directly after the model: its input settings (`input_settings`);
    - "+multi-label:label=3" or "+multi-label:any=FILE.npz", directly after the model: what counts as fooled for a model
      that returns scores of several labels (`from_multi_label`);
    - "+outputs:labels": its output format;
    - "+random:yes": the model is random by design, as `Classifier(..., random=True)`;
    - "+version:2": a version, which gives the same model a different identity in results. The user changes it when the
      model changes in a way that davylamp cannot detect;
    - "+jpeg:quality=50": a defence (see `defend`). "+path/to/file.py:defend" is a function Classifier -> Classifier;
    - "+detector:FILE": an additional class "detected" (`detectors.joint_classifier`).

    Loading does not change torch's random state, except for random numbers that a factory in a file draws.

    Args:
        name: name of the model, as above. `model_name_patterns()` lists all patterns.
        device: device of the model.
        fold: whether to fold batch normalisation into the preceding convolutions (`fold_batch_norm.fold_batch_norms`),
            which changes logits by about 1e-5 and makes attacks faster. This does not apply to a factory's model.
        transport: settings for requests to a remote model, "http://HOST:PORT/v2/models/NAME". None for the defaults.
        isolation: decides whether the model runs in a separate process. If None, it runs in this process.

    Returns:
        The classifier. Its `resize`, `crop` and `interpolation` are the preprocessing of image files. timm's crop modes
        "squash" and "border" are replaced by resizing the shorter side and a centre crop of the same sizes. On a CPU,
        weights are stored channels-last, which is faster, except for a factory's model. On an NVIDIA GPU, a short trial
        decides (`layout.choose_layout`), which can change logits by about 1e-5.

    Raises:
        UnknownName: if no model, weights or factory has that name.
        MissingLibrary: if the package that provides the model is not installed.
        Unavailable: if weights or a file cannot be downloaded or read, or the device is not available.
        Unsupported: if the weights have no classification head.
        ModelFailed: if a file or its factory raises an error.
        InvalidInput: if a factory needs arguments or does not return a model.
    """
    check_device(device)
    if isolation is not None and isolation.covers(name):
        return load_isolated(name, device, isolation, fold=fold)
    version = version_in(name)  # reports a wrong version before anything is loaded
    classifier = _Loader(name, device, fold, transport).load()
    if version:
        classifier.say_version(version)
    return classifier


class _Loader(NamedTuple):
    """The name of a model, with all options for loading the model in this process. See `load_model` for the fields."""

    name: str
    device: str
    fold: bool
    transport: Transport | None

    def load(self) -> Classifier:
        """Load the model. A defence or another part at the end of the name is applied to the model before it."""
        name = self.name
        original, _, last = name.rpartition("+")
        if any(is_detector_part(part) for part in original.split("+")):
            raise InvalidInput(f"expected a detector as the last part of a name, got {name}")
        if is_weights_name(original) and _is_architecture(last, original):
            return self._load_state(last, original)
        if original and (is_input_part(last) or last.startswith(MULTI_LABEL)):
            return (self._load_with_input if is_input_part(last) else self._load_multi_label)(original, last)
        if original and is_declaration(last):
            check_declaration(last, original)
            kind, colon, _ = last.partition(":")
            if any(each.startswith(kind + colon) for each in original.split("+")):
                raise InvalidInput(f"expected +{kind} once in a model name, got {name}")
            classifier = self._load_original(original)
            declare(classifier, last)
            classifier.name = name
            return classifier
        if original and (is_defence(last) or is_file_name(last) or is_detector_part(last)):
            return self._load_defended(original, last)
        if is_address(name):
            return load_remote(name, self.device, self.transport).freeze()
        return self._load_bare(original, last)

    def _load_original(self, original: str) -> Classifier:
        return load_model(original, self.device, fold=self.fold, transport=self.transport)

    def _load_defended(self, original: str, last: str) -> Classifier:
        """Load a model with a defence or a detector.

        The result has the notes and class names of the undefended model.
        """
        if is_defence(last):  # also one that names a file, "ensemble:net.py:make"
            loader = self._replace(fold=self.fold and not parse_defence(last).defence.changes_weights)
            classifier = loader._load_original(original)
            defended = defend(classifier, last, self.name).freeze()
        elif is_file_name(last):
            classifier = self._load_original(original)
            defended = defend_from_file(self.name, *split_file_name(last), classifier)
        else:
            classifier = self._load_original(original)
            defended = add_detector(classifier, last, original, self.name).freeze()
        if classifier.stated_channels is not None:
            defended.stated_channels = classifier.stated_channels
        if classifier.class_names:
            defended.class_names, defended.all_named = classifier.class_names, classifier.all_named
        if classifier.loading_notes:
            defended.loading_notes = classifier.loading_notes
        return defended

    def _load_bare(self, original: str, last: str) -> Classifier:
        """Load a model whose name has no defence, detector or setting after a "+".

        The name is that of a model in a collection, a weights file, or a function in a Python file.

        Args:
            original: part of the full name before the last "+". It decides between an unknown model and an unknown
                defence in the error.
            last: part of the full name after the last "+".
        """
        name = self.name
        if is_weights_name(name):
            return self._load_trained(name)
        source, _, rest = name.partition(":")
        provider = PROVIDERS.get(source)
        if provider is not None and provider.matches(rest):
            return self._place(provider.load(name, rest), name)
        if original.partition(":")[0] in PROVIDERS or is_file_name(original):
            raise UnknownName("defence", last.partition(":")[0], known_defences())
        if name.endswith(".py"):
            raise InvalidInput(f"expected a file and a function as path/to/file.py:factory, got {name!r}")
        path, _, factory = name.rpartition(":")
        if path.endswith(".py"):
            return load_from_file(name, expand_path(path), factory, self.device)
        raise UnknownName("model", name, model_name_patterns(), meant=_meant_source(name))

    def _load_trained(self, name: str) -> Classifier:
        """Load a model with the weights of a file: "weights.pt", "MODEL+weights.pt", or "state.pth+ARCHITECTURE"."""
        base, _, file = ("", "", name) if expand_path(name).is_file() else name.rpartition("+")
        path = expand_path(file)
        if path.is_file() and not is_trained(path):
            if base:
                return self._load_state(base, file)
            read_state(path)  # reports the error if it is not a state dict
            raise InvalidInput(
                f"{file} holds weights only; add +torchvision:NAME, +timm:NAME or +FILE.py:FACTORY to it"
            )
        classifier = load_weights(file, base, lambda model: load_model(model, fold=False))
        return self._place(classifier, base_model_name(name))

    def _load_state(self, base: str, file: str) -> Classifier:
        """Load an architecture, or a model, with the weights of a plain state dict: "state.pth+timm:resnet18"."""
        path, (source, _, rest) = expand_path(file), base.partition(":")
        if is_trained(path):
            return self._load_trained(f"{base}+{file}")
        provider = PROVIDERS.get(source)
        if provider is not None and provider.matches(rest) and provider.architecture is not None:
            classifier = load_into_architecture(self.name, path, provider.architecture(rest), base)
        else:
            read_state(path)  # before the model is loaded, which may take long
            classifier = load_into_classifier(self.name, path, load_model(base, fold=False))
        return self._place(classifier, base)

    def _load_with_input(self, original: str, part: str) -> Classifier:
        if _parts(original)[1]:
            raise InvalidInput(f"expected {part} directly after the model, before its defences, got {self.name}")
        if any(is_outputs_part(each) for each in original.split("+")):
            raise InvalidInput(f"{part} must come before +outputs:... in a model name, got {self.name}")
        settings = parse_input_settings(part)  # reports an error before anything is loaded
        classifier = apply_input_settings(self._replace(fold=False)._load_original(original), settings, self.name)
        return self._place(classifier, *original.split("+"))

    def _load_multi_label(self, original: str, part: str) -> Classifier:
        if "+" in original and not is_weights_name(original.partition("+")[0]):
            raise InvalidInput(f"expected {part} directly after the model, got {self.name}")
        criterion = read_criterion(part)  # reports an error before anything is loaded
        source, _, rest = original.partition(":")
        load = PROVIDERS[source].load_multi_label if source in PROVIDERS else None
        classifier = load(original, rest) if load else self._replace(fold=False)._load_original(original)
        return self._place(apply_criterion(classifier, criterion, self.name), *original.split("+"))

    def _place(self, classifier: Classifier, *names: str) -> Classifier:
        """Move a classifier from the CPU to its device, and make a published model faster.

        If one of the names belongs to a collection, batch normalisation is folded and the memory layout is chosen
        (`tools/speed/models.py` measures the effect). The folded and the original model are compared on the CPU,
        because other devices may round too coarsely (TF32). On a CPU, channels last is faster for all architectures
        that were measured. On an NVIDIA GPU, this depends on the architecture.
        """
        if not any(name.partition(":")[0] in PROVIDERS for name in names):
            return classifier.to(self.device).freeze()
        classifier.freeze()
        kind, folded = torch.device(self.device).type, self.fold and classifier.crop is not None
        if kind == "cpu":
            classifier = classifier.to(memory_format=torch.channels_last)
        if folded:
            fold_batch_norms(classifier, classifier.crop or 0)
        classifier = classifier.to(self.device)
        if kind == "cuda" and folded:
            choose_layout(classifier, classifier.crop or 0)
        return classifier


def _meant_source(name: str) -> str:
    """Return a name with its misspelt prefix corrected, such as "torchvision:resnet18" for "torchvison:resnet18".

    "" if no known prefix is similar.
    """
    before, plus, last = name.rpartition("+")
    source, colon, rest = last.partition(":")
    if not colon and f"torchvision:{last}" in PROVIDERS["torchvision"].list_names():
        return f"{before}{plus}torchvision:{last}"
    close = get_close_matches(source, PROVIDERS, n=1) if colon else []
    return f"{before}{plus}{close[0]}:{rest}" if close and close[0] != source else ""


def _is_architecture(part: str, weights: str) -> bool:
    """Whether the part of a name after a weights file is an architecture. False for a defence."""
    if "+" in weights and not expand_path(weights).is_file():  # a model with weights
        return False
    return part.partition(":")[0] in PROVIDERS or (is_file_name(part) and not is_trained(expand_path(weights)))


def add_parts(
    name: str,
    *,
    settings: Mapping[str, str] = MappingProxyType({}),
    outputs: str | None = None,
    version: str = "",
    random: bool = False,
) -> str:
    """Add settings from options of a command to a model name, after the model and before its defences.

    If the name already has a setting, this setting is not changed.

    Args:
        name: name of a model.
        settings: input settings by name, see `input_settings`. Empty to add none.
        outputs: output format: "logits", "probabilities", "labels", "logit" or "probability". None to add none.
        version: version of the model, of letters, digits, "-", "_" and ".". "" to add none.
        random: whether to declare the model random. A remote model is declared random in its address instead.

    Raises:
        DavylampError: if a value is invalid.
    """
    given, parts = name.split("+"), []
    if settings and not any(map(is_input_part, given)):
        parts.append(write_input(settings))
    if outputs is not None and not any(map(is_outputs_part, given)):
        parts.append(f"{PREFIX}{read_outputs(outputs)}")
    if random and RANDOM not in given:
        check_declaration(RANDOM, name)
        parts.append(RANDOM)
    if version != "" and not version_in(name):
        parts.append(f"{VERSION}{read_version(version)}")
    if not parts:
        return name
    model, defences = _parts(name)
    return "+".join([model, *parts, *defences])


def _parts(name: str) -> tuple[str, list[str]]:
    model, *rest = name.split("+")
    while rest and not is_defence(rest[0]) and not is_detector_part(rest[0]):
        if is_file_name(rest[0]) and not (is_weights_name(model) and _is_architecture(rest[0], model)):
            break
        model = f"{model}+{rest.pop(0)}"
    return model, rest


def check_device(device: str) -> None:
    """Raise Unavailable if torch cannot compute on the device, or if the device is "cuda:all"."""
    if device == ALL_GPUS:
        raise Unavailable(f"expected one device, such as cuda or cuda:0, got {ALL_GPUS}, which only `evaluate` accepts")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise Unavailable(f"expected a device that torch can use here, got {device!r} ({one_line(error)})") from error
