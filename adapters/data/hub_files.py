"""Finds local copies of data sets of the Hugging Face Hub. Files are downloaded only if the user allows it."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

from ...errors import InvalidInput, MissingLibrary, Unavailable
from ..models.zoo.weights import check_reachable
from ..user_code_guard import one_line
from .hub_parts import select_split, splits_of
from .torchvision_datasets import DOWNLOAD, download_allowed

CONVERTED = "refs/convert/parquet"  # branch on which the hub provides data sets as Parquet files
_RECORD = ".davylamp.json"  # which files there are, and which parts are whole


def download_split(name: str, place: str, part: str) -> list[Path]:
    """Return the local files of one split of a data set. Missing files are downloaded if the user allows downloads.

    Args:
        name: name of the data, for messages.
        place: the data set on the hub, "ORG/NAME" or "ORG/NAME@REVISION". Without a revision, the Parquet files that
            the hub has generated are used.
        part: the split, "SPLIT" or "CONFIG/SPLIT". "" for the test split.

    Returns:
        The paths of the files, in order.

    Raises:
        MissingLibrary: if a download is needed and huggingface_hub is not installed.
        Unavailable: if files are missing and downloads are not allowed, or a download fails. The message has the size
            of the files.
        InvalidInput: if the name or the split is wrong.
    """
    repository, _, revision = place.partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InvalidInput(f"expected hf:ORG/NAME, hf:ORG/NAME@REVISION:SPLIT or hf:./FOLDER, got {name}")
    revision = revision or CONVERTED
    label = "--".join(repository.split("/")) + f"@{revision.replace('/', '-')}"
    folder = Path(torch.hub.get_dir()).parent / "datasets" / "hf" / label
    record = _read(folder / _RECORD)
    sizes = record.get("files") or _list(name, repository, revision, folder)
    parts = splits_of(sizes)
    if not parts:
        raise Unavailable(
            f"no Parquet files for {name} on the branch {revision}; try a different revision, as in @main"
        )
    chosen = select_split([*parts], part, name)
    files = [folder / file for file in parts[chosen]]
    if chosen not in record.get("whole", ()):
        _fetch(name, repository, revision, folder, {file: sizes[file] for file in parts[chosen]})
        _write(folder / _RECORD, {"files": sizes, "whole": [*record.get("whole", ()), chosen]})
    return files


def _list(name: str, repository: str, revision: str, folder: Path) -> dict[str, int]:
    """Return the files of a repository on the hub, with their sizes in bytes."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.constants import ENDPOINT
        from huggingface_hub.hf_api import RepoFile
    except ImportError as error:
        raise MissingLibrary("huggingface_hub", "hf") from error
    try:
        with redirect_stdout(sys.stderr):
            check_reachable(f"{_hub_endpoint() or ENDPOINT}/api/datasets/{repository}", name, folder)
            tree = HfApi(_hub_endpoint()).list_repo_tree(
                repository, repo_type="dataset", revision=revision, recursive=True
            )
            return {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}
    except Exception as error:  # the hub's errors are of many classes
        advice = (
            "download the files on a machine with access to the hub, and name their folder here: hf:./FOLDER "
            f"({DOWNLOAD}=yes lets davylamp download them here)"
        )
        reason = one_line(error.__cause__ or error)
        raise Unavailable(
            f"{name} is not in {folder}, and the hub cannot list its files ({reason}); {advice}"
        ) from error


def _fetch(name: str, repository: str, revision: str, folder: Path, sizes: Mapping[str, int]) -> None:
    amount = f"{sum(sizes.values()) / 1e6:.1f} MB"
    if not download_allowed():
        raise Unavailable(
            f"{name} is not in {folder}; put {', '.join([*sizes][:2])} into this folder and use hf:{folder}, "
            f"or set {DOWNLOAD}=yes to let davylamp download it ({amount})"
        )
    from huggingface_hub import hf_hub_download

    sys.stderr.write(f"fetching {name} ({amount}) to {folder}\n")
    for file in sizes:
        try:
            with redirect_stdout(sys.stderr):
                more = {"repo_type": "dataset", "revision": revision, "endpoint": _hub_endpoint()}
                hf_hub_download(repository, file, local_dir=folder, **more)
        except Exception as error:
            reason = one_line(error.__cause__ or error)
            raise Unavailable(
                f"could not download {file} of {name} ({reason}); run the same command again to resume"
            ) from error


def _hub_endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _write(path: Path, record: Mapping[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record), encoding="utf-8")
    partial.replace(path)
