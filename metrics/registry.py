"""The table of all metrics, the decorator that fills it, and the one way from values per image to a number."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

Reduction = Literal["mean", "sum", "none"]
Direction = Literal["higher", "lower"]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Metric:
    """Record of a metric function.

    Attributes:
        symbol: key in `METRICS`, as the papers abbreviate it.
        function: computes it.
        title: display name.
        meaning: one line, the first of the function's docstring.
        robust_when: which values speak for the model or defence; None: neither does.
        between: least and largest possible value.
        unit: of the value.
        source: paper and equation.
        formula: as it is computed by default, in the words of `NOTATION`.
        aliases: other names in the papers and in the field; of a family, as AND of AMD, AED and APCR, shared.
    """

    symbol: str
    function: Callable[..., Any]
    title: str
    meaning: str
    robust_when: Direction | None
    between: tuple[float, float]
    unit: str
    source: str
    formula: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Group that it belongs to, the module that holds its function: "effect", "distance"; as in `measures`."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def range(self) -> str:
        """Least and largest possible value, for people."""
        names = {inf: "∞", -inf: "-∞", log(2): "ln 2"}
        low, high = (names.get(bound, f"{bound:g}") for bound in self.between)
        return f"{low} to {high}"


METRICS: dict[str, Metric] = {}
NOTATION = """\
x, xa: clean and adversarial image, N colour values in [0, 1]; y: true class; t: target class; P: probabilities of the
model; F: its prediction; [...]: 1 if true, else 0; mean: over all images where nothing else is said; valid: images with
F(x) = y; successes: valid images that the attack fools; _O, _D: of the original and of the defended model."""


def symbols_named(name: str) -> tuple[str, ...]:
    """The metrics that a symbol, an alias, a title or a function's name means; case, "-", "_" and spaces do not count.

    Args:
        name: "MR", "ssim", "QI-Wup", "Misclassification ratio", or of a family: "AND".

    Returns:
        Symbols in the order of `METRICS`; one for a symbol, several for a family, none if nothing is called so.
    """
    if name in METRICS:
        return (name,)
    wanted = _plain(name)
    symbols = tuple(symbol for symbol in METRICS if _plain(symbol) == wanted)
    return symbols or tuple(record.symbol for record in METRICS.values() if wanted in map(_plain, names_of(record)))


def names_of(record: Metric) -> tuple[str, ...]:
    """Everything but its symbol that a metric is called by."""
    return (*record.aliases, record.title, record.function.__name__)


def _plain(name: str) -> str:
    return name.strip().casefold().replace("-", "").replace("_", "").replace(" ", "")


def metric(  # noqa: PLR0913 - the fields of a record, by name
    *,
    symbol: str,
    robust_when: Direction | None,
    between: tuple[float, float],
    source: str,
    title: str = "",
    unit: str = "fraction",
    formula: str = "",
    aliases: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Record the decorated function in `METRICS` and return it unchanged.

    Args:
        symbol: key in `METRICS`.
        robust_when: which values speak for the model or defence; None: neither does.
        between: least and largest possible value.
        source: paper and equation.
        title: display name; empty: the symbol.
        unit: of the value.
        formula: as it is computed by default, in the words of `NOTATION`.
        aliases: other names in the papers and in the field.

    Returns:
        The decorator.

    Raises:
        ValueError: if the symbol is taken or the function has no docstring.
    """

    def record(function: Function) -> Function:
        meaning = (function.__doc__ or "").strip().partition("\n")[0]
        if not meaning:
            raise ValueError(f"expected a docstring on the function of {symbol!r}, got none")
        if symbol in METRICS:
            raise ValueError(f"expected a new symbol, got {symbol!r} twice")
        fields = (title or symbol, meaning, robust_when, between, unit, source, formula, aliases)
        METRICS[symbol] = Metric(symbol, function, *fields)
        return function

    return record


def reduce(values: Tensor, reduction: Reduction) -> Tensor:
    """Mean or sum of the values that are defined, or all values.

    Args:
        values: one per image, shape (N,); NaN where the metric is undefined.
        reduction: "mean" or "sum" over the defined values, or "none".

    Returns:
        A scalar, or the values themselves for "none". The mean of nothing is NaN, the sum of nothing 0.

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
    """Mean over the images where a metric is defined, and on how many images it rests."""

    mean: float
    defined: int
    undefined: int


def summarise(values: Tensor) -> Summary:
    """Mean of the values of a metric with the number of images that count and that do not.

    Args:
        values: what a metric returns for `reduction="none"`, shape (N,), NaN where it is undefined.

    Returns:
        The mean (NaN if no image counts), the number of defined and of undefined values.

    Raises:
        ValueError: if the values are not of shape (N,).
    """
    if values.ndim != 1:
        raise ValueError(f"expected values of shape (N,), got {tuple(values.shape)}")
    undefined = int(torch.isnan(values).sum())
    return Summary(float(values.nanmean()), len(values) - undefined, undefined)
