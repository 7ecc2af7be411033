"""Places a new subject among the subjects of a fitted baseline without changing the baseline (CANARY's fast test).

New results are first aligned with the baseline, so that equal names mean the same model, image and attack.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ..deprecation import takes_old_names
from ..intervals import LEVEL
from .baselines import bootstrap, mean_response
from .irt import IRTFit, Method, check_names, check_responses, choose_model, fit_irt
from .ranking import Ranking, make_ranking, note_stretch
from .responses import Per, Subjects, Unequal, build_against, check_rankable, choose_results
from .result_rows import abbreviate_list
from .significance import design_effect

if TYPE_CHECKING:
    from .adaptive_selection import SelectionResult

NEW = " (new)"  # suffix of names whose meaning differs in the new results


@dataclass(frozen=True, repr=False)
class Placement:
    """Rank of a new subject among the subjects of a baseline.

    Attributes:
        newcomer: name of the new subject.
        ranking: ranking of the baseline's subjects and the new subject, which is last in the arrays. Means, Borda
            counts and the bootstrap use only items with a response of the new subject.
        responses: number of responses of the new subject. In a ranking by metrics, the number of metrics.
        images: number of images with a response of the new subject. 0 in a ranking by metrics.
        notes: warnings about the placement, and the numbers of items and images.
        choice: selection of images from `replay_selection`, which shows how few images would have been enough. None if
            the selection was not requested.
    """

    newcomer: str
    ranking: Ranking
    responses: int
    images: int
    notes: tuple[str, ...] = ()
    choice: "SelectionResult | None" = None

    @property
    def rank(self) -> int:
        """Rank of the new subject among all subjects. 1 is the best."""
        return int(self.ranking.rank[-1])

    @property
    def rank_interval(self) -> tuple[int, int]:
        """Best and worst rank in the 95 % interval of the new subject's rank."""
        return int(self.ranking.rank_low[-1]), int(self.ranking.rank_high[-1])

    @property
    def score(self) -> float:
        """Ability of the new subject on the scale of the baseline, whose mean ability is 0."""
        return float(self.ranking.score[-1])

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the new subject's ability: lower and upper bound."""
        return float(self.ranking.low[-1]), float(self.ranking.high[-1])

    @property
    def beats(self) -> dict[str, float]:
        """Probability that the new subject ranks above a subject of the baseline, by name of the baseline's subject."""
        return dict(zip(self.ranking.subjects[:-1], self.ranking.beats[-1].tolist(), strict=False))

    def __repr__(self) -> str:
        low, high = self.rank_interval
        count = len(self.ranking.subjects)
        head = f"Placement: {self.newcomer} rank {self.rank} ({LEVEL:.0%}: {low} - {high}) of {count}"
        shown = self.to_frame().rename(columns={"score": self.ranking.score_name})
        shown = shown[["rank", "subject", self.ranking.score_name, "low", "high", "beats"]]
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"{head}\n{shown.to_string(index=False, float_format='%.3g')}{notes}"

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<p>{html.escape(self.newcomer)}</p>{self.to_frame().to_html(index=False)}<ul>{notes}</ul>"

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each subject, the best first.

        The columns are those of `Ranking.to_frame`, and:

        - `newcomer`: name of the new subject, in every row.
        - `beats`: probability that the new subject ranks above the subject of the row. NaN in the row of the new
          subject.
        """
        frame = self.ranking.to_frame()
        frame.insert(0, "newcomer", self.newcomer)
        return frame.assign(beats=frame["subject"].map(self.beats))

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the posterior draws as JSON types. NaN becomes None."""
        low, high = self.interval
        about = {"rank": self.rank, "rank_low": self.rank_interval[0], "rank_high": self.rank_interval[1]}
        about |= {"score": self.score, "low": low, "high": high, "beats": self.beats}
        about |= {"responses": self.responses, "images": self.images}
        document = {**self.ranking.to_dict(), "newcomer": self.newcomer, "placed": about, "notes": list(self.notes)}
        if self.choice is not None:
            steps = [step._asdict() for step in self.choice.steps]
            document["choice"] = {**self.choice._asdict(), "steps": steps}
        return document


def place_new_subject(  # noqa: PLR0913 - the data by position, the choices by keyword
    responses: np.ndarray,
    subjects: Sequence[str],
    newcomer: np.ndarray,
    name: str,
    clusters: Sequence[str] | None = None,
    *,
    model: str = "auto",
    method: Method = "auto",
    seed: int = 0,
    fit: IRTFit | None = None,
) -> Placement:
    """Place a new subject among the subjects of a baseline, by its responses to some of the baseline's items.

    The baseline is fitted without the new subject (see `Anchor`). Only the new subject's ability is estimated.

    Args:
        responses: responses of the baseline, shape (N, M), in [0, 1]. 1 is in favour of the subject. NaN is missing.
        subjects: names, length N.
        newcomer: responses of the new subject to the same items, shape (M,). NaN is missing.
        name: name of the new subject.
        clusters: image of each item, length M. None if every item is a separate image.
        model: item response model: "1pl", "2pl", "3pl" or "auto" (see `rank_responses`).
        method: fitting method (see `fit_irt`).
        seed: random seed. The same seed gives the same placement.
        fit: existing fit of the baseline. If None, the baseline is fitted.

    Returns:
        The placement. Its intervals are widened by the baseline's `design_effect`, adapted to the new subject's number
        of items per image.

    Raises:
        ValueError: If the baseline cannot be ranked, or the new subject has no response.
    """
    from .anchor import Anchor, joint_draws, partial_design_effect

    values = check_responses(responses)
    answers = np.asarray(newcomer, dtype=float)
    seen = ~np.isnan(answers)
    if answers.shape != values.shape[1:]:
        raise ValueError(f"expected new responses of shape {values.shape[1:]}, got shape {answers.shape}")
    if not seen.any():
        raise ValueError("expected at least one new response that is not NaN")
    if not ((answers[seen] >= 0) & (answers[seen] <= 1)).all():
        raise ValueError(f"expected responses in [0, 1], got {answers[seen].min():g} to {answers[seen].max():g}")
    images = np.arange(len(answers)).astype(str) if clusters is None else np.asarray(clusters)
    check_names(subjects, images, values.shape)
    if name in subjects:
        raise ValueError(f"expected a new name, got {name}, which is a subject of the baseline")
    fit = fit_irt(values, choose_model(values, model), method=method, seed=seed) if fit is None else fit
    anchor, effect = Anchor(fit, values, seed=seed), design_effect(fit, values, images.tolist())
    log = anchor.log_likelihood(answers)
    both = np.vstack([values, answers])[:, seen]
    ranking = make_ranking(
        f"{fit.model.name}, {fit.model.response} responses, items anchored",
        (*subjects, name),
        np.append(fit.expected, anchor.expect(log)),
        joint_draws(anchor, log, effect, partial_design_effect(effect, images, images[seen])),
        both,
        bootstrap(mean_response, both, images[seen].tolist(), seed=seed),
        fit,
        images=len(set(images[seen])),
    )
    problem = fit.diagnostics.problem
    notes = [*([problem] if problem else []), *note_stretch(effect)]
    ranking = replace(ranking, notes=tuple(notes))
    return Placement(name, ranking, int(seen.sum()), len(set(images[seen])), tuple(notes))


@takes_old_names()
def place_results(  # noqa: PLR0913 - the data by position, the choices by keyword
    baseline: pd.DataFrame,
    new: pd.DataFrame,
    subjects: Subjects = "models",
    budget: float | None = None,
    *,
    norm: str | None = None,
    knowledge: str | None = None,
    per: Per = "attack",
    unequal: Unequal = "common",
    original: str | None = None,
    model: str = "auto",
    method: Method = "auto",
    seed: int = 0,
    adaptive: bool = False,
    max_rank_width: int | None = None,
    batch_images: int = 8,
    fits: dict[bytes, IRTFit] | None = None,
) -> tuple[Placement, ...]:
    """Place each new subject of a results table among the subjects of a baseline. Each is placed separately.

    Args:
        baseline: results table of the baseline, from `davylamp.engine.load`.
        new: results table with the new subjects. Subjects that are in the baseline are omitted.
        subjects: kind of subjects to rank (see `build_responses`).
        budget: largest distance that counts as fooled (see `build_responses`). None means any distance.
        norm: norm of the results to use, from both tables. None means all norms.
        knowledge: attacker knowledge of the results to use, from both tables. None means any knowledge.
        per: unit that counts once: "attack" or "implementation" (see `build_responses`).
        unequal: treatment of attempts that some subjects of the baseline lack (see `build_responses`).
        original: name of the undefended model if all other models are its defended versions (see `build_responses`).
        model: item response model: "1pl", "2pl", "3pl" or "auto" (see `rank_responses`).
        method: fitting method (see `fit_irt`).
        seed: random seed. The same seed gives the same placements.
        adaptive: whether to also find how few of the new subject's images would have been enough (see
            `replay_selection`).
        max_rank_width: for `adaptive`, the largest accepted width of the rank interval (worst minus best rank). None
            means the width that results from all images of the new subject.
        batch_images: for `adaptive`, the number of images per batch.
        fits: cache of baseline fits, by the bytes of their responses. New fits are added.

    Returns:
        A placement for each new subject.

    Raises:
        ValueError: If the baseline cannot be ranked, if no subject is new, or if a new subject has nothing in common
            with the baseline.
    """
    aligned = align_results(*(choose_results(rows, norm, knowledge) for rows in (baseline, new)))
    matrices = build_against(aligned.results, subjects, budget, per=per, unequal=unequal, original=original)
    from .adaptive_selection import replay_selection

    fits = {} if fits is None else fits
    placements = []
    for matrix in matrices:
        names, images = matrix.subjects[:-1], np.array(matrix.images)
        check_rankable(matrix._replace(subjects=names))
        answered = ~np.isnan(matrix.values[:-1]).all(0)
        values, images = matrix.values[:, answered], images[answered].tolist()
        key = values[:-1].tobytes()
        if key not in fits:
            fits[key] = fit_irt(values[:-1], choose_model(values[:-1], model), method=method, seed=seed)
        placed = place_new_subject(
            values[:-1], names, values[-1], matrix.subjects[-1], images, seed=seed, fit=fits[key]
        )
        size = f"{placed.responses} of {values.shape[1]} items answered, {placed.images} of {len(set(images))} images"
        notes = (*placed.notes, size, *aligned.notes, *matrix.notes)
        choice = replay_selection(fits[key], values, images, max_rank_width, batch_images, seed) if adaptive else None
        placements.append(replace(placed, notes=notes, ranking=replace(placed.ranking, notes=notes), choice=choice))
    return tuple(placements)


class Aligned(NamedTuple):
    """Results of a baseline joined with new results, as returned by `align_results`.

    Attributes:
        results: rows of both tables. The column `new` is True for rows of the new results.
        notes: a note for each name that has different meanings in the two tables.
    """

    results: pd.DataFrame
    notes: tuple[str, ...]


def align_results(baseline: pd.DataFrame, new: pd.DataFrame) -> Aligned:
    """Join new results with those of a baseline, so that equal names mean the same model, image and attack.

    A model of the new results is renamed if the baseline has a model with the same name but a different digest. A
    user's attack is renamed if its code differs. Images of the same data (equal `data_digest`) are matched even if the
    names of the data differ. Without a digest, images of data with the same name are matched, with a note. If the
    labels of images with the same name differ, the data are treated as different.

    Args:
        baseline: results table from `davylamp.engine.load`, or any table with `scoring.result_rows.COLUMNS`. Digests
            and versions are used if present.
        new: results table with the same columns.
    """
    notes: list[str] = []
    baseline, new = _plain(baseline), _plain(new)
    new = _name_models(baseline, new, notes)
    new = _name_code(baseline, new, notes)
    new = _name_data(baseline, new, notes)
    rows = pd.concat([baseline.assign(new=False), new.assign(new=True)], ignore_index=True)
    return Aligned(rows, tuple(notes))


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Convert categorical columns to text. Categorical columns of two tables cannot be renamed and joined."""
    return rows.astype(dict.fromkeys(rows.select_dtypes("category"), object))


def _name_models(baseline: Any, new: Any, notes: list[str]) -> Any:
    if "model_digest" not in baseline or "model_digest" not in new:
        return new
    other = _changed(baseline, new, "model", "model_digest")
    if other:
        notes.append(f"same name as in the baseline, but a different model: {abbreviate_list(other)}")
    return new.assign(model=new["model"].map(lambda name: f"{name}{NEW}" if name in other else name))


def _name_code(baseline: Any, new: Any, notes: list[str]) -> Any:
    """Rename a user's attack whose code differs from the baseline. For a different library version, only add a note."""
    if "version" not in baseline or "version" not in new:
        return new
    other = _changed(baseline, new, "implementation", "version")
    theirs, ours = (dict(zip(each["implementation"], each["version"], strict=True)) for each in (baseline, new))
    code = [name for name in other if "code " in f"{theirs[name]}{ours[name]}"]
    if code:
        notes.append(f"same name as in the baseline, but different code: {abbreviate_list(code)}")
    versions = {f"{name}: {ours[name]} here, {theirs[name]} there" for name in other if name not in code}
    if versions:
        notes.append(f"run with a different version than the baseline: {abbreviate_list(sorted(versions))}")
    mark = new["implementation"].isin(code)
    return new.assign(
        **{name: new[name].where(~mark, new[name].map(str) + NEW) for name in ("attack", "implementation")}
    )


def _name_data(baseline: Any, new: Any, notes: list[str]) -> Any:
    if "data" not in baseline or "data" not in new:
        return new
    digests = "data_digest" in baseline and "data_digest" in new
    names = dict(zip(baseline["data_digest"], baseline["data"], strict=True)) if digests else {}
    same = new["data_digest"].map(names) if digests else pd.Series(np.nan, index=new.index)
    new = new.assign(data=same.where(same.notna(), new["data"]))
    shared = set(new.loc[same.isna(), "data"]) & set(baseline["data"])
    if "label" in new and "label" in baseline:
        for name in sorted(shared):
            labels: Any = _labels(new[same.isna() & (new["data"] == name)]), _labels(baseline[baseline["data"] == name])
            both = labels[0].index.intersection(labels[1].index)
            odd = both[(labels[0][both] != labels[1][both]).to_numpy()]
            if len(odd):
                shared.remove(name)
                image = odd[0]
                pair = f"{labels[0][image]} here and {labels[1][image]} there"
                notes.append(f"same name as in the baseline, but different data: {name} (label of {image}: {pair})")
                new = new.assign(data=new["data"].where(same.notna() | (new["data"] != name), name + NEW))
    if shared and digests:
        notes.append(
            f"the images of {abbreviate_list(sorted(shared))} are matched by name, because the image sets differ"
        )
    return new


def _labels(rows: Any) -> Any:
    return rows.drop_duplicates("image").set_index("image")["label"]


def _changed(baseline: Any, new: Any, name: str, what: str) -> list[str]:
    """Return the names that occur in both tables with different values in the column `what`."""
    meant = baseline.groupby(name, observed=True)[what].agg(set)
    return [
        str(each)
        for each, values in new.groupby(name, observed=True)[what].agg(set).items()
        if each in meant.index and not values & meant[each]
    ]
