"""Probes every model and run of a results folder, after verifying that models and images are unchanged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.models.remote.server_usage import ServerUsage, pop_usage
from ...adapters.models.remote.transport import transport_with_cache
from ...adapters.models.sandbox.isolated import runs_in_process
from ...errors import DavylampError, InvalidInput
from ..attack_run import AttackRun, ModelOnData, why_not_probed
from ..sources import LoadedCache, LoadOptions, ModelSource, load_evaluated
from ..store.results import Results, as_results, check_models
from ..store.store import DamagedRecordError, ResultsStore
from .probe_cell import IMAGES, probe_cell
from .probe_model import probe_model


class ProbeSummary(NamedTuple):
    """Summary of a call of `probe_folder`.

    Args:
        done: number of runs for which the call ran probes or tried to.
        kept: number of runs that had probes before the call.
        notes: a sentence for each model or run that could not be probed.
        traffic: usage of model servers.
    """

    done: int
    kept: int
    notes: list[str]
    traffic: ServerUsage = ServerUsage()


def probe_folder(  # noqa: PLR0913 - what is probed by position, the choices by keyword
    folder: str | Path | Results,
    *,
    models: Mapping[str, Classifier] | None = None,
    data: Data | None = None,
    only: Sequence[str] | None = None,
    device: str = "cpu",
    images: int = IMAGES,
    loading: LoadOptions | None = None,
    progress: Callable[[str, int], object] | None = None,
) -> ProbeSummary:
    """Run the probes of every model and run in a folder, and store the results for `check_folder`.

    Models and runs that already have probes are skipped. The call can be interrupted and repeated, and several
    processes may share a folder.

    Args:
        folder: path of a results folder, or its `Results`.
        models: classifiers by name. Models that are missing here are loaded by name.
        data: the images. None to load them by name.
        only: names of the models to probe. None for all.
        device: device of the computation.
        images: number of images for each run.
        loading: options for loading models by name. None to load them in this process; for servers, the folder's answer
            cache is then used.
        progress: called with the name of a run's attack and 1 after each run.

    Raises:
        Unavailable: if there is no such folder, it is empty, or it cannot be written.
        UnknownName: if a model of `only` is not in the folder.
        InvalidInput: if `images` < 1.
    """
    if images < 1:
        raise InvalidInput(f"expected images >= 1, got {images}")
    outcomes, bench = as_results(folder), LoadedCache()
    check_models(outcomes, only)
    loading = loading or LoadOptions(transport_with_cache(outcomes.store.folder))
    done, kept, notes, traffic = 0, 0, [], ServerUsage()
    for subject in outcomes.subjects.values():
        if only is not None and not subject.is_called(only):
            continue
        cells = [
            outcome.cell
            for outcome in outcomes.done
            if outcome.cell.subject == subject and not why_not_probed(outcome.cell)
        ]
        given = None if models is None else models.get(subject.model)
        apart = given is None and loading.isolation.covers(subject.model)
        waiting = [cell for cell in cells if not _is_probed(outcomes.store, cell.key, images, apart=apart)]
        kept += len(cells) - len(waiting)
        for _ in range(len(cells) - len(waiting)):
            (progress or _ignore)("", 1)
        if not waiting and (not _lacks_probes(outcomes, subject)):
            continue
        try:
            source = ModelSource(subject.model, given, loading)
            classifier, outcome = load_evaluated(bench, subject, source, data, device)
        except DavylampError as error:
            notes.append(f"{subject.model}: {error}")
            continue
        _probe_subject(outcomes, subject, classifier, outcome)
        for cell in waiting:
            for note in _probe(outcomes.store, cell, classifier, outcome, images):
                notes.append(note)
            done += 1
            (progress or _ignore)(cell.attack, 1)
        traffic += pop_usage(classifier)
    return ProbeSummary(done, kept, notes, traffic)


def _probe_subject(outcomes: Results, subject: ModelOnData, classifier: Classifier, data: Data) -> None:
    """Probe a model if its clean predictions were stored without probes, as by earlier versions of davylamp."""
    if _lacks_probes(outcomes, subject):
        logits = outcomes.clean[subject.key].logits
        probes = probe_model(classifier, data.inputs.to(classifier.device), data.labels, logits)
        meta = {"key": subject.key, "subject": subject.spec, "status": "done", "reason": "", "probes": probes}
        outcomes.store.write("checks", subject.key, pa.table({}), meta)


def _probe(store: ResultsStore, cell: AttackRun, classifier: Classifier, data: Data, images: int) -> Iterator[str]:
    """Probe a run and store the results. Yield a note if the run could not be probed."""
    lock = store.claim(f"checks-{cell.key}")
    if lock is None:
        yield f"{cell.attack} on {cell.subject.model}: a different process is probing this run"
        return
    try:
        inputs = data.inputs.to(classifier.device)
        probes = probe_cell(cell, classifier, inputs, data.labels.to(classifier.device), images=images)
    except DavylampError as error:
        yield f"{cell.attack} on {cell.subject.model}: {' '.join(str(error).split())}"
    else:
        meta: dict[str, Any] = {"key": cell.key, "spec": cell.spec, "status": "done", "reason": "", "asked": images}
        meta["apart"] = runs_in_process(classifier)
        store.write("checks", cell.key, pa.table({}), {**meta, "probes": probes})
    finally:
        store.release(f"checks-{cell.key}", lock)


def _is_probed(store: ResultsStore, key: str, images: int, *, apart: bool) -> bool:
    """Whether a run has probes on at least `images` images.

    If the layers of the model are accessible (`apart` is False), probes without access to the layers do not count.
    """
    try:
        meta = store.read("checks", key).meta
        return meta["asked"] >= images and (apart or not meta.get("apart"))
    except FileNotFoundError:
        return False
    except DamagedRecordError:
        store.remove("checks", key)
        return False


def _lacks_probes(outcomes: Results, subject: ModelOnData) -> bool:
    if subject.key not in outcomes.clean:
        return False
    stored = outcomes.clean[subject.key].meta.get("probes")
    return stored is None and subject.key not in outcomes.store.keys("checks")


def _ignore(_: str, __: int) -> None:
    """Ignore the progress, if the caller gave no callback."""
