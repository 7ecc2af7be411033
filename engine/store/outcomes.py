"""What tables and curves need of a results folder: every cell and clean prediction as arrays, and what is missing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...adapters import attack_of
from ...adapters.result import usable_images
from ...adapters.user_file import is_file_name
from ...errors import Unavailable, UnknownName
from ...metrics import fooling_rate_at_k, observable_transfer_rate
from ..cell import Cell, ModelOnData
from ..statistics.verdict import Side
from ..user_metrics import find_metric, of_record, plain_name, sealed_name
from .contents import read_records, unknown_attack
from .frames import HEAVY
from .plans import find_missing
from .store import WRONG_ONE, Damaged, Record, ResultsStore

_RATE = "FR@"


@dataclass(frozen=True, eq=False)
class Clean:
    """A model on the clean images: arrays of shape (n,) by column, and the logits, (n, K)."""

    subject: ModelOnData
    columns: Mapping[str, np.ndarray]
    logits: Tensor


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished cell: arrays of shape (n,) by column, why some metrics were not measured, and its record's `meta`.

    `silent` are the images that the model gave no finite logits for, (n,) bool.
    """

    cell: Cell
    columns: Mapping[str, np.ndarray]
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    silent: np.ndarray | None = None

    @property
    def is_minimum(self) -> bool:
        """Whether its distances are the smallest that the attack found: minimum-norm attacks and searches."""
        return self.cell.is_best or attack_of(self.cell.row).kind == "minimum-norm"

    @property
    def usable(self) -> np.ndarray:
        """Images that prove something, (n,) bool: attacked, no violation, and within the radius."""
        own, threat_model = self.columns, self.cell.threat_model
        if "usable" in own:
            return own["usable"]
        distance = own["l2" if threat_model.norm == "unrestricted" else threat_model.norm]
        return usable_images(own["attacked"], own["violated"], own["success"], distance, threat_model)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A results folder.

    Args:
        store: the folder.
        done: finished cells, ordered by model, attack and key.
        failed: cells without a result, with the reason of each.
        running: cells of which only some pieces are there.
        clean: by key of the subject.
        damaged: a line for each file that was left out because it cannot be trusted.
        transfers: what other models predict on a cell's examples, (n,), NaN where a model gave no finite logits, by key
            of the cell and of the tested subject.
        waiting: cells that an evaluation was asked for and of which nothing is there.
        unknown: finished cells of attacks that this version does not have, with a line that says so.
    """

    store: ResultsStore
    done: tuple[Outcome, ...]
    failed: tuple[tuple[Cell, str], ...]
    running: tuple[Cell, ...]
    clean: Mapping[str, Clean]
    damaged: tuple[str, ...]
    transfers: Mapping[str, Mapping[str, np.ndarray]]
    waiting: tuple[Cell, ...] = ()
    unknown: tuple[tuple[Cell, str], ...] = ()

    @property
    def subjects(self) -> dict[str, ModelOnData]:
        """Every model on its images by key, ordered by name."""
        cells = [*(own.cell for own in self.done), *(cell for cell, _ in self.failed)]
        found = {own.key: own for own in (*(each.subject for each in self.clean.values()), *(c.subject for c in cells))}
        return dict(sorted(found.items(), key=lambda item: (item[1].model, item[1].data, item[1].images, item[0])))

    @property
    def users_symbols(self) -> tuple[str, ...]:
        """Users' metrics that its records hold."""
        return tuple(dict.fromkeys(name for own in self.done for name in own.columns if is_file_name(name)))

    @property
    def notes(self) -> list[str]:
        """A line for everything that is not in the numbers: failed, unfinished and damaged."""
        lines = [f"failed: {cell.attack} on {cell.subject.model}: {reason}" for cell, reason in self.failed]
        lines += [f"left out: {why}, on {cell.subject.model}" for cell, why in self.unknown]
        foreign = {own.cell.attack for own in self.done if own.cell.is_foreign and not own.cell.row.is_users}
        lines += [f"not in the catalogue here, described by its records: {attack}" for attack in sorted(foreign)]
        lines += [f"not finished, left out: {cell.attack} on {cell.subject.model}" for cell in self.running]
        if self.waiting:
            lines.append(f"not run yet, left out: {len(self.waiting)} cells; `davylamp status` lists them")
        lines += [f"left out: {line}{remedy(line)}" for line in self.damaged]
        lines += [
            f"no clean predictions of {subject.model} on {subject.data} (clean/{key}): metrics that need them are left "
            "out; `davylamp evaluate` makes them again"
            for key, subject in self.subjects.items()
            if key not in self.clean and any(own.cell.subject == subject for own in self.done)
        ]
        return lines + self._silent_transfers()

    def _silent_transfers(self) -> list[str]:
        """A line for each model that gave no finite logits on examples of others."""
        counts: dict[str, int] = {}
        for seen in self.transfers.values():
            for tested, predicted in seen.items():
                counts[tested] = counts.get(tested, 0) + int(np.isnan(predicted).sum())
        subjects = self.subjects
        return [
            f"left out of transfer: {count} examples on which {subjects[key].model if key in subjects else key} gives "
            "NaN or infinite logits: neither transferred nor not"
            for key, count in counts.items()
            if count
        ]


def read_outcomes(folder: str | Path | Outcomes, symbols: Sequence[str] = ()) -> Outcomes:
    """Read a results folder once, and drop what is heavy of every cell as soon as it is read.

    Args:
        folder: where `davylamp evaluate` put it; what was read before is handed back as it is.
        symbols: metrics that need logits or transfers: "FR@10", "OTR"; they become columns.

    Raises:
        Unavailable: if there is no such folder, or neither a finished nor a failed cell in it.
        StoreMismatch: if it was written in another format.
    """
    if isinstance(folder, Outcomes):
        return folder
    store = ResultsStore(folder, create=False)
    damaged: list[str] = []
    clean = {key: _clean(record) for key, record in _records(store, "clean", damaged)}
    transfers = _transfers(store, damaged) if "OTR" in symbols else {}
    done, failed, unknown = [], [], []
    for key, record in _records(store, "cells", damaged, failed):
        cell = Cell.from_record(record.meta)
        if why := unknown_attack(cell):
            unknown.append((cell, why))
            continue
        silent = ~logits_of(record, "adv_logits").isfinite().all(1).numpy()
        outcome = Outcome(cell, _light(record), record.meta.get("unmeasured", {}), record.meta, silent)
        logits = clean[cell.subject.key].logits if cell.subject.key in clean else None
        extra = {name: _rate(outcome, record, logits, name) for name in symbols if is_rate(name)}
        extra |= {name: _users(outcome, record, logits, name) for name in symbols if is_file_name(name)}
        if key in transfers:
            extra["OTR"] = transfer_rate(outcome, transfers[key])
        done.append(replace(outcome, columns={**outcome.columns, **extra}))
    finished = {own.cell.key for own in done} | {cell.key for cell, _ in (*failed, *unknown)}
    parts = {key.partition("-")[0]: record for key, record in _records(store, "parts", damaged)}
    running = [Cell.from_record(record.meta) for key, record in parts.items() if key not in finished]
    waiting = tuple(cell for key, cell in find_missing(store).items() if key not in parts)
    if not done and not failed:
        known = f"{len(running)} under way, {len(waiting)} not run yet, {len(damaged)} damaged"
        known += f", {len(unknown)} of unknown attacks" if unknown else ""
        known = known if running or waiting or damaged or unknown else "it is empty"
        raise Unavailable(f"expected finished cells in {folder}, found none ({known})")
    done.sort(key=lambda own: (own.cell.subject.model, own.cell.attack, own.cell.key))
    lists = tuple(done), tuple(failed), tuple(running)
    return Outcomes(store, *lists, clean, tuple(damaged), transfers, waiting, tuple(unknown))


def check_models(outcomes: Outcomes, models: Sequence[str] | None) -> None:
    """Raise UnknownName unless every one of the models is in the folder."""
    known = {subject.model for subject in outcomes.subjects.values()}
    for name in models or ():
        if name not in known:
            raise UnknownName("model", name, known)


def side_of(outcome: Outcome) -> Side:
    """A finished cell as one side; its violations count as such, also where a record of 0.1.0 calls them a success."""
    columns = outcome.columns
    texts = columns["violations"] if "violations" in columns else np.where(columns["violated"], "violated", "")
    kinds = tuple(tuple(text.split()) for text in texts)
    return Side(outcome.cell.attack, columns["attacked"], columns["success"], columns["distance"], kinds)


def _users(outcome: Outcome, record: Record, logits: Tensor | None, name: str) -> np.ndarray:
    """A user's metric by today's code, (n,); NaN where only an evaluation can compute it and none has."""
    metric = find_metric(name)
    if metric.of_records:
        return of_record(metric, outcome.columns, logits, logits_of(record, "adv_logits"))
    missing = np.full(len(outcome.columns["label"]), np.nan)
    return outcome.columns.get(name, missing) if sealed_name(name) in outcome.cell.measures else missing


def remedy(line: str) -> str:
    """What to do about a file that was left out, unless the line says so itself."""
    return "" if line.endswith(WRONG_ONE) or "could not read" in line else "; `davylamp evaluate` computes it again"


def is_rate(symbol: str) -> bool:
    """Whether a symbol is the fooling rate at some K: "FR@10"."""
    count = symbol[len(_RATE) :]
    return symbol.startswith(_RATE) and count.isascii() and count.isdecimal() and int(count) > 0


def details(cell: Cell) -> dict[str, str]:
    """What tells apart two cells of one implementation and threat model, the model and the seed aside."""
    own = dict(cell.parameters)
    own |= {f"{name} of": list(values) for name, values in cell.grid.items()}
    own |= {"target": cell.target, "pixels": cell.pixels, "version": cell.version}
    own |= {"rules": cell.rules, "torch": cell.torch, "device": cell.device}
    if users := [measure for measure in cell.measures if is_file_name(plain_name(measure))]:
        own["metrics"] = users
    own |= {"data": f"{cell.subject.data} ({cell.subject.images})"}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in own.items()}


def _records(store: ResultsStore, kind: Any, damaged: list[str], failed: list[Any] | None = None) -> Any:
    for key, record in read_records(store, kind):
        if isinstance(record, Damaged):
            damaged.append(str(record))
        elif not record.failed:
            yield key, record
        elif failed is not None:
            failed.append((Cell.from_record(record.meta), str(record.meta["reason"])))


def _light(record: Record) -> dict[str, np.ndarray]:
    names = [name for name in record.table.column_names if name not in HEAVY]
    return {name: record.table[name].to_numpy() for name in names}


def _clean(record: Record) -> Clean:
    return Clean(ModelOnData(**record.meta["subject"]), _light(record), logits_of(record, "logits"))


def logits_of(record: Record, name: str) -> Tensor:
    """A column of logits, shape (n, K), float32."""
    column = record.table[name].combine_chunks()
    return torch.tensor(column.flatten().to_numpy()).view(len(column), -1)


def clean_predictions(store: ResultsStore, subject: ModelOnData) -> tuple[Tensor, Tensor] | None:
    """Logits (n, K) and labels (n,) of a model's clean images; None where there are none."""
    try:
        record = store.read("clean", subject.key)
    except (FileNotFoundError, Damaged):
        return None
    return None if record.failed else (logits_of(record, "logits"), torch.tensor(record.table["label"].to_pylist()))


def _rate(outcome: Outcome, record: Record, logits: Tensor | None, symbol: str) -> np.ndarray:
    values = np.full(len(record.table), np.nan)
    if logits is not None:
        k = int(symbol.removeprefix(_RATE))
        silent = np.zeros(len(values), bool) if outcome.silent is None else outcome.silent
        answers = logits_of(record, "adv_logits").masked_fill(torch.tensor(silent)[:, None], 0.0)
        found = fooling_rate_at_k(logits, answers, k, reduction="none")
        values = np.where(outcome.usable & ~silent, found.numpy(), np.nan)
    return values


def _transfers(store: ResultsStore, damaged: list[str]) -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    for key, record in _records(store, "transfer", damaged):
        cell, _, tested = key.partition("-")
        found.setdefault(cell, {})[tested] = transferred(record)
    return found


def transferred(record: Record) -> np.ndarray:
    """What a model predicts on the examples of another one, (n,) float; NaN where its logits were not finite."""
    predicted = record.table["adv_predicted"].to_numpy().astype(float)
    if "adv_probability" in record.table.column_names:  # records of 0.1.0 hold a class there, of NaN
        predicted[np.isnan(record.table["adv_probability"].to_numpy())] = np.nan
    return predicted


def transfer_rate(
    outcome: Outcome, tested: Mapping[str, np.ndarray], over: Literal["fooled", "valid"] = "fooled"
) -> np.ndarray:
    """`observable_transfer_rate` of each image over the tested models that answered, (n,); NaN where none did.

    A violation fools nobody.
    """
    labels = torch.tensor(outcome.columns["label"])
    own = torch.tensor(np.where(outcome.usable, outcome.columns["adv_predicted"], outcome.columns["label"]))
    clean = torch.tensor(outcome.columns["predicted"]).expand(2, -1)
    rates = []
    for predicted in tested.values():
        silent = np.isnan(predicted)
        both = torch.stack([own, torch.tensor(np.where(silent, 0, predicted)).long()])
        rate = observable_transfer_rate(clean, both, labels, 0, over=over, reduction="none").double().numpy()
        rates.append(np.where(silent, np.nan, rate))
    known = ~np.isnan(rates)
    return np.where(known.any(0), np.nansum(rates, 0) / np.maximum(known.sum(0), 1), np.nan)
