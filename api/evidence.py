"""Maps the measurements of a results folder to standards, taxonomies and laws, for `davylamp evidence`."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ..adapters.coercion import read_text
from ..adapters.display_text import counted, format_threat_labels
from ..engine.challenge.challenge_result import read_documents
from ..engine.checks.check_folder import check_folder
from ..engine.checks.evidence_topics import COMMANDS, DEMANDS, LIMITS, STATES, Demand
from ..engine.store.notes import sequence_notes
from ..engine.store.results import Results, check_models, read_outcomes
from ..engine.tables.corruption_table import build_corruptions
from ..engine.tables.table import Table, build_table
from ..errors import InvalidInput, Unavailable, Unsupported
from .evaluation import Evaluation, folder_of
from .verb_result import VerbResult


def evidence(folder: str | Path | Evaluation, *, model: str = "") -> VerbResult:
    """Map the measurements of one model in a results folder to the topics of standards, taxonomies and laws.

    The documents are ISO/IEC TR 24029-1 and 24029-2, NIST AI 100-2 (evasion), MITRE ATLAS, Article 15 of the AI Act and
    FDA's draft guidance of January 2025. The result says what was measured and what was not. It does not say whether a
    system conforms.

    Args:
        folder: made by `evaluate`, or its result.
        model: the model; "" if the folder has one model only.

    Returns:
        A row per topic: `document`, `place` in it, `topic`, `state` ("measured", "partly measured", "not measured" or
        "outside davylamp"), `evidence` with values, 95 % intervals and numbers of images, and `next`, the commands for
        what is missing.

    Raises:
        InvalidInput: if the folder has several models and none is chosen.
        UnknownName: if the model is not in the folder.
        Unavailable: if there is no such folder, or no run in it.
    """
    place, name = folder_of(folder), read_text(model, "`model` as text")
    outcomes = read_outcomes(place, ("CA", "RA"))
    check_models(outcomes, [name] if name else None)
    models = list(dict.fromkeys(each.name for each in outcomes.subjects.values() if not name or each.is_called([name])))
    if len(models) > 1:
        raise InvalidInput(f"expected `model` as one of {', '.join(models)}, got {name or 'none'}")
    outcomes = outcomes.of_models(models)
    found = {kind: text for kind, read in _MEASUREMENTS.items() if (text := read(outcomes, models[0]))}
    rows = [_row(demand, found) for demand in DEMANDS]
    states = Counter(row["state"] for row in rows)
    counts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    headline = (
        f"{models[0]}: {counted(len(rows), 'topic')} of {len({row['document'] for row in rows})} documents: {counts}"
    )
    notes = (*map(str, sequence_notes(outcomes)), *LIMITS)
    measurements = [
        {
            "measurement": kind,
            "result": found.get(kind, ""),
            "evidence for": [f"{each.document} {each.place}" for each in DEMANDS if kind in each.needs],
            "next": "" if kind in found else command,
        }
        for kind, command in COMMANDS.items()
    ]
    document = {
        "model": models[0], "folder": str(place), "measurements": measurements, "topics": rows, "notes": list(notes),
    }  # fmt: skip
    return VerbResult(headline, rows, document, notes)


def _row(demand: Demand, found: dict[str, str]) -> dict[str, str]:
    has = [kind for kind in demand.needs if kind in found]
    lacks = [kind for kind in demand.needs if kind not in found]
    state = STATES[3] if not demand.needs else STATES[2] if not has else STATES[1] if lacks else STATES[0]
    texts = "; ".join(f"{kind}: {found[kind]}" for kind in has)
    return {
        **{name: getattr(demand, name) for name in ("document", "place", "topic")},
        "state": state,
        "evidence": texts,
        "next": "; ".join(COMMANDS[kind] for kind in lacks),
    }


def _values(table: Table, model: str, symbol: str) -> Iterator[str]:
    """Yield the value of a metric in each row of a model, with interval, images and threat model."""
    from ..report.text.console import interval_text

    for row in table.rows:
        value = row.metrics.get(symbol)
        if row.labels["model"] == model and value is not None and value.n:
            at = f" at {format_threat_labels(row.labels)}" if symbol != "CA" and "norm" in row.labels else ""
            attacks = f", {counted(row.labels['attacks'], 'attack')}" if symbol == "RA" else ""
            yield f"{symbol} {interval_text(value.value, value.low, value.high)}{at}, n = {value.n}{attacks}"


def _accuracy(outcomes: Results, model: str) -> str:
    return next(_values(build_table(outcomes, by="models", metrics=["CA"]), model, "CA"), "")


def _under_attack(kind: str) -> Callable[[Results, str], str]:
    def read(outcomes: Results, model: str) -> str:
        with suppress(Unavailable, Unsupported):
            table = build_table(outcomes, by="models", metrics=["RA"], knowledge=kind)  # type: ignore[arg-type]
            return "; ".join(_values(table, model, "RA"))
        return ""

    return read


def _transfer(outcomes: Results, model: str) -> str:
    if made_elsewhere := _under_attack("transfer")(outcomes, model):
        return made_elsewhere
    tested = {key for key, subject in outcomes.subjects.items() if subject.name == model}
    count = sum(bool(tested & {*predictions}) for predictions in (outcomes.transfers or {}).values())
    return f"{counted(count, 'run')} of other models tested on it (davylamp table --transfer)" if count else ""


def _corruptions(outcomes: Results, model: str) -> str:
    with suppress(Unavailable):
        return "; ".join(_values(build_corruptions(outcomes.store.folder), model, "mCE"))
    return ""


def _indicators(outcomes: Results, model: str) -> str:
    counts = Counter(each.state for each in check_folder(outcomes, models=[model]))
    known = [state for state in ("fail", "warn", "pass") if counts[state]]
    return ", ".join(f"{counts[state]} {state}" for state in known)


def _adaptive(outcomes: Results, model: str) -> str:
    documents = [each for each in read_documents(outcomes.store.folder) if each["model"] == model]
    return "; ".join(f"{each['verdict']}: {each['sentence']}" for each in documents)


def _certificate(*_: object) -> str:
    return ""


_MEASUREMENTS: dict[str, Callable[[Results, str], str]] = {
    "accuracy": _accuracy,
    "white-box": _under_attack("white-box"),
    "black-box": _under_attack("black-box"),
    "transfer": _transfer,
    "corruptions": _corruptions,
    "indicators": _indicators,
    "adaptive": _adaptive,
    "certificate": _certificate,
}
