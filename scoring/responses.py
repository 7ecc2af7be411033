"""From a table of results, one row for each cell and image, to a matrix of responses."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

Subjects = Literal["models", "attacks", "implementations", "defences"]
THREAT = ("norm", "epsilon", "targeted")
COLUMNS = ("cell", "model", "attack", "implementation", "image", "attacked", "success", "violated")


class Responses(NamedTuple):
    """Subjects by items.

    Attributes:
        values: 1 for the subject, 0 against it, NaN missing; shape (N, M).
        subjects: names, length N.
        items: names, length M.
        images: the image of each item, length M.
    """

    values: np.ndarray
    subjects: tuple[str, ...]
    items: tuple[str, ...]
    images: tuple[str, ...]


def build_responses(results: pd.DataFrame, subjects: Subjects = "models", budget: float | None = None) -> Responses:
    """Who did what on which image.

    A model answers right where the attack did not fool it: an image that it gets wrong when clean counts against it. An
    attack or an implementation answers right where it fooled the model; an image that the model gets wrong when clean
    is missing. What broke a rule is missing for both.

    Args:
        results: with `COLUMNS`, and `norm`, `epsilon`, `parameters`, `data` where they tell items apart.
        subjects: whose strength is scored; items are image x attack for "models" and "defences", image x model for
            "attacks" (and x library) and "implementations".
        budget: largest distance at which an attack counts as having fooled (column `distance`); None: any.

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
    attacked, fooled = rows["attacked"].astype(bool), rows["success"].astype(bool)
    if budget is not None:
        fooled &= rows["distance"] <= budget
    value = (attacked & ~fooled if of_models else attacked & fooled).astype(float)
    hidden = rows["violated"].astype(bool) | (False if of_models else ~attacked)
    image = _join(rows, ("data", "image"))
    if of_models:
        own, other = _join(rows, ("model",)), _join(rows, ("implementation", *THREAT, "parameters", "seed"))
    elif subjects == "attacks":
        own, other = _told_apart(rows, "attack"), _join(rows, ("model", "library", "seed"))
    else:
        own, other = _told_apart(rows, "implementation"), _join(rows, ("model", "seed"))
    item = image + " x " + other
    frame: Any = pd.DataFrame({"subject": own, "item": item, "image": image, "value": value.mask(hidden)})
    frame = frame.dropna(subset="value")
    if frame.empty:
        raise ValueError("expected results of attacked images, got none")
    matrix: Any = frame.pivot_table(index="subject", columns="item", values="value", aggfunc="mean", sort=False)
    images: Any = frame.drop_duplicates("item").set_index("item")["image"].loc[list(matrix.columns)]
    return Responses(matrix.to_numpy(), tuple(matrix.index), tuple(matrix.columns), tuple(images))


def _told_apart(rows: Any, column: str) -> Any:
    """Names of the column, with as much of threat model and parameters as tells their runs apart."""
    name, threat, parameters = _join(rows, (column,)), _threat(rows), _join(rows, ("parameters",))
    several = threat.groupby(name).transform("nunique") > 1
    name = name.where(~several, name + " " + threat)
    # Within one implementation only: libraries take different parameters for the same attack.
    several = parameters.groupby([rows["implementation"], name]).transform("nunique") > 1
    return name.where(~several, name + " " + parameters)


def _threat(rows: Any) -> Any:
    """Norm, radius and goal as one text for each row: "linf 0.03137", "l2", "linf 0.03137 targeted"."""
    told = {
        "norm": str,
        "epsilon": lambda radius: "" if pd.isna(radius) else f" {radius:.4g}",
        "targeted": lambda targeted: " targeted" if targeted else "",
    }
    texts = [rows[column].map(spell) for column, spell in told.items() if column in rows]
    return texts[0].str.cat(texts[1:]) if texts else pd.Series("", index=rows.index)


def _join(rows: Any, columns: Sequence[str]) -> Any:
    """Those of the columns that there are, as one text for each row."""
    texts = [rows[column].map(str) for column in columns if column in rows]
    return texts[0].str.cat(texts[1:], sep=" ") if texts else pd.Series("", index=rows.index)
