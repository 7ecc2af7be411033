"""Which examples fool the other models: a matrix for each attack, and what sums them up."""

import math
from typing import Any

from ..engine.bootstrap import Estimate
from ..engine.transfer_table import Transfer, TransferTable
from ..engine.words import labels_text
from .blocks import Column, Entry, Fold, Section, Text, entry, make_table


def write_transfer(transfer: Transfer | str) -> Section:
    """The matrices, or a text that says why there are none."""
    title = "Transfer"
    lead = "Examples made on one model and tested on the others: the share, of those that fool their own, that fool it."
    if isinstance(transfer, str):
        return Section("transfer", title, lead, (Text(transfer, "note"),))
    blocks: list[Any] = [block for place, table in enumerate(transfer.tables) for block in _blocks(table, place)]
    notes = tuple(Text(note, "note") for note in transfer.notes)
    return Section("transfer", title, lead, (*blocks, *notes))


def _blocks(table: TransferTable, place: int) -> list[Any]:
    over_all = make_table(
        f"transfer-models-{place}",
        "Mean over the attacks: made on (rows), tested on (columns)",
        ("made on", *table.models),
        [(model, *(_heat(value) for value in row)) for model, row in zip(table.models, table.threat_from, strict=True)],
        note="A mean is undefined where an attack was not run on a model, or its examples not tested on another one.",
    )
    rows = []
    folds = []
    for number, attack in enumerate(table.attacks):
        name = _name(attack)
        rows.append((name, table.of_attack[number], *table.by_source[number]))
        matrix = [
            (model, *(_heat(value) for value in row))
            for model, row in zip(table.models, table.rates[number], strict=True)
        ]
        folds.append(make_table(f"transfer-{place}-{number}", name, ("made on", *table.models), matrix))
    columns = (
        "attack", Column("all pairs", "mean over all pairs of models"),
        *(Column(f"from {model}", "OTR: mean over the other models") for model in table.models),
    )  # fmt: skip
    summary = make_table(f"transfer-attacks-{place}", "Transfer rate of each attack", columns, rows)
    return [over_all, summary, Fold("A matrix for each attack", tuple(folds))]


def _heat(value: Estimate) -> Entry:
    if math.isnan(value.value):
        return Entry("-", None, title="not tested")
    return entry(value)


def _name(labels: dict[str, Any]) -> str:
    parts = (f"{labels['implementation']} {labels_text(labels)}", labels["setting"])
    return ", ".join(part for part in parts if part)
