"""Builds a matrix of responses, with subjects as rows and items as columns, from a results table."""

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

CHANCE = 0.01  # p-value below which a note reports that missingness depends on the subject


class Responses(NamedTuple):
    """Matrix of responses of N subjects (what is ranked) to M items (what the subjects are tested on).

    Attributes:
        values: responses, shape (N, M). 1 is in favour of the subject, 0 against it. NaN is missing.
        subjects: names of the subjects, length N.
        items: names of the items, length M.
        images: image of each item, length M.
        notes: notes on missing, omitted and combined results.
        kind: kind of the subjects: "models", "attacks", "implementations" or "defences".
        shares: rates of samples in favour of the subject, shape (N, M), if there are randomised models. `values` then
            has one random draw for each rate. None if no model is randomised.
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
    """Build the matrix of responses of models, attacks, implementations or defences to images under attack.

    If the subjects are models, a response is 1 if the attack did not fool the model. The response is 0 if the attack
    fooled the model, or if the model misclassifies the clean image. If the subjects are attacks or implementations, a
    response is 1 if the attack fooled the model. If the model misclassifies the clean image, the response is missing.
    An invalid result counts against the model or library that caused it (columns `invalid_by_model` and
    `invalid_by_library`). Other invalid results and all results of failed attacks are missing. Notes report the number
    of missing responses, and whether the number depends on the subject.

    An attack that ran in several libraries counts once, by the strongest implementation on each image, as in a worst
    case. Weak or broken implementations therefore have no effect, and the result does not depend on the order of the
    libraries.

    For a randomised model, the column `draws_fooled` has the rate of fooled samples (NaN for other models). These rates
    are the `shares` of the responses. `values` has one random draw for each rate, which does not depend on the other
    ranked results. If there are several attempts at an image, the attempt with the highest fooled rate counts.

    A worst case of several attacks (`worst-case(A,B)`) is omitted unless there are only worst cases.

    Args:
        results: table with `result_rows.COLUMNS`. Further columns are optional. `norm`, `epsilon`, `parameters` and
            `data` distinguish items. `invalid_by_model` and `invalid_by_library` tell who caused an invalid
            (`violated`) result. `library` and `knowledge` are used in notes. `minimum_norm` marks minimum-norm attacks.
        subjects: kind of subjects to rank. Items are image x attack for "models", image x attack x original model for
            "defences", and image x model for "attacks" and "implementations". Models named "ORIGINAL+DEFENCE" are
            defended models. The undefended models are ranked as the defence "none".
        budget: largest distance that counts as fooled (column `distance`). None means any distance. If a fixed-budget
            attack with a larger radius exceeds this distance, the response is missing, because a success may exist
            within the distance. The distance for a randomised model is known only if at least half of its samples are
            fooled. The results must be in one norm.
        per: unit that counts once: "attack", or "implementation" to count every implementation of an attack. To rank
            "attacks", "implementation" counts every library.
        unequal: treatment of attempts that some subjects lack. "common" omits these attempts, as in CANARY. "keep"
            keeps these attempts, and the responses of subjects without the attempt are missing. Scores are then
            unbiased only if the choice of attempts does not depend on their outcomes.
        original: name of the undefended model if all other models are its defended versions. Needed to rank "defences"
            if the models are not named "ORIGINAL+DEFENCE".

    Returns:
        The responses, with subjects and items in the order of the results. Items without any response are omitted.

    Raises:
        ValueError: If columns are missing, a choice is unknown, or nothing remains.
    """
    choices = Choices(subjects, budget, per, unequal, original)
    return _build(*_rows_that_count(results, choices), choices)


def subjects_of(results: pd.DataFrame, subjects: Subjects) -> pd.Series:
    """Return the subject to which `build_responses` assigns each row of a results table.

    Args:
        results: table with the columns that `build_responses` needs, and a unique index.
        subjects: kind of subjects (see `build_responses`).

    Returns:
        Names of subjects. The index has only the rows of `results` that `build_responses` uses.

    Raises:
        ValueError: If columns are missing, or if no results can be compared.
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
    """Build one matrix of responses per new subject: the baseline's subjects and, in the last row, the new subject.

    Items without a result of the new subject are missing responses. If the new subject has a result for an item, only
    attempts that were made on both the baseline and the new subject count for this item. Otherwise a new model attacked
    by one library would be compared with models attacked by three, which favours the new model. On all other items, all
    results of the baseline count.

    Args:
        results: table with the columns that `build_responses` needs, and a column `new` that is True for new results.
        subjects: kind of subjects (see `build_responses`).
        budget: largest distance that counts as fooled (see `build_responses`). None means any distance.
        per: unit that counts once: "attack" or "implementation" (see `build_responses`).
        unequal: treatment of attempts that some subjects of the baseline lack: "common" or "keep" (see
            `build_responses`).
        original: name of the undefended model if all other models are its defended versions (see `build_responses`).

    Returns:
        A matrix for each new subject. A subject that is also in the baseline is not new. Its rows among the new results
        are omitted, with a note.

    Raises:
        ValueError: If columns are missing, if no subject is new, or if a new subject has no attempt in common with the
            baseline.
    """
    choices = Choices(subjects, budget, per, unequal, original)
    rows = read_rows(results, choices)
    is_new = rows.rows["new"].to_numpy(bool)
    names, known = (list(rows.labels["subject"][which].unique()) for which in (is_new, ~is_new))
    both, new_names = [name for name in names if name in known], [name for name in names if name not in known]
    if not new_names:
        raise ValueError(f"no new {subjects}: the baseline already has {abbreviate_list(both)}")
    matrices = []
    for name in new_names:
        kept, left_out = _shared(rows.labels, is_new, name, choices)
        matrix = _build(rows.only(kept), left_out, choices)
        if name not in matrix.subjects:
            raise ValueError(f"{name} has no response: all are missing ({'; '.join(matrix.notes)})")
        order = np.argsort(np.array(matrix.subjects) == name, kind="stable")
        notes = (
            (f"omitted: the new results of {abbreviate_list(both)}, which the baseline already has",) if both else ()
        )
        matrices.append(_in_rows(matrix, order)._replace(notes=(*matrix.notes, *notes)))
    return tuple(matrices)


def choose_results(results: pd.DataFrame, norm: str | None = None, knowledge: str | None = None) -> pd.DataFrame:
    """Select the rows of a results table by norm and by attacker knowledge.

    Args:
        results: results table. The columns `norm` and `knowledge` are needed only to select by them.
        norm: norm of the attacks. None means any norm.
        knowledge: attacker knowledge, a key of `KNOWLEDGE`. None means any knowledge.

    Raises:
        ValueError: If no result has the norm or the knowledge, or if the knowledge is unknown.
    """
    if knowledge is not None and knowledge not in KNOWLEDGE:
        raise ValueError(f"expected knowledge as one of {', '.join(KNOWLEDGE)}, got {knowledge!r}")
    wanted = {} if norm is None else {"norm": ((norm,), f"results in norm {norm}")}
    wanted |= {} if knowledge is None else {"knowledge": (KNOWLEDGE[knowledge], f"{knowledge} attacks")}
    for column, (values, what) in wanted.items():
        if column not in results:
            raise ValueError(f"the table has no column {column}, which is needed to choose rows")
        have = sorted(set(results[column]))
        results = results.loc[results[column].isin(values)]
        if results.empty:
            raise ValueError(f"expected {what}, got {', '.join(map(str, have))} only")
    return results


def complete_items(responses: Responses) -> Responses:
    """Select the items with responses of all subjects, because means over different items are not comparable.

    Args:
        responses: responses of models, attacks, implementations or defences.

    Returns:
        The responses to the selected items. If items were removed, a note gives the number of remaining items.

    Raises:
        ValueError: If no item has responses of all subjects.
    """
    kept = np.flatnonzero(~np.isnan(responses.values).any(0))
    total = len(responses.items)
    if len(kept) == total:
        return responses
    if not len(kept):
        raise ValueError(f"no item has responses of all {len(responses.subjects)} subjects")
    note = f"means are over the {len(kept)} of {total} items with responses of all subjects"
    return select_items(responses, kept)._replace(notes=(*responses.notes, note))


def select_items(responses: Responses, kept: np.ndarray) -> Responses:
    """Return the responses to some of the items.

    Args:
        responses: responses to M items.
        kept: indices of the items, or a bool mask of shape (M,).
    """
    items, images = (tuple(np.array(part, dtype=object)[kept]) for part in (responses.items, responses.images))
    shares = None if responses.shares is None else responses.shares[:, kept]
    return responses._replace(values=responses.values[:, kept], items=items, images=images, shares=shares)


def of_subjects(responses: Responses, kept: Sequence[int] | np.ndarray) -> Responses:
    """Return the responses of some of the subjects, without items to which none of these subjects has a response.

    Args:
        responses: responses of N subjects.
        kept: indices of the subjects.
    """
    some = _in_rows(responses, kept)
    return select_items(some, np.flatnonzero(~np.isnan(some.values).all(0)))


def _in_rows(responses: Responses, places: Sequence[int] | np.ndarray) -> Responses:
    rows, names = np.asarray(places), tuple(responses.subjects[place] for place in places)
    shares = None if responses.shares is None else responses.shares[rows]
    return responses._replace(values=responses.values[rows], subjects=names, shares=shares)


def check_rankable(responses: Responses) -> None:
    """Raise ValueError if there are fewer than two subjects. The message names a table that shows a single subject."""
    if len(responses.subjects) > 1:
        return
    kind = responses.kind.removesuffix("s")
    by = "models" if is_of_models(responses.kind) else "attacks"
    others = ", and `rank(subjects='attacks')` ranks the attacks" if responses.kind == "models" else ""
    raise ValueError(
        f"expected at least 2 {kind}s to rank, got one: {', '.join(responses.subjects)}. `table(by='{by}')` shows "
        f"its numbers{others}"
    )


def _rows_that_count(results: pd.DataFrame, choices: Choices) -> tuple[ResultRows, list[str]]:
    """Return the rows of a results table that can be compared, and notes on omitted rows."""
    rows = read_rows(results, choices)
    if choices.unequal == "keep":
        return rows, _note_uneven(rows.labels)
    kept, left_out = _common(rows.labels, of_models=choices.of_models)
    return rows.only(kept), left_out


def _build(rows: ResultRows, left_out: list[str], choices: Choices) -> Responses:
    """Build the matrix of responses from comparable rows. If an item has several attempts, the strongest counts."""
    seen = ~rows.missing & rows.value.notna()
    if not seen.any():
        raise ValueError("all responses are missing: the table has no valid result of an attacked image")
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
        notes.append(f"omitted: {', '.join(silent)} (no response to any item)")
    if rows.larger.any():
        notes.append(
            f"{rows.larger.sum()} responses are missing, because the images were fooled only at a radius above "
            "this budget"
        )
    notes += _note_selective(rows.labels, rows.missing)
    texts = (tuple(map(str, each)) for each in (names, items, images))
    return _drawn(Responses(values, *texts, notes=tuple(notes), kind=choices.subjects))


def _drawn(matrix: Responses) -> Responses:
    """Replace each rate by a random draw, and store the rates in `shares`. If all rates are 0 or 1, nothing changes."""
    between = (matrix.values > 0) & (matrix.values < 1)
    if not between.any():
        return matrix
    values = matrix.values.copy()
    for row, column in zip(*between.nonzero(), strict=True):
        # A number in [0, 1) that depends on these two names only, not on the other subjects.
        text = f"{matrix.subjects[row]}\0{matrix.items[column]}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        values[row, column] = number / 2**64 < values[row, column]
    return matrix._replace(values=values, shares=matrix.values)


def _common(labels: Any, *, of_models: bool) -> tuple[np.ndarray, list[str]]:
    """Return a bool mask of the rows whose attempt was made on all subjects, and notes on omitted rows."""
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
            lines.append(f"omitted: {what}: no result {'on' if of_models else 'of'} {lacking}")
    if not kept.any():
        raise ValueError(
            f"all {len(names)} subjects have no results in common ({'; '.join(lines[:2])}): evaluate the missing "
            "results, or rank with unequal='keep'"
        )
    more = [f"omitted: {len(lines) - NAMED} more without results of all subjects"] if len(lines) > NAMED else []
    note = (
        "ranked by the results that all subjects have; unequal='keep' uses all results, and assumes that the "
        "others are missing at random"
    )
    return kept, [*lines[:NAMED], *more, note]


def _shared(labels: Any, is_new: np.ndarray, name: str, choices: Choices) -> tuple[np.ndarray, list[str]]:
    """Return a bool mask of the rows that count for the baseline and one new subject, and notes on omitted rows."""
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
        left_out.append(f"omitted: {fewer} results of the baseline for which {name} has no corresponding result")
    if len(unknown):
        groups = abbreviate_list(list(map(str, unknown["group"].unique())))
        left_out.append(f"omitted: {len(unknown)} results of {name} that the baseline lacks: {groups}")
    return counts & (kept | of_name), left_out


def _nothing_shared(baseline: Any, new: Any, name: str) -> str:
    for column, what in (("image", "image"), ("group", "run"), ("item", "item")):
        one, other = (list(map(str, each[column].unique())) for each in (new, baseline))
        if not set(one) & set(other):
            have = f"got {abbreviate_list(one)}; the baseline has {abbreviate_list(other)}"
            return f"{name} has no {what} in common with the baseline: {have}"
    return f"{name} has no result for an image and attack of the baseline"


def _note_uneven(labels: Any) -> list[str]:
    counts = labels.drop_duplicates(["subject", "attempt"]).groupby("subject", sort=False, observed=True).size()
    total = labels["attempt"].nunique()
    if (counts == total).all():
        return []
    shares = abbreviate_list([f"{name} {count / total:.0%}" for name, count in counts.items()])
    return [
        f"subjects have results for different attacks ({shares} of all), kept as requested. Scores are biased if "
        "the choice of runs depended on their outcomes"
    ]


def _note_selective(labels: Any, missing: Any) -> list[str]:
    """Return a note on missing responses if their rate differs significantly between subjects. Otherwise empty."""
    if not missing.any():
        return []
    everyone = labels.groupby("attempt", sort=False, observed=True)["subject"].nunique() == labels["subject"].nunique()
    shared = labels["attempt"].map(everyone).to_numpy(bool)  # subjects with fewer attempts have fewer missing
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
        f"the rate of missing responses depends on the subject (highest and lowest: {extremes}; p = {chance:.1g}): "
        "the scores use the other responses, and are biased if the missing responses differ systematically"
    ]
