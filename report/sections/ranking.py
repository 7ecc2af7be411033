"""Section on the ranking of the models, with the uncertainty of every rank."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...adapters.display_text import format_radius
from ...engine.statistics.bootstrap import Estimate
from ...engine.store.data_frames import load_outcomes
from ...scoring import (
    FALSE,
    Ranking,
    Responses,
    build_responses,
    check_rankable,
    check_responses,
    choose_model,
    complete_items,
    describe_differences,
    describe_projections,
    differential_groups,
    fit_irt,
    informative_items,
    item_kinds,
    libraries_of,
    project_pairs,
    rank_responses,
)
from ..parts.blocks import Bar, Bars, Collapsible, Column, Section, TableCell, Text, make_table
from ..parts.figures import draw_item_map
from ..parts.report_data import ReportData

MOST = 1000  # most responses fitted for a page, in a few seconds; above, plain means are ranked
ITEMS = 600  # most images of models for which a page compares implementations
SHOWN = 6  # most images, and models next to them
_LEAD = (
    "From every image under every attack: 1 if the model was robust, 0 if it was fooled, misclassified the "
    "clean image or had no finite or stable output, missing if the result is invalid for another reason."
)


def write_ranking(folder: ReportData, *, seed: int = 0) -> Section | None:
    """Build the section on the ranking of the models: scores, ranks, tie groups, and items that separate the models.

    Returns:
        The section, or None if there is only one model and only one library.
    """
    frame = load_outcomes(folder.outcomes)
    libraries = write_libraries(frame, seed)
    try:
        responses = build_responses(frame, "models")
        check_rankable(responses)
        ranking, notes = _rank(responses, seed)
    except ValueError as error:
        blocks: list[Any] = []
        if len(set(folder.models.values())) > 1:
            blocks = [Text(f"No ranking of models: {error}.", "note")]
        elif not libraries:
            return None
    else:
        blocks = _blocks(ranking, notes, len(set(responses.images)))
        if ranking.fit is not None:
            items = tuple(write_items(folder, ranking, responses))
            blocks.append(Collapsible("Which attacks and images separate the models", items))
    return Section("ranking", "Ranking", _LEAD, (*blocks, *libraries))


def _rank(responses: Responses, seed: int) -> tuple[Ranking, list[str]]:
    known = int((~np.isnan(responses.values)).sum())
    if known <= MOST:
        matrix = responses.values, responses.subjects, responses.images
        return rank_responses(*matrix, seed=seed, shares=responses.shares), list(responses.notes)
    whole = complete_items(responses)
    frame: Any = pd.DataFrame((whole.values if whole.shares is None else whole.shares).T, index=pd.Index(whole.images))
    means = frame.groupby(level=0, sort=False).mean()  # pandas' stubs type it as a scalar
    ranking = rank_responses(means.to_numpy().T, whole.subjects, list(means.index), scoring="mean", seed=seed)
    note = (
        f"Means over the attacks, then over the images, which are bootstrapped, because {known} responses are too many "
    )
    note += "to fit for a page. `davylamp rank FOLDER` fits the item response model."
    return ranking, [note, *whole.notes]


def _blocks(ranking: Ranking, notes: Sequence[str], images: int) -> list[Any]:
    order = np.argsort(ranking.rank, kind="stable")
    blocks: list[Any] = [_bars(ranking, order), *(Text(note, "note") for note in (*ranking.notes, *notes))]
    blocks += [Text(sentence) for sentence in describe_projections(project_pairs(ranking, images))]
    plain = () if ranking.method == "mean" else (Column("mean", "plain mean response"),)
    columns = (
        "model", "rank", Column("95 % interval", "plausible ranks"),
        Column(ranking.score_name, f"{ranking.label} with its 95 % interval"), *plain,
        Column("P(first)", "proportion of posterior draws, or of bootstrap replicates, in which it has rank 1"),
        Column("group", "a shared letter: no significant difference at 95 %, corrected over all pairs"),
    )  # fmt: skip
    rows = [_row(ranking, int(i)) for i in order]
    taus = ", ".join(f"{name} {tau:.2f}" for name, tau in ranking.agreement.items())
    method = f"Method: {ranking.method}. Kendall's tau with other rankings: {taus}."
    table = make_table("ranking-table", "Ranking of models", columns, rows, note=method)
    return [*blocks, Collapsible("Ranks and their probabilities, in numbers", (table, _beats(ranking, order)))]


def _bars(ranking: Ranking, order: Sequence[int] | np.ndarray) -> Bars:
    ends = [each for each in (*ranking.low, *ranking.high, *ranking.score) if np.isfinite(each)]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0
    apart = ranking.apart[order[0]]  # not from the letters: subjects without a common one need not differ
    bars = []
    for i in map(int, order):
        value, *rest = (float(each[i]) for each in (ranking.score, ranking.low, ranking.high))
        known = all(np.isfinite(each) for each in rest)
        a, b = ((each - low) / span for each in rest) if known else (None, None)
        text = f"{value:.2f} ({rest[0]:.2f} to {rest[1]:.2f}) {ranking.groups[i]}" if known else f"{value:.2f}"
        title = f"{ranking.subjects[i]}: {text}, rank {ranking.rank_low[i]} to {ranking.rank_high[i]}"
        bars.append(Bar(ranking.subjects[i], (value - low) / span, a, b, text, faint=bool(apart[i]), title=title))
    ticks = tuple((share, f"{low + share * span:.2f}") for share in (0.0, 0.5, 1.0))
    legend = [
        ("bar", f"{ranking.label} with its 95 % interval; models that share a letter do not differ significantly")
    ]
    legend += [("faint", "significantly different from the first")] if any(bar.faint for bar in bars) else []
    return Bars("ranking-models", f"Models by {ranking.label}", tuple(bars), ticks, tuple(legend))


def write_items(folder: ReportData, ranking: Ranking, responses: Responses) -> list[Any]:
    """Build the blocks on items: a map of abilities and difficulties, and which attacks and images separate models."""
    fit: Any = ranking.fit
    kinds, values = np.array(_plain_radii(folder, item_kinds(responses))), responses.values
    difficulties = {str(kind): fit.difficulty[kinds == kind] for kind in dict.fromkeys(kinds)}
    caption = "Abilities of the models, and difficulties of the images under each attack, on one axis"
    lead = (
        "A model whose ability equals the difficulty of an image is robust with probability 0.5. Circles "
        "far to the left are images on which every model is robust, far to the right those on which none is."
    )
    blocks: list[Any] = [draw_item_map("ranking-items", ranking, difficulties, caption=caption), Text(lead, "note")]
    columns = (
        "attack", Column("models differ", "proportion of images on which some models are robust and others are not"),
        Column("share of the information", "Fisher information on abilities, from images on which models differ"),
        Column("withstood", "mean response"), "responses",
    )  # fmt: skip
    table = informative_items(fit, values, list(kinds))
    rows = table[["item", "differ", "share", "mean", "responses"]].itertuples(index=False)
    blocks.append(make_table("ranking-attacks", "Which attacks separate the models", columns, map(tuple, rows)))
    table = informative_items(fit, values, responses.images).query("share > 0").head(SHOWN)
    pictures = _pictures(folder)
    order = np.argsort(ranking.rank, kind="stable")[:SHOWN]
    rows = []
    for item, share in zip(table["item"], table["share"], strict=True):
        of_image = values[:, np.array(responses.images) == item]
        survived = [_count(of_image[i]) for i in order]
        rows.append((TableCell(str(item), picture=pictures.get(str(item), "")), float(share), *survived))
    columns = ("image", "share of the information", *(ranking.subjects[i] for i in order))
    note = "For each model: number of attacks to which it was robust, of those with a response."
    blocks.append(
        make_table("ranking-images", "Which images separate the models best", columns, rows, note=note),
    )
    return blocks


def _count(values: np.ndarray) -> TableCell:
    seen = values[~np.isnan(values)]
    return TableCell(f"{int(seen.sum())} of {len(seen)}", int(seen.sum()))


def _plain_radii(folder: ReportData, kinds: Sequence[str]) -> list[str]:
    """Return the kinds of items with radii in the same format as on the rest of the page."""
    rules = {outcome.cell.threat_model for outcome in folder.outcomes.done}
    balls = [(rule.norm, rule.epsilon) for rule in rules if rule.epsilon is not None]
    words = {f" {norm} {epsilon:.4g}": f" {norm} {format_radius(norm, epsilon)}" for norm, epsilon in balls}
    words |= {f" {norm} {epsilon}": f" {norm} {format_radius(norm, epsilon)}" for norm, epsilon in balls}
    longest = sorted(words, key=len, reverse=True)
    return [next((kind.replace(each, words[each]) for each in longest if each in kind), kind) for kind in kinds]


def _pictures(folder: ReportData) -> dict[str, str]:
    """Return the names of clean images in the gallery, by the name of the image in the responses."""
    return {
        f"{known.subject.data} {example.image}": f"{key}-{example.place}"
        for key, known in folder.outcomes.clean.items()
        for example in known.examples
        if example.picture
    }


def write_libraries(frame: pd.DataFrame, seed: int) -> list[Any]:
    """Build the blocks on images on which the implementations of one library differ from the others at equal ability.

    Empty if only one library was used.
    """
    if frame["library"].nunique() < 2:
        return []
    how = "`davylamp rank FOLDER --subjects implementations` gives more detail."
    try:
        responses = build_responses(frame, "implementations")
        values = check_responses(responses.values)
    except ValueError as error:
        return [Text(f"Differences between libraries at equal ability are not known: {error}.", "note")]
    if values.shape[1] > ITEMS:
        why = f"{values.shape[1]} images of models are too many to compare for a page"
        return [Text(f"Differences between libraries at equal ability: {why}. {how}", "note")]
    fit = fit_irt(values, choose_model(values, "1pl"), method="fast", warmup=100, draws=500, seed=seed)
    if fit.diagnostics.problem:
        return [Text(f"Differences between libraries at equal ability: {fit.diagnostics.problem}. {how}", "note")]
    table = differential_groups(fit, values, libraries_of(responses.subjects), responses.images)
    blocks: list[Any] = [Text(sentence) for sentence in describe_differences(table)]
    odd: Any = table[table["p_adjusted"] < FALSE]
    if len(odd):
        columns = (
            "image", "library", Column("log odds", "relative to the prediction from the abilities"), "p",
            Column("p adjusted", "over all images and libraries"), "responses",
        )  # fmt: skip
        rows = odd[["item", "group", "effect", "p", "p_adjusted", "responses"]].itertuples(index=False)
        table_of_odd = make_table("ranking-libraries", "Images that differ at equal ability", columns, map(tuple, rows))
        blocks.append(Collapsible(f"The {len(odd)} differences", (table_of_odd,)))
    return blocks


def _row(ranking: Ranking, i: int) -> tuple[Any, ...]:
    score = _score(ranking, i)
    interval = f"{ranking.rank_low[i]} to {ranking.rank_high[i]}"
    first = float(ranking.rank_probability[i, 0])
    plain = () if ranking.method == "mean" else (float(ranking.mean[i]),)  # equals the score
    return ranking.subjects[i], int(ranking.rank[i]), interval, score, *plain, first, ranking.groups[i]


def _score(ranking: Ranking, i: int) -> Estimate:
    value, low, high = (float(each[i]) for each in (ranking.score, ranking.low, ranking.high))
    return Estimate(value, low, high, int(np.isfinite(value)))


def _beats(ranking: Ranking, order: Sequence[int] | np.ndarray) -> Any:
    rows = [(ranking.subjects[i], *("" if i == j else float(ranking.beats[i, j]) for j in order)) for i in order]
    columns = ("P(row beats column)", *(ranking.subjects[j] for j in order))
    return make_table(
        "ranking-beats", "Probability that the model of the row ranks above the model of the column", columns, rows
    )
