"""One piece of work and what came of it."""

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
    """A piece of work.

    On its way to another process its tensors are arrays, and images take a byte a component where nothing is lost by
    it: torch would hand them over in shared memory, of which a container has little.

    Args:
        kind: "clean" predictions, what an attack learns once before ("fit"), one shard of an "attack", or a "transfer"
            of its examples to another model.
        subject: the model (for "transfer" the one that is tested) and its images.
        model: where that model comes from.
        data: where its images come from.
        device: where to compute.
        cell: what to run, or whose examples to test; None for "clean".
        shard: which piece of the cell.
        keep_images: hand back the adversarial images too.
        keep_logits: hand back what the tested model answers in full, for "transfer".
        logits: of the model on the shard's clean images, shape (N, K), if they are known.
        cams: clean activation maps of the shard's labels, shape (N, h, w), if they are known.
        adv_inputs: the examples to test on another model, shape (N, C, H, W).
        surrogate: where what the examples are made on comes from; empty: on the model itself.
        fit: where the images to learn from come from, for "fit"; None: the attack needs none.
        fitted: what the attack has learned, or why it has not.
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
    cams: Tensor | None = None
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
        """Unique within a results folder."""
        if self.cell is None:
            return self.subject.key
        if self.kind == "fit":
            return self.cell.fit_key
        if self.kind == "transfer":
            return f"{self.cell.key}-{self.subject.key}"
        return f"{self.cell.key}-{self.shard}"

    @property
    def images(self) -> int:
        """How many of the images that are judged the work is about."""
        if self.kind == "fit":
            return 0
        return (
            self.subject.images
            if self.kind != "attack" or self.cell is None
            else len(self.cell.shard_slice(self.shard))
        )


class TaskResult(NamedTuple):
    """What came of a task: a table, or the reason why there is none; `unmeasured` metrics with their reasons.

    `probes` are those of the model, for "clean"; `gpu` is the name of the one that was used, if one was; `fitted` is
    what an attack has learned once, in this task or before it; `saturation` how the radius of an attack at saturation
    was found; `traffic` what servers of remote models were asked; `outputs` what the model gives, where that is not
    logits, and `output_note` how its output was read, where there was a choice; `class_names` those of the model.
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
