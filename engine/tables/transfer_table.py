"""Transfer: the rate at which examples made on one model fool each other one, and CANARY's means of those tables."""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...adapters.words import radius_text
from ...errors import Unsupported
from ...metrics import transfer_by_source, transfer_by_target, transfer_of_attack
from ..cell import ModelOnData
from ..statistics.bootstrap import Estimate
from ..store.outcomes import Outcome, Outcomes, outcomes_of
from ..store.transfers import Over, mean_rate, transfer_rates
from .estimates import estimate_share
from .groups import Group, group_cells, model_names
from .table import Table, TableRow

Columns = dict[tuple[int, ...], list[np.ndarray]]  # by attack, made on, tested on (-1: all others): of each repeat
_LABELS = ("implementation", "norm", "epsilon", "targeted", "setting")


@dataclass(frozen=True)
class TransferTable:
    """M models on the same images, A attacks; every entry is an estimate whose n is its number of examples.

    Args:
        models: their names, the order of every M below.
        attacks: labels of each attack: `implementation`, `norm`, `epsilon`, `targeted`, `setting`.
        rates: attack, made on, tested on: A x M x M; undefined on the diagonal and where nothing was tested.
        by_source: A x M, the mean over the other tested models; with rates over "fooled" this is OTR.
        by_target: A x M, the mean over the other models that the examples are made on.
        of_attack: A, the mean over all pairs.
        threat: M, the mean of `by_target` over the attacks that have it.
        threat_from: made on, tested on: M x M, the mean over the attacks that have it (CANARY's simple threat test).
        threat_attacks: M, how many attacks that is.
        threat_from_attacks: M x M, the same.
    """

    models: tuple[str, ...]
    attacks: tuple[dict[str, Any], ...]
    rates: tuple[tuple[tuple[Estimate, ...], ...], ...]
    by_source: tuple[tuple[Estimate, ...], ...]
    by_target: tuple[tuple[Estimate, ...], ...]
    of_attack: tuple[Estimate, ...]
    threat: tuple[Estimate, ...]
    threat_from: tuple[tuple[Estimate, ...], ...]
    threat_attacks: tuple[int, ...]
    threat_from_attacks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Transfer:
    """The transfer tables of a folder, one for each set of images that several models share, and what is left out."""

    tables: tuple[TransferTable, ...]
    notes: tuple[str, ...]


def build_transfer(
    folder: str | Path | Outcomes,
    *,
    over: Over = "fooled",
    bootstrap: int = 1000,
    seed: int = 0,  # noqa: ARG001 - as every table has it; shares need no draws
) -> Transfer:
    """Transfer rates between all models of a folder that see the same images.

    Args:
        folder: a results folder, evaluated with `--transfer simple` or `full`, or what was read of it with "OTR".
        over: the rate is over the examples that fool the model that they were made on ("fooled"), or over all images
            that it gets right ("valid"). That the tested model is right on the clean image is not asked.
        bootstrap: 0: no intervals; any other number: those of shares, which need no resampling.
        seed: changes nothing.

    Returns:
        The tables. A mean over models with an entry that was not tested is undefined, as after `--transfer simple`; a
        mean over attacks is that of those that were tested, and a note names the others.

    Raises:
        Unsupported: if no example was tested on another model.
        Unavailable: if there is no such folder, or no cell in it.
    """
    outcomes = outcomes_of(folder, ["OTR"])
    if not any(outcome.cell.key in (outcomes.transfers or {}) for outcome in outcomes.done):
        outcome = outcomes.store.folder
        raise Unsupported(f"no example of {outcome} was tested on another model: evaluate with --transfer full")
    shared: dict[tuple[str, str], list[ModelOnData]] = {}
    for subject in outcomes.subjects.values():
        shared.setdefault((subject.data, subject.data_digest), []).append(subject)
    names, tables, notes = model_names(outcomes), [], []
    for subjects in shared.values():
        keys = [subject.key for subject in subjects]
        made = (outcome for outcome in outcomes.done if not outcome.cell.surrogate)  # which are no model's here
        mine = tuple(outcome for outcome in made if outcome.cell.subject.key in keys)
        if any(outcome.cell.key in (outcomes.transfers or {}) for outcome in mine):
            groups = group_cells(replace(outcomes, done=mine, failed=()), "attacks")
            tables.append(_table(groups, keys, tuple(names[key] for key in keys), outcomes, over, banded=bootstrap > 0))
            notes += _gaps(tables[-1])
        else:
            alone = ", ".join(names[key] for key in keys)
            notes.append(f"left out: {alone}: no other model was tested on the same images (pixel by pixel)")
    return Transfer(tuple(tables), tuple(notes + outcomes.notes))


def _table(
    groups: list[Group],
    keys: list[str],
    names: tuple[str, ...],
    outcomes: Outcomes,
    over: Over,
    *,
    banded: bool,
) -> TransferTable:
    """All of one set of images."""
    models, attacks = len(keys), len(groups)
    rates = np.full((attacks, models, models), np.nan)
    known = np.zeros(rates.shape, int)
    seen: Columns = {}
    for attack, group in enumerate(groups):
        for part in group.parts:
            source = keys.index(part[0].cell.subject.key)
            fooled = _rates_of(part, keys, outcomes, over)
            for tested, key in enumerate(keys):
                columns = _known([item[key] for item in fooled if key in item])
                if columns:
                    seen[attack, source, tested] = columns
                    rates[attack, source, tested] = _mean([float(item[~np.isnan(item)].mean()) for item in columns])
                    known[attack, source, tested] = sum(int((~np.isnan(item)).sum()) for item in columns)
            others = [key for key in keys if key != part[0].cell.subject.key]
            complete = [item for item in fooled if others and item.keys() >= set(others)]
            seen[attack, source, -1] = _known([mean_rate([item[key] for key in others]) for item in complete])  # as OTR
    table = torch.from_numpy(rates)
    by_source, by_target = transfer_by_source(table).numpy(), transfer_by_target(table).numpy()
    every, cells = range(models), list(np.ndindex(attacks, models))
    pairs = {place: [place] for place in np.ndindex(attacks, models, models)}
    sources = {(a, s): [(a, s, -1)] for a, s in cells}
    targets = {(a, t): [(a, s, t) for s in every if s != t] for a, t in cells}
    whole = {(a,): [(a, s, t) for s in every for t in every if s != t] for a in range(attacks)}
    threat = {
        (t,): [key for a in range(attacks) if not np.isnan(by_target[a, t]) for key in targets[a, t]] for t in every
    }
    threat_from = {(s, t): [(a, s, t) for a in range(attacks)] for s in every for t in every}
    make = partial(_estimates, seen=seen, banded=banded)
    return TransferTable(
        names,
        tuple({name: group.labels[name] for name in _LABELS} for group in groups),
        make(rates, known, pairs),
        make(by_source, known.sum(2), sources),
        make(by_target, known.sum(1), targets),
        make(transfer_of_attack(table).numpy(), known.sum((1, 2)), whole),
        make(_mean_of_known(by_target), known.sum((0, 1)), threat),
        make(_mean_of_known(rates), known.sum(0), threat_from),  # `simple_transfer_threat` from each model
        tuple(int(count) for count in (~np.isnan(by_target)).sum(0)),
        tuple(tuple(int(count) for count in line) for line in (~np.isnan(rates)).sum(0)),
    )


def _mean_of_known(rates: np.ndarray) -> np.ndarray:
    """Mean over the attacks, the first dimension, that have a value."""
    known = ~np.isnan(rates)
    with np.errstate(invalid="ignore"):
        return np.nansum(rates, 0) / known.sum(0)


def _gaps(table: TransferTable) -> list[str]:
    """A line for each attack that has no rate for some pairs of different models."""
    pairs, lines = len(table.models) * (len(table.models) - 1), []
    for labels, rates in zip(table.attacks, table.rates, strict=True):
        have = sum(not math.isnan(estimate.value) for line in rates for estimate in line)
        if have < pairs:
            radius = "" if math.isnan(labels["epsilon"]) else f" {radius_text(labels['norm'], labels['epsilon'])}"
            name = " ".join(
                part for part in (labels["implementation"], labels["norm"] + radius, labels["setting"]) if part
            )
            lines.append(
                f"{name}: a rate for {have} of {pairs} pairs of models; the threat is the mean without the others"
            )
    return lines


def _rates_of(part: list[Outcome], keys: list[str], outcomes: Outcomes, over: Over) -> list[dict[str, np.ndarray]]:
    """Which of one model's examples fool each other one, (n,) by key of its subject, for each repeat."""
    transfers = outcomes.transfers or {}
    tested = [transfers.get(outcome.cell.key, {}) for outcome in part]
    return [
        transfer_rates(outcome.columns, outcome.usable, {key: predicted[key] for key in keys if key in predicted}, over)
        for outcome, predicted in zip(part, tested, strict=True)
    ]


def _known(columns: list[np.ndarray]) -> list[np.ndarray]:
    """Those that some image has a value in."""
    return [column for column in columns if not np.isnan(column).all()]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _estimates(
    rates: np.ndarray, known: np.ndarray, rests_on: Any, seen: Columns, *, banded: bool, at: Any = ()
) -> Any:
    """Estimates in nested tuples of `rates`, (...); each `rests_on` entries of `seen`, and on `known` examples."""
    if rates.ndim:
        parts = (_estimates(rates[i], known[i], rests_on, seen, banded=banded, at=(*at, i)) for i in range(len(rates)))
        return tuple(parts)
    ends = math.nan, math.nan
    if banded and not math.isnan(rates):
        ends = estimate_share([seen[key] for key in rests_on[at] if seen.get(key)])[1:3]
    return Estimate(float(rates), *ends, int(known))


def transfer_rows(transfer: Transfer) -> Table:
    """The same as a table with one line for each entry, `rate`; what is a mean is made or tested on "mean"."""
    rows = []
    for table in transfer.tables:
        for place, attack in enumerate(table.attacks):
            labels = {**attack, "attacks": 1}
            entries = [*table.rates[place], (*table.by_target[place], table.of_attack[place])]
            for made_on, line in zip((*table.models, "mean"), entries, strict=True):
                every = line if made_on == "mean" else (*line, table.by_source[place][table.models.index(made_on)])
                rows += [
                    _row(labels, made_on, tested, e) for tested, e in zip((*table.models, "mean"), every, strict=True)
                ]
        blank: dict[str, Any] = {
            "implementation": "mean",
            "norm": "",
            "epsilon": math.nan,
            "targeted": False,
            "setting": "",
        }
        lines, counts = (*table.threat_from, table.threat), (*table.threat_from_attacks, table.threat_attacks)
        for made_on, line, attacks in zip((*table.models, "mean"), lines, counts, strict=True):
            rows += [
                _row({**blank, "attacks": count}, made_on, tested, e)
                for tested, e, count in zip(table.models, line, attacks, strict=True)
            ]
    return Table("transfer", (*_LABELS, "attacks", "made_on", "tested_on"), ("rate",), tuple(rows), transfer.notes)


def _row(labels: dict[str, Any], made_on: str, tested_on: str, estimate: Estimate) -> TableRow:
    return TableRow({**labels, "made_on": made_on, "tested_on": tested_on}, {"rate": estimate})
