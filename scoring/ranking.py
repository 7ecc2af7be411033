"""Ranks subjects by their responses to items, with intervals for scores and ranks."""

import base64
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from ..intervals import LEVEL, tail_probability
from .baselines import FEWEST, agreement, bootstrap, borda, borda_parts, expected_borda, mean_response
from .diagnostics import Diagnostics
from .irt import IRTFit, Method, check_names, check_responses, check_seed, choose_model, fit_irt
from .plots import draw_figure
from .responses import Responses, build_responses, check_rankable, complete_items
from .result_rows import Per, Subjects, Unequal
from .significance import design_effect, pair_deviations, paired_p_values, tell_apart, tie_groups

Scoring = Literal["irt", "mean", "borda"]
VARIATIONAL = (
    "fitted by variational inference (svi), an approximation: in simulations with 20 to 200 subjects, 91 to 98 % of "
    "the abilities were inside its 95 % intervals"
)
_DECIMALS = 7  # of an ability: what lies behind them differs between processors, and decides no rank
NOTICED = 1.1  # design effect from which a note is added


@dataclass(frozen=True, repr=False)
class Ranking:
    """Ranking of N subjects, with uncertainty. Rank 1 is the best. The arrays have the order of `subjects`.

    Attributes:
        method: scoring method.
        subjects: names, length N.
        score: score of each subject, shape (N,). Higher is better.
        low: lower bound of the score's 95 % interval, shape (N,). NaN without an interval.
        high: upper bound of the score's 95 % interval, shape (N,). NaN without an interval.
        rank: rank by score, shape (N,). Subjects with equal scores share the better rank.
        rank_low: best rank in the 95 % interval, shape (N,).
        rank_high: worst rank in the 95 % interval, shape (N,).
        rank_probability: probability that subject i has rank r + 1, in row i and column r, shape (N, N). Tied subjects
            share their ranks evenly.
        beats: probability that subject i ranks above subject j, with ties counting half, shape (N, N). For means and
            Borda counts, the rate over bootstrap replicates. If there are few images, this rate does not show
            significance.
        groups: group letters of each subject. Subjects that share a letter do not differ significantly at 95 %.
        apart: whether subjects i and j differ significantly at 95 %, corrected for all pairs (see `tell_apart`), shape
            (N, N), bool. Letters, brackets and projections are based on `apart`.
        deviations: number of standard deviations by which subject i exceeds subject j, shape (N, N). 0 if subject i is
            lower.
        critical: number of deviations above which two subjects differ significantly.
        mean: plain mean response, shape (N,).
        agreement: Kendall's tau between this ranking and the rankings by the plain mean ("mean") and the Borda count
            ("borda").
        bootstrap_low: best rank in the 95 % interval of the rank by plain mean, shape (N,). The interval comes from a
            bootstrap over images.
        bootstrap_high: worst rank in the interval of `bootstrap_low`, shape (N,).
        notes: warnings about the ranking. A warning about a failed fit comes first.
        diagnostics: convergence diagnostics of the fit. None if no model was fitted.
        fit: fitted item response model. None if no model was fitted.
        categories: scores of the subjects in each category of metrics, by category, shape (N,), in [0, 1]. `score`
            combines these scores (Theta1, Theta2 and so on in CANARY's paper). Empty except for CANARY's ranking.
        p_values: p-values of the sign-flip test over images, shape (N, N). None except for means and Borda counts.
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
    apart: np.ndarray
    deviations: np.ndarray
    critical: float
    mean: np.ndarray
    agreement: dict[str, float]
    bootstrap_low: np.ndarray
    bootstrap_high: np.ndarray
    notes: tuple[str, ...] = ()
    diagnostics: Diagnostics | None = None
    fit: IRTFit | None = field(default=None, repr=False)
    p_values: np.ndarray | None = field(default=None, repr=False)
    categories: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        frame = self.to_frame()
        shown = frame[["rank", "subject", "score", "low", "high", "group"]].head(10)
        shown = shown.rename(columns={"score": self.score_name})
        more = f"\n... {len(frame) - 10} more" if len(frame) > 10 else ""
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"Ranking: {self.method}\n{shown.to_string(index=False, float_format='%.3g')}{more}{notes}"

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        title, table = f"<p>{html.escape(self.method)}</p>", self.to_frame().to_html(index=False)
        try:
            file = io.BytesIO()
            self.plot().savefig(file, format="svg", transparent=False)
        except ImportError:
            return f"{title}{table}<ul>{notes}</ul>"
        source = base64.b64encode(file.getvalue()).decode()
        picture = (
            f'<img alt="Scores with 95 % intervals, listed in the table" src="data:image/svg+xml;base64,{source}">'
        )
        return f"{title}{picture}{table}<ul>{notes}</ul>"

    @property
    def score_name(self) -> str:
        """Column heading of the scores: "ability", "mean", "Borda count", or "score" for CANARY's ranking."""
        names = {"mean": "mean", "borda": "Borda count"}
        return names.get(self.method, "score" if self.method.startswith("CANARY") else "ability")

    @property
    def label(self) -> str:
        """Name of the scores with their unit, for axes and headings."""
        units = {
            "mean": "mean response",
            "Borda count": "Borda count (proportion of comparisons won)",
            "ability": "ability (logits)",
        }
        return units.get(self.score_name, self.score_name)

    def plot(self) -> Any:
        """Plot scores with 95 % intervals, and a bracket around each tie group.

        Returns:
            A Matplotlib figure. Notebooks show the figure, and `savefig` saves the figure to a file.

        Raises:
            ImportError: If Matplotlib is not installed.
        """
        return draw_figure(self, self.label)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each subject, the best first.

        Most columns are the attributes of the same name. `first` is the probability of rank 1, and `group` has the
        group letters.
        """
        names = ("score", "low", "high", "rank", "rank_low", "rank_high")
        columns: dict[str, Any] = {"subject": self.subjects, **{name: getattr(self, name) for name in names}}
        columns |= {"first": self.rank_probability[:, 0], "group": self.groups, "mean": self.mean}
        columns |= {"bootstrap_low": self.bootstrap_low, "bootstrap_high": self.bootstrap_high}
        return pd.DataFrame(columns).sort_values("rank", kind="stable").reset_index(drop=True)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the posterior draws as JSON types. NaN becomes None."""
        rows = [dict(zip(self.to_frame().columns, row, strict=True)) for row in self.to_frame().itertuples(index=False)]
        result = {
            "method": self.method,
            "score": self.label,
            "notes": list(self.notes),
            "rows": rows,
            "subjects": list(self.subjects),
            "rank_probability": self.rank_probability.tolist(),
            "beats": self.beats.tolist(),
            "apart": self.apart.tolist(),
            "agreement": self.agreement,
            "diagnostics": asdict(self.diagnostics) if self.diagnostics else None,
        }
        if self.categories:
            result["categories"] = {
                name: dict(zip(self.subjects, scores.tolist(), strict=True)) for name, scores in self.categories.items()
            }
        return _plain(result)


def rank_responses(  # noqa: PLR0913 - the nouns by position, the choices by keyword
    responses: np.ndarray,
    subjects: Sequence[str],
    clusters: Sequence[str] | None = None,
    *,
    scoring: Scoring = "irt",
    model: str = "auto",
    method: Method = "auto",
    seed: int = 0,
    shares: np.ndarray | None = None,
) -> Ranking:
    """Rank subjects by their responses to items.

    Args:
        responses: shape (N, M), in [0, 1]. 1 is in favour of the subject. NaN is missing.
        subjects: names, length N.
        clusters: image of each item, length M, because responses to items of one image may be correlated. None means
            that every item is a separate image.
        scoring: "irt" ranks by ability. "mean" ranks by the plain mean and "borda" by the Borda count, both with
            bootstrap intervals.
        model: "1pl", "2pl" or "3pl". "auto" selects 1PL for fewer than 10 subjects, and otherwise 2PL.
        method: fitting method: "fast", "svi", "nuts" or "auto" (see `fit_irt`).
        seed: random seed. The same seed gives the same ranking.
        shares: rates of samples in favour of the subject, for randomised models, shape (N, M) (see `Responses.shares`).
            Means, Borda counts and the bootstrap use the rates instead of `responses`. None if no model is randomised.

    Returns:
        The ranking. If images have several items, the draws of the abilities are widened around their means by the
        square root of the `design_effect`. `low`, `high`, ranks, `beats` and `groups` therefore allow for correlated
        responses.

    Raises:
        ValueError: If the matrix cannot be ranked, if names repeat, or if a number of names does not fit the matrix.
    """
    plain = check_responses(responses if shares is None else shares)
    values = plain if shares is None or scoring != "irt" else check_responses(responses)
    check_seed(seed)
    images = [str(item) for item in (range(values.shape[1]) if clusters is None else clusters)]
    check_names(subjects, images, values.shape)
    if scoring not in get_args(Scoring):
        raise ValueError(f"expected scoring as irt, mean or borda, got {scoring!r}")
    count, several = borda if shares is None else expected_borda, len(set(images))
    resampled = bootstrap(mean_response, plain, images, seed=seed)
    options: dict[str, Any] = {"images": several, "count": count}
    if scoring != "irt":
        rule = mean_response if scoring == "mean" else count
        draws = resampled if scoring == "mean" else bootstrap(rule, plain, images, seed=seed)
        # Differences of Borda counts of rates are those of the rates.
        options["p_values"] = paired_p_values(borda_parts(plain) if rule is borda else plain, images)
        ranking = make_ranking(scoring, subjects, rule(plain), draws, plain, resampled, **options)
        note = (
            f"too few to resample (minimum {FEWEST}); no difference is significant, and the number of images that "
            "would suffice "
        )
        notes = [f"{_count(several)}: {note}is not known"] if several < FEWEST else []
        return replace(ranking, notes=(*ranking.notes, *notes))
    fit = fit_irt(values, choose_model(values, model), method=method, seed=seed)
    effect = design_effect(fit, values, images)
    draws = widen_by_design_effect(fit.ability.reshape(-1, len(values)), effect)
    name = f"{fit.model.name}, {fit.model.response} responses"
    ranking = make_ranking(name, subjects, fit.expected, draws, plain, resampled, fit, **options)
    notes = [VARIATIONAL] if fit.diagnostics.sampler == "svi" else []
    notes += note_stretch(effect)
    if several < min(FEWEST, len(images)):
        notes.append(
            f"{_count(several)}: too few to estimate the variation between images, so intervals and ranks are too "
            "narrow"
        )
    return replace(ranking, notes=(*ranking.notes, *notes))


def widen_by_design_effect(draws: np.ndarray, effect: float) -> np.ndarray:
    """Widen draws of scores around their means by the square root of a design effect.

    Args:
        draws: draws of the scores, shape (D, N).
        effect: design effect, at least 1.

    Returns:
        Widened draws, shape (D, N), with the same means.
    """
    return draws.mean(0) + np.sqrt(effect) * (draws - draws.mean(0))


def note_stretch(effect: float) -> list[str]:
    """Return a note on how much the design effect widens the intervals.

    Empty if the design effect is below `NOTICED`.
    """
    if effect < NOTICED:
        return []
    note = (
        f"responses to one image are correlated: intervals and rank intervals are {np.sqrt(effect):.2g} times as "
        "wide as those of the "
    )
    return [f"{note}model (design effect {effect:.2g}, images as clusters)"]


def _count(images: int) -> str:
    return f"{images} image{'s' if images > 1 else ''}"


def rank_matrix(
    responses: Responses, *, scoring: Scoring = "irt", model: str = "auto", method: Method = "auto", seed: int = 0
) -> Ranking:
    """Rank the subjects of `Responses`, the result of `build_responses`.

    Rankings by means and Borda counts use only the items to which every subject has a response.

    Args:
        responses: responses of models, attacks, implementations or defences.
        scoring: "irt", "mean" or "borda" (see `rank_responses`).
        model: item response model: "1pl", "2pl", "3pl" or "auto".
        method: fitting method (see `fit_irt`).
        seed: random seed. The same seed gives the same ranking.

    Returns:
        The ranking. Its notes include the notes of the responses.

    Raises:
        ValueError: If there is only one subject, or the matrix cannot be ranked.
    """
    return _rank_matrix(responses, scoring, {"model": model, "method": method, "seed": seed})[0]


def _rank_matrix(responses: Responses, scoring: Scoring, options: dict[str, Any]) -> tuple[Ranking, Responses]:
    """Rank responses as `rank_matrix`, and also return the responses that were ranked."""
    check_rankable(responses)
    if scoring != "irt":
        responses = complete_items(responses)
    matrix = responses.values, responses.subjects, responses.images
    try:
        ranking = rank_responses(*matrix, scoring=scoring, shares=responses.shares, **options)
    except ValueError as error:
        why = f" ({'; '.join(responses.notes[:3])})" if responses.notes else ""
        raise ValueError(f"{error}{why}") from None
    return replace(ranking, notes=(*ranking.notes, *responses.notes)), responses


def rank_results(  # noqa: PLR0913 - the data by position, the choices by keyword
    results: pd.DataFrame,
    subjects: Subjects = "models",
    budget: float | None = None,
    *,
    per: Per = "attack",
    unequal: Unequal = "common",
    original: str | None = None,
    scoring: Scoring = "irt",
    model: str = "auto",
    method: Method = "auto",
    seed: int = 0,
) -> tuple[Ranking, Responses]:
    """Rank the models, attacks, implementations or defences of a results table.

    Args:
        results: results table with the columns that `build_responses` needs.
        subjects: kind of subjects to rank (see `build_responses`).
        budget: largest distance that counts as fooled (see `build_responses`). None means any distance.
        per: unit that counts once: "attack" or "implementation" (see `build_responses`).
        unequal: treatment of attempts that some subjects lack: "common" or "keep" (see `build_responses`).
        original: name of the undefended model if all other models are its defended versions (see `build_responses`).
        scoring: "irt", "mean" or "borda" (see `rank_responses`).
        model: item response model: "1pl", "2pl", "3pl" or "auto".
        method: fitting method (see `fit_irt`).
        seed: random seed. The same seed gives the same ranking.

    Returns:
        The ranking, and the responses on which it is based.

    Raises:
        ValueError: If the table has no usable results, if a choice is invalid, or if the subjects cannot be ranked.
    """
    if unequal == "keep" and scoring != "irt":
        raise ValueError(f"scoring={scoring!r} cannot handle missing items; use unequal='common'")
    responses = build_responses(results, subjects, budget, per=per, unequal=unequal, original=original)
    return _rank_matrix(responses, scoring, {"model": model, "method": method, "seed": seed})


def make_ranking(  # noqa: PLR0913 - the draws by position, what is known of them by keyword
    name: str,
    subjects: Sequence[str],
    score: np.ndarray,
    draws: np.ndarray,
    responses: np.ndarray,
    resampled: np.ndarray,
    fit: IRTFit | None = None,
    *,
    images: int = 0,
    p_values: np.ndarray | None = None,
    count: Callable[[np.ndarray], np.ndarray] = borda,
) -> Ranking:
    """Build a ranking from draws of the scores.

    Args:
        name: name of the scoring method.
        subjects: names, length N.
        score: point estimates, shape (N,).
        draws: posterior draws or bootstrap replicates of the scores, shape (D, N). NaN is unknown.
        responses: responses on which the scores are based, shape (N, M).
        resampled: plain means of bootstrap replicates, shape (replicates, N).
        fit: fitted item response model. None if no model was fitted.
        images: number of resampled images, which determines how far percentile intervals are expanded (see
            `tail_probability`). 0 means percentile intervals that are not expanded.
        p_values: p-values of a paired test over images, shape (N, N). A difference must be significant in this test,
            too. None means no such test.
        count: function that computes the Borda counts of `responses`.

    Returns:
        The ranking.
    """
    if fit:
        score = np.round(score, _DECIMALS)
    plain = (1 - LEVEL) / 2
    expanded = tail_probability(images) if images else plain
    tail = plain if p_values is None else expanded
    best, worst = _rank_bounds(draws)
    rank_low, rank_high = _rank_interval(best, worst, tail)
    bootstrap_low, bootstrap_high = _rank_interval(*_rank_bounds(resampled), expanded)
    low, high = _score_interval(draws, tail)
    mean = mean_response(responses)
    beats = np.stack([0.5 + 0.5 * ((one[:, None] > draws).mean(0) - (one[:, None] < draws).mean(0)) for one in draws.T])
    deviations = pair_deviations(draws, beats, p_values)
    apart, critical = tell_apart(deviations, draws)
    notes = [fit.diagnostics.problem] if fit and fit.diagnostics.problem else []
    if fit and not (np.sign(score[:, None] - score) * np.sign(mean[:, None] - mean) < 0).any():
        notes.append("IRT and the plain mean give the same order")
    return Ranking(
        name,
        tuple(subjects),
        score,
        low,
        high,
        rank=_rank_bounds(score[None])[0][0],
        rank_low=rank_low,
        rank_high=rank_high,
        rank_probability=_rank_probability(best, worst),
        beats=beats,
        groups=tie_groups(score, apart),
        apart=apart,
        deviations=deviations,
        critical=critical,
        mean=mean,
        agreement=agreement(score, {"mean": mean, "borda": count(responses)}),
        bootstrap_low=bootstrap_low,
        bootstrap_high=bootstrap_high,
        notes=tuple(notes),
        diagnostics=fit.diagnostics if fit else None,
        fit=fit,
        p_values=p_values,
    )


def _rank_bounds(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best and worst rank of each subject in each draw, for scores of shape (D, N).

    Rank 1 is the highest score. Subjects with equal scores share all their ranks. An unknown score (NaN) is tied with
    every other score, because it may have any value.
    """
    best = 1 + np.stack([(scores > one[:, None]).sum(1) for one in scores.T], 1)
    return best, scores.shape[1] - np.stack([(scores < one[:, None]).sum(1) for one in scores.T], 1)


def _rank_interval(best: np.ndarray, worst: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the 95 % interval of each subject's rank.

    Each of D draws has a best and a worst possible rank of each of N subjects, (D, N).
    """
    low = np.quantile(best, tail, axis=0, method="inverted_cdf")
    return low, np.quantile(worst, 1 - tail, axis=0, method="inverted_cdf")


def _rank_probability(best: np.ndarray, worst: np.ndarray) -> np.ndarray:
    """Return the probability that subject i has rank r + 1, shape (N, N). Tied subjects share their ranks evenly."""
    share = 1 / (worst - best + 1)
    places = range(1, best.shape[1] + 1)
    return np.stack([(share * ((best <= place) & (place <= worst))).mean(0) for place in places], 1)


def _score_interval(draws: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the 95 % interval of each score, two arrays of shape (N,).

    If all draws of a score are equal, the bounds are NaN, because the variation is then unknown.
    """
    known = ~np.isnan(draws).all(0)
    ends = np.full((2, draws.shape[1]), np.nan)
    ends[:, known] = np.nanquantile(draws[:, known], (tail, 1 - tail), axis=0)
    low, high = np.where(ends[0] < ends[1], ends, np.nan)
    return low, high


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value
