"""A results folder as pandas tables. There is a row for each run and image, with columns that describe the run."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...errors import InvalidInput, Unavailable
from ..attack_run import AttackRun, ModelOnData, call_as, tell_apart
from ..defence_pairs import named_originals
from .checksummed import Record
from .columns import COVERAGE_BITS
from .image_results import DETECTED, SHARES, results_of
from .other_records import fit_costs
from .record_validation import read_records, unknown_attack
from .results import Results, as_results
from .store import Kind, ResultsStore, is_selected
from .stored_columns import HEAVY
from .transfers import transferred_of

if TYPE_CHECKING:
    import pandas as pd

OUTCOMES = ("image", "index", "label", "attacked", "success", "violated", "violations", "distance", SHARES)
_TRANSFERRED = ("index", "label", "adv_predicted", "adv_probability", SHARES, DETECTED)
_PLACE = ["cell", "index"]
_ORDER = ["model", "attack", "implementation", "cell"]


def load(
    folder: str | os.PathLike[str], *, heavy: bool = False, columns: Collection[str] | None = None
) -> "pd.DataFrame":
    """Load the results of all finished runs of a results folder, with a row for each run and image.

    These columns describe the run:

    - `cell`: key of the run.
    - `model`: name of the model. If one name has several versions, with the first digits of the digest.
    - `implementation`, `attack`: names of the implementation and the attack. If there is a surrogate, it is part of the
      name.
    - `knowledge`, `minimum_norm`, `library`, `norm`, `targeted`, `seed`, `data`, `pixels`, `model_digest`,
      `data_digest`.
    - `epsilon`: the radius. NaN without a radius. For an attack at saturation, it is the given limit, and `radius` is
      the radius that was found.
    - `parameters`: JSON.
    - `version`: version of the library, or of a user's code.

    The columns of the records follow: `image`, `index`, `label`, `attacked`, `success`, `violated`, `robust`,
    `distance` (inf: not fooled, 0: misclassified when clean), `forwards`, ..., and one for each metric, by symbol.
    `invalid_by_model` and `invalid_by_library` tell whether the model or the library caused an invalid (`violated`)
    result.

    Args:
        folder: a results folder of `davylamp evaluate`.
        heavy: whether to include logits, activation maps and pictures.
        columns: columns of the records to include in addition to `index`. None for all.

    Returns:
        The table. `attrs["damaged"]` lists files that were omitted as damaged. `attrs["failed"]` has the failed runs by
        key, with the reason. `attrs["unknown"]` has the runs that were omitted because this version of davylamp does
        not have their attack.

    Raises:
        Unavailable: if there is no such folder, or no run in it.
        StoreMismatch: if the folder was written in a different format.
    """
    import pandas as pd

    asked = None if columns is None else {"index", *columns} - (set() if heavy else {*HEAVY})
    left_out: dict[str, Any] = {"damaged": [], "failed": {}, "unknown": {}}
    done: list[tuple[AttackRun, Mapping[str, Any], pd.DataFrame]] = []
    store = ResultsStore(folder, create=False)
    for key, record in read_records(store, "cells", asked, damaged=left_out["damaged"]):
        cell = AttackRun.from_record(record.meta)
        if not is_selected(folder, cell.subject.key):
            continue
        if record.failed:
            left_out["failed"][key] = record.meta["reason"]
        elif why := unknown_attack(cell):
            left_out["unknown"][key] = why
        else:
            done.append((cell, record.meta, _rows(record, heavy=heavy, columns=asked)))
    if not done:
        raise _none_finished(folder, left_out)
    names = tell_apart(cell.subject for cell, _, _ in done)
    frames = [_frame(call_as(cell, names), meta, rows) for cell, meta, rows in done]
    table = pd.concat(frames, ignore_index=True).sort_values([*_ORDER, "index"], ignore_index=True)
    table.attrs.update(left_out)
    return table


def load_clean(folder: str | os.PathLike[str], *, heavy: bool = False) -> "pd.DataFrame":
    """Load the predictions on clean images, with a row for each model and image.

    Columns: `model`, `data`, `image`, `index`, `label`, `predicted`, `CA` (1 if the prediction is correct) and `CC`
    (the confidence in the label).

    Args:
        folder: a results folder.
        heavy: whether to include logits, activation maps and pictures.
    """
    return _joined(
        _rows(record, heavy=heavy).assign(
            subject=record.meta["key"], model=record.meta["subject"]["model"], data=record.meta["subject"]["data"]
        )
        for record in _finished(folder, "clean")
    )


def load_transfer(folder: str | os.PathLike[str]) -> "pd.DataFrame":
    """Load transfer results: the prediction of a model for each example that was made on another model.

    Columns: `cell` (key of the run that made the example), `made_on`, `tested_on` (names of models), `implementation`,
    `index`, `label` and `adv_predicted` (the prediction).
    """
    return _joined(
        _rows(record, heavy=True).assign(
            cell=cell.key,
            made_on=cell.subject.model,
            tested_on=record.meta["subject"]["model"],
            implementation=cell.attack,
        )
        for record in _finished(folder, "transfer")
        for cell in [AttackRun.from_record(record.meta)]
    )


def load_outcomes(source: "str | PathLike[str] | Results") -> "pd.DataFrame":
    """Load the columns of `load` that rankings need. This takes a tenth of the memory of `load`.

    As in tables, each model has a unique name, repeated images count once, and results of code that was edited later
    are omitted. Texts, and values that are the same for all images of a run, are pandas categories. The images of a run
    have the order of its record. The column `draws_fooled` exists only if there are random models.

    Args:
        source: a results folder of `davylamp evaluate`, or results that were already read.

    Returns:
        The table, with the `attrs` of `load`.

    Raises:
        Unavailable: if there is no such folder, or no finished run in it.
        StoreMismatch: if the folder was written in a different format.
    """
    outcomes = as_results(source)
    left_out: dict[str, Any] = {"damaged": [*outcomes.damaged]}
    left_out["failed"] = {cell.key: why for cell, why in outcomes.failed}
    left_out["unknown"] = {cell.key: why for cell, why in outcomes.unknown}
    if not outcomes.done:
        raise _none_finished(outcomes.store.folder, left_out)
    data: dict[str, str] = {}  # the first name of each set of images
    for each in outcomes.done:
        data.setdefault(each.cell.subject.data_digest, each.cell.subject.data_name)
    parts = []
    for each in outcomes.done:
        about = run_columns(each.cell) | {"target": each.cell.target, "data": data[each.cell.subject.data_digest]}
        kept = {name: each.columns[name] for name in OUTCOMES if name in each.columns and name != "violations"}
        parts.append((about, kept | {"violated": each.results.invalid} | each.results.faults))
    table = _compact(sorted(parts, key=lambda part: tuple(part[0][name] for name in _ORDER)))
    table.attrs.update(left_out)
    return table


def run_columns(cell: AttackRun) -> dict[str, Any]:
    """Return the columns of `load` that are the same for all images of a run."""
    row, epsilon = cell.row, cell.as_planned.threat_model.epsilon
    return {
        "cell": cell.key,
        "subject": cell.subject.key,
        "model": cell.subject.name,
        "implementation": cell.title,
        "attack": cell.attack_title,
        "knowledge": cell.knowledge,
        "minimum_norm": cell.search.attack_kind(row) == "minimum-norm",
        "library": row.library,
        "norm": cell.threat_model.norm,
        "epsilon": float("nan") if epsilon is None else epsilon,
        "targeted": cell.threat_model.targeted,
        "parameters": json.dumps(dict(cell.parameters), sort_keys=True),
        "seed": cell.seed,
        "data": cell.subject.data_name,
        "pixels": cell.pixels,
        "model_digest": cell.subject.model_digest,
        "data_digest": cell.subject.data_digest,
        "version": cell.version,
    }


def results_on_original(
    folder: str | os.PathLike[str], results: "pd.DataFrame", originals: Mapping[str, str]
) -> "pd.DataFrame":
    """Return the results of undefended models, and of defended models on the same examples.

    The examples are those of the undefended models. Each example has a row for its undefended model, and one for each
    defended model on which it was tested. Images that the undefended model misclassifies have no example. They are
    omitted for all models.

    A defended model is fooled if it classifies the clean image correctly, but the example wrongly or with non-finite
    logits. For a random model, `draws_fooled` is the rate of its samples that are wrong on the example. It is NaN for
    other models, and for records of earlier versions.

    Args:
        folder: a results folder, evaluated with `--examples original` or `both`.
        results: the table of `load`, or some of its rows.
        originals: name of the undefended model, by name of the defended model.

    Returns:
        The rows, with the columns of `results` and the column `made_on`, which is "original". Empty if no example was
        tested on a defended model.
    """
    import pandas as pd

    shown, clean = _shown_to(folder, originals), _right_when_clean(folder)
    attacked: Any = results[results["attacked"].astype(bool) & results["model"].isin(set(originals.values()))]
    if not shown.empty and shown["share"].notna().any() and SHARES not in attacked:
        attacked = attacked.assign(**{SHARES: float("nan")})
    rows: Any = results.iloc[:0]
    if not (shown.empty or clean.empty):
        rows = attacked.drop(columns="model").merge(shown, on=_PLACE).merge(clean, on=["model", "data", "image"])
    if rows.empty:
        return results.iloc[:0].assign(made_on="original")
    rows = rows.assign(attacked=rows["right"], success=rows["right"] & (rows["shown"] != rows["label"]))
    if SHARES in rows:
        rows[SHARES] = rows["share"]
    if "invalid_by_model" in rows:  # by the undefended model: no example was tested
        rows["invalid_by_model"] = False
    both = pd.concat([attacked, rows[list(attacked.columns)]], ignore_index=True).assign(made_on="original")
    both.attrs.update(results.attrs)
    return both


def choose_examples(
    folder: str | os.PathLike[str],
    results: "pd.DataFrame",
    original: str | None = None,
    examples: Literal["defended", "original"] | None = None,
) -> "tuple[pd.DataFrame, str]":
    """Return the results of defended models on one kind of examples.

    The examples are made on each defended model itself, or on its undefended model.

    Args:
        folder: a results folder.
        results: the table of `load`, or some of its rows.
        original: the undefended model of all other models. None to derive it from the model names.
        examples: "defended" for examples made on each defended model, "original" for those made on its undefended
            model. None selects "defended" if defended models were attacked, otherwise "original".

    Returns:
        The rows. Also a note if there are examples of the other kind, otherwise "".

    Raises:
        InvalidInput: if there are no examples of this kind.
    """
    if examples not in (None, "defended", "original"):
        raise InvalidInput(f"expected examples as defended or original, got {examples!r}")
    models = (ModelOnData(**record.meta["subject"]).model for record in _finished(folder, "clean", ()))
    names = list(dict.fromkeys(models))
    known = named_originals(names) if original is None else {name: original for name in names if name != original}
    shown = results_on_original(folder, results, known)
    are_attacked = bool(results["model"].isin(set(known)).any())
    if examples == "original" and shown.empty:
        raise InvalidInput(
            "no examples of the undefended model were tested on defended models; evaluate with `examples='both'`"
        )
    if examples == "defended" and not are_attacked:
        raise InvalidInput("no examples were made on defended models; use examples='original'")
    if examples == "original" or (examples is None and not are_attacked and not shown.empty):
        return shown, ""
    both = not shown.empty and examples is None
    return (
        results,
        "the folder also has examples made on the undefended model; examples='original' ranks by these" if both else "",
    )


def check_made_alike(baseline: "pd.DataFrame", new: "pd.DataFrame") -> None:
    """Check that two folders have the same kind of examples of defended models.

    Raises:
        InvalidInput: if one folder has examples made on defended models, and the other has examples made on undefended
            ones.
    """
    ways = ["original" if "made_on" in each else "defended" for each in (baseline, new)]
    if ways[0] != ways[1]:
        got = f"{ways[0]} in the baseline and {ways[1]} in the new results"
        raise InvalidInput(f"expected the same kind of examples in both folders, got {got}; set `examples`")


def _none_finished(folder: str | os.PathLike[str], left_out: Mapping[str, Collection[str]]) -> Unavailable:
    """Build the error for a folder without a finished run. The message has the numbers of failed and damaged runs."""
    failed, damaged, unknown = (len(left_out[name]) for name in ("failed", "damaged", "unknown"))
    known = f"{failed} failed, {damaged} damaged, {unknown} of unknown attacks"
    known = known if failed or damaged or unknown else "it is empty"
    return Unavailable(f"no finished runs in {os.fspath(folder)} ({known})")


def _finished(folder: str | os.PathLike[str], kind: Kind, columns: Collection[str] | None = None) -> Iterator[Record]:
    for key, record in read_records(ResultsStore(folder, create=False), kind, columns):
        if not record.failed and is_selected(folder, key.rpartition("-")[2]):  # KEY, or for transfers RUN-KEY
            yield record


def _rows(record: Record, *, heavy: bool, columns: Collection[str] | None = None) -> "pd.DataFrame":
    """Return the table of a record, with all or some of its columns."""
    dropped = {*COVERAGE_BITS, *(() if heavy else HEAVY)}
    names = [name for name in record.table.column_names if name not in dropped]
    return record.table.select([name for name in names if columns is None or name in columns]).to_pandas()


def _frame(cell: AttackRun, meta: Mapping[str, Any], rows: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    about = {**run_columns(cell), **fit_costs(meta)}
    if cell.search.kind == "at-saturation":
        about["radius"] = cell.threat_model.epsilon
    if {"violated", "violations"} <= set(rows):
        rows = rows.assign(**results_of({name: rows[name].to_numpy() for name in ("violated", "violations")}).faults)
    return pd.concat([pd.DataFrame(about, index=rows.index), rows], axis=1)


def _joined(frames: Iterator["pd.DataFrame"]) -> "pd.DataFrame":
    import pandas as pd

    known = [*frames]
    return pd.concat(known, ignore_index=True) if known else pd.DataFrame()


def _shown_to(folder: str | os.PathLike[str], originals: Mapping[str, str]) -> "pd.DataFrame":
    """Return the predictions of defended models on the examples of undefended models.

    Columns: `cell` (key of the run that made the examples), `index`, `model` (the defended model), `shown` (its
    prediction for the example, NaN for non-finite logits), and `share` (for a random model, the rate of wrong samples;
    NaN if not stored).
    """
    import pandas as pd

    frames = []
    for record in _finished(folder, "transfer", _TRANSFERRED):
        cell, model = AttackRun.from_record(record.meta), record.meta["subject"]["model"]
        if originals.get(model) == cell.subject.model:
            seen = transferred_of(record)
            share = float("nan") if seen.share is None else seen.share
            about = {"cell": cell.key, "index": record.table["index"].to_numpy(), "model": model}
            frames.append(pd.DataFrame({**about, "shown": seen.predicted, "share": share}))
    return _joined(iter(frames))


def _right_when_clean(folder: str | os.PathLike[str]) -> "pd.DataFrame":
    """Return whether each model classifies each clean image correctly.

    Columns: `model`, `data`, `image`, and `right`, bool.
    """
    clean: Any = load_clean(folder)
    if clean.empty:
        return clean
    clean = clean.drop_duplicates(["model", "data", "image"])
    return clean.assign(right=clean["predicted"] == clean["label"])[["model", "data", "image", "right"]]


def _compact(parts: Sequence[tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]) -> "pd.DataFrame":
    """Join the rows of several runs.

    Texts, and values that are the same for all images of a run, become pandas categories.

    Args:
        parts: for each run, the values that are the same for all its images, and its arrays, (n,) each. All runs have
            the same names, except that `draws_fooled` may be missing. It is then NaN.
    """
    import pandas as pd

    if any(SHARES in arrays for _, arrays in parts):
        parts = [(about, {SHARES: np.full(len(arrays["attacked"]), np.nan), **arrays}) for about, arrays in parts]
    (about, arrays), *_ = parts
    sizes = [len(columns["attacked"]) for _, columns in parts]
    frame: dict[str, Any] = {}
    for name in about:
        values = [facts[name] for facts, _ in parts]
        if isinstance(values[0], bool):
            frame[name] = np.repeat(values, sizes)
            continue
        code, different = pd.factorize(np.array(values, dtype=None if isinstance(values[0], float) else object))
        frame[name] = pd.Categorical.from_codes(np.repeat(code.astype(np.int32), sizes), different)
    for name in arrays:
        columns = [each[name] for _, each in parts]
        frame[name] = _texts(columns) if columns[0].dtype == object else np.concatenate(columns)
    return pd.DataFrame(frame)


def _texts(columns: Sequence[np.ndarray]) -> Any:
    """Convert texts of several runs to categories. This is fast because most runs have the same texts."""
    import pandas as pd

    different = {id(column): column for column in columns}
    code, names = pd.factorize(np.concatenate([*different.values()]))
    ends = np.cumsum([len(column) for column in different.values()])[:-1]
    codes = dict(zip(different, np.split(code.astype(np.int32), ends), strict=True))
    return pd.Categorical.from_codes(np.concatenate([codes[id(column)] for column in columns]), names)
