"""The items themselves: which are hard, which tell subjects apart, which treat groups of subjects differently."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, norm

from .irt import IRTFit


def describe_items(fit: IRTFit, responses: np.ndarray, clusters: Sequence[str]) -> pd.DataFrame:
    """Difficulty and discrimination of each image, the hardest first.

    Args:
        fit: of the responses.
        responses: shape (N, M); NaN is missing.
        clusters: the image of each item, length M; the items of an image are averaged.

    Returns:
        Columns item, difficulty, difficulty_deviation (of the mean, items taken as independent), discrimination
        (geometric mean), mean (response), responses (their number).

    Raises:
        ValueError: for a curve whose items have intercepts.
    """
    if fit.model.curve == "intercept":
        raise ValueError("expected a curve with difficulties, got intercept")
    seen = ~np.isnan(responses)
    frame = pd.DataFrame(
        {
            "item": list(clusters),
            "difficulty": fit.difficulty,
            "variance": fit.difficulty_deviation**2,
            "discrimination": np.log(fit.discrimination),
            "total": np.where(seen, responses, 0.0).sum(0),
            "responses": seen.sum(0),
        }
    )
    groups: Any = frame.groupby("item", sort=False)
    table = groups[["difficulty", "discrimination"]].mean()
    table["discrimination"] = np.exp(table["discrimination"])
    sums = groups[["variance", "total", "responses"]].sum()
    table.insert(1, "difficulty_deviation", np.sqrt(sums["variance"]) / groups.size())
    table["mean"] = sums["total"] / sums["responses"]
    table["responses"] = sums["responses"]
    return table.sort_values("difficulty", ascending=False, kind="stable").reset_index()


def differential_items(
    fit: IRTFit, responses: np.ndarray, focal: Sequence[bool], clusters: Sequence[str]
) -> pd.DataFrame:
    """Images that one group of subjects answers unlike the others at equal ability: uniform differential functioning.

    A logistic regression on ability and group (Swaminathan and Rogers 1990) with the fitted ability and item; the
    group is tested by the score that is orthogonal to the item's difficulty (Rao 1948), added up over the items of an
    image, and the p-values are adjusted for the number of images (Benjamini and Hochberg 1995).

    Args:
        fit: of the responses, with a Bernoulli response.
        responses: outcomes 0 and 1, shape (N, M); NaN is missing.
        focal: the group of each subject, length N; both must occur.
        clusters: the image of each item, length M.

    Returns:
        Columns item, effect (log odds by which the focal group is above its ability on this image, one Newton step),
        z, p, p_adjusted, responses; smallest p first. NaN where only one group answered.

    Raises:
        ValueError: if there is one group only or the fit is of another response.
    """
    group = np.asarray(focal, dtype=float)
    if fit.model.response != "bernoulli" or not 0 < group.sum() < len(group):
        raise ValueError(f"expected outcomes of two groups, got {fit.model.response}, {group.sum():g} of {len(group)}")
    seen = ~np.isnan(responses)
    expected = 1 / (1 + np.exp(-fit.discrimination * (fit.expected[:, None] - fit.difficulty)))
    weight = expected * (1 - expected) * seen
    with np.errstate(invalid="ignore"):
        centred = group[:, None] - (weight * group[:, None]).sum(0) / weight.sum(0)
    score = (centred * np.where(seen, responses - expected, 0.0)).sum(0)
    frame = pd.DataFrame(
        {
            "item": list(clusters),
            "score": np.nan_to_num(score),
            "information": np.nan_to_num((weight * centred**2).sum(0)),
            "responses": seen.sum(0),
        }
    )
    table: Any = frame.groupby("item", sort=False).sum()
    information = table["information"].where(table["information"] > 1e-9)
    table["effect"], table["z"] = table["score"] / information, table["score"] / np.sqrt(information)
    table["p"] = 2 * norm.sf(table["z"].abs())
    known = table["p"].notna()
    table.loc[known, "p_adjusted"] = false_discovery_control(table.loc[known, "p"]) if known.any() else np.nan
    columns = ["effect", "z", "p", "p_adjusted", "responses"]
    return table[columns].sort_values("p", kind="stable").reset_index()
