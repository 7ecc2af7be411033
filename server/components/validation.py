"""Validates components by kind: a name known to davylamp, an address, or a file. Files are not executed."""

import ast
import io
import lzma
import re
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from pickle import PickleError
from typing import NamedTuple

from ...errors import DavylampError, InvalidInput, UnknownName
from ..database.records import ComponentRow, Kind

FORMS: Mapping[Kind, tuple[str, ...]] = {
    "model": ("named", "url", "code", "onnx", "weights"),
    "attack": ("named", "code"),
    "defence": ("named", "code"),
    "data": ("named", "npz", "folder"),
}
FOREIGN = ("code",)  # forms whose files are programs
A_KIND: Mapping[Kind, str] = {"model": "a model", "attack": "an attack", "defence": "a defence", "data": "data"}
_NAMED: Mapping[Kind, re.Pattern[str]] = {
    "model": re.compile(r"(demo|torchvision|timm|robustbench):[A-Za-z0-9_.-]{1,100}"),
    "attack": re.compile(r"[a-z0-9_@:(),-]{1,200}"),
    "defence": re.compile(r"[a-z0-9_:,=.-]{1,200}"),
    "data": re.compile(r"demo:[a-z0-9-]{1,60}(\+[a-z_]{1,40}:[1-5])?"),
}
_ARCHITECTURE = re.compile(r"(torchvision|timm):[A-Za-z0-9_.-]{1,100}")
_ADDRESS = re.compile(r"(json\+)?https?://[A-Za-z0-9.\[\]:-]{1,200}/[A-Za-z0-9_./-]{1,200}")
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,59}")
_LARGEST_CODE, _LARGEST_PICKLE = 1 << 20, 16 << 20
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".csv")
UNREADABLE = (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_OF_TORCH = (RuntimeError, TypeError, ValueError)
_MOST_FILES, _LARGEST_ARCHIVE, _BLOWN_UP = 200_000, 50 << 30, 200


class ComponentRequest(NamedTuple):
    """Request to register a component.

    Args:
        kind: "model", "attack", "defence" or "data".
        form: how the component is given, see `FORMS`.
        entry: name, address, function or architecture, depending on the form.
        file_name: original name of the file.
        path: path of the uploaded file. None without a file.
    """

    kind: Kind
    form: str
    entry: str = ""
    file_name: str = ""
    path: Path | None = None


def validate_component(wish: ComponentRequest) -> str:
    """Validate a component without executing its file.

    Returns:
        The name that the file gets in tasks, or "" without a file.

    Raises:
        InvalidInput: If the kind does not have this form, or if entry and file do not match the form.
        UnknownName: If davylamp has no component with that name.
    """
    if wish.form not in FORMS[wish.kind]:
        raise InvalidInput(f"expected {A_KIND[wish.kind]} as {', '.join(FORMS[wish.kind])}, got {wish.form[:40]!r}")
    if wish.form in ("named", "url"):
        if wish.path is not None:
            raise InvalidInput(f"a component given as {wish.form} takes no file, but a file was sent")
        _check_named(wish)
        return ""
    if wish.path is None:
        raise InvalidInput(f"expected a file for {A_KIND[wish.kind]} as {wish.form}, got none")
    return _CHECKS[wish.form](wish, wish.path)


def engine_name(component: ComponentRow, folder: str) -> str:
    """Return the name by which the engine loads a component.

    Args:
        component: component of any kind.
        folder: folder of the component's file, as the engine sees it.
    """
    file, form = f"{folder}/{component.file_name}", component.form
    written = {"code": f"{file}:{component.entry}", "onnx": f"onnx:{file}", "weights": f"{file}+{component.entry}"}
    written |= {"npz": f"npz:{file}", "folder": f"imagefolder:{folder}/images"}
    return written.get(form, component.entry)


def _check_named(wish: ComponentRequest) -> None:
    pattern = _ADDRESS if wish.form == "url" else _NAMED[wish.kind]
    if not pattern.fullmatch(wish.entry) or ".." in wish.entry:
        what = f"the name of {A_KIND[wish.kind]} that davylamp has"
        what = "(json+)http(s)://HOST:PORT/PATH" if wish.form == "url" else what
        raise InvalidInput(f"expected {what}, got {wish.entry[:100]!r}")
    if wish.form == "url":
        from ...adapters.models.remote.address import read_address

        read_address(wish.entry)
        return
    try:
        _look_up(wish.kind, wish.entry)
    except UnknownName:
        raise
    except DavylampError as error:
        raise InvalidInput(f"expected the name of {A_KIND[wish.kind]}, got {wish.entry!r}: {error}") from error


def _look_up(kind: Kind, name: str) -> None:
    """Raise a DavylampError if davylamp has no component with that name. Models are checked only when they run."""
    from ...adapters.data.corruptions.published import find_corruption
    from ...adapters.data.datasets import dataset_name_patterns
    from ...adapters.models.defences.catalogue import MEMBER
    from ...adapters.models.defences.names import parse_defence
    from ...adapters.models.zoo.load import list_models
    from ...engine.plan.choices import rows_of
    from ...engine.plan.config_file import parse_attack_choice

    if kind == "attack":
        rows_of(parse_attack_choice(name), ())
    elif kind == "defence":
        defence, parameters, _ = parse_defence(name)
        if defence.takes and (defence.takes != "model" or not _NAMED["model"].fullmatch(parameters[MEMBER])):
            raise InvalidInput(f"expected the name of a model that davylamp has, no file or address, in {name!r}")
        if defence.takes:
            _look_up("model", parameters[MEMBER])
    elif kind == "data":
        plain, _, corruption = name.partition("+")
        if plain not in dataset_name_patterns():
            raise UnknownName("data", plain, [each for each in dataset_name_patterns() if each.startswith("demo:")])
        if corruption:
            find_corruption(corruption.partition(":")[0])
    elif kind == "model" and name.startswith("demo:") and name not in list_models(name):
        raise UnknownName("model", name, list_models(name))


def _check_code(wish: ComponentRequest, path: Path) -> str:
    name = wish.file_name.removesuffix(".py")
    if not wish.file_name.endswith(".py") or not _FILE_NAME.fullmatch(name):
        raise InvalidInput(f"expected a Python file as NAME.py, got {wish.file_name[:80]!r}")
    if not _FUNCTION.fullmatch(wish.entry):
        raise InvalidInput(f"expected the name of a function or object in the file, got {wish.entry[:80]!r}")
    if path.stat().st_size > _LARGEST_CODE:
        raise InvalidInput("expected a Python file of at most 1 MiB, got more")
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(f"expected a Python file, got one that does not parse ({str(error)[:100]})") from error
    if wish.entry not in set(_names_in(tree)):
        raise UnknownName(f"{wish.kind} in {wish.file_name}", wish.entry, set(_names_in(tree)))
    return wish.file_name


def _names_in(tree: ast.Module) -> list[str]:
    """Return the names that a module defines or imports."""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
    return names


def _check_onnx(_: ComponentRequest, path: Path) -> str:
    if _first_bytes(path, 4) == b"PK\x03\x04" or _first_bytes(path, 1) not in (b"\x08", b"\x0a", b"\x12"):
        raise InvalidInput("expected an ONNX file, got something else")
    return "model.onnx"


def _check_weights(wish: ComponentRequest, path: Path) -> str:
    if not _ARCHITECTURE.fullmatch(wish.entry):
        raise InvalidInput(
            f"expected the architecture of the weights as torchvision:NAME or timm:NAME, got {wish.entry[:80]!r}"
        )
    if _first_bytes(path, 4) == b"PK\x03\x04":
        _check_pickles(path)
        return "weights.pth"  # no `.pt`, because such files may name a model to load
    if _first_bytes(path, 9)[8:] == b"{":
        return "weights.safetensors"
    raise InvalidInput("expected weights as torch.save(model.state_dict()) or safetensors, got something else")


def _check_pickles(path: Path) -> None:
    """Raise InvalidInput for weights whose pickle names classes or functions. The pickle is not executed.

    Torch gets a rewritten archive that contains only the pickle, because torch's archive reader must not run on
    untrusted files in this process.
    """
    from torch.serialization import get_unsafe_globals_in_checkpoint

    pickles = [each for each in _list_archive(path) if each.filename.endswith(("/data.pkl", "/constants.pkl"))]
    copy = io.BytesIO()
    try:
        (only,) = pickles
        if only.file_size > _LARGEST_PICKLE:
            raise ValueError("it is too large")
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as plain:
            plain.writestr("archive/data.pkl", archive.read(only))
            plain.writestr("archive/version", "3\n")
        copy.seek(0)
        named = get_unsafe_globals_in_checkpoint(copy)
    except (ArithmeticError, AttributeError, LookupError, PickleError, *UNREADABLE, *_OF_TORCH) as error:
        raise InvalidInput(
            "expected weights as torch.save(model.state_dict()), got an archive that torch does not list"
        ) from error
    if named:
        what = ", ".join(map(str, named))[:200]
        raise InvalidInput(f"expected tensors alone, torch.save(model.state_dict()), got a pickle of {what}")


def _check_npz(_: ComponentRequest, path: Path) -> str:
    names = [info.filename for info in _list_archive(path)]
    if not names or any(not name.endswith(".npy") or "/" in name for name in names):
        raise InvalidInput("expected NPZ: an archive of arrays (numpy.savez), got other files in it")
    for name in names:
        if _holds_objects(path, name):
            raise InvalidInput(f"expected arrays of numbers, got Python objects or other content in {name[:80]!r}")
    return "data.npz"


def _holds_objects(path: Path, name: str) -> bool:
    """Return whether an archive member contains Python objects or is not an array. Only its header is read."""
    import numpy as np

    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            return read(file)[2].hasobject
    except (*UNREADABLE, ValueError, SyntaxError, LookupError, TypeError, tokenize.TokenError):
        return True


def _check_folder(_: ComponentRequest, path: Path) -> str:
    members = _list_archive(path)
    if all(info.is_dir() or info.filename.lower().endswith(".csv") for info in members):
        raise InvalidInput("expected images in the archive, got none")
    for info in members:
        parts = Path(info.filename).parts
        inside = info.filename and not info.filename.startswith(("/", "\\")) and ".." not in parts
        if not inside or "\\" in info.filename or "\0" in info.filename or ":" in info.filename or len(parts) > 8:
            raise InvalidInput(f"expected paths inside the archive, got {info.filename[:80]!r}")
        if (info.external_attr >> 16) & 0o170000 in (0o120000, 0o060000, 0o020000, 0o010000):
            raise InvalidInput(f"expected files in the archive, got a link or a device: {info.filename[:80]!r}")
        if not info.is_dir() and not info.filename.lower().endswith(_PICTURES):
            raise InvalidInput(f"expected images and labels.csv in the archive, got {info.filename[:80]!r}")
    return "images.zip"


def _list_archive(path: Path) -> list[zipfile.ZipInfo]:
    """Return the members of an archive. Raise an error if unpacking it could fill the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"expected a ZIP archive, got something else ({str(error)[:100]})") from error
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if strange := next((each for each in members if each.flag_bits & 1 or each.compress_type not in known), None):
        raise InvalidInput(
            f"expected files that are stored or deflated, got a different method: {strange.filename[:80]!r}"
        )
    size = sum(info.file_size for info in members)
    if not members or len(members) > _MOST_FILES or size > _LARGEST_ARCHIVE:
        raise InvalidInput(f"expected 1 to {_MOST_FILES} files of at most 50 GiB, got {len(members)} of {size} bytes")
    if size > _BLOWN_UP * max(path.stat().st_size, 1 << 20):
        raise InvalidInput(f"expected an archive that unpacks to at most {_BLOWN_UP} times its size, got more")
    return members


def _first_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


_CHECKS = {
    "code": _check_code,
    "onnx": _check_onnx,
    "weights": _check_weights,
    "npz": _check_npz,
    "folder": _check_folder,
}
