"""Responses of defended models to examples of their original that they were shown, row by row as `load` has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from ...errors import InvalidInput
from ..defended import named_originals
from .detected import DETECTED
from .frames import load_clean, load_transfer

_PLACE = ["cell", "index"]


def results_on_original(folder: str | Path, results: pd.DataFrame, originals: Mapping[str, str]) -> pd.DataFrame:
    """The rows of originals, and for each example of theirs a row of each defended model that was shown it.

    An image that the original gets wrong has no example: it is left out for all. A defended model is fooled if it is
    right on the clean image, and wrong on the example or without finite logits there. Of a random one
    `draws_fooled` is the share of its draws that are wrong on the example; NaN where its record, of an earlier version,
    has none, and of other models.

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
    shown = shown[shown["tested_on"].map(dict(originals)) == shown["made_on"]]
    if "adv_probability" in shown:  # records of 0.1.0: NaN where a model gave no answer
        shown = shown.assign(adv_predicted=shown["adv_predicted"].where(shown["adv_probability"].notna()))
    if DETECTED in shown:  # by a model with a detector: as good as right
        is_detected = shown[DETECTED].fillna(False).astype(bool)
        shown = shown.assign(adv_predicted=shown["adv_predicted"].where(~is_detected, shown["label"]))
    shares = shown["draws_fooled"] if "draws_fooled" in shown else float("nan")
    shown = shown.assign(shown_share=shares)
    if shown["shown_share"].notna().any() and "draws_fooled" not in attacked:
        attacked = attacked.assign(draws_fooled=float("nan"))
    rows: Any = attacked.merge(shown[[*_PLACE, "tested_on", "adv_predicted", "shown_share"]], on=_PLACE)
    right = clean.drop_duplicates(["model", "data", "image"])
    right = right.assign(right=right["predicted"] == right["label"])[["model", "data", "image", "right"]]
    rows = rows.drop(columns="model").rename(columns={"tested_on": "model"}).merge(right, on=["model", "data", "image"])
    rows = rows.assign(attacked=rows["right"], success=rows["right"] & (rows["adv_predicted"] != rows["label"]))
    if "draws_fooled" in rows:
        rows = rows.assign(draws_fooled=rows["shown_share"])
    if "invalid_by_model" in rows:  # by the original: nothing was shown
        rows = rows.assign(invalid_by_model=False)
    if rows.empty:
        return results.iloc[:0].assign(made_on="original")
    both = pd.concat([attacked, rows[list(attacked.columns)]], ignore_index=True).assign(made_on="original")
    both.attrs.update(results.attrs)
    return both


def choose_examples(
    folder: str | Path,
    results: pd.DataFrame,
    original: str | None = None,
    examples: Literal["own", "original"] | None = None,
) -> tuple[pd.DataFrame, str]:
    """The rows of defended models on examples that were made in one way: those of each, or those of its original.

    Args:
        folder: a results folder.
        results: what `load` gives of it, or some of its rows.
        original: the model that all others are defences of; None: as their names say.
        examples: "own": made on each defended model. "original": made on the undefended one. None: own if there are
            any.

    Returns:
        The rows, and a note where there are some of the other kind, too; else "".

    Raises:
        InvalidInput: if there are none of this kind.
    """
    if examples not in (None, "own", "original"):
        raise InvalidInput(f"expected examples as own or original, got {examples!r}")
    names = [str(name) for name in load_clean(folder)["model"].unique()]
    known = named_originals(names) if original is None else {name: original for name in names if name != original}
    shown = results_on_original(folder, results, known)
    are_attacked = bool(results["model"].isin(set(known)).any())
    if examples == "original" and shown.empty:
        raise InvalidInput("expected examples of the original that defended models were shown (`evaluate --examples`)")
    if examples == "own" and not are_attacked:
        raise InvalidInput("expected examples made on defended models themselves, got none; rank --examples original")
    if examples == "original" or (examples is None and not are_attacked and not shown.empty):
        return shown, ""
    both = not shown.empty and examples is None
    return results, "--examples original ranks by what they were shown of the original" if both else ""


def check_made_alike(baseline: pd.DataFrame, new: pd.DataFrame) -> None:
    """Raise InvalidInput if the examples of two results were made in different ways."""
    ways = ["original" if "made_on" in each else "own" for each in (baseline, new)]
    if ways[0] != ways[1]:
        got = f"{ways[0]} in the baseline and {ways[1]} in the other"
        raise InvalidInput(f"expected examples made in one way, got {got}; say --examples own or original")
