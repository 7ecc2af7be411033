"""The usual comparison: attacks and models under the paper's names, each beside the published row of these names."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ...adapters.paths import is_file_name
from ...engine.cell_defaults import MEASURES
from ...engine.plan.config_file import config_from
from ...engine.plan.schema import check_record
from ...engine.store.results import read_outcomes
from ...engine.tables.groups import group_cells
from ...engine.tables.symbols import By, choose_symbols
from ...engine.tables.table import Table, TableRow
from ...engine.user_metrics import find_metric
from ...errors import DavylampError, InvalidInput, UnknownName, Unsupported
from ...metrics import METRICS, record_of
from .paper_numbers import load_rows
from .paper_table import Options
from .reproduction import Setting, SettingRun, Size, build_rows, lines_beside, run_setting

_LABELS = ("attack", "model")
_QUICK: Mapping[str, Any] = {"images": 10, "limits": {"steps": 5, "binary_search_steps": 2}, "queries": 100}


@dataclass(frozen=True)
class NamedSetting:
    """What is run for a published table, under the names that its rows have.

    Args:
        attacks: the paper's name -> what is run: a name, or a table as `davylamp evaluate --config` takes it.
        models: the paper's name -> the model that is run for it, or only models that stand beside the mean over the
            paper's.
        data: name of the data.
        images: the paper's number of them; None: all.
        columns: the paper's column -> the symbol here, where they differ; any other column is its own symbol.
        where: labels of the published rows that are meant, where there are others.
        default: what is run without options, as `Size`: "models", "images", "limits", "queries"; what it does not say
            is the paper's.
        quick: the same with --quick; what it does not say is that of a small part.
        config: further words of `davylamp evaluate --config`: "pixels", "transfer", "max_queries", ...
        readings: symbol -> how the published column is read.
        same: what of it is the paper's own, "models" or "data"; the rest is labelled as other.

    Raises:
        InvalidInput: if a value has a wrong type.
    """

    attacks: Mapping[str, Any]
    models: Any
    data: str = "demo:imagenet"
    images: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    same: tuple[Literal["models", "data"], ...] = ()

    def __post_init__(self) -> None:
        for name, value in check_record(NamedSetting, vars(self)).items():
            object.__setattr__(self, name, value)
        if not isinstance(self.models, (tuple, Mapping)) or not self.models:
            raise InvalidInput(f"models: expected names, or the paper's names with ours, got {self.models!r:.60}")

    @property
    def names(self) -> dict[str, str]:
        """The paper's name of each model here that has one."""
        return {ours: paper for paper, ours in self.models.items()} if isinstance(self.models, Mapping) else {}

    def setting(self, symbols: Sequence[str]) -> Setting:
        """The evaluation, with the metrics that the symbols need.

        Raises:
            DavylampError: as `config_from`, for what `davylamp evaluate` would not take.
        """
        models = tuple(self.models.values() if isinstance(self.models, Mapping) else self.models)
        words = {"attacks": [*self.attacks.values()], "models": models, "data": self.data, "limit": self.images}
        try:
            config = config_from({**words, "measures": measures_for(symbols), **self.config})
        except DavylampError as error:
            for place, name in enumerate(self.attacks):
                error.args = (str(error).replace(f"attacks[{place}]", f"attacks[{name!r}]"),)
            raise
        default = _size("default", {"models": models, "images": self.images, **self.default})
        quick = _size("quick", {"models": models, **_QUICK, **self.quick})
        data_set = self.where.get("dataset", "")
        return Setting(config, default, quick, config.data, self.same, data_set)


def measures_for(symbols: Sequence[str]) -> tuple[str, ...]:
    """The groups of metrics, and the user's metrics, that must be stored while images are attacked."""
    groups = {METRICS[symbol].group for symbol in symbols if symbol in METRICS}
    users = [symbol for symbol in symbols if is_file_name(symbol) and not find_metric(symbol).of_records]
    return (*(group for group in MEASURES if group in groups), *users)


def compare_table(published: str | Path, options: Options, **arguments: Any) -> dict[str, Any]:
    """Run what stands for the attacks and models of a published table, beside its rows.

    A row of ours is about an attack, a model, or both, as the published rows are: by their labels "attack" and "model".

    Args:
        published: as `load_published` takes it.
        options: of the command.
        **arguments: the fields of `NamedSetting`.

    Raises:
        UnknownName: if there is no such argument, column, attack or model.
        InvalidInput: if an argument has a wrong type, or the published rows cannot be told apart.
    """
    known = [each.name for each in fields(NamedSetting)]
    for name in arguments:
        if name not in known:
            raise UnknownName("argument of compare_table", name, known)
    missing = [name for name in ("attacks", "models") if name not in arguments]
    if missing:
        raise InvalidInput(f"expected the argument {missing[0]} of compare_table, got {', '.join(arguments) or 'none'}")
    named = NamedSetting(**arguments)
    rows = [row for row in load_rows(published) if named.where.items() <= row.items()]
    by = _subject_of(published, rows)
    symbols, left_out = _symbols(published, rows, named.columns, by)
    _check_names(published, rows, named)
    with run_setting(named.setting([*symbols]), options) as run:
        table, notes = build_rows(run.folder, [*symbols], by)
        ours = list(_named_rows(run, named, table, by))
        lines = [line for line in lines_beside(published, ours, symbols, named.where) if line.published is not None]
        left_out |= _rows_without(rows, [labels for _, labels in ours], named)
        readings = {symbol: f"the paper's {column}" for symbol, column in symbols.items() if symbol != column}
        return run.report(published, lines, readings=readings | dict(named.readings), left_out=left_out, notes=notes)


def _subject_of(published: str | Path, rows: Sequence[Mapping[str, Any]]) -> By:
    """What the published rows are about; they must be told apart by it."""
    labels = [label for label in _LABELS if any(label in row for row in rows)]
    if not labels:
        raise InvalidInput(f'{published}: expected rows with "attack" or "model", got {len(rows)} rows without')
    seen = Counter(tuple(row.get(label) for label in labels) for row in rows)
    for names, count in seen.items():
        if count > 1:
            alike = [row for row in rows if tuple(row.get(label) for label in labels) == names]
            others = {key for row in alike for key in row if isinstance(row[key], str)} - set(labels)
            choose = f"choose by {', '.join(sorted(others))} with `where`" if others else "give each a name of its own"
            raise InvalidInput(f"{published}: expected one row for {', '.join(map(str, names))}, got {count}: {choose}")
    return "pairs" if len(labels) == 2 else "attacks" if labels == ["attack"] else "models"


def _symbols(
    published: str | Path, rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], by: By
) -> tuple[dict[str, str], dict[str, str]]:
    """Symbol -> the paper's column; and the columns that cannot be had, with the reason."""
    columns = dict.fromkeys(key for row in rows for key, value in row.items() if _is_number(value))
    for column in names:
        if column not in columns:
            raise UnknownName(f"column of {published}", column, columns)
    symbols, left_out = {}, {}
    for column in columns:
        symbol = names.get(column, column)
        known = record_of(symbol) is not None or is_file_name(symbol)
        if column not in names and not known:
            left_out[column] = "no metric is named for this column"
            continue
        try:
            chosen = choose_symbols([symbol], by)
        except Unsupported as error:
            left_out[column] = str(error)
            continue
        if len(chosen) == 1:
            symbols[chosen[0]] = column
        else:
            left_out[column] = f"{symbol} is {', '.join(chosen)}: name one of them"
    if not symbols:
        reasons = "; ".join(f"{column}: {reason}" for column, reason in left_out.items()) or "no row has a number"
        raise InvalidInput(f"expected a column of {published} that a metric stands for, got none ({reasons})")
    return symbols, left_out


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_names(published: str | Path, rows: Sequence[Mapping[str, Any]], named: NamedSetting) -> None:
    """Refuse a name that no published row has: it would stand beside nothing."""
    for label, names in (("attack", named.attacks), ("model", named.names.values())):
        known = {row[label] for row in rows if label in row}
        for name in names if known else ():
            if name not in known:
                raise UnknownName(f"{label} of {published}", name, known)


def _named_rows(
    run: SettingRun, named: NamedSetting, table: Table, by: By
) -> Iterator[tuple[TableRow, dict[str, str]]]:
    """Every row of ours with the labels of the published rows that it is about, once for each attack that it is of."""
    attacks = list(named.attacks)
    groups = group_cells(read_outcomes(run.folder), by)
    for row, group in zip(table.rows, groups, strict=True):
        name = named.names.get(row.labels["model"]) if by != "attacks" else None
        model = {} if name is None else {"model": name}
        if by == "models":
            yield row, model
            continue
        cells = {outcome.cell.key for part in group.parts for outcome in part}
        for place in sorted({place for key in cells for place in run.plan.choices[key]}):
            yield row, {"attack": attacks[place], **model}


def _rows_without(
    rows: Sequence[Mapping[str, Any]], about: Sequence[Mapping[str, str]], named: NamedSetting
) -> dict[str, str]:
    """Published attacks and models that there is nothing of ours for."""
    attacks = dict.fromkeys(row["attack"] for row in rows if row.get("attack", "") not in {"", *named.attacks})
    reasons = dict.fromkeys(attacks, "no attack here stands for it")
    models = {labels["model"] for labels in about if "model" in labels}
    if models:
        others = dict.fromkeys(row["model"] for row in rows if row.get("model", "") not in {"", *models})
        reasons |= dict.fromkeys(others, "no model here stands for it")
    return reasons


def _size(name: str, values: Mapping[str, Any]) -> Size:
    known = {each.name: each.default for each in fields(Size)} | {"limits": {}}
    for key in values:
        if key not in known:
            raise UnknownName(f"key in {name}", key, known)
    return Size(**check_record(Size, {**known, **values}, name))
