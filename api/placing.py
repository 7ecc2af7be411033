"""Ranks the models of a results folder among RobustBench's published entries, for `davylamp standing`."""

import os
from collections.abc import Iterable
from typing import Any

from ..adapters.coercion import read_int, read_text
from ..adapters.display_text import merge_alike
from ..adapters.result import UNSTEADY
from ..engine.checks.check_folder import models_at_chance
from ..engine.exchange.published_boards import (
    DATA,
    BoardPlacement,
    find_board,
    nearest,
    place_on_board,
    protocol_error,
    snapshot_note,
)
from ..engine.finding import plain
from ..engine.store.notes import unsteady_subjects
from ..engine.store.results import check_models, read_outcomes
from ..engine.tables.groups import group_cells
from ..errors import UnknownName, Unsupported
from .python_inputs import read_names
from .verb_result import VerbResult

NEIGHBOURS, _MOST = 4, 10**6  # entries on each side that are shown


def standing(
    folder: str | os.PathLike[str],
    *,
    model: str | Iterable[str] | None = None,
    test_set: str = "",
    neighbours: int = NEIGHBOURS,
) -> VerbResult:
    """Rank each model of a results folder among the entries of the RobustBench leaderboard with the same protocol.

    A protocol consists of a test set, a norm, a radius, and AutoAttack's standard version as the attack. Models that
    were evaluated with a different protocol are not ranked. The leaderboard entries are a snapshot that is part of
    davylamp.

    Args:
        folder: results folder made by `evaluate` or `robust_accuracy`.
        model: names of the models to rank. Empty for all models.
        test_set: test set from which the images are taken: "cifar10", "cifar100" or "imagenet". "" if the name of the
            data contains the test set, as "torchvision:cifar10" does.
        neighbours: number of leaderboard entries to show above and below each model.

    Returns:
        For each model, one row for the model and one for each of the nearest entries. The attribute `made` of the
        result has the `BoardPlacement`s. A `BoardPlacement` has the interval of the rank, and says which entries differ
        significantly from the model.

    Raises:
        Unsupported: if no model was evaluated with the protocol of a leaderboard. The message names the difference.
        UnknownName: if the test set or a model does not exist.
        Unavailable: if the folder does not exist or has no run.
    """
    neighbours = read_int(neighbours, "`neighbours` as a whole number from 1", 1, _MOST)
    if read_text(test_set, "`test_set` as text") and test_set not in DATA:
        raise UnknownName("test set", test_set, DATA)
    outcomes, names = read_outcomes(folder), read_names(model, "model")
    check_models(outcomes, names)
    guessing, unsteady = models_at_chance(outcomes), unsteady_subjects(outcomes)
    groups = [group for group in group_cells(outcomes, "models") if group.parts]
    groups = [each for each in groups if not names or each.parts[0][0].cell.subject.is_called(names)]
    placements: list[BoardPlacement] = []
    refused: dict[str, None] = {}
    for group in groups:
        name, why = group.labels["model"], protocol_error(group, test_set)
        if not why and group.parts[0][0].cell.subject.key in guessing:
            why = "its clean accuracy is at chance level"
        if group.parts[0][0].cell.subject.key in unsteady:
            why = UNSTEADY
        if why:
            refused[f"{name}: {why}"] = None
            continue
        board = find_board(group, test_set)
        if board is not None:
            placements.append(place_on_board(group, board, name))
    if not placements:
        reasons = "; ".join(merge_alike(refused))
        raise Unsupported(f"no result of {os.fspath(folder)} can be placed among published ones: {reasons}")
    placements.sort(key=lambda each: (each.board.title, each.rank))
    notes = [f"not placed: {line}" for line in merge_alike(refused)]
    notes.append(snapshot_note({each.board for each in placements}))
    rows = [row for each in placements for row in _rows(each, neighbours)]
    if doubtful := [row["model"] for row in rows if row["unreliable"]]:
        notes.insert(
            0, f"AutoAttack may be unreliable for {', '.join(dict.fromkeys(doubtful))}: see the column `best known`"
        )
    document = {"placements": [_document(each) for each in placements], "rows": rows, "notes": notes}
    return VerbResult("\n".join(map(_sentence, placements)), rows, plain(document), tuple(notes), tuple(placements))


def _sentence(placement: BoardPlacement) -> str:
    made = placement.estimate
    count, few = len(placement.board.entries), placement.inseparable
    images = f"{made.images} images do not separate it from {few} of them" if few else "it is separated from all"
    return (
        f"{placement.model}: rank {placement.rank} [{placement.rank_low}, {placement.rank_high}] among {count} entries "
        f"of RobustBench {placement.board.title}; robust accuracy {made.least:.3f} [{made.low:.3f}, {made.high:.3f}]; "
        f"{images}"
    )


def _rows(placement: BoardPlacement, count: int) -> list[dict[str, Any]]:
    """Return the table rows of a model and of the `count` nearest entries above and below the model."""
    rows = [
        {
            "rank": each.rank,
            "model": each.entry.model,
            "autoattack": each.entry.autoattack,
            "low": each.low,
            "high": each.high,
            "separated": "yes" if each.is_separated else "no",
            "best known": each.entry.robust,
            "clean": each.entry.clean,
            "architecture": each.entry.architecture,
            "venue": each.entry.venue,
            "extra data": each.entry.additional_data,
            "unreliable": each.entry.unreliable,
        }
        for each in nearest(placement, count)
    ]
    made = placement.estimate
    mine: dict[str, Any] = dict.fromkeys(rows[0]) | {"rank": f"{placement.rank_low}-{placement.rank_high}"}
    mine |= {"model": placement.model, "autoattack": made.least, "low": made.low, "high": made.high}
    place = sum(each.rank < placement.rank for each in nearest(placement, count))
    return [*rows[:place], mine, *rows[place:]]


def _document(placement: BoardPlacement) -> dict[str, Any]:
    names = ("model", "rank", "rank_low", "rank_high", "inseparable")
    return {
        **{name: getattr(placement, name) for name in names},
        "board": placement.board.title,
        "entries": len(placement.board.entries),
        "estimate": placement.estimate._asdict(),
        "not_separated": [each.entry.model for each in placement.neighbours if not each.is_separated],
    }
