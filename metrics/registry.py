"""Registry of all metrics, the decorator that adds a metric, and the reduction of per-image values to one number."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from math import inf, log
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]
Direction = Literal["higher", "lower"]
Need = Literal["confidences", "target", "transfer", "minimum norm", "sequences", "baseline", "attention", "perceptual",
               "coverage", "boundary", "neurons", "consistency"]  # fmt: skip
Table = Literal["attacks", "models", "pairs"]
Function = TypeVar("Function", bound=Callable[..., Any])


class Reading(NamedTuple):
    """Alternative interpretation of a metric's definition, such as the printed formula of a paper.

    Attributes:
        options: options of the metric's function. If an option is too large to build in advance, the value is a
            function that builds it.
        meaning: explanation in one line.
        between: range of the alternative metric. None if the range is that of the metric.
    """

    options: Mapping[str, Any]
    meaning: str
    between: tuple[float, float] | None = None  # range, if it is not that of the metric


@dataclass(frozen=True)
class Metric:
    """Record of a metric: its function, symbol, definition and use in tables.

    Attributes:
        symbol: key in `METRICS`: the abbreviation that papers use.
        function: function that computes the metric.
        title: display name.
        meaning: explanation in one line. The default is the first line of the function's docstring.
        robust_when: whether higher or lower values indicate a better model or defence. None if neither do.
        between: smallest and largest possible value of the metric.
        unit: unit of the value.
        source: paper and equation.
        formula: formula in the notation of `NOTATION`.
        latex: the same formula in LaTeX. "" if the metric has only a description in words.
        aliases: other names in the papers and in the field. A family of metrics shares an alias, such as AND for AMD,
            AED and APCR.
        kind: type of the value, which determines its confidence interval. "mean" is a mean of values per image, "share"
            a proportion of the images, "difference" a difference of two proportions, and "set" one value for a set of
            images.
        stored: where a results folder contains the value. "measured" is a column that exists if the metric's group was
            measured, "clean" are the predictions on clean images, and "always" is every result.
        over: images that count, if the column also has values for other images: "attacked" or "success". "" means all
            images with a value.
        across: how the row of a model combines several attacks. "mean" is the mean over the attacks. "worst" is the
            worst attack for each image, among the attacks of the row's threat model. "union" is the worst attack for
            each image among all threat models.
        invalid: how an image with an invalid result counts: "not fooled" or "not robust". "" means that the image is
            excluded.
        knowledge: attacker knowledge of the attacks to which the metric applies. "" means all attacks.
        needs: what the metric requires, beyond the predictions of a model. "confidences" are the model's probabilities.
            "target" is a target class (implied by an argument `targets`). "transfer" are other models. "minimum norm"
            is a minimum-norm attack. "sequences" are image sequences, and "baseline" is a baseline model. The others
            ("attention", "perceptual", "coverage", "boundary", "neurons", "consistency") are groups of measurements
            that an evaluation makes only on request.
        parameter: argument whose value may follow "@" in the symbol ("layer" is a part of the model). "" if there is no
            such argument.
        usual: value of the parameter if the symbol has no "@".
        readings: alternative interpretations of the definition, by the word that follows "@" in the symbol ("NTE@all").
        tables: tables (of attacks, models or pairs) that show the metric by default, in the order of `METRICS`. A
            mapping gives, for each table, the metric after which this metric is shown.
        only: tables that are able to show the metric. Empty means all tables.
        brief: whether a web page shows the metric among its first few columns.
        base: symbol of the one-model metric, if this metric is a difference between two models. Otherwise "".
    """

    symbol: str
    function: Callable[..., Any]
    title: str
    meaning: str
    robust_when: Direction | None
    between: tuple[float, float]
    source: str
    unit: str = "fraction"
    formula: str = ""
    latex: str = ""
    aliases: tuple[str, ...] = ()
    kind: Literal["mean", "share", "difference", "set"] = "mean"
    stored: Literal["measured", "clean", "always"] = "measured"
    over: Literal["", "attacked", "success"] = ""
    across: Literal["mean", "worst", "union"] = "mean"
    invalid: Literal["", "not fooled", "not robust"] = ""
    knowledge: Literal["", "white-box", "black-box"] = ""
    needs: tuple[Need, ...] = ()
    parameter: str = ""
    usual: float | None = None
    readings: Mapping[str, Reading] = field(default_factory=dict)
    tables: tuple[Table, ...] | Mapping[Table, str] = ()
    only: tuple[Table, ...] = ()
    brief: bool = False
    base: str = ""

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments that depend on the images: required arguments except `parameter`, and `success`."""
        parameters = inspect.signature(self.function).parameters.items()
        required = [name for name, each in parameters if each.default is each.empty or name == "success"]
        return tuple(name for name in required if name != self.parameter)

    @cached_property
    def of_images(self) -> bool:
        """Whether the function returns one value per image for `reduction="none"`."""
        return "reduction" in inspect.signature(self.function).parameters

    @cached_property
    def of_prediction(self) -> bool:
        """Whether the metric depends on which class is predicted.

        False if only the correctness of the prediction matters.
        """
        return not self.invalid and bool({"adv_logits", "predicted_adv_cams"} & {*self.arguments})

    @property
    def group(self) -> str:
        """Group of the metric, such as "effect" or "distance".

        The group is the name of the module that defines the function.
        """
        return self.function.__module__.rpartition(".")[2]

    @property
    def range(self) -> str:
        """Smallest and largest possible value as text, such as "0 to 1"."""
        names = {inf: "∞", -inf: "-∞", log(2): "ln 2"}
        low, high = (names.get(bound, f"{bound:g}") for bound in self.between)
        return f"{low} to {high}"


class _Metrics(dict[str, Metric]):
    """Records of metrics by symbol.

    A record is also found by any name that belongs to a single metric: `METRICS["ASR"]` is the record of MR.
    """

    def __missing__(self, name: str) -> Metric:
        symbols = symbols_named(name)
        if len(symbols) == 1:
            return self[symbols[0]]
        near = ", ".join(symbols or near_symbols(name))
        raise KeyError(f"unknown metric {name!r}" + (f"; did you mean {near}?" if near else ""))


METRICS: dict[str, Metric] = _Metrics()
PLAIN = Metric("", lambda: None, "", "", None, (-inf, inf), "")  # of a user's metric
NOTATION = """\
x, xa: clean and adversarial image, N colour values in [0, 1]; y: true class; t: target class; P: probabilities of the
model; F: its prediction; [...]: 1 if true, else 0; mean: over all images unless stated otherwise; valid: images with
F(x) = y; successes: valid images that the attack fools; _O, _D: original and defended model."""


def symbols_named(name: str) -> tuple[str, ...]:
    """Return the symbols of the metrics that have a given symbol, alias, title or function name.

    Case, "-", "_" and spaces are ignored.

    Args:
        name: name of a metric, such as "MR", "ssim" or "Misclassification ratio", or of a family of metrics, such as
            "AND".

    Returns:
        Symbols in the order of `METRICS`. A family has several symbols. Empty if the name is unknown.
    """
    if name in METRICS:
        return (name,)
    wanted = _plain(name)
    symbols = tuple(symbol for symbol in METRICS if _plain(symbol) == wanted)
    return symbols or tuple(record.symbol for record in METRICS.values() if wanted in map(_plain, aliases_of(record)))


def near_symbols(name: str) -> list[str]:
    """Return the symbols of metrics to suggest for a misspelt name.

    Similar symbols are preferred. If there are none, metrics with a similar alias, title or function name are returned.
    """
    symbols = {symbol.casefold(): symbol for symbol in METRICS}
    called = {text.casefold(): symbol for symbol, each in METRICS.items() for text in aliases_of(each)}
    wanted = name.strip().casefold()
    longer = [text for text in symbols if len(wanted) > 1 and text.startswith(wanted)]
    near = [symbols[text] for text in dict.fromkeys((*longer, *get_close_matches(wanted, symbols)))][:3]
    return near or list(dict.fromkeys(called[text] for text in get_close_matches(wanted, called)))


def record_of(symbol: str) -> Metric | None:
    """Return the record of the metric with a symbol, or None if there is no such metric.

    The symbol may include a parameter ("FR@10", "NS@fc") or the name of an alternative interpretation ("NTE@all").
    """
    if symbol in METRICS:
        return METRICS[symbol]
    base, at, value = symbol.partition("@")
    for record in METRICS.values():
        if at and record.symbol == base and value in record.readings:
            reading = record.readings[value]
            title, between = f"{record.title}, {reading.meaning}", reading.between or record.between
            return replace(record, title=title, between=between)
        if at and record.parameter and record.symbol.partition("@")[0] == base:
            counts = value.isascii() and value.isdecimal() and int(value) > 0
            return record if counts or record.parameter != "k" else None
    return None


def default_symbols(table: Table) -> tuple[str, ...]:
    """Return the symbols of the metrics that a table shows by default, in the order of the table's columns."""
    symbols = [symbol for symbol, record in METRICS.items() if table in record.tables]
    for symbol in list(symbols):
        tables = METRICS[symbol].tables
        before = tables[table] if isinstance(tables, Mapping) else ""
        if before:
            symbols.remove(symbol)
            symbols.insert(symbols.index(before) + 1, symbol)
    return tuple(symbols)


def aliases_of(record: Metric) -> tuple[str, ...]:
    """Return all names of a metric except its symbol."""
    return (*record.aliases, record.title, record.function.__name__)


def _plain(name: str) -> str:
    return name.strip().casefold().replace("-", "").replace("_", "").replace(" ", "")


def metric(*, symbol: str, title: str = "", meaning: str = "", **facts: Any) -> Callable[[Function], Function]:
    """Return a decorator that records a function in `METRICS` and returns it unchanged.

    Args:
        symbol: key in `METRICS`.
        title: display name. The default is the symbol.
        meaning: explanation in one line. The default is the first line of the function's docstring.
        **facts: further fields of `Metric`. `robust_when`, `between` and `source` are required.

    Raises:
        TypeError: if a required field is missing or a field does not exist.
        ValueError: if the symbol is taken or the function has no docstring.
    """

    def record(function: Function) -> Function:
        line = meaning or (function.__doc__ or "").strip().partition("\n")[0]
        if not line:
            raise ValueError(f"expected a docstring on the function of {symbol!r}, got none")
        if symbol in METRICS:
            raise ValueError(f"the symbol {symbol!r} already belongs to a metric; choose a new symbol")
        known = Metric(symbol, function, title or symbol, line, **facts)
        METRICS[symbol] = replace(known, needs=("target", *known.needs)) if "targets" in known.arguments else known
        return function

    return record


def reduce(values: Tensor, reduction: Reduction) -> Tensor:
    """Reduce the values of a metric to the mean or the sum over the images for which the metric is defined.

    Args:
        values: one value per image, shape (N,). NaN if the metric is undefined.
        reduction: "mean" or "sum" over the defined values, or "none".

    Returns:
        A scalar. For "none", the values themselves. If no value is defined, the mean is NaN and the sum is 0.

    Raises:
        ValueError: if the reduction is unknown.
    """
    if reduction == "mean":
        return values.nanmean()
    if reduction == "sum":
        return values.nansum()
    if reduction == "none":
        return values
    raise ValueError(f"expected reduction 'mean', 'sum' or 'none', got {reduction!r}")


class Summary(NamedTuple):
    """Mean of a metric over the images for which the metric is defined.

    Attributes:
        mean: mean of the defined values. NaN if there are none.
        defined: number of images for which the metric is defined.
        undefined: number of images for which the metric is not defined.
    """

    mean: float
    defined: int
    undefined: int


def summarise(values: Tensor) -> Summary:
    """Return the mean of a metric over the images that count, and the numbers of images that do and do not count.

    Args:
        values: result of a metric with `reduction="none"`, shape (N,). NaN for images that do not count.

    Returns:
        The mean (NaN if no image counts), the number of images that count, and the number of other images.

    Raises:
        ValueError: if the values are not of shape (N,).
    """
    if values.ndim != 1:
        raise ValueError(f"expected values of shape (N,), got {tuple(values.shape)}")
    undefined = int(torch.isnan(values).sum())
    return Summary(float(values.nanmean()), len(values) - undefined, undefined)
