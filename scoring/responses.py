"""From a table of results, one row for each cell and image, to a matrix of responses."""

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

Subjects = Literal["models", "attacks", "implementations", "defences"]
COLUMNS = ("cell", "model", "attack", "implementation", "image", "attacked", "success", "violated")


class Responses(NamedTuple):
    """Subjects by items.

    Attributes:
        values: 1 for the subject, 0 against it, NaN missing; a mean where a cell was repeated with other seeds;
            shape (N, M).
        subjects: names, length N.
        items: names, length M.
        images: the image of each item, length M.
    """

    values: np.ndarray
    subjects: tuple[str, ...]
    items: tuple[str, ...]
    images: tuple[str, ...]


def build_responses(results: pd.DataFrame, subjects: Subjects = "models") -> Responses:
    """Who did what on which image.

    A model answers right where the attack did not fool it: an image that it gets wrong when clean counts against it. An
    attack or an implementation answers right where it fooled the model; an image that the model gets wrong when clean
    is missing. What broke a rule is missing for both.

    Args:
        results: with `COLUMNS`, and `norm`, `epsilon`, `parameters`, `data` where they tell attacks apart.
        subjects: whose strength is scored; items are image x attack for "models" and "defences", image x model for
            "attacks" and "implementations".

    Returns:
        The matrix, in the order in which subjects and items come in the results; items that nobody has are left out.

    Raises:
        ValueError: if columns are missing, the kind is unknown, or nothing is left.
    """
    absent = [column for column in COLUMNS if column not in results]
    if absent:
        raise ValueError(f"expected columns {', '.join(COLUMNS)}, got a table without {', '.join(absent)}")
    if subjects not in ("models", "attacks", "implementations", "defences"):
        raise ValueError(f"expected subjects models, attacks, implementations or defences, got {subjects!r}")
    rows: Any = results
    of_models = subjects in ("models", "defences")
    attacked, success = rows["attacked"].astype(bool), rows["success"].astype(bool)
    value = (attacked & ~success if of_models else success).astype(float)
    hidden = rows["violated"].astype(bool) | (False if of_models else ~attacked)
    threat = _join(rows, [name for name in ("norm", "epsilon", "targeted", "parameters") if name in rows])
    image = _join(rows, [name for name in ("data", "image") if name in rows])
    own = rows["model"] if of_models else rows["attack" if subjects == "attacks" else "implementation"]
    other = rows["implementation"].astype(str) + " " + threat if of_models else rows["model"].astype(str)
    item = image + " x " + other + ("" if of_models else " " + threat)
    frame: Any = pd.DataFrame({"subject": own.astype(str), "item": item, "image": image, "value": value.mask(hidden)})
    frame = frame.dropna(subset="value")
    if frame.empty:
        raise ValueError("expected results of attacked images, got none")
    matrix: Any = frame.pivot_table(index="subject", columns="item", values="value", aggfunc="mean", sort=False)
    images: Any = frame.drop_duplicates("item").set_index("item")["image"].loc[matrix.columns]
    return Responses(matrix.to_numpy(), tuple(matrix.index), tuple(matrix.columns), tuple(images))


def _join(results: Any, columns: list[str]) -> Any:
    """The columns as one text for each row."""
    text = pd.Series("", index=results.index)
    for column in columns:
        text = text + (" " if column != columns[0] else "") + results[column].astype(str)
    return text
