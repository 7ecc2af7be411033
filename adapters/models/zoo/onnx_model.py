"""ONNX files: the input and output of a file, a digest of its content, and a module that runs it.

The module uses onnxruntime, or the conversion of the file by onnx2pytorch.
"""

import hashlib
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ....errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable
from ...user_code_guard import one_line

_ELEMENTS = {1: "float32", 2: "uint8", 10: "float16", 11: "float64"}  # from TensorProto.DataType
_CHANNELS = (1, 3)
_NAMES = ("logits", "out", "output")  # preferred names among several outputs
# Text before the reason in its errors: the file's name again, and the source location.
_PLACES = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : (Load model from .*? failed: ?)?|/\S+\.(h|cc):\d+ .*?\) (?=[A-Z])",
    re.DOTALL,
)


class OnnxFile(NamedTuple):
    """Facts about an ONNX file: its input, its output and its content.

    Args:
        path: path of the file.
        digest: SHA-256 of the file and of its external data.
        input_name: name of the input for images.
        output_name: name of the output with logits, probabilities or labels.
        place: position of this output among the outputs of the file.
        element: NumPy type of the images.
        channels_last: whether the input has the shape (N, H, W, C).
        batch: batch size. None if any size is possible.
        channels: number of channels. None if the file does not specify it.
        height: height of images. None if the file does not specify it.
        width: width of images. None if the file does not specify it.
        notes: notes for the user, on choices that were made when the file was read.
    """

    path: Path
    digest: str
    input_name: str
    output_name: str
    place: int
    element: str
    channels_last: bool
    batch: int | None
    channels: int | None
    height: int | None
    width: int | None
    notes: tuple[str, ...]


def read_onnx(path: Path) -> tuple[OnnxFile, Any]:
    """Read an ONNX file without running the model.

    Args:
        path: path of the file.

    Returns:
        The facts about the file, and its `onnx.ModelProto` with external data.

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
        raise Unavailable(f"{'expected a file, got the folder' if path.is_dir() else 'no such file'}: {path}")
    try:
        proto = onnx.load(path, load_external_data=False)
        beside = _files_beside(proto)
        onnx.load_external_data_for_model(proto, str(path.parent))  # refuses files outside the folder
        digest = _digest(path, beside)
    except (OSError, ValueError, DecodeError, onnx.checker.ValidationError) as error:
        raise Unavailable(f"could not read {path} as ONNX ({one_line(error)})") from error
    if not proto.graph.node:
        raise InvalidInput(f"the ONNX model in {path} is empty: it has no nodes")
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
    place = [each.name for each in proto.graph.output].index(output)
    return OnnxFile(path, digest, given.name, output, place, element, is_last, *sizes, tuple(notes)), proto


def digest_again(path: Path) -> str:
    """Compute the digest of a file again, to detect changes since the file was loaded.

    Raises:
        Unavailable: if the file cannot be read.
    """
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return _digest(path, _files_beside(onnx.load(path, load_external_data=False)))
    except (OSError, DecodeError) as error:
        raise Unavailable(f"could not read {path} again ({one_line(error)})") from error


class Session:
    """Runs an ONNX file with onnxruntime on the CPU, with as many threads as torch uses.

    If the object is sent to a different process, that process opens the file again.

    Args:
        file: the file, which is opened at the first query.
    """

    def __init__(self, file: OnnxFile):
        self.file = file
        self._opened: Any = None

    def ask(self, images: np.ndarray) -> np.ndarray:
        """Return the selected output for images in the file's format."""
        if self._opened is None:
            self._opened = self._open()
        answer = self._opened.run([self.file.output_name], {self.file.input_name: images})[0]
        if not isinstance(answer, np.ndarray):
            wanted = f"{self.file.output_name} as a tensor"
            raise ModelFailed(f"{self.file.path}: expected {wanted}, got {type(answer).__name__}")
        return answer

    def check(self) -> None:
        """Open the file now instead of at the first query.

        Raises:
            MissingLibrary: if onnxruntime is not installed.
            Unavailable: if onnxruntime cannot run the file.
        """
        self._opened = self._open()

    def _open(self) -> Any:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingLibrary(error.name or "onnxruntime", "onnx") from error
        path = self.file.path
        if digest_again(path) != self.file.digest:
            raise Unavailable(f"{path} has changed since it was loaded; load it again")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
        try:
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its error classes have no common base class
            reason = one_line(_PLACES.sub("", str(error)))
            raise Unavailable(f"onnxruntime cannot run {path} ({reason})") from error

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_opened": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Session":
        return self


class OnnxModel(nn.Module):
    """An ONNX file as a module for images (N, C, H, W).

    Args:
        session: runs the file with onnxruntime. It is used if `converted` is None.
        converted: the file as a differentiable module, made by onnx2pytorch. None for a black box.
        batch: number of images per call. None to pass all images in one call.
    """

    layers_note = ""
    stated_identity = ""  # replaces the identity of its parts (`identity.encoding`)

    def __init__(self, session: Session, converted: nn.Module | None, batch: int | None):
        super().__init__()
        self.session, self.batch, self.converted = session, batch, converted
        self.file = file = session.file
        self.gradients = converted is not None
        if converted is None:
            self.layers_note = "onnxruntime shows no layers"
        way = "onnxruntime" if converted is None else "onnx2pytorch"
        self.stated_identity = f"{way} {file.digest} {file.input_name} {file.output_name} {file.channels_last} {batch}"

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the selected output, on the device of the images."""
        images = inputs.permute(0, 2, 3, 1) if self.file.channels_last else inputs
        pieces = [images] if self.batch is None else images.split(self.batch)
        answers = [self._ask(piece) for piece in pieces]
        return answers[0] if len(answers) == 1 else torch.cat(answers)

    def _ask(self, piece: Tensor) -> Tensor:
        """Compute the output for one batch. If the file needs a larger batch, the last image is repeated."""
        count, missing = len(piece), 0 if self.batch is None else self.batch - len(piece)
        if missing and count:
            piece = torch.cat([piece, piece[-1:].expand(missing, *piece.shape[1:])])
        if self.converted is None:
            return torch.from_numpy(self.session.ask(self._array(piece)).copy()).to(piece.device)[:count]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its slicing
            answer = self.converted(piece.to(getattr(torch, self.file.element)))
        return (answer[self.file.place] if isinstance(answer, (list, tuple)) else answer)[:count]

    def _array(self, piece: Tensor) -> np.ndarray:
        piece = piece.detach().cpu()
        if self.file.element == "uint8":
            return (piece * 255).round().clamp(0, 255).to(torch.uint8).contiguous().numpy()
        return piece.to(getattr(torch, self.file.element)).contiguous().numpy()


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
    """Return the input of the model for images, and its element type.

    There must be exactly one input that is not a weight.
    """
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
    """Choose the output of the model.

    Returns:
        The name of the output. If there are several outputs, also a note on the choice.
    """
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
