"""Versions of models that share a name in a results folder, and which one was evaluated last."""

from collections.abc import Collection, Iterable
from datetime import datetime, timezone
from typing import Any

from ..attack_run import ModelOnData, tell_apart
from .record_validation import read_records, usable_record
from .results import Results, with_names
from .store import ResultsStore


def mark_evaluated(store: ResultsStore, subjects: Iterable[tuple[ModelOnData, Any]]) -> None:
    """Record that these models were evaluated last, although all results of an older version may have been reused.

    Only a model with several versions in the folder is written: the time of its clean predictions becomes the present.

    Args:
        store: results.
        subjects: models with their data in a plan.
    """
    written: dict[str, dict[str, str]] = {}
    for _, record in read_records(store, "clean", (), headers=True):
        _note_time(written, ModelOnData(**record.meta["subject"]), record.meta)
    for subject, _ in subjects:
        others = dict(written.get(subject.model, {}))
        mine = others.pop(subject.model_digest, None)
        if mine is None or not others or mine > max(others.values()):
            continue
        if (record := usable_record(store, "clean", subject.key)) is not None:
            now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
            store.write("clean", subject.key, record.table, {**record.meta, "written": now})


def latest_versions(outcomes: Results, names: Collection[str] = ()) -> tuple[Results, list[str]]:
    """Return the results of the version evaluated last for each model name, and a note for each name with others.

    Args:
        outcomes: a results folder.
        names: names of selected models; the full name of an older version, "NAME [HASH]", selects that one.

    Returns:
        The results, in which a model has its plain name unless `names` has its full name, and the notes. All versions
        remain if the records have no times.
    """
    written: dict[str, dict[str, str]] = {}
    for each in outcomes.clean.values():
        _note_time(written, each.subject, each.meta)
    subjects = outcomes.subjects
    for subject in subjects.values():
        if subject.key not in outcomes.clean:
            written.setdefault(subject.model, {}).setdefault(subject.model_digest, "")
    last = {model: max(times.values()) for model, times in written.items()}
    kept, left = dict[str, ModelOnData](), dict[str, dict[str, None]]()
    for key, subject in subjects.items():
        times = written[subject.model]
        if times[subject.model_digest] == last[subject.model] or subject.full_name in names:
            kept[key] = subject
        else:
            left.setdefault(subject.model, {})[subject.full_name] = None
    if not left:
        return outcomes, []
    outcomes = outcomes.of_subjects(lambda subject: subject.full_name not in left.get(subject.model, {}))
    called = tell_apart(kept.values())
    for key, subject in kept.items():
        if subject.full_name in names:
            called[key] = subject.full_name, called.get(key, ("", ""))[1]
    notes = []
    for model, older in left.items():
        full = {subject.full_name for subject in kept.values() if subject.model == model}
        notes.append(
            f"{model}: only the version that was evaluated last is judged ({', '.join(sorted(full))}), not "
            f"{', '.join(older)}"
        )
    return with_names(outcomes, called), notes


def _note_time(written: dict[str, dict[str, str]], subject: ModelOnData, meta: Any) -> None:
    times = written.setdefault(subject.model, {})
    times[subject.model_digest] = max(times.get(subject.model_digest, ""), str(meta.get("written", "")))
