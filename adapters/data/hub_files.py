"""The files of a data set of Hugging Face's hub, in a folder of this machine; fetched only if that was asked for."""

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

CONVERTED = "refs/convert/parquet"  # the branch on which the hub keeps data sets as Parquet files
_RECORD = ".davylamp.json"  # which files there are, and which parts are whole


def download_split(name: str, place: str, part: str) -> list[Path]:
    """The files of the part of a data set that is meant, in their order.

    Args:
        name: of the data, for what is said.
        place: "ORG/NAME" or "ORG/NAME@REVISION"; without a revision, the hub's Parquet files.
        part: "SPLIT", "CONFIG/SPLIT", or "" for the one for testing.

    Raises:
        MissingLibrary: if it has to be fetched and huggingface_hub is not installed.
        Unavailable: if the files are neither there nor to be fetched; the line says how much that would be.
        InvalidInput: if the name or the part is wrong.
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
            f"expected Parquet files for {name} on the branch {revision}, found none; name another: @main"
        )
    chosen = select_split([*parts], part, name)
    files = [folder / file for file in parts[chosen]]
    if chosen not in record.get("whole", ()):
        _fetch(name, repository, revision, folder, {file: sizes[file] for file in parts[chosen]})
        _write(folder / _RECORD, {"files": sizes, "whole": [*record.get("whole", ()), chosen]})
    return files


def _list(name: str, repository: str, revision: str, folder: Path) -> dict[str, int]:
    """The files of a repository with their sizes in bytes."""
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
        advice = f"fetch its files elsewhere into a folder, and name it: hf:./FOLDER ({DOWNLOAD}=yes fetches them here)"
        reason = one_line(error.__cause__ or error)
        raise Unavailable(
            f"expected {name} in {folder}, which is not there, nor its list ({reason}); {advice}"
        ) from error


def _fetch(name: str, repository: str, revision: str, folder: Path, sizes: Mapping[str, int]) -> None:
    """Files of a repository, into a folder; what is there is not fetched again."""
    amount = f"{sum(sizes.values()) / 1e6:.1f} MB"
    if not download_allowed():
        raise Unavailable(
            f"expected {name} in {folder}, which is not there; put {', '.join([*sizes][:2])} there and name it "
            f"hf:{folder}, or {DOWNLOAD}=yes lets davylamp fetch it ({amount})"
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
            raise Unavailable(f"could not fetch {file} of {name} ({reason}); the same command goes on") from error


def _hub_endpoint() -> str | None:
    """Another hub than the public one, as huggingface_hub calls its variable."""
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
