"""Ranks a model among RobustBench's published entries of the same protocol, from a snapshot in the package."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...adapters import canonical_attack
from ...adapters.display_text import format_radius, format_threat_labels
from ...adapters.threat_model import same_radius
from ...intervals import LEVEL, difference_bounds, proportion_interval
from ..checks.standings import RobustnessEstimate, robust_accuracy_estimate
from ..store.imported import PublishedRow
from ..tables.groups import TableGroup

SNAPSHOT = Path(__file__).with_name("robustbench_published.json")
DATA = ("cifar10", "cifar100", "imagenet")
# AutoAttack's standard version (Croce and Hein 2020, section 6): each attack with its smallest number of steps.
STANDARD = {"apgd-ce": 100, "apgd-t": 100, "fab-t": 100, "square": 5000}
AUTOATTACK = "torchattacks:autoattack@fixed"  # all four in one; others make fewer steps or have no FAB


class PublishedBoard(NamedTuple):
    """Published entries of one protocol, sorted by descending accuracy under AutoAttack."""

    data: str
    norm: str
    epsilon: float
    entries: tuple[PublishedRow, ...]

    @property
    def title(self) -> str:
        """Name of the protocol: "cifar10 linf 8/255"."""
        return f"{self.data} {self.norm} {format_radius(self.norm, self.epsilon)}"


class Neighbour(NamedTuple):
    """A published entry with its rank and interval, and whether the images suffice to separate it from the model."""

    rank: int
    entry: PublishedRow
    low: float
    high: float
    is_separated: bool


class BoardPlacement(NamedTuple):
    """Rank of a model on a leaderboard.

    Attributes:
        board: the leaderboard.
        model: name of the model.
        estimate: its robust accuracy.
        rank: 1 + the number of entries with a higher accuracy under AutoAttack.
        rank_low: best rank in the 95 % interval.
        rank_high: worst rank in the interval. The model counts as an additional entry.
        neighbours: all published entries, by rank.
    """

    board: PublishedBoard
    model: str
    estimate: RobustnessEstimate
    rank: int
    rank_low: int
    rank_high: int
    neighbours: tuple[Neighbour, ...]

    @property
    def inseparable(self) -> int:
        """Number of entries that the images cannot separate from the model."""
        return sum(not each.is_separated for each in self.neighbours)


@cache
def read_snapshot() -> dict[str, Any]:
    """Return the snapshot: its `source`, `date`, `commit`, `copyright`, `licence`, `columns` and `rows`."""
    return json.loads(SNAPSHOT.read_text(encoding="utf-8"))


@cache
def read_boards() -> tuple[PublishedBoard, ...]:
    """Return the leaderboards of the snapshot."""
    snapshot = read_snapshot()
    about = {"source": snapshot["source"], "title": "", "authors": "", "link": "", "note": ""}
    rows = (dict(zip(snapshot["columns"], row, strict=True)) for row in snapshot["rows"])
    entries = [PublishedRow(**about, **row) for row in rows]
    boards = []
    for key in dict.fromkeys(map(_key, entries)):
        mine = sorted((each for each in entries if _key(each) == key), key=lambda each: (-each.autoattack, each.model))
        boards.append(
            PublishedBoard(*key, max(each.epsilon for each in mine), tuple(mine))
        )  # some have 0.031 for 8/255
    return tuple(boards)


def _key(entry: PublishedRow) -> tuple[str, str]:
    return entry.data, entry.norm


def protocol_error(group: TableGroup, data: str = "") -> str:
    """Return why the results of a model follow no leaderboard's protocol; "" if they follow one.

    Args:
        group: row of the model in a table by models.
        data: test set of its images, one of `DATA`; "" to infer it from the name of the data.
    """
    labels, boards = group.labels, read_boards()
    known = "; ".join(board.title for board in boards)
    name = data or named_test_set(group)
    if name not in DATA:
        images = group.parts[0][0].cell.subject.data
        known = ", ".join(DATA)
        return (
            f"its images are {images}; leaderboards exist for {known}. If the images come from one of these test "
            "sets, name it with --test-set"
        )
    if labels["targeted"] or group.parts[0][0].cell.pixels:
        return "its attacks are targeted or judged on 8 bits, unlike the published results"
    if any(each.is_random for each in group.outcomes):
        return "it is randomised, and AutoAttack's standard version is for deterministic models"
    if find_board(group, data) is None:
        return f"no board has {name} {format_threat_labels(labels)}; there are {known}"
    lacking = lacking_attacks(group)
    return f"AutoAttack's standard version is not complete: {', '.join(lacking)} missing or shorter" if lacking else ""


def named_test_set(group: TableGroup) -> str:
    """Infer the test set from the name of a row's data, such as "torchvision:cifar10"; "" if that is impossible."""
    source, _, rest = group.parts[0][0].cell.subject.data.partition(":")
    name = rest.partition(":")[0]
    return name if source == "torchvision" and name in DATA else ""


def find_board(group: TableGroup, data: str = "") -> PublishedBoard | None:
    """Return the leaderboard with the data, norm and radius of a row; None if there is none."""
    name, norm, epsilon = data or named_test_set(group), group.labels["norm"], group.labels["epsilon"]
    near = [each for each in read_boards() if (each.data, each.norm) == (name, norm)]
    return next((each for each in near if same_radius(each.epsilon, epsilon)), None)


def lacking_attacks(group: TableGroup) -> list[str]:
    """Return the attacks of AutoAttack's standard version that a row lacks, or has with fewer steps or a limit."""
    met: dict[str, float] = {}
    members = [member for each in group.outcomes if not each.cell.surrogate for member in each.cell.members]
    members = [each for each in members if each.parameters.get("max_queries") is None]
    for member in members:
        if member.row.name == AUTOATTACK and member.parameters.get("steps", STANDARD["apgd-ce"]) >= STANDARD["apgd-ce"]:
            return []
        name = canonical_attack(member.row).name
        met[name] = max(met.get(name, 0), member.parameters.get("steps", 0))
    return [name for name, steps in STANDARD.items() if met.get(name, 0) < steps]


def place_on_board(group: TableGroup, board: PublishedBoard, model: str) -> BoardPlacement:
    """Rank a model among the entries of a leaderboard, by accuracy under AutoAttack.

    The model and an entry are separated if the interval of their difference excludes 0 (Zou and Donner 2008, from the
    intervals of both). The level is corrected for the number of entries (Bonferroni), so that the interval of
    the rank covers the true rank with a probability of at least 95 %. If both were evaluated on the same images, the
    interval is wider than needed, never narrower.

    Args:
        group: row of the model in a table by models.
        board: the leaderboard.
        model: name of the model.
    """
    estimate, wide = (robust_accuracy_estimate(group, 1 - (1 - LEVEL) / each) for each in (1, len(board.entries)))
    return place_estimate(estimate, (estimate.least, wide.low), (estimate.most, wide.high), board, model)


def place_estimate(
    estimate: RobustnessEstimate,
    least: tuple[float, float],
    most: tuple[float, float],
    board: PublishedBoard,
    model: str,
) -> BoardPlacement:
    """Rank an estimate on a leaderboard.

    Args:
        estimate: robust accuracy of the model.
        least: the rate with undecided images as fooled, and its lower bound at the corrected level.
        most: the rate with undecided images as robust, and its upper bound at that level.
        board: the leaderboard.
        model: name of the model.
    """
    level, neighbours = 1 - (1 - LEVEL) / len(board.entries), []
    above = below = 0
    for rank, entry in enumerate(board.entries, start=1):
        hits = entry.autoattack * entry.images
        theirs = (entry.autoattack, *proportion_interval(hits, entry.images, level))
        is_above = difference_bounds((most[0], most[0], most[1]), theirs)[1] < 0
        is_below = difference_bounds((least[0], least[1], least[0]), theirs)[0] > 0
        above, below = above + is_above, below + is_below
        ends = proportion_interval(hits, entry.images)
        neighbours.append(Neighbour(rank, entry, *ends, is_above or is_below))
    better = sum(each.autoattack > estimate.least for each in board.entries)
    return BoardPlacement(
        board, model, estimate, better + 1, above + 1, len(board.entries) - below + 1, tuple(neighbours)
    )


def nearest(placement: BoardPlacement, count: int) -> list[Neighbour]:
    """Return up to `count` entries on each side of the model."""
    place = placement.rank - 1
    return list(placement.neighbours[max(0, place - count) : place + count])


def snapshot_note(boards: Iterable[PublishedBoard]) -> str:
    """Describe the snapshot: source, date and licence."""
    about = read_snapshot()
    other = any(not same_radius(entry.epsilon, board.epsilon) for board in boards for entry in board.entries)
    radius = "; some entries of that board have the radius 0.031" if other else ""
    return (
        f"{about['source']} as of {about['date']} (commit {about['commit'][:7]}, MIT licence), shipped with davylamp: "
        f"accuracy under AutoAttack as published, not verified here{radius}"
    )
