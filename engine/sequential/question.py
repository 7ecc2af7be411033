"""Questions that end an evaluation on images in random order, and answers by intervals valid at any stopping time."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise
from typing import NamedTuple

import numpy as np

from ...adapters.display_text import format_threat_model
from ...adapters.parameters import parse_number
from ...adapters.threat_model import ThreatModel
from ...errors import InvalidInput
from ...intervals import LEVEL, Interval
from ..attack_run import AttackRun
from ..checks.gate_requirements import Requirement, is_at, parse_requirement
from ..checks.standings import attempt_key, restrict_parts, threat_of, worst_case_bounds
from ..statistics.anytime import AnytimeMean
from ..store.results import Results
from ..tables.estimates import row_values
from ..tables.groups import TableGroup, find_union, group_cells, is_bounded, why_no_union
from ..tables.symbols import UNION, is_union

GRAMMAR = (
    '"RA >= 0.6", "width <= 0.05", "A > B" for two models, or "ranked", each with or without "@ linf 8/255", or '
    '"RA_union >= 0.5"'
)
_AT = re.compile(r"(.*?)\s*(?:@\s*(\w+)(?:\s+(\S+))?)?\s*")
_WIDTH = re.compile(r"width\s*<=\s*(\S+)")
_NUMBER = re.compile(r"[^=].*[<>]=?\s*[-+.\d][-+.\d/e%]*")


class SequentialAnswer(NamedTuple):
    """Answer to a question about one model, or about a pair, under one threat model.

    Args:
        about: the model or the pair, with the threat model.
        interval: robust accuracy, or the difference of two models', with an interval that stays valid for any number of
            images.
        verdict: the decision; "" if there is none yet.
        models: names of the model, or of both models.
        threat: the threat model.
    """

    about: str
    interval: Interval
    verdict: str
    models: tuple[str, ...]
    threat: str

    def __str__(self) -> str:
        value, low, high = self.interval
        return f"{self.about}: {self.verdict or 'undecided'}, {value:.3f} [{low:.3f}, {high:.3f}]"


@dataclass(frozen=True)
class Question:
    """A question on the robust accuracy of all images.

    Args:
        text: the question as given.
        requirement: bound on the robust accuracy of every model, or on that over the union of threat models.
        width: largest width of the interval of every model.
        pair: names of two models, of which the first may be more robust. Without a requirement, a width and a pair, the
            question is the order of all models.
        threat_model: norm and radius; None for every threat model with a radius.
    """

    text: str
    requirement: Requirement | None = None
    width: float | None = None
    pair: tuple[str, ...] = ()
    threat_model: ThreatModel | None = None

    @property
    def is_of_pairs(self) -> bool:
        """Whether models are compared in pairs."""
        return self.requirement is None and self.width is None

    @property
    def is_of_union(self) -> bool:
        """Whether the bound is on the robust accuracy over the union of threat models."""
        return self.requirement is not None and is_union(self.requirement.symbol)

    def check(self, cells: Iterable[AttackRun]) -> None:
        """Raise InvalidInput if the runs cannot answer the question, for example without the named model."""
        cells = [*cells]
        fitting = [cell for cell in cells if self._is_about(cell)]
        if not fitting:
            raise InvalidInput(
                f"`until={self.text}` needs untargeted attacks with a radius"
                + (f" of {self.threat_model.norm} {self.threat_model.epsilon:g}" if self.threat_model else "")
            )
        if self.is_of_union and (lacking := _why_no_union(cells)):
            raise InvalidInput(f"`until={self.text}`: {lacking}")
        models = dict.fromkeys(cell.subject.name for cell in fitting)
        if lacking := [name for name in self.pair if name not in models]:
            raise InvalidInput(
                f"expected names of evaluated models in `until={self.text}` ({', '.join(models)}), got {lacking[0]}"
            )
        if self.is_of_pairs and len(models) < 2:
            raise InvalidInput(f"`until={self.text}` compares models: expected at least two, got {len(models)}")

    def _is_about(self, cell: AttackRun) -> bool:
        threat, at = cell.threat_model, self.threat_model
        if threat.targeted or (threat.epsilon is None and threat.norm != "unrestricted"):
            return False
        return at is None or is_at(threat.norm, threat.epsilon, at)

    def groups(self, outcomes: Results) -> list[TableGroup]:
        """Return the rows of a table by models to which the question applies."""
        groups = [group for group in group_cells(outcomes, "models") if group.parts]
        return [group for group in groups if self._is_about(group.parts[0][0].cell)]


def parse_question(text: str) -> Question:
    """Parse a question: see `GRAMMAR`.

    Raises:
        InvalidInput: if the text has a different form.
        UnknownName: if there is no such metric.
    """
    match = _AT.fullmatch(text)
    assert match is not None  # every text fits
    body, norm, radius = match.groups()
    wrong = f"expected {GRAMMAR}, got `until={text}`"
    if _NUMBER.fullmatch(body) and not body.startswith("width"):
        requirement = parse_requirement(text)
        if requirement.symbol != "RA" and not is_union(requirement.symbol):
            raise InvalidInput(f"{wrong}: `until` supports RA and RA_union only")
        return Question(text, requirement, threat_model=requirement.threat_model)
    try:
        threat_model = None if norm is None else ThreatModel(norm, radius)  # type: ignore[arg-type]
    except InvalidInput as error:
        raise InvalidInput(f"{error} (in `until={text}`)") from error
    if body == "ranked":
        return Question(text, threat_model=threat_model)
    if width := _WIDTH.fullmatch(body):
        most = parse_number(width[1], f"the number in `until={text}`")
        if not 0 < most < 1:
            raise InvalidInput(f"expected a width inside (0, 1) in `until={text}`, got {width[1]}")
        return Question(text, width=most, threat_model=threat_model)
    first, operator, second = (part.strip() for part in body.partition(">"))
    if not operator or not first or not second or second[0] == "=" or first == second:
        raise InvalidInput(wrong)
    return Question(text, pair=(first, second), threat_model=threat_model)


def _why_no_union(cells: Iterable[AttackRun]) -> str:
    """Return why planned runs have no union of threat models; "" if they have one."""
    threats: dict[str, set[str]] = {}
    for cell in cells:
        name = f"{cell.subject.name}{', 8-bit' * cell.pixels}"
        threats.setdefault(name, set()).update({format_threat_model(cell.threat_model)} if is_bounded(cell) else ())
    models: dict[tuple[str, ...], list[str]] = {}
    for name, texts in threats.items():
        models.setdefault(tuple(sorted(texts)), []).append(name)
    return why_no_union(models)


class Answers:
    """Answers to a question that are updated as images are added.

    Args:
        question: the question.
    """

    def __init__(self, question: Question):
        self.question = question
        self._means: dict[str, AnytimeMean] = {}

    def update(self, outcomes: Results) -> list[SequentialAnswer]:
        """Return the answers from results that contain all earlier images, in their random order.

        Raises:
            InvalidInput: if two compared models have no attack in common, or different images.
        """
        question = self.question
        if question.is_of_union:
            return self._of_unions(outcomes)
        groups = question.groups(outcomes)
        if not question.is_of_pairs:
            return [self._of_model(group, threat_of(group), worst_case_bounds(group)) for group in groups]
        threats = groupby(sorted(groups, key=threat_of), key=threat_of)
        pairs = [pair for _, rivals in threats for pair in self._pairs([*rivals])]
        level = 1 - (1 - LEVEL) / max(len(pairs), 1)  # Bonferroni's correction
        return [self._of_pair(*pair, level) for pair in pairs]

    def _pairs(self, rivals: Sequence[TableGroup]) -> list[tuple[TableGroup, TableGroup]]:
        if not self.question.pair:
            return [*combinations(rivals, 2)]
        first, second = ([each for each in rivals if each.labels["model"] == name] for name in self.question.pair)
        return [*zip(first, second, strict=False)]  # no pair if a model was not attacked under this threat model

    def _of_unions(self, outcomes: Results) -> list[SequentialAnswer]:
        """Return an answer for each model, by the values of RA_union in its tables."""
        union, answers = find_union(outcomes), []
        for group in union.rows.values():
            ends = (
                row_values(group.parts, outcomes, UNION, of_model=True, at_most=at_most)[0][0]
                for at_most in (False, True)
            )
            setting = f", {group.labels['setting']}" if group.labels["setting"] else ""
            answers.append(self._of_model(group, union.text + setting, ends))
        return answers

    def _of_model(self, group: TableGroup, threat: str, bounds: Iterable[np.ndarray]) -> SequentialAnswer:
        """Return the answer for a model, from the lower and upper bounds of each image's robustness, (n,) each."""
        name = group.labels["model"]
        about = f"{name}, {threat}"
        low, high = bounds
        interval = self._interval(about, group, low, high, LEVEL)
        requirement, width = self.question.requirement, self.question.width
        if requirement is not None:
            verdict = requirement.decide(interval.low, interval.high)
            bound = f"{requirement.symbol} {requirement.operator} {requirement.number:.10g}"
            return SequentialAnswer(
                about, interval, {"pass": bound, "fail": f"not {bound}", "open": ""}[verdict], (name,), threat
            )
        is_narrow = width is not None and interval.high - interval.low <= width
        return SequentialAnswer(about, interval, f"width <= {width:.10g}" if is_narrow else "", (name,), threat)

    def _of_pair(self, first: TableGroup, second: TableGroup, level: float) -> SequentialAnswer:
        names, threat = tuple(group.labels["model"] for group in (first, second)), threat_of(first)
        about = f"{names[0]} less {names[1]}, {threat}"
        met = [{attempt_key(each.cell) for each in group.outcomes} for group in (first, second)]
        shared = met[0] & met[1]
        images = [group.outcomes[0].columns["image"] for group in (first, second)]
        if not shared or not np.array_equal(images[0], images[1]):
            lacking = "attack" if not shared else "set of images in one order"
            raise InvalidInput(f"`until={self.question.text}`: {' and '.join(names)} have no {lacking} in common")
        same = (group._replace(parts=restrict_parts(group, shared)) for group in (first, second))
        (low, high), (other_low, other_high) = map(worst_case_bounds, same)
        halves = (low - other_high + 1) / 2, (high - other_low + 1) / 2  # differences as values from 0 to 1
        _, least, most = self._interval(about, first, *halves, level)
        verdict = f"{names[0]} > {names[1]}" if least > 0.5 else f"{names[1]} > {names[0]}" if most < 0.5 else ""
        verdict = verdict or ("equal" if least == most else "")
        interval = Interval(float(low.mean() - other_low.mean()), 2 * least - 1, 2 * most - 1)
        return SequentialAnswer(about, interval, verdict, names, threat)

    def _interval(self, about: str, group: TableGroup, low: np.ndarray, high: np.ndarray, level: float) -> Interval:
        mean = self._means.setdefault(about, AnytimeMean(group.parts[0][0].cell.subject.population, level))
        mean.add(low[mean.images :], high[mean.images :])
        return mean.interval


def is_decided(answers: Sequence[SequentialAnswer]) -> bool:
    """Whether there are answers, and every one has a verdict."""
    return bool(answers) and all(answer.verdict for answer in answers)


def describe_order(answers: Sequence[SequentialAnswer]) -> str:
    """Return the order of the models as far as it is decided: "A > B ~ C", where B and C may be in either order."""
    wins: dict[str, int] = {}
    decided = {}
    for answer in answers:
        first, second = answer.models
        sign = {f"{first} > {second}": 1, f"{second} > {first}": -1}.get(answer.verdict, 0)
        wins = {**wins, first: wins.get(first, 0) + sign, second: wins.get(second, 0) - sign}
        decided[first, second], decided[second, first] = sign > 0, sign < 0
    order = sorted(wins, key=lambda name: -wins[name])
    links = (" > " if decided[pair] else " ~ " for pair in pairwise(order))
    return "".join([order[0], *(link + name for link, name in zip(links, order[1:], strict=True))])
