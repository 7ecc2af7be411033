"""User metrics: functions in Python files that compute a number per image from images, logits and query counts."""

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..adapters.models.identity.digest import identify_code
from ..adapters.models.identity.source_files import code_state
from ..adapters.models.state_guard import StateGuard
from ..adapters.paths import split_file_name
from ..adapters.running.seeding import seeded
from ..adapters.torch_state import preserve_torch_state
from ..adapters.user_code_guard import guard_user_code
from ..adapters.user_file import load_object
from ..errors import InvalidInput, ModelFailed

# Arguments that can be computed from stored records, and arguments that exist only during the attack.
OF_RECORDS = ("logits", "adv_logits", "labels", "targets", "success", "forwards", "backwards", "seconds", "distance")
OF_IMAGES = ("inputs", "adv_inputs", "model")
_MARK = " code "


class UserMetric(NamedTuple):
    """A function of a user that returns a number for each image.

    Args:
        name: "path/to/file.py:function", which is also the symbol of the metric.
        function: the function. The names of its arguments are among `OF_RECORDS` and `OF_IMAGES`, and each argument has
            shape (n, ...).
        needs: names of the function's arguments.
        digest: digest of the function's code, as far as the code can be identified.
        unknown: reasons why the digest may be incomplete; empty if it is complete.
        surroundings: context manager that is active while the function runs.
    """

    name: str
    function: Any
    needs: tuple[str, ...]
    digest: str
    unknown: tuple[str, ...]
    surroundings: AbstractContextManager[Any]

    @property
    def of_records(self) -> bool:
        """Whether the metric can be computed from stored records, without images and model."""
        return set(self.needs) <= set(OF_RECORDS)

    def values(self, given: Mapping[str, Any]) -> Tensor:
        """Call the function, and return one number for each image, float64, shape (n,), NaN if undefined.

        Random numbers are seeded during the call.

        Args:
            given: value of each argument that the function may have, by name.

        Raises:
            ModelFailed: if the function fails, or changes the model. The message names the file and the failed line.
            InvalidInput: if the function does not return one number for each image.
        """
        guard = StateGuard(given["model"]) if "model" in self.needs else None
        try:
            with seeded(0), preserve_torch_state(), self.surroundings, guard_user_code(self.name, descriptors=True):
                returned = self.function(**{name: given[name] for name in self.needs})
        finally:
            changed = guard is not None and guard.restore(lambda: given["model"](given["inputs"][:1]))
        if changed:
            raise ModelFailed(f"{self.name} changed the model: its weights, buffers, mode or hooks")
        return _numbers(returned, len(given["labels"]), self.name)


def _numbers(returned: Any, count: int, name: str) -> Tensor:
    wanted = f"a number for each image, shape ({count},), from {name}"
    try:
        values = torch.as_tensor(returned).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(f"expected {wanted}, got {type(returned).__name__}") from error
    if values.shape != (count,) or values.is_complex():
        raise InvalidInput(f"expected {wanted}, got {values.dtype} of shape {tuple(values.shape)}")
    return values.double()


def find_metric(name: str) -> UserMetric:
    """Load the metric "path/to/file.py:function".

    The metric is cached until its file, or a local module that the file imports, changes.

    Raises:
        Unavailable: if there is no such file.
        UnknownName: if the file has no such function.
        ModelFailed: if importing the file fails.
        InvalidInput: if the object is not callable, or has an argument that is not in `OF_RECORDS` or `OF_IMAGES`.
    """
    path = split_file_name(name)[0].resolve()
    return _load(name, path, code_state(path))


@lru_cache(maxsize=64)
def _load(name: str, path: Path, state: Any) -> UserMetric:
    del state  # part of the cache key: a changed file is loaded again
    function, surroundings = load_object(path, split_file_name(name)[1], "a metric")
    if not callable(function):
        raise InvalidInput(f"expected a function as {name}, got {type(function).__name__}")
    needs = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in (*OF_RECORDS, *OF_IMAGES):
            needs.append(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            known = ", ".join((*OF_RECORDS, *OF_IMAGES))
            raise InvalidInput(f"the argument {parameter.name} of {name} is not known; possible arguments: {known}")
    return UserMetric(name, function, tuple(needs), *identify_code(function, path), surroundings)


def sealed_name(name: str) -> str:
    """Append the digest of its code to the name of a user metric.

    After a change of the code, the run has a different key.
    """
    return f"{name}{_MARK}{find_metric(name).digest}"


def plain_name(measure: str) -> str:
    """Remove the digest of the code from the name of a user metric, such as "my.py:f code 3f2a...".

    Other measures are returned unchanged.
    """
    return measure.partition(_MARK)[0]


def of_record(
    metric: UserMetric,
    columns: Mapping[str, np.ndarray],
    usable: np.ndarray,
    logits: Tensor | None,
    adv_logits: Tensor,
) -> np.ndarray:
    """Compute a user metric from the record of a run, (n,); NaN for unusable images.

    All values are NaN if the record lacks an argument of the function.

    Args:
        metric: a metric with `of_records`.
        columns: columns of the record.
        usable: whether each image is usable, (n,) bool.
        logits: logits of the clean images, (n, K). None if the folder does not contain them.
        adv_logits: logits of the examples, (n, K).
    """
    count = len(columns["label"])
    values = np.full(count, np.nan)
    given = {"labels": torch.tensor(columns["label"]), "adv_logits": adv_logits, "logits": logits}
    given |= {name: torch.tensor(columns[name]) for name in ("success", "forwards", "backwards", "seconds", "distance")}
    if "targets" in metric.needs:
        if columns["target"].dtype == object or np.isnan(columns["target"].astype(float)).any():
            return values
        given["targets"] = torch.tensor(columns["target"].astype(np.int64))
    if any(given[name] is None for name in metric.needs):
        return values
    if usable.any():
        kept = torch.tensor(usable)
        values[usable] = metric.values(
            {name: value[kept] for name, value in given.items() if value is not None}
        ).numpy()
    return values
