"""A file of tensors, written by `torch.save`: read as data, never run as a program."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from ..errors import Unavailable
from .user_code_guard import one_line


def read_tensor_file(path: Path, what: str, remedy: str) -> Any:
    """What is in a file, its tensors on the CPU.

    Args:
        path: of the file.
        what: it should hold, "a trained detector".
        remedy: what to do if it does not.

    Raises:
        Unavailable: if it is not there or cannot be read, holds programs, is damaged, or is of another kind.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Unavailable(f"could not read {path} ({one_line(error)})") from error
    except pickle.UnpicklingError as error:  # also of text: its first letters are taken for a program's
        holds = "it holds programs (pickled classes), is damaged, or is of another kind"
        raise Unavailable(f"expected {what} in {path}, but {holds}; {remedy}") from error
    except Exception as error:  # of damaged bytes, anything; torch's words are of its format
        raise Unavailable(f"expected {what} in {path}, but it is damaged or of another kind; {remedy}") from error
