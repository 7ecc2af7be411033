"""One piece of work and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ..cell import Cell, ModelOnData
from ..sources import DataSource, ModelSource


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work.

    Args:
        kind: "clean" predictions, one shard of an "attack", or a "transfer" of its examples to another model.
        subject: the model (for "transfer" the one that is tested) and its images.
        model: where that model comes from.
        data: where its images come from.
        device: where to compute.
        cell: what to run, or whose examples to test; None for "clean".
        shard: which piece of the cell.
        keep_images: hand back the adversarial images too.
        logits: of the model on the shard's clean images, if they are known.
        cams: clean activation maps of the shard's labels, if they are known.
        adv_inputs: the examples to test on another model.
    """

    kind: Literal["clean", "attack", "transfer"]
    subject: ModelOnData
    model: ModelSource
    data: DataSource
    device: str = "cpu"
    cell: Cell | None = None
    shard: int = 0
    keep_images: bool = False
    logits: np.ndarray | None = None
    cams: Any = None
    adv_inputs: np.ndarray | None = None

    @property
    def name(self) -> str:
        """Unique within a results folder."""
        if self.cell is None:
            return self.subject.key
        if self.kind == "transfer":
            return f"{self.cell.key}-{self.subject.key}"
        return f"{self.cell.key}-{self.shard}"

    @property
    def images(self) -> int:
        """How many images the work is about."""
        return self.subject.images if self.kind != "attack" or self.cell is None else len(self.cell.span(self.shard))


class TaskResult(NamedTuple):
    """What came of a task: a table, or the reason why there is none; `unmeasured` metrics with their reasons.

    `probes` are those of the model, for "clean".
    """

    task: Task
    table: pa.Table | None
    images: np.ndarray | None = None
    seconds: float = 0.0
    attack_seconds: float = 0.0
    reason: str = ""
    unmeasured: Mapping[str, str] | None = None
    probes: Mapping[str, Any] | None = None
