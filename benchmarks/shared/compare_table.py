"""Default comparison with a published table: attacks and models run under the paper's names."""

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
    """Evaluation for a published table, with the names of its rows.

    Args:
        attacks: the attack to run for each of the paper's names: a name, or a table as in `davylamp evaluate --config`.
        models: the model to run for each of the paper's names. A list of models is compared with the mean over the
            paper's models.
        data: name of the data.
        images: the paper's number of images. None for all.
        columns: symbol of each of the paper's columns, if it is different.
        where: labels that select published rows.
        default: size without options, as fields of `Size`: "models", "images", "limits", "queries". Omitted fields are
            the paper's.
        quick: size with --quick. Omitted fields are chosen small.
        config: additional keys of `davylamp evaluate --config`, such as "eight_bit", "transfer" or "max_queries".
        readings: how the published column of each symbol is interpreted.
        same: parts that are identical to the paper's, "models" or "data". The others are labelled as different.

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
            raise InvalidInput(f"models: expected names, or the paper's names with ours, got {self.models!r:.60}")

    @property
    def names(self) -> dict[str, str]:
        """The paper's names of the models, by model. Models that the paper does not have are missing."""
        return {ours: paper for paper, ours in self.models.items()} if isinstance(self.models, Mapping) else {}

    def recognise(self, model: str) -> Counterpart:
        """Return the paper's model that a model of the setting corresponds to."""
        row = self.names.get(model, "")
        return Counterpart(row, bool(row) and "models" in self.same)

    def setting(self, symbols: Sequence[str]) -> Setting:
        """Build the evaluation, with the metrics of the symbols.

        Raises:
            DavylampError: If `config_from` raises it.
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
    """Return the metric groups and the user's metrics that must be stored during the attacks."""
    groups = {METRICS[symbol].group for symbol in symbols if symbol in METRICS}
    users = [symbol for symbol in symbols if is_file_name(symbol) and not find_metric(symbol).of_records]
    return (*(group for group in ALL_MEASURES if group in groups), *users)


def compare_table(published: str | Path, options: Options, **arguments: Any) -> dict[str, Any]:
    """Run the attacks and models of a published table, and compare the results with its rows.

    A row stands for an attack, a model, or a pair of both, depending on whether the published rows have the labels
    "attack" and "model".

    Args:
        published: name or path of the table, as for `load_published`.
        options: options of the command.
        **arguments: fields of `NamedSetting`.

    Raises:
        UnknownName: If an argument, column, attack or model does not exist.
        InvalidInput: If an argument has a wrong type, or the published rows are ambiguous.
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
    """Return what the published rows stand for. Their labels must identify each row."""
    labels = [label for label in _LABELS if any(label in row for row in rows)]
    if not labels:
        raise InvalidInput(f'{published}: expected rows with "attack" or "model", got {len(rows)} rows without')
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
    """Return the paper's column for each symbol, and the columns that cannot be computed, with the reasons."""
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
        raise InvalidInput(f"no column of {published} corresponds to a metric ({reasons})")
    return symbols, left_out


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_names(published: str | Path, rows: Sequence[Mapping[str, Any]], named: NamedSetting) -> None:
    """Raise an error for names without a published row, because they could not be compared."""
    for label, names in (("attack", named.attacks), ("model", named.names.values())):
        known = {row[label] for row in rows if label in row}
        for name in names if known else ():
            if name not in known:
                raise UnknownName(f"{label} of {published}", name, known)


def _named_rows(
    run: SettingRun, named: NamedSetting, table: Table, by: By
) -> Iterator[tuple[TableRow, dict[str, str]]]:
    """Yield each computed row with the labels of its published row, once for each attack that it represents."""
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
    """Return the published attacks and models that were not run, with the reason for each."""
    attacks = dict.fromkeys(row["attack"] for row in rows if row.get("attack", "") not in {"", *named.attacks})
    reasons = dict.fromkeys(attacks, "no attack corresponds to it")
    models = {labels["model"] for labels in about if "model" in labels}
    if models:
        others = dict.fromkeys(row["model"] for row in rows if row.get("model", "") not in {"", *models})
        reasons |= dict.fromkeys(others, "no model corresponds to it")
    return reasons


def _size(name: str, values: Mapping[str, Any]) -> Size:
    known = {each.name: each.default for each in fields(Size)} | {"limits": {}}
    for key in values:
        if key not in known:
            raise UnknownName(f"key in {name}", key, known)
    return Size(**check_record(Size, {**known, **values}, name))
