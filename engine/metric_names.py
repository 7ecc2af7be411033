"""Finds metrics by any of their names, and describes the requirements of each metric and the command that prints it.

A symbol may be followed by "@" and a parameter ("QI_Wup@0.5", "ALD@inf"), or by "@" and a part of the model or data
("KMNCov@clean").
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..adapters.parameters import parse_number
from ..adapters.paths import is_file_name
from ..errors import DavylampError, InvalidInput, UnknownName, close_names
from ..metrics import METRICS, PLAIN, Metric, near_symbols, record_of, symbols_named
from .cell_defaults import ALL_MEASURES
from .measure_groups import GROUP_OF, OPTIONAL, is_group, known_groups

CLEAN = "clean"
NO_CONFIDENCES = "the model returns labels only, no confidences"
NO_GRADIENTS = "the model has no gradients"
_CONDITIONS = {
    "target": "a targeted attack: --target",
    "transfer": "--transfer full",
    "minimum norm": "a minimum-norm attack or search: best(...)",
    **{group: f"--metric {group}" for group in OPTIONAL},
    "coverage": "--metric coverage --neuron-profile DATA",
}
_OPTIONS = {"sequences": " --sequence all", "baseline": " --baseline MODEL"}
_CHOSEN = ("p", "threshold", "wavelet", "classes")  # parameters that the user can choose


# AISafety (Liu et al. 2021), Table I, in its order: what a metric is about, the perturbations that it needs, the access
# to the model, and the number of models. The structure column is what is about a model and not its behaviour.
_DATA, _BEHAVIOUR, _STRUCTURE = "data", "model, behaviour", "model, structure"
_ADVERSARIAL, _CORRUPTED, _BOTH = "adversarial attacks", "corruptions", "adversarial attacks and corruptions"
_WHITE, _BLACK, _EITHER = "white-box", "black-box", "white-box and black-box"
_ONE, _MORE = "one model", "several models"
_TAXONOMY = {
    **dict.fromkeys(("KMNCov", "NBCov", "SNACov"), (_DATA, _BOTH, _WHITE, _ONE)),
    **dict.fromkeys(("ALD", "ASS", "PSD"), (_DATA, _ADVERSARIAL, _BLACK, _ONE)),
    "CA": (_BEHAVIOUR, "", _BLACK, _ONE),
    "AAW": (_BEHAVIOUR, _ADVERSARIAL, _EITHER, _ONE),
    "AAB": (_BEHAVIOUR, _ADVERSARIAL, _BLACK, _MORE),
    **dict.fromkeys(("ACAC", "ACTC", "NTE"), (_BEHAVIOUR, _ADVERSARIAL, _WHITE, _ONE)),
    "mCE": (_BEHAVIOUR, _CORRUPTED, _BLACK, _ONE),
    **dict.fromkeys(("RmCE", "mFR", "CAV"), (_BEHAVIOUR, _CORRUPTED, _BLACK, _MORE)),
    **dict.fromkeys(("CRR", "CSR", "CCV", "COS"), (_BEHAVIOUR, _BOTH, _BLACK, _MORE)),
    "EBD": (_STRUCTURE, _BOTH, _EITHER, _MORE),
    "EBD2": (_STRUCTURE, _BOTH, _BLACK, _MORE),
    "ENI": (_STRUCTURE, _BOTH, _WHITE, _ONE),
    "NS": (_STRUCTURE, _BOTH, _BLACK, _MORE),
    "NU": (_STRUCTURE, _BOTH, _EITHER, _MORE),
}


class MetricCommand(NamedTuple):
    """How to obtain a metric on the command line.

    Args:
        needs: option that `davylamp evaluate` needs for the metric, or the kind of attack; "" if there is no
            requirement.
        shown_by: command that prints the metric.
    """

    needs: str
    shown_by: str


def metric_command(symbol: str) -> MetricCommand:
    """Return how to obtain a metric on the command line."""
    record = METRICS[symbol]
    if record.group == "corruption":
        return MetricCommand("", f"davylamp corruptions run MODELS{''.join(_OPTIONS[need] for need in record.needs)}")
    rows = " --by models" if record.across != "mean" or record.only == ("models",) else ""
    rows = " --defence ORIGINAL DEFENDED" if record.group.startswith("defence") else rows
    needs = ", ".join(_CONDITIONS[need] for need in record.needs if need in _CONDITIONS)
    return MetricCommand(needs, f"davylamp table FOLDER{rows} --metric")


def facts_of(symbol: str) -> Metric:
    """Return the record of a metric. A parameter in the symbol is ignored. `PLAIN` for a user's metric."""
    return record_of(symbol) or PLAIN


def base_symbol(symbol: str) -> str:
    """Return the symbol without its parameter: "QI_Wup" for "QI_Wup@0.5". Unknown symbols are unchanged."""
    return facts_of(symbol).symbol or symbol


def needs_confidences(symbol: str) -> bool:
    """Whether a metric is undefined for a model that returns labels only."""
    return "confidences" in facts_of(symbol).needs and symbol != "FR@1"  # FR@1 only compares predictions


def is_parametrised(symbol: str) -> bool:
    """Whether a symbol has an interpretation or a parameter after "@" that changes the metric's values."""
    record = facts_of(symbol)
    return symbol != record.symbol and (record.parameter in _CHOSEN or symbol.partition("@")[2] in record.readings)


def readings_of(symbol: str) -> dict[str, str]:
    """Return the meaning of each alternative interpretation of a metric, by symbol."""
    record = METRICS[symbol]
    readings = {f"{symbol}@{word}": reading.meaning for word, reading in record.readings.items()}
    if record.parameter == "wavelet":
        readings[f"{symbol}@db4"] = (
            "with the wavelet db4 instead of Haar; any discrete wavelet of PyWavelets can be used"
        )
    return readings


def taxonomy_of(symbol: str) -> str:
    """Describe a metric by the columns of Table I of AISafety; "" if the metric is not from that paper."""
    return "; ".join(filter(None, _TAXONOMY.get(symbol, ())))


def metric_parameter(symbol: str) -> dict[str, Any]:
    """Convert the interpretation or parameter after "@" in a symbol to keyword arguments of the metric's function.

    Raises:
        InvalidInput: if the value is not valid for the metric.
    """
    base, _, text = symbol.partition("@")
    name, readings = METRICS[base].parameter, METRICS[base].readings
    if text in readings:
        return {key: value() if callable(value) else value for key, value in readings[text].options.items()}
    if name == "wavelet":
        from pywt import dwt_max_level

        try:
            dwt_max_level(1, text)
        except ValueError as error:
            words = f"{', '.join(readings)} or a discrete wavelet of PyWavelets such as db4"
            raise InvalidInput(f"expected {words} after {base}@, got {text!r}") from error
        return {name: text}
    if name == "classes":
        return {name: _classes_in(text, base)}
    number = math.inf if name == "p" and text == "inf" else parse_number(text, f"{name} of {base}")
    if name == "p" and not (number > 0):
        raise InvalidInput(f"expected p > 0 or inf after {base}@, got {text}")
    if name == "threshold" and not -1 <= number <= 1:
        raise InvalidInput(f"expected a threshold from -1 to 1 after {base}@, got {text}")
    return {name: number}


def _classes_in(text: str, base: str) -> tuple[int, ...]:
    """Parse class indices and ranges of indices, such as "151-268+275"."""
    classes: list[int] = []
    for part in text.split("+"):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if not all(each.isascii() and each.isdecimal() and len(each) < 7 for each in ends) or int(ends[0]) > int(
            ends[1]
        ):
            raise InvalidInput(f"expected class numbers such as 151-268+275 after {base}@, got {text!r}")
        classes += range(int(ends[0]), int(ends[1]) + 1)
    return tuple(dict.fromkeys(classes))


def resolve_symbols(names: Sequence[str]) -> tuple[str, ...]:
    """Convert names of metrics to symbols.

    For example, "mr" gives one symbol, and the name of a family ("AND") gives all symbols of the family.

    Args:
        names: symbols, aliases or titles, in upper or lower case; "@" and a parameter may follow.

    Returns:
        The symbols without repetition, in the order of the names. An unknown name is returned unchanged.
    """
    chosen: list[str] = []
    for name in names:
        base, at, value = name.partition("@")
        parts = [f"{each.partition('@')[0]}@{value}" for each in symbols_named(base)] if at else []
        chosen += symbols_named(name) or parts or [name]
    return tuple(dict.fromkeys(chosen))


def find_metrics(name: str) -> tuple[str, ...]:
    """Return the symbols of the metrics that have a name, or whose title contains the name.

    Args:
        name: symbol, alias, title or part of a title, in upper or lower case.

    Raises:
        UnknownName: if no metric matches.
    """
    symbols = symbols_named(name)
    if not symbols and (record := record_of(resolve_symbols([name])[0])):  # with a parameter or a reading
        symbols = (record.symbol,)
    if not symbols or " " in name.strip():
        wanted = name.strip().casefold()
        symbols += tuple(symbol for symbol, record in METRICS.items() if wanted and wanted in record.title.casefold())
    if not symbols:
        raise unknown_metric(name)
    return tuple(dict.fromkeys(symbols))


def measures_named(name: str) -> tuple[str, ...]:
    """Return the groups of metrics that contain the metrics with a name. All default groups for "all".

    A group, a metric with a parameter, a user's metric and an unknown name are returned unchanged.
    """
    if name == "all":
        return ALL_MEASURES
    if is_file_name(name) or is_group(name) or is_parametrised(name):
        return (name,)
    groups = (GROUP_OF.get(symbol, METRICS[symbol].group) for symbol in symbols_named(name))
    return tuple(dict.fromkeys(group for group in groups if group in known_groups())) or (name,)


def unknown_metric(name: str) -> UnknownName:
    """Build the error for an unknown metric.

    The error suggests similar symbols, or the command that lists all metrics.
    """
    if readings := _readings_near(name):
        return UnknownName("metric", name, [], meant=readings)
    return UnknownName("metric", name, [], meant=" or ".join(near_symbols(name)), hint="davylamp metrics lists them")


def unknown_measure(kind: str, name: str) -> DavylampError:
    """Build the error for a name that an evaluation cannot measure: an unknown one, or a metric without a group.

    A metric without a group is computed from every results folder, or by a different command, which the error names.
    """
    symbols = symbols_named(name)
    if readings := _readings_near(name):
        return UnknownName(kind, name, [], meant=readings)
    if not symbols:
        near = close_names(name, known_groups()) or near_symbols(name)
        return UnknownName(kind, name, known_groups(), meant=" or ".join(near))
    symbol, access = symbols[0], metric_command(symbols[0])
    if group := GROUP_OF.get(symbol, ""):
        return UnknownName(kind, name, [], meant=group)
    if METRICS[symbol].group == "corruption":
        return InvalidInput(f"{kind}: {symbol} is measured by a different command: {access.shown_by}")
    needs = f" with {access.needs}" if access.needs else ""
    line = (
        f"{symbol} is part of every evaluation{needs} and need not be chosen; show it with {access.shown_by} {symbol}"
    )
    return InvalidInput(f"{kind}: {line}")


def _readings_near(name: str) -> str:
    """Return the interpretations of the metric before "@" in an unknown name; "" if the metric has none."""
    base, at, _ = name.partition("@")
    return " or ".join(reading for symbol in symbols_named(base) for reading in readings_of(symbol)) if at else ""
