"""The items themselves: which are hard, which tell subjects apart, which treat groups of subjects differently."""

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

FALSE = 0.05  # share of false discoveries among the images that are named


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


def _short_radius(match: re.Match[str]) -> str:
    """A radius in four digits, or as a multiple of 1/255."""
    levels = float(match[0]) * 255
    return f"{levels:.4g}/255" if abs(levels - round(levels, 2)) < 1e-6 else f"{float(match[0]):.4g}"


def item_kinds(responses: Responses) -> tuple[str, ...]:
    """What each item is beside its image: the attack and its threat model, or the model that was attacked.

    Args:
        responses: of any subjects.

    Returns:
        Texts, length M, without the last words that all of them share; radii in four digits if these differ.
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
    """The library of each implementation, as "foolbox" of "foolbox:pgd linf 0.03" and of "best(foolbox:pgd)".

    Args:
        implementations: names as subjects have them.
    """
    several = ("best(", "worst-case(")
    searches = [name.startswith(several) and "," in name for name in implementations]  # by several: davylamp's
    inner = [name.removeprefix("best(").removeprefix("at-saturation(") for name in implementations]
    libraries = [name.partition(":")[0] for name in inner]
    return ["davylamp" if is_search else name for is_search, name in zip(searches, libraries, strict=True)]


def informative_items(fit: IRTFit, responses: np.ndarray, clusters: Sequence[str]) -> pd.DataFrame:
    """Which images, or which attacks, tell the subjects apart: those with the most information about their abilities.

    Fisher's information of a response about the ability of a subject, a^2 p (1 - p), where p is without guessing, times
    (1 - c) p / (c + (1 - c) p) where there is (Birnbaum 1968); averaged over the subjects who answered and over the
    joint draws of abilities and items. An item on which no two subjects differ has little, but not nothing, as
    another subject might; of what tells these subjects apart it has no share.

    Args:
        fit: of the responses, with outcomes and a curve that has difficulties.
        responses: shape (N, M); NaN is missing.
        clusters: what items are put together by, length M: their images, or their kinds.

    Returns:
        Columns item, information (mean of a response), share (of the information of all items on which two subjects
        differ; 0 without any), differ (share of the items on which two subjects differ), mean (response), responses;
        the largest share first, and of equal ones that with the most information.

    Raises:
        ValueError: for a continuous response or a curve whose items have intercepts.
    """
    if fit.model.curve == "intercept" or fit.model.response != "bernoulli":
        raise ValueError(f"expected outcomes and difficulties, got {fit.model.response}, {fit.model.curve}")
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
    """Information of each response about its subject, averaged over joint draws, shape (N, M)."""
    sites = fit.items
    draws = range(0, len(sites["difficulty"]), max(1, len(sites["difficulty"]) // 100))
    total = np.zeros((sites["ability"].shape[1], sites["difficulty"].shape[1]))
    for draw in draws:
        log_slope = sites["log_discrimination"][draw] if "log_discrimination" in sites else np.zeros(total.shape[1])
        slope = np.exp(log_slope) * (OGIVE if fit.model.curve == "paper" else 1.0)
        right = 1 / (1 + np.exp(-slope * (sites["ability"][draw][:, None] - sites["difficulty"][draw])))
        # A fit has the geometric mean of the slopes at 1.
        known = (slope / np.exp(log_slope.mean())) ** 2 * right * (1 - right)
        if "guessing" in sites:
            guessing = sites["guessing"][draw]
            known *= (1 - guessing) * right / (guessing + (1 - guessing) * right)
        total += known
    return total / len(draws)


def differential_items(
    fit: IRTFit, responses: np.ndarray, focal: Sequence[bool], clusters: Sequence[str]
) -> pd.DataFrame:
    """Images that one group of subjects answers unlike the others at equal ability: uniform differential functioning.

    A logistic regression on ability and group (Swaminathan and Rogers 1990) with the fitted ability and item. The group
    is tested by the number of its right responses, added up over the items of an image, whose distribution given how
    many got each item right is free of the difficulty (Rasch 1960) and exact, as Fisher's test: an image has few
    responses. The p-values are adjusted for the number of images (Benjamini and Hochberg 1995).

    Args:
        fit: of the responses, with a Bernoulli response.
        responses: outcomes 0 and 1, shape (N, M); NaN is missing.
        focal: the group of each subject, length N; both must occur.
        clusters: the image of each item, length M.

    Returns:
        Columns item, effect (log odds by which the focal group is above its ability on this image, one Newton step of
        the score that is orthogonal to the item's difficulty), z, p, p_adjusted, responses; smallest p first. NaN where
        only one group answered.

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
    table["p"] = _exact(fit, responses, group > 0, list(clusters), list(table.index))
    table["p"] = table["p"].where(table["effect"].notna())
    columns = ["effect", "z", "p", "p_adjusted", "responses"]
    return _adjusted(table)[columns].sort_values("p", kind="stable").reset_index()


def _adjusted(table: Any) -> Any:
    """The table with p-values for all of its tests together (Benjamini and Hochberg); NaN where there is no test."""
    known = table["p"].notna()
    return table.assign(p_adjusted=pd.Series(false_discovery_control(table.loc[known, "p"]), table.index[known]))


def _exact(
    fit: IRTFit, responses: np.ndarray, focal: np.ndarray, clusters: Sequence[str], names: Sequence[str]
) -> list[float]:
    """Two-sided p-value of each image: how likely a number of right responses of the group no likelier than this is."""
    seen = ~np.isnan(responses)
    right = np.where(seen, responses, 0.0)
    # The difficulty cancels; with it no weight is far from 1.
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
    """Elementary symmetric functions of the odds at each item, (M, subjects + 1): weights of 0, 1, ... right ones."""
    weights = np.zeros((odds.shape[1], len(odds) + 1))
    weights[:, 0] = 1
    for one in odds:
        weights[:, 1:] += one[:, None] * weights[:, :-1].copy()
    return weights


def differential_groups(
    fit: IRTFit, responses: np.ndarray, groups: Sequence[str], clusters: Sequence[str]
) -> pd.DataFrame:
    """`differential_items` of each group against all others; p-values are adjusted for images and groups together.

    Args:
        fit: of the responses, with a Bernoulli response.
        responses: outcomes 0 and 1, shape (N, M); NaN is missing.
        groups: the group of each subject, as its library, length N; at least two.
        clusters: the image of each item, length M.

    Returns:
        The columns of `differential_items`, and group; smallest p first.

    Raises:
        ValueError: if there is one group only or the fit is of another response.
    """
    names = list(dict.fromkeys(groups))
    tables = [
        differential_items(fit, responses, [group == name for group in groups], clusters).assign(group=name)
        for name in names
    ]
    return _adjusted(pd.concat(tables, ignore_index=True)).sort_values("p", kind="stable").reset_index(drop=True)


def describe_differences(table: pd.DataFrame, what: str = "images") -> list[str]:
    """A table of `differential_groups` in words, no stronger than its tests.

    Args:
        table: of it.
        what: the items are.

    Returns:
        A sentence for each group that differs somewhere, else one that says that no difference was found.
    """
    tested: Any = table[table["p"].notna()]
    images, groups = tested["item"].nunique(), list(dict.fromkeys(table["group"]))
    if not images:
        return [f"Nothing is known of differences at equal ability: no {what} with outcomes of two groups."]
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
        f"{rule}. That is no proof that there is none."
    ]
