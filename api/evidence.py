"""Maps the measurements of a results folder to standards, taxonomies and laws, for `davylamp evidence`."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike

from ..adapters.coercion import read_text
from ..adapters.display_text import counted, format_threat_labels
from ..engine.challenge.challenge_result import read_documents
from ..engine.checks.check_folder import check_folder
from ..engine.checks.evidence_topics import COMMANDS, DEMANDS, LIMITS, STATES, Demand
from ..engine.store.notes import sequence_notes
from ..engine.store.results import Results, read_outcomes
from ..engine.tables.corruption_table import build_corruptions
from ..engine.tables.groups import Knowledge
from ..engine.tables.table import TableRow, build_table
from ..errors import InvalidInput, Unavailable, UnknownName, Unsupported
from .verb_result import VerbResult


def evidence(folder: str | PathLike[str], *, model: str = "") -> VerbResult:
    """List the topics of standards, taxonomies and laws, with the measurements of one model that belong to each topic.

    The documents are ISO/IEC TR 24029-1 and 24029-2, NIST AI 100-2 (evasion), MITRE ATLAS, Article 15 of the AI Act and
    FDA's draft guidance of January 2025. The result lists measurements, present and missing. It does not state that a
    system conforms to a document.

    Args:
        folder: results folder made by `evaluate`, or the return value of `evaluate`.
        model: name of the model. "" for the only model of the folder.

    Returns:
        One row per topic. The columns are:

        - `document`: the standard, taxonomy or law
        - `place`: section of the document
        - `topic`: the topic
        - `state`: "measured", "partly measured", "not measured" or "outside davylamp"
        - `evidence`: values with 95 % intervals and numbers of images
        - `next`: commands for missing measurements

    Raises:
        InvalidInput: if the folder has several models and `model` is "".
        UnknownName: if the model is not in the folder.
        Unavailable: if the folder does not exist or has no run.
    """
    name = read_text(model, "`model` as text")
    outcomes = read_outcomes(folder, ("CA", "RA", "OTR"))
    names = [each.name for each in outcomes.subjects.values() if not name or each.is_called([name])]
    corrupted = [row.labels["model"] for row in _corrupted(outcomes)]
    models = list(dict.fromkeys((*names, *(each for each in corrupted if name in ("", each)))))
    if not models:
        raise UnknownName("model", name, [*(each.name for each in outcomes.subjects.values()), *corrupted])
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
    place = str(outcomes.store.folder)
    document = {
        "model": models[0], "folder": place, "measurements": measurements, "topics": rows, "notes": list(notes),
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


def _text(symbol: str, row: TableRow) -> str:
    from ..report.text.console import interval_text

    value = row.metrics[symbol]
    return f"{symbol} {interval_text(value.value, value.low, value.high)}, n = {value.n}"


def _accuracy(outcomes: Results, _: str) -> str:
    return "" if not outcomes.done else _text("CA", build_table(outcomes, by="models", metrics=["CA"]).rows[0])


def _under_attack(outcomes: Results, _: str, *kinds: Knowledge) -> str:
    """Describe the robust accuracy (RA) under attacks with one of the given kinds of attacker knowledge.

    Only attacks with a radius are included. Minimum-norm attacks are omitted.
    """
    texts: list[str] = []
    for kind in kinds:
        with suppress(Unsupported):
            for row in build_table(outcomes, by="models", metrics=["RA"], knowledge=kind).rows:
                if row.labels["norm"] == "unrestricted" or row.labels["epsilon"] > 0:
                    threat, attacks = format_threat_labels(row.labels), counted(row.labels["attacks"], "attack")
                    texts.append(f"{_text('RA', row)} at {threat}, {attacks}")
    return "; ".join(texts)


def _transfer(outcomes: Results, model: str) -> str:
    if made_elsewhere := _under_attack(outcomes, model, "transfer"):
        return made_elsewhere
    tested = {key for key, subject in outcomes.subjects.items() if subject.name == model}
    count = sum(bool(tested & {*predictions}) for predictions in (outcomes.transfers or {}).values())
    return f"{counted(count, 'run')} of other models tested on it (davylamp table --transfer)" if count else ""


def _corruptions(outcomes: Results, model: str) -> str:
    rows = [row for row in _corrupted(outcomes) if row.labels["model"] == model]
    return "; ".join(f"{_text('mCE', row)}, {counted(row.labels['corruptions'], 'corruption')}" for row in rows)


def _corrupted(outcomes: Results) -> Sequence[TableRow]:
    with suppress(Unavailable):
        return [row for row in build_corruptions(outcomes.store.folder).rows if "mCE" in row.metrics]
    return []


def _indicators(outcomes: Results, model: str) -> str:
    checks = check_folder(outcomes, models=[model]) if outcomes.done else []
    counts = Counter(each.state for each in checks)
    known = [state for state in ("fail", "warn", "pass") if counts[state]]
    return ", ".join(f"{counts[state]} {state}" for state in known)


def _adaptive(outcomes: Results, model: str) -> str:
    documents = [each for each in read_documents(outcomes.store.folder) if each["model"] == model]
    return "; ".join(f"{each['verdict']}: {each['sentence']}" for each in documents)


def _certificate(*_: object) -> str:
    return ""


_MEASUREMENTS: dict[str, Callable[[Results, str], str]] = {
    "accuracy": _accuracy,
    "white-box": lambda *read: _under_attack(*read, "white-box"),
    "black-box": lambda *read: _under_attack(*read, "score", "decision"),
    "transfer": _transfer,
    "corruptions": _corruptions,
    "indicators": _indicators,
    "adaptive": _adaptive,
    "certificate": _certificate,
}
