"""What attacks that learn once have learned, as records: a number in each row, so that any reader takes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...adapters.running.fit import Fitted
from ...adapters.threat_model import ThreatModel
from .contents import read_records
from .sealed import Damaged, Record
from .store import ResultsStore

COSTS = ("fit_forwards", "fit_backwards", "fit_seconds")


def fit_table(fitted: Fitted) -> pa.Table:
    """The numbers that were learned, with the name of the array that each belongs to; shapes are in `describe_fit`."""
    names = np.repeat(np.array([*fitted.arrays], object), [array.size for array in fitted.arrays.values()])
    values = np.concatenate([array.astype(np.float32).ravel() for array in fitted.arrays.values()])
    return pa.table({"array": pa.array(names), "value": pa.array(values)})


def describe_fit(fitted: Fitted) -> dict[str, Any]:
    """All that is known of a fitting besides the numbers and its seconds, as JSON types."""
    rules = fitted.threat_model
    return {
        "implementation": fitted.implementation,
        "threat_model": {"norm": rules.norm, "epsilon": rules.epsilon, "targeted": rules.targeted},
        "parameters": dict(fitted.parameters),
        "seed": fitted.seed,
        "model": fitted.model,
        "shapes": {name: list(array.shape) for name, array in fitted.arrays.items()},
        "images": fitted.images,
        "forwards": fitted.forwards,
        "backwards": fitted.backwards,
        "digest": fitted.digest,
        **({} if fitted.target is None else {"target": fitted.target}),
    }


def fitted_of(record: Record) -> Fitted:
    """What a record of a fitting holds.

    Raises:
        Damaged: if it holds something else, or numbers that are not those that its digest is of.
    """
    try:
        about, seconds = dict(record.meta["fit"]), float(record.meta["fit_seconds"])
        shapes, digest = about.pop("shapes"), about.pop("digest")
        names = record.table["array"].combine_chunks().dictionary_encode()
        values, places = record.table["value"].to_numpy(), names.indices.to_numpy()
        known = {name: place for place, name in enumerate(names.dictionary.to_pylist())}
        arrays = {name: values[places == known[name]].reshape(shape) for name, shape in shapes.items()}
        rules = ThreatModel(**about.pop("threat_model"))
        fitted = Fitted(threat_model=rules, arrays=arrays, seconds=seconds, **about)
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"it holds nothing that was fitted ({type(error).__name__})") from error
    if fitted.digest != digest:
        raise Damaged("what was fitted is not what its digest says")
    return fitted


def load_fitted(folder: str | Path) -> dict[str, Fitted]:
    """What the attacks of a results folder have learned, by key of the fitting (`Cell.fit_key`); failed ones not.

    Raises:
        Unavailable: if there is no such folder.
    """
    kept: dict[str, Fitted] = {}
    for key, record in read_records(ResultsStore(folder, create=False), "fits"):
        if not isinstance(record, Damaged) and not record.failed:
            kept[key] = fitted_of(record)
    return kept


def fit_costs(meta: Mapping[str, Any]) -> dict[str, float]:
    """What the fitting cost, once for all images, by symbol; nothing for a cell that was not fitted before."""
    fit = meta.get("fit")
    if not isinstance(fit, Mapping):
        return {}
    numbers = (fit.get("forwards"), fit.get("backwards"), meta.get("fit_seconds"))
    return {
        name: float(number) for name, number in zip(COSTS, numbers, strict=True) if isinstance(number, (int, float))
    }
