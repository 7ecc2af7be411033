"""Reads a file of tensors written by `torch.save` as data, without executing code."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from ..errors import InvalidInput, Unavailable
from .user_code_guard import one_line


def read_tensor_file(path: Path, what: str, remedy: str, form: str = "") -> Any:
    """Read a file of tensors, and return its contents with the tensors on the CPU.

    Args:
        path: path of the file.
        what: description of the expected content for error messages, such as "a trained detector".
        remedy: advice at the end of the error message if the file is invalid.
        form: required value of the entry "format", which files written by davylamp have. "" for other files.

    Raises:
        InvalidInput: if the file is not of this format.
        Unavailable: if the file does not exist, cannot be read, contains code, is damaged, or has different contents.
    """
    if not path.is_file():
        raise Unavailable(f"no such file: {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Unavailable(f"could not read {path} ({one_line(error)})") from error
    except pickle.UnpicklingError as error:  # also of text: its first letters are taken for a program's
        holds = "it contains code (pickled classes), is damaged, or is of a different kind"
        raise Unavailable(f"expected {what} in {path}, but {holds}; {remedy}") from error
    except Exception as error:  # damaged bytes can raise anything; torch's messages describe its format
        raise Unavailable(f"expected {what} in {path}, but it is damaged or of a different kind; {remedy}") from error
    if form and not (isinstance(stored, dict) and stored.get("format") == form):
        raise InvalidInput(f"expected {what} in {path}, got a different file of tensors; {remedy}")
    return stored
