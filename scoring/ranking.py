"""Rank subjects by their responses, with the uncertainty of every rank."""

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from .baselines import agreement, bootstrap, borda, plain_mean
from .dependence import design_effect
from .diagnostics import Diagnostics
from .irt import IRTFit, Method, check_responses, choose_model, fit_irt
from .responses import Responses, check_several, complete_items

Scoring = Literal["irt", "mean", "borda"]
LEVEL = 0.95
NOTICED = 1.1  # design effect from which a note says so


@dataclass(frozen=True, repr=False)
class Ranking:
    """Subjects with their scores and ranks, in the order in which they were given. Rank 1 is the best.

    Attributes:
        method: how the scores came about.
        subjects: names, length N.
        score: of each subject; higher is better, shape (N,).
        low: lower end of the 95 % interval of the score, shape (N,).
        high: upper end, shape (N,).
        rank: by score, shape (N,); equal scores share the better rank.
        rank_low: best rank in the 95 % interval, shape (N,).
        rank_high: worst rank in it, shape (N,).
        rank_probability: P(rank of i is r + 1), shape (N, N).
        beats: P(i ranks above j), a tie counting half, shape (N, N).
        groups: letters of each subject; two that share a letter do not differ significantly at 95 %.
        mean: plain mean response, shape (N,).
        agreement: Kendall's tau with other rankings, by name.
        bootstrap_low: best rank in the 95 % interval of the plain mean when images are resampled, shape (N,).
        bootstrap_high: worst rank in it, shape (N,).
        notes: what a reader should know first; a fit that failed comes before all else.
        diagnostics: of the fit; None without one.
        fit: of the item response model; None without one.
    """

    method: str
    subjects: tuple[str, ...]
    score: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rank: np.ndarray
    rank_low: np.ndarray
    rank_high: np.ndarray
    rank_probability: np.ndarray
    beats: np.ndarray
    groups: tuple[str, ...]
    mean: np.ndarray
    agreement: dict[str, float]
    bootstrap_low: np.ndarray
    bootstrap_high: np.ndarray
    notes: tuple[str, ...] = ()
    diagnostics: Diagnostics | None = None
    fit: IRTFit | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        frame = self.to_frame()
        shown = frame[["rank", "subject", "score", "low", "high", "group"]].head(10)
        more = f"\n... {len(frame) - 10} more" if len(frame) > 10 else ""
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"Ranking: {self.method}\n{shown.to_string(index=False, float_format='%.3g')}{more}{notes}"

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<p>{html.escape(self.method)}</p>{self.to_frame().to_html(index=False)}<ul>{notes}</ul>"

    def to_frame(self) -> pd.DataFrame:
        """One row for each subject, the best first."""
        names = ("score", "low", "high", "rank", "rank_low", "rank_high")
        columns: dict[str, Any] = {"subject": self.subjects, **{name: getattr(self, name) for name in names}}
        columns |= {"first": self.rank_probability[:, 0], "group": self.groups, "mean": self.mean}
        columns |= {"bootstrap_low": self.bootstrap_low, "bootstrap_high": self.bootstrap_high}
        return pd.DataFrame(columns).sort_values("rank", kind="stable").reset_index(drop=True)

    def to_dict(self) -> dict[str, Any]:
        """All of it but the draws, in types that JSON has; NaN is None."""
        rows = [dict(zip(self.to_frame().columns, row, strict=True)) for row in self.to_frame().itertuples(index=False)]
        result = {
            "method": self.method,
            "notes": list(self.notes),
            "rows": rows,
            "subjects": list(self.subjects),
            "rank_probability": self.rank_probability.tolist(),
            "beats": self.beats.tolist(),
            "agreement": self.agreement,
            "diagnostics": asdict(self.diagnostics) if self.diagnostics else None,
        }
        return _plain(result)


def rank_responses(
    responses: np.ndarray,
    subjects: Sequence[str],
    clusters: Sequence[str] | None = None,
    *,
    scoring: Scoring = "irt",
    model: str = "auto",
    method: Method = "auto",
    seed: int = 0,
) -> Ranking:
    """Rank subjects by their responses to items.

    Args:
        responses: shape (N, M), in [0, 1], 1 for the subject; NaN is missing.
        subjects: names, length N.
        clusters: the image of each item, length M, whose responses may hang together; None: every item is a cluster.
        scoring: "irt" by ability; "mean" by the plain mean and "borda" by the Borda count, both with intervals by
            bootstrap.
        model: "1pl", "2pl", "3pl"; "auto" is 1PL below 10 subjects, else 2PL.
        method: of the fit: "fast", "nuts" or "auto".
        seed: the same seed gives the same ranking.

    Returns:
        The ranking. Where images have several items the draws of the abilities are stretched about their means by the
        root of the `design_effect`: `low`, `high`, ranks, `beats` and `groups` allow for responses that hang together.

    Raises:
        ValueError: if the matrix cannot be ranked or the names do not fit it.
    """
    values = check_responses(responses)
    images = [str(item) for item in range(values.shape[1])] if clusters is None else list(clusters)
    if len(subjects) != len(values) or len(images) != values.shape[1] or len(set(subjects)) < len(values):
        sizes = f"{len(set(subjects))} and {len(images)}"
        raise ValueError(f"expected {len(values)} different subjects and {values.shape[1]} clusters, got {sizes}")
    if scoring not in ("irt", "mean", "borda"):
        raise ValueError(f"expected scoring irt, mean or borda, got {scoring!r}")
    resampled = bootstrap(plain_mean, values, images, seed=seed)
    if scoring != "irt":
        rule = plain_mean if scoring == "mean" else borda
        draws = resampled if scoring == "mean" else bootstrap(rule, values, images, seed=seed)
        return make_ranking(scoring, subjects, rule(values), draws, values, resampled)
    fit = fit_irt(values, choose_model(values, model), method=method, seed=seed)
    draws, effect = fit.ability.reshape(-1, len(values)), design_effect(fit, values, images)
    draws = stretch(draws, effect)
    name = f"{fit.model.name}, {fit.model.response} responses"
    ranking = make_ranking(name, subjects, fit.expected, draws, values, resampled, fit)
    if effect < NOTICED:
        return ranking
    return replace(ranking, notes=(*ranking.notes, stretch_note(effect)))


def stretch(draws: np.ndarray, effect: float) -> np.ndarray:
    """Draws, shape (D, N), that lie as much farther from their means as a design effect asks for."""
    return draws.mean(0) + np.sqrt(effect) * (draws - draws.mean(0))


def stretch_note(effect: float) -> str:
    """What a design effect has done to the intervals."""
    note = f"responses to one image hang together: intervals and ranks are {np.sqrt(effect):.2g} times as wide as the "
    return f"{note}model's (design effect {effect:.2g}, images as clusters)"


def rank_matrix(
    responses: Responses, *, scoring: Scoring = "irt", model: str = "auto", method: Method = "auto", seed: int = 0
) -> Ranking:
    """Rank what `build_responses` made; means and Borda counts are over the items that every subject answered.

    Args:
        responses: of any subjects.
        scoring: see `rank_responses`.
        model: see there.
        method: see there.
        seed: see there.

    Returns:
        The ranking; its notes end with those of the responses.

    Raises:
        ValueError: if there is one subject only, or the matrix cannot be ranked.
    """
    check_several(responses)
    if scoring != "irt":
        responses = complete_items(responses)
    ranking = rank_responses(
        responses.values, responses.subjects, responses.images, scoring=scoring, model=model, method=method, seed=seed
    )
    return replace(ranking, notes=(*ranking.notes, *responses.notes))


def make_ranking(
    name: str,
    subjects: Sequence[str],
    score: np.ndarray,
    draws: np.ndarray,
    responses: np.ndarray,
    resampled: np.ndarray,
    fit: IRTFit | None = None,
) -> Ranking:
    """Sum up draws of the scores.

    Args:
        name: of the method.
        subjects: length N.
        score: point estimates, shape (N,).
        draws: of the scores, shape (D, N).
        responses: that were scored, shape (N, M).
        resampled: plain means of resampled images, shape (replicates, N).
        fit: of the item response model.

    Returns:
        The ranking.
    """
    ranks, low, high = _rank_interval(draws)
    _, bootstrap_low, bootstrap_high = _rank_interval(resampled)
    tail = (1 - LEVEL) / 2
    mean = plain_mean(responses)
    taus = agreement(score, {"mean": mean, "borda": borda(responses)})
    beats = np.stack([((one[:, None] > draws) + 0.5 * (one[:, None] == draws)).mean(0) for one in draws.T])
    problem = fit.diagnostics.problem if fit else None
    notes = [problem] if problem else []
    reversed_pairs = np.sign(score[:, None] - score) * np.sign(mean[:, None] - mean) < 0
    if fit and not reversed_pairs.any():
        notes.append("the model changes nothing: no two subjects stand the other way round by plain mean")
    return Ranking(
        name,
        tuple(subjects),
        score,
        *np.nanquantile(draws, (tail, 1 - tail), axis=0),
        rank=_ranks(score[None])[0].astype(int),
        rank_low=low,
        rank_high=high,
        rank_probability=np.stack([(ranks == place).mean(0) for place in range(1, len(score) + 1)], 1),
        beats=beats,
        groups=tie_groups(score, beats),
        mean=mean,
        agreement=taus,
        bootstrap_low=bootstrap_low,
        bootstrap_high=bootstrap_high,
        notes=tuple(notes),
        diagnostics=fit.diagnostics if fit else None,
        fit=fit,
    )


def tie_groups(score: np.ndarray, beats: np.ndarray) -> tuple[str, ...]:
    """Letters: two subjects share one exactly when all from one to the other, by score, do not differ significantly.

    Args:
        score: shape (N,).
        beats: P(i ranks above j), shape (N, N).

    Returns:
        Letters of each subject, those of the best group first.
    """
    order = np.argsort(-score, kind="stable")
    apart = np.maximum(beats, beats.T)[np.ix_(order, order)] > (1 + LEVEL) / 2
    groups: list[range] = []
    for start in range(len(order)):
        stop = start + 1
        while stop < len(order) and not apart[start : stop + 1, start : stop + 1].any():
            stop += 1
        if not groups or stop > groups[-1].stop:
            groups.append(range(start, stop))
    letters = [""] * len(order)
    for place, group in enumerate(groups):
        for member in group:
            letters[order[member]] += chr(ord("a") + place) if place < 26 else f"({place + 1})"
    return tuple(letters)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks along the last axis, 1 for the highest; equal scores share the better rank."""
    return 1 + np.stack([(scores > one[:, None]).sum(1) for one in scores.T], 1)


def _rank_interval(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ranks of the draws and the smallest and largest rank of each subject's 95 % interval."""
    ranks = _ranks(draws)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(ranks, (tail, 1 - tail), axis=0, method="inverted_cdf")
    return ranks, low.astype(int), high.astype(int)


def _plain(value: Any) -> Any:
    """The same value in types that JSON has."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value
