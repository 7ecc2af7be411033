"""Requirements on a results folder, such as "RA >= 0.5 @ linf 8/255", which are decided by 95 % intervals."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ...adapters.display_text import format_threat_model
from ...adapters.parameters import parse_number
from ...adapters.threat_model import ThreatModel, same_radius
from ...errors import InvalidInput, Unsupported
from ...intervals import Interval
from ..finding import plain
from ..metric_names import facts_of, resolve_symbols, unknown_metric
from ..statistics.anytime import AnytimeMean
from ..statistics.verdict import PairVerdict, compare_rates
from ..store.results import Results, images_text
from ..tables.groups import TableGroup
from ..tables.symbols import is_union
from .standings import attempt_key, is_robust, restrict_parts

Verdict = Literal["pass", "fail", "too few images", "invalid results", "unfinished"]
VERDICTS: tuple[Verdict, ...] = ("fail", "unfinished", "invalid results", "too few images", "pass")  # the worst first
GRAMMAR = "METRIC OP NUMBER [@ NORM RADIUS]"
PAIRED = ("RA", "CA")  # metrics with one outcome per image, which is paired with that of a baseline
_EXAMPLE = "RA >= 0.5 @ linf 8/255"
_FORM = re.compile(r"\s*(\S.*?)\s*(>=|<=|>|<)\s*([^@<>=\s]+)\s*(?:@\s*(\w+)(?:\s+(\S+))?)?\s*")


@dataclass(frozen=True)
class Requirement:
    """A lower or upper bound that a metric must meet for every model of a folder.

    Args:
        symbol: symbol of the metric.
        operator: ">=", ">", "<=" or "<".
        number: the bound.
        threat_model: norm and radius for which the metric is required. None for every threat model of the folder.
    """

    symbol: str
    operator: str
    number: float
    threat_model: ThreatModel | None = None

    def __str__(self) -> str:
        at = "" if self.threat_model is None else f" @ {format_threat_model(self.threat_model)}"
        return f"{self.symbol} {self.operator} {self.number:.10g}{at}"

    @property
    def is_lower_bound(self) -> bool:
        """Whether the requirement sets a lower bound (">=" or ">")."""
        return self.operator.startswith(">")

    def is_met(self, value: float) -> bool:
        """Whether a value meets the requirement."""
        if self.operator == ">=":
            return value >= self.number
        if self.operator == ">":
            return value > self.number
        return value <= self.number if self.operator == "<=" else value < self.number

    def decide(self, low: float, high: float) -> Literal["pass", "fail", "open"]:
        """Decide the requirement by the interval of the metric.

        Returns:
            "pass" if every value in the interval meets the requirement, "fail" if no value does, otherwise "open".
        """
        if math.isnan(low) or math.isnan(high):
            return "open"
        met = self.is_met(low), self.is_met(high)
        return "pass" if all(met) else "fail" if not any(met) else "open"


@dataclass(frozen=True)
class Decision:
    """The decision on one requirement, for one model and threat model.

    Args:
        requirement: the requirement, as text.
        model: name of the model.
        threat: norm and radius; "" for a metric of clean images.
        verdict: one of `VERDICTS`.
        value: the metric. For a requirement relative to a baseline, the metric minus the baseline's metric.
        low: lower bound of the 95 % interval of `value`.
        high: upper bound of the 95 % interval of `value`.
        images: number of images.
        attacks: number of attacks in the metric; 0 for a metric of clean images.
        more: for "too few images", the number of additional images that would decide the requirement with probability
            0.5, if `value` is the true value. None if this number exceeds nine times `images`, and for other verdicts.
        detail: the reason, or what to do; "" for a pass.
    """

    requirement: str
    model: str
    threat: str
    verdict: Verdict
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    images: int = 0
    attacks: int = 0
    more: int | None = None
    detail: str = ""

    @property
    def is_change(self) -> bool:
        """Whether `value` is the difference from a baseline's metric."""
        return ">= baseline" in self.requirement

    def document(self) -> dict[str, Any]:
        """Return the decision as JSON types."""
        return {name: plain(value) for name, value in vars(self).items()}


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement such as "RA >= 0.5 @ linf 8/255".

    Args:
        text: a metric, an operator (>=, >, <= or <) and a number, optionally followed by "@", a norm and a radius. The
            metric may have any of its names in `davylamp metrics`, with its parameter: "FR@10".

    Raises:
        InvalidInput: if the text has a different form, or the metric cannot have such a value.
        UnknownName: if there is no such metric.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidInput(f"expected a requirement {GRAMMAR}, such as {_EXAMPLE!r}, got {text!r}")
    name, operator, number, norm, radius = match.groups()
    symbols = resolve_symbols([name])
    if len(symbols) > 1:
        raise InvalidInput(f"expected one metric in {text!r}, got {name!r}, which means {', '.join(symbols)}")
    (symbol,) = symbols or (name,)
    record = facts_of(symbol)
    if not record.symbol:
        raise unknown_metric(symbol)
    value = parse_number(number, f"the number in {text!r}")
    least, most = record.between
    if not least <= value <= most:
        percent = f"; as a fraction: {value / 100:g}" if record.kind == "share" and 1 < value <= 100 else ""
        raise InvalidInput(f"expected {symbol} from {record.range} in {text!r}, got {number}{percent}")
    try:
        threat_model = None if norm is None else ThreatModel(norm, radius)  # type: ignore[arg-type]
    except InvalidInput as error:
        raise InvalidInput(f"{error} (in {text!r})") from error
    if threat_model is not None and is_union(symbol):
        raise InvalidInput(f"{symbol} covers all threat models of the folder; remove the @ part of {text!r}")
    return Requirement(symbol, operator, value, threat_model)


def is_at(norm: str, epsilon: float | None, threat_model: ThreatModel) -> bool:
    """Whether a threat model has this norm and radius. None stands for no radius."""
    if norm != threat_model.norm or epsilon is None or threat_model.epsilon is None:
        return norm == threat_model.norm and epsilon == threat_model.epsilon
    return same_radius(epsilon, threat_model.epsilon)


def pair_with_baseline(
    symbol: str, one: tuple[TableGroup, Results], other: tuple[TableGroup, Results]
) -> tuple[PairVerdict, PairVerdict, int, list[str]]:
    """Compare a rate of a model with that of a baseline, on the images and attacks that both models have in common.

    Args:
        symbol: one of `PAIRED`.
        one: row of the model in a table by models, and the results of its folder.
        other: row of the baseline in a table by models, and the results of its folder.

    Returns:
        The comparison, whose `difference` is the model's rate minus the baseline's rate; the same comparison without
        images that have an invalid result; the number of attacks; and the attacks of the baseline that the model lacks.

    Raises:
        InvalidInput: if the model and the baseline have no image or no attack in common.
        Unsupported: if the metric is not one of `PAIRED`.
    """
    attacks, lost = 0, list[str]()
    (group, outcomes), (base, before) = one, other
    subjects = [each.parts[0][0].cell.subject for each in (group, base)]
    clean = [folder.clean[subject.key] for folder, subject in zip((outcomes, before), subjects, strict=True)]
    if symbol == "RA":
        met = [{attempt_key(each.cell) for each in row.outcomes} for row in (group, base)]
        shared = met[0] & met[1]
        if not shared:
            raise InvalidInput(
                f"expected the baseline's attacks on {subjects[0].name}, with the same parameters and seed: none of "
                f"{', '.join(sorted({key[0] for key in met[0]}))} is in the baseline"
            )
        attacks = len({key[:-1] for key in shared})
        lost = sorted({key[0] for key in met[1] - met[0]})
        values = [is_robust(row._replace(parts=restrict_parts(row, shared))) for row in (group, base)]
    elif symbol == "CA":
        values = [(each.columns["predicted"] == each.columns["label"]).astype(float) for each in clean]
    else:
        raise Unsupported(f"only {' or '.join(PAIRED)} can be compared with a baseline, got {symbol}")
    first, second = _shared_images(subjects, clean, values)
    known = ~np.isnan(first) & ~np.isnan(second)
    names = ("the model", "the baseline")
    both = compare_rates(names, first == 1, second == 1, undecided=~known)
    certain = compare_rates(names, first[known] == 1, second[known] == 1)
    if population := max(each.population or 0 for each in subjects):
        certain = _of_drawn(certain, first[known], second[known], None)
        both = _of_drawn(both, first, second, population)
    return both, certain, attacks, lost


def _of_drawn(pair: PairVerdict, first: np.ndarray, second: np.ndarray, population: int | None) -> PairVerdict:
    """Replace the interval of a comparison by one that is valid for any number of images drawn in random order."""
    ends = [np.nan_to_num(first, nan=end) - np.nan_to_num(second, nan=1 - end) for end in (0, 1)]
    mean = AnytimeMean(population)
    mean.add(*((end + 1) / 2 for end in ends))
    low, high = (2 * bound - 1 for bound in mean.interval[1:])
    return replace(pair, difference=Interval(pair.difference.value, low, high))


def _shared_images(subjects: list[Any], clean: list[Any], values: list[np.ndarray]) -> list[np.ndarray]:
    """Return the values of the model and of the baseline on the images that both have.

    Images are the same if all pixels of the two data sets are equal, or if data, names and labels are equal.
    """
    if subjects[0].data_digest == subjects[1].data_digest:
        return values
    named = [list(zip(each.columns["image"], each.columns["label"], strict=True)) for each in clean]
    places = {image: place for place, image in enumerate(named[1])}
    shared = [(place, places[image]) for place, image in enumerate(named[0]) if image in places]
    sides = [side for side in (0, 1) if subjects[side].drawn]
    drawn = min(sides, key=lambda side: subjects[side].images, default=None)  # those in the random order that counts
    if drawn is not None:
        shared.sort(key=lambda pair: pair[drawn])
    is_whole = drawn is None or len(shared) == subjects[drawn].images
    if subjects[0].data != subjects[1].data or not shared or not is_whole:
        raise InvalidInput(
            f"expected a baseline on the same images, got {images_text(subjects[1])} for {images_text(subjects[0])}"
            + (
                ""
                if is_whole
                else ": for images in random order, the baseline must have all images or the first images of the order"
            )
        )
    return [values[side][[pair[side] for pair in shared]] for side in (0, 1)]
