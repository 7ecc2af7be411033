"""Checks requirements such as "RA >= 0.5" on a results folder, for `davylamp gate` and `davylamp.gate`."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from statistics import NormalDist

from ..adapters.display_text import counted, format_threat_labels
from ..adapters.result import VARYING
from ..engine.attack_run import AttackRun, ModelOnData
from ..engine.checks.check_folder import check_folder
from ..engine.checks.gate_requirements import (
    PAIRED,
    VERDICTS,
    Decision,
    Requirement,
    is_at,
    pair_with_baseline,
    parse_requirement,
)
from ..engine.metric_names import facts_of
from ..engine.statistics.bootstrap import FEWEST, Estimate
from ..engine.statistics.paired_tests import min_images_for_equivalence
from ..engine.statistics.verdict import MARGIN, SIGNIFICANT, PairVerdict
from ..engine.store.notes import least_of_estimates, sequence_notes, unsteady_subjects
from ..engine.store.results import Results, check_models, images_text, read_outcomes
from ..engine.store.versions import latest_versions
from ..engine.tables.estimates import population_of, undecided_rate
from ..engine.tables.groups import TableGroup, find_union, group_cells, is_bounded
from ..engine.tables.symbols import is_union
from ..engine.tables.table import build_table, is_worst
from ..errors import InvalidInput, Unsupported
from ..scoring.projections import TIMES, images_to_separate
from .python_inputs import read_names, read_number, read_several
from .verb_result import VerbResult

_NAMED = 4  # most attacks named in a note
_DEVIATIONS = NormalDist().inv_cdf(1 - SIGNIFICANT / 2)  # from the value to either end of a 95 % interval


def gate(
    folder: str | PathLike[str],
    require: str | Iterable[str],
    *,
    against: str | PathLike[str] | None = None,
    margin: float = MARGIN,
    model: str | Iterable[str] | None = None,
    strict: bool = False,
) -> VerbResult:
    """Decide for every model of a results folder whether it meets requirements such as "RA >= 0.5".

    A requirement passes if the whole 95 % interval of the metric meets it. It fails if no value of the interval meets
    it. Otherwise the requirement is undecided: there are too few images, or too many invalid results. A failed or
    unfinished run prevents a pass, because its result could lower the robust accuracy. If a model was evaluated in
    several versions, only the version that was evaluated last is judged. This also holds for the models of `against`.

    If the true value does not meet a requirement, the requirement passes with a probability of at most 2.5 %. For
    metrics with bootstrap intervals, this probability is higher if there are few images.

    Args:
        folder: results folder made by `evaluate`, or the return value of `evaluate`.
        require: one requirement or several, of the form "METRIC >= NUMBER [@ NORM RADIUS]", with >=, >, <= or <. An
            example is "RA >= 0.5 @ linf 8/255". Without "@", a requirement applies to every norm and radius in the
            folder. The metric RA_union is one number for all norms and radii.
        against: results folder of a baseline, with the same images and attacks. If RA or CA is required, the loss of RA
            or CA compared with the baseline must also be at most `margin`. The loss is judged by the interval of the
            paired difference. Each model is compared with the baseline's model of the same name. If the baseline has a
            single model, every model is compared with this model. None for no comparison.
        margin: largest accepted loss compared with the baseline, from 0 to 1.
        model: names of the models to check. "NAME [HASH]" selects one version. Empty for all models.
        strict: whether the gate also fails if a failure indicator of `check` fails.

    Returns:
        One row per requirement, model and threat model, the worst first. The attribute `made` of the result has the
        `Decision`s. `document["code"]` is the exit code of `davylamp gate`.

    Raises:
        InvalidInput: if a requirement has a wrong form, or the folder has no result for the requirement.
        UnknownName: if a metric or a model does not exist.
        Unsupported: if a metric is not available in this folder, or cannot be compared with a baseline.
        Unavailable: if a folder does not exist, or has no run.
    """
    texts = read_several(require, "`require` as one requirement or several", str)
    requirements = list(dict.fromkeys(map(parse_requirement, texts)))
    if not requirements:
        raise InvalidInput("expected at least one requirement, such as 'RA >= 0.5 @ linf 8/255', got none")
    margin = read_number(margin, "margin")
    if not 0 <= margin <= 1:
        raise InvalidInput(f"expected `margin` from 0 to 1, got {margin:g}")
    names = read_names(model, "model")
    symbols = tuple(dict.fromkeys(each.symbol for each in requirements))
    outcomes = read_outcomes(folder, symbols)
    place = outcomes.store.folder
    check_models(outcomes, names)
    outcomes, older = latest_versions(outcomes, names or ())
    older = [f"{line}. To judge another version, give its name with the hash as `model`" for line in older]
    baseline = None
    if against is not None:
        baseline, older_there = latest_versions(read_outcomes(against, symbols))
        older += [f"baseline: {line}" for line in older_there]
    if baseline is not None and (unpaired := [each for each in symbols if each not in PAIRED]):
        raise Unsupported(f"a baseline is compared by {' or '.join(PAIRED)}, got {', '.join(unpaired)}")
    rows = _rows(outcomes.of_models(names or ()), symbols)
    decisions: list[Decision] = []
    judged: list[_GateRow] = []
    common: list[str] = []
    unsteady, unsteady_there = map(_unsteady_names, (outcomes, baseline))
    for requirement in requirements:
        chosen = _rows_about(requirement, rows, place)
        decisions += [_decide(requirement, row, outcomes, unsteady) for row in chosen]
        judged += [row for row in chosen if is_worst(requirement.symbol) and row not in judged]
        if baseline is not None:
            doubtful = unsteady, unsteady_there
            changes = [_decide_change(requirement, row, (outcomes, baseline), margin, doubtful) for row in chosen]
            decisions += [change for change, _ in changes]
            common += [
                f"{change.model}: only {change.images} of {images} images in common with the baseline"
                for change, images in changes
                if change.images < images
            ]
    failing = Counter(each.title for each in check_folder(outcomes, models=names) if each.state == "fail")
    listed = ", ".join(failing)
    if failing and strict:
        decisions.append(Decision("no failure indicator fails", "", "", "fail", detail=f"{listed}: see davylamp check"))
    decisions = list({(each.requirement, each.model, each.threat): each for each in decisions}.values())
    decisions.sort(key=lambda each: VERDICTS.index(each.verdict))
    suspicious = f"{listed} may make these numbers too good: davylamp check {place}" if failing and not strict else ""
    biased = least_of_estimates([(row.labels["model"], row.group.outcomes) for row in judged])
    notes = (
        *older,
        *_attacks_behind(judged),
        *dict.fromkeys(common),
        suspicious,
        *map(str, biased),
        *outcomes.unsteady,
        *map(str, sequence_notes(outcomes)),
    )
    return _result(decisions, str(place), requirements, tuple(filter(None, notes)))


def _unsteady_names(outcomes: Results | None) -> set[str]:
    return set() if outcomes is None else {subject.name for subject in unsteady_subjects(outcomes).values()}


def _attacks_behind(rows: Sequence["_GateRow"]) -> list[str]:
    """Return notes that list the attacks in each worst case, and the kinds of attacks that a worst case lacks."""
    models: dict[tuple[tuple[str, ...], int], dict[str, None]] = {}
    lacks: dict[tuple[str, ...], str] = {}
    for row in rows:
        cells = [each.cell for each in row.group.outcomes]
        members = [member for cell in cells for member in cell.members]
        attacks = tuple(sorted({member.attack for member in members}))
        is_auto = any(each.row.canonical_name == "autoattack" for each in members)  # which has Square
        has_other = is_auto or any(each.knowledge != "white-box" for each in (*cells, *members))
        without = [] if has_other else ["attack without gradients"]
        is_ensemble = is_auto or any(len(cell.members) > 1 for cell in cells)
        without += [] if is_ensemble else ["ensemble such as autoattack"]
        models.setdefault((attacks, row.labels["attacks"]), {})[row.labels["model"]] = None
        lacks[attacks] = f"; no {' and no '.join(without)}" if without else ""
    notes = []
    for (attacks, count), names in models.items():
        of = "" if len(models) == 1 else f"{', '.join(names)}: "
        more = f" and {counted(len(attacks) - _NAMED, 'more implementation')}" if len(attacks) > _NAMED else ""
        listed = f"{', '.join(attacks[:_NAMED])}{more}"
        notes += [f"{of}worst case of {counted(count, 'attack')}: {listed}{lacks[attacks]}"] if attacks else []
    return notes


class _GateRow:
    """One row to judge: a model under one threat model, with the results and the estimates of metrics by symbol.

    If the row combines several threat models, `union` describes these threat models. Otherwise `union` is "".
    """

    def __init__(self, group: TableGroup, metrics: dict[str, Estimate], union: str = ""):
        self.group, self.metrics, self.labels, self.union = group, metrics, group.labels, union
        self.data = ""  # if the model was evaluated on several data sets: the one of this row

    def of(self, symbol: str) -> str:
        """Return what a metric is about: the threat model, or for clean images the data, if this needs to be said."""
        return self.data if facts_of(symbol).stored == "clean" else self.threat

    @property
    def threat(self) -> str:
        """Norm and radius of the row, and the setting in which the row differs from other rows of the same model."""
        setting = f", {self.labels['setting']}" if self.labels["setting"] else ""
        return (self.union or format_threat_labels(self.labels)) + setting


def _rows(outcomes: Results, symbols: Sequence[str]) -> list[_GateRow]:
    table = build_table(outcomes, by="models", metrics=symbols)
    groups = group_cells(outcomes, "models")
    rows = [_GateRow(group, dict(row.metrics)) for group, row in zip(groups, table.rows, strict=True)]
    data: dict[str, set[str]] = {}
    done = [row for row in rows if row.group.outcomes]
    for row in done:
        data.setdefault(row.labels["model"], set()).add(row.group.outcomes[0].cell.subject.key)
    for row in done:
        if len(data[row.labels["model"]]) > 1:
            row.data = images_text(row.group.outcomes[0].cell.subject)
    if not any(map(is_union, symbols)):
        return rows
    union = find_union(outcomes)
    wholes = {id(whole): _GateRow(whole, row.metrics, union.text) for row in rows if (whole := union.row_of(row.group))}
    return [*rows, *wholes.values()]


def _rows_about(requirement: Requirement, rows: Sequence[_GateRow], place: Path) -> list[_GateRow]:
    """Return the rows to which a requirement applies.

    Raises:
        InvalidInput: if a model has no such row, or the metric is undefined in such a row.
    """
    symbol, record, at = requirement.symbol, facts_of(requirement.symbol), requirement.threat_model
    if is_union(symbol):
        return [row for row in rows if row.union]
    rows = [row for row in rows if not row.union]
    fitting = [row for row in rows if row.labels["targeted"] == ("target" in record.needs) or record.stored == "clean"]
    if is_worst(symbol):  # meaningless over attacks without a radius
        fitting = [row for row in fitting if row.labels["norm"] == "unrestricted" or row.labels["epsilon"] > 0]
    if at is not None:
        fitting = [row for row in fitting if is_at(row.labels["norm"], _radius(row), at)]
    if record.stored == "clean":  # equal in every threat model
        fitting = list({row.group.outcomes[0].cell.subject.key: row for row in fitting if row.group.outcomes}.values())
    lacking = {row.labels["model"] for row in rows} - {row.labels["model"] for row in fitting}
    if lacking:
        has = "; ".join(dict.fromkeys(row.threat for row in rows)) or "nothing"
        raise InvalidInput(
            f"{requirement}: no result in {place} for {', '.join(sorted(lacking))}; there are results for {has}"
        )
    empty = [row for row in fitting if math.isnan(row.metrics[symbol].value) and row.group.parts]
    if empty:
        row = empty[0]
        reasons = {each.unmeasured[symbol] for each in row.group.outcomes if symbol in each.unmeasured}
        why = f": {'; '.join(sorted(reasons))}" if reasons else ""
        raise InvalidInput(f"{requirement}: {symbol} is undefined for {row.labels['model']}, {row.threat}{why}")
    return fitting


def _radius(row: _GateRow) -> float | None:
    return None if math.isnan(row.labels["epsilon"]) else row.labels["epsilon"]


def _decide(requirement: Requirement, row: _GateRow, outcomes: Results, unsteady: Collection[str]) -> Decision:
    symbol, is_clean = requirement.symbol, facts_of(requirement.symbol).stored == "clean"
    value, low, high, images = row.metrics[symbol]
    decided = requirement.decide(low, high)
    base = Decision(
        str(requirement),
        row.labels["model"],
        row.of(symbol),
        "fail",
        *(value, low, high, images),
        attacks=0 if is_clean else row.labels["attacks"],
    )
    if not is_clean and base.model in unsteady:
        return replace(base, verdict="invalid results", detail=VARYING)
    missing = "" if is_clean else _missing(row, outcomes)
    settled = "fail" if requirement.is_lower_bound else "pass"  # more attacks only lower a worst case
    if missing and not (is_worst(symbol) and decided == settled):
        return replace(base, verdict="unfinished", detail=missing)
    if decided == "fail":
        return replace(base, detail=f"no value of its interval is {requirement.operator} {requirement.number:g}")
    if decided == "pass":
        return replace(base, verdict="pass")
    spread = undecided_rate(row.group.parts, outcomes, symbol, of_model=True)
    ends = (value, value + spread)  # with undecided images as 0 and as 1: more images narrow the interval towards both
    if spread and requirement.is_met(ends[0]) != requirement.is_met(ends[1]):
        count = row.labels["violations"]
        detail = f"{counted(count, 'result')} {'is' if count == 1 else 'are'} invalid. `davylamp check` names the cause"
        return replace(base, verdict="invalid results", detail=detail)
    nearest = min(ends, key=lambda end: abs(end - requirement.number))
    half_width = _half_width(requirement, ends, low, high)
    return _with_more_images(base, abs(nearest - requirement.number), half_width, population_of(row.group.parts))


def _half_width(requirement: Requirement, ends: tuple[float, float], low: float, high: float) -> float:
    """Return the distance from the estimate to the interval's bound on the side of the required number."""
    return ends[0] - low if requirement.number <= ends[0] else high - ends[1]


def _with_more_images(base: Decision, distance: float, half_width: float, population: int | None) -> Decision:
    """Return the decision "too few images", with the number of further images that would decide the requirement.

    If the images are a sample, this number is at most the number of images that have not been drawn.
    """
    images, more = base.images, None
    if math.isnan(half_width) and images >= FEWEST:  # equal values, or a metric that has none
        return replace(base, verdict="too few images", detail="it has no interval, and a requirement needs one")
    if math.isnan(half_width):
        more = FEWEST - images
    elif half_width > 0:
        more = images_to_separate(distance / half_width * _DEVIATIONS, images, _DEVIATIONS)[1]
    if population is not None and images < population:
        more = min(more or population, population - images)
    return _too_few(base, more)


def _too_few(base: Decision, more: int | None) -> Decision:
    most = (TIMES - 1) * base.images
    detail = f"more than {most} more images" if more is None else f"about {counted(more, 'more image')}"
    return replace(base, verdict="too few images", more=more, detail=detail)


def _missing(row: _GateRow, outcomes: Results) -> str:
    """Describe the missing results of a row. "" if no result is missing.

    Results are missing because of failed or unfinished runs, attacks that have changed, and damaged files.
    """
    keys = {each.cell.subject.key for each in row.group.outcomes} or {
        cell.subject.key for cell, _ in outcomes.failed if cell.subject.name == row.labels["model"]
    }

    def belongs(cell: AttackRun) -> bool:
        if row.union:
            return cell.subject.key in keys and is_bounded(cell)
        rules = cell.threat_model
        epsilon = math.nan if rules.epsilon is None else rules.epsilon
        labels = {"norm": rules.norm, "epsilon": epsilon, "targeted": rules.targeted}
        return cell.subject.key in keys and all(str(row.labels[name]) == str(each) for name, each in labels.items())

    counts = {
        "{} failed": (row.labels["failed"], "run"),
        "{} not finished": (sum(map(belongs, (*outcomes.running, *outcomes.waiting))), "run"),
        "{} of attacks that have changed": (sum(belongs(cell) for cell, _ in outcomes.unknown), "run"),
        "{} damaged": (len(outcomes.damaged), "file"),
    }
    parts = [text.format(counted(count, noun)) for text, (count, noun) in counts.items() if count]
    return f"{'; '.join(parts)}: run the evaluation again, with --retry-failed" if parts else ""


def _decide_change(
    requirement: Requirement,
    row: _GateRow,
    folders: tuple[Results, Results],
    margin: float,
    unsteady: tuple[Collection[str], Collection[str]],
) -> tuple[Decision, int]:
    """Decide whether the loss compared with the baseline is at most the margin.

    Returns:
        The decision, and the number of images of the row or of its baseline, whichever is larger.
    """
    is_clean = facts_of(requirement.symbol).stored == "clean"
    other = _baseline_row(row, folders[1], is_clean=is_clean)
    images = max(group.outcomes[0].cell.subject.images for group in (row.group, other))
    change = _decide_pair(requirement, row, other, folders, margin)
    if not is_clean and (row.labels["model"] in unsteady[0] or other.labels["model"] in unsteady[1]):
        change = replace(change, verdict="invalid results", detail=VARYING)
    return change, images


def _decide_pair(
    requirement: Requirement, row: _GateRow, other: TableGroup, folders: tuple[Results, Results], margin: float
) -> Decision:
    outcomes, baseline = folders
    symbol, is_clean = requirement.symbol, facts_of(requirement.symbol).stored == "clean"
    at = f" @ {row.of(symbol)}" if row.of(symbol) else ""
    change = Requirement(symbol, ">=", -margin)
    loss = f" - {margin:g}" if margin else ""
    base = Decision(f"{symbol} >= baseline{loss}{at}", row.labels["model"], row.of(symbol), "fail", attacks=0)
    pair, known, bound, attacks, lost, is_unchanged = pair_with_baseline(
        symbol, (row.group, outcomes), (other, baseline)
    )
    images = pair.images + pair.left_out
    base = replace(base, **pair.difference._asdict(), images=images, attacks=attacks)
    missing = "" if is_clean else _missing(row, outcomes)
    missing = missing or (f"attacks of the baseline that were not run here: {'; '.join(lost)}" if lost else "")
    decided = change.decide(pair.difference.low, pair.difference.high)
    if missing and change.decide(bound.difference.low, bound.difference.high) == "fail":
        detail = f"the loss is larger than {margin:g}, whatever these find: {missing}"
        return replace(base, **bound.difference._asdict(), detail=detail)
    if missing:
        return replace(base, verdict="unfinished", detail=missing)
    if is_unchanged:  # the difference of a model from itself is exactly 0
        detail = f"the same model as in the baseline, with the same result on {counted(images, 'image')}"
        return replace(base, value=0.0, low=0.0, high=0.0, verdict="pass", detail=detail)
    if decided != "open":
        return replace(base, verdict=decided, detail=f"the loss is larger than {margin:g}" * (decided == "fail"))
    return _open_change(base, change, (pair, known), population_of(row.group.parts))


def _open_change(
    base: Decision, change: Requirement, pairs: tuple[PairVerdict, PairVerdict], population: int | None
) -> Decision:
    """Return the decision on a loss that the interval does not decide: "invalid results" or "too few images".

    `pairs` has two comparisons with the baseline: with and without images that have an invalid result.
    """
    (pair, known), margin = pairs, -change.number
    if pair.left_out and change.decide(known.difference.low, known.difference.high) != "open":
        detail = f"{counted(pair.left_out, 'image')} with an invalid result may count either way"
        return replace(base, verdict="invalid results", detail=detail)
    if margin and not (pair.only_a or pair.only_b or pair.left_out):
        return _too_few(base, max(min_images_for_equivalence(margin, 1 - SIGNIFICANT) - base.images, 1))
    value, low, high = pair.difference
    half_width = value - low if value >= -margin else high - value
    return _with_more_images(base, abs(value + margin), half_width, population)


def _baseline_row(row: _GateRow, baseline: Results, *, is_clean: bool) -> TableGroup:
    """Return the row of the baseline with which a row is compared, under the same threat model.

    The row is about the model of the same name. If the baseline has only one model, the row is about this model.

    Raises:
        InvalidInput: if the baseline has no such model, or the model was not attacked under this threat model.
    """
    groups = [group for group in group_cells(baseline, "models") if group.parts]
    subject = row.group.outcomes[0].cell.subject
    models = list(dict.fromkeys(group.labels["model"] for group in groups))
    name = next((each for each in (row.labels["model"], subject.model) if each in models), "")
    name = name or (models[0] if len(models) == 1 else "")
    if not name:
        raise InvalidInput(
            f"the baseline has no model {row.labels['model']}, and more than one other model: {', '.join(models)}"
        )
    of_model = [group for group in groups if group.labels["model"] == name]
    alike = [group for group in of_model if is_clean or _are_alike(group, row.group)]
    if not alike:
        has = "; ".join(dict.fromkeys(_GateRow(group, {}).threat for group in of_model))
        raise InvalidInput(f"expected {row.threat} in the baseline for {name}, got {has}")
    return min(alike, key=lambda group: _distance_of_data(group.outcomes[0].cell.subject, subject))


def _distance_of_data(one: ModelOnData, other: ModelOnData) -> tuple[bool, bool]:
    return one.data_digest != other.data_digest, one.data != other.data


def _are_alike(one: TableGroup, other: TableGroup) -> bool:
    first, second = (group.outcomes[0].cell for group in (one, other))
    return all(getattr(first, name) == getattr(second, name) for name in ("threat_model", "target", "pixels"))


def _result(
    decisions: Sequence[Decision], place: str, requirements: Sequence[Requirement], notes: tuple[str, ...]
) -> VerbResult:
    worst = decisions[0].verdict
    code = {"pass": 0, "too few images": 3}.get(worst, 1)
    counts = Counter(each.verdict for each in decisions)
    models = len({each.model for each in decisions if each.model})
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    headline = f"{worst}: {parts} ({place}, {counted(models, 'model')})"
    document = {
        "verdict": worst,
        "code": code,
        "folder": place,
        "requirements": [*map(str, requirements)],
        "decisions": [each.document() for each in decisions],
        "notes": list(notes),
    }
    return VerbResult(headline, [vars(each) for each in decisions], document, notes, tuple(decisions))
