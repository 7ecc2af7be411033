"""Who is more robust, with the uncertainty of every rank."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...engine.statistics.bootstrap import Estimate
from ...engine.store.frames import about_cell
from ...scoring import Ranking, Responses, build_responses, check_several, complete_items, rank_responses
from ..parts.blocks import Column, Section, Text, make_table
from ..parts.figures import Bar, draw_intervals
from ..parts.reading import Folder

MOST = 1000  # responses that are fitted while a page is made, in a few seconds; above, plain means are ranked
_LEAD = (
    "Scores from every image under every attack: 1 where the model withstood it, 0 where it was fooled or wrong when "
    "clean, nothing where the example broke a rule."
)


def write_ranking(folder: Folder, *, seed: int = 0) -> Section:
    """Scores and ranks of the models with intervals, tie groups, who beats whom."""
    try:
        responses = build_responses(response_frame(folder), "models")
        check_several(responses)
        ranking, notes = _rank(responses, seed)
    except ValueError as error:
        return Section("ranking", "Ranking", _LEAD, (Text(f"No ranking: {error}.", "note"),))
    return Section("ranking", "Ranking", _LEAD, tuple(_blocks(ranking, notes)))


def response_frame(folder: Folder) -> pd.DataFrame:
    """What `build_responses` needs, one row for each cell and image."""
    frames = []
    for outcome in folder.outcomes.done:
        about = about_cell(outcome.cell) | {"model": folder.model(outcome), "target": outcome.cell.target}
        names = ("image", "attacked", "success", "violated")
        frames.append(pd.DataFrame({name: outcome.columns[name] for name in names}).assign(**about))
    return pd.concat(frames, ignore_index=True)


def _rank(responses: Responses, seed: int) -> tuple[Ranking, list[str]]:
    known = int((~np.isnan(responses.values)).sum())
    if known <= MOST:
        return rank_responses(responses.values, responses.subjects, responses.images, seed=seed), list(responses.notes)
    whole = complete_items(responses)
    frame: Any = pd.DataFrame(whole.values.T, index=pd.Index(whole.images))
    means = frame.groupby(level=0, sort=False).mean()  # pandas' stubs take it for a scalar
    ranking = rank_responses(means.to_numpy().T, whole.subjects, list(means.index), scoring="mean", seed=seed)
    note = f"Means over the attacks, then over the images, which are bootstrapped: {known} responses are more than "
    note += "are fitted for a page. `davylamp rank FOLDER` fits the item response model."
    return ranking, [note, *whole.notes]


def _blocks(ranking: Ranking, notes: Sequence[str]) -> list[Any]:
    order = np.argsort(ranking.rank, kind="stable")
    means = ranking.method == "mean"
    bars = [Bar(ranking.subjects[i], *_score(ranking, i)[:3], int(i)) for i in order]
    axis = "mean response" if means else "ability (logits)"
    caption = f"Models: {axis} with 95 % intervals"
    blocks: list[Any] = [Text(note, "warn") for note in ranking.notes]
    blocks += [Text(note, "note") for note in notes]
    blocks.append(draw_intervals("ranking-models", bars, axis=axis, caption=caption, whole=means))
    columns = (
        "rank", Column("95 % interval", "ranks that remain plausible"), "model",
        Column("score", f"{axis} with its 95 % interval"), Column("mean", "plain mean response"),
        Column("P(first)", "probability of rank 1"), Column("group", "a shared letter: not told apart at 95 %"),
    )  # fmt: skip
    rows = [_row(ranking, int(i)) for i in order]
    taus = ", ".join(f"{name} {tau:.2f}" for name, tau in ranking.agreement.items())
    method = f"Method: {ranking.method}. Kendall's tau with other rankings: {taus}."
    blocks.append(make_table("ranking-table", "Ranking of models", columns, rows, note=method))
    blocks.append(_beats(ranking, order))
    return blocks


def _row(ranking: Ranking, i: int) -> tuple[Any, ...]:
    score = _score(ranking, i)
    interval = f"{ranking.rank_low[i]} to {ranking.rank_high[i]}"
    first = float(ranking.rank_probability[i, 0])
    mean = float(ranking.mean[i])
    return int(ranking.rank[i]), interval, ranking.subjects[i], score, mean, first, ranking.groups[i]


def _score(ranking: Ranking, i: int) -> Estimate:
    value, low, high = (float(each[i]) for each in (ranking.score, ranking.low, ranking.high))
    return Estimate(value, low, high, int(np.isfinite(value)))


def _beats(ranking: Ranking, order: Sequence[int] | np.ndarray) -> Any:
    rows = [(ranking.subjects[i], *("" if i == j else float(ranking.beats[i, j]) for j in order)) for i in order]
    columns = ("P(row beats column)", *(ranking.subjects[j] for j in order))
    return make_table("ranking-beats", "Probability that one model ranks above another", columns, rows)
