"""An ONNX file: what it takes and gives, in which layout and size, and what it is, down to the last byte."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import InvalidInput, MissingLibrary, Unavailable
from ...user_code_guard import one_line

_ELEMENTS = {1: "float32", 2: "uint8", 10: "float16", 11: "float64"}  # of TensorProto.DataType
_CHANNELS = (1, 3)
_NAMES = ("logits", "out", "output")  # of an output among several


class OnnxFile(NamedTuple):
    """What a file says of itself.

    Args:
        path: of the file.
        proto: `onnx.ModelProto`, with its external data.
        digest: SHA-256 of the file and of its external data.
        input_name: of the images.
        output_name: of the logits, probabilities or labels.
        element: type of the images, as NumPy calls it.
        channels_last: whether it takes (N, H, W, C).
        batch: how many images it takes at once; None: any number.
        channels: of the images; None: it does not say.
        height: of the images; None: any, or it does not say.
        width: see there.
        notes: what was chosen.
    """

    path: Path
    proto: Any
    digest: str
    input_name: str
    output_name: str
    element: str
    channels_last: bool
    batch: int | None
    channels: int | None
    height: int | None
    width: int | None
    notes: tuple[str, ...]


def read_onnx(path: Path) -> OnnxFile:
    """Read a file; it is not run.

    Raises:
        MissingLibrary: if onnx is not installed.
        Unavailable: if there is no such file, or it or its external data cannot be read.
        InvalidInput: if it is no model of images.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise MissingLibrary(error.name or "onnx", "onnx") from error
    if not path.is_file():
        raise Unavailable(f"expected an ONNX file, found none at {path}")
    try:
        proto = onnx.load(path, load_external_data=False)
        beside = _files_beside(proto)
        onnx.load_external_data_for_model(proto, str(path.parent))  # which refuses files outside of the folder
        digest = _digest(path, beside)
    except (OSError, ValueError, DecodeError, onnx.checker.ValidationError) as error:
        raise Unavailable(f"could not read {path} as ONNX ({one_line(error)})") from error
    if not proto.graph.node:
        raise InvalidInput(f"expected an ONNX model, got none in {path}")
    if not proto.opset_import:
        raise InvalidInput(f"expected an ONNX model that names its opset, got none in {path}; export it again")
    given, element = _input_of(proto, path)
    sizes = [dimension.dim_value or None for dimension in given.type.tensor_type.shape.dim] or [None] * 4
    if len(sizes) != 4:
        shown = " x ".join("?" if size is None else str(size) for size in sizes)
        raise InvalidInput(f"expected an input of shape (N, C, H, W) or (N, H, W, C) in {path}, got {shown}")
    is_last = sizes[3] in _CHANNELS and sizes[1] not in _CHANNELS
    batch, channels, height, width = (sizes[place] for place in ((0, 3, 1, 2) if is_last else (0, 1, 2, 3)))
    output, notes = _output_of(proto, path)
    notes += ["takes its channels last (N, H, W, C)"] * is_last
    notes += ["takes 8-bit images: what it is asked is rounded"] * (element == "uint8")
    sizes = (batch, channels, height, width)
    return OnnxFile(path, proto, digest, given.name, output, element, is_last, *sizes, tuple(notes))


def digest_again(path: Path) -> str:
    """The digest of what lies at a path now.

    Raises:
        Unavailable: if it cannot be read.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return _digest(path, _files_beside(onnx.load(path, load_external_data=False)))
    except (OSError, DecodeError) as error:
        raise Unavailable(f"could not read {path} again ({one_line(error)})") from error


def _files_beside(proto: Any) -> list[str]:
    """The names of the files that hold a model's tensors."""
    from onnx.external_data_helper import uses_external_data

    entries = [entry for tensor in _tensors(proto) if uses_external_data(tensor) for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _digest(path: Path, beside: list[str]) -> str:
    """SHA-256 of a file and of those beside it that hold its tensors."""
    digest = hashlib.sha256()
    for file in (path, *(path.parent / name for name in beside)):
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def _tensors(proto: Any) -> list[Any]:
    of_nodes = (attribute for node in proto.graph.node for attribute in node.attribute)
    return [*proto.graph.initializer, *(each.t for each in of_nodes if each.HasField("t"))]


def _input_of(proto: Any, path: Path) -> tuple[Any, str]:
    """The one input that is no weight, and the type of its elements."""
    weights = {tensor.name for tensor in proto.graph.initializer}  # older files list them as inputs, too
    inputs = [each for each in proto.graph.input if each.name not in weights]
    if len(inputs) != 1:
        got = ", ".join(each.name for each in inputs) or "none"
        raise InvalidInput(f"expected one input, the images, in {path}, got {len(inputs)}: {got}")
    number = inputs[0].type.tensor_type.elem_type
    if number not in _ELEMENTS:
        import onnx

        known = number in onnx.TensorProto.DataType.values() and number
        got = onnx.TensorProto.DataType.Name(number).lower() if known else "no tensor"
        wanted = ", ".join(_ELEMENTS.values())
        raise InvalidInput(
            f"expected images of {wanted} as the input of {path}, got {got}; export it with another input"
        )
    return inputs[0], _ELEMENTS[number]


def _output_of(proto: Any, path: Path) -> tuple[str, list[str]]:
    """The output that is taken, and how it was chosen where there are several."""
    tensors = [each for each in proto.graph.output if each.type.HasField("tensor_type")]
    if not tensors:
        raise InvalidInput(f"expected a tensor among the outputs of {path}, got none")
    names = [each.name for each in proto.graph.output]
    if len(names) == 1:
        return names[0], []
    real = [each.name for each in tensors if each.type.tensor_type.elem_type in (1, 10, 11)]
    flat = [each.name for each in tensors if each.name in real and len(each.type.tensor_type.shape.dim) == 2]
    named = [name for name in _NAMES if name in real]
    chosen = [*named, *flat, *real, *(each.name for each in tensors)][0]
    left = ", ".join(name for name in names if name != chosen)
    return chosen, [f"gives {len(names)} outputs: took {chosen}, left out {left}"]
