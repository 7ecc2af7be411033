"""What a ranking by images is made of: the outcomes of a folder as a pandas table, a row for each cell and image."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .frames import about_cell, none_finished
from .image_results import with_faults
from .outcomes import Outcomes, outcomes_of

if TYPE_CHECKING:
    import pandas as pd

_SHARES = "draws_fooled"  # only records of random models have it
OUTCOMES = ("image", "index", "label", "attacked", "success", "violated", "violations", "distance", _SHARES)


def load_outcomes(source: "str | Path | Outcomes") -> "pd.DataFrame":
    """What a ranking by images asks for: some columns of `load`, in a tenth of the memory.

    As in tables, a model is called by a name of its own, images that were run again count once, and results of code
    that was edited since are left out. Texts, and what is the same on all images of a cell, are categories of pandas;
    the images of a cell are in the order of its record. Without random models there is no column `draws_fooled`.

    Args:
        source: where `davylamp evaluate` put them, or what was read of it.

    Returns:
        The table, with `attrs` as `load` has them.

    Raises:
        Unavailable: if there is no such folder, or no finished cell in it.
        StoreMismatch: if it was written in another format.
    """
    outcomes = outcomes_of(source)
    if not outcomes.done:
        numbers = map(len, (outcomes.failed, outcomes.damaged, outcomes.unknown))
        raise none_finished(outcomes.store.folder, *numbers)
    data: dict[str, str] = {}  # the first name of each set of images
    for each in outcomes.done:
        data.setdefault(each.cell.subject.data_digest, each.cell.subject.data)
    parts = []
    for each in outcomes.done:
        about = about_cell(each.cell) | {"target": each.cell.target, "data": data[each.cell.subject.data_digest]}
        parts.append((about, with_faults({name: each.columns[name] for name in OUTCOMES if name in each.columns})))
    order = ("model", "attack", "implementation", "cell")
    table = compact_frame(sorted(parts, key=lambda part: tuple(part[0][name] for name in order)))
    table.attrs["damaged"] = list(outcomes.damaged)
    for name in ("failed", "unknown"):
        table.attrs[name] = {cell.key: why for cell, why in getattr(outcomes, name)}
    return table


def compact_frame(parts: Sequence[tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]) -> "pd.DataFrame":
    """Rows of several cells: texts, and what is the same on all images of a cell, as categories of pandas.

    Args:
        parts: of each cell what it is about, by column, and its columns, (n,) each; the same names in all of them, but
            for `draws_fooled`, which is NaN where a cell lacks it and others have it.
    """
    import pandas as pd

    parts = _with_shares(parts)
    (about, arrays), *_ = parts
    sizes = [len(next(iter(columns.values()))) for _, columns in parts]
    frame: dict[str, Any] = {}
    for name in about:
        values = [facts[name] for facts, _ in parts]
        if isinstance(values[0], bool):
            frame[name] = np.repeat(values, sizes)
            continue
        code, different = pd.factorize(np.array(values, dtype=None if isinstance(values[0], float) else object))
        frame[name] = pd.Categorical.from_codes(np.repeat(code.astype(np.int32), sizes), different)
    for name in arrays:
        columns = [each[name] for _, each in parts]
        frame[name] = _texts(columns) if columns[0].dtype == object else np.concatenate(columns)
    return pd.DataFrame(frame)


def _with_shares(
    parts: Sequence[tuple[Mapping[str, Any], Mapping[str, np.ndarray]]],
) -> Sequence[tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]:
    """The parts, all with the shares of draws where one of them has it: NaN for models that draw nothing."""
    if all(_SHARES not in arrays for _, arrays in parts):
        return parts
    return [(about, {_SHARES: np.full(len(next(iter(arrays.values()))), np.nan), **arrays}) for about, arrays in parts]


def _texts(columns: Sequence[np.ndarray]) -> Any:
    """Texts of several cells, most of which share them, as categories."""
    import pandas as pd

    different = {id(column): column for column in columns}
    code, names = pd.factorize(np.concatenate([*different.values()]))
    ends = np.cumsum([len(column) for column in different.values()])[:-1]
    codes = dict(zip(different, np.split(code.astype(np.int32), ends), strict=True))
    return pd.Categorical.from_codes(np.concatenate([codes[id(column)] for column in columns]), names)
