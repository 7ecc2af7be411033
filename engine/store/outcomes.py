"""What tables and curves need of a results folder: every cell and clean prediction as arrays, and what is missing."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...adapters import attack_of
from ...adapters.result import measured_norm, usable_images
from ...adapters.running.judge import RULES
from ...adapters.user_file import is_file_name
from ...errors import Unavailable, UnknownName
from ...metrics import METRICS, fooling_rate_at_k
from ..at_once import map_at_once
from ..cell import Cell, ModelOnData, tell_apart
from ..measure_groups import is_group
from ..metric_names import NO_CONFIDENCES, base_of, needs_confidences
from ..user_metrics import find_metric, of_record, plain_name, sealed_name
from .choose_record import WRONG_ONE
from .columns import logits_of
from .contents import NEEDED, edited_since, order_of, read_records, unknown_attack
from .detected import DETECTED, detected_lines, leave_detected
from .fits import fit_costs
from .frames import CellState
from .given_outputs import answers_change, has_confidences, is_unstable, output_lines, unsteady_lines
from .image_results import ImageResults, is_of_draws, results_of
from .image_sets import leave_subsets
from .pictures import Example, pictures_of
from .plans import find_missing, list_parts, missing_line
from .references import Reference, notes_of, references_of
from .saturations import saturation_line
from .semantic import SEMANTIC, semantic_column
from .store import Damaged, Kind, Record, ResultsStore
from .stored_columns import RepeatedArrays, StoredColumns, join_columns
from .transfers import Predictions, Transfers, mean_rate, read_transfers, transfer_rates
from .worst_cases import worst_case_line

Records = Iterator[tuple[str, Record]]
_RATE = "FR@"
_STORED_RATE = "FR@K"  # as records have it, for one K
STORED_K = METRICS[_STORED_RATE].usual


@dataclass(frozen=True, eq=False)
class Clean:
    """A model on the clean images: arrays of shape (n,) by column, the logits, (n, K), and its record's `meta`.

    `examples` are the first images as pictures, where they were asked for.
    """

    subject: ModelOnData
    columns: Mapping[str, np.ndarray]
    logits: Tensor
    meta: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()

    @property
    def has_confidences(self) -> bool:
        """Whether the model says how sure it is, and does not give labels only."""
        return has_confidences(self.meta)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished cell: arrays of shape (n,) by column, why some metrics were not measured, and its record's `meta`.

    Of its columns only those that every cell has are held; the others are read from its file when they are asked for.

    `find_silent` says which images the model gave no finite logits for (`silent`); None: none of them. Where they were
    asked for, `examples` are the first images as pictures and `adv_logits` the logits on all of them, (n, K).
    """

    cell: Cell
    columns: Mapping[str, np.ndarray]
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    find_silent: Callable[[], np.ndarray] | None = None
    examples: tuple[Example, ...] = ()
    adv_logits: Tensor | None = None

    @property
    def has_confidences(self) -> bool:
        """Whether the model that is judged says how sure it is, and does not give labels only."""
        return has_confidences(self.meta)

    @cached_property
    def silent(self) -> np.ndarray:
        """Images that the model gave no finite logits for, (n,) bool; its file is read for that if it was not.

        Raises:
            Unavailable: if the file cannot be read any more, or is another one by now.
        """
        return np.zeros(len(self.columns["label"]), bool) if self.find_silent is None else self.find_silent()

    @property
    def is_minimum(self) -> bool:
        """Whether its distances are the smallest that the attack found: minimum-norm attacks and searches."""
        return self.cell.is_best or attack_of(self.cell.row).kind == "minimum-norm"

    @property
    def is_random(self) -> bool:
        """Whether its model draws random numbers, and was judged by many draws."""
        return is_of_draws(self.columns)

    @property
    def results(self) -> ImageResults:
        """What the attack came to on each image."""
        return results_of(self.columns)

    @property
    def usable(self) -> np.ndarray:
        """Images that prove something, (n,) bool: attacked, no violation, and within the radius."""
        columns, threat_model = self.columns, self.cell.threat_model
        if "usable" in columns:
            return columns["usable"]
        attacked, violated, success = (columns[name] for name in ("attacked", "violated", "success"))
        distance = columns[measured_norm(threat_model.norm)]
        return usable_images(attacked, violated, success, distance, threat_model)


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
            of the cell and of the tested subject; None: they were not read.
        shown_shares: likewise of random models: the share of their draws that are wrong, (n,), where it was kept.
        waiting: cells that an evaluation was asked for and of which nothing is there.
        unknown: finished cells of attacks that this version does not have, or that were edited since, with a line that
            says so.
        refused: why a model could not be used on its clean images, by key of the subject.
        states: every cell that has a record, by key: finished, failed or of an unknown attack.
        lacking: which parts of an evaluation in parts lack pieces, in a line.
        left_out: a line for each set of images that is part of a larger one of the same model, and so counts once.
        references: what another program reports of the same images.
    """

    store: ResultsStore
    done: tuple[Outcome, ...]
    failed: tuple[tuple[Cell, str], ...]
    running: tuple[Cell, ...]
    clean: Mapping[str, Clean]
    damaged: tuple[str, ...]
    transfers: Transfers | None
    waiting: tuple[Cell, ...] = ()
    unknown: tuple[tuple[Cell, str], ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, CellState] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    lacking: str = ""
    shown_shares: Transfers = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def subjects(self) -> dict[str, ModelOnData]:
        """Every model on its images by key, ordered by name."""
        cells = [*(known.cell for known in self.done), *(cell for cell, _ in self.failed)]
        subjects = {
            known.key: known for known in (*(each.subject for each in self.clean.values()), *(c.subject for c in cells))
        }
        return dict(sorted(subjects.items(), key=lambda item: (item[1].model, item[1].data, item[1].images, item[0])))

    @property
    def unsteady(self) -> list[str]:
        """A line for each model that answers one image differently each time and does not say so."""
        models = [each.subject.model for each in self.clean.values() if answers_change(each.meta)]
        models += [each.cell.subject.model for each in self.done if is_unstable(each.columns["violations"])]
        return unsteady_lines(models)

    def has_detector(self, subject: ModelOnData) -> bool:
        """Whether "detected" is a class of a model, beside those of the data."""
        return any(DETECTED in each.columns for each in self.done if each.cell.subject.key == subject.key)

    @property
    def users_symbols(self) -> tuple[str, ...]:
        """Users' metrics that its records hold."""
        return tuple(dict.fromkeys(name for outcome in self.done for name in outcome.columns if is_file_name(name)))

    @property
    def notes(self) -> list[str]:
        """A line for everything that is not in the numbers: failed, unfinished and damaged."""
        lines = self.unsteady
        lines += [f"failed: {cell.title} on {cell.subject.name}: {reason}" for cell, reason in self.failed]
        lines += [line for each in self.done if (line := saturation_line(each.cell, each.meta))]
        lines += [line for each in self.done if (line := worst_case_line(each.cell, each.columns))]
        lines += [f"left out: {why}, on {cell.subject.name}" for cell, why in self.unknown]
        foreign = {
            outcome.cell.attack for outcome in self.done if outcome.cell.is_foreign and not outcome.cell.row.is_users
        }
        lines += [f"not in the catalogue here, described by its records: {attack}" for attack in sorted(foreign)]
        lines += [f"not finished, left out: {cell.title} on {cell.subject.name}" for cell in self.running]
        if self.waiting:
            lines.append(f"not run yet, left out: {len(self.waiting)} cells; `davylamp status` lists them")
        lines += [*self.left_out, *([self.lacking] if self.lacking else [])]
        lines += [f"left out: {line}{remedy(line)}" for line in self.damaged]
        lines += [
            f"no clean predictions of {subject.name} on {subject.data} (clean/{key}): metrics that need them are left "
            "out; `davylamp evaluate` makes them again"
            for key, subject in self.subjects.items()
            if key not in self.clean and any(outcome.cell.subject == subject for outcome in self.done)
        ]
        chosen: dict[str, set[str]] = {}
        for outcome in self.done:
            chosen.setdefault(outcome.cell.subject.name, set()).update(outcome.cell.subject.chosen)
        lines += [
            f"{model}: {len(names)} images were chosen by name: what is measured on them need not hold for the others"
            for model, names in chosen.items()
            if names
        ]
        lines += output_lines(each.meta for each in self.clean.values())
        lines += detected_lines((each.cell.subject.name, each.columns) for each in self.done)
        return lines + self._silent_transfers() + notes_of(self.references)

    def _silent_transfers(self) -> list[str]:
        """A line for each model that gave no finite logits on examples of others."""
        counts: dict[str, int] = {}
        for predictions in (self.transfers or {}).values():
            for tested, predicted in predictions.items():
                counts[tested] = counts.get(tested, 0) + int(np.isnan(predicted).sum())
        subjects = self.subjects
        return [
            f"left out of transfer: {count} examples on which {subjects[key].model if key in subjects else key} gives "
            "NaN or infinite logits: neither transferred nor not"
            for key, count in counts.items()
            if count
        ]


def outcomes_of(source: str | Path | Outcomes, symbols: Sequence[str] = ()) -> Outcomes:
    """What a table is made of: a folder is read, unless it has been; then only what was left out of it.

    Args:
        source: a results folder, or what was read of it.
        symbols: as for `read_outcomes`.

    Raises:
        DavylampError: as `read_outcomes`.
    """
    if not isinstance(source, Outcomes):
        return read_outcomes(source, symbols)
    if "OTR" in symbols and source.transfers is None:
        transfers, shares = read_transfers(_Reader(source.store).records("transfer"))
        return replace(source, transfers=transfers, shown_shares=shares)
    return source


def read_outcomes(
    folder: str | Path,
    symbols: Sequence[str] = (),
    *,
    examples: bool = False,
    keep_logits: Callable[[ModelOnData], bool] | None = None,
) -> Outcomes:
    """Read a results folder once, and drop what is heavy of every cell as soon as it is read.

    Every byte of it is checked. What a cell has of metrics stays in its file until it is asked for (`StoredColumns`);
    so do its logits, unless a symbol needs them.

    Args:
        folder: where `davylamp evaluate` put it.
        symbols: metrics that need logits or transfers: "FR@10", "OTR"; they become columns.
        examples: the first images as pictures, too.
        keep_logits: the models whose logits on adversarial images are kept; None: of no model.

    Raises:
        Unavailable: if there is no such folder, or neither a finished nor a failed cell in it.
        StoreMismatch: if it was written in another format.
    """
    store = ResultsStore(folder, create=False)
    reader = _Reader(store)
    clean, refused = _read_clean(reader.records("clean"), reader.repeated, examples=examples)
    transfers, shares = read_transfers(reader.records("transfer")) if "OTR" in symbols else (None, {})
    states: list[CellState] = []
    done: list[Outcome] = []
    shown = ("adv_picture", "adv_cam") if examples else ()

    def look_at(item: tuple[str, Record]) -> tuple[CellState, Outcome | None]:
        key, record = item
        cell = Cell.from_record(record.meta)
        state = CellState(key, cell, record.meta["status"], record.meta["reason"], dict(record.meta))
        if record.failed or unknown_attack(cell):
            return state, None
        columns = StoredColumns(record, reader.repeated)
        outcome = _outcome(cell, record, columns, clean.get(cell.subject.key), symbols, (transfers or {}).get(key))
        if keep_logits is None or not keep_logits(cell.subject):
            outcome = replace(outcome, adv_logits=None)
        if not examples:
            return state, outcome
        return state, replace(outcome, examples=pictures_of(record, "adv_", confidences=outcome.has_confidences))

    runs_users_code = any(map(is_file_name, symbols))  # which need not bear several threads
    stored = (_STORED_RATE,) if _RATE + str(STORED_K) in symbols else ()
    answers = ("adv_logits",) if keep_logits is not None or any(map(_needs_logits, symbols)) else ()
    records = reader.records("cells", (*NEEDED, *stored, *answers, *shown))
    for state, outcome in (map if runs_users_code else map_at_once)(look_at, records):
        states.append(state)
        done += [] if outcome is None else [outcome]
    parts = {key.partition("-")[0]: Cell.from_record(record.meta) for key, record in reader.records("parts", ())}
    finished = {state.key for state in states}
    succeeded = [state.cell for state in states if state.status != "failed"]
    edited = edited_since((state.cell, state.meta) for state in states if not unknown_attack(state.cell))
    kept = [each for each in done if each.cell.key not in edited]
    references = references_of(reader.records("references"))
    outcomes = Outcomes(
        store=store,
        done=tuple(sorted(kept, key=lambda each: order_of(each.cell))),
        failed=tuple(
            (state.cell, state.reason) for state in states if state.status == "failed" and state.key not in edited
        ),
        running=tuple(cell for key, cell in parts.items() if key not in finished),
        clean=clean,
        damaged=tuple(reader.damaged),
        transfers=transfers,
        shown_shares=shares,
        waiting=tuple(cell for key, cell in find_missing(store).items() if key not in parts),
        lacking=missing_line(list_parts(store)),
        unknown=tuple((cell, why) for cell in succeeded if (why := unknown_attack(cell) or edited.get(cell.key, ""))),
        refused=refused,
        states={state.key: state for state in sorted(states, key=lambda state: order_of(state.cell))},
        references=references,
    )
    outcomes = leave_subsets(outcomes)
    if not outcomes.done and not outcomes.failed:
        raise Unavailable(f"expected finished cells in {folder}, found none ({_what_is_there(outcomes)})")
    return _with_model_names(outcomes)


def _with_model_names(outcomes: Outcomes) -> Outcomes:
    """The same with each model called by a name of its own: retrained weights in one file are another model."""
    names = tell_apart(outcomes.subjects.values())
    if not names:
        return outcomes
    clean = {
        key: replace(each, subject=replace(each.subject, called=names.get(key, "")))
        for key, each in outcomes.clean.items()
    }
    return replace(
        outcomes,
        done=tuple(replace(each, cell=each.cell.with_name_of(names)) for each in outcomes.done),
        failed=tuple((cell.with_name_of(names), why) for cell, why in outcomes.failed),
        running=tuple(cell.with_name_of(names) for cell in outcomes.running),
        waiting=tuple(cell.with_name_of(names) for cell in outcomes.waiting),
        unknown=tuple((cell.with_name_of(names), why) for cell, why in outcomes.unknown),
        states={key: each._replace(cell=each.cell.with_name_of(names)) for key, each in outcomes.states.items()},
        clean=clean,
    )


class _Reader:
    """Every record that can be used, and a line in `damaged` for each that cannot."""

    def __init__(self, store: ResultsStore):
        self.store = store
        self.damaged: list[str] = []
        self.repeated = RepeatedArrays()

    def records(self, kind: Kind, columns: Collection[str] | None = None) -> Records:
        for key, record in read_records(self.store, kind, columns):
            if isinstance(record, Damaged):
                self.damaged.append(str(record))
            else:
                yield key, record


def _read_clean(
    records: Records, repeated: RepeatedArrays, *, examples: bool
) -> tuple[dict[str, Clean], dict[str, str]]:
    """The clean predictions, and why a model has none, by key of the subject."""
    clean, refused = {}, {}
    for key, record in records:
        if record.failed:
            refused[key] = str(record.meta["reason"])
            continue
        subject, table = ModelOnData(**record.meta["subject"]), record.table
        pictures = pictures_of(record, "", confidences=has_confidences(record.meta)) if examples else ()
        clean[key] = Clean(subject, StoredColumns(record, repeated), logits_of(table, "logits"), record.meta, pictures)
    return clean, refused


def _outcome(
    cell: Cell,
    record: Record,
    stored: StoredColumns,
    clean: Clean | None,
    symbols: Sequence[str],
    tested: Predictions | None,
) -> Outcome:
    """A finished cell, with a column for each symbol that needs its logits or what other models predict."""
    lacks_rates = any(is_rate(name) and not _has_rate(cell, stored, name) for name in symbols)
    adv_logits = _answers_of(record, needed=lacks_rates)
    costs = {name: np.full(len(record.table), number) for name, number in fit_costs(record.meta).items()}
    columns = join_columns(stored, costs)
    unmeasured = dict(record.meta.get("unmeasured", {}))
    if not has_confidences(record.meta):
        unmeasured |= {name: NO_CONFIDENCES for name in symbols if needs_confidences(name)}
    find_silent = _silence_of(record, adv_logits)
    outcome = Outcome(cell, columns, unmeasured, record.meta, find_silent, adv_logits=adv_logits)
    logits = None if clean is None else clean.logits
    further = {
        name: stored[_STORED_RATE] if _has_rate(cell, stored, name) else _fooling_rate(outcome, logits, name)
        for name in symbols
        if is_rate(name)
    }
    further |= {
        name: values
        for name in symbols
        if adv_logits is not None and base_of(name) in SEMANTIC and name not in columns
        if (values := semantic_column(cell, columns, outcome.usable & ~outcome.silent, logits, adv_logits, name))
        is not None
    }
    further |= {name: _users_metric(outcome, logits, name) for name in symbols if is_file_name(name)}
    if tested is not None:
        further["OTR"] = mean_rate([*transfer_rates(columns, outcome.usable, tested).values()])
    return replace(outcome, columns=join_columns(columns, further))


def _answers_of(record: Record, *, needed: bool) -> Tensor | None:
    """The logits on adversarial images, (n, K), if they were read with the record or are needed."""
    if "adv_logits" in record.table.column_names:
        return logits_of(record.table, "adv_logits")
    return logits_of(record.more(["adv_logits"]), "adv_logits") if needed and record.more is not None else None


def _needs_logits(symbol: str) -> bool:
    """Whether a column of this symbol is made of the logits of every cell."""
    is_stored = symbol == _RATE + str(STORED_K)  # in all cells but old ones
    return (is_rate(symbol) and not is_stored) or is_file_name(symbol) or base_of(symbol) in SEMANTIC


def _has_rate(cell: Cell, columns: Mapping[str, np.ndarray], symbol: str) -> bool:
    """Whether a record has FR@K at this K; those of older rules count images without finite logits, too."""
    return symbol == _RATE + str(STORED_K) and _STORED_RATE in columns and cell.rules >= RULES


def _silence_of(record: Record, adv_logits: Tensor | None) -> Callable[[], np.ndarray] | None:
    """What `Outcome.find_silent` is: known at once by logits that were read, else when somebody asks."""
    known = None if adv_logits is None else _silent_images(adv_logits)
    return None if known is None and record.more is None else _Silence(record, known)


class _Silence:
    """Which images have no finite logits: known, or read once. A class, as a function in a function is not pickled."""

    def __init__(self, record: Record, known: np.ndarray | None):
        self._more, self._known = record.more, known

    def __call__(self) -> np.ndarray:
        if self._known is None:
            assert self._more is not None
            self._known = _silent_images(logits_of(self._more(["adv_logits"]), "adv_logits"))
        return self._known


def _silent_images(logits: Tensor) -> np.ndarray:
    """Images with a logit that is not finite, (n,) bool; a finite sum rules them out at once."""
    if logits.sum().isfinite():
        return np.zeros(len(logits), bool)
    return ~logits.isfinite().all(1).numpy()


def _what_is_there(outcomes: Outcomes) -> str:
    """What a folder without a finished cell has instead."""
    counts = {"under way": outcomes.running, "not run yet": outcomes.waiting, "damaged": outcomes.damaged}
    if outcomes.unknown:
        counts["of unknown attacks"] = outcomes.unknown
    if not any(counts.values()):
        return "it is empty"
    return ", ".join(f"{len(cells)} {name}" for name, cells in counts.items())


def check_models(outcomes: Outcomes, models: Sequence[str] | None) -> None:
    """Raise UnknownName unless every one of the models is in the folder."""
    known = {name for subject in outcomes.subjects.values() for name in (subject.model, subject.name)}
    for name in models or ():
        if name not in known:
            raise UnknownName("model", name, known)


def remedy(line: str) -> str:
    """What to do about a file that was left out, unless the line says so itself."""
    return "" if line.endswith(WRONG_ONE) or "could not read" in line else "; `davylamp evaluate` computes it again"


def is_rate(symbol: str) -> bool:
    """Whether a symbol is the fooling rate at some K: "FR@10"."""
    count = symbol[len(_RATE) :]
    return symbol.startswith(_RATE) and count.isascii() and count.isdecimal() and int(count) > 0


def details(cell: Cell) -> dict[str, str]:
    """What tells apart two cells of one implementation and threat model, the model and the seed aside."""
    settings = dict(cell.parameters)
    settings |= {f"{name} of": list(values) for name, values in cell.grid.items()}
    settings |= {"target": cell.target, "pixels": cell.pixels, "version": cell.version}
    settings |= {"rules": cell.rules, "torch": cell.torch, "device": cell.device}
    users = [each for each in cell.measures if not is_group(each) and is_file_name(plain_name(each))]
    if users := [*users, *(each for each in cell.measures if is_group(each) and ":" in each)]:
        settings["metrics"] = users
    settings |= {"draws": cell.draws, "eot": cell.eot} if cell.draws or cell.eot > 1 else {}
    if cell.fitted_on is not None and cell.fitted_on.images:
        settings["fitted on"] = f"{cell.fitted_on.data} [{cell.fitted_on.data_digest[:6]}]"
    if cell.surrogate:
        settings["surrogate"] = ", ".join(f"{each.model} [{each.model_digest[:6]}]" for each in cell.surrogate)
    settings |= {"data": images_text(cell.subject)}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}


def images_text(subject: ModelOnData) -> str:
    """The images of a model: "demo:mnist (20)", with the first of those that were chosen by name."""
    chosen = f" chosen: {subject.chosen[0]}, ..." if subject.chosen else ""
    return f"{subject.data} ({subject.images}{chosen})"


def clean_predictions(store: ResultsStore, subject: ModelOnData) -> tuple[Tensor, Tensor] | None:
    """Logits (n, K) and labels (n,) of a model's clean images; None where there are none."""
    try:
        record = store.read("clean", subject.key)
    except (FileNotFoundError, Damaged):
        return None
    if record.failed:
        return None
    return logits_of(record.table, "logits"), torch.tensor(record.table["label"].to_numpy())


def _fooling_rate(outcome: Outcome, logits: Tensor | None, symbol: str) -> np.ndarray:
    """FR@K of each image, (n,); NaN where an image proves nothing or the clean logits are not known."""
    unknown = needs_confidences(symbol) and not outcome.has_confidences
    if unknown or logits is None or outcome.adv_logits is None:
        return np.full(len(outcome.columns["label"]), np.nan)
    answers = outcome.adv_logits
    if outcome.silent.any():
        answers = answers.masked_fill(torch.tensor(outcome.silent)[:, None], 0.0)
    rates = fooling_rate_at_k(logits, answers, int(symbol.removeprefix(_RATE)), reduction="none")
    return leave_detected(np.where(outcome.usable & ~outcome.silent, rates.numpy(), np.nan), outcome.columns)


def _users_metric(outcome: Outcome, logits: Tensor | None, name: str) -> np.ndarray:
    """A user's metric by today's code, (n,); NaN where only an evaluation can compute it and none has."""
    metric = find_metric(name)
    if not outcome.has_confidences and {"logits", "adv_logits"} & {*metric.needs}:
        return np.full(len(outcome.columns["label"]), np.nan)
    if metric.of_records and outcome.adv_logits is not None:
        return of_record(metric, outcome.columns, outcome.usable, logits, outcome.adv_logits)
    missing = np.full(len(outcome.columns["label"]), np.nan)
    return outcome.columns.get(name, missing) if sealed_name(name) in outcome.cell.measures else missing
