"""Zero-shot classifiers from the Hugging Face Hub or a folder: an image tower, and prompts as classes.

The text features of the prompts are computed once, when the model is loaded.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ....errors import InvalidInput, Unavailable
from ...paths import expand_path
from ...torch_state import full_float32
from ..classifier import Classifier
from ..identity.digest import digest_model
from ..identity.encoding import feed
from .clip_towers import LAYOUTS, TOKENIZERS, Towers, load_towers
from .hf import find_folder
from .provider import Provider

TEMPLATE = "a photo of a {}."
_BATCH = 64  # prompts in a forward pass of the text tower
_FORM = "clip:ORG/NAME?prompts=classes.txt, and &templates=templates.txt if wanted"
_IMAGENET = 1000  # classes
_MOST_BYTES = 1 << 22  # of a file of prompts


class Prompts(NamedTuple):
    """Names of the classes in the order of the logits, and templates, each with one {} for the name."""

    classes: tuple[str, ...]
    templates: tuple[str, ...]


class ZeroShotModel(nn.Module):
    """Image tower of a zero-shot model, whose classes are prompts.

    Args:
        towers: the model.
        texts: all that determines the text features: prompts, templates and a hash of the text tower and the tokens.
        features: text features, unit vectors, shape (classes, D).
    """

    features: Tensor

    def __init__(self, towers: Towers, texts: Mapping[str, Any], features: Tensor):
        super().__init__()
        self.tower, self.scale, self.bias, self.texts = towers.image, towers.scale, towers.bias, texts
        self.register_buffer("features", features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scaled cosine similarities with the prompts, shape (N, classes)."""
        logits = functional.normalize(self.tower(inputs), dim=1) @ self.features.T * self.scale.exp()
        return logits if self.bias is None else logits + self.bias


def _load(name: str, rest: str) -> Classifier:
    place, prompts = _read_name(name, rest)
    towers = load_towers(name, find_folder(name, place, TOKENIZERS, LAYOUTS))
    tokens = _tokens(name, towers, prompts)
    texts = {"classes": prompts.classes, "templates": prompts.templates, "digest": _digest(towers, tokens)}
    features = _features(towers, tokens, len(prompts.templates))
    module = ZeroShotModel(towers, texts, torch.zeros_like(features))
    classifier = Classifier(module, num_classes=len(prompts.classes), name=name, **towers.settings)
    classifier.class_names = prompts.classes
    classifier.all_named = len(prompts.classes) != _IMAGENET  # whose folders have WordNet ids as names
    # The features follow from `texts`, but are rounded differently on other machines.
    digest = digest_model(classifier)
    module.features.copy_(features)
    classifier.known_as[digest_model(classifier)] = digest
    shown = prompts.templates[0].format(prompts.classes[0])
    count = len(prompts.templates)
    templates = f"{count} template{'s' * (count > 1)}, such as {shown!r}"
    notes = [*towers.notes, f"zero-shot, {len(prompts.classes)} classes, {templates}"]
    if module.bias is not None:
        notes.append("trained with a sigmoid for each prompt; confidences here are its softmax over the prompts")
    classifier.loading_notes = tuple(f"{name}: {note}" for note in notes)
    return classifier


def _read_name(name: str, rest: str) -> tuple[str, Prompts]:
    """Split "ORG/NAME?prompts=FILE&templates=FILE", and read the files."""
    place, _, query = rest.partition("?")
    given: dict[str, str] = {}
    for part in query.split("&"):
        word, _, given[word] = part.partition("=")
    if "prompts" not in given or not given.keys() <= {"prompts", "templates"}:
        raise InvalidInput(f"expected {_FORM}, got {name}")
    classes = _read_lines(given["prompts"], "names of classes")
    templates = _read_lines(given["templates"], "templates") if "templates" in given else (TEMPLATE,)
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise InvalidInput(f"expected at least two different classes, one per line, in {given['prompts']}")
    if wrong := [each for each in templates if each.count("{}") != 1 or {"{", "}"} & {*each.replace("{}", "")}]:
        raise InvalidInput(f"expected one {{}} in each template of {given['templates']}, got {wrong[0]!r}")
    return place, Prompts(classes, templates)


def _read_lines(file: str, what: str) -> tuple[str, ...]:
    path = expand_path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidInput(
                f"expected {what}, one per line, in {file}, got a file of {path.stat().st_size} bytes, which "
                "is too large"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"could not read the {what} in {file} ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"could not read the {what} in {file}, because the file is not encoded in UTF-8") from error
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _tokens(name: str, towers: Towers, prompts: Prompts) -> Tensor:
    """Return the tokens of every template with every class, class by class, padded to one length."""
    texts = [template.replace("{}", each) for each in prompts.classes for template in prompts.templates]
    tokens = towers.tokenize(texts)
    if len({*map(tuple, tokens.tolist())}) < len(texts):
        raise InvalidInput(f"{name} has the same tokens for different prompts; change the classes, or the tokenizer")
    return tokens


@full_float32()
@torch.no_grad()
def _features(towers: Towers, tokens: Tensor, templates: int) -> Tensor:
    """Return the normalised mean over templates of the normalised text features, shape (classes, D)."""
    each = functional.normalize(torch.cat([towers.text(part) for part in tokens.split(_BATCH)]), dim=1)
    return functional.normalize(each.view(-1, templates, each.shape[1]).mean(1), dim=1)


def _digest(towers: Towers, tokens: Tensor) -> str:
    """Return a hash of the text tower's configuration and weights, and of the tokens."""
    digest = sha256(json.dumps(towers.text_config, sort_keys=True).encode())
    for key, tensor in sorted(towers.text_state.items()):
        digest.update(key.encode())
        feed(digest, tensor)
    feed(digest, tokens)
    return digest.hexdigest()


PROVIDER = Provider("clip", _load, ("clip:ORG/NAME?prompts=classes.txt", "clip:./FOLDER?prompts=classes.txt"))
