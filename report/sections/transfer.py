"""Section on transfer: rates at which examples made on one model fool other models, with a matrix for each attack."""

import math
from typing import Any

from ...adapters.display_text import format_threat_labels
from ...engine.statistics.bootstrap import Estimate
from ...engine.tables.transfer_table import Transfer, TransferTable
from ..parts.blocks import Collapsible, Column, Section, TableCell, Text, entry, make_table


def write_transfer(transfer: Transfer | None) -> Section | None:
    """Build the section with the transfer matrices. None if no example was tested on a different model."""
    if transfer is None:
        return None
    lead = (
        "Examples made on one model and tested on the others. The transfer rate is the proportion that fools the "
        "other model, among the examples that fool their source model."
    )
    blocks: list[Any] = [block for place, table in enumerate(transfer.tables) for block in _blocks(table, place)]
    notes = tuple(Text(note, "note") for note in transfer.notes)
    return Section("transfer", "Transfer", lead, (*blocks, *notes))


def _blocks(table: TransferTable, place: int) -> list[Any]:
    over_all = make_table(
        f"transfer-models-{place}",
        "Mean over the attacks: made on (rows), tested on (columns)",
        ("made on", *table.models),
        [
            (model, *(_heat(value, of=(count, len(table.attacks))) for value, count in zip(row, counts, strict=True)))
            for model, row, counts in zip(table.models, table.threat_from, table.threat_from_attacks, strict=True)
        ],
        note="Each mean is over the attacks that have a rate for the pair of models. "
        "If some attacks have no rate, the number of attacks in the mean is shown.",
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
    return [over_all, summary, Collapsible("A matrix for each attack", tuple(folds))]


def _heat(value: Estimate, *, of: tuple[int, int] = (1, 1)) -> TableCell:
    """Format a transfer rate as a table cell.

    Args:
        value: transfer rate.
        of: number of attacks in the mean, and number of all attacks. If the numbers differ, the cell shows both.
    """
    if math.isnan(value.value):
        return TableCell("-", None, title="not tested")
    shown = entry(value)
    return shown if of[0] == of[1] else shown._replace(text=f"{shown.text}, {of[0]} of {of[1]} attacks")


def _name(labels: dict[str, Any]) -> str:
    parts = (f"{labels['implementation']} {format_threat_labels(labels)}", labels["setting"])
    return ", ".join(part for part in parts if part)
