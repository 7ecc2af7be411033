"""The default function of a `PaperTable`: runs attacks and models under the paper's names, and compares the results."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from ...adapters.paths import is_file_name
from ...engine.cell_defaults import ALL_MEASURES
from ...engine.plan.config_file import config_from
from ...engine.plan.schema import check_record
from ...engine.store.results import read_outcomes
from ...engine.tables.groups import group_cells
from ...engine.tables.symbols import By, choose_symbols
from ...engine.tables.table import Table, TableRow
from ...engine.user_metrics import find_metric
from ...errors import DavylampError, InvalidInput, UnknownName, Unsupported
from ...metrics import METRICS, record_of
from .counterpart import Counterpart
from .paper_numbers import load_rows
from .paper_table import Options
from .reproduction import Setting, SettingRun, Size, build_rows, lines_beside, run_setting

_LABELS = ("attack", "model")
_QUICK: Mapping[str, Any] = {"images": 10, "limits": {"steps": 5, "binary_search_steps": 2}, "queries": 100}


@dataclass(frozen=True)
class NamedSetting:
    """Settings with which a published table is reproduced.

    Args:
        attacks: the attack to run, by the paper's name of the attack. An attack is a name, or a table with the keys of
            an attack in a file for `davylamp evaluate`.
        models: the model to run, by the paper's name of the model. If this is a list of models instead, each model is
            compared with the mean over the paper's models.
        data: name of the data.
        images: number of images in the paper. None for all.
        columns: symbol of the metric, by name of the published column. Only needed if the name is not the symbol.
        where: labels that select some of the published rows, such as {"dataset": "CIFAR-10"}.
        default: size without options, with the keys "models", "images", "limits" and "queries" (see `Size`). Missing
            keys have the values of the paper.
        quick: size with --quick, with the same keys. Missing keys have small values.
        config: further keys of a file for `davylamp evaluate`, such as "eight_bit", "transfer" or "max_queries".
        readings: notes on how a published column was interpreted, by symbol of the metric.
        same: whether the models ("models") or the data ("data") are identical to those of the paper. Results of other
            models or data are labelled as not comparable.

    Raises:
        InvalidInput: If a value has a wrong type.
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
            raise InvalidInput(
                "models: expected a list of model names, or a dictionary from the paper's names to model "
                f"names, got {self.models!r:.60}"
            )

    @property
    def names(self) -> dict[str, str]:
        """The paper's name of each model, by name of the evaluated model. Empty if `models` is a list."""
        return {ours: paper for paper, ours in self.models.items()} if isinstance(self.models, Mapping) else {}

    def recognise(self, model: str) -> Counterpart:
        """Return the paper's model that corresponds to an evaluated model, and whether it is the same model."""
        row = self.names.get(model, "")
        return Counterpart(row, bool(row) and "models" in self.same)

    def setting(self, symbols: Sequence[str]) -> Setting:
        """Build the setting of the evaluation.

        Raises:
            DavylampError: If a setting is invalid.
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
        return Setting(config, default, quick, config.data, self.same, self.where.get("dataset", ""))


def measures_for(symbols: Sequence[str]) -> tuple[str, ...]:
    """Return the metric groups and user metrics that must be computed while the attacks run."""
    groups = {METRICS[symbol].group for symbol in symbols if symbol in METRICS}
    users = [symbol for symbol in symbols if is_file_name(symbol) and not find_metric(symbol).of_records]
    return (*(group for group in ALL_MEASURES if group in groups), *users)


def compare_table(published: str | Path, options: Options, **arguments: Any) -> dict[str, Any]:
    """Run the attacks and models of a published table, and compare the results with the published rows.

    The published rows have the label "attack", the label "model", or both labels. A row with one label is compared with
    a mean over all models or over all attacks.

    Args:
        published: name of the published table, or path of a JSON file (see `load_published`).
        options: options of the command.
        **arguments: fields of `NamedSetting`.

    Raises:
        UnknownName: If an argument, a column, an attack or a model does not exist.
        InvalidInput: If an argument has a wrong type, or if two published rows have the same labels.
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
    papers = tuple(dict.fromkeys(row["model"] for row in rows if "model" in row))
    setting = replace(named.setting([*symbols]), papers=papers, recognise=named.recognise)
    with run_setting(setting, options) as run:
        table, notes = build_rows(run.folder, [*symbols], by)
        ours = list(_named_rows(run, named, table, by))
        lines = [line for line in lines_beside(published, ours, symbols, named.where) if line.published is not None]
        left_out |= _rows_without(rows, [labels for _, labels in ours], named)
        readings = {symbol: f"the paper's {column}" for symbol, column in symbols.items() if symbol != column}
        return run.report(published, lines, readings=readings | dict(named.readings), left_out=left_out, notes=notes)


def _subject_of(published: str | Path, rows: Sequence[Mapping[str, Any]]) -> By:
    """Return what a published row stands for: "attacks", "models" or "pairs", depending on the labels of the rows."""
    labels = [label for label in _LABELS if any(label in row for row in rows)]
    if not labels:
        raise InvalidInput(f'{published}: expected rows with "attack" or "model", got {len(rows)} rows with neither')
    seen = Counter(tuple(row.get(label) for label in labels) for row in rows)
    for names, count in seen.items():
        if count > 1:
            alike = [row for row in rows if tuple(row.get(label) for label in labels) == names]
            others = {key for row in alike for key in row if isinstance(row[key], str)} - set(labels)
            choose = f"choose by {', '.join(sorted(others))} with `where`" if others else "give each a unique name"
            raise InvalidInput(f"{published}: expected one row for {', '.join(map(str, names))}, got {count}: {choose}")
    return "pairs" if len(labels) == 2 else "attacks" if labels == ["attack"] else "models"


def _symbols(
    published: str | Path, rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], by: By
) -> tuple[dict[str, str], dict[str, str]]:
    """Assign metrics to the columns of a published table.

    Returns:
        The name of the published column, by symbol of the metric. Then the reason why a column cannot be computed, by
        name of the column.
    """
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
            left_out[column] = f"{symbol} stands for several metrics ({', '.join(chosen)}); name one of them"
    if not symbols:
        reasons = "; ".join(f"{column}: {reason}" for column, reason in left_out.items()) or "no row has a number"
        raise InvalidInput(f"no column of {published} corresponds to a metric ({reasons})")
    return symbols, left_out


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_names(published: str | Path, rows: Sequence[Mapping[str, Any]], named: NamedSetting) -> None:
    for label, names in (("attack", named.attacks), ("model", named.names.values())):
        known = {row[label] for row in rows if label in row}
        for name in names if known else ():
            if name not in known:
                raise UnknownName(f"{label} of {published}", name, known)


def _named_rows(
    run: SettingRun, named: NamedSetting, table: Table, by: By
) -> Iterator[tuple[TableRow, dict[str, str]]]:
    """Yield each computed row with the labels of the published row with which it is compared.

    If several of the paper's attacks have the same settings, their common row is yielded once for each of them.
    """
    attacks = list(named.attacks)
    groups = group_cells(read_outcomes(run.folder), by)
    for row, group in zip(table.rows, groups, strict=True):
        model = run.labels_of(row.labels["model"]) if by != "attacks" else {}
        if by == "models":
            yield row, model
            continue
        cells = {outcome.cell.key for part in group.parts for outcome in part}
        for place in sorted({place for key in cells for place in run.plan.choices[key]}):
            yield row, {"attack": attacks[place], **model}


def _rows_without(
    rows: Sequence[Mapping[str, Any]], about: Sequence[Mapping[str, str]], named: NamedSetting
) -> dict[str, str]:
    """Return the reason why attacks and models of a published table were not run, by the paper's name."""
    attacks = dict.fromkeys(row["attack"] for row in rows if row.get("attack", "") not in {"", *named.attacks})
    reasons = dict.fromkeys(attacks, "no attack was chosen for this name")
    models = {labels["model"] for labels in about if "model" in labels}
    if models:
        others = dict.fromkeys(row["model"] for row in rows if row.get("model", "") not in {"", *models})
        reasons |= dict.fromkeys(others, "no model was chosen for this name")
    return reasons


def _size(name: str, values: Mapping[str, Any]) -> Size:
    known = {each.name: each.default for each in fields(Size)} | {"limits": {}}
    for key in values:
        if key not in known:
            raise UnknownName(f"key in {name}", key, known)
    return Size(**check_record(Size, {**known, **values}, name))
