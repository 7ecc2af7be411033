"""Metrics of models or attacks that can be set against one another: each mean is over the same attacks or models."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ...adapters import attack_of
from ...adapters.threat_model import NORMS
from ...adapters.words import labels_text
from ...errors import InvalidInput, UnknownName, Unsupported
from ..store.outcomes import Outcome, Outcomes, outcomes_of
from .groups import model_names, setting_of, threat_labels
from .symbols import drop_absent
from .table import build_table

Knowledge = Literal["white-box", "black-box"]
_QUERIES = ("QNC_F", "QNC_B")
_RATES = ("MR", "TAS")  # a violation is no success there; here it is missing
_NAMED = 4  # that a note names


class MetricMatrix(NamedTuple):
    """A line for each model or attack, a column for each metric that all of them have; and what was left out."""

    frame: pd.DataFrame
    notes: tuple[str, ...]


def knowledge_of(outcome: Outcome) -> Knowledge:
    """What the attack of a cell knows of the model, in CANARY's two kinds."""
    return "white-box" if attack_of(outcome.cell.row).knowledge == "white-box" else "black-box"


def build_matrix(
    folder: str | Path | Outcomes,
    symbols: Sequence[str],
    *,
    rows: Literal["models", "attacks"] = "models",
    norm: str | None = None,
    knowledge: Knowledge | None = None,
) -> MetricMatrix:
    """The means of metrics over attacks that every model met, or over models that every attack was run on.

    As CANARY has it (section 3.4): white-box and black-box attacks are never averaged together, and what is not there
    for all is left out for all. So is an attack whose value of a metric is undefined on some model, for that metric.
    Violations are missing: neither fooled nor robust.

    Args:
        folder: a results folder, or what was read of it with "OTR".
        symbols: of metrics; "QN" is half of forward plus backward passes. Those that the folder lacks are left out.
        rows: what is compared.
        norm: only attacks in this one.
        knowledge: only these attacks; None: white-box ones where there are any, with a note about the others.

    Raises:
        UnknownName: if there is no such norm.
        Unsupported: if nothing is left, or nothing that all have.
        Unavailable: if there is no such folder, or no cell in it.
    """
    if norm is not None and norm not in NORMS:
        raise UnknownName("norm", norm, NORMS)
    outcomes = outcomes_of(folder, symbols)
    done, notes = _of_one_kind(_in_norm(outcomes, norm), knowledge)
    names = model_names(outcomes)
    done, dropped = _common(done, names, rows)
    notes += dropped
    violations = int(sum(own.columns["violated"].sum() for own in done))
    if violations:
        notes.append(f"{violations} violations are missing: they count neither as fooled nor as robust")
    targeted = list(dict.fromkeys(_attack_name(own) for own in done if own.cell.threat_model.targeted))
    if targeted and any(not own.cell.threat_model.targeted for own in done):
        notes.append(f"targeted and untargeted attacks are averaged together; targeted: {_some(targeted)}")
    columns, more = _columns(replace(outcomes, done=tuple(map(_without_violations, done)), failed=()), symbols, rows)
    return MetricMatrix(columns, (*notes, *more))


def read_matrix(path: Path) -> MetricMatrix:
    """A CSV table of metrics: names in the first column, a metric in each other one; an empty cell is missing.

    Raises:
        InvalidInput: if it is no such table, or names something twice.
    """
    head, body = _read_cells(path)
    names = [str(own).strip() for own in body[0]]
    for kind, own in (("subject", names), ("metric", head[1:])):
        twice = next((name for name in own if own.count(name) > 1), None)
        if twice is not None:
            raise InvalidInput(f"expected each {kind} once in {path}, got {twice!r} twice")
    values = body.iloc[:, 1:].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
    for row, column in zip(*(~np.isfinite(values) & body.iloc[:, 1:].notna().to_numpy()).nonzero(), strict=True):
        wrong = body.iloc[row, column + 1]
        raise InvalidInput(f"expected a number for {head[column + 1]} of {names[row]} in {path}, got {wrong!r}")
    if len(names) < 2:
        raise InvalidInput(f"expected at least 2 subjects in {path}, got {len(names)}")
    for name, column in zip(head[1:], values.T, strict=True):
        if np.isnan(column).all():
            raise InvalidInput(f"expected a value of {name} in {path}, got none; leave the column out")
    return MetricMatrix(pd.DataFrame(values, index=pd.Index(names), columns=pd.Index(head[1:])), ())


def _read_cells(path: Path) -> tuple[list[str], Any]:
    """Headings and cells as texts."""
    if not path.is_file():
        raise InvalidInput(f"expected a CSV file, got {path}: there is none")
    try:
        table: Any = pd.read_csv(path, header=None, dtype=str)
    except pd.errors.EmptyDataError as error:
        raise InvalidInput(f"expected a CSV table of metrics in {path}, got an empty file") from error
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        raise InvalidInput(f"expected a CSV table of metrics in {path}, got {' '.join(str(error).split())}") from error
    head = [str(own).strip() for own in table.iloc[0]]
    if len(head) < 2:
        what = "semicolons" if ";" in head[0] else "tabs" if "\t" in head[0] else "one column"
        raise InvalidInput(f"expected names and metrics separated by commas in {path}, got {what}")
    return head, table.iloc[1:]


def _in_norm(outcomes: Outcomes, norm: str | None) -> list[Outcome]:
    done = [own for own in outcomes.done if norm in (None, own.cell.threat_model.norm)]
    if not done:
        have = ", ".join(sorted({own.cell.threat_model.norm for own in outcomes.done})) or "no finished cell"
        raise Unsupported(f"expected results in norm {norm}, got {have}")
    return done


def _of_one_kind(done: list[Outcome], knowledge: Knowledge | None) -> tuple[list[Outcome], list[str]]:
    """The cells of one kind of attack, and a note about the other kind if nobody chose."""
    have = {knowledge_of(own) for own in done}
    chosen = knowledge or ("white-box" if "white-box" in have else "black-box")
    kept = [own for own in done if knowledge_of(own) == chosen]
    if not kept:
        raise Unsupported(f"expected {chosen} attacks, got {', '.join(sorted(have))} ones only")
    rest = list(dict.fromkeys(_attack_name(own) for own in done if knowledge_of(own) != chosen))
    if knowledge is not None or not rest:
        return kept, []
    (other,) = have - {chosen}
    return kept, [f"{chosen} attacks only; {other} ones are ranked apart (--knowledge {other}): {_some(rest)}"]


def _common(done: list[Outcome], names: Mapping[str, str], rows: str) -> tuple[list[Outcome], list[str]]:
    """The cells of what every row has, and a note for each thing that some row lacks."""
    of_models = rows == "models"

    def row(own: Outcome) -> Any:
        return own.cell.subject.key if of_models else setting_of(own.cell)

    def item(own: Outcome) -> Any:
        return setting_of(own.cell) if of_models else own.cell.subject.key

    def item_name(own: Outcome) -> str:
        return _attack_name(own) if of_models else names[own.cell.subject.key]

    row_names = {row(own): names[own.cell.subject.key] if of_models else _attack_name(own) for own in done}
    item_names = {item(own): item_name(own) for own in done}
    met: dict[Any, set[Any]] = {}
    for own in done:
        met.setdefault(item(own), set()).add(row(own))
    common = {own for own, seen in met.items() if len(seen) == len(row_names)}
    if not common:
        what = f"an attack that was run on all {len(row_names)} models" if of_models else "a model that all attacks met"
        raise Unsupported(f"expected {what}, got none: evaluate what is missing, or choose with --norm")
    notes = [
        f"left out: {item_names[own]}: no result {'on' if of_models else 'of'} "
        f"{_some([name for key, name in row_names.items() if key not in seen])}"
        for own, seen in met.items()
        if own not in common
    ]
    return [own for own in done if item(own) in common], notes


def _without_violations(own: Outcome) -> Outcome:
    """The same cell with rates that are undefined where an example broke a rule."""
    rates = {
        name: np.where(own.columns["violated"], np.nan, own.columns[name]) for name in _RATES if name in own.columns
    }
    return replace(own, columns={**own.columns, **rates})


def _columns(outcomes: Outcomes, symbols: Sequence[str], rows: str) -> tuple[pd.DataFrame, list[str]]:
    """The mean of each metric over what defines it for every row, and which metrics are over fewer or gone."""
    wanted = [*(own for own in symbols if own != "QN"), *(_QUERIES if "QN" in symbols else ())]
    kept = drop_absent(wanted, outcomes, explicit=False)
    table = build_table(outcomes, by="pairs", metrics=kept, bootstrap=0)
    cells: Any = pd.DataFrame([{symbol: own.value for symbol, own in line.metrics.items()} for line in table.rows])
    cells["model"] = [line.labels["model"] for line in table.rows]
    cells["attack"] = [_name(line.labels) for line in table.rows]
    if set(_QUERIES) <= set(kept) and "QN" in symbols:
        cells["QN"] = (cells["QNC_F"] + cells["QNC_B"]) / 2
    row, item = ("model", "attack") if rows == "models" else ("attack", "model")
    columns, fewer, gone = {}, {}, []
    for symbol in (own for own in symbols if own in cells):
        matrix = cells.pivot(index=item, columns=row, values=symbol)
        whole = matrix.dropna()
        if whole.empty:
            gone.append(symbol)
            continue
        columns[symbol] = whole.mean()
        if len(whole) < len(matrix):
            fewer.setdefault((len(whole), len(matrix)), []).append(symbol)
    if not columns:
        raise InvalidInput(f"expected a metric that all {rows} have, got none: {rows} that nothing fools have few")
    order = list(dict.fromkeys(cells[row]))
    notes = [
        f"{', '.join(own)}: over {count} of {total} {item}s; the others leave it undefined for some {row}"
        for (count, total), own in fewer.items()
    ]
    notes += [f"left out: {', '.join(gone)}: undefined for some {row} on every {item}"] if gone else []
    return pd.DataFrame(columns).loc[order], notes


def _attack_name(own: Outcome) -> str:
    return _name({"implementation": own.cell.attack, **threat_labels(own.cell), "setting": ""})


def _name(labels: Mapping[str, Any]) -> str:
    parts = (f"{labels['implementation']} {labels_text(labels)}", labels["setting"])
    return ", ".join(part for part in parts if part)


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
