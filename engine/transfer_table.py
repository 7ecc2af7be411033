"""Transfer: the rate at which examples made on one model fool each other one, and CANARY's means of those tables."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..errors import Unsupported
from ..metrics import transfer_by_source, transfer_by_target, transfer_of_attack
from .bootstrap import Estimate, draw_means, interval, resample
from .cell import Subject
from .outcomes import Outcome, Outcomes, read_outcomes, transfer_rate
from .table import Table, TableRow
from .table_rows import Group, group_cells, model_names

Over = Literal["fooled", "valid"]
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
    folder: str | Path | Outcomes, *, over: Over = "fooled", bootstrap: int = 1000, seed: int = 0
) -> Transfer:
    """Transfer rates between all models of a folder that see the same images.

    Args:
        folder: a results folder, evaluated with `--transfer simple` or `full`, or what was read of it with "OTR".
        over: the rate is over the examples that fool the model that they were made on ("fooled"), or over all images
            that it gets right ("valid"). That the tested model is right on the clean image is not asked.
        bootstrap: replicates, over images; 0: no intervals.
        seed: of the resampling.

    Returns:
        The tables. A mean over models with an entry that was not tested is undefined, as after `--transfer simple`; a
        mean over attacks is that of those that were tested, and a note names the others.

    Raises:
        Unsupported: if no example was tested on another model.
        Unavailable: if there is no such folder, or no cell in it.
    """
    outcomes = read_outcomes(folder, ["OTR"])
    if not any(own.cell.key in outcomes.transfers for own in outcomes.done):
        own = outcomes.store.folder
        raise Unsupported(f"no example of {own} was tested on another model: evaluate with --transfer full")
    shared: dict[tuple[str, str], list[Subject]] = {}
    for subject in outcomes.subjects.values():
        shared.setdefault((subject.data, subject.data_digest), []).append(subject)
    names, tables, notes = model_names(outcomes), [], []
    for subjects in shared.values():
        keys = [subject.key for subject in subjects]
        mine = tuple(own for own in outcomes.done if own.cell.subject.key in keys)
        if any(own.cell.key in outcomes.transfers for own in mine):
            counts = resample(subjects[0].images, bootstrap, seed)
            groups = group_cells(replace(outcomes, done=mine, failed=()), "attacks")
            tables.append(_table(groups, keys, tuple(names[key] for key in keys), outcomes, counts, over))
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
    counts: np.ndarray,
    over: Over,
) -> TransferTable:
    """All of one set of images."""
    size, models = len(counts), len(keys)
    rates = np.full((size, len(groups), models, models), np.nan)
    known = np.zeros((len(groups), models, models), int)
    for attack, group in enumerate(groups):
        for part in group.parts:
            source = keys.index(part[0].cell.subject.key)
            for tested, key in enumerate(keys):
                drawn, known[attack, source, tested] = _pair(part, key, outcomes, counts, over)
                rates[:, attack, source, tested] = drawn
    flat = torch.from_numpy(rates).flatten(0, 1)  # (R x A, M, M): the means of all replicates at once
    by_source = transfer_by_source(flat).unflatten(0, (size, -1))
    by_target = transfer_by_target(flat).unflatten(0, (size, -1))
    of_attack = transfer_of_attack(flat).unflatten(0, (size, -1))
    return TransferTable(
        names,
        tuple({name: group.labels[name] for name in _LABELS} for group in groups),
        _estimates(rates, known),
        _estimates(by_source.numpy(), known.sum(2)),
        _estimates(by_target.numpy(), known.sum(1)),
        _estimates(of_attack.numpy(), known.sum((1, 2))),
        _estimates(_mean_of_known(by_target.numpy()), known.sum((0, 1))),
        _estimates(_mean_of_known(rates), known.sum(0)),  # `simple_transfer_threat` from each model
        tuple(int(count) for count in (~np.isnan(by_target[0].numpy())).sum(0)),
        tuple(tuple(int(count) for count in line) for line in (~np.isnan(rates[0])).sum(0)),
    )


def _mean_of_known(draws: np.ndarray) -> np.ndarray:
    """Mean over the attacks, the second dimension, that the data itself, the first draw, has a value for."""
    known = np.broadcast_to(~np.isnan(draws[:1]), draws.shape)
    with np.errstate(invalid="ignore"):
        return np.where(known, draws, 0).sum(1) / known.sum(1)


def _gaps(table: TransferTable) -> list[str]:
    """A line for each attack that has no rate for some pairs of different models."""
    pairs, lines = len(table.models) * (len(table.models) - 1), []
    for labels, rates in zip(table.attacks, table.rates, strict=True):
        have = sum(not math.isnan(own.value) for line in rates for own in line)
        if have < pairs:
            radius = "" if math.isnan(labels["epsilon"]) else f" {labels['epsilon']:.4g}"
            name = " ".join(
                part for part in (labels["implementation"], labels["norm"] + radius, labels["setting"]) if part
            )
            lines.append(
                f"{name}: a rate for {have} of {pairs} pairs of models; the threat is the mean without the others"
            )
    return lines


def _pair(
    part: list[Outcome], tested: str, outcomes: Outcomes, counts: np.ndarray, over: Over
) -> tuple[np.ndarray, int]:
    """The rate at which one model's examples fool another one, (R,), mean over repeats, and on how many it rests."""
    found = []
    for own in part:
        seen = outcomes.transfers.get(own.cell.key, {})
        if tested in seen:
            found += draw_means(counts, transfer_rate(own, {tested: seen[tested]}, over)[:, None])
    if not found:
        return np.full(len(counts), np.nan), 0
    return np.mean([draws.ratio for draws in found], axis=0), sum(draws.n for draws in found)


def _estimates(draws: np.ndarray, known: np.ndarray) -> Any:
    """Estimates in nested tuples, of draws (R, ...) that rest on as many examples as `known`, (...), says."""
    if draws.ndim == 1:
        return interval(draws, int(known))
    return tuple(_estimates(draws[:, place], known[place]) for place in range(draws.shape[1]))


def transfer_rows(transfer: Transfer) -> Table:
    """The same as a table with one line for each entry, `rate`; what is a mean is made or tested on "mean"."""
    rows = []
    for own in transfer.tables:
        for place, attack in enumerate(own.attacks):
            labels = {**attack, "attacks": 1}
            entries = [*own.rates[place], (*own.by_target[place], own.of_attack[place])]
            for made_on, line in zip((*own.models, "mean"), entries, strict=True):
                every = line if made_on == "mean" else (*line, own.by_source[place][own.models.index(made_on)])
                rows += [
                    _row(labels, made_on, tested, e) for tested, e in zip((*own.models, "mean"), every, strict=True)
                ]
        blank: dict[str, Any] = {
            "implementation": "mean",
            "norm": "",
            "epsilon": math.nan,
            "targeted": False,
            "setting": "",
        }
        lines, counts = (*own.threat_from, own.threat), (*own.threat_from_attacks, own.threat_attacks)
        for made_on, line, attacks in zip((*own.models, "mean"), lines, counts, strict=True):
            rows += [
                _row({**blank, "attacks": count}, made_on, tested, e)
                for tested, e, count in zip(own.models, line, attacks, strict=True)
            ]
    return Table("transfer", (*_LABELS, "attacks", "made_on", "tested_on"), ("rate",), tuple(rows), transfer.notes)


def _row(labels: dict[str, Any], made_on: str, tested_on: str, estimate: Estimate) -> TableRow:
    return TableRow({**labels, "made_on": made_on, "tested_on": tested_on}, {"rate": estimate})
