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
        notes: a line for everything that a reader should know: what is missing, what counts more than once.
    """

    values: np.ndarray
    subjects: tuple[str, ...]
    items: tuple[str, ...]
    images: tuple[str, ...]
    notes: tuple[str, ...] = ()


def build_responses(results: pd.DataFrame, subjects: Subjects = "models", budget: float | None = None) -> Responses:
    """Who did what on which image.

    A model answers right where the attack did not fool it: an image that it gets wrong when clean counts against it. An
    attack or an implementation answers right where it fooled the model; an image that the model gets wrong when clean
    is missing. What broke a rule is missing for both, as is everything of an attack that failed; notes say how much.

    Args:
        results: with `COLUMNS`, and `norm`, `epsilon`, `parameters`, `data`, ... where they tell items apart;
            `library` and `knowledge` are for the notes, `minimum_norm` says whose distances are the smallest found.
        subjects: whose strength is scored; items are image x attack for "models" and "defences", image x model for
            "attacks" (and x library) and "implementations".
        budget: largest distance at which an attack counts as having fooled (column `distance`); None: any. An attack
            in a larger ball that was not asked for the smallest change says nothing about it: missing.

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
    beyond = pd.Series(data=False, index=rows.index)
    if budget is not None:
        far = fooled & (rows["distance"] > budget)
        fooled &= ~far
        if "minimum_norm" in rows:
            beyond = far & ~rows["minimum_norm"].astype(bool)
    value = (attacked & ~fooled if of_models else attacked & fooled).astype(float)
    hidden = rows["violated"].astype(bool) | beyond | (False if of_models else ~attacked)
    image = _join(rows, ("data", "image"))
    if of_models:
        finer = [name for name in ("pixels", "target") if name in rows and rows[name].nunique() > 1]
        own, other = _join(rows, ("model",)), _join(rows, ("implementation", *THREAT, *finer, "parameters", "seed"))
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
    silent = [name for name in own.unique() if name not in matrix.index]
    notes = [f"left out: {', '.join(silent)}: no response at all"] if silent else []
    if beyond.any():
        notes.append(f"{beyond.sum()} responses are missing: fooled in a larger ball, not asked about this budget")
    return Responses(
        matrix.to_numpy(),
        tuple(matrix.index),
        tuple(matrix.columns),
        tuple(images),
        (*_notes(rows, of_models=of_models), *notes),
    )


def complete_items(responses: Responses) -> Responses:
    """The items that every subject has a response to; means over different items cannot be set against one another.

    Args:
        responses: of any subjects.

    Returns:
        The same with fewer items, and a note that says how many are left.

    Raises:
        ValueError: if there is no such item.
    """
    kept = np.flatnonzero(~np.isnan(responses.values).any(0))
    total = len(responses.items)
    if len(kept) == total:
        return responses
    if not len(kept):
        raise ValueError(f"expected an item that all {len(responses.subjects)} subjects answered, got none")
    note = f"means are over the {len(kept)} of {total} items that every subject answered"
    items, images = (tuple(part[place] for place in kept) for part in (responses.items, responses.images))
    return Responses(responses.values[:, kept], responses.subjects, items, images, (*responses.notes, note))


def _notes(rows: Any, *, of_models: bool) -> tuple[str, ...]:
    """What is missing, what counts more than once, and what is thrown together."""
    violated, notes = int(rows["violated"].astype(bool).sum()), []
    if violated:
        notes.append(f"{violated} of {len(rows)} responses are missing: the example broke a rule")
    if of_models and "library" in rows:
        libraries = rows.groupby("attack")["library"].unique()
        several = [f"{attack} ({', '.join(sorted(own))})" for attack, own in libraries.items() if len(own) > 1]
        if several:
            notes.append(f"an attack counts once for each library: {'; '.join(several)}")
    mixed = []
    if "knowledge" in rows and rows["knowledge"].nunique() > 1:
        mixed.append(" and ".join(f"{kind} ({count})" for kind, count in rows["knowledge"].value_counts().items()))
    if "targeted" in rows and rows["targeted"].nunique() > 1:
        mixed.append(f"targeted ({int(rows['targeted'].sum())}) and untargeted")
    if mixed:
        notes.append(f"responses to different kinds of attacks are ranked together: {'; '.join(mixed)}")
    return tuple(notes)


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
