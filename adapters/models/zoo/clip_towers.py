"""Image and text towers of zero-shot models, in the files of transformers and of open_clip."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor, nn

from ....errors import InvalidInput, MissingLibrary, Unavailable, Unsupported
from ...user_code_guard import one_line
from .hf import (
    CONFIG,
    TRANSFORMERS,
    Layout,
    layout_of,
    load_library,
    load_pretrained,
    processor_of,
    read_json,
    read_processor,
)
from .weights import loading, quietly

_KINDS = ("clip", "siglip")  # model types whose towers are called alike
_VOCABULARIES = ("tokenizer.json", "vocab.json", "spiece.model")
TOKENIZERS = (*_VOCABULARIES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json")


class Towers(NamedTuple):
    """A zero-shot model.

    Args:
        image: maps normalised images, (N, C, H, W), to features, (N, D).
        text: maps tokens, (N, T), to features, (N, D).
        scale: logarithm of the factor of the cosine similarities.
        bias: added to the scaled similarities. None without one.
        text_state: weights of the text tower.
        text_config: configuration of the text tower, as in the file.
        tokenize: maps texts to their tokens, (N, T), padded to one length.
        settings: arguments of `Classifier` for the preprocessing of images.
        notes: differences from the published preprocessing.
    """

    image: nn.Module
    text: Callable[[Tensor], Tensor]
    scale: Tensor
    bias: Tensor | None
    text_state: Mapping[str, Tensor]
    text_config: Mapping[str, Any]
    tokenize: Callable[[Sequence[str]], Tensor]
    settings: Mapping[str, Any]
    notes: Sequence[str]


def load_towers(name: str, folder: Path) -> Towers:
    """Load a model from a folder that transformers or open_clip has saved.

    Raises:
        Unsupported: if the model is neither CLIP nor SigLIP.
        MissingLibrary, Unavailable, InvalidInput: if the library, weights or tokenizer are missing or damaged.
    """
    layout = layout_of(folder, LAYOUTS)
    if layout is None:
        kind = read_json(folder / CONFIG).get("model_type")
        raise Unsupported(f"expected a model of type {' or '.join(_KINDS)}, or of open_clip, as {name}, got {kind!r}")
    return (_of_open_clip if layout.config == _OPEN_CLIP else _of_transformers)(name, folder)


class _PooledTower(nn.Module):
    """Image tower of transformers, with its projection."""

    def __init__(self, tower: nn.Module, projection: nn.Module):
        super().__init__()
        self.tower, self.projection = tower, projection

    def forward(self, inputs: Tensor) -> Tensor:
        return self.projection(self.tower(pixel_values=inputs).pooler_output)


def _of_transformers(name: str, folder: Path) -> Towers:
    transformers, config = load_library(), read_json(folder / CONFIG)
    model: Any = load_pretrained(name, folder, config, transformers.AutoModel).eval()
    settings, notes = read_processor(processor_of(folder), config.get("vision_config", {}).get("image_size"))
    project = getattr(model, "text_projection", nn.Identity())
    parts = {"text_model": model.text_model, "text_projection": project}
    return Towers(
        image=_PooledTower(model.vision_model, getattr(model, "visual_projection", nn.Identity())),
        text=lambda tokens: project(model.text_model(input_ids=tokens).pooler_output),
        scale=model.logit_scale,
        bias=getattr(model, "logit_bias", None),
        text_state={f"{part}.{key}": value for part in parts for key, value in parts[part].state_dict().items()},
        text_config=config.get("text_config") or {},
        tokenize=_tokenizer(name, folder, model.config.text_config.max_position_embeddings),
        settings=settings,
        notes=notes,
    )


def _tokenizer(name: str, folder: Path, longest: int) -> Callable[[Sequence[str]], Tensor]:
    if not any((folder / file).is_file() for file in _VOCABULARIES):  # transformers would make an empty tokenizer
        raise Unavailable(f"no tokenizer of {name} ({', '.join(_VOCABULARIES)}) in {folder}")

    def tokenize(texts: Sequence[str]) -> Tensor:
        with _reading_tokens(name, folder):
            read = load_library().AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            plain = read([*texts])["input_ids"]
        _check_length(name, [text for text, each in zip(texts, plain, strict=True) if len(each) > longest], longest)
        how = {"padding": "max_length", "max_length": longest, "return_tensors": "pt"}  # SigLIP was trained with it
        return read.pad({"input_ids": plain}, **how)["input_ids"]

    return tokenize


class _FirstOutput(nn.Module):
    """Image tower of open_clip. CoCa's also returns a feature for each place, which is not used."""

    def __init__(self, tower: nn.Module):
        super().__init__()
        self.tower = tower

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.tower(inputs)
        return features[0] if isinstance(features, tuple) else features


def _of_open_clip(name: str, folder: Path) -> Towers:
    library, place = _load_open_clip(), f"local-dir:{folder}"
    with loading(name, folder), _unlogged():
        model = library.create_model(place, require_pretrained=True).eval()
    config = read_json(folder / _OPEN_CLIP)["model_cfg"]
    settings, notes = _read_preprocessing(name, library.get_model_preprocess_cfg(model))
    apart = ("visual.", "logit_scale", "logit_bias")
    return Towers(
        image=_FirstOutput(model.visual),
        text=model.encode_text,
        scale=model.logit_scale,
        bias=getattr(model, "logit_bias", None),
        text_state={key: value for key, value in model.state_dict().items() if not key.startswith(apart)},
        text_config={key: value for key, value in config.items() if key != "vision_cfg"},
        tokenize=_open_clip_tokenizer(name, folder, library),
        settings=settings,
        notes=notes,
    )


def _open_clip_tokenizer(name: str, folder: Path, library: ModuleType) -> Callable[[Sequence[str]], Tensor]:
    def tokenize(texts: Sequence[str]) -> Tensor:
        with _reading_tokens(name, folder), _unlogged():
            read = library.get_tokenizer(f"local-dir:{folder}")
            longest = read.context_length
            tokens, longer = read([*texts]), read(["", *texts], context_length=longest + 1)  # it truncates silently
        cut = (longer[1:, :longest] != tokens).any(1) | (longer[1:, longest] != longer[0, longest])
        _check_length(name, [text for text, is_cut in zip(texts, cut.tolist(), strict=True) if is_cut], longest)
        return tokens

    return tokenize


def _read_preprocessing(name: str, published: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings for a `Classifier`, and notes on differences from open_clip's transform."""
    size, how, notes = published["size"], published["interpolation"], []
    sides = {size} if isinstance(size, int) else {*size}
    if len(sides) != 1:
        raise Unsupported(f"{name} takes images of {size}; only square images are supported")
    (side,) = sides
    if published["resize_mode"] != "shortest":
        does = {"squash": "squeezes", "longest": "pads"}.get(published["resize_mode"], published["resize_mode"])
        notes.append(f"{does} images to {side} x {side}; davylamp resizes the shorter edge and crops the centre")
    if how not in ("bilinear", "bicubic"):
        notes.append(f"uses {how} for resizing; replaced by bicubic")
    interpolation = "bilinear" if how == "bilinear" else "bicubic"
    sizes = {"resize": side, "crop": side, "interpolation": interpolation}
    return {**sizes, "mean": [*published["mean"]], "std": [*published["std"]]}, notes


def _check_length(name: str, too_long: Sequence[str], longest: int) -> None:
    if too_long:
        raise InvalidInput(f"expected prompts of at most {longest} tokens for {name}, got {too_long[0]!r}")


@contextmanager
def _reading_tokens(name: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of many classes, from several tokenizer libraries
        raise Unavailable(f"could not read the tokenizer of {name} in {folder} ({one_line(error)})") from error


def _load_open_clip() -> ModuleType:
    try:
        with quietly():
            import open_clip
    except ImportError as error:
        raise MissingLibrary(error.name or "open_clip", "hf") from error
    return open_clip


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep open_clip from writing to the root logger, which would set up logging for the whole process."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        with quietly():
            yield
    finally:
        root.removeHandler(silent)


_OPEN_CLIP = "open_clip_config.json"
LAYOUTS = (
    TRANSFORMERS._replace(fits=lambda config: config.get("model_type") in _KINDS),
    Layout(_OPEN_CLIP, ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"), _load_open_clip),
)
