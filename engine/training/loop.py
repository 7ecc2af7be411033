"""Training loop for all training methods, which can resume an interrupted training from a checkpoint."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from ...errors import TrainingFailed
from .checkpoint import Checkpoint
from .methods import METHODS
from .settings import TrainingSettings
from .student import TrainableModel

Progress = Callable[[str, int], object]


def train(
    student: TrainableModel,
    inputs: Tensor,
    labels: Tensor,
    settings: TrainingSettings,
    *,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> None:
    """Train a model in place.

    All random numbers come from torch's global generators, which the caller has to seed. Checkpoints contain the states
    of these generators.

    Args:
        student: the model to train. Its weights change, and it is in evaluation mode afterwards.
        inputs: images in [0, 1], float32, shape (N, C, H, W), on any device.
        labels: true classes, int64, shape (N,).
        settings: settings of the training.
        checkpoint: checkpoint from which an interrupted training resumes. The checkpoint is written after each epoch,
            and at intervals within an epoch. None for no checkpoint.
        progress: function that is called after each batch with the current stage and the number of images in the batch.
            If the training resumes, the first call has the stage "" and the number of images that are already finished.

    Raises:
        TrainingFailed: If the loss is not finite.
        DavylampError: If the checkpoint cannot be read or written, or if the model fails.
    """
    course = _TrainingRun(student, inputs, labels, settings)
    stored = checkpoint.read() if checkpoint is not None else None
    if stored is not None:
        course.restore(stored)
        if progress is not None:
            progress("", course.images_done)
    student.train()
    for title, images in course.batches():
        if progress is not None:
            progress(title, images)
        if checkpoint is not None and (course.is_at_an_end or checkpoint.is_due):
            checkpoint.write(course.state())
    student.eval()


class _TrainingRun:
    def __init__(self, student: TrainableModel, inputs: Tensor, labels: Tensor, settings: TrainingSettings):
        self._student, self._inputs, self._labels, self._settings = student, inputs, labels, settings
        self._row = METHODS[settings.method]
        self._device = student.learning[0].device
        self._stage = self._epoch = self._batch = 0
        self._order: Tensor | None = None
        self._memory: dict[str, Any] = {}
        if self._row.stages > 1:
            self._memory["initial"] = _copy(student)
        self._optimiser = _make_optimiser(student, settings)

    @property
    def title(self) -> str:
        stage = f", stage {self._stage + 1} of {self._row.stages}" if self._row.stages > 1 else ""
        return f"{self._settings.method}{stage}, epoch {self._epoch + 1} of {self._settings['epochs']}"

    @property
    def images_done(self) -> int:
        count = len(self._inputs)
        epochs = self._stage * self._settings["epochs"] + self._epoch
        inside = 0 if self._order is None else sum(len(b) for b in self._split(self._order)[: self._batch])
        return epochs * count + inside

    @property
    def is_at_an_end(self) -> bool:
        return self._order is None

    def batches(self) -> Iterator[tuple[str, int]]:
        """Train on all remaining batches. After each batch, yield a title with stage and epoch, and the batch size."""
        while self._stage < self._row.stages:
            if self._order is None:
                self._order = torch.randperm(len(self._inputs))
            batches = self._split(self._order)
            chosen = batches[self._batch]
            self._step(chosen, (self._epoch + self._batch / len(batches)) / self._settings["epochs"])
            title = self.title
            self._batch += 1
            if self._batch == len(batches):
                self._batch, self._order = 0, None
                self._epoch += 1
            if self._epoch == self._settings["epochs"]:
                self._end_stage()
            yield title, len(chosen)

    def state(self) -> dict[str, Any]:
        """Return the state to store in a checkpoint, which determines the rest of the training."""
        place = {"stage": self._stage, "epoch": self._epoch, "batch": self._batch, "order": self._order}
        random: dict[str, Any] = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self._device)
        weights, optimiser = self._student.state_dict(), self._optimiser.state_dict()
        return {**place, "random": random, "weights": weights, "optimiser": optimiser, "memory": self._memory}

    def restore(self, stored: dict[str, Any]) -> None:
        self._stage, self._epoch, self._batch = (stored[word] for word in ("stage", "epoch", "batch"))
        self._order = stored["order"]
        self._student.load_state_dict(stored["weights"])
        self._optimiser.load_state_dict(stored["optimiser"])
        self._memory = _to(stored["memory"], self._device)
        torch.set_rng_state(stored["random"]["cpu"])
        if "cuda" in stored["random"]:
            torch.cuda.set_rng_state(stored["random"]["cuda"], self._device)

    def _split(self, order: Tensor) -> list[Tensor]:
        """Split the positions of the images into batches.

        If the last batch had a single image, this image joins the previous batch, because batch normalisation needs at
        least two images.
        """
        batches = list(order.split(self._settings["batch_size"]))
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    def _step(self, chosen: Tensor, passed: float) -> None:
        places = chosen.to(self._inputs.device)
        inputs, labels = self._inputs[places].to(self._device), self._labels[places].to(self._device)
        for group in self._optimiser.param_groups:
            group["lr"] = self._settings["learning_rate"] * _share(self._settings["schedule"], passed)
        mixed = self._settings.mixed_precision
        losses = self._row.loss(self._student, inputs, labels, self._settings, self._memory)
        while True:
            with torch.autocast(self._device.type, torch.bfloat16, enabled=mixed):
                loss = next(losses, None)
            if loss is None:
                return
            if not math.isfinite(float(loss.detach())):
                reached = f"{float(loss.detach())} in {self.title}, batch {self._batch + 1}"
                raise TrainingFailed(f"expected a finite loss, got {reached}; lower the learning rate")
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()

    def _end_stage(self) -> None:
        self._stage += 1
        self._epoch = 0
        if self._stage < self._row.stages:
            self._memory["teacher"] = _copy(self._student)
            self._student.load_state_dict(self._memory["initial"])
            self._optimiser = _make_optimiser(self._student, self._settings)


def _make_optimiser(student: TrainableModel, settings: TrainingSettings) -> torch.optim.Optimizer:
    rate, decay = settings["learning_rate"], settings["weight_decay"]
    if settings["optimiser"] == "adam":
        return torch.optim.Adam(student.learning, rate, weight_decay=decay)
    return torch.optim.SGD(student.learning, rate, momentum=0.9, weight_decay=decay)


def _share(schedule: str, passed: float) -> float:
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * passed))
    if schedule == "cyclic":  # increasing, then decreasing, as in Wong et al.
        return 1 - abs(2 * passed - 1)
    return 1.0


def _copy(student: TrainableModel) -> dict[str, Tensor]:
    return {name: deepcopy(tensor.detach()) for name, tensor in student.state_dict().items()}


def _to(memory: Any, device: torch.device) -> Any:
    if isinstance(memory, dict):
        return {name: _to(value, device) for name, value in memory.items()}
    return memory.to(device)
