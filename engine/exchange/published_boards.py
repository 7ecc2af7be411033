"""Ranks a model among the published entries of RobustBench, from a snapshot of its leaderboards in the package."""

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
    """A published leaderboard of RobustBench.

    Args:
        data: test set, such as "cifar10".
        norm: norm of the threat model.
        epsilon: radius of the threat model.
        entries: published entries, sorted by descending accuracy under AutoAttack.
    """

    data: str
    norm: str
    epsilon: float
    entries: tuple[PublishedRow, ...]

    @property
    def title(self) -> str:
        """Test set, norm and radius, such as "cifar10 linf 8/255"."""
        return f"{self.data} {self.norm} {format_radius(self.norm, self.epsilon)}"


class Neighbour(NamedTuple):
    """A published entry of a leaderboard on which a model is ranked.

    Args:
        rank: rank of the entry.
        entry: the published entry.
        low: lower bound of the 95 % interval of the entry's accuracy under AutoAttack.
        high: upper bound of this interval.
        is_separated: whether the accuracies of the entry and the model differ significantly.
    """

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
        estimate: robust accuracy of the model.
        rank: rank of the model, which is 1 + the number of entries with a higher accuracy under AutoAttack.
        rank_low: best rank in the 95 % interval of the rank.
        rank_high: worst rank in the 95 % interval of the rank. With N entries, the worst possible rank is N + 1.
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
        """Number of entries whose accuracy does not differ significantly from the accuracy of the model."""
        return sum(not each.is_separated for each in self.neighbours)


@cache
def read_snapshot() -> dict[str, Any]:
    """Return the snapshot of RobustBench's leaderboards that is part of the package.

    The keys are `source`, `date`, `commit`, `copyright`, `licence`, `columns` and `rows`.
    """
    return json.loads(SNAPSHOT.read_text(encoding="utf-8"))


@cache
def read_boards() -> tuple[PublishedBoard, ...]:
    """Return the leaderboards of the snapshot, one for each test set and norm."""
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
    """Return the reason why the results of a model cannot be ranked on a leaderboard; "" if they can be ranked.

    Args:
        group: row of the model in a table of models.
        data: test set from which the images are taken, one of `DATA`. "" infers the test set from the name of the data.
    """
    labels, boards = group.labels, read_boards()
    known = "; ".join(board.title for board in boards)
    name = data or named_test_set(group)
    if name not in DATA:
        images = group.parts[0][0].cell.subject.data
        known = ", ".join(DATA)
        return (
            f"its images are {images}; leaderboards exist for {known}. If the images come from one of these test "
            "sets, name the test set with --test-set"
        )
    if labels["targeted"] or group.parts[0][0].cell.pixels:
        return "its attacks are targeted, or its examples are rounded to 8 bits, unlike the published results"
    if any(each.is_random for each in group.outcomes):
        return "it is randomised, and AutoAttack's standard version is for deterministic models"
    if find_board(group, data) is None:
        return f"there is no leaderboard for {name} {format_threat_labels(labels)}; the leaderboards are {known}"
    lacking = lacking_attacks(group)
    return f"AutoAttack's standard version is not complete: {', '.join(lacking)} missing or shorter" if lacking else ""


def named_test_set(group: TableGroup) -> str:
    """Return the test set of a row of a table, from the name of the data, such as "torchvision:cifar10".

    Returns:
        The test set, one of `DATA`. "" if the name of the data does not include a test set.
    """
    source, _, rest = group.parts[0][0].cell.subject.data.partition(":")
    name = rest.partition(":")[0]
    return name if source == "torchvision" and name in DATA else ""


def find_board(group: TableGroup, data: str = "") -> PublishedBoard | None:
    """Return the leaderboard with the test set, norm and radius of a row; None if no leaderboard has them."""
    name, norm, epsilon = data or named_test_set(group), group.labels["norm"], group.labels["epsilon"]
    near = [each for each in read_boards() if (each.data, each.norm) == (name, norm)]
    return next((each for each in near if same_radius(each.epsilon, epsilon)), None)


def lacking_attacks(group: TableGroup) -> list[str]:
    """Return the names of the attacks in AutoAttack's standard version that did not run fully in a row of a table.

    An attack counts as missing if it did not run on the model, ran with fewer steps, or had a limit of queries.
    """
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

    An entry is separated from the model if the confidence interval of the difference of their accuracies excludes 0.
    The interval of the difference is computed from the intervals of the two accuracies (Zou and Donner 2008). Its level
    is corrected for the number of entries (Bonferroni). The interval of the rank then covers the true rank with a
    probability of at least 95 %. If the model and the entries were evaluated on the same images, the interval of the
    rank is wider than necessary.

    Args:
        group: row of the model in a table of models.
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
    """Rank a robust accuracy among the entries of a leaderboard (see `place_on_board`).

    Args:
        estimate: robust accuracy of the model.
        least: robust accuracy if all undecided images count as fooled, and the lower bound of its interval. The level
            of the interval is corrected for the number of entries.
        most: robust accuracy if all undecided images count as robust, and the upper bound of its interval at the
            corrected level.
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
    """Return the entries next to a model on a leaderboard: up to `count` above the model, and up to `count` below."""
    place = placement.rank - 1
    return list(placement.neighbours[max(0, place - count) : place + count])


def snapshot_note(boards: Iterable[PublishedBoard]) -> str:
    """Describe the snapshot of RobustBench in one sentence: source, date and licence."""
    about = read_snapshot()
    other = any(not same_radius(entry.epsilon, board.epsilon) for board in boards for entry in board.entries)
    radius = "; some entries were evaluated at the radius 0.031 instead of 8/255" if other else ""
    return (
        f"{about['source']} as of {about['date']} (commit {about['commit'][:7]}, MIT licence), shipped with davylamp: "
        f"accuracy under AutoAttack as published, not verified here{radius}"
    )
