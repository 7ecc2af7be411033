"""A new subject among those of a fitted baseline, whose abilities and items stay as they are (CANARY's fast test).

New results are first put under those of the baseline, so that a name means one model, one image and one attack.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ..intervals import LEVEL
from .baselines import bootstrap, mean_response
from .irt import IRTFit, Method, check_responses, choose_model, fit_irt
from .ranking import Ranking, make_ranking, note_stretch
from .responses import Per, Subjects, Unequal, build_against, check_rankable, choose_results
from .result_rows import abbreviate_list
from .significance import design_effect

if TYPE_CHECKING:
    from .adaptive_selection import SelectionResult

NEW = " (new)"  # after the name of what is another thing in the new results


@dataclass(frozen=True, repr=False)
class Placement:
    """Where a newcomer stands among the subjects of a baseline.

    Attributes:
        newcomer: its name.
        ranking: of the baseline and, last, the newcomer. Means, Borda counts and the bootstrap are over the items that
            the newcomer answered.
        responses: of the newcomer, or its metrics.
        images: that they are about; 0 of metrics.
        notes: what a reader should know first.
        choice: how many of its images would have been enough, if that was asked.
    """

    newcomer: str
    ranking: Ranking
    responses: int
    images: int
    notes: tuple[str, ...] = ()
    choice: "SelectionResult | None" = None

    @property
    def rank(self) -> int:
        """Among all, 1 the best."""
        return int(self.ranking.rank[-1])

    @property
    def rank_interval(self) -> tuple[int, int]:
        """Best and worst rank of its 95 % interval."""
        return int(self.ranking.rank_low[-1]), int(self.ranking.rank_high[-1])

    @property
    def score(self) -> float:
        """Ability on the scale of the baseline, whose mean is 0."""
        return float(self.ranking.score[-1])

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the ability."""
        return float(self.ranking.low[-1]), float(self.ranking.high[-1])

    @property
    def beats(self) -> dict[str, float]:
        """P(the newcomer ranks above j), by name of j."""
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
        """One row for each subject, the best first; `beats` is P(the newcomer ranks above it), NaN for itself."""
        frame = self.ranking.to_frame()
        frame.insert(0, "newcomer", self.newcomer)
        return frame.assign(beats=frame["subject"].map(self.beats))

    def to_dict(self) -> dict[str, Any]:
        """All of it but the draws, in types that JSON has; NaN is None."""
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
    """Place a newcomer among the subjects of a baseline, by its responses to some of their items.

    Abilities and items of the baseline are those of its own fit (see `Anchor`); only the newcomer's ability is new.

    Args:
        responses: of the baseline, shape (N, M), in [0, 1], 1 for the subject; NaN is missing.
        subjects: names, length N.
        newcomer: responses to the same items, shape (M,); NaN is missing.
        name: of the newcomer.
        clusters: the image of each item, length M; None: every item is its own.
        model: see `rank_responses`.
        method: see there.
        seed: see there.
        fit: of the baseline, if there is one already.

    Returns:
        Rank and P(it beats j), with intervals stretched by the `design_effect` of the baseline, which for the newcomer
        is that of as many items of an image as it answered.

    Raises:
        ValueError: if the baseline cannot be ranked, or the newcomer answered nothing.
    """
    from .anchor import Anchor, joint_draws, partial_design_effect

    values = check_responses(responses)
    answers = np.asarray(newcomer, dtype=float)
    seen = ~np.isnan(answers)
    if answers.shape != values.shape[1:] or not seen.any():
        raise ValueError(f"expected responses to some of {values.shape[1]} items, got {seen.sum()} to {answers.shape}")
    if not ((answers[seen] >= 0) & (answers[seen] <= 1)).all():
        raise ValueError(f"expected responses in [0, 1], got {answers[seen].min():g} to {answers[seen].max():g}")
    images = np.arange(len(answers)).astype(str) if clusters is None else np.asarray(clusters)
    if len(subjects) != len(values) or len({*subjects, name}) <= len(values) or len(images) != len(answers):
        got = f"{len(set(subjects))}, {name} and {len(images)}"
        raise ValueError(f"expected {len(values)} different subjects, another and {len(answers)} clusters, got {got}")
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
    width: int | None = None,
    batch: int = 8,
    fits: dict[bytes, IRTFit] | None = None,
) -> tuple[Placement, ...]:
    """Place each subject of new results among those of a baseline, one at a time.

    Args:
        baseline: rows of `davylamp.engine.load`.
        new: rows of the newcomers; what the baseline has is left out.
        subjects: see `build_against`.
        budget: see there.
        norm: see `choose_results`, of both.
        knowledge: see there.
        per: see `build_against`.
        unequal: see there.
        original: see there.
        model: see `rank_responses`.
        method: see there.
        seed: see there.
        adaptive: also which of its images would have been enough, see `choose_images`.
        width: worst minus best rank of the interval that is enough; None: as by all of its images.
        batch: images that are chosen at once.
        fits: of baselines that were fitted before, by the bytes of their responses.

    Returns:
        A placement for each newcomer.

    Raises:
        ValueError: if the baseline cannot be ranked, nobody is new, or a newcomer shares nothing with the baseline.
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
        choice = replay_selection(fits[key], values, images, width, batch, seed) if adaptive else None
        placements.append(replace(placed, notes=notes, ranking=replace(placed.ranking, notes=notes), choice=choice))
    return tuple(placements)


class Aligned(NamedTuple):
    """Rows of both tables, with a column `new`; and a line for whatever is not the same though its name is."""

    results: pd.DataFrame
    notes: tuple[str, ...]


def align_results(baseline: pd.DataFrame, new: pd.DataFrame) -> Aligned:
    """Put new results under those of a baseline, so that equal names mean equal things.

    A model of the same name and another digest, and a user's attack of the same name and other code, get a name of
    their own. Images of the same data (`data_digest`) are the same by whatever name; without that they are if the data
    has the same name, and a note says so. Where an image of the same name has another label, the data is another.

    Args:
        baseline: of `davylamp.engine.load`, or with `scoring.result_rows.COLUMNS`; digests and versions where known.
        new: with the same columns.

    Returns:
        Both.
    """
    notes: list[str] = []
    baseline, new = _plain(baseline), _plain(new)
    new = _name_models(baseline, new, notes)
    new = _name_code(baseline, new, notes)
    new = _name_data(baseline, new, notes)
    rows = pd.concat([baseline.assign(new=False), new.assign(new=True)], ignore_index=True)
    return Aligned(rows, tuple(notes))


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Texts as such, where they are categories: names are changed, and those of both put together."""
    return rows.astype(dict.fromkeys(rows.select_dtypes("category"), object))


def _name_models(baseline: Any, new: Any, notes: list[str]) -> Any:
    if "model_digest" not in baseline or "model_digest" not in new:
        return new
    other = _changed(baseline, new, "model", "model_digest")
    if other:
        notes.append(f"of the same name, but not the model of the baseline: {abbreviate_list(other)}")
    return new.assign(model=new["model"].map(lambda name: f"{name}{NEW}" if name in other else name))


def _name_code(baseline: Any, new: Any, notes: list[str]) -> Any:
    """A user's attack is another one if its code is; a library of another version is the same, and a note says so."""
    if "version" not in baseline or "version" not in new:
        return new
    other = _changed(baseline, new, "implementation", "version")
    theirs, ours = (dict(zip(each["implementation"], each["version"], strict=True)) for each in (baseline, new))
    code = [name for name in other if "code " in f"{theirs[name]}{ours[name]}"]
    if code:
        notes.append(f"of the same name, but not the code of the baseline: {abbreviate_list(code)}")
    versions = {f"{name}: {ours[name]} here, {theirs[name]} there" for name in other if name not in code}
    if versions:
        notes.append(f"run by another version than the baseline: {abbreviate_list(sorted(versions))}")
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
                notes.append(f"of the same name, but not the data of the baseline: {name} (label of {image}: {pair})")
                new = new.assign(data=new["data"].where(same.notna() | (new["data"] != name), name + NEW))
    if shared and digests:
        notes.append(
            f"images of {abbreviate_list(sorted(shared))} are matched by name: "
            "as a set they are not those of the baseline"
        )
    return new


def _labels(rows: Any) -> Any:
    return rows.drop_duplicates("image").set_index("image")["label"]


def _changed(baseline: Any, new: Any, name: str, what: str) -> list[str]:
    """Names that both have, and that mean nothing in the new results that they mean in the baseline."""
    meant = baseline.groupby(name, observed=True)[what].agg(set)
    return [
        str(each)
        for each, values in new.groupby(name, observed=True)[what].agg(set).items()
        if each in meant.index and not values & meant[each]
    ]
