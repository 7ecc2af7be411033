"""Reads an ONNX file: its input and output, layout, sizes, and a digest of its content."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import InvalidInput, MissingLibrary, Unavailable
from ...user_code_guard import one_line

_ELEMENTS = {1: "float32", 2: "uint8", 10: "float16", 11: "float64"}  # from TensorProto.DataType
_CHANNELS = (1, 3)
_NAMES = ("logits", "out", "output")  # preferred names among several outputs


class OnnxFile(NamedTuple):
    """Contents and interface of an ONNX file.

    Args:
        path: path of the file.
        proto: `onnx.ModelProto`, with its external data.
        digest: SHA-256 of the file and of its external data.
        input_name: name of the input for images.
        output_name: name of the output with logits, probabilities or labels.
        element: NumPy type of the images.
        channels_last: whether the input has the shape (N, H, W, C).
        batch: batch size, or None for any.
        channels: number of channels, or None if unspecified.
        height: height of images, or None if unspecified or variable.
        width: width of images, or None if unspecified or variable.
        notes: notes on choices made when the file was read.
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
    """Read a file without running the model.

    Raises:
        MissingLibrary: if onnx is not installed.
        Unavailable: if there is no such file, or the file or its external data cannot be read.
        InvalidInput: if the file is not a model for images.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise MissingLibrary(error.name or "onnx", "onnx") from error
    if not path.is_file():
        raise Unavailable(f"no such file: {path}")
    try:
        proto = onnx.load(path, load_external_data=False)
        beside = _files_beside(proto)
        onnx.load_external_data_for_model(proto, str(path.parent))  # refuses files outside the folder
        digest = _digest(path, beside)
    except (OSError, ValueError, DecodeError, onnx.checker.ValidationError) as error:
        raise Unavailable(f"could not read {path} as ONNX ({one_line(error)})") from error
    if not proto.graph.node:
        raise InvalidInput(f"expected an ONNX model in {path}, which has no nodes")
    if not proto.opset_import:
        raise InvalidInput(f"the ONNX model in {path} does not state its opset; export it again")
    given, element = _input_of(proto, path)
    sizes = [dimension.dim_value or None for dimension in given.type.tensor_type.shape.dim] or [None] * 4
    if len(sizes) != 4:
        shown = " x ".join("?" if size is None else str(size) for size in sizes)
        raise InvalidInput(f"expected an input of shape (N, C, H, W) or (N, H, W, C) in {path}, got {shown}")
    is_last = sizes[3] in _CHANNELS and sizes[1] not in _CHANNELS
    batch, channels, height, width = (sizes[place] for place in ((0, 3, 1, 2) if is_last else (0, 1, 2, 3)))
    output, notes = _output_of(proto, path)
    notes += ["takes its channels last (N, H, W, C)"] * is_last
    notes += ["takes 8-bit images, so its inputs are rounded"] * (element == "uint8")
    sizes = (batch, channels, height, width)
    return OnnxFile(path, proto, digest, given.name, output, element, is_last, *sizes, tuple(notes))


def digest_again(path: Path) -> str:
    """Compute the digest of a file's current content.

    Raises:
        Unavailable: if the file cannot be read.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return _digest(path, _files_beside(onnx.load(path, load_external_data=False)))
    except (OSError, DecodeError) as error:
        raise Unavailable(f"could not read {path} again ({one_line(error)})") from error


def _files_beside(proto: Any) -> list[str]:
    from onnx.external_data_helper import uses_external_data

    entries = [entry for tensor in _tensors(proto) if uses_external_data(tensor) for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _digest(path: Path, beside: list[str]) -> str:
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
    """Return the only input that is not a weight, and its element type."""
    weights = {tensor.name for tensor in proto.graph.initializer}  # older files list weights as inputs as well
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
            f"expected images of {wanted} as the input of {path}, got {got}; export it with a different type"
        )
    return inputs[0], _ELEMENTS[number]


def _output_of(proto: Any, path: Path) -> tuple[str, list[str]]:
    """Return the name of the output to use and, if there are several, a note on the choice."""
    tensors = [each for each in proto.graph.output if each.type.HasField("tensor_type")]
    if not tensors:
        raise InvalidInput(f"no output of {path} is a tensor")
    names = [each.name for each in proto.graph.output]
    if len(names) == 1:
        return names[0], []
    real = [each.name for each in tensors if each.type.tensor_type.elem_type in (1, 10, 11)]
    flat = [each.name for each in tensors if each.name in real and len(each.type.tensor_type.shape.dim) == 2]
    named = [name for name in _NAMES if name in real]
    chosen = [*named, *flat, *real, *(each.name for each in tensors)][0]
    left = ", ".join(name for name in names if name != chosen)
    return chosen, [f"returns {len(names)} outputs: took {chosen}, ignored {left}"]
