"""Validates components that users register: names, addresses and files. Files are not executed."""

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
    """Kind and content of a component that a user wants to register.

    Args:
        kind: "model", "attack", "defence" or "data".
        form: form in which the component is given. `FORMS` lists the forms of each kind.
        entry: depends on the form. "named": name of the component in davylamp. "url": address of a model server.
            "code": name of a function or object in the file. "weights": architecture of the model. Otherwise "".
        file_name: name of the file on the user's machine; "" if there is no file.
        path: path of the uploaded file. None if there is no file.
    """

    kind: Kind
    form: str
    entry: str = ""
    file_name: str = ""
    path: Path | None = None


def validate_component(wish: ComponentRequest) -> str:
    """Check that davylamp can use a component. The file of the component is not executed.

    Returns:
        The name of the file in tasks that use the component; "" if there is no file.

    Raises:
        InvalidInput: If the kind does not have this form, or if entry or file do not match the form.
        UnknownName: If the form is "named" and davylamp does not know the name, or if the file has no such function.
    """
    if wish.form not in FORMS[wish.kind]:
        raise InvalidInput(
            f"expected the form of {A_KIND[wish.kind]} as one of {', '.join(FORMS[wish.kind])}, got {wish.form[:40]!r}"
        )
    if wish.form in ("named", "url"):
        if wish.path is not None:
            raise InvalidInput(f"a component of the form {wish.form} needs no file, but a file was sent")
        _check_named(wish)
        return ""
    if wish.path is None:
        raise InvalidInput(f"expected a file for {A_KIND[wish.kind]} of the form {wish.form}, got none")
    return _CHECKS[wish.form](wish, wish.path)


def engine_name(component: ComponentRow, folder: str) -> str:
    """Return the name by which davylamp's engine loads a component.

    Args:
        component: the component.
        folder: folder that contains the component's file when the task runs.
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
    """Raise a DavylampError if davylamp knows no component of this kind and name.

    Of models, only the names "demo:..." are checked here. Other models are found when they are loaded in a task.
    """
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
            raise InvalidInput(
                f"the model in {name!r} must be the name of a model that davylamp has; files and addresses are not "
                "accepted"
            )
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
        raise InvalidInput(f"expected the name of a function or object in the Python file, got {wish.entry[:80]!r}")
    if path.stat().st_size > _LARGEST_CODE:
        raise InvalidInput("expected a Python file of at most 1 MiB, got more")
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(f"expected a Python file, got a syntax error ({str(error)[:100]})") from error
    if wish.entry not in set(_names_in(tree)):
        raise UnknownName(f"{wish.kind} in {wish.file_name}", wish.entry, set(_names_in(tree)))
    return wish.file_name


def _names_in(tree: ast.Module) -> list[str]:
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
        raise InvalidInput("expected an ONNX file, got a file of a different format")
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
    raise InvalidInput(
        "expected weights from torch.save(model.state_dict()), or a safetensors file, got a file of a different format"
    )


def _check_pickles(path: Path) -> None:
    """Raise InvalidInput if the pickle in a weights file names classes or functions. The pickle is not executed.

    Torch lists these names, from a copy of the archive that contains only the pickle. Torch's own archive reader must
    not read untrusted files in this process.
    """
    from torch.serialization import get_unsafe_globals_in_checkpoint

    pickles = [each for each in _list_archive(path) if each.filename.endswith(("/data.pkl", "/constants.pkl"))]
    copy = io.BytesIO()
    try:
        (only,) = pickles
        if only.file_size > _LARGEST_PICKLE:
            raise ValueError("the pickle is too large")
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as plain:
            plain.writestr("archive/data.pkl", archive.read(only))
            plain.writestr("archive/version", "3\n")
        copy.seek(0)
        named = get_unsafe_globals_in_checkpoint(copy)
    except (ArithmeticError, AttributeError, LookupError, PickleError, *UNREADABLE, *_OF_TORCH) as error:
        raise InvalidInput(
            "expected weights from torch.save(model.state_dict()), got an archive that torch cannot read"
        ) from error
    if named:
        what = ", ".join(map(str, named))[:200]
        raise InvalidInput(f"expected only tensors, from torch.save(model.state_dict()), got a pickle with {what}")


def _check_npz(_: ComponentRequest, path: Path) -> str:
    names = [info.filename for info in _list_archive(path)]
    if not names or any(not name.endswith(".npy") or "/" in name for name in names):
        raise InvalidInput(
            "expected an NPZ archive (numpy.savez) that contains only arrays, got other files in the archive"
        )
    for name in names:
        if _holds_objects(path, name):
            raise InvalidInput(f"expected arrays of numbers, got Python objects or other content in {name[:80]!r}")
    return "data.npz"


def _holds_objects(path: Path, name: str) -> bool:
    """Return whether a file in an NPZ archive contains Python objects or is not an array. Only its header is read."""
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
            raise InvalidInput(f"expected file names that stay inside the archive's folder, got {info.filename[:80]!r}")
        if (info.external_attr >> 16) & 0o170000 in (0o120000, 0o060000, 0o020000, 0o010000):
            raise InvalidInput(f"expected files in the archive, got a link or a device: {info.filename[:80]!r}")
        if not info.is_dir() and not info.filename.lower().endswith(_PICTURES):
            raise InvalidInput(f"expected only images and labels.csv in the archive, got {info.filename[:80]!r}")
    return "images.zip"


def _list_archive(path: Path) -> list[zipfile.ZipInfo]:
    """Return the entries of a ZIP archive, after checking that the unpacked archive does not fill the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"expected a ZIP archive, got a file that is not one ({str(error)[:100]})") from error
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if strange := next((each for each in members if each.flag_bits & 1 or each.compress_type not in known), None):
        raise InvalidInput(
            "expected an archive without encryption whose files are stored or deflated, got a different method for "
            f"{strange.filename[:80]!r}"
        )
    size = sum(info.file_size for info in members)
    if not members or len(members) > _MOST_FILES or size > _LARGEST_ARCHIVE:
        raise InvalidInput(
            f"expected an archive with 1 to {_MOST_FILES} files and at most 50 GiB in all, got {len(members)} files "
            f"with {size} bytes in all"
        )
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
