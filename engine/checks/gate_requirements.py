"""Requirements on a results folder, such as "RA >= 0.5 @ linf 8/255", which are decided by 95 % intervals."""

import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

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
            0.5, if `value` is the true value. None if it exceeds nine times `images`.
        detail: the reason, or what to do; "" for a pass, unless the model is the baseline's.
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


class BaselineComparison(NamedTuple):
    """A rate of a model compared with that of a baseline.

    Args:
        pair: comparison on the images and attacks that both have; `difference` is the model's rate minus the
            baseline's.
        certain: the same comparison without images that have an invalid result.
        bound: comparison of the model under these attacks with the baseline under all of its attacks. Further attacks
            on the model can only lower its rate, so this `difference` bounds the one under all attacks from above.
        attacks: number of attacks that both have.
        lost: attacks of the baseline that the model lacks. If an attack ran on the model with other settings, the text
            names them.
        is_unchanged: whether both are the same model, with equal results on all images that both have.
    """

    pair: PairVerdict
    certain: PairVerdict
    bound: PairVerdict
    attacks: int
    lost: list[str]
    is_unchanged: bool


def pair_with_baseline(
    symbol: str, one: tuple[TableGroup, Results], other: tuple[TableGroup, Results]
) -> BaselineComparison:
    """Compare a rate of a model with that of a baseline, on the images and attacks that both have.

    Args:
        symbol: one of `PAIRED`.
        one: row of the model in a table by models, and the results of its folder.
        other: row of the baseline in a table by models, and the results of its folder.

    Raises:
        InvalidInput: if they have no image or no attack in common, or are the same results.
    """
    attacks, lost = 0, list[str]()
    (group, outcomes), (base, before) = one, other
    subjects = [each.parts[0][0].cell.subject for each in (group, base)]
    if subjects[0].key == subjects[1].key and outcomes.store.folder.resolve() == before.store.folder.resolve():
        raise InvalidInput(
            f"expected a baseline with different results, got the results of {subjects[0].name} itself: compare with "
            "the folder of an earlier evaluation"
        )
    clean = [folder.clean[subject.key] for folder, subject in zip((outcomes, before), subjects, strict=True)]
    if symbol == "RA":
        met = [{attempt_key(each.cell) for each in row.outcomes} for row in (group, base)]
        shared = met[0] & met[1]
        if not shared:
            raise InvalidInput(
                f"{subjects[0].name} and the baseline have no attack with the same parameters and seed in common: "
                f"{_why_none_shared(*met)}"
            )
        attacks = len({key[:-1] for key in shared})
        lost = sorted({_describe_lost(key, met[0]) for key in met[1] - met[0]})
        values = [is_robust(row._replace(parts=restrict_parts(row, shared))) for row in (group, base)]
        values.append(is_robust(base))
    elif symbol == "CA":
        values = [(each.columns["predicted"] == each.columns["label"]).astype(float) for each in clean]
        values.append(values[1])
    else:
        raise Unsupported(f"a baseline needs paired outcomes: expected {' or '.join(PAIRED)}, got {symbol}")
    places = _shared_images(subjects, clean)
    first, second, least = (each[at] for each, at in zip(values, (*places, places[1]), strict=True))
    population = max(each.population or 0 for each in subjects)
    known = ~np.isnan(first) & ~np.isnan(second)
    certain = _compare(first[known], second[known], None if population else 0)
    unchanged = subjects[0].model_digest == subjects[1].model_digest and bool((first == second).all())
    pair, bound = (_compare(first, each, population) for each in (second, least))
    return BaselineComparison(pair, certain, bound, attacks, lost, unchanged)


def _why_none_shared(mine: set[tuple[Any, ...]], theirs: set[tuple[Any, ...]]) -> str:
    """Return the reason why no attack is in both results: different attacks, or different settings of one."""
    titles = {key[0] for key in mine}
    again = [_describe_lost(key, mine) for key in sorted(theirs, key=str) if key[0] in titles]
    return again[0] if again else f"none of {', '.join(sorted(titles))} is in the baseline with the same settings"


def _describe_lost(key: tuple[Any, ...], mine: set[tuple[Any, ...]]) -> str:
    """Describe an attack of the baseline that the model lacks: its name, and the settings in which another run differs.

    Args:
        key: `attempt_key` of the attack.
        mine: keys of the attacks on the model. The run with the fewest different settings is described.
    """
    there = _settings(key)
    runs = [_settings(each) for each in sorted(mine, key=str) if each[0] == key[0]]
    different = [[name for name in {**there, **here} if here.get(name) != there.get(name)] for here in runs]
    if not runs:
        return str(key[0])
    names, here = min(zip(different, runs, strict=True), key=lambda each: len(each[0]))
    sides = (", ".join(f"{name} {values.get(name, 'not set')}" for name in names) for values in (here, there))
    return "{} with {} here and with {} there".format(key[0], *sides)


def _settings(key: tuple[Any, ...]) -> dict[str, Any]:
    _, target, pixels, settings, seed = key
    parameters, grid = json.loads(settings)
    grids = {f"{name} of": values for name, values in grid.items()}
    return {**parameters, **grids, "target": target, "pixels": pixels, "seed": seed}


def _compare(first: np.ndarray, second: np.ndarray, population: int | None) -> PairVerdict:
    """Compare outcomes 1, 0 and NaN (undecided) of a model and a baseline on the same images.

    Args:
        first: outcomes of the model, (n,).
        second: outcomes of the baseline, (n,).
        population: number of images from which these were drawn; None if it does not count; 0 if none were drawn.
    """
    undecided = np.isnan(first) | np.isnan(second)
    pair = compare_rates(("the model", "the baseline"), first == 1, second == 1, undecided=undecided)
    return pair if population == 0 else _of_drawn(pair, first, second, population)


def _of_drawn(pair: PairVerdict, first: np.ndarray, second: np.ndarray, population: int | None) -> PairVerdict:
    """Replace the interval of a comparison by one that is valid for any number of images drawn in random order."""
    ends = [np.nan_to_num(first, nan=end) - np.nan_to_num(second, nan=1 - end) for end in (0, 1)]
    mean = AnytimeMean(population)
    mean.add(*((end + 1) / 2 for end in ends))
    low, high = (2 * bound - 1 for bound in mean.interval[1:])
    return replace(pair, difference=Interval(pair.difference.value, low, high))


def _shared_images(subjects: list[Any], clean: list[Any]) -> list[np.ndarray]:
    """Return the places of the shared images in each side's results, (m,).

    Shared images have equal pixels, or equal names and labels in the same data.
    """
    if subjects[0].data_digest == subjects[1].data_digest:
        return [np.arange(subject.images) for subject in subjects]
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
    return [np.array([pair[side] for pair in shared]) for side in (0, 1)]
