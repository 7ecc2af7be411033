"""Tasks of an evaluation and their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...adapters.running.fit import Fitted
from ..attack_run import AttackRun, ModelOnData
from ..sources import DataSource, FitSource, ModelSource
from ..store.columns import compact_images, restore_images


@dataclass(frozen=True, eq=False)
class Task:
    """One task of an evaluation.

    When a task is sent to a different process, its tensors are converted to arrays. torch would send tensors in shared
    memory, of which containers have little. Images are stored with one byte per component if this is lossless.

    Args:
        kind: "clean" for predictions on clean images, "fit" for fitting an attack, "attack" for one shard of a run, or
            "transfer" for testing the examples of a run on another model.
        subject: the model and its images. For "transfer", the model on which the examples are tested.
        model: source of that model.
        data: source of its images.
        device: torch device.
        cell: the run. For "transfer", the run that made the examples. None for "clean".
        shard: index of the shard.
        keep_images: whether to return the adversarial images.
        keep_logits: whether to return the logits of the tested model, for "transfer".
        logits: the model's logits on the shard's clean images, shape (N, K), if known.
        adv_inputs: examples to test on another model, shape (N, C, H, W).
        surrogate: source of the surrogate. Empty if examples are made on the model itself.
        fit: source of the fit images, for "fit". None if the attack needs no images.
        fitted: the fitted attack, or the reason why fitting failed.
    """

    kind: Literal["clean", "fit", "attack", "transfer"]
    subject: ModelOnData
    model: ModelSource
    data: DataSource
    device: str = "cpu"
    cell: AttackRun | None = None
    shard: int = 0
    keep_images: bool = False
    keep_logits: bool = False
    logits: Tensor | None = None
    adv_inputs: Tensor | None = None
    surrogate: tuple[ModelSource, ...] = ()
    fit: FitSource | None = None
    fitted: Fitted | str | None = None

    def __getstate__(self) -> dict[str, Any]:
        examples = None if self.adv_inputs is None else compact_images(self.adv_inputs)
        arrays = {name: value.detach().cpu().numpy() for name, value in vars(self).items() if isinstance(value, Tensor)}
        return {**vars(self), **arrays, "adv_inputs": examples}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name, array in state.items():
            if isinstance(array, np.ndarray):
                restore = restore_images if name == "adv_inputs" else torch.from_numpy
                # Ray's arrays are read-only, which a tensor cannot be.
                vars(self)[name] = restore(np.require(array, requirements="W"))

    @property
    def name(self) -> str:
        """Name of the task, unique within a results folder."""
        if self.cell is None:
            return self.subject.key
        if self.kind == "fit":
            return self.cell.fit_key
        if self.kind == "transfer":
            return f"{self.cell.key}-{self.subject.key}"
        return f"{self.cell.key}-{self.shard}"

    @property
    def images(self) -> int:
        """Number of evaluation images that this task covers."""
        if self.kind == "fit":
            return 0
        return (
            self.subject.images
            if self.kind != "attack" or self.cell is None
            else len(self.cell.shard_slice(self.shard))
        )


class TaskResult(NamedTuple):
    """Result of a task: a table, or the reason why there is no table.

    `unmeasured` has the metrics without a value, with the reasons. `probes` are the probes of the model, for "clean".
    `gpu` is the name of the GPU, if any. `fitted` is the fitted attack. `saturation` describes the search for the
    saturation radius. `traffic` is the number of queries to servers. `outputs` is the model's output format, if it is
    not logits. `output_note` describes how the model's output was interpreted. `class_names` are the names of the
    model's classes.
    """

    task: Task
    table: pa.Table | None
    images: np.ndarray | None = None
    seconds: float = 0.0
    attack_seconds: float = 0.0
    reason: str = ""
    unmeasured: Mapping[str, str] | None = None
    probes: Mapping[str, Any] | None = None
    gpu: str = ""
    fitted: Fitted | None = None
    saturation: Mapping[str, Any] | None = None
    traffic: Mapping[str, Any] | None = None
    outputs: str = ""
    output_note: str = ""
    class_names: tuple[str, ...] = ()
