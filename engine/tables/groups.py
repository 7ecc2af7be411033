"""Groups runs into the rows of a table, and finds the settings that distinguish rows."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ...adapters.display_text import format_threat_labels, format_threat_model
from ...conventions import KNOWLEDGE
from ...errors import InvalidInput, Unsupported
from ..attack_run import AttackRun
from ..finding import Finding, note
from ..store.notes import least_of_estimates
from ..store.results import Results, RunResult, distinguishing_settings, images_text
from .symbols import By

_COMPARED = ("norm", "epsilon", "targeted", "setting")  # rows of models with equal values of these are compared
Knowledge = Literal["white-box", "black-box", "score", "decision", "transfer"]
_NAMED = 3  # most models named with their threat models
_ORDER = ("white-box", "transfer", "score-based", "decision-based")


class TableGroup(NamedTuple):
    """Runs of a table row.

    Args:
        labels: labels of the row.
        parts: runs whose results are averaged. Each part is a list of repeats (seeds).
        finer: settings that distinguish rows with equal labels.
    """

    labels: dict[str, Any]
    parts: list[list[RunResult]]
    finer: dict[str, str]

    @property
    def outcomes(self) -> list[RunResult]:
        """Runs of all parts."""
        return [outcome for part in self.parts for outcome in part]


class ThreatUnion(NamedTuple):
    """The union of a folder's threat models. An image is robust to the union if it is robust under each threat model.

    Attributes:
        threat_models: the threat models as texts: "l2 0.5", "linf 8/255".
        has_several_norms: whether at least one model was attacked under several norms.
        lacking: the reason why the folder has no union; "" if it has one.
        rows: runs under all these threat models, by key of model and data and by whether the examples are 8-bit.
    """

    threat_models: tuple[str, ...]
    has_several_norms: bool
    lacking: str
    rows: dict[tuple[str, bool], TableGroup]

    @property
    def text(self) -> str:
        """The threat models in one text: "l2 0.5 + linf 8/255"."""
        return " + ".join(self.threat_models)

    def row_of(self, group: TableGroup) -> TableGroup | None:
        """Return the runs under all threat models on the model of a row.

        None if the row's threat model is not in the union.
        """
        cell = next((each.cell for each in group.outcomes if is_bounded(each.cell)), None)
        return None if cell is None else self.rows[cell.subject.key, cell.pixels]


def is_bounded(cell: AttackRun) -> bool:
    """Whether a run can belong to a union of threat models: untargeted, and with a given radius or unrestricted."""
    rules = cell.threat_model
    is_given = rules.norm == "unrestricted" or bool(rules.epsilon)
    return is_given and not rules.targeted and not cell.search.chooses_radius


def find_union(outcomes: Results) -> ThreatUnion:
    """Find the union of a folder's threat models.

    A union needs at least two threat models, and every model needs results under the same ones.
    """
    every = [*(each.cell for each in outcomes.done), *(cell for cell, _ in outcomes.failed)]
    done = tuple(each for each in outcomes.done if is_bounded(each.cell))
    failed = tuple((cell, why) for cell, why in outcomes.failed if is_bounded(cell))
    groups = group_cells(replace(outcomes, done=done, failed=failed), "models", mixed=True)
    rows = {(g.outcomes[0].cell.subject.key, g.outcomes[0].cell.pixels): g for g in groups if g.parts}
    models: dict[tuple[str, ...], list[str]] = {}  # by their threat models
    norms = {key: {each.cell.threat_model.norm for each in group.outcomes} for key, group in rows.items()}
    for key, subject in {(cell.subject.key, cell.pixels): cell.subject for cell in every}.items():
        outcomes_of = rows[key].outcomes if key in rows else []
        texts = tuple(dict.fromkeys(format_threat_model(each.cell.threat_model) for each in outcomes_of))
        models.setdefault(texts, []).append(f"{subject.name} on {images_text(subject)}{', 8-bit' * key[1]}")
    lacking = why_no_union(models)
    return ThreatUnion(next(iter(models), ()), any(len(each) > 1 for each in norms.values()), lacking, rows)


def why_no_union(models: Mapping[tuple[str, ...], Sequence[str]]) -> str:
    """Return why there is no union of threat models; "" if there is one.

    Args:
        models: names of models by the texts of their threat models, of those that `is_bounded` runs have.
    """
    if len(models) > 1:
        has = "; ".join(
            f"{' + '.join(texts) or 'none'} ({', '.join(names[:_NAMED])}{', ...' * (len(names) > _NAMED)})"
            for texts, names in models.items()
        )
        return f"RA_union needs the same threat models, untargeted and with a radius, for all models, got {has}"
    if len(next(iter(models), ())) < 2:
        has = "".join(next(iter(models), ())) or "none"
        return f"RA_union needs several threat models, untargeted and with a radius, got {has}"
    return ""


def distinguishing_text(options: Sequence[Mapping[str, str]]) -> list[str]:
    """Return for each setting a text with the values in which the settings differ: "steps=5, step_size=0.02"."""
    names = list(dict.fromkeys(name for option in options for name in option))
    varied = [name for name in names if len({option.get(name) for option in options}) > 1]
    return [", ".join(f"{name}={option[name]}" for name in varied if option.get(name)) for option in options]


def model_names(outcomes: Results) -> dict[str, str]:
    """Return the display name of every model (`ModelOnData.name`), by key of model and data (`ModelOnData.key`)."""
    return {key: subject.name for key, subject in outcomes.subjects.items()}


def threat_labels(cell: AttackRun) -> dict[str, Any]:
    """Return norm, epsilon (NaN without a radius) and targeted, as labels of a table row."""
    rules = cell.threat_model
    return {
        "norm": rules.norm,
        "epsilon": math.nan if rules.epsilon is None else rules.epsilon,
        "targeted": rules.targeted,
    }


def group_cells(outcomes: Results, by: By, *, mixed: bool = False) -> list[TableGroup]:
    """Group the runs of a folder into table rows, in order, with their labels.

    A failed run is counted in the label `failed` of its row.

    Args:
        outcomes: results of a folder.
        by: whether a row is an attack, a model, or a pair of an attack and a model: "attacks", "models" or "pairs".
        mixed: whether a model has a single row for the attacks of all threat models.
    """
    every = [(outcome.cell, outcome) for outcome in outcomes.done] + [(cell, None) for cell, _ in outcomes.failed]
    shared = shared_settings(cell for cell, _ in every)

    def row_of(cell: AttackRun) -> tuple[Any, ...]:
        if by == "models":
            return cell.subject.key, cell.pixels, *(() if mixed else (*_ball(cell), cell.target))
        return shared(cell) if by == "attacks" else (cell.subject.key, *setting_of(cell))

    rows: dict[tuple[Any, ...], list[tuple[AttackRun, RunResult | None]]] = {}
    for cell, outcome in sorted(every, key=lambda item: _place(item[0], by)):
        rows.setdefault(row_of(cell), []).append((cell, outcome))
    groups = [_group(cells, by, mixed=mixed) for cells in rows.values()]
    _fill_settings(groups)
    return groups


def of_kind(outcomes: Results, knowledge: Knowledge | None) -> Results:
    """Select the results of attacks with one kind of knowledge of the model; None for all attacks.

    Raises:
        InvalidInput: if there is no such kind of knowledge.
        Unsupported: if no attack of the results has this kind of knowledge.
    """
    if knowledge is None:
        return outcomes
    if knowledge not in KNOWLEDGE:
        raise InvalidInput(f"expected knowledge as one of {', '.join(KNOWLEDGE)}, got {knowledge!r}")
    done = tuple(outcome for outcome in outcomes.done if outcome.cell.knowledge in KNOWLEDGE[knowledge])
    if not done:
        have = ", ".join(sorted({outcome.cell.knowledge for outcome in outcomes.done})) or "no finished runs"
        raise Unsupported(f"expected {knowledge} attacks, got {have} only")
    failed = tuple((cell, why) for cell, why in outcomes.failed if cell.knowledge in KNOWLEDGE[knowledge])
    return replace(outcomes, done=done, failed=failed)


def uneven_rows(groups: Sequence[TableGroup], *, mixed: bool) -> Iterator[Finding]:
    """Yield a note for each model that lacks results of an attack which another model's row includes.

    Args:
        groups: rows of models.
        mixed: whether a row is over all threat models. If False, rows are compared only within a threat model.
    """
    families: dict[tuple[str, ...], list[TableGroup]] = {}
    for group in groups:
        family = () if mixed else tuple(str(group.labels[name]) for name in _COMPARED)
        families.setdefault(family, []).append(group)
    for family in families.values():
        cells = [[part[0].cell for part in group.parts] for group in family]
        setting = shared_settings(cell for row in cells for cell in row)
        attacks = [{setting(cell): cell.title for cell in row} for row in cells]
        every = {key: name for row in attacks for key, name in row.items()}
        for group, row in zip(family, attacks, strict=True):
            lacking = list(dict.fromkeys(name for key, name in every.items() if key not in row))
            name = group.labels["model"] if mixed else f"{group.labels['model']}, {format_threat_labels(group.labels)}"
            if lacking and (mixed or row):
                sentence = "{subject}: no result for {attacks}, so its means are not comparable with the other rows"
                yield note("uneven", sentence, subject=name, attacks=", ".join(lacking))


def worst_case_bias_note(groups: Sequence[TableGroup]) -> list[Finding]:
    """Return a note on random models whose worst case over several results is biased towards lower values."""
    return least_of_estimates([(group.labels["model"], group.outcomes) for group in groups])


def _group(cells: list[tuple[AttackRun, RunResult | None]], by: By, *, mixed: bool) -> TableGroup:
    done = [outcome for _, outcome in cells if outcome is not None]
    parts: dict[Any, list[RunResult]] = {}
    for outcome in done:
        parts.setdefault(outcome.cell.subject.key if by == "attacks" else setting_of(outcome.cell), []).append(outcome)
    first = cells[0][0]
    labels: dict[str, Any] = {"model": first.subject.name} if by != "attacks" else {}
    labels |= {"implementation": first.title} if by != "models" else {}
    labels |= {"knowledge": first.knowledge} if by == "attacks" else {}
    labels |= {} if mixed else threat_labels(first)
    labels |= {"setting": ""}
    labels |= {"attacks": {"models": len(parts)}, "models": {"attacks": len(parts)}, "pairs": {}}[by]
    labels |= {"cells": len(done), "failed": len(cells) - len(done)}
    results = [outcome.results for outcome in done]
    labels["images"] = int(sum(each.attacked.sum() for each in results))
    labels["violations"] = int(sum(each.violated.sum() for each in results))
    if first.search.chooses_radius and len({outcome.cell.threat_model.epsilon for outcome in done}) != 1:
        labels["epsilon"] = math.nan  # the radius differs between models: see the notes
    finer = distinguishing_settings(first)
    if by == "models":
        finer = {name: finer[name] for name in ("pixels", "data", *(() if mixed else ("target",)))}
    return TableGroup(labels, list(parts.values()), finer)


def _fill_settings(groups: list[TableGroup]) -> None:
    """Set the label `setting` of rows that have equal labels otherwise."""
    alike: dict[tuple[Any, ...], list[TableGroup]] = {}
    for group in groups:
        names = ("model", "implementation", "norm", "epsilon", "targeted")
        alike.setdefault(tuple(str(group.labels.get(name)) for name in names), []).append(group)
    for peers in alike.values():
        for group, text in zip(peers, distinguishing_text([each.finer for each in peers]), strict=True):
            group.labels["setting"] = text


def setting_of(cell: AttackRun) -> tuple[Any, ...]:
    """Return the setting of a run: implementation, threat model and parameters, without model, seed and shard size.

    An attack at its saturation radius has a different radius on each model. Its setting contains the requested threat
    model, so that the setting is the same for all models.
    """
    return (cell.title, *_ball(cell.as_planned), *sorted(distinguishing_settings(cell).items()))


def plain_setting_of(cell: AttackRun) -> tuple[Any, ...]:
    """Return the setting of a run without numbers of samples, so that random and deterministic models agree."""
    return setting_of(replace(cell, draws=0, eot=1))


def shared_settings(cells: Iterable[AttackRun]) -> Callable[[AttackRun], tuple[Any, ...]]:
    """Return a function from a run to its setting, which is equal for random and deterministic models.

    The number of samples is part of a setting only if a model was run with several numbers of samples.
    """
    ways: dict[tuple[Any, ...], set[tuple[int, int]]] = {}
    for cell in cells:
        ways.setdefault((cell.subject.key, plain_setting_of(cell)), set()).add((cell.draws, cell.eot))
    several = {setting for (_, setting), drawn in ways.items() if len(drawn) > 1}

    def setting(cell: AttackRun) -> tuple[Any, ...]:
        plain = plain_setting_of(cell)
        return setting_of(cell) if plain in several else plain

    return setting


def _ball(cell: AttackRun) -> tuple[Any, ...]:
    return cell.threat_model.norm, cell.threat_model.epsilon, cell.threat_model.targeted


def _place(cell: AttackRun, by: By) -> tuple[Any, ...]:
    """Return the sort key of a run: first the table row, then the order inside the row."""
    norm, epsilon, targeted = _ball(cell)
    ball = (norm, math.inf if epsilon is None else epsilon, targeted)
    attack = (_ORDER.index(cell.knowledge), cell.row.attack, *ball, cell.title)
    model = (cell.subject.model, cell.subject.key)
    ordered = {"attacks": (*attack, *model), "models": (*model, *ball, *attack), "pairs": (*model, *attack)}[by]
    return (*ordered, cell.seed, cell.key)
