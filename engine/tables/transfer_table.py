"""Transfer rates between models, their means as in CANARY, and the change of confidence on target models."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch

from ...adapters.display_text import format_radius
from ...errors import Unsupported
from ...metrics import transfer_by_source, transfer_by_target, transfer_of_attack
from ..attack_run import ModelOnData
from ..finding import Finding, note, sentences
from ..statistics.bootstrap import Estimate, bootstrap_means
from ..store.checksummed import Record
from ..store.record_validation import read_records
from ..store.results import Results, RunResult, as_results
from ..store.shown import change_when_shown
from ..store.transfers import Over, mean_rate, transfer_rates
from .estimates import NOTHING, Counts, estimate_draws, estimate_share, mean_draws, resamples
from .groups import TableGroup, group_cells
from .table import Table, TableRow

_LABELS = ("implementation", "norm", "epsilon", "targeted", "setting")
_OF_ALL = {"implementation": "mean", "norm": "", "epsilon": math.nan, "targeted": False, "setting": ""}


@dataclass(frozen=True)
class TransferTable:
    """Transfer rates among M models on the same images under A attacks.

    Args:
        models: names of the models. Every axis of length M below has this order.
        attacks: labels of each attack: `implementation`, `norm`, `epsilon`, `targeted`, `setting`.
        rates: rates by attack, source model and target model: A x M x M. Undefined on the diagonal, and if examples
            were not tested.
        by_source: mean of each attack and source model over the other target models: A x M. With rates over "fooled",
            this is OTR.
        by_target: mean of each attack and target model over the other source models: A x M.
        of_attack: mean of each attack over all pairs of models: A.
        threat: mean of `by_target` over the attacks for which it is defined: M.
        threat_from: mean of `rates` over the attacks for which it is defined, by source and target model: M x M
            (CANARY's simple threat test).
        threat_attacks: number of attacks in `threat`: M.
        threat_from_attacks: number of attacks in `threat_from`: M x M.
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
    """The transfer tables of a folder.

    Args:
        tables: a table for each set of images on which several models were evaluated.
        findings: notes.
    """

    tables: tuple[TransferTable, ...]
    findings: tuple[Finding, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of the findings."""
        return sentences(self.findings)


def build_transfer(
    folder: str | PathLike[str] | Results,
    *,
    over: Over = "fooled",
    bootstrap: int = 1000,
    seed: int = 0,  # noqa: ARG001 - as every table has it; rates need no resampling
) -> Transfer:
    """Build the transfer rates between all models of a folder on the same images.

    Args:
        folder: path of a results folder, evaluated with `--transfer simple` or `full`, or its `Results` with transfers
            (`as_results(folder, ["OTR"])`).
        over: "fooled" for rates over the examples that fool their source model. "valid" for rates over all images that
            the source model classifies correctly. In both cases, the target model may misclassify the clean image.
        bootstrap: 0 for no intervals. Any other number for intervals; intervals of rates need no bootstrap.
        seed: has no effect.

    Returns:
        The tables. A mean over models is undefined if one of its rates was not tested, as after `--transfer simple`.
        A mean over attacks includes only the attacks that were tested, and a note names the other attacks.

    Raises:
        Unsupported: if no example was tested on a different model.
        Unavailable: if there is no such folder, or the folder has no run.
    """
    outcomes = as_results(folder, ["OTR"])
    tested = outcomes.transfers or {}
    if not any(outcome.cell.key in tested for outcome in outcomes.done):
        where = outcomes.store.folder
        raise Unsupported(f"no example in {where} was tested on a different model: evaluate with `transfer='full'`")
    shared: dict[tuple[str, str], list[ModelOnData]] = {}
    for subject in outcomes.subjects.values():
        shared.setdefault((subject.data, subject.data_digest), []).append(subject)
    made = [outcome for outcome in outcomes.done if not outcome.cell.surrogate]  # examples of a model of the folder
    tables, findings = [], list[Finding]()
    for subjects in shared.values():
        mine = tuple(outcome for outcome in made if outcome.cell.subject.key in {each.key for each in subjects})
        if any(outcome.cell.key in tested for outcome in mine):
            groups = group_cells(replace(outcomes, done=mine, failed=()), "attacks")
            tables.append(_table(groups, subjects, outcomes, over, has_intervals=bootstrap > 0))
            findings += _gaps(tables[-1])
        else:
            alone = ", ".join(each.name for each in subjects)
            sentence = "omitted: {models}: no other model was tested on the same images (pixel by pixel)"
            findings.append(note("untested", sentence, models=alone))
    return Transfer(tuple(tables), (*findings, *outcomes.findings))


def _table(
    groups: list[TableGroup], subjects: list[ModelOnData], outcomes: Results, over: Over, *, has_intervals: bool
) -> TransferTable:
    keys = [subject.key for subject in subjects]
    models, attacks = range(len(keys)), range(len(groups))
    rates = np.full((len(groups), len(keys), len(keys)), np.nan)
    known = np.zeros(rates.shape, int)
    seen: dict[tuple[int, int, int], list[np.ndarray]] = {}  # by attack, source, target (-1: all others)
    for attack, group in enumerate(groups):
        for part in group.parts:
            source = keys.index(part[0].cell.subject.key)
            others = [key for key in keys if key != keys[source]]
            fooled = [_fooled_by(outcome, keys, outcomes, over) for outcome in part]
            complete = [item for item in fooled if others and item.keys() >= {*others}]
            seen[attack, source, -1] = [mean_rate([item[key] for key in others]) for item in complete]  # as OTR
            for tested, key in enumerate(keys):
                columns = [item[key] for item in fooled if key in item and not np.isnan(item[key]).all()]
                if columns:
                    share = estimate_share([columns], has_interval=False)
                    seen[attack, source, tested] = columns
                    rates[attack, source, tested], known[attack, source, tested] = share.value, share.n

    def entry(value: float, n: int, *places: tuple[int, int, int]) -> Estimate:
        is_banded = has_intervals and not math.isnan(value)
        share = estimate_share([seen[place] for place in places if place in seen]) if is_banded else NOTHING
        return Estimate(float(value), share.low, share.high, int(n))

    table = torch.from_numpy(rates)
    by_source, by_target = transfer_by_source(table).numpy(), transfer_by_target(table).numpy()
    onto = {t: [(a, s, t) for a in attacks if not np.isnan(by_target[a, t]) for s in models if s != t] for t in models}
    known_targets, known_pairs = (~np.isnan(by_target)).sum(0), (~np.isnan(rates)).sum(0)
    with np.errstate(invalid="ignore"):  # means over the attacks that have a rate
        threat, threat_from = np.nansum(by_target, 0) / known_targets, np.nansum(rates, 0) / known_pairs
    return TransferTable(
        models=tuple(subject.name for subject in subjects),
        attacks=tuple({name: group.labels[name] for name in _LABELS} for group in groups),
        rates=tuple(
            tuple(tuple(entry(rates[a, s, t], known[a, s, t], (a, s, t)) for t in models) for s in models)
            for a in attacks
        ),
        by_source=tuple(tuple(entry(by_source[a, s], known[a, s].sum(), (a, s, -1)) for s in models) for a in attacks),
        by_target=tuple(
            tuple(entry(by_target[a, t], known[a, :, t].sum(), *((a, s, t) for s in models if s != t)) for t in models)
            for a in attacks
        ),
        of_attack=tuple(
            entry(value, known[a].sum(), *((a, s, t) for s in models for t in models if s != t))
            for a, value in enumerate(transfer_of_attack(table).tolist())
        ),
        threat=tuple(entry(threat[t], known[:, :, t].sum(), *onto[t]) for t in models),
        threat_from=tuple(  # `simple_transfer_threat` from each model
            tuple(entry(threat_from[s, t], known[:, s, t].sum(), *((a, s, t) for a in attacks)) for t in models)
            for s in models
        ),
        threat_attacks=tuple(known_targets.tolist()),
        threat_from_attacks=tuple(map(tuple, known_pairs.tolist())),
    )


def _fooled_by(outcome: RunResult, keys: list[str], outcomes: Results, over: Over) -> dict[str, np.ndarray]:
    """Return whether each example of a run fools the models on which it was tested, (n,), by key of model and data."""
    tested = (outcomes.transfers or {}).get(outcome.cell.key, {})
    return transfer_rates(outcome.columns, outcome.usable, {key: tested[key] for key in keys if key in tested}, over)


def _gaps(table: TransferTable) -> Iterator[Finding]:
    """Yield a note for each attack that lacks a rate for some pair of different models."""
    pairs = len(table.models) * (len(table.models) - 1)
    for labels, rates in zip(table.attacks, table.rates, strict=True):
        have = sum(not math.isnan(estimate.value) for line in rates for estimate in line)
        if have < pairs:
            radius = "" if math.isnan(labels["epsilon"]) else f" {format_radius(labels['norm'], labels['epsilon'])}"
            name = " ".join(filter(None, (labels["implementation"], labels["norm"] + radius, labels["setting"])))
            sentence = "{subject}: rates for {have} of {pairs} pairs of models; the threat is the mean over these"
            yield note("pairs-missing", sentence, subject=name, have=have, pairs=pairs)


def transfer_long_format(transfer: Transfer) -> Table:
    """Convert transfer tables to one table with a row for each rate and each mean.

    Columns: the labels of the attack, `attacks` (number of attacks in a mean), `made_on` (source model), `tested_on`
    (target model) and `rate`. In the row of a mean, the attack or model over which it is taken is "mean".
    """
    rows: list[TableRow] = []

    def add(about: Mapping[str, Any], made_on: str, tested_on: tuple[str, ...], entries: Any, counts: Any) -> None:
        for name, entry, count in zip(tested_on, entries, counts, strict=True):
            labels = {**about, "attacks": count, "made_on": made_on, "tested_on": name}
            rows.append(TableRow(labels, {"rate": entry}))

    for table in transfer.tables:
        names = (*table.models, "mean")
        for place, attack in enumerate(table.attacks):
            lines = [(*line, mean) for line, mean in zip(table.rates[place], table.by_source[place], strict=True)]
            lines.append((*table.by_target[place], table.of_attack[place]))
            for made_on, line in zip(names, lines, strict=True):
                add(attack, made_on, names, line, [1] * len(line))
        threats, counts = (*table.threat_from, table.threat), (*table.threat_from_attacks, table.threat_attacks)
        for made_on, line, attacks in zip(names, threats, counts, strict=True):
            add(_OF_ALL, made_on, table.models, line, attacks)
    return Table("transfer", (*_LABELS, "attacks", "made_on", "tested_on"), ("rate",), tuple(rows), transfer.findings)


class TransferredConfidence(NamedTuple):
    """Changes of the confidence of target models under one attack.

    Args:
        labels: labels of the attack, among them those of `TransferTable.attacks`.
        means: mean over the pairs of source and target model, by symbol (AIAC, ARTC).
        pairs: number of pairs of models.
    """

    labels: dict[str, Any]
    means: dict[str, Estimate]
    pairs: int


def build_transfer_confidence(
    folder: str | PathLike[str] | Results, *, bootstrap: int = 1000, seed: int = 0
) -> list[TransferredConfidence]:
    """Compute AIAC and ARTC of each attack on target models, as means over the pairs of source and target model.

    AIAC is the increase in the confidence of the class that is predicted after the attack. ARTC is the decrease in the
    confidence of the true class. Both metrics are over the usable images that the target model classifies correctly
    when clean. The examples need not fool their source model.

    Args:
        folder: path of a results folder, evaluated with `--transfer simple` or `full`, or its `Results`.
        bootstrap: number of bootstrap replicates over the images, for the intervals.
        seed: random seed of the bootstrap.

    Raises:
        Unavailable: if there is no such folder, or the folder has no run.
    """
    outcomes = as_results(folder)
    tested: dict[str, dict[str, Record]] = {}
    for key, record in read_records(outcomes.store, "transfer"):
        if not record.failed:
            cell, _, subject = key.partition("-")
            tested.setdefault(cell, {})[subject] = record
    rows, counts = [], resamples(bootstrap, seed)
    for group in group_cells(outcomes, "attacks"):
        changes = [
            change_when_shown(outcome, outcomes.clean[subject], record)
            for outcome in group.outcomes
            for subject, record in tested.get(outcome.cell.key, {}).items()
            if subject in outcomes.clean
        ]
        if changes:
            means = {symbol: _mean([each[symbol] for each in changes], counts) for symbol in changes[0]}
            rows.append(TransferredConfidence(group.labels, means, len(changes)))
    return rows


def _mean(columns: list[np.ndarray], counts: Counts) -> Estimate:
    """Return the mean over pairs of models of the means over images. Replicates draw the same images for all pairs."""
    known = [column for column in columns if not np.isnan(column).all()]
    if not known:
        return NOTHING
    values = np.stack(known, 1)
    mean = mean_draws([[each] for each in bootstrap_means(counts(len(values)), values)])
    return estimate_draws(mean._replace(different=int((~np.isnan(values)).any(1).sum())))
