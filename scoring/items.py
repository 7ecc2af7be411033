"""Analysis of items: difficulty, information about subjects, and differences between groups of subjects."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

from .irt import IRTFit
from .response_model import OGIVE
from .responses import Responses
from .result_rows import abbreviate_list

FALSE = 0.05  # false discovery rate among the named images


def describe_items(fit: IRTFit, responses: np.ndarray, clusters: Sequence[str]) -> pd.DataFrame:
    """Return a table with difficulty and discrimination of each image, the hardest image first.

    Args:
        fit: fitted model of the responses.
        responses: shape (N, M). NaN is missing.
        clusters: image of each item, length M. The items of an image are averaged.

    Returns:
        A table with the following columns.

        - `item`: name of the image.
        - `difficulty`: mean difficulty of the image's items.
        - `difficulty_deviation`: standard deviation of `difficulty`, for independent items.
        - `discrimination`: geometric mean of the discriminations.
        - `mean`: mean response.
        - `responses`: number of responses.

    Raises:
        ValueError: If the curve of the fit is "intercept", which has no difficulties.
    """
    if fit.model.curve == "intercept":
        raise ValueError("items have no difficulties in a fit with curve='intercept'; use curve='difficulty'")
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


def _short_radius(match: re.Match[str]) -> str:
    """Format a radius with four digits, or as a multiple of 1/255."""
    levels = float(match[0]) * 255
    return f"{levels:.4g}/255" if abs(levels - round(levels, 2)) < 1e-6 else f"{float(match[0]):.4g}"


def item_kinds(responses: Responses) -> tuple[str, ...]:
    """Return the kind of each item, length M: the attack and its threat model, or the attacked model.

    The kind is the name of the item without the image, and without words at the end that all items share. Radii are
    shortened to four digits, unless different radii would become equal.
    """
    pairs = zip(responses.items, responses.images, strict=True)
    texts = [item.removeprefix(f"{image} x ").replace(" nan", "") for item, image in pairs]
    rounded = {text: re.sub(r"\b\d+\.\d{5,}\b", _short_radius, text) for text in set(texts)}
    if len(set(rounded.values())) == len(rounded):
        texts = [rounded[text] for text in texts]
    words = {text: text.split(" ") for text in dict.fromkeys(texts)}
    common = 0
    while all(len(each) > common + 1 for each in words.values()) and (
        len({each[-1 - common] for each in words.values()}) == 1
    ):
        common += 1
    short = {text: " ".join(each[: len(each) - common]) for text, each in words.items()}
    return tuple(short[text] for text in texts)


def libraries_of(implementations: Sequence[str]) -> list[str]:
    """Return the library of each implementation.

    For example, the library of "foolbox:pgd linf 0.03" and of "best(foolbox:pgd)" is "foolbox". Searches with several
    attacks belong to "davylamp".

    Args:
        implementations: names of implementations, as in `Responses.subjects`.
    """
    several = ("best(", "worst-case(")
    searches = [name.startswith(several) and "," in name for name in implementations]  # several attacks: davylamp's
    inner = [name.removeprefix("best(").removeprefix("at-saturation(") for name in implementations]
    libraries = [name.partition(":")[0] for name in inner]
    return ["davylamp" if is_search else name for is_search, name in zip(searches, libraries, strict=True)]


def informative_items(fit: IRTFit, responses: np.ndarray, clusters: Sequence[str]) -> pd.DataFrame:
    """Return a table of how much each image, or each attack, contributes to separating the subjects.

    The measure is the Fisher information of a response about the subject's ability, a^2 p (1 - p), where p excludes
    guessing. With guessing, the information is multiplied by (1 - c) p / (c + (1 - c) p) (Birnbaum 1968). The
    information is averaged over the subjects with a response, and over joint posterior draws of abilities and items. An
    item on which no two of these subjects differ still has information, because other subjects might differ on the
    item. Such items do not count in the columns `share` and `differ`.

    Args:
        fit: fitted model of binary responses, with a curve that has difficulties.
        responses: shape (N, M). NaN is missing.
        clusters: group of each item, length M: the image, or the kind from `item_kinds`.

    Returns:
        A table, sorted by `share` and then by `information`, with the following columns.

        - `item`: name of the group.
        - `information`: mean information per response.
        - `share`: proportion of the total information, counted over the items on which two subjects differ. 0 if there
          is no such item.
        - `differ`: proportion of the group's items on which two subjects differ.
        - `mean`: mean response.
        - `responses`: number of responses.

    Raises:
        ValueError: If responses are continuous, or if the curve of the fit is "intercept", which has no difficulties.
    """
    if fit.model.curve == "intercept" or fit.model.response != "bernoulli":
        raise ValueError(
            f"expected a fit with response='bernoulli' and a curve other than 'intercept', got response="
            f"{fit.model.response!r} and curve={fit.model.curve!r}"
        )
    seen = ~np.isnan(responses)
    information = np.where(seen, _information(fit), 0.0)
    differ = np.where(seen, responses, 0).max(0) > np.where(seen, responses, 1).min(0)
    frame = pd.DataFrame(
        {
            "item": list(clusters),
            "information": information.sum(0),
            "share": np.where(differ, information.sum(0), 0.0),
            "differ": differ.astype(float),
            "total": np.where(seen, responses, 0.0).sum(0),
            "responses": seen.sum(0),
        }
    )
    groups: Any = frame.groupby("item", sort=False)
    table = groups.sum()
    table["differ"] /= groups.size()
    table["share"] /= table["share"].sum() or 1.0
    table["mean"] = table["total"] / table["responses"]
    table["information"] /= table["responses"]
    columns = ["information", "share", "differ", "mean", "responses"]
    return table.sort_values(["share", "information"], ascending=False, kind="stable")[columns].reset_index()


def _information(fit: IRTFit) -> np.ndarray:
    """Return the information of each response about the subject's ability, averaged over joint draws, shape (N, M)."""
    sites = fit.items
    draws = range(0, len(sites["difficulty"]), max(1, len(sites["difficulty"]) // 100))
    total = np.zeros((sites["ability"].shape[1], sites["difficulty"].shape[1]))
    for draw in draws:
        log_slope = sites["log_discrimination"][draw] if "log_discrimination" in sites else np.zeros(total.shape[1])
        slope = np.exp(log_slope) * (OGIVE if fit.model.curve == "paper" else 1.0)
        right = 1 / (1 + np.exp(-slope * (sites["ability"][draw][:, None] - sites["difficulty"][draw])))
        # A fit standardises the geometric mean of the slopes to 1.
        known = (slope / np.exp(log_slope.mean())) ** 2 * right * (1 - right)
        if "guessing" in sites:
            guessing = sites["guessing"][draw]
            known *= (1 - guessing) * right / (guessing + (1 - guessing) * right)
        total += known
    return total / len(draws)


def differential_items(
    fit: IRTFit, responses: np.ndarray, focal: Sequence[bool], clusters: Sequence[str]
) -> pd.DataFrame:
    """Test for each image whether one group of subjects responds differently from the other at equal ability.

    This is uniform differential item functioning. The test statistic is the focal group's number of positive responses,
    summed over the items of an image. Given the total of each item, the distribution of this statistic does not depend
    on the difficulty (Rasch 1960). The distribution is computed exactly, as in Fisher's test, because an image has few
    responses. The effect is the coefficient of the group in a logistic regression on ability and group (Swaminathan and
    Rogers 1990), with fitted abilities and items. The p-values are adjusted for the number of images (Benjamini and
    Hochberg 1995).

    Args:
        fit: fitted model with a Bernoulli response.
        responses: 0 and 1, shape (N, M). NaN is missing.
        focal: True for the subjects of the focal group, length N. At least one subject must be False.
        clusters: image of each item, length M.

    Returns:
        A table, the smallest `p` first, with the following columns.

        - `item`: name of the image.
        - `effect`: log odds of a positive response of the focal group relative to the other group, at equal ability.
          The estimate is one Newton step, with the score orthogonal to the difficulty of the item.
        - `z`: effect in standard errors.
        - `p`: exact two-sided p-value.
        - `p_adjusted`: p-value adjusted for the number of images.
        - `responses`: number of responses.

        Effects and p-values are NaN for an image that has responses of only one group.

    Raises:
        ValueError: If there is only one group, or if the fit does not have a Bernoulli response.
    """
    group = np.asarray(focal, dtype=float)
    if fit.model.response != "bernoulli":
        raise ValueError(f"expected a fit with response='bernoulli', got response={fit.model.response!r}")
    if not 0 < group.sum() < len(group):
        got = f"{group.sum():g} of {len(group)} subjects in the group"
        raise ValueError(f"expected subjects inside and outside the focal group, got {got}")
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
    table["p"] = _exact(fit, responses, group > 0, list(clusters), list(table.index))
    table["p"] = table["p"].where(table["effect"].notna())
    columns = ["effect", "z", "p", "p_adjusted", "responses"]
    return _adjusted(table)[columns].sort_values("p", kind="stable").reset_index()


def _adjusted(table: Any) -> Any:
    """Return the table with a column `p_adjusted`: `p` adjusted for all tests of the table (Benjamini and Hochberg)."""
    known = table["p"].notna()
    return table.assign(p_adjusted=pd.Series(false_discovery_control(table.loc[known, "p"]), table.index[known]))


def _exact(
    fit: IRTFit, responses: np.ndarray, focal: np.ndarray, clusters: Sequence[str], names: Sequence[str]
) -> list[float]:
    """Return the exact two-sided p-value of each image.

    The statistic is the focal group's number of positive responses (see `differential_items`).
    """
    seen = ~np.isnan(responses)
    right = np.where(seen, responses, 0.0)
    # The difficulty cancels; it keeps all weights near 1.
    odds = np.exp(np.clip(fit.discrimination * (fit.expected[:, None] - fit.difficulty), -30, 30)) * seen
    ours, others = _symmetric(odds[focal]), _symmetric(odds[~focal])
    total, count = right.sum(0).astype(int), right[focal].sum(0).astype(int)
    members: dict[str, list[int]] = {}
    for place, name in enumerate(clusters):
        members.setdefault(name, []).append(place)
    chances = []
    for name in names:
        sums = np.ones(1)
        for item in members[name]:
            numbers = np.arange(ours.shape[1])
            rest = total[item] - numbers
            possible = (rest >= 0) & (rest < others.shape[1])
            each = np.where(possible, ours[item] * others[item, np.clip(rest, 0, others.shape[1] - 1)], 0.0)
            sums = np.convolve(sums, each / each.sum())
        here = sums[count[members[name]].sum()]
        chances.append(float(min(1.0, sums[sums <= here * (1 + 1e-9)].sum())))
    return chances


def _symmetric(odds: np.ndarray) -> np.ndarray:
    """Return the elementary symmetric functions of the odds for each item, shape (M, subjects + 1)."""
    weights = np.zeros((odds.shape[1], len(odds) + 1))
    weights[:, 0] = 1
    for one in odds:
        weights[:, 1:] += one[:, None] * weights[:, :-1].copy()
    return weights


def differential_groups(
    fit: IRTFit, responses: np.ndarray, groups: Sequence[str], clusters: Sequence[str]
) -> pd.DataFrame:
    """Test each group of subjects against all other subjects with `differential_items`.

    Args:
        fit: fitted model with a Bernoulli response.
        responses: 0 and 1, shape (N, M). NaN is missing.
        groups: group of each subject, such as its library, length N. At least two groups must occur.
        clusters: image of each item, length M.

    Returns:
        The columns of `differential_items` and a column `group`, the smallest `p` first. `p_adjusted` is adjusted for
        the number of images and groups.

    Raises:
        ValueError: If there is only one group, or if the fit does not have a Bernoulli response.
    """
    names = list(dict.fromkeys(groups))
    tables = [
        differential_items(fit, responses, [group == name for group in groups], clusters).assign(group=name)
        for name in names
    ]
    return _adjusted(pd.concat(tables, ignore_index=True)).sort_values("p", kind="stable").reset_index(drop=True)


def describe_differences(table: pd.DataFrame, what: str = "images") -> list[str]:
    """Describe the result of `differential_groups` in sentences.

    Args:
        table: result of `differential_groups`.
        what: plural noun for the items, used in the sentences.

    Returns:
        A sentence for each group that differs. If no group differs, one sentence states this.
    """
    tested: Any = table[table["p"].notna()]
    images, groups = tested["item"].nunique(), list(dict.fromkeys(table["group"]))
    if not images:
        return [f"Differences at equal ability are unknown, because no {what} have responses of two groups."]
    rule = f"exact conditional tests, {FALSE:.0%} false discoveries over {len(tested)} tests (Benjamini-Hochberg)"
    sentences = []
    for group in sorted(groups):
        of_group = tested[(tested["group"] == group) & (tested["p_adjusted"] < FALSE)]
        parts = []
        for word, odd in (("worse", of_group[of_group["effect"] < 0]), ("better", of_group[of_group["effect"] > 0])):
            if len(odd):
                parts.append(f"{word} than expected on {len(odd)} ({abbreviate_list(list(odd['item']))})")
        if parts:
            sentences.append(f"At equal ability {group} is {' and '.join(parts)} of {images} {what}.")
    if sentences:
        return [*sentences, f"By {rule}."]
    return [
        f"No difference at equal ability was found between {', '.join(sorted(groups))} on any of {images} {what}: "
        f"{rule}. This does not show that there is none."
    ]
