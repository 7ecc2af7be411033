"""Reads verdict files: adversarial examples of one model, and the claims that anyone can verify with these examples."""

import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...adapters import ThreatModel
from ...adapters.data.datasets import Data
from ...errors import DavylampError, InvalidInput, Unavailable
from ..attack_run import ModelOnData
from ..store.atomic_files import expand_path
from ..store.columns import restore_images
from .signed_archive import SIGNATURE, check_files, check_signature
from .unpack import check_array_header

MANIFEST = "verdict.json"
_LARGEST_TEXT = 64 << 20  # bytes of the manifest
_CLASSES = 1 << 20  # labels are smaller: a model may need memory for each class
_OTHERS = {
    "manifest.json": "an exported task of a server; check it with `davylamp server verify`",
    "bundle.json": "a bundle of results; unpack it with `davylamp import`",
}


@dataclass(frozen=True)
class Claim:
    """A claim of a verdict file: some examples within one threat model fool the model.

    Args:
        threat_model: norm, radius and whether the attacks were targeted. The radius is None if the attacks minimised
            the distance.
        eight_bit: whether the examples are 8-bit images. Distances are then measured from the originals rounded to 8
            bits.
        judge_samples: number of samples of a randomised model on which each example was judged. An example counts if it
            fools at least half of the samples. 0 for a deterministic model.
        criterion: condition under which an example fools the model, in words.
        fooled: number of fooled images.
        largest_distance: largest distance of an example from its original, in the norm of the threat model. The
            distance is l2 if the threat model is unrestricted.
        attacks: titles of the attacks that found the examples.
    """

    threat_model: ThreatModel
    eight_bit: bool
    judge_samples: int
    criterion: str
    fooled: int
    largest_distance: float
    attacks: tuple[str, ...]

    @property
    def radius(self) -> float:
        """Radius of the threat model. If the threat model has no radius, the largest distance of the examples."""
        return self.largest_distance if self.threat_model.epsilon is None else self.threat_model.epsilon


@dataclass(frozen=True)
class Manifest:
    """Content of `verdict.json`, the manifest of a verdict file.

    Args:
        verdict: version of the file format.
        made_by: program that wrote the file, with its version.
        subject: the evaluated model and images, with their digests. `subject.model` is the name that loads the model.
        claims: the claims.
        versions: version of each package that the runs used, by package.
        files: SHA-256 hash of every other file in the archive, by name.
    """

    verdict: Literal[1]
    made_by: str
    subject: ModelOnData
    claims: tuple[Claim, ...]
    versions: dict[str, str]
    files: dict[str, str]


class ClaimedExamples(NamedTuple):
    """The k examples of one claim.

    Args:
        rows: position of each example's original in `Verdict.originals`, shape (k,).
        adv_inputs: the examples, shape (k, C, H, W).
        targets: target classes, shape (k,). None if the attacks were untargeted.
    """

    rows: Tensor
    adv_inputs: Tensor
    targets: Tensor | None


class Verdict(NamedTuple):
    """Content of a verdict file.

    Args:
        manifest: claims, model, data and versions.
        index: positions of the m originals in the evaluated data, shape (m,), increasing.
        originals: the m original images with their labels.
        examples: examples of each claim, in the order of `manifest.claims`.
        signed_by: public key of the signature, 64 hexadecimal digits. "" if the file is not signed.
    """

    manifest: Manifest
    index: Tensor
    originals: Data
    examples: tuple[ClaimedExamples, ...]
    signed_by: str


def read_verdict(path: str | Path, key: str = "") -> Verdict:
    """Read a verdict file. The file may come from anybody, because nothing in it is unpickled.

    Args:
        path: file of `write_verdict_file`.
        key: public key that must have signed the file. "" accepts any key, and files without a signature.

    Raises:
        InvalidInput: if the file is not a verdict, is incomplete or was changed, or was not signed with `key`.
        Unavailable: if the file cannot be read.
    """
    source = expand_path(path)
    if not source.is_file():
        raise Unavailable(f"expected a verdict (made by `davylamp export --verdict`), got {source}")
    try:
        with zipfile.ZipFile(source) as archive:
            return _read(archive, source, key)
    except InvalidInput as error:
        raise InvalidInput(f"refused: {source}: {error}") from error
    except OSError as error:
        if isinstance(error, DavylampError):
            raise
        raise Unavailable(f"could not read {source} ({error.strerror or error})") from error
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, NotImplementedError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {str(error)[:100]}"
        raise InvalidInput(f"refused: {source}: expected a verdict, got a damaged file ({reason})") from error


def _read(archive: zipfile.ZipFile, source: Path, key: str) -> Verdict:
    manifest, signed_by = _read_manifest(archive, source, key)
    index, labels = (torch.from_numpy(_read_array(archive, name, 1)) for name in ("index", "labels"))
    originals = restore_images(_read_array(archive, "originals", 4))
    _check_rows("index", index, manifest.subject.images)
    if len(labels) != len(index) or len(originals) != len(index):
        raise InvalidInput(
            f"expected {len(index)} originals and as many labels, got {len(originals)} originals and {len(labels)} "
            "labels"
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < _CLASSES:
        raise InvalidInput(f"expected labels from 0 to {_CLASSES - 1}, got labels outside this range")
    if not bool(((originals >= 0) & (originals <= 1)).all()):  # also for NaN
        raise InvalidInput("expected originals in [0, 1], got pixels outside this range")
    found = []
    for number, claim in enumerate(manifest.claims):
        rows = torch.from_numpy(_read_array(archive, f"claim-{number}-rows", 1))
        examples = restore_images(_read_array(archive, f"claim-{number}-examples", 4))
        aimed = claim.threat_model.targeted
        targets = torch.from_numpy(_read_array(archive, f"claim-{number}-targets", 1)) if aimed else None
        _check_rows(f"claim-{number}-rows", rows, len(index))
        sizes = {len(rows), len(examples), claim.fooled, *([] if targets is None else [len(targets)])}
        if len(sizes) > 1 or examples.shape[1:] != originals.shape[1:]:
            raise InvalidInput(
                f"expected {claim.fooled} examples for claim {number}, got an array of shape {tuple(examples.shape)}"
            )
        found.append(ClaimedExamples(rows, examples, targets))
    names = [str(place) for place in index.tolist()]
    return Verdict(manifest, index, Data(originals, labels, names), tuple(found), signed_by)


def _read_manifest(archive: zipfile.ZipFile, source: Path, key: str) -> tuple[Manifest, str]:
    """Read and check the manifest of a verdict file: signature, and names, sizes and hashes of all files.

    Returns:
        The manifest, and the public key of the signature ("" if the file is not signed).
    """
    entries = {entry.filename: entry for entry in archive.infolist()}
    if MANIFEST not in entries:
        other = next((text for name, text in _OTHERS.items() if name in entries), "a different file")
        raise InvalidInput(f"expected a verdict (made by `davylamp export --verdict`), got {other}")
    _check_sizes(archive.infolist(), source.stat().st_size)
    if entries[MANIFEST].file_size > _LARGEST_TEXT:
        raise InvalidInput(f"{MANIFEST} is larger than {_LARGEST_TEXT} bytes")
    text, signed_by = archive.read(MANIFEST), ""
    if SIGNATURE in entries:
        stated = json.loads(archive.read(SIGNATURE))
        check_signature(text, stated, key)
        signed_by = stated["public_key"]
    elif key:
        raise InvalidInput(f"expected a file signed by {key[:16]}..., got no signature")
    manifest = _parse(text)
    check_files(archive, manifest.files, [MANIFEST, *([SIGNATURE] if signed_by else [])])
    return manifest, signed_by


def _read_array(archive: zipfile.ZipFile, name: str, dimensions: int) -> np.ndarray:
    """Read the array NAME.npy of a verdict file, without unpickling."""
    with archive.open(f"{name}.npy") as file:
        check_array_header(file, archive.getinfo(f"{name}.npy"), f"{name}.npy")
        file.seek(0)
        array = np.lib.format.read_array(file, allow_pickle=False)
    kinds = (np.uint8, np.float32) if dimensions == 4 else (np.int64,)
    if array.ndim != dimensions or array.dtype not in kinds:
        wanted = "images" if dimensions == 4 else "whole numbers"
        raise InvalidInput(f"expected {wanted} in {name}.npy, got {array.dtype} of shape {array.shape}")
    return array


def _check_sizes(entries: Iterable[zipfile.ZipInfo], size: int) -> None:
    """Raise InvalidInput if files are compressed, encrypted or overlap: these could unpack to a huge size."""
    entries = [*entries]
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
            raise InvalidInput(f"{entry.filename[:100]!r} is compressed or encrypted; a verdict stores files unchanged")
    if sum(entry.file_size for entry in entries) > size:
        raise InvalidInput("the files in the archive overlap")


def _parse(text: bytes) -> Manifest:
    from pydantic import TypeAdapter, ValidationError

    if (stated := json.loads(text).get("verdict")) != 1:
        raise InvalidInput(f"expected a verdict of format 1, got format {str(stated)[:40]!r}; update davylamp")
    try:
        return TypeAdapter(Manifest).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{MANIFEST}: {where}: {first['msg'].lower()}") from error


def _check_rows(name: str, rows: Tensor, count: int) -> None:
    """Raise InvalidInput unless positions are a nonempty, increasing sequence in range(count), without duplicates."""
    if not len(rows) or int(rows[0]) < 0 or int(rows[-1]) >= count or bool((rows.diff() <= 0).any()):
        raise InvalidInput(f"expected increasing positions that are at least 0 and below {count} in {name}.npy")
