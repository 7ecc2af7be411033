"""Image classifiers from the Hugging Face Hub or a folder, with the preprocessing of their image processor."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from ....errors import InvalidInput, MissingLibrary, Unavailable, Unsupported
from ...paths import expand_path
from ...user_code_guard import one_line
from ..classifier import Classifier
from ..images import SEVERAL_LABELS
from .provider import Provider
from .weights import check_reachable, loading

CONFIG, _PROCESSOR, _WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
_OLD_WEIGHTS = "pytorch_model.bin"
_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_CONVNEXT = 384  # from this side on, its processor does not crop
_BYTE = 255
_PLAIN_NAME = "LABEL_"  # default names of unnamed classes


def _load(name: str, rest: str, *, several: bool = False) -> Classifier:
    transformers = load_library()
    folder = find_folder(name, rest)
    config = read_json(folder / CONFIG)
    _check_architecture(config, transformers, name, several=several)
    model: Any = load_pretrained(name, folder, config, transformers.AutoModelForImageClassification)
    settings, notes = read_processor(processor_of(folder), config.get("image_size"))
    names = [text for _, text in sorted(model.config.id2label.items())]
    classifier = Classifier(model, num_classes=len(names), name=name, **settings)
    if not all(each.startswith(_PLAIN_NAME) for each in names):
        classifier.class_names = tuple(map(str, names))
    classifier.loading_notes = tuple(f"{name}: {note}" for note in notes)
    return classifier


def find_folder(name: str, rest: str, more: Sequence[str] = (), layouts: "Sequence[Layout] | None" = None) -> Path:
    """Return the folder of a model's files: a local one, or that in the hub's cache, after downloading missing files.

    Args:
        name: name of the model, for messages.
        rest: "ORG/NAME", "ORG/NAME@REVISION" or "./FOLDER".
        more: further files that are downloaded if the repository has them and none of them is in the cache.
        layouts: the libraries whose files the model may have, the preferred one first. None for transformers.

    Raises:
        InvalidInput: if the name has a different form.
        Unavailable: if there is no such folder or repository.
    """
    folder, layouts = expand_path(rest), layouts or (TRANSFORMERS,)
    if not (folder.is_dir() or rest.startswith((".", "/", "~"))):
        return _fetched(name, *_split(rest, name), more, layouts)
    if not any((folder / each.config).is_file() for each in layouts):
        wanted = " or ".join(f"{each.config} and {each.weights[0]}" for each in layouts)
        raise Unavailable(f"expected a folder written by save_pretrained, with {wanted}, at {folder}")
    return folder


def layout_of(folder: Path, layouts: "Sequence[Layout]") -> "Layout | None":
    """Return the first layout that the files in a folder have. None if they have no such layout."""
    files = ((each, folder / each.config) for each in layouts)
    return next((each for each, file in files if file.is_file() and each.fits(read_json(file))), None)


def load_pretrained(name: str, folder: Path, config: Mapping[str, Any], loader: Any) -> nn.Module:
    """Load a model in float32 from a folder with one of transformers' auto classes, without running code in it.

    Raises:
        InvalidInput: if the weights are incomplete.
        Unavailable: if they cannot be read.
    """
    transformers = load_library()
    weights = next((folder / file for file in (_WEIGHTS, _OLD_WEIGHTS) if (folder / file).exists()), folder / _WEIGHTS)
    with loading(name, weights), _quiet(transformers):
        model, info = loader.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, output_loading_info=True, dtype=torch.float32
        )
    lacking = sorted({*info["missing_keys"], *(each[0] for each in info.get("mismatched_keys", ()))})
    if lacking:
        shown = ", ".join(lacking[:3]) + ", ..." * (len(lacking) > 3)
        raise InvalidInput(f"the weights of {config['architectures'][0]} in {weights} are incomplete: {shown}")
    _forget_origin(model)
    return model


def _forget_origin(model: nn.Module) -> None:
    """Remove attributes that describe where and how a model was loaded, because they are not part of its identity."""
    for layer in model.modules():
        vars(layer).pop("_weight_conversions", None)
        if "name_or_path" in vars(layer):
            vars(layer)["name_or_path"] = ""
        if hasattr(vars(layer).get("config"), "_name_or_path"):
            vars(layer)["config"]._name_or_path = ""


def load_library() -> ModuleType:
    """Import transformers. Raises MissingLibrary if it or safetensors is not installed."""
    try:
        import safetensors  # noqa: F401 - format of most weights
        import transformers
    except ImportError as error:
        raise MissingLibrary(error.name or "transformers", "hf") from error
    return transformers


def _split(rest: str, name: str) -> tuple[str, str]:
    """Split "ORG/NAME@REVISION" into repository and revision, by default "main"."""
    source = name.partition(":")[0]
    repository, _, revision = rest.partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InvalidInput(
            f"expected {source}:ORG/NAME, {source}:ORG/NAME@REVISION or {source}:./FOLDER, got {source}:{rest}"
        )
    return repository, revision or "main"


class Layout(NamedTuple):
    """The files of a model in the form of one library.

    Args:
        config: name of the configuration file.
        weights: names of the file of weights, the preferred one first.
        library: imports the library, or raises MissingLibrary.
        fits: whether a configuration is one for this library.
        others: further files that are downloaded if the repository has them.
    """

    config: str
    weights: tuple[str, ...]
    library: Callable[[], object]
    fits: Callable[[Mapping[str, Any]], bool] = lambda _: True
    others: tuple[str, ...] = ()


TRANSFORMERS = Layout(CONFIG, (_WEIGHTS, _OLD_WEIGHTS), load_library, others=(_PROCESSOR,))


def _fetched(name: str, repository: str, revision: str, more: Sequence[str], layouts: Sequence[Layout]) -> Path:
    """Return the folder of a model's files in the hub's cache, after downloading missing files."""
    folder = next(filter(None, (_cached(repository, revision, each) for each in layouts)), None)
    if folder is None:
        folder = _fetch_config(name, repository, revision, layouts)
        if (layout := layout_of(folder, layouts)) is None:
            return folder
        layout.library()  # before weights are downloaded
        for file in layout.others:
            with suppress(Unavailable):
                _fetch(name, repository, revision, file)
        for file in layout.weights:
            with suppress(*[Unavailable] * (file != layout.weights[-1])):
                _fetch(name, repository, revision, file)
                break
    if not any((folder / file).is_file() for file in more):
        for file in more:
            with suppress(Unavailable):
                _fetch(name, repository, revision, file)
    return folder


def _cached(repository: str, revision: str, layout: Layout) -> Path | None:
    """Return the folder in the hub's cache if it has a configuration that fits and its weights. None without them."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError as error:
        raise MissingLibrary("huggingface_hub", "hf") from error
    files = (try_to_load_from_cache(repository, file, revision=revision) for file in (layout.config, *layout.weights))
    config, *weights = (Path(file) if isinstance(file, str) else None for file in files)
    return config.parent if config and any(weights) and layout.fits(read_json(config)) else None


def _fetch_config(name: str, repository: str, revision: str, layouts: Sequence[Layout]) -> Path:
    """Download configurations until one fits, and return their folder. Raises Unavailable if there is none."""
    failures: list[Unavailable] = []
    folder: Path | None = None
    for each in layouts:
        try:
            folder = _fetch(name, repository, revision, each.config).parent
        except Unavailable as failure:
            failures.append(failure)
        else:
            if layout_of(folder, (each,)) is not None:
                break
    if folder is None:
        raise failures[0]
    return folder


def _fetch(name: str, repository: str, revision: str, file: str) -> Path:
    """Print the size of a file in a repository, and download it."""
    from huggingface_hub import hf_hub_download, hf_hub_url

    url = hf_hub_url(repository, file, revision=revision)
    try:
        size = check_reachable(url, name, Path(file))
        sys.stderr.write(f"fetching {url}{'' if size is None else f' ({size / 2**20:.1f} MB)'}\n")
        with redirect_stdout(sys.stderr):
            return Path(hf_hub_download(repository, file, revision=revision))
    except Exception as error:  # the hub's errors are of many classes
        advice = (
            f"fetch {CONFIG}, {_PROCESSOR} and {_WEIGHTS} on a different machine, and name their "
            f"folder here: {name.partition(':')[0]}:./FOLDER"
        )
        reason = one_line(error.__cause__ or error)
        raise Unavailable(f"could not fetch {name} from {url} ({reason}); {advice}") from error


def _check_architecture(config: dict[str, Any], transformers: ModuleType, name: str, *, several: bool) -> None:
    """Raise Unsupported unless the model is an image classifier that needs no code from its repository."""
    kinds = [str(kind) for kind in config.get("architectures") or ()]
    if config.get("auto_map") and config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise Unsupported(f"{name} needs its own code (trust_remote_code), which davylamp never runs")
    if not kinds or not kinds[0].endswith("ForImageClassification"):
        raise Unsupported(f"expected an image classifier as {name}, got {', '.join(kinds) or 'no architecture'}")
    if config.get("problem_type") == "multi_label_classification" and not several:
        raise Unsupported(f"{name} is a multi-label model: {SEVERAL_LABELS}")


def processor_of(folder: Path) -> dict[str, Any] | None:
    """Return the image processor's settings in a folder; None if there are none."""
    if (folder / _PROCESSOR).is_file():
        return read_json(folder / _PROCESSOR)
    both = folder / "processor_config.json"
    return read_json(both).get("image_processor") if both.is_file() else None


def read_processor(processor: Mapping[str, Any] | None, side: Any) -> tuple[dict[str, Any], list[str]]:
    """Convert an image processor of transformers to settings for a `Classifier`.

    Some processors stretch images to a square. Here the shorter side is resized and the image is cropped instead, as
    for timm's models.

    Args:
        processor: contents of the processor's JSON file. None if there is no such file.
        side: side of the images in the model's configuration. None if unknown.

    Returns:
        The settings, and notes on differences from the processor.

    Raises:
        Unsupported: if the processor makes images that are not square.
        InvalidInput: if a value is invalid.
    """
    side = side if isinstance(side, int) else None  # some models take images that are not square
    if processor is None:
        note = "no preprocessor_config.json, so pixels in [0, 1] are not normalised; set --mean and --std if needed"
        return {"mean": None, "std": None, "resize": side, "crop": side}, [note]
    resize, crop, notes = _sizes(processor)
    mean, std = _normalisation(processor)
    settings: dict[str, Any] = {"mean": mean, "std": std, "resize": resize, "crop": crop}
    number = processor.get("resample", 2)
    if number not in _INTERPOLATIONS:
        notes.append(f"uses Pillow's filter {number} for resizing; replaced by bicubic")
    return {**settings, "interpolation": _INTERPOLATIONS.get(number, "bicubic")}, notes


def _sizes(processor: Mapping[str, Any]) -> tuple[int | None, int | None, list[str]]:
    size = processor.get("size") if processor.get("do_resize", True) else None
    crop = _square(processor.get("crop_size")) if processor.get("do_center_crop") else None
    if size is None:
        return None, crop, []
    is_shortest = "shortest_edge" in size if isinstance(size, Mapping) else crop is not None
    side = size["shortest_edge"] if is_shortest and isinstance(size, Mapping) else _square(size)
    if not isinstance(side, int) or side < 1:
        raise InvalidInput(f"expected the size of images in preprocessor_config.json, got {size}")
    percent = processor.get("crop_pct")
    if percent and side < _CONVNEXT:
        return int(side / percent), side, []
    if is_shortest and not percent:
        return side, crop, []
    note = f"squeezes images to {side} x {side}; davylamp resizes the shorter edge to {side} and crops the centre"
    return side, crop or side, [note]


def _square(size: Any) -> int | None:
    if isinstance(size, Mapping):
        height, width = size.get("height"), size.get("width")
        if height != width:
            raise Unsupported(f"its processor makes images of {width} x {height}; only square images are supported")
        return height
    return size


def _normalisation(processor: Mapping[str, Any]) -> tuple[list[float] | None, list[float] | None]:
    scale = _BYTE * processor.get("rescale_factor", 1 / _BYTE) if processor.get("do_rescale", True) else _BYTE
    shift = 1.0 if processor.get("rescale_offset") and processor.get("do_rescale", True) else 0.0
    mean, std = [0.0] * 3, [1.0] * 3
    if processor.get("do_normalize", True) and processor.get("image_mean") is not None:
        mean, std = processor["image_mean"], processor["image_std"]
    if not shift and abs(scale - 1) < 1e-9:
        return (mean, std) if (mean, std) != ([0.0] * 3, [1.0] * 3) else (None, None)
    return [(each + shift) / scale for each in mean], [each / scale for each in std]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises Unavailable or InvalidInput."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unavailable(f"could not read {path} ({one_line(error)})") from error
    if not isinstance(read, dict):
        raise InvalidInput(f"expected a JSON object in {path}, got {type(read).__name__}")
    return read


@contextmanager
def _quiet(transformers: ModuleType) -> Iterator[None]:
    """Disable progress bars and log messages of transformers inside the block."""
    logging = transformers.utils.logging
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


PROVIDER = Provider(
    "hf", _load, ("hf:ORG/NAME", "hf:./FOLDER"), load_multi_label=lambda name, rest: _load(name, rest, several=True)
)
