"""Downloads published weights and verifies their hashes. Code in the files is never run."""

import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from http.client import HTTPException
from pathlib import Path
from threading import RLock
from urllib.error import HTTPError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import torch

from ....errors import DavylampError, Unavailable
from ...user_code_guard import one_line

_PROBE_SECONDS = 10
_HASH_IN_NAME = re.compile(r"-([0-9a-f]{8,64})\.[a-z]+$")  # torch.hub's file names: NAME-HASH.pth
_SHA256 = re.compile(r"[0-9a-f]{64}")  # file names in the hub's cache
_SWITCHES = ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_WEIGHTS_ONLY_LOAD")
_MORE_THAN_SAID = 1.1
_ONE_AT_A_TIME = RLock()  # the switches apply to the whole process, so only one thread may set them at a time


def checkpoint_folder() -> Path:
    """Return the folder to which torch downloads weights."""
    return Path(torch.hub.get_dir()) / "checkpoints"


@contextmanager
def quietly() -> Iterator[None]:
    """Keep libraries from warning, printing to standard output, and changing torch's random state inside the block."""
    with torch.random.fork_rng(devices=[]), redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def loading(name: str, file: Path) -> Iterator[None]:
    """Context manager for a library's call that reads weights: no code is unpickled, and errors become Unavailable.

    torch then reads only tensors and plain containers, whatever arguments the library passes to `torch.load`. The
    library is kept quiet, see `quietly`.

    Args:
        name: name of the model.
        file: file of the weights.
    """
    with _ONE_AT_A_TIME, quietly():
        before = {switch: os.environ.pop(switch, None) for switch in _SWITCHES}
        os.environ[_SWITCHES[1]] = "1"
        try:
            yield
        except DavylampError:
            raise
        except Exception as error:  # libraries raise errors of many classes
            advice = (
                f"replace {file}" if file.exists() else f"fetch it on a different machine and save it here as {file}"
            )
            raise Unavailable(f"could not load the weights of {name} ({one_line(error)}); {advice}") from error
        finally:
            os.environ.pop(_SWITCHES[1], None)
            os.environ.update({switch: value for switch, value in before.items() if value is not None})


def check_reachable(url: str, name: str, file: Path) -> int | None:
    """Check that the server of the weights responds. Return the size of the file in bytes, or None if it is not stated.

    Call this function before building a model. A missing network is then detected in seconds instead of minutes.

    Raises:
        Unavailable: if the server cannot be reached.
    """
    try:
        with urlopen(Request(url, method="HEAD"), timeout=_PROBE_SECONDS) as answer:
            length = answer.headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else None
    except HTTPError as error:  # the server is reachable; the actual download decides
        error.close()
        return None
    except (OSError, HTTPException) as error:
        advice = f"fetch that file on a different machine and save it here as {file}"
        reason = one_line(error)
        raise Unavailable(f"could not fetch the weights of {name} from {url} ({reason}); {advice}") from error


def fetch_weights(url: str, name: str, megabytes: float | None = None) -> Path:
    """Return the path of the weights at a URL. If the file is missing, it is downloaded to torch's folder.

    The hash of the file is verified.

    Args:
        url: URL of the file. The name of the file contains the first digits of its SHA-256, as in torch.hub.
        name: name of the model.
        megabytes: expected size in MB. A larger file is not downloaded. None for any size.

    Raises:
        Unavailable: if the file cannot be downloaded, or its hash is wrong.
    """
    file = checkpoint_folder() / Path(urlparse(url).path).name  # as torch.hub does
    if not file.exists():
        size = check_reachable(url, name, file)
        if size is not None and megabytes is not None and size > _MORE_THAN_SAID * megabytes * 2**20:
            got = f"{size / 2**20:.0f} MB at {url}"
            raise Unavailable(
                f"the weights of {name} should have {megabytes:.0f} MB, but there are {got}; they were not downloaded"
            )
        said = "" if size is None else f" ({size / 2**20:.0f} MB)"
        sys.stderr.write(f"fetching {url}{said} to {file}\n")
        with loading(name, file):
            file.parent.mkdir(parents=True, exist_ok=True)
            wanted = _HASH_IN_NAME.search(file.name)
            torch.hub.download_url_to_file(url, str(file), wanted and wanted.group(1))
    check_hash(name, file)
    return file


def check_hash(name: str, file: Path) -> None:
    """Raise Unavailable unless a file's SHA-256 starts with the digits in its name, as in torch.hub's NAME-HASH.pth.

    A file without a hash in its name is not checked. Files in the Hugging Face cache are links. For these, the name of
    the link's target has the hash.
    """
    wanted = _HASH_IN_NAME.search(file.name) or _SHA256.fullmatch(file.resolve().name)
    if not file.is_file():
        raise Unavailable(f"could not load the weights of {name} (not a file); replace {file}")
    if wanted is None:
        return
    digest = hashlib.sha256()
    with loading(name, file), file.open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    prefix, got = wanted.group(wanted.re.groups), digest.hexdigest()
    if not got.startswith(prefix):
        reason = f"expected a SHA-256 that starts with {prefix[:10]}, as in its name, got {got[:10]}"
        raise Unavailable(f"could not load the weights of {name} ({reason}); delete or replace {file}")
