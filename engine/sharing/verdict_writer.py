"""Writes verdict files: adversarial examples of one model, and the claims that anyone can verify with them."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import __version__
from ...adapters.data.datasets import Data
from ...adapters.display_text import counted, format_threat_model
from ...adapters.running.judge import perturbation_norm, quantise
from ...errors import DavylampError, InvalidInput, Unavailable, UnknownName
from ..attack_run import ModelOnData
from ..sources import LoadedCache, load_subject_images
from ..store.atomic_files import check_output_path, replace_file
from ..store.columns import compact_images, read_examples
from ..store.results import Results, RunResult, as_results
from .bundle import reproducible_entry
from .signed_archive import SIGNATURE, canonical_json, sign
from .verdict_file import MANIFEST, Claim, Manifest

_UNTARGETED, _TARGETED = "not classified as its label", "classified as its target"


class WrittenVerdict(NamedTuple):
    """Summary of a verdict file that was written.

    Args:
        path: the verdict file.
        manifest: claims, model, data and versions in the file.
        signed_by: public key of the signature, 64 hexadecimal digits. "" if the file is not signed.
        notes: notes on runs without stored examples, and on threat models under which no image is fooled.
    """

    path: Path
    manifest: Manifest
    signed_by: str
    notes: list[str]


def write_verdict_file(
    folder: str | PathLike[str] | Results,
    path: str | Path,
    *,
    model: str | None = None,
    data: Data | str | None = None,
    key: bytes | None = None,
) -> WrittenVerdict:
    """Write a verdict file with the examples that fooled one model of a results folder.

    All runs with the same threat model become one claim, with the nearest example of each image. The same folder,
    model, key and versions give the same bytes.

    Args:
        folder: results folder with stored examples (`keep_images`).
        path: the verdict file, whose name ends in ".zip".
        model: name of the model. None if the folder has only one model.
        data: the evaluated images, or a name that loads them. None uses the name in the folder.
        key: Ed25519 private key, 32 bytes. None leaves the file unsigned.

    Raises:
        InvalidInput: if the path does not end in ".zip", or if `model` is None and the folder has several models.
        UnknownName: if the folder has no model of this name.
        Unavailable: if no example is stored, if no image is fooled, if the images cannot be loaded, or if the file
            cannot be written.
    """
    place = check_output_path(path, advice="choose a different file")
    if place.suffix.lower() != ".zip":
        raise InvalidInput(f"expected a file name NAME.zip, got {path}")
    outcomes = as_results(folder)
    subject = _subject(outcomes, model)
    runs, notes = _read_runs(outcomes, subject)
    images = load_subject_images(subject, data, LoadedCache())
    found = {group: _nearest(members, images.inputs) for group, members in runs.items()}
    for group in [group for group, (least, _, _) in found.items() if not least.isfinite().any()]:
        notes.append(f"no image is fooled under {format_threat_model(runs[group][0][0].cell.threat_model)}")
        del found[group]
    if not found:
        raise Unavailable(f"no claim can be made about {subject.name}: {notes[-1]}")
    index = torch.stack([least.isfinite() for least, _, _ in found.values()]).any(0).nonzero()[:, 0]
    arrays = {
        "index": index.numpy(),
        "labels": images.labels[index].long().numpy(),
        "originals": compact_images(images.inputs[index]),
    }
    claims = []
    for number, (group, (least, examples, targets)) in enumerate(found.items()):
        cell, fooled = runs[group][0][0].cell, least.isfinite()
        arrays |= {
            f"claim-{number}-rows": torch.searchsorted(index, fooled.nonzero()[:, 0]).numpy(),
            f"claim-{number}-examples": compact_images(examples[fooled]),
        }
        if targets is not None:
            arrays[f"claim-{number}-targets"] = targets[fooled].numpy()
        claims.append(
            Claim(
                cell.threat_model,
                cell.pixels,
                cell.draws,
                _TARGETED if targets is not None else _UNTARGETED,
                int(fooled.sum()),
                float(least[fooled].max()),
                tuple(dict.fromkeys(outcome.cell.title for outcome, _ in runs[group])),
            )
        )
    files = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    versions = {
        name: version for group in found for each, _ in runs[group] for name, version in each.meta["versions"].items()
    }
    hashes = {name: sha256(content).hexdigest() for name, content in files.items()}
    manifest = Manifest(1, f"davylamp {__version__}", subject, tuple(claims), versions, hashes)
    text = canonical_json(asdict(manifest))
    stated = None if key is None else sign(text, key)
    more = {} if stated is None else {SIGNATURE: canonical_json(stated)}
    try:
        replace_file(place.resolve(), lambda draft: _write(draft, {MANIFEST: text, **more, **files}))
    except OSError as error:
        raise Unavailable(f"could not write {place} ({error.strerror or error}); choose a different file") from error
    return WrittenVerdict(place, manifest, "" if stated is None else stated["public_key"], notes)


def _subject(outcomes: Results, model: str | None) -> ModelOnData:
    subjects = list({each.cell.subject.key: each.cell.subject for each in outcomes.done}.values())
    chosen = subjects if model is None else [each for each in subjects if each.is_called([model])]
    names = [each.name for each in subjects]
    if model is not None and not chosen:
        raise UnknownName("model", model, names)
    if len(chosen) != 1:
        got = ", ".join(f"{each.name} on {each.images} images of {each.data}" for each in chosen)
        raise InvalidInput(
            f"expected results of one model on one set of images, got {got or 'none'}; choose with `model`"
        )
    return chosen[0]


def _read_runs(
    outcomes: Results, subject: ModelOnData
) -> tuple[dict[tuple[Any, ...], list[tuple[RunResult, Tensor]]], list[str]]:
    """Read the stored examples of a model.

    Returns:
        The finished runs on the model with their examples, grouped by threat model, 8-bit rounding and number of
        samples. Then a note for each run without stored examples.
    """
    runs: dict[tuple[Any, ...], list[tuple[RunResult, Tensor]]] = {}
    notes = []
    for outcome in outcomes.done:
        cell = outcome.cell
        if cell.subject.key != subject.key:
            continue
        try:
            examples = read_examples(outcomes.store, cell)
        except (DavylampError, OSError):
            notes.append(f"omitted: {cell.title}: its examples were not stored (--keep-images)")
            continue
        rules = cell.threat_model
        group = rules.norm, rules.epsilon, rules.targeted, cell.pixels, cell.draws
        runs.setdefault(group, []).append((outcome, examples))
    if not runs:
        raise Unavailable(
            f"the examples of {subject.name} were not stored ({counted(len(notes), 'run')}): evaluate again with "
            "`keep_images`"
        )
    return runs, notes


def _nearest(runs: Sequence[tuple[RunResult, Tensor]], inputs: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the nearest example of each of N images over several runs.

    Returns:
        The distance of each nearest example, (N,), inf if no run fools the image. The examples, (N, C, H, W). The
        target classes, (N,), or None if the runs are untargeted.
    """
    rules = runs[0][0].cell.threat_model
    start = quantise(inputs) if runs[0][0].cell.pixels else inputs
    least, best = torch.full((len(inputs),), torch.inf, dtype=torch.double), inputs.clone()
    targets = torch.full((len(inputs),), -1)
    for outcome, examples in runs:
        results = outcome.results
        fooled = results.attacked & outcome.columns["success"].astype(bool) & ~results.invalid
        distance = perturbation_norm(examples.double() - start.double(), rules.norm)
        nearer = torch.from_numpy(fooled) & (distance < least)
        least[nearer], best[nearer] = distance[nearer], examples[nearer]
        if rules.targeted:
            targets[nearer] = torch.from_numpy(np.asarray(outcome.columns["target"]).astype(np.int64))[nearer]
    return least, best, targets if rules.targeted else None


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def _write(draft: Path, files: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, content in files.items():
            archive.writestr(reproducible_entry(name), content)
