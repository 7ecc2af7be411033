"""Responses of defended models to examples of their original that they were shown, row by row as `load` has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from .frames import load_clean, load_transfer

_PLACE = ["cell", "index"]


def results_on_original(folder: str | Path, results: pd.DataFrame, originals: Mapping[str, str]) -> pd.DataFrame:
    """The rows of originals, and for each example of theirs a row of each defended model that was shown it.

    An image that the original gets wrong has no example: it is left out for all. A defended model is fooled if it is
    right on the clean image and wrong on the example; where it gave no answer there is no row.

    Args:
        folder: a results folder, evaluated with `--examples original` or `both`.
        results: what `load` gives of it, or some of its rows.
        originals: the undefended model of each defended one, by name.

    Returns:
        The rows with the columns of `results`, and `made_on`, which is "original"; none where nothing was shown.
    """
    attacked: Any = results[results["attacked"].astype(bool) & results["model"].isin(set(originals.values()))]
    shown: Any = load_transfer(folder)
    clean = load_clean(folder)
    if shown.empty or clean.empty:
        return results.iloc[:0].assign(made_on="original")
    shown = shown[shown["tested_on"].map(dict(originals)) == shown["made_on"]].dropna(subset=["adv_predicted"])
    if "adv_probability" in shown:  # records of 0.1.0: NaN where a model gave no answer
        shown = shown[shown["adv_probability"].notna()]
    rows: Any = attacked.merge(shown[[*_PLACE, "tested_on", "adv_predicted"]], on=_PLACE)
    right = clean.drop_duplicates(["model", "data", "image"])
    right = right.assign(right=right["predicted"] == right["label"])[["model", "data", "image", "right"]]
    rows = rows.drop(columns="model").rename(columns={"tested_on": "model"}).merge(right, on=["model", "data", "image"])
    rows = rows.assign(attacked=rows["right"], success=rows["right"] & (rows["adv_predicted"] != rows["label"]))
    if rows.empty:
        return results.iloc[:0].assign(made_on="original")
    both = pd.concat([attacked, rows[list(results.columns)]], ignore_index=True).assign(made_on="original")
    both.attrs.update(results.attrs)
    return both
