"""From a table of results, one row for each run and image, to a matrix of responses."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..conventions import KNOWLEDGE
from .result_rows import (
    NAMED,
    Choices,
    Per,
    ResultRows,
    Subjects,
    Unequal,
    abbreviate_list,
    is_of_models,
    notes_on_rows,
    read_rows,
)
from .significance import missing_by_subject

CHANCE = 0.01  # below this p-value a note says that what is missing depends on the subject


class Responses(NamedTuple):
    """Subjects by items.

    Attributes:
        values: 1 for the subject, 0 against it, NaN missing; shape (N, M).
        subjects: names, length N.
        items: names, length M.
        images: the image of each item, length M.
        notes: a line for everything that a reader should know: what is missing, left out, mixed, or counts once.
        kind: of the subjects.
        shares: with random models the share of draws that are for the subject, shape (N, M), of which `values` has one
            draw each; None without random models.
    """

    values: np.ndarray
    subjects: tuple[str, ...]
    items: tuple[str, ...]
    images: tuple[str, ...]
    notes: tuple[str, ...] = ()
    kind: Subjects = "models"
    shares: np.ndarray | None = None


def build_responses(
    results: pd.DataFrame,
    subjects: Subjects = "models",
    budget: float | None = None,
    *,
    per: Per = "attack",
    unequal: Unequal = "common",
    original: str | None = None,
) -> Responses:
    """Responses of subjects to images under attack.

    A model answers right where the attack did not fool it: an image that it gets wrong when clean counts against it. An
    attack or an implementation answers right where it fooled the model; an image that the model gets wrong when clean
    is missing. An invalid result counts against a model that caused it (column `invalid_by_model`), and against a
    library that did (`invalid_by_library`); else it is missing, as is everything of an attack that failed. Notes say
    how much, and whether what is missing depends on the subject.

    An attack that ran in several libraries counts once: on each image the strongest of its implementations answers for
    it, as in a worst case. A library whose implementation is weak or broken then neither dilutes an attack nor gives it
    a second vote; the first in some order of libraries would depend on their names.

    A model that draws random numbers is fooled by a share of its draws (column `draws_fooled`; NaN: it is not random):
    these are the `shares` of the responses, and `values` has one draw of each, 1 with the probability of that share. It
    is the same one whatever else is ranked. Of several attempts at an image the one with the strongest share counts.

    A worst case of several attacks (`worst-case(A,B)`) is ranked among its like only: beside others it is left out.

    Args:
        results: with `result_rows.COLUMNS`, and `norm`, `epsilon`, `parameters`, `data`, ... where they distinguish
            items; `invalid_by_model` and `invalid_by_library` say whose fault an invalid (`violated`) result is;
            `library` and `knowledge` are for the notes, `minimum_norm` says whose distances are the smallest found.
        subjects: whose strength is scored; items are image x attack for "models", image x attack x original model for
            "defences", and image x model for "attacks" and "implementations". Models named "ORIGINAL+DEFENCE" are
            defended ones; their originals answer as the defence "none".
        budget: largest distance at which an attack counts as having fooled (column `distance`); None: any. An attack
            in a larger ball that was not run for the smallest change says nothing about it: missing. The distance
            of an example of a random model is known only if half of its draws are fooled. The results must be in one
            norm.
        per: what counts once: an "attack", or every "implementation" of it (for "attacks": every library).
        unequal: attempts that some subjects lack are left out ("common", as in CANARY), or stay and are missing
            responses of the others ("keep"): right only if what was run does not depend on how it would have ended.
        original: for "defences" that are not so named: the model that all others are defences of.

    Returns:
        The matrix, in the order in which subjects and items come in the results, without items that nobody has.

    Raises:
        ValueError: if columns are missing, a choice is unknown, or nothing is left.
    """
    choices = Choices(subjects, budget, per, unequal, original)
    return _build(*_rows_that_count(results, choices), choices)


def subjects_of(results: pd.DataFrame, subjects: Subjects) -> pd.Series:
    """The subject of each row that counts in `build_responses(results, subjects)`, by its name there.

    Args:
        results: as for `build_responses`, with a unique index.
        subjects: see there.

    Returns:
        Names, with the index of those rows of the results that count.

    Raises:
        ValueError: as `build_responses`.
    """
    return _rows_that_count(results, Choices(subjects))[0].labels["subject"]


def build_against(
    results: pd.DataFrame,
    subjects: Subjects = "models",
    budget: float | None = None,
    *,
    per: Per = "attack",
    unequal: Unequal = "common",
    original: str | None = None,
) -> tuple[Responses, ...]:
    """The responses of a baseline and of one new subject, for each new subject, whose gaps are missing responses.

    At an item that the new subject answered, only attempts that both made count: with the strongest of three libraries
    held against one, a new subject would look stronger than it is. An item that it did not answer stays as the
    baseline has it.

    Args:
        results: as for `build_responses`, with a column `new`: whether the row is of new results.
        subjects: see there.
        budget: see there.
        per: see there.
        unequal: see there; of the subjects of the baseline.
        original: see there.

    Returns:
        A matrix for each new subject, which is the last of its subjects. A subject with rows of both kinds is not new:
        its new rows are left out, and a note says so.

    Raises:
        ValueError: as `build_responses`; if no subject is new, or one shares nothing with the baseline.
    """
    choices = Choices(subjects, budget, per, unequal, original)
    rows = read_rows(results, choices)
    is_new = rows.rows["new"].to_numpy(bool)
    names, known = (list(rows.labels["subject"][which].unique()) for which in (is_new, ~is_new))
    both, new_names = [name for name in names if name in known], [name for name in names if name not in known]
    if not new_names:
        raise ValueError(f"expected {subjects} that the baseline lacks, got {abbreviate_list(both)}: it has them")
    matrices = []
    for name in new_names:
        kept, left_out = _shared(rows.labels, is_new, name, choices)
        matrix = _build(rows.only(kept), left_out, choices)
        if name not in matrix.subjects:
            raise ValueError(
                f"expected a response of {name}, got none: every one is missing ({'; '.join(matrix.notes)})"
            )
        order = np.argsort(np.array(matrix.subjects) == name, kind="stable")
        notes = (f"left out: the new results of {abbreviate_list(both)}: the baseline has them",) if both else ()
        matrices.append(_in_rows(matrix, order)._replace(notes=(*matrix.notes, *notes)))
    return tuple(matrices)


def choose_results(results: pd.DataFrame, norm: str | None = None, knowledge: str | None = None) -> pd.DataFrame:
    """The results of attacks of one kind.

    Args:
        results: with the columns `norm` and `knowledge` if they are chosen by.
        norm: only attacks in this norm; None: in any.
        knowledge: only attacks that know this much: a key of `KNOWLEDGE`; None: all.

    Raises:
        ValueError: if there is no such kind, or nothing of it.
    """
    if knowledge is not None and knowledge not in KNOWLEDGE:
        raise ValueError(f"expected knowledge {', '.join(KNOWLEDGE)}, got {knowledge!r}")
    wanted = {} if norm is None else {"norm": ((norm,), f"results in norm {norm}")}
    wanted |= {} if knowledge is None else {"knowledge": (KNOWLEDGE[knowledge], f"{knowledge} attacks")}
    for column, (values, what) in wanted.items():
        if column not in results:
            raise ValueError(f"expected a column {column} to choose by, got a table without")
        have = sorted(set(results[column]))
        results = results.loc[results[column].isin(values)]
        if results.empty:
            raise ValueError(f"expected {what}, got {', '.join(map(str, have))} only")
    return results


def complete_items(responses: Responses) -> Responses:
    """The items that every subject has a response to; means over different items cannot be compared.

    Args:
        responses: of any subjects.

    Returns:
        The same with fewer items, and a note that says how many are left.

    Raises:
        ValueError: if there is no such item.
    """
    kept = np.flatnonzero(~np.isnan(responses.values).any(0))
    total = len(responses.items)
    if len(kept) == total:
        return responses
    if not len(kept):
        raise ValueError(f"expected an item that all {len(responses.subjects)} subjects answered, got none")
    note = f"means are over the {len(kept)} of {total} items that every subject answered"
    return select_items(responses, kept)._replace(notes=(*responses.notes, note))


def select_items(responses: Responses, kept: np.ndarray) -> Responses:
    """Some of the items, by their places or as bool, shape (M,)."""
    items, images = (tuple(np.array(part, dtype=object)[kept]) for part in (responses.items, responses.images))
    shares = None if responses.shares is None else responses.shares[:, kept]
    return responses._replace(values=responses.values[:, kept], items=items, images=images, shares=shares)


def of_subjects(responses: Responses, kept: Sequence[int] | np.ndarray) -> Responses:
    """Some of the subjects, by their places, and the items that one of them has a response to."""
    some = _in_rows(responses, kept)
    return select_items(some, np.flatnonzero(~np.isnan(some.values).all(0)))


def _in_rows(responses: Responses, places: Sequence[int] | np.ndarray) -> Responses:
    rows, names = np.asarray(places), tuple(responses.subjects[place] for place in places)
    shares = None if responses.shares is None else responses.shares[rows]
    return responses._replace(values=responses.values[rows], subjects=names, shares=shares)


def check_rankable(responses: Responses) -> None:
    """Raise ValueError, which says where else the numbers are, unless there are at least two subjects."""
    if len(responses.subjects) > 1:
        return
    kind = responses.kind.removesuffix("s")
    by = "models" if is_of_models(responses.kind) else "attacks"
    raise ValueError(
        f"one {kind}: nothing to rank it against; `davylamp table FOLDER --by {by}` has the numbers of "
        f"{', '.join(responses.subjects)}, a ranking needs results of a second {kind}"
    )


def _rows_that_count(results: pd.DataFrame, choices: Choices) -> tuple[ResultRows, list[str]]:
    """Rows that can be compared, and notes on those that cannot."""
    rows = read_rows(results, choices)
    if choices.unequal == "keep":
        return rows, _note_uneven(rows.labels)
    kept, left_out = _common(rows.labels, of_models=choices.of_models)
    return rows.only(kept), left_out


def _build(rows: ResultRows, left_out: list[str], choices: Choices) -> Responses:
    """The matrix of rows that can be compared, with its notes; of several attempts at an item the strongest counts."""
    seen = ~rows.missing & rows.value.notna()
    if not seen.any():
        raise ValueError("expected results of attacked images, got none")
    answered = rows.labels[seen]
    place, names = pd.factorize(answered["subject"])
    item, items = pd.factorize(answered["item"])
    values = np.full((len(names), len(items)), np.nan)
    # fmin and fmax prefer a number to NaN.
    (np.fmin if choices.of_models else np.fmax).at(values, (place, item), rows.value[seen].to_numpy())
    first = np.unique(item, return_index=True)[1]
    images = answered["image"].iloc[first]
    notes = [*rows.notes, *notes_on_rows(rows.rows, choices), *left_out]
    if silent := [name for name in rows.labels["subject"].unique() if name not in names]:
        notes.append(f"left out: {', '.join(silent)}: no response at all")
    if rows.larger.any():
        notes.append(f"{rows.larger.sum()} responses are missing: fooled in a larger ball, not asked about this budget")
    notes += _note_selective(rows.labels, rows.missing)
    texts = (tuple(map(str, each)) for each in (names, items, images))
    return _drawn(Responses(values, *texts, notes=tuple(notes), kind=choices.subjects))


def _drawn(matrix: Responses) -> Responses:
    """One draw of each share, with the shares beside it; the matrix itself if all are 0 or 1."""
    between = (matrix.values > 0) & (matrix.values < 1)
    if not between.any():
        return matrix
    values = matrix.values.copy()
    for row, column in zip(*between.nonzero(), strict=True):
        # A number in [0, 1) that depends on these two names only, so that who else is ranked changes no draw.
        text = f"{matrix.subjects[row]}\0{matrix.items[column]}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        values[row, column] = number / 2**64 < values[row, column]
    return matrix._replace(values=values, shares=matrix.values)


def _common(labels: Any, *, of_models: bool) -> tuple[np.ndarray, list[str]]:
    """Rows of attempts that every subject made, (rows,) bool, and notes on what is left out."""
    place, names = pd.factorize(labels["subject"])
    attempt, attempts = pd.factorize(labels["attempt"])
    ran: Any = np.zeros((len(names), len(attempts)), bool)
    ran[place, attempt] = True
    kept = ran.all(0)[attempt]
    if kept.all():
        return kept, []
    group, groups = pd.factorize(labels["group"])
    of_attempt = np.zeros(len(attempts), int)
    of_attempt[attempt] = group
    lines = []
    for each, name in enumerate(groups):
        of_group = ran[:, of_attempt == each]
        gone = int((~of_group.all(0)).sum())
        if gone:
            lacking = abbreviate_list([str(names[row]) for row in np.flatnonzero(~of_group.all(1))])
            what = name if gone == of_group.shape[1] else f"{gone} of {of_group.shape[1]} responses to {name}"
            lines.append(f"left out: {what}: no result {'on' if of_models else 'of'} {lacking}")
    if not kept.any():
        raise ValueError(
            f"expected something that all {len(names)} subjects met, got nothing ({'; '.join(lines[:2])}): evaluate "
            "what is missing, or rank with unequal='keep'"
        )
    more = [f"left out: {len(lines) - NAMED} more that not every subject met"] if len(lines) > NAMED else []
    note = "ranked by what every subject met; unequal='keep' ranks by all, and takes the rest for missing at random"
    return kept, [*lines[:NAMED], *more, note]


def _shared(labels: Any, is_new: np.ndarray, name: str, choices: Choices) -> tuple[np.ndarray, list[str]]:
    """Rows of the baseline and of a new subject that can be compared, (rows,) bool, and notes on the others."""
    of_name = is_new & (labels["subject"] == name).to_numpy()
    attempt, attempts = pd.factorize(labels["attempt"])
    kept = ~is_new
    if choices.unequal == "common":
        kept[~is_new], left_out = _common(labels[~is_new], of_models=choices.of_models)
    else:
        left_out = _note_uneven(labels[~is_new])
    of_baseline, tried = (np.isin(np.arange(len(attempts)), attempt[rows]) for rows in (kept, of_name))
    both = of_baseline & tried
    if not both.any():
        raise ValueError(_nothing_shared(labels[kept], labels[of_name], name))
    item = pd.factorize(labels["item"])[0]
    answered = np.isin(item, item[both[attempt]])
    counts = np.where(answered, both[attempt], of_baseline[attempt])
    fewer = len(np.unique(attempt[kept & ~counts]))
    unknown = labels[of_name & ~both[attempt]]
    if fewer:
        left_out.append(f"left out: {fewer} results of the baseline at items that {name} answered otherwise")
    if len(unknown):
        groups = abbreviate_list(list(map(str, unknown["group"].unique())))
        left_out.append(f"left out: {len(unknown)} results of {name} that the baseline lacks: {groups}")
    return counts & (kept | of_name), left_out


def _nothing_shared(baseline: Any, new: Any, name: str) -> str:
    """Why a new subject has no attempt in common with a baseline."""
    for column, what in (("image", "an image"), ("group", "a run"), ("item", "an item")):
        one, other = (list(map(str, each[column].unique())) for each in (new, baseline))
        if not set(one) & set(other):
            have = f"got {abbreviate_list(one)}; the baseline has {abbreviate_list(other)}"
            return f"expected {what} of {name} that the baseline has, too, {have}"
    return f"expected a result of {name} on an image under an attack that the baseline has, got none"


def _note_uneven(labels: Any) -> list[str]:
    """A note if the subjects met different attempts."""
    counts = labels.drop_duplicates(["subject", "attempt"]).groupby("subject", sort=False, observed=True).size()
    total = labels["attempt"].nunique()
    if (counts == total).all():
        return []
    shares = abbreviate_list([f"{name} {count / total:.0%}" for name, count in counts.items()])
    return [
        f"subjects met different attacks, kept as asked: {shares} of all. A score is biased if what was run hangs on "
        "how it would have ended"
    ]


def _note_selective(labels: Any, missing: Any) -> list[str]:
    """A note if the share of missing responses differs between the subjects beyond chance."""
    if not missing.any():
        return []
    everyone = labels.groupby("attempt", sort=False, observed=True)["subject"].nunique() == labels["subject"].nunique()
    shared = labels["attempt"].map(everyone).to_numpy(bool)  # who tried less is missing less
    labels, missing = labels[shared], missing[shared]
    place, names = pd.factorize(labels["subject"])
    image, images = pd.factorize(labels["image"])
    counts = np.zeros((len(names), len(images), 2))
    np.add.at(counts, (place, image), np.stack([missing.to_numpy(float), np.ones(len(missing))], 1))
    chance = missing_by_subject(counts[..., 0])
    if not chance < CHANCE:
        return []
    shares = counts[..., 0].sum(1) / counts[..., 1].sum(1)
    order = np.argsort(-shares, kind="stable")
    extremes = ", ".join(f"{names[one]} {shares[one]:.0%}" for one in (order[0], order[-1]))
    return [
        f"what is missing depends on the subject (most and least: {extremes}; p = {chance:.1g}): the scores are of the "
        "responses that are left, and are biased if the missing ones would have been other ones"
    ]
