"""Matrices of mean metrics: for each model over the same attacks, or for each attack over the same models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ...adapters.display_text import format_threat_labels
from ...adapters.threat_model import NORMS
from ...conventions import KNOWLEDGE
from ...errors import DavylampError, InvalidInput, UnknownName, Unsupported
from ...metrics import METRICS
from ..defence_pairs import named_originals
from ..store.notes import omit_undeclared, unmeasured_line
from ..store.results import Results, RunResult, as_results, distinguishing_settings, read_outcomes
from ..store.stored_columns import hold_columns, join_columns
from .defence_table import build_defence
from .groups import Knowledge, distinguishing_text, shared_settings, threat_labels
from .symbols import drop_absent
from .table import build_table

Per = Literal["attack", "implementation"]
Subjects = Literal["models", "attacks", "implementations", "defences"]
LAYERS: tuple[Knowledge, ...] = ("white-box", "black-box")
_QUERIES = ("QNC_F", "QNC_B")
_RATES = tuple(symbol for symbol, record in METRICS.items() if record.invalid == "not fooled")  # NaN if undecided
_NAMED = 4  # names in a note
_WAYS = {"defended": "each defended model itself", "original": "the undefended model"}
_MADE_ON = {"defended": "own", "original": "original"}  # in tables of defences


class MetricMatrix(NamedTuple):
    """Means of metrics, which a ranking is computed from.

    Args:
        frame: a row for each model, attack or defence, and a column for each metric that is defined for all rows.
        notes: sentences on what was omitted or averaged.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]


def build_layers(  # noqa: PLR0913 - the data by position, the choices by keyword
    folder: str | PathLike[str],
    subjects: Subjects,
    symbols: Sequence[str],
    *,
    per: Per = "attack",
    norm: str | None = None,
    knowledge: Knowledge | None = None,
    original: str | None = None,
    examples: Literal["defended", "original"] | None = None,
    least: int = 2,
) -> dict[Knowledge, MetricMatrix]:
    """Build a matrix of means for white-box attacks and for black-box attacks separately, as in CANARY.

    Args:
        folder: a results folder, or a CSV table of metrics. A CSV table has no attacks, so there is only one matrix.
        subjects: kind of the rows: "models", "attacks", "implementations" or "defences".
        symbols: symbols of metrics.
        per: see `build_matrix`.
        norm: see `build_matrix`.
        knowledge: kind of attacks to include. None for both, as far as the folder has them.
        original: see `build_defence_matrix`.
        examples: see `build_defence_matrix`.
        least: smallest number of rows of a CSV table.

    Returns:
        The matrices by kind of attacks, white-box first. If only one can be built, its notes give the reason why the
        other is missing. The matrix of a CSV table is returned as "white-box".

    Raises:
        DavylampError: the errors of `build_matrix`, `build_defence_matrix` and `read_matrix`, if no matrix can be
            built.
    """
    if Path(folder).suffix == ".csv":
        return {LAYERS[0]: read_matrix(Path(folder), least)}
    _check_norm(norm)  # before reading files
    defences = subjects == "defences"
    # Metrics of defences need logits.
    read = read_outcomes(folder, keep_logits=lambda _: True) if defences else as_results(folder, symbols)
    outcomes, undeclared = omit_undeclared(read)

    def build(layer: Knowledge | None) -> MetricMatrix:
        kind: Any = {"norm": norm, "knowledge": layer}
        if defences:
            matrix = build_defence_matrix(outcomes, symbols, original=original, examples=examples, **kind)
            return matrix._replace(notes=(*matrix.notes, *undeclared))
        rows = "models" if subjects == "models" else "attacks"
        one = "implementation" if subjects == "implementations" else per
        matrix = build_matrix(outcomes, symbols, rows=rows, per=one, **kind)
        matrix = matrix._replace(notes=(*matrix.notes, *undeclared))
        if len(matrix.frame.columns) == len(symbols):
            return matrix
        kept = (outcomes.store.folder / "images").is_dir()
        lacking = unmeasured_line([each.cell for each in _in_norm(outcomes, norm)], folder, kept=kept)
        return matrix._replace(notes=(*matrix.notes, *filter(None, [lacking])))

    have = {outcome.cell.knowledge for outcome in _in_norm(outcomes, norm)}
    layers: list[Knowledge] = [knowledge] if knowledge else [layer for layer in LAYERS if have & set(KNOWLEDGE[layer])]
    if len(layers) == 1:
        return {layers[0]: build(layers[0])}
    matrices: dict[Knowledge, MetricMatrix] = {}
    reasons: dict[Knowledge, DavylampError] = {}
    for layer in layers:
        try:
            matrices[layer] = build(layer)
        except (InvalidInput, Unsupported) as error:
            reasons[layer] = error
    if not matrices:
        raise next(iter(reasons.values()))
    notes = tuple(f"no ranking by {layer} attacks: {error}" for layer, error in reasons.items())
    return {layer: matrix._replace(notes=(*matrix.notes, *notes)) for layer, matrix in matrices.items()}


def build_matrix(
    folder: str | PathLike[str] | Results,
    symbols: Sequence[str],
    *,
    rows: Literal["models", "attacks"] = "models",
    per: Per = "attack",
    norm: str | None = None,
    knowledge: Knowledge | None = None,
) -> MetricMatrix:
    """Compute the mean of each metric, for models over attacks or for attacks over models.

    The mean of a model is over the attacks that ran on every model; the mean of an attack is over the models on which
    every attack ran. As in CANARY (section 3.4), white-box and black-box attacks are never averaged together. If a
    metric is undefined for an attack on some model, the attack is omitted from the mean of this metric. Invalid results
    are missing values: neither fooled nor robust.

    An attack that ran in several libraries counts once. On each image, the example that fooled the model at the
    smallest distance counts. If no example fooled the model, the first valid example counts.

    Args:
        folder: path of a results folder, or its `Results` with transfers (`as_results(folder, ["OTR"])`).
        symbols: symbols of metrics. "QN" is half of forward plus backward passes, or the forward passes of an attack
            without backward passes. Symbols that the folder lacks are omitted.
        rows: kind of the rows: "models" or "attacks".
        per: "attack" to combine the libraries of an attack, as described above. "implementation" to count each
            implementation.
        norm: norm of the attacks; None for all norms.
        knowledge: kind of attacks to include. None for white-box attacks, with a note on the others; if there are no
            white-box attacks, black-box attacks.

    Raises:
        UnknownName: if there is no such norm.
        Unsupported: if no results match, or if no attack or model is common to all rows.
        InvalidInput: if no metric is defined for all rows.
        Unavailable: if there is no such folder, or the folder has no run.
    """
    _check_norm(norm)
    outcomes = as_results(folder, symbols)
    done, notes = _of_one_kind(_in_norm(outcomes, norm), knowledge)
    if per == "attack" and rows == "attacks":
        done, joined = _strongest(done)
        notes += joined
    done, dropped = _common(done, rows)
    notes += dropped
    if per == "attack" and rows == "models":
        done, joined = _strongest(done)
        notes += joined
    violations = int(sum(outcome.results.undecided_fooled.sum() for outcome in done))
    if violations:
        notes.append(f"{violations} invalid results are missing: they count neither as fooled nor as robust")
    targeted = list(dict.fromkeys(_attack_name(outcome) for outcome in done if outcome.cell.threat_model.targeted))
    if targeted and any(not outcome.cell.threat_model.targeted for outcome in done):
        notes.append(f"targeted and untargeted attacks are averaged together; targeted: {_some(targeted)}")
    alias = {outcome.cell.title: outcome.cell.attack_title for outcome in done} if per == "attack" else {}
    kept = replace(outcomes, done=tuple(map(_without_violations, done)), failed=())
    columns, more = _columns(kept, symbols, rows, alias)
    return MetricMatrix(columns, (*notes, *more))


def build_defence_matrix(
    folder: str | PathLike[str] | Results,
    symbols: Sequence[str],
    *,
    original: str | None = None,
    examples: Literal["defended", "original"] | None = None,
    norm: str | None = None,
    knowledge: Knowledge | None = None,
) -> MetricMatrix:
    """Compute the mean effects of defences, over the undefended models and attacks that all defences have in common.

    As in CANARY (section 3.1.4), accuracy, F1, confidence, rectified and sacrificed images are computed on clean
    images, and other metrics on attacks. An attack that ran in several libraries counts once, with the mean over them.

    Args:
        folder: path of a results folder, or its `Results` with logits (see `read_outcomes`).
        symbols: symbols of `build_defence`. Symbols that the folder lacks are omitted.
        original: name of the undefended model of all other models. None to pair models by their names
            "ORIGINAL+DEFENCE".
        examples: "defended" for examples that were made on the defended models. "original" for examples that were made
            on the undefended model and tested on the defended models. None for "defended" if such examples exist.
        norm: norm of the attacks; None for all norms.
        knowledge: see `build_matrix`.

    Raises:
        UnknownName: if there is no such norm or model.
        Unsupported: if no results match, or if no undefended model and attack are common to all defences.
        InvalidInput: if there is no defended model, or if a defended and its undefended model have different images.
        Unavailable: if there is no such folder, or the folder has no run.
    """
    _check_norm(norm)
    outcomes = folder if isinstance(folder, Results) else read_outcomes(folder, keep_logits=lambda _: True)
    done, notes = _of_one_kind(_in_norm(outcomes, norm), knowledge)
    outcomes = replace(outcomes, done=tuple(done), failed=())
    records = []
    for (defence, base), name in _defended(
        sorted({each.name for each in outcomes.subjects.values()}), original
    ).items():
        for row in build_defence(outcomes, base, name, bootstrap=0).rows:
            clean = row.labels["examples"] == "clean"
            run = "" if clean else _name({"implementation": row.labels["examples"], **row.labels})
            about = {"defence": defence, "original": base, "attack": run.partition(":")[2], "try": run}
            about["made_on"] = row.labels["made_on"]
            records += [
                {**about, "symbol": symbol, "value": estimate.value}
                for symbol, estimate in row.metrics.items()
                if symbol in symbols and (METRICS[symbol].group == "defence") == clean
            ]
    records, note = _made_one_way(records, examples)
    notes += note
    tries = pd.DataFrame(records).groupby("symbol") if records else []
    met = {symbol: cells.pivot(index=["original", "attack", "try"], columns="defence", values="value")
           for symbol, cells in tries}  # fmt: skip
    frame, fewer, gone = _means_of_common({symbol: met[symbol] for symbol in symbols if symbol in met})
    if frame.empty:
        raise Unsupported(
            "no pair of undefended model and attack has results for all defences; evaluate the missing runs"
        )
    for (count, total), few in fewer.items():
        notes.append(
            f"{', '.join(few)}: averaged over {count} of {total} pairs of model and attack, namely those with "
            "a value for all defences"
        )
    notes += (
        [f"omitted: {', '.join(gone)}: for every pair of model and attack, undefined for at least one defence"]
        if gone
        else []
    )
    return MetricMatrix(frame, tuple(notes))


def _means_of_common(values: Mapping[str, Any]) -> tuple[pd.DataFrame, dict[tuple[int, int], list[str]], list[str]]:
    """Return the mean of each metric over the rows in which every subject has a value.

    All rows with equal first two index levels count as one.

    Args:
        values: a pandas table for each symbol, with a column for each subject and a row for each attack or model.

    Returns:
        A row for each subject and a column for each symbol; the symbols for which rows were omitted, by the number of
        rows used and the number of all rows; and the symbols for which no row was left.
    """
    columns, fewer, gone = {}, {}, []
    for symbol, tries in values.items():
        whole = tries.dropna()
        if whole.empty:
            gone.append(symbol)
            continue
        levels = list(range(min(2, whole.index.nlevels)))
        columns[symbol] = whole.groupby(level=levels).mean().mean()
        if len(whole) < len(tries):
            fewer.setdefault((len(whole), len(tries)), []).append(symbol)
    return pd.DataFrame(columns), fewer, gone


def _made_one_way(
    records: list[dict[str, Any]], examples: Literal["defended", "original"] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records on clean images and on one kind of examples, with a note that names the kind."""
    made_on = {record["made_on"] for record in records}
    ways = [way for way, label in _MADE_ON.items() if label in made_on]
    if examples is not None and examples not in ways:
        raise Unsupported(f"this folder has no examples made on {_WAYS[examples]}")
    if not ways:
        return records, []
    chosen = examples or ways[0]
    others = (
        f"; examples={ways[1]!r} ranks by examples made on {_WAYS[ways[1]]}" if len(ways) > 1 and not examples else ""
    )
    note = f"ranked by examples made on {_WAYS[chosen]}{others}"
    return [record for record in records if record["made_on"] in ("", _MADE_ON[chosen])], [note]


def _defended(names: Sequence[str], original: str | None) -> dict[tuple[str, str], str]:
    """Return the name of each defended model, by the name of the defence and the name of the undefended model."""
    if original is not None:
        if original not in names:
            raise UnknownName("model", original, names)
        return {(name, original): name for name in names if name != original}
    bases = named_originals(names)
    defended = {(name.removeprefix(f"{base}+"), base): name for name, base in bases.items()}
    if not defended:
        raise InvalidInput(
            "the folder has no defended models named NAME+DEFENCE: evaluate models with defences, or "
            "give `original=NAME` if all other models are defences of NAME"
        )
    return defended


def read_matrix(path: Path, least: int = 2) -> MetricMatrix:
    """Read a CSV table of metrics.

    The first column has names, and each further column a metric. An empty cell is NaN.

    Args:
        path: path of the file.
        least: smallest number of rows.

    Raises:
        InvalidInput: if the file is not such a table, or a name occurs twice.
    """
    head, body = _read_cells(path)
    if head[0] in METRICS or head[0] == "QN":
        raise InvalidInput(f"expected names in the first column of {path}, got the metric {head[0]}")
    if body[0].isna().any():
        raise InvalidInput(f"expected a name in each row of {path}, got none in row {body[0].isna().argmax() + 2}")
    names = [str(entry).strip() for entry in body[0]]
    for kind, entry in (("subject", names), ("metric", head[1:])):
        twice = next((name for name in entry if entry.count(name) > 1), None)
        if twice is not None:
            raise InvalidInput(f"expected each {kind} once in {path}, got {twice!r} twice")
    values = body.iloc[:, 1:].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    for row, column in zip(*(~np.isfinite(values) & body.iloc[:, 1:].notna().to_numpy()).nonzero(), strict=True):
        wrong = body.iloc[row, column + 1]
        raise InvalidInput(f"expected a number for {head[column + 1]} of {names[row]} in {path}, got {wrong!r}")
    if len(names) < least:
        raise InvalidInput(
            f"expected at least 2 rows in {path} to rank, got one: {names[0]}"
            if names
            else f"expected a row for each subject in {path}, got only headings"
        )
    for name, column in zip(head[1:], values.T, strict=True):
        if np.isnan(column).all():
            raise InvalidInput(f"expected a value of {name} in {path}, got none; remove the column")
    return MetricMatrix(pd.DataFrame(values, index=pd.Index(names), columns=pd.Index(head[1:])), ())


def _read_cells(path: Path) -> tuple[list[str], Any]:
    if not path.is_file():
        raise InvalidInput(f"expected a CSV file, but {path} does not exist")
    try:
        table: Any = pd.read_csv(path, header=None, dtype=str)
    except pd.errors.EmptyDataError as error:
        raise InvalidInput(f"expected a CSV table of metrics in {path}, got an empty file") from error
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise InvalidInput(f"expected a CSV table of metrics in {path}, got {' '.join(str(error).split())}") from error
    head = [str(heading).strip() for heading in table.iloc[0]]
    if len(head) < 2:
        what = "semicolons" if ";" in head[0] else "tabs" if "\t" in head[0] else "one column"
        raise InvalidInput(f"expected names and metrics separated by commas in {path}, got {what}")
    return head, table.iloc[1:]


def _check_norm(norm: str | None) -> None:
    if norm is not None and norm not in NORMS:
        raise UnknownName("norm", norm, NORMS)


def _in_norm(outcomes: Results, norm: str | None) -> list[RunResult]:
    done = [outcome for outcome in outcomes.done if norm in (None, outcome.cell.threat_model.norm)]
    if not done:
        have = ", ".join(sorted({outcome.cell.threat_model.norm for outcome in outcomes.done})) or "no finished run"
        raise Unsupported(f"expected results in norm {norm}, got {have}")
    return done


def _of_one_kind(done: list[RunResult], knowledge: Knowledge | None) -> tuple[list[RunResult], list[str]]:
    """Return the white-box runs or the black-box runs, and notes.

    If `knowledge` is None, white-box runs are returned if there are any, and a note names the omitted runs.
    """
    have = {outcome.cell.knowledge for outcome in done}
    chosen = knowledge or ("white-box" if "white-box" in have else "black-box")
    kept = [outcome for outcome in done if outcome.cell.knowledge in KNOWLEDGE[chosen]]
    if not kept:
        raise Unsupported(f"expected {chosen} attacks, got {', '.join(sorted(have))} ones only")
    rest = list(dict.fromkeys(_attack_name(outcome) for outcome in done if outcome not in kept))
    if knowledge is not None or not rest:
        return kept, []
    return kept, [
        f"{chosen} attacks only; black-box attacks are ranked separately (knowledge='black-box'): {_some(rest)}"
    ]


def _common(done: list[RunResult], rows: str) -> tuple[list[RunResult], list[str]]:
    """Return the runs of the attacks (or models) that all rows have, with a note for each omitted attack (or model)."""
    of_models, setting = rows == "models", shared_settings(each.cell for each in done)
    met: dict[Any, dict[Any, str]] = {}  # the rows that have met each item, with their names
    names: dict[Any, str] = {}
    for each in done:
        model, attack = (each.cell.subject.key, each.cell.subject.name), (setting(each.cell), _attack_name(each))
        (row, row_name), (item, item_name) = (model, attack) if of_models else (attack, model)
        met.setdefault(item, {})[row] = row_name
        names[item] = item_name
    every = {row: name for seen in met.values() for row, name in seen.items()}
    common = {item for item, seen in met.items() if len(seen) == len(every)}
    if not common:
        what = f"an attack that was run on all {len(every)} models" if of_models else "a model common to all attacks"
        raise Unsupported(f"expected {what}, got none: evaluate the missing runs, or choose a `norm`")
    notes = [
        f"omitted: {names[item]}: no result {'on' if of_models else 'of'} "
        f"{_some([name for row, name in every.items() if row not in seen])}"
        for item, seen in met.items()
        if item not in common
    ]
    return [each for each in done if (setting(each.cell) if of_models else each.cell.subject.key) in common], notes


def _strongest(done: list[RunResult]) -> tuple[list[RunResult], list[str]]:
    """Combine the results of several libraries to one result for each attack on each model, under the attack's name.

    The notes name the attacks and libraries that were combined.
    """
    setting_of = shared_settings(each.cell for each in done)
    settings: dict[Any, dict[Any, dict[str, str]]] = {}
    for outcome in done:
        alike = settings.setdefault((outcome.cell.title, _rules_of(outcome)), {})
        alike.setdefault(setting_of(outcome.cell), distinguishing_settings(outcome.cell))
    texts = {
        setting: text
        for several in settings.values()
        for setting, text in zip(several, distinguishing_text(list(several.values())), strict=True)
    }
    attacks: dict[Any, list[RunResult]] = {}
    for outcome in done:
        attacks.setdefault((outcome.cell.attack_title, _rules_of(outcome), texts[setting_of(outcome.cell)]), []).append(
            outcome
        )
    merged, joined = [], {}
    for (name, *_), several in attacks.items():
        first = min(several, key=lambda outcome: outcome.cell.title).cell
        pairs: dict[Any, list[RunResult]] = {}
        for outcome in several:
            pairs.setdefault((outcome.cell.subject, outcome.cell.seed), []).append(outcome)
        for (subject, seed), tries in pairs.items():
            cell = replace(first, subject=subject, seed=seed)
            merged.append(replace(_best(sorted(tries, key=lambda outcome: outcome.cell.title)), cell=cell))
        libraries = sorted({outcome.cell.row.library for outcome in several})
        if len(libraries) > 1:
            joined[f"{name} ({', '.join(libraries)})"] = None
    note = "an attack counts once, the strongest of its libraries on each image: "
    return merged, [note + "; ".join(joined)] if joined else []


def _rules_of(outcome: RunResult) -> tuple[Any, ...]:
    """Return the settings that implementations must share so that their results are combined."""
    cell = outcome.cell
    threat_model = cell.threat_model
    return threat_model.norm, threat_model.epsilon, threat_model.targeted, cell.target, cell.pixels


def _best(tries: list[RunResult]) -> RunResult:
    """Combine runs by selecting one result for each image.

    A successful example with the smallest distance is preferred to a valid result, and a valid result to an invalid
    one.
    """
    if len(tries) == 1:
        return tries[0]
    lost = [np.where(attempt.results.invalid, 2, np.where(attempt.columns["success"], 0, 1)) for attempt in tries]
    order = np.lexsort((np.stack([attempt.columns["distance"] for attempt in tries]), np.stack(lost)), axis=0)
    best, images = order[0], np.arange(order.shape[1])
    names = [name for name in tries[0].columns if all(name in attempt.columns for attempt in tries)]
    held = [hold_columns(attempt.columns, names) for attempt in tries]
    columns = {name: np.stack([each[name] for each in held])[best, images] for name in names}

    def find_silent() -> np.ndarray:
        return np.stack([attempt.non_finite for attempt in tries])[best, images]

    return replace(tries[0], columns=columns, find_silent=find_silent, examples=(), adv_logits=None)


def _without_violations(outcome: RunResult) -> RunResult:
    """Return the run with NaN as the rate of undecided images."""
    undecided, columns = outcome.results.undecided_fooled, outcome.columns
    rates = {name: np.where(undecided, np.nan, columns[name]) for name in _RATES if name in columns}
    return replace(outcome, columns=join_columns(columns, rates))


def _columns(
    outcomes: Results, symbols: Sequence[str], rows: str, alias: Mapping[str, str]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the mean of each metric over the attacks (or models) with a value in every row, and notes on omissions."""
    wanted = [*(each for each in symbols if each != "QN"), *(_QUERIES if "QN" in symbols else ())]
    kept = drop_absent(wanted, outcomes, explicit=False)
    table = build_table(outcomes, by="pairs", metrics=kept, bootstrap=0)
    cells: Any = pd.DataFrame([{symbol: each.value for symbol, each in line.metrics.items()} for line in table.rows])
    cells["model"] = [line.labels["model"] for line in table.rows]
    cells["attack"] = [_name(line.labels, alias) for line in table.rows]
    if set(_QUERIES) <= set(kept) and "QN" in symbols:
        both = (cells["QNC_F"] + cells["QNC_B"]) / 2
        cells["QN"] = both.where(cells["QNC_B"] > 0, cells["QNC_F"])
    row, item = ("model", "attack") if rows == "models" else ("attack", "model")
    met = {symbol: cells.pivot(index=item, columns=row, values=symbol) for symbol in symbols if symbol in cells}
    frame, fewer, gone = _means_of_common(met)
    if frame.empty:
        raise InvalidInput(f"no metric is defined for all {rows}; {rows} that no attack fools have few defined metrics")
    order = list(dict.fromkeys(cells[row]))
    notes = [
        (
            f"{', '.join(each)}: averaged over {count} of {total} {item}s, because the others lack a value for at "
            f"least one {row}"
        )
        for (count, total), each in fewer.items()
    ]
    notes += [f"omitted: {', '.join(gone)}: every {item} lacks a value for at least one {row}"] if gone else []
    return frame.loc[order], notes


def _attack_name(outcome: RunResult) -> str:
    return _name({"implementation": outcome.cell.title, **threat_labels(outcome.cell), "setting": ""})


def _name(labels: Mapping[str, Any], alias: Mapping[str, str] = MappingProxyType({})) -> str:
    name = alias.get(labels["implementation"], labels["implementation"])
    parts = (f"{name} {format_threat_labels(labels)}", labels["setting"])
    return ", ".join(part for part in parts if part)


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
