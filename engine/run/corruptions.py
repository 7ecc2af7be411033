"""Evaluates models on corrupted images: computes the predictions that a results folder lacks."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...adapters import Classifier
from ...adapters.data.corruptions.corrupted_sets import ON_DISK, check_set
from ...adapters.data.corruptions.generate import (
    VERSION,
    check_images_for,
    corrupt_images,
    library_version,
    severity_scale_for,
)
from ...adapters.data.corruptions.published import check_severity, find_corruption
from ...adapters.data.corruptions.sequences import find_sequence, frames_of
from ...adapters.data.datasets import Data, label_mapping_key
from ...adapters.data.streaming import describe_files, iter_batches, split_data
from ...adapters.models.classifier import check_several
from ...adapters.models.identity.digest import identify_model
from ...adapters.models.images import check_labels
from ...errors import DavylampError, InvalidInput
from ..store.columns import picture_of
from ..store.other_records import CorruptionCell, corruption_table_of, read_corruption
from ..store.store import ResultsStore
from .provenance import versions

BLOCK = 64  # images in memory, corrupted and predicted at once
_KEPT = 2**28  # numbers of clean images kept in memory: 1 GiB


@dataclass(frozen=True)
class CorruptionPlan:
    """The corruptions to measure, and their images.

    Args:
        data: name of the clean images that are corrupted. Images on disk that are already corrupted have the name
            "imagenet-c:PATH" or "cifar-10-c:PATH".
        corruptions: names of corruptions.
        severities: severities of each corruption, 1 to 5.
        sequences: names of perturbation sequences.
        clean: name of the clean images, if `data` is already corrupted. "" to measure no clean images.
        limit: largest number of images. The first images are used. None for all.
        seed: random seed.
        images: the clean images themselves, instead of those that `data` names.
    """

    data: str
    corruptions: tuple[str, ...]
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)
    sequences: tuple[str, ...] = ()
    clean: str = ""
    limit: int | None = None
    seed: int = 0
    images: Data | None = None

    @property
    def on_disk(self) -> bool:
        """Whether the corrupted images are read from disk."""
        return self.data.partition(":")[0] in ON_DISK

    def check(self) -> None:
        """Check the settings that do not depend on the images.

        Raises:
            UnknownName: for an unknown corruption or sequence.
            Unavailable: for a severity that the data set on disk lacks.
            InvalidInput: for an invalid severity, or for sequences if the data set is already corrupted.
            MissingLibrary: if the corruption library is not installed.
        """
        for severity in self.severities:
            check_severity(severity, "fog")
        for name in () if self.on_disk else self.corruptions:
            find_corruption(name)
        for name in self.sequences:
            find_sequence(name)
        if self.on_disk and self.sequences:
            raise InvalidInput(f"sequences need clean images, but the images of {self.data} are already corrupted")
        if not self.corruptions and not self.sequences:
            raise InvalidInput("expected at least one corruption or corruption sequence, got none")
        if self.on_disk:
            check_set(self.data, self.corruptions, self.severities)
        else:
            library_version()


class CorruptionSummary(NamedTuple):
    """Numbers of new and of reused records. Also the reason for each model that has no records."""

    done: int
    kept: int
    failed: dict[str, str]


Progress = Callable[[str, int], object]


def measure_corruptions(
    models: Mapping[str, Classifier],
    plan: CorruptionPlan,
    store: ResultsStore,
    progress: Progress | None = None,
) -> CorruptionSummary:
    """Compute the predictions of models on corrupted images, except for those that the folder already has.

    An image is corrupted only once for all models with the same preprocessing. If the call is interrupted, the next
    call resumes.

    Args:
        models: classifiers by name.
        plan: corruptions to measure.
        store: results folder of the records.
        progress: called with a title and the number of images just done. The title is empty for reused records.

    Raises:
        DavylampError: if the plan is invalid or the images are unavailable.
    """
    plan.check()
    report, groups = progress or (lambda *_: None), _groups(models, plan)
    totals = [_Group(plan, store, group, report).run() for group in groups]
    failed = {name: reason for total in totals for name, reason in total.failed.items()}
    return CorruptionSummary(sum(total.done for total in totals), sum(total.kept for total in totals), failed)


def _groups(models: Mapping[str, Classifier], plan: CorruptionPlan) -> list[dict[str, Classifier]]:
    groups: dict[tuple[Any, ...], dict[str, Classifier]] = {}
    for name, model in models.items():
        prepared = (model.resize, model.crop, model.interpolation, model.channels, model.class_names)
        prepared = (*prepared, label_mapping_key(model, plan.data), label_mapping_key(model, plan.clean))
        groups.setdefault(prepared, {})[name] = model
    return list(groups.values())


class _Group:
    """Models with the same preprocessing, which get the same pixels. Also the predictions of these models."""

    def __init__(self, plan: CorruptionPlan, store: ResultsStore, models: Mapping[str, Classifier], report: Progress):
        self.plan, self.store, self.models, self.report = plan, store, models, report
        self.first = next(iter(models.values()))
        self.identities = {name: identify_model(model, name) for name, model in models.items()}
        self.failed: dict[str, str] = {}
        self.done = self.kept = 0
        self._clean: list[Data] | None = None
        self._size = ""

    def run(self) -> CorruptionSummary:
        plan = self.plan
        digest, images = ("", 0) if plan.on_disk else self._describe_clean()
        shared = {"data": plan.data, "data_digest": digest, "images": images, "seed": plan.seed}
        if not plan.on_disk:
            self._measure(CorruptionCell("", "", **shared), self._blocks)
        elif plan.clean:
            self._read(CorruptionCell("", "", **shared), plan.clean)
        for name in plan.corruptions:
            for severity in plan.severities:
                if plan.on_disk:
                    cell = CorruptionCell("", "", **shared, corruption=name, severity=severity)
                    self._read(cell, f"{plan.data}+{name}:{severity}")
                    continue
                row = find_corruption(name)
                made = replace(
                    CorruptionCell("", "", **shared), corruption=row.name, severity=severity, source=_source(self._size)
                )
                self._measure(made, lambda row=row, level=severity: self._corrupted(row.name, level))
        for name in plan.sequences:
            row = find_sequence(name)
            made = CorruptionCell("", "", **shared, corruption=row.name, sequence=True, source=_source(self._size))
            self._measure(made, self._blocks)
        return CorruptionSummary(self.done, self.kept, self.failed)

    def _blocks(self) -> Iterator[Data]:
        """Yield the clean images in blocks. If they fit into memory, they are read only once."""
        if self._clean is not None:
            yield from self._clean
        elif self.plan.images is not None:
            end, given = self.plan.limit, self.plan.images
            yield from split_data(Data(given.inputs[:end], given.labels[:end], given.names[:end]), BLOCK)
        else:
            yield from iter_batches(self.first, self.plan.data, self.plan.limit, BLOCK)

    def _describe_clean(self) -> tuple[str, int]:
        """Return the digest and the number of the clean images.

        Check first that every corruption can be applied to them.
        """
        digest, images, size, kept = hashlib.sha256(), 0, 0, []
        for block in self._blocks():
            for name in self.plan.corruptions:
                check_images_for(find_corruption(name), block.inputs)
            for name in self.plan.sequences if not images else ():
                frames_of(block.inputs[0], name)
            self._size = severity_scale_for(*block.inputs.shape[2:])
            digest.update(block.inputs.numpy().tobytes() + block.labels.numpy().tobytes())
            images, size = images + len(block.labels), size + block.inputs.numel()
            kept = [*kept, block] if size <= _KEPT else []
        self._clean = kept if size <= _KEPT else None
        return digest.hexdigest()[:20], images

    def _corrupted(self, corruption: str, severity: int) -> Iterator[Data]:
        for block in self._blocks():
            yield block._replace(inputs=corrupt_images(block.inputs, corruption, severity, seed=self.plan.seed))

    def _read(self, cell: CorruptionCell, name: str) -> None:
        """Evaluate the models on corrupted images from disk. The digest of these data is that of the image files."""
        digest, images = describe_files(self.first, name, self.plan.limit)
        known = replace(cell, data_digest=digest, images=images)
        self._measure(known, lambda: iter_batches(self.first, name, self.plan.limit, BLOCK))

    def _measure(self, shared: CorruptionCell, blocks: Callable[[], Iterator[Data]]) -> None:
        """Compute and write the predictions of every model that has no record yet."""
        cells = {name: self._cell(shared, name) for name in self.models if name not in self.failed}
        missing = {
            name: cell
            for name, cell in cells.items()
            if self.identities[name].reasons or read_corruption(self.store, cell) is None
        }
        self.kept += len(cells) - len(missing)
        self.report("", shared.images * (len(cells) - len(missing)))
        if not missing:
            return
        names, labels = [], []
        predicted: dict[str, list[np.ndarray]] = {name: [] for name in missing}
        picture: bytes | None = None
        for block in blocks():
            picture = picture if names else picture_of(block.inputs[0])
            names, labels = [*names, *block.names], [*labels, block.labels.numpy()]
            for name in [name for name in missing if name not in self.failed]:
                try:
                    predicted[name].append(self._predict(self.models[name], block, shared))
                except DavylampError as error:
                    self.failed[name] = str(error)
                self.report(missing[name].title, len(block.labels))
        for name, cell in missing.items():
            if name not in self.failed:
                answers = np.concatenate(predicted[name])
                table = corruption_table_of(names, np.concatenate(labels), answers, picture)
                self.store.write("corruptions", cell.key, table, _meta(cell))
                self.done += 1

    def _cell(self, shared: CorruptionCell, name: str) -> CorruptionCell:
        version = ".".join(torch.__version__.split(".")[:2])
        about = {"torch": version, "device": self.models[name].device.type}
        return replace(shared, model=name, model_digest=self.identities[name].digest, **about)

    def _predict(self, model: Classifier, block: Data, cell: CorruptionCell) -> np.ndarray:
        model.answers.expect_labels(block.labels)
        if not cell.sequence:
            return _classes(model, block.inputs, block.labels)
        sequences = (frames_of(image, cell.corruption, seed=cell.seed) for image in block.inputs)
        return np.stack([_classes(model, frames) for frames in sequences])


def _classes(model: Classifier, inputs: Tensor, labels: Tensor | None = None) -> np.ndarray:
    """Return the predicted class of each image, (n,). -1 if the logits are not finite.

    Raises InvalidInput for labels outside the model's classes.
    """
    logits = model.predict_logits(inputs.to(model.device)).cpu()
    if labels is not None:
        check_several(logits)
        check_labels(labels, len(inputs), logits.shape[1])
    return logits.argmax(1).where(logits.isfinite().all(1), -1).numpy()


def _source(size: str) -> str:
    return f"imagecorruptions-imaug {library_version()}, severities of {size}, seeds {VERSION}"


def _meta(cell: CorruptionCell) -> dict[str, Any]:
    about = {"key": cell.key, "spec": cell.spec, "kind": "corruption", "versions": versions()}
    return {**about, "status": "done", "reason": "", "unmeasured": {}}


def count_images(models: Mapping[str, Classifier], plan: CorruptionPlan) -> int:
    """Return the number of predictions that all models together have to make, for a progress bar.

    Raises:
        DavylampError: if the images are unavailable.
    """
    name = f"{plan.data}+{plan.corruptions[0]}:{plan.severities[0]}" if plan.on_disk else plan.data
    first = next(iter(models.values()))
    images = len(plan.images.labels) if plan.images is not None else describe_files(first, name, plan.limit)[1]
    steps = len(plan.corruptions) * len(plan.severities) + len(plan.sequences)
    return len(models) * images * (steps + bool(not plan.on_disk or plan.clean))
