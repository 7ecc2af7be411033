"""What the rows of a results table are about: their subject, image, item and attempt, as texts."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

THREAT = ("norm", "epsilon", "targeted")
_RUN = (
    "model",
    "original",
    "defence",
    "attack",
    "implementation",
    "library",
    *THREAT,
    "pixels",
    "target",
    "parameters",
    "seed",
)


def name_rows(rows: Any, subjects: str, per: str) -> Any:
    """Of each row: the `subject`, the `image`, the `item`, the `attempt` at it, and the `group` of attempts."""
    # Texts are made once for each kind of row and each image: there are far fewer than rows.
    kind, first = row_kinds(rows, _RUN)
    place, shown = row_kinds(rows, ("data", "image"))
    images, labels = _join(shown, ("data", "image")).to_numpy(), _labels(first, subjects, per)
    columns = {name: _categories(kind, labels[name].to_numpy()) for name in ("subject", "group")}
    columns["image"] = _categories(place, images)
    for name, column in (("item", "other"), ("attempt", "attempt")):
        other, others = pd.factorize(labels[column])
        pair, pairs = pd.factorize(place * len(others) + other[kind])
        texts = [f"{images[one // len(others)]} x {others[one % len(others)]}" for one in pairs]
        columns[name] = _categories(pair, np.array(texts, dtype=object))
    return pd.DataFrame(columns, index=rows.index)


def _labels(rows: Any, subjects: str, per: str) -> Any:
    """Of each kind of row: the `subject`, the `other` side of an item, the `attempt` and its `group`."""
    finer = [name for name in ("pixels", "target") if name in rows and rows[name].nunique() > 1]
    if subjects in ("models", "defences"):
        base = ("original",) if subjects == "defences" else ()
        subject = rows["defence" if subjects == "defences" else "model"].map(str)
        attempt = _join(rows, (*base, "implementation", *THREAT, *finer, "parameters", "seed"))
        other, group = attempt, rows["implementation"].map(str).str.cat(threat_texts(rows), sep=" ")
        if per == "attack":
            other = _join(rows, (*base, "attack", *THREAT, *finer))
            other = _with(other, _sweep(rows, other)).str.cat(_join(rows, ("seed",)), sep=" ")
    else:
        subject = _distinct_names(rows, subjects.removesuffix("s"))
        library = ("library",) if subjects == "attacks" and per == "implementation" else ()
        other = attempt = _join(rows, ("model", *library, "seed"))
        group = rows["model"].map(str)
    return pd.DataFrame({"subject": subject, "other": other, "attempt": attempt, "group": group})


def _categories(places: np.ndarray, texts: np.ndarray) -> pd.Categorical:
    """The text at each place; equal texts are one."""
    code, different = pd.factorize(texts)
    return pd.Categorical.from_codes(code[places], different)


def row_kinds(rows: Any, columns: Sequence[str]) -> tuple[np.ndarray, Any]:
    """The place of each row's kind, by those of the columns that there are, and the first row of each kind."""
    known = [column for column in columns if column in rows]
    kind = rows.groupby(known, sort=False, dropna=False, observed=True).ngroup().to_numpy()
    first = rows.iloc[np.unique(kind, return_index=True)[1]]
    # Texts may come as categories, which take little memory: these few rows are plain ones.
    plain = {
        name: first[name].astype(first[name].cat.categories.dtype) for name in first if _is_categories(first[name])
    }
    return kind, first.assign(**plain)


def _is_categories(column: Any) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def _distinct_names(rows: Any, column: str) -> Any:
    """Names of the column, with as much of threat model and parameters as tells runs apart; threat models with all."""
    name, threat = _join(rows, (column,)), threat_texts(rows)
    if threat.nunique() > 1:  # a name without would be taken for one at the radius of its neighbour
        name = name + " " + threat
    return _with(name, _sweep(rows, name))


def _sweep(rows: Any, name: Any) -> Any:
    """What tells apart the settings that one implementation ran under a name, as "steps=10"; else nothing.

    Within one implementation only: libraries take different parameters for the same attack.
    """
    if "parameters" not in rows:
        return pd.Series("", index=rows.index)
    runs: Any = pd.DataFrame({"name": name, "implementation": rows["implementation"], "parameters": rows["parameters"]})
    texts = {}
    for label, settings in runs.drop_duplicates().groupby("name", sort=False):
        each = {text: _read(text) for text in settings["parameters"].unique()}
        varied = set()
        for _, several in settings.groupby("implementation", sort=False)["parameters"]:
            known = [each[text] for text in several]
            varied |= {key for one in known for key in one if len({str(other.get(key)) for other in known}) > 1}
        for text, values in each.items():
            texts[label, text] = ", ".join(
                f"{key}={value}" if key else str(value) for key, value in values.items() if key in varied
            )
    return pd.Series(
        [texts[pair] for pair in zip(name, rows["parameters"], strict=True)], index=rows.index, dtype=object
    )


def _read(parameters: Any) -> dict[str, Any]:
    """Parameters by name; a text that is no JSON object stands for itself."""
    try:
        values = json.loads(parameters)
    except (TypeError, ValueError):
        values = None
    return values if isinstance(values, dict) else {"": parameters}


def _with(name: Any, detail: Any) -> Any:
    return name.where(detail == "", name + " " + detail)


def threat_texts(rows: Any) -> Any:
    """Norm, radius and goal as one text for each row: "linf 0.03137", "l2", "linf 0.03137 targeted"."""
    spellings = {
        "norm": str,
        "epsilon": lambda radius: "" if pd.isna(radius) else f" {radius:.4g}",
        "targeted": lambda targeted: " targeted" if targeted else "",
    }
    texts = [rows[column].map(spell) for column, spell in spellings.items() if column in rows]
    return texts[0].str.cat(texts[1:]) if texts else pd.Series("", index=rows.index)


def _join(rows: Any, columns: Sequence[str]) -> Any:
    """Those of the columns that there are, as one text for each row."""
    texts = [rows[column].map(str) for column in columns if column in rows]
    return texts[0].str.cat(texts[1:], sep=" ") if texts else pd.Series("", index=rows.index)
