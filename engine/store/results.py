"""A results folder in memory: runs and clean predictions as arrays, and notes on missing results."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from torch import Tensor

from ...adapters.paths import is_file_name
from ...errors import Unavailable, UnknownName
from ..attack_run import AttackRun, ModelOnData, call_as, show_as, tell_apart
from ..finding import Finding, sentences
from ..measure_groups import is_group
from ..metric_names import NO_CONFIDENCES, needs_confidences
from ..thread_map import thread_map
from ..user_metrics import plain_name
from .columns import Example, logits_of, pictures_of
from .derived_columns import STORED_K, STORED_RATE, derive_columns, lacks_rate, needs_logits
from .image_results import ImageResults
from .imported import Reference, references_of
from .notes import answers_change, find_notes, unsteady_models, unsteady_subjects
from .other_records import fit_costs
from .plan_records import CellState, find_missing, list_parts, missing_line
from .record_validation import NEEDED, edited_since, order_of, read_records, unknown_attack
from .store import Record, ResultsStore, is_selected
from .stored_columns import RepeatedArrays, StoredColumns, join_columns
from .transfers import Predictions, Transfers, read_transfers

_CELLS, _PAIRS = ("running", "waiting"), ("failed", "unknown")  # runs of `Results`, alone and with a reason
_SAME = 1e-4  # relative to the largest logit: rounding differs between batches


def has_confidences(meta: Mapping[str, Any]) -> bool:
    """Whether the logits of a record are outputs of the model. False if they were made from labels."""
    return meta.get("outputs") != "labels"


@dataclass(frozen=True, eq=False)
class CleanResult:
    """A model's predictions on clean images.

    `columns` has arrays of shape (n,) by name. `logits` has the shape (n, K). `meta` is the metadata of the record.
    `examples` are pictures of the first images, if they were requested.
    """

    subject: ModelOnData
    columns: Mapping[str, np.ndarray]
    logits: Tensor
    meta: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()

    @property
    def has_confidences(self) -> bool:
        """Whether the model returns confidences. False if it returns labels only."""
        return has_confidences(self.meta)


@dataclass(frozen=True, eq=False)
class RunResult:
    """A finished run.

    `columns` has arrays of shape (n,) by name. Only columns that all runs have are in memory. Others are read from the
    run's file on access. `unmeasured` has the reasons why metrics have no value. `meta` is the metadata of the record.

    `find_silent` returns which images have non-finite logits. It is None if there are none. If requested, `examples`
    are pictures of the first images, and `adv_logits` are the logits on all adversarial images, (n, K).
    """

    cell: AttackRun
    columns: Mapping[str, np.ndarray]
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    find_silent: Callable[[], np.ndarray] | None = None
    examples: tuple[Example, ...] = ()
    adv_logits: Tensor | None = None

    @property
    def has_confidences(self) -> bool:
        """Whether the evaluated model returns confidences. False if it returns labels only."""
        return has_confidences(self.meta)

    @cached_property
    def non_finite(self) -> np.ndarray:
        """Whether each image has non-finite logits, (n,) bool. The run's file is read if necessary.

        Raises:
            Unavailable: if the file can no longer be read, or has changed.
        """
        return np.zeros(len(self.columns["label"]), bool) if self.find_silent is None else self.find_silent()

    @property
    def is_minimum(self) -> bool:
        """Whether the distances of the run are the smallest that were found.

        True for minimum-norm attacks and searches.
        """
        return self.cell.search.attack_kind(self.cell.row) == "minimum-norm"

    @property
    def results(self) -> ImageResults:
        """Result of the attack on each image."""
        return ImageResults(self.columns, self.cell.threat_model)

    @property
    def is_random(self) -> bool:
        """Whether the run's model is random and was judged on several samples."""
        return self.results.is_random

    @property
    def differs_unchanged(self) -> np.ndarray:
        """Whether the attack returned each image unchanged, but the model now predicts a different class, (n,) bool.

        All are False if the run rounds examples to 8 bits, or judges them on several samples of a random model. Clean
        images are then classified in a different way than examples.
        """
        if self.cell.pixels or self.is_random:
            return np.zeros(len(self.columns["label"]), bool)
        return (self.columns["linf"] == 0) & (self.columns["adv_predicted"] != self.columns["predicted"])

    @property
    def usable(self) -> np.ndarray:
        """Whether each image is usable, (n,) bool: attacked, valid, and fooled or within the radius."""
        return self.results.usable


@dataclass(frozen=True, eq=False)
class Results:
    """A results folder in memory.

    Args:
        store: the folder.
        done: finished runs, ordered by model, attack and key.
        failed: runs without a result, with the reason of each.
        running: runs that have only some of their shards.
        clean: clean predictions by key of model and data.
        damaged: a message for each file that was omitted as damaged.
        transfers: predictions of other models on a run's examples, (n,), by key of the run and of the tested model on
            data. NaN for non-finite logits. None if they were not read.
        shown_shares: for random models, the rate of wrong samples on these examples, (n,), by the same keys. Older
            records do not have it.
        waiting: planned runs without any result.
        unknown: finished runs that are omitted, each with a message. This version does not have their attack, or its
            code was edited later.
        refused: reason why a model could not be used on its clean images, by key of model and data.
        states: state of every run with a record, by key: finished, failed or of an unknown attack.
        lacking: a message on parts of an evaluation that lack shards.
        left_out: a message for each image set that is omitted because a larger set of the same model contains it. Also
            a message for each run that was evaluated again with more metrics.
        references: results of other programs on the same images.
    """

    store: ResultsStore
    done: tuple[RunResult, ...]
    failed: tuple[tuple[AttackRun, str], ...]
    running: tuple[AttackRun, ...]
    clean: Mapping[str, CleanResult]
    damaged: tuple[str, ...]
    transfers: Transfers | None
    waiting: tuple[AttackRun, ...] = ()
    unknown: tuple[tuple[AttackRun, str], ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, CellState] = field(default_factory=dict)
    references: tuple[Reference, ...] = ()
    lacking: str = ""
    shown_shares: Transfers = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def subjects(self) -> dict[str, ModelOnData]:
        """Every model on its images, by key, ordered by name."""
        cells = [*(known.cell for known in self.done), *(cell for cell, _ in self.failed)]
        subjects = {
            known.key: known for known in (*(each.subject for each in self.clean.values()), *(c.subject for c in cells))
        }
        return dict(sorted(subjects.items(), key=lambda item: (item[1].model, item[1].data, item[1].images, item[0])))

    @property
    def unsteady(self) -> list[str]:
        """A message for each model that is not declared random but returns different outputs for the same image."""
        return unsteady_models(self)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All notes on the folder: on failed, unfinished and damaged runs, on how searches ended, and others."""
        return tuple(find_notes(self))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences of the findings."""
        return sentences(self.findings)

    def of_models(self, names: Collection[str]) -> "Results":
        """Return the results of the named models. Without names, all results are returned."""
        if not names:
            return self
        done = tuple(each for each in self.done if each.cell.subject.is_called(names))
        failed = tuple(each for each in self.failed if each[0].subject.is_called(names))
        return replace(self, done=done, failed=failed)

    def of_subjects(self, keep: Callable[[ModelOnData], bool]) -> "Results":
        """Return the results of the models on their images for which `keep` is true."""
        cells = {name: tuple(filter(lambda cell: keep(cell.subject), getattr(self, name))) for name in _CELLS}
        pairs = {name: tuple(each for each in getattr(self, name) if keep(each[0].subject)) for name in _PAIRS}
        return replace(
            self,
            **cells,
            **pairs,
            done=tuple(each for each in self.done if keep(each.cell.subject)),
            clean={key: each for key, each in self.clean.items() if keep(each.subject)},
            states={key: each for key, each in self.states.items() if keep(each.cell.subject)},
            references=tuple(each for each in self.references if keep(each.subject)),
        )

    def has_detector(self, subject: ModelOnData) -> bool:
        """Whether a model has the additional class "detected"."""
        return any(each.results.has_detector for each in self.done if each.cell.subject.key == subject.key)

    def is_random(self, subject: ModelOnData) -> bool:
        """Whether the records of a model state that it is random. They then have rates over samples."""
        if any(each.is_random for each in self.done if each.cell.subject.key == subject.key):
            return True
        right = self.clean[subject.key].columns["CA"]
        return bool(((right > 0) & (right < 1)).any())

    @property
    def judged_by_draws(self) -> set[str]:
        """Names of the random models. Their examples are judged on several samples."""
        return {each.subject.name for each in self.clean.values() if self.is_random(each.subject)}

    @property
    def users_symbols(self) -> tuple[str, ...]:
        """Names of users' metrics that the records have."""
        return tuple(dict.fromkeys(name for outcome in self.done for name in outcome.columns if is_file_name(name)))


def as_results(source: str | PathLike[str] | Results, symbols: Sequence[str] = ()) -> Results:
    """Read a folder, with transfers if symbols need them. Results that were already read are returned unchanged.

    Args:
        source: a results folder, or results that were read.
        symbols: as for `read_outcomes`.

    Raises:
        DavylampError: as for `read_outcomes`.
    """
    if not isinstance(source, Results):
        return read_outcomes(source, symbols)
    if "OTR" in symbols and source.transfers is None:
        transfers, shares = read_transfers(read_records(source.store, "transfer"))
        return replace(source, transfers=transfers, shown_shares=shares)
    return source


def read_outcomes(
    folder: str | PathLike[str],
    symbols: Sequence[str] = (),
    *,
    examples: bool = False,
    keep_logits: Callable[[ModelOnData], bool] | None = None,
    models: Collection[str] = (),
) -> Results:
    """Read a results folder once, without keeping large columns in memory.

    Every byte is checked. Columns of metrics stay in the file until they are accessed (`StoredColumns`). So do logits,
    unless a symbol needs them.

    Args:
        folder: a results folder of `davylamp evaluate`; or an
            `EvaluatedFolder` or `Evaluation`, of which only the models of one evaluation are read.
        symbols: metrics that need logits or transfers: "FR@10", "OTR"; they become columns.
        examples: whether to read the first images as pictures.
        keep_logits: selects models whose logits on adversarial images are kept; None for no model.
        models: names of models whose runs are read, with runs whose examples were tested on them if "OTR" is among the
            symbols; empty for all.

    Raises:
        Unavailable: if there is no such folder, or neither a finished nor a failed run in it.
        StoreMismatch: if it was written in a different format.
    """
    store, damaged = ResultsStore(folder, create=False), list[str]()
    repeated = RepeatedArrays()
    clean, refused = _read_clean(read_records(store, "clean", damaged=damaged), repeated, examples=examples)
    transfers: Transfers | None = None
    shares: Transfers = {}
    if "OTR" in symbols:
        records = read_records(store, "transfer", damaged=damaged)
        transfers, shares = read_transfers(item for item in records if is_selected(folder, item[0].rpartition("-")[2]))
    states: list[CellState] = []
    done: list[RunResult] = []

    def look_at(item: tuple[str, Record]) -> tuple[CellState, RunResult | None]:
        key, record = item
        cell = AttackRun.from_record(record.meta)
        state = CellState(key, cell, record.meta["status"], record.meta["reason"], dict(record.meta))
        if record.failed or unknown_attack(cell):
            return state, None
        tested = (transfers or {}).get(key)
        outcome = _outcome(cell, record, repeated, clean.get(cell.subject.key), symbols, tested)
        if keep_logits is None or not keep_logits(cell.subject):
            outcome = replace(outcome, adv_logits=None)
        if not examples:
            return state, outcome
        return state, replace(outcome, examples=pictures_of(record, "adv_", confidences=outcome.has_confidences))

    runs_users_code = any(map(is_file_name, symbols))  # it may not be thread-safe
    shown = ("adv_picture", "adv_cam") if examples else ()
    stored = (STORED_RATE,) if f"FR@{STORED_K}" in symbols else ()
    answers = ("adv_logits",) if keep_logits is not None or any(map(needs_logits, symbols)) else ()
    keys = _keys_about(store, models, clean, transfers or {}) if models else None
    records = read_records(store, "cells", (*NEEDED, *stored, *answers, *shown), keys=keys, damaged=damaged)
    for state, outcome in (map if runs_users_code else thread_map)(look_at, records):
        states.append(state)
        done += [] if outcome is None else [outcome]
    begun = read_records(store, "parts", (), damaged=damaged)
    parts = {key.partition("-")[0]: AttackRun.from_record(record.meta) for key, record in begun}
    references = references_of(read_records(store, "references", damaged=damaged))
    known = {state.key: state for state in sorted(states, key=lambda state: order_of(state.cell))}
    left_out = edited_since((each.cell, each.meta) for each in states if not unknown_attack(each.cell))
    left_out |= {each.key: why for each in states if each.status != "failed" and (why := unknown_attack(each.cell))}
    outcomes = Results(
        store=store,
        done=tuple(
            sorted((each for each in done if each.cell.key not in left_out), key=lambda each: order_of(each.cell))
        ),
        failed=tuple(
            (each.cell, each.reason) for each in states if each.status == "failed" and each.key not in left_out
        ),
        running=tuple(cell for key, cell in parts.items() if key not in known),
        clean=clean,
        damaged=tuple(damaged),
        transfers=transfers,
        shown_shares=shares,
        waiting=tuple(cell for key, cell in find_missing(store).items() if key not in parts),
        lacking=missing_line(list_parts(store)),
        unknown=tuple(
            (each.cell, left_out[each.key]) for each in states if each.status != "failed" and each.key in left_out
        ),
        refused=refused,
        states=known,
        references=references,
    )
    outcomes = outcomes.of_subjects(lambda subject: is_selected(folder, subject.key))
    outcomes = _leave_narrower(_leave_undeclared(_leave_subsets(outcomes)))
    if not outcomes.done and not outcomes.failed:
        raise Unavailable(f"no finished runs in {os.fspath(folder)} ({_what_is_there(outcomes)})")
    names = tell_apart(outcomes.subjects.values())
    return with_names(outcomes, names) if names else outcomes


def _keys_about(
    store: ResultsStore, models: Collection[str], clean: Mapping[str, CleanResult], transfers: Transfers
) -> set[str]:
    tested = {key for key, each in clean.items() if each.subject.model in models}
    keys = {cell for cell, predictions in transfers.items() if not tested.isdisjoint(predictions)}
    headers = read_records(store, "cells", (), headers=True)
    return keys | {key for key, record in headers if record.meta["spec"]["subject"]["model"] in models}


def _read_clean(
    records: Iterable[tuple[str, Record]], repeated: RepeatedArrays, *, examples: bool
) -> tuple[dict[str, CleanResult], dict[str, str]]:
    """Read the clean predictions.

    Returns:
        The predictions, and the reasons why models have none, by key of model and data.
    """
    clean, refused = {}, {}
    for key, record in records:
        if record.failed:
            refused[key] = str(record.meta["reason"])
            continue
        pictures = pictures_of(record, "", confidences=has_confidences(record.meta)) if examples else ()
        subject, columns = ModelOnData(**record.meta["subject"]), StoredColumns(record, repeated)
        clean[key] = CleanResult(subject, columns, logits_of(record.table, "logits"), record.meta, pictures)
    return clean, refused


def _outcome(
    cell: AttackRun,
    record: Record,
    repeated: RepeatedArrays,
    clean: CleanResult | None,
    symbols: Sequence[str],
    tested: Predictions | None,
) -> RunResult:
    """Build a `RunResult`, with a column for each metric that needs the run's logits or other models' predictions."""
    costs = {name: np.full(len(record.table), number) for name, number in fit_costs(record.meta).items()}
    unmeasured = dict(record.meta.get("unmeasured", {}))
    if not has_confidences(record.meta):
        unmeasured |= {name: NO_CONFIDENCES for name in symbols if needs_confidences(name)}
    outcome = RunResult(cell, join_columns(StoredColumns(record, repeated), costs), unmeasured, record.meta)
    needed = any(lacks_rate(outcome, name) for name in symbols)
    adv_logits = _adv_logits(record) if needed or "adv_logits" in record.table.column_names else None
    known = None if adv_logits is None else _silent_images(adv_logits)
    find_silent = None if known is None and record.more is None else _NonFiniteLookup(record, known)
    outcome = replace(outcome, find_silent=find_silent, adv_logits=adv_logits)
    further = derive_columns(outcome, None if clean is None else clean.logits, symbols, tested)
    return replace(outcome, columns=join_columns(outcome.columns, further))


def _adv_logits(record: Record) -> Tensor | None:
    """Return the logits on adversarial images, (n, K). They are read from the file if necessary."""
    if "adv_logits" in record.table.column_names:
        return logits_of(record.table, "adv_logits")
    return None if record.more is None else logits_of(record.more(["adv_logits"]), "adv_logits")


class _NonFiniteLookup:
    """Finds images with non-finite logits. The logits are read at most once.

    An object of this class can be pickled, in contrast to a local function.
    """

    def __init__(self, record: Record, known: np.ndarray | None):
        self._more, self._known = record.more, known

    def __call__(self) -> np.ndarray:
        if self._known is None:
            assert self._more is not None
            self._known = _silent_images(logits_of(self._more(["adv_logits"]), "adv_logits"))
        return self._known


def _silent_images(logits: Tensor) -> np.ndarray:
    """Return whether each image has a non-finite logit, (n,) bool."""
    if logits.sum().isfinite():
        return np.zeros(len(logits), bool)
    return ~logits.isfinite().all(1).numpy()


def with_names(outcomes: Results, names: Mapping[str, tuple[str, str]]) -> Results:
    """Return results in which some models and data have other display names.

    Args:
        outcomes: the results.
        names: display names from `tell_apart`. All other models and data have their own names.
    """
    clean = {key: replace(each, subject=show_as(each.subject, names)) for key, each in outcomes.clean.items()}
    return replace(
        outcomes,
        done=tuple(replace(each, cell=call_as(each.cell, names)) for each in outcomes.done),
        failed=tuple((call_as(cell, names), why) for cell, why in outcomes.failed),
        running=tuple(call_as(cell, names) for cell in outcomes.running),
        waiting=tuple(call_as(cell, names) for cell in outcomes.waiting),
        unknown=tuple((call_as(cell, names), why) for cell, why in outcomes.unknown),
        states={key: each._replace(cell=call_as(each.cell, names)) for key, each in outcomes.states.items()},
        clean=clean,
    )


def _what_is_there(outcomes: Results) -> str:
    """Describe a folder that has no finished run, for an error message."""
    counts = {"under way": outcomes.running, "not run yet": outcomes.waiting, "damaged": outcomes.damaged}
    if outcomes.unknown:
        counts["of unknown attacks"] = outcomes.unknown
    if not any(counts.values()):
        return "it is empty"
    return ", ".join(f"{len(cells)} {name}" for name, cells in counts.items())


def check_models(outcomes: Results, models: Sequence[str] | None) -> None:
    """Raise UnknownName unless the folder has all these models."""
    subjects = outcomes.subjects.values()
    for name in models or ():
        if not any(name == each.name or each.is_called([name]) for each in subjects):
            raise UnknownName("model", name, {each.name for each in subjects})


def distinguishing_settings(cell: AttackRun) -> dict[str, str]:
    """Return the settings in which runs of the same implementation, threat model, model and seed can differ."""
    settings = dict(cell.parameters)
    settings |= {f"{name} of": list(values) for name, values in cell.grid.items()}
    settings |= {"target": cell.target, "pixels": cell.pixels, "version": cell.version}
    settings |= {"rules": cell.rules, "torch": cell.torch, "device": cell.device}
    users = [each for each in cell.measured if not is_group(each) and is_file_name(plain_name(each))]
    if users := [*users, *(each for each in cell.measured if is_group(each) and ":" in each)]:
        settings["metrics"] = users
    settings |= {"draws": cell.draws, "eot": cell.eot} if cell.draws or cell.eot > 1 else {}
    if cell.fitted_on is not None and cell.fitted_on.images:
        settings["fitted on"] = f"{cell.fitted_on.data} [{cell.fitted_on.data_digest[:6]}]"
    if cell.surrogate:
        settings["surrogate"] = ", ".join(f"{each.model} [{each.model_digest[:6]}]" for each in cell.surrogate)
    settings |= {"data": images_text(cell.subject)}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in settings.items()}


def images_text(subject: ModelOnData) -> str:
    """Describe a model's images: "demo:mnist (20)". If images were selected by name, the first names follow."""
    chosen = f" chosen: {subject.chosen[0]}, ..." if subject.chosen else ""
    chosen += f" of {subject.population} in random order" if subject.drawn else ""
    return f"{subject.data_name} ({subject.images}{chosen})"


def _find_subsets(clean: Mapping[str, CleanResult]) -> dict[str, str]:
    """Find image sets that are part of a larger set of the same model.

    One set is part of another if their pixels are equal. If the data have the same name, equal names, labels and
    outputs suffice. If two sets are equal, the first by name of data counts as the larger one. If
    the names are equal, too, a set in random order counts as the smaller one.

    Args:
        clean: clean predictions by key of model and data.

    Returns:
        Key of the larger set, by key of the smaller set.
    """
    families: dict[tuple[str, str], list[str]] = {}
    for key, each in clean.items():
        families.setdefault((each.subject.model, each.subject.model_digest), []).append(key)
    larger: dict[str, str] = {}
    for keys in families.values():
        order = sorted(keys, key=lambda key: _set_order(key, clean[key].subject))
        for place, key in enumerate(order[1:], start=1):
            within = next((other for other in order[:place] if _is_part(clean[key], clean[other])), None)
            if within is not None:
                larger[key] = larger.get(within, within)
    return larger


def _set_order(key: str, subject: ModelOnData) -> tuple[Any, ...]:
    return -subject.images, subject.data, bool(subject.drawn), key


def _is_part(part: CleanResult, whole: CleanResult) -> bool:
    """Whether one image set contains all images of another.

    This holds for equal pixels. It also holds for data of the same name if the names of the images are unique and
    match.

    Args:
        part: predictions on the smaller set.
        whole: predictions on the larger set.
    """
    if part.subject.data_digest == whole.subject.data_digest:
        return True
    if part.subject.data != whole.subject.data:
        return False
    places = {name: place for place, name in enumerate(whole.columns["image"])}
    names = part.columns["image"]
    if len(places) < len(whole.columns["image"]) or len(set(names)) < len(names) or not set(names) <= set(places):
        return False
    rows = [places[name] for name in names]
    if not np.array_equal(part.columns["label"], whole.columns["label"][rows]):
        return False
    ours, theirs = part.logits.numpy(), whole.logits.numpy()[rows]
    return ours.shape == theirs.shape and bool(np.allclose(ours, theirs, _SAME, _SAME * max(1.0, np.abs(ours).max())))


def _leave_subsets(outcomes: Results) -> Results:
    """Remove runs on image sets that are part of a larger set. Add a message for each removed set."""
    larger = _find_subsets(outcomes.clean)
    if not larger:
        return outcomes
    subjects = {key: each.subject for key, each in outcomes.clean.items()}
    known = {each.cell.key for each in outcomes.done}

    def is_again(cell: AttackRun) -> bool:
        whole = larger.get(cell.subject.key)
        return whole is not None and replace(cell, subject=subjects[whole]).key in known

    done = tuple(each for each in outcomes.done if not is_again(each.cell))
    failed = tuple((cell, why) for cell, why in outcomes.failed if not is_again(cell))
    used = {cell.subject.key for cell in (*(each.cell for each in done), *(cell for cell, _ in failed))}
    clean = {key: each for key, each in outcomes.clean.items() if key in used or key not in larger}
    return replace(
        outcomes, done=done, failed=failed, clean=clean, left_out=tuple(_subset_lines(outcomes, clean, larger))
    )


def _leave_undeclared(outcomes: Results) -> Results:
    """Remove unstable runs of models that were declared as random afterwards. Add a message for each removed run.

    If the declaration is in the model's name, the model under its former name is removed, with a message.
    """
    drawn = {each.cell.subject for each in outcomes.done if each.cell.draws}
    declared, alike = {each.key for each in drawn}, {(each.model_digest, each.data_digest) for each in drawn}
    former = {
        key: f"omitted: {each.model}: the results are from before the model was declared random"
        for key, each in unsteady_subjects(outcomes).items()
        if key not in declared and (each.model_digest, each.data_digest) in alike
    }
    if former:
        outcomes = outcomes.of_subjects(lambda subject: subject.key not in former)
        outcomes = replace(outcomes, left_out=(*outcomes.left_out, *dict.fromkeys(former.values())))
    declared -= {key for key, clean in outcomes.clean.items() if answers_change(clean.meta)}
    old = {
        each.cell.key: (
            f"omitted: {each.cell.title} on {each.cell.subject.model}: the result is from before the model was "
            "declared random"
        )
        for each in outcomes.done
        if each.cell.subject.key in declared and not each.cell.draws and each.results.is_unsteady
    }
    done = tuple(each for each in outcomes.done if each.cell.key not in old)
    return replace(outcomes, done=done, left_out=(*outcomes.left_out, *old.values())) if old else outcomes


def _leave_narrower(outcomes: Results) -> Results:
    """Remove runs that were evaluated again with more metrics. Add a message for each removed run."""
    if len({each.cell.measures for each in outcomes.done}) < 2:
        return outcomes
    alike: dict[str, list[AttackRun]] = {}
    for each in outcomes.done:
        alike.setdefault(replace(each.cell, measures=()).key, []).append(each.cell)
    narrow = {
        cell.key: (
            f"omitted: {cell.title} on {cell.subject.model}: the same run was evaluated again with more metrics, "
            "and counts once"
        )
        for cells in alike.values()
        for cell in cells
        if any({*cell.measured} < {*other.measured} for other in cells)
    }
    done = tuple(each for each in outcomes.done if each.cell.key not in narrow)
    return replace(outcomes, done=done, left_out=(*outcomes.left_out, *narrow.values()))


def _subset_lines(outcomes: Results, clean: Mapping[str, CleanResult], larger: Mapping[str, str]) -> Iterator[str]:
    for key, whole in larger.items():
        if key not in clean:
            part, subject = outcomes.clean[key].subject, outcomes.clean[whole].subject
            those = (
                "the same images" if part.images == subject.images else f"these are among its {subject.images} images"
            )
            of = "" if part.data == subject.data else f" of {subject.data}"
            yield f"omitted: {part.model} on {part.images} images of {part.data}: {those}{of}, which count once"
