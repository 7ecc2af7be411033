"""From a table of results, one row for each cell and image, to a matrix of responses."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from .dependence import missing_by_subject
from .response_notes import NAMED, is_random, is_undecided, notes_of_rows, some_of
from .row_names import name_rows

Subjects = Literal["models", "attacks", "implementations", "defences"]
Per = Literal["attack", "implementation"]
Unequal = Literal["common", "keep"]
COLUMNS = ("cell", "model", "attack", "implementation", "image", "attacked", "success", "violated")
KNOWLEDGE: Mapping[str, tuple[str, ...]] = {
    "white-box": ("white-box",),
    "black-box": ("score-based", "decision-based", "transfer", "black-box"),
    "score": ("score-based",),
    "decision": ("decision-based",),
    "transfer": ("transfer",),
}
UNDEFENDED = "none"
RADIUS_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-4, 1e-6  # of a budget: those within which an attack keeps to its ball
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
        shares: with a random model the share of each response's draws that are for the subject, shape (N, M), as
            `values`, which has one of these draws; None: `values` is all there is.
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
    """Who did what on which image.

    A model answers right where the attack did not fool it: an image that it gets wrong when clean counts against it. An
    attack or an implementation answers right where it fooled the model; an image that the model gets wrong when clean
    is missing. An invalid result counts against a model that caused it (column `invalid_by_model`), and against a
    library that did (`invalid_by_library`); else it is missing, as is everything of an attack that failed. Notes say
    how much, and whether what is missing depends on the subject.

    An attack that ran in several libraries counts once: on each image the strongest of its implementations answers for
    it, as in a worst case. A library whose implementation is weak or broken then neither dilutes an attack nor gives it
    a second vote; the first by any order of libraries would hang on the name.

    A model that draws random numbers is fooled by a share of its draws (column `draws_fooled`; NaN: it is not random):
    these are the `shares` of the responses, and `values` has one draw of each, 1 with the probability of that share. It
    is the same one whatever else is ranked. Of several attempts at an image the one with the strongest share counts.

    A worst case of several attacks (`worst-case(A,B)`) is ranked among its like only: beside others it is left out.

    Args:
        results: with `COLUMNS`, and `norm`, `epsilon`, `parameters`, `data`, ... where they tell items apart;
            `invalid_by_model` and `invalid_by_library` say whose fault what is `violated` is; `library` and
            `knowledge` are for the notes, `minimum_norm` says whose distances are the smallest found.
        subjects: whose strength is scored; items are image x attack for "models", image x attack x original model for
            "defences", image x model for "attacks" and "implementations". Models named "ORIGINAL+FILE.py:FUNCTION" are
            defended ones; their originals answer as the defence "none".
        budget: largest distance at which an attack counts as having fooled (column `distance`); None: any. An attack
            in a larger ball that was not asked for the smallest change says nothing about it: missing. The distance
            of an example of a random model is known only if half of its draws are fooled. The results are then of
            one norm.
        per: what counts once: an "attack", or every "implementation" of it (for "attacks": every library).
        unequal: what not every subject met is left out ("common", as CANARY has it), or stays and is a missing response
            of the others ("keep"): right only if what was run does not depend on how it would have ended.
        original: for "defences" that are not so named: the model that all others are defences of.

    Returns:
        The matrix, in the order in which subjects and items come in the results; items that nobody has are left out.

    Raises:
        ValueError: if columns are missing, a choice is unknown, or nothing is left.
    """
    judged, left = _rows_that_count(results, subjects, budget, per, unequal, original)
    return _build(judged, subjects, per, left)


def subjects_of(results: pd.DataFrame, subjects: Subjects) -> pd.Series:
    """The subject of each row that counts in `build_responses(results, subjects)`, as it is called there.

    Args:
        results: as for `build_responses`, each row under a label of its own.
        subjects: see there.

    Returns:
        Names, by the labels of those rows of the results that count.

    Raises:
        ValueError: as `build_responses`.
    """
    judged, _ = _rows_that_count(results, subjects, None, "attack", "common", None)
    return judged.parts["subject"]


def build_against(
    results: pd.DataFrame,
    subjects: Subjects = "models",
    budget: float | None = None,
    *,
    per: Per = "attack",
    unequal: Unequal = "common",
    original: str | None = None,
) -> tuple[Responses, ...]:
    """The responses of a baseline and of one newcomer, for each newcomer; gaps of the newcomer are missing responses.

    On an item that the newcomer answered, what it tried and what the baseline tried counts: were the strongest of three
    libraries held against one, a newcomer would look stronger than it is. An item that it did not answer stays as the
    baseline has it.

    Args:
        results: as for `build_responses`, with a column `new`: whether the row is of the newcomers.
        subjects: see there.
        budget: see there.
        per: see there.
        unequal: see there; of the subjects of the baseline.
        original: see there.

    Returns:
        A matrix for each newcomer, which is the last of its subjects. A subject with rows of both kinds is no newcomer:
        its new ones are left out, and a note says so.

    Raises:
        ValueError: as `build_responses`; if nobody is new, or a newcomer shares nothing with the baseline.
    """
    _check(results, subjects, budget, per, unequal, original)
    judged = _read_rows(results, subjects, budget, per, original)
    new = judged.rows["new"].to_numpy(bool)
    names, known = (list(judged.parts["subject"][which].unique()) for which in (new, ~new))
    both, newcomers = [name for name in names if name in known], [name for name in names if name not in known]
    if not newcomers:
        raise ValueError(f"expected {subjects} that the baseline lacks, got {some_of(both)}: it has them")
    matrices = []
    for name in newcomers:
        kept, left = _shared(judged.parts, new, name, unequal, of_models=subjects in ("models", "defences"))
        matrix = _build(judged.only(kept), subjects, per, left)
        if name not in matrix.subjects:
            raise ValueError(
                f"expected a response of {name}, got none: every one is missing ({'; '.join(matrix.notes)})"
            )
        order = [*(place for place, other in enumerate(matrix.subjects) if other != name), matrix.subjects.index(name)]
        notes = (f"left out: the new results of {some_of(both)}: the baseline has them",) if both else ()
        ordered = tuple(matrix.subjects[place] for place in order)
        shares = None if matrix.shares is None else matrix.shares[order]
        every = (*matrix.notes, *notes)
        matrices.append(matrix._replace(values=matrix.values[order], subjects=ordered, notes=every, shares=shares))
    return tuple(matrices)


def _rows_that_count(
    results: pd.DataFrame, subjects: Subjects, budget: float | None, per: Per, unequal: Unequal, original: str | None
) -> tuple["_Rows", list[str]]:
    """What can be set against each other, and notes on what cannot."""
    _check(results, subjects, budget, per, unequal, original)
    judged = _read_rows(results, subjects, budget, per, original)
    if unequal == "common":
        kept, left = _common(judged.parts, of_models=subjects in ("models", "defences"))
        return judged.only(kept), left
    return judged, _uneven(judged.parts)


class _Rows(NamedTuple):
    """Rows of results, what `name_rows` and `_judge` say of each, and notes."""

    rows: Any
    parts: Any
    value: Any
    hidden: Any
    beyond: Any
    notes: list[str]

    def only(self, kept: np.ndarray) -> "_Rows":
        rows, parts, value, hidden, beyond = (each[kept] for each in self[:-1])
        return _Rows(rows, parts, value, hidden, beyond, self.notes)


def _read_rows(results: Any, subjects: Subjects, budget: float | None, per: Per, original: str | None) -> _Rows:
    results, left = _without_worst_cases(results)
    rows, notes = _of_defences(results, original) if subjects == "defences" else (results, [])
    notes = [*left, *notes]
    value, hidden, beyond = _judged(rows, budget, subjects)
    return _Rows(rows, name_rows(rows, subjects, per), value, hidden, beyond, notes)


def _build(judged: _Rows, subjects: Subjects, per: Per, left: list[str]) -> Responses:
    """The matrix of rows that can be set against each other, with its notes."""
    rows, parts, value, hidden, beyond, notes = judged
    matrix = _matrix(parts, value.mask(hidden), "min" if subjects in ("models", "defences") else "max")
    silent = [name for name in parts["subject"].unique() if name not in matrix.subjects]
    notes = [*notes, *notes_of_rows(rows, subjects, per), *left]
    notes += [f"left out: {', '.join(silent)}: no response at all"] if silent else []
    if beyond.any():
        notes.append(f"{beyond.sum()} responses are missing: fooled in a larger ball, not asked about this budget")
    notes += _selective(parts, hidden)
    return _drawn(matrix)._replace(notes=tuple(notes), kind=subjects)


def choose_results(results: pd.DataFrame, norm: str | None = None, knowledge: str | None = None) -> pd.DataFrame:
    """The results of attacks of one kind.

    Args:
        results: with the columns `norm` and `knowledge` if they are asked for.
        norm: only attacks in this one; None: in any.
        knowledge: only attacks that know this much: a key of `KNOWLEDGE`; None: all.

    Raises:
        ValueError: if there is no such kind, or nothing of it.
    """
    if knowledge is not None and knowledge not in KNOWLEDGE:
        raise ValueError(f"expected knowledge {', '.join(KNOWLEDGE)}, got {knowledge!r}")
    wanted = {
        "norm": None if norm is None else (norm,),
        "knowledge": None if knowledge is None else KNOWLEDGE[knowledge],
    }
    for column, values in wanted.items():
        if values is None:
            continue
        if column not in results:
            raise ValueError(f"expected a column {column} to choose by, got a table without")
        have = sorted(set(results[column]))
        results = results.loc[results[column].isin(values)]
        if results.empty:
            what = f"results in norm {norm}" if column == "norm" else f"{knowledge} attacks"
            raise ValueError(f"expected {what}, got {', '.join(map(str, have))} only")
    return results


def complete_items(responses: Responses) -> Responses:
    """The items that every subject has a response to; means over different items cannot be set against one another.

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
    return of_items(responses, kept)._replace(notes=(*responses.notes, note))


def of_items(responses: Responses, kept: np.ndarray) -> Responses:
    """Some of the items.

    Args:
        responses: of any subjects.
        kept: places of those that stay, or for each item whether it does.
    """
    items, images = (tuple(np.array(part, dtype=object)[kept]) for part in (responses.items, responses.images))
    shares = None if responses.shares is None else responses.shares[:, kept]
    return responses._replace(values=responses.values[:, kept], items=items, images=images, shares=shares)


def of_subjects(responses: Responses, kept: Sequence[int] | np.ndarray) -> Responses:
    """Some of the subjects, and the items that one of them has a response to.

    Args:
        responses: of any subjects.
        kept: places of those that stay.
    """
    rows = np.asarray(kept)
    values, shares = responses.values[rows], None if responses.shares is None else responses.shares[rows]
    names = tuple(responses.subjects[place] for place in kept)
    some = responses._replace(values=values, subjects=names, shares=shares)
    return of_items(some, np.flatnonzero(~np.isnan(values).all(0)))


def check_several(responses: Responses) -> None:
    """Two subjects at least, or a sentence that says why there is no ranking.

    Args:
        responses: of any subjects.

    Raises:
        ValueError: if there is one subject only.
    """
    if len(responses.subjects) > 1:
        return
    kind = responses.kind.removesuffix("s")
    by = "models" if responses.kind in ("models", "defences") else "attacks"
    raise ValueError(
        f"one {kind}: nothing to rank it against; `davylamp table FOLDER --by {by}` has the numbers of "
        f"{', '.join(responses.subjects)}, a ranking needs results of a second {kind}"
    )


def _check(results: Any, subjects: str, budget: float | None, per: str, unequal: str, original: str | None) -> None:
    absent = [column for column in COLUMNS if column not in results]
    if absent:
        raise ValueError(f"expected columns {', '.join(COLUMNS)}, got a table without {', '.join(absent)}")
    if not len(results):
        raise ValueError("expected results to rank, got a table without rows")
    choices: Any = (("subjects", subjects, Subjects), ("per", per, Per), ("unequal", unequal, Unequal))
    for name, given, known in choices:
        if given not in get_args(known):
            *others, last = get_args(known)
            raise ValueError(f"expected {name} {', '.join(others)} or {last}, got {given!r}")
    if budget is not None:
        _check_budget(results, budget)
    if original is not None and subjects != "defences":
        raise ValueError(f"expected an original model with subjects defences, got it with {subjects}")


def _check_budget(results: Any, budget: Any) -> None:
    """A distance means something in one norm, and of the model that an example was made on."""
    if "made_on" in results and (results["made_on"] == "original").any():
        kind = "responses to examples of the original"
        raise ValueError(f"expected no budget with {kind}, got {budget}: their distances are those that fool it")
    if isinstance(budget, bool) or not isinstance(budget, (int, float, np.number)) or not 0 < budget < np.inf:
        raise ValueError(f"expected a budget as a positive number, got {budget!r}")
    if "distance" not in results:
        raise ValueError("expected a column distance to hold against the budget, got a table without")
    norms = sorted(set(results["norm"])) if "norm" in results else []
    if len(norms) > 1:
        raise ValueError(f"expected results in one norm with a budget, got {', '.join(norms)}: choose by norm")


def _judged(rows: Any, budget: float | None, subjects: str) -> tuple[Any, Any, Any]:
    """Response of each row, whether it is missing, and whether a larger ball is why."""
    of_models = subjects in ("models", "defences")
    attacked, success = rows["attacked"].astype(bool), rows["success"].astype(bool)
    fooled, beyond = success.astype(float), pd.Series(data=False, index=rows.index)
    of_random = is_random(rows)
    if of_random.any():
        fooled = rows["draws_fooled"].where(of_random, fooled)
    if budget is not None:
        # float32 moves an example that is on the sphere past it: as far as an attack may end, it has kept the budget.
        most = budget * (1 + RADIUS_TOLERANCE) + ABSOLUTE_TOLERANCE
        far = success & (rows["distance"] > most)
        if of_random.any():  # where most draws are not fooled no distance is stored: only a small ball vouches for it
            kept = rows["epsilon"].astype(float) <= most if "epsilon" in rows else False
            far |= of_random & ~success & (fooled > 0) & ~kept
        fooled = fooled.mask(far, 0.0)
        if "minimum_norm" in rows:
            beyond = far & ~rows["minimum_norm"].astype(bool)
    value = (1 - fooled if of_models else fooled).where(attacked & ~rows["violated"].astype(bool), 0.0)
    return value, is_undecided(rows, subjects) | beyond | (False if of_models else ~attacked), beyond


def _drawn(matrix: Responses) -> Responses:
    """One draw of each share, which stays beside it; where all are 0 or 1 the matrix as it is."""
    between = (matrix.values > 0) & (matrix.values < 1)
    if not between.any():
        return matrix
    values = matrix.values.copy()
    for row, column in zip(*between.nonzero(), strict=True):
        values[row, column] = _uniform(matrix.subjects[row], matrix.items[column]) < values[row, column]
    return matrix._replace(values=values, shares=matrix.values)


def _uniform(subject: str, item: str) -> float:
    """A number in [0, 1) that hangs on these two names only, so that who else is ranked changes no draw."""
    digest = hashlib.blake2b(f"{subject}\0{item}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _of_defences(rows: Any, original: str | None) -> tuple[Any, list[str]]:
    """The rows of defended models and of their originals, with the columns `original` and `defence`."""
    names = list(map(str, rows["model"].unique()))
    parted = {name: _parted(name, names) for name in names}
    if original is not None:
        if original not in parted:
            raise ValueError(f"expected the original among {', '.join(parted)}, got {original!r}")
        parted = {name: (original, name if name != original else UNDEFENDED) for name in parted}
    originals = {base for base, defence in parted.values() if defence != UNDEFENDED}
    if not originals:
        if alone := [name for name in names if "+" in name]:
            raise ValueError(f"expected the undefended model of {some_of(alone)} beside it, got none: evaluate it, too")
        raise ValueError(
            "expected defended models as NAME+DEFENCE (`davylamp evaluate --defence`), got none; "
            "give --original NAME if all other models are defences of it"
        )
    rest = [name for name, (base, defence) in parted.items() if defence == UNDEFENDED and base not in originals]
    rows = rows[~rows["model"].isin(rest)]
    base, defence = (rows["model"].map({name: pair[place] for name, pair in parted.items()}) for place in (0, 1))
    notes = [f"left out: {some_of(rest)}: no model with a defence in front of it"] if rest else []
    notes.append(_made_on(rows))
    return rows.assign(original=base, defence=defence), notes


def _made_on(rows: Any) -> str:
    """Whose examples the defended models answered on, by the column `made_on`: their own where there is none."""
    ways = list(map(str, rows["made_on"].unique())) if "made_on" in rows else ["own"]
    if len(ways) > 1:
        raise ValueError(f"expected responses to examples made in one way, got {' and '.join(ways)}; rank them apart")
    if ways == ["original"]:
        return "responses to examples that were made on the original alone: the attacker did not know the defence"
    return "responses to examples that were made on each defended model itself"


def _parted(name: str, names: Sequence[str]) -> tuple[str, str]:
    """Original and defence of a model's name: all that stands behind the shortest beginning that is a model, too."""
    parts = name.split("+")
    for count in range(1, len(parts)):
        base = "+".join(parts[:count])
        if base in names:
            return base, "+".join(parts[count:])
    base, plus, defence = name.rpartition("+")
    return (base, defence) if plus and base and ".py:" in defence else (name, UNDEFENDED)


def _common(parts: Any, *, of_models: bool) -> tuple[np.ndarray, list[str]]:
    """Rows of attempts that every subject made, (rows,) bool, and a note for what was left out."""
    place, names = pd.factorize(parts["subject"])
    attempt, attempts = pd.factorize(parts["attempt"])
    ran: Any = np.zeros((len(names), len(attempts)), bool)
    ran[place, attempt] = True
    kept = ran.all(0)[attempt]
    if kept.all():
        return kept, []
    group, groups = pd.factorize(parts["group"])
    of_attempt = np.zeros(len(attempts), int)
    of_attempt[attempt] = group
    lines = []
    for each, name in enumerate(groups):
        of_group = ran[:, of_attempt == each]
        gone = int((~of_group.all(0)).sum())
        if gone:
            lacking = some_of([str(names[row]) for row in np.flatnonzero(~of_group.all(1))])
            what = name if gone == of_group.shape[1] else f"{gone} of {of_group.shape[1]} responses to {name}"
            lines.append(f"left out: {what}: no result {'on' if of_models else 'of'} {lacking}")
    if not kept.any():
        raise ValueError(
            f"expected something that all {len(names)} subjects met, got nothing ({'; '.join(lines[:2])}): evaluate "
            "what is missing, or rank with --unequal keep"
        )
    more = [f"left out: {len(lines) - NAMED} more that not every subject met"] if len(lines) > NAMED else []
    note = "ranked by what every subject met; --unequal keep ranks by all, and takes the rest for missing at random"
    return kept, [*lines[:NAMED], *more, note]


def _shared(
    parts: Any, new: np.ndarray, newcomer: str, unequal: str, *, of_models: bool
) -> tuple[np.ndarray, list[str]]:
    """Rows of the baseline and of a newcomer that can be set against each other, (rows,) bool, and notes."""
    of_newcomer = new & (parts["subject"] == newcomer).to_numpy()
    attempt, attempts = pd.factorize(parts["attempt"])
    kept, left = np.zeros(len(parts), bool), []
    if unequal == "common":
        kept[~new], left = _common(parts[~new], of_models=of_models)
    else:
        kept[~new], left = True, _uneven(parts[~new])
    of_baseline, tried = (np.zeros(len(attempts), bool) for _ in range(2))
    of_baseline[attempt[kept]], tried[attempt[of_newcomer]] = True, True
    both = of_baseline & tried
    if not both.any():
        raise ValueError(_apart(parts[kept], parts[of_newcomer], newcomer))
    item, items = pd.factorize(parts["item"])
    answered = np.zeros(len(items), bool)
    answered[item[both[attempt]]] = True
    counts = np.where(answered[item], both[attempt], of_baseline[attempt])
    fewer = len(np.unique(attempt[kept & ~counts]))
    unknown = parts[of_newcomer & ~both[attempt]]
    kept = counts & (kept | of_newcomer)
    if fewer:
        left.append(f"left out: {fewer} results of the baseline at items that {newcomer} answered otherwise")
    if len(unknown):
        groups = some_of(list(map(str, unknown["group"].unique())))
        left.append(f"left out: {len(unknown)} results of {newcomer} that the baseline lacks: {groups}")
    return kept, left


def _apart(baseline: Any, new: Any, newcomer: str) -> str:
    """Why a newcomer shares nothing with a baseline."""
    for column, what in (("image", "an image"), ("group", "a run"), ("item", "an item")):
        one, other = (list(map(str, each[column].unique())) for each in (new, baseline))
        if not set(one) & set(other):
            have = f"got {some_of(one)}; the baseline has {some_of(other)}"
            return f"expected {what} of {newcomer} that the baseline has, too, {have}"
    return f"expected a result of {newcomer} on an image under an attack that the baseline has, got none"


def _uneven(parts: Any) -> list[str]:
    """A note if the subjects met different attempts."""
    counts = parts.drop_duplicates(["subject", "attempt"]).groupby("subject", sort=False, observed=True).size()
    total = parts["attempt"].nunique()
    if (counts == total).all():
        return []
    shares = some_of([f"{name} {count / total:.0%}" for name, count in counts.items()])
    return [
        f"subjects met different attacks, kept as asked: {shares} of all. A score is biased if what was run hangs on "
        "how it would have ended"
    ]


def _matrix(parts: Any, value: Any, strongest: str) -> Responses:
    """Subjects by items; of several responses to an item the strongest attempt's."""
    seen = value.notna()
    if not seen.any():
        raise ValueError("expected results of attacked images, got none")
    answered = parts[seen]
    place, names = pd.factorize(answered["subject"])
    item, items = pd.factorize(answered["item"])
    values = np.full((len(names), len(items)), np.nan)
    # fmin and fmax prefer a number to NaN.
    (np.fmin if strongest == "min" else np.fmax).at(values, (place, item), value[seen].to_numpy())
    first = np.zeros(len(items), int)
    first[item[::-1]] = np.arange(len(item))[::-1]  # of several rows the last to be written: the first
    images = answered["image"].iloc[first]
    return Responses(values, tuple(map(str, names)), tuple(map(str, items)), tuple(map(str, images)))


def _selective(parts: Any, hidden: Any) -> list[str]:
    """A note if the share of missing responses differs between the subjects beyond chance."""
    if not hidden.any():
        return []
    everyone = parts.groupby("attempt", sort=False, observed=True)["subject"].nunique() == parts["subject"].nunique()
    shared = parts["attempt"].map(everyone).to_numpy(bool)  # who tried less is missing less
    parts, hidden = parts[shared], hidden[shared]
    place, names = pd.factorize(parts["subject"])
    image, images = pd.factorize(parts["image"])
    counts = np.zeros((len(names), len(images), 2))
    np.add.at(counts, (place, image), np.stack([hidden.to_numpy(float), np.ones(len(hidden))], 1))
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


def _without_worst_cases(results: Any) -> tuple[Any, list[str]]:
    """What is left without results of several attacks together, where there are others; and a note that says so.

    Such a result says again what those of its attacks say, and no attack by itself could do as much.
    """
    names = [name for name in results["attack"].unique() if str(name).startswith("worst-case(")]
    together = results["attack"].isin(names).to_numpy(bool)
    if not together.any() or together.all():
        return results, []
    why = "several attacks, each on the images that those before it left, and no single one"
    note = f"left out: {some_of(names)}: {why}"
    return results[~together], [note]
