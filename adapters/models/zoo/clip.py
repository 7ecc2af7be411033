"""Zero-shot classifiers from the Hugging Face Hub or a folder: an image tower, and prompts as classes.

The text features of the prompts are computed once, when the model is loaded.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ....errors import InvalidInput, Unavailable, Unsupported
from ...paths import expand_path
from ...torch_state import full_float32
from ...user_code_guard import one_line
from ..classifier import Classifier
from ..identity.digest import digest_model
from ..identity.encoding import feed
from .hf import CONFIG, find_folder, load_library, load_pretrained, processor_of, read_json
from .hf_processor import read_processor
from .provider import Provider

TEMPLATE = "a photo of a {}."
_KINDS = ("clip", "siglip")  # model types whose towers are called alike
_VOCABULARIES = ("tokenizer.json", "vocab.json", "spiece.model")
_TOKENIZERS = (*_VOCABULARIES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json")
_BATCH = 64  # prompts in a forward pass of the text tower
_FORM = "clip:ORG/NAME?prompts=classes.txt, and &templates=templates.txt if wanted"
_IMAGENET = 1000  # classes
_MOST_BYTES = 1 << 22  # of a file of prompts


class Prompts(NamedTuple):
    """Names of the classes in the order of the logits, and templates, each with one {} for the name."""

    classes: tuple[str, ...]
    templates: tuple[str, ...]


class ZeroShotModel(nn.Module):
    """Image tower of a CLIP or SigLIP model, whose classes are prompts.

    Args:
        model: CLIPModel or SiglipModel of transformers.
        texts: all that determines the text features: prompts, templates and a hash of the text tower and the tokens.
    """

    features: Tensor

    def __init__(self, model: Any, texts: Mapping[str, Any]):
        super().__init__()
        self.tower, self.projection = model.vision_model, getattr(model, "visual_projection", nn.Identity())
        self.scale, self.bias = model.logit_scale, getattr(model, "logit_bias", None)
        self.texts = texts
        width = (
            model.config.projection_dim
            if hasattr(model, "visual_projection")
            else model.config.vision_config.hidden_size
        )
        self.register_buffer("features", torch.zeros(len(texts["classes"]), width))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scaled cosine similarities with the prompts, shape (N, classes)."""
        images = functional.normalize(self.projection(self.tower(pixel_values=inputs).pooler_output), dim=1)
        logits = images @ self.features.T * self.scale.exp()
        return logits if self.bias is None else logits + self.bias


def _load(name: str, rest: str) -> Classifier:
    place, prompts = _read_name(name, rest)
    folder = find_folder(name, place, _TOKENIZERS)
    transformers = load_library()
    config = read_json(folder / CONFIG)
    if config.get("model_type") not in _KINDS:
        raise Unsupported(f"expected a model of type {' or '.join(_KINDS)} as {name}, got {config.get('model_type')!r}")
    model: Any = load_pretrained(name, folder, config, transformers.AutoModel).eval()
    tokens = _tokens(name, folder, model, prompts)
    texts = {"classes": prompts.classes, "templates": prompts.templates, "digest": _digest(model, tokens)}
    settings, notes = read_processor(processor_of(folder), config.get("vision_config", {}).get("image_size"))
    module = ZeroShotModel(model, texts)
    classifier = Classifier(module, num_classes=len(prompts.classes), name=name, **settings)
    classifier.class_names = prompts.classes
    classifier.all_named = len(prompts.classes) != _IMAGENET  # whose folders have WordNet ids as names
    # The features follow from `texts`, but are rounded differently on other machines.
    digest = digest_model(classifier)
    module.features.copy_(_features(model, tokens, len(prompts.templates)))
    classifier.known_as[digest_model(classifier)] = digest
    shown = prompts.templates[0].format(prompts.classes[0])
    notes.append(f"zero-shot, {len(prompts.classes)} classes, {len(prompts.templates)} templates, such as {shown!r}")
    if classifier.model.bias is not None:
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
        raise InvalidInput(f"expected at least two different classes, one a line, in {given['prompts']}")
    if wrong := [each for each in templates if each.count("{}") != 1 or {"{", "}"} & {*each.replace("{}", "")}]:
        raise InvalidInput(f"expected one {{}} in each template of {given['templates']}, got {wrong[0]!r}")
    return place, Prompts(classes, templates)


def _read_lines(file: str, what: str) -> tuple[str, ...]:
    path = expand_path(file)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidInput(f"expected {what}, one a line, in {file}, got {path.stat().st_size} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"could not read the {what} in {file} ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"expected {what} in UTF-8 in {file}") from error
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _tokens(name: str, folder: Path, model: Any, prompts: Prompts) -> Tensor:
    """Return the tokens of every template with every class, class by class, padded to one length."""
    texts = [template.replace("{}", each) for each in prompts.classes for template in prompts.templates]
    longest = model.config.text_config.max_position_embeddings
    if not any((folder / file).is_file() for file in _VOCABULARIES):  # transformers would make an empty tokenizer
        raise Unavailable(f"expected a tokenizer of {name} ({', '.join(_VOCABULARIES)}) in {folder}")
    try:
        tokenizer = load_library().AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        plain = tokenizer(texts)["input_ids"]
    except Exception as error:  # of many classes, from several tokenizer libraries
        raise Unavailable(f"could not read the tokenizer of {name} in {folder} ({one_line(error)})") from error
    if too_long := [text for text, each in zip(texts, plain, strict=True) if len(each) > longest]:
        raise InvalidInput(f"expected prompts of at most {longest} tokens for {name}, got {too_long[0]!r}")
    if len({*map(tuple, plain)}) < len(plain):
        raise InvalidInput(f"{name} has the same tokens for different prompts; change the classes, or the tokenizer")
    how = {"padding": "max_length", "max_length": longest, "return_tensors": "pt"}  # SigLIP was trained with padding
    return tokenizer.pad({"input_ids": plain}, **how)["input_ids"]


@full_float32()
@torch.no_grad()
def _features(model: Any, tokens: Tensor, templates: int) -> Tensor:
    """Return the normalised mean over templates of the normalised text features, shape (classes, D)."""
    project = getattr(model, "text_projection", nn.Identity())
    parts = [project(model.text_model(input_ids=part).pooler_output) for part in tokens.split(_BATCH)]
    each = functional.normalize(torch.cat(parts), dim=1)
    return functional.normalize(each.view(-1, templates, each.shape[1]).mean(1), dim=1)


def _digest(model: Any, tokens: Tensor) -> str:
    """Return a hash of the text tower's weights and of the tokens."""
    digest = sha256()
    for part in ("text_model", "text_projection"):
        state: Sequence[tuple[str, Tensor]] = sorted(getattr(model, part, nn.Identity()).state_dict().items())
        for key, tensor in state:
            digest.update(f"{part}.{key}".encode())
            feed(digest, tensor)
    feed(digest, tokens)
    return digest.hexdigest()


PROVIDER = Provider("clip", _load, ("clip:ORG/NAME?prompts=classes.txt", "clip:./FOLDER?prompts=classes.txt"))
