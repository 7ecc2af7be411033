"""Verdict files: adversarial examples of one model with the claims that they support, which anyone can verify."""

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
    "manifest.json": "the results of a server's task; check them with `davylamp server verify`",
    "bundle.json": "a bundle of results; unpack it with `davylamp import`",
}


@dataclass(frozen=True)
class Claim:
    """A claim that a model is fooled on some images within a threat model.

    Args:
        threat_model: norm, radius (None if the attacks minimised the distance), and whether a target is reached.
        eight_bit: whether the examples are 8-bit images, and distances are measured from the rounded originals.
        judge_samples: for a random model, number of samples on which an example is judged (at least half must be
            fooled); otherwise 0.
        criterion: condition on the model's prediction for an example, in words.
        fooled: number of fooled images.
        largest_distance: largest distance of an example, in the norm of the threat model (l2 if unrestricted).
        attacks: attacks that found the examples.
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
        """Radius within which the images are fooled: that of the threat model, or else the largest distance."""
        return self.largest_distance if self.threat_model.epsilon is None else self.threat_model.epsilon


@dataclass(frozen=True)
class Manifest:
    """Content of `verdict.json`.

    Args:
        verdict: version of the format.
        made_by: program that wrote the file.
        subject: the model and the images that were evaluated, with their digests. `subject.model` loads the model.
        claims: the claims.
        versions: versions of the packages that were used.
        files: SHA-256 of every other file, by name.
    """

    verdict: Literal[1]
    made_by: str
    subject: ModelOnData
    claims: tuple[Claim, ...]
    versions: dict[str, str]
    files: dict[str, str]


class ClaimedExamples(NamedTuple):
    """Examples of a claim: their rows among the originals, (k,), images (k, C, H, W), and targets, (k,) or None."""

    rows: Tensor
    adv_inputs: Tensor
    targets: Tensor | None


class Verdict(NamedTuple):
    """A verdict file that was read.

    Args:
        manifest: the claims.
        index: positions of the originals in the data, (m,), increasing.
        originals: the original images with their labels, m images.
        examples: examples of each claim.
        signed_by: public key, 64 hexadecimal digits; "" if the file is not signed.
    """

    manifest: Manifest
    index: Tensor
    originals: Data
    examples: tuple[ClaimedExamples, ...]
    signed_by: str


def read_verdict(path: str | Path, key: str = "") -> Verdict:
    """Read a verdict file, which may come from anybody. Nothing is unpickled.

    Args:
        path: file of `write_verdict_file`.
        key: public key of the person who must have signed it; "" accepts any key, or none.

    Raises:
        InvalidInput: if the file is not a verdict, is incomplete, was changed, or was not signed with `key`.
        Unavailable: if it cannot be read.
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
        raise InvalidInput(f"expected {len(index)} originals with labels, got {len(originals)} and {len(labels)}")
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
            raise InvalidInput(f"expected {claim.fooled} examples of claim {number}, got {tuple(examples.shape)}")
        found.append(ClaimedExamples(rows, examples, targets))
    names = [str(place) for place in index.tolist()]
    return Verdict(manifest, index, Data(originals, labels, names), tuple(found), signed_by)


def _read_manifest(archive: zipfile.ZipFile, source: Path, key: str) -> tuple[Manifest, str]:
    """Return the manifest and the public key ("" if not signed), after checking signature, names, sizes and hashes."""
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
    """Read images (4 dimensions) or whole numbers (1 dimension), without unpickling."""
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
    """Refuse files that are compressed, encrypted or overlap, which could unpack to more than the archive's size."""
    entries = [*entries]
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.compress_size != entry.file_size:
            raise InvalidInput(f"expected files that are stored unchanged, got {entry.filename[:100]!r}")
    if sum(entry.file_size for entry in entries) > size:
        raise InvalidInput("the files in the archive overlap")


def _parse(text: bytes) -> Manifest:
    """Validate a manifest."""
    from pydantic import TypeAdapter, ValidationError

    if (stated := json.loads(text).get("verdict")) != 1:
        raise InvalidInput(f"expected a verdict of format 1, got {str(stated)[:40]!r}; a newer davylamp may read it")
    try:
        return TypeAdapter(Manifest).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{MANIFEST}: {where}: {first['msg'].lower()}") from error


def _check_rows(name: str, rows: Tensor, count: int) -> None:
    """Raise InvalidInput unless the rows are a nonempty, increasing sequence in range(count): no image counts twice."""
    if not len(rows) or int(rows[0]) < 0 or int(rows[-1]) >= count or bool((rows.diff() <= 0).any()):
        raise InvalidInput(f"expected increasing positions below {count} in {name}.npy")
