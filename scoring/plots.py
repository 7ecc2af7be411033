"""Plots of rankings and items on Matplotlib axes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .ranking import Ranking

MARKERS = "osD^vPX*"
ROW = 0.34  # inches of a subject's row
BRACKET = 0.16  # inches between the brackets of two groups
ROUNDED = 0.25  # logits: bin width of difficulties drawn as one circle


def plot_ranking(axes: Any, ranking: "Ranking", *, label: str = "score", name: str = "ranking") -> dict[str, str]:
    """Plot scores with 95 % intervals (the best at the top), and a bracket around each tie group.

    A subject outside all brackets differs significantly from its neighbours. The figure needs space for names on the
    left of the axes, and for numbers on the right (see `margin_of`).

    Args:
        axes: Matplotlib axes. The colours are those of the colour cycle.
        ranking: ranking by any method.
        label: label of the score axis.
        name: prefix of the identifiers (Matplotlib `gid`) of the plotted marks.

    Returns:
        Text that describes each plotted mark, by identifier of the mark.
    """
    order, tips = np.argsort(-ranking.score, kind="stable"), {}
    for row, i in enumerate(order):
        value, low, high = (float(each[i]) for each in (ranking.score, ranking.low, ranking.high))
        colour, tip = f"C{i % 8}", f"{name}-{row}"
        axes.plot([low, high], [row, row], color=colour, linewidth=5, alpha=0.35, solid_capstyle="round")
        axes.plot([value], [row], MARKERS[i % 8], color=colour, markersize=7, gid=tip)
        tips[tip] = f"{ranking.subjects[i]}: {value:.3g}, 95 % interval {low:.3g} to {high:.3g}"
        tips[tip] += f", rank {ranking.rank_low[i]} to {ranking.rank_high[i]}, group {ranking.groups[i]}"
    axes.set_yticks(range(len(order)), [ranking.subjects[i] for i in order])
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlabel(label)
    axes.grid(axis="x")
    width = axes.get_figure().get_size_inches()[0] * axes.get_position().width
    step = BRACKET / width
    brackets = _brackets(ranking)
    for letter, (column, rows) in brackets.items():
        x = 1 + step * (column + 1)
        where = axes.get_yaxis_transform()
        ends = ([x - step / 3, x, x, x - step / 3], [rows[0] - 0.3, rows[0] - 0.3, rows[-1] + 0.3, rows[-1] + 0.3])
        axes.plot(*ends, transform=where, color=axes.xaxis.label.get_color(), linewidth=1, clip_on=False)
        middle = (rows[0] + rows[-1]) / 2
        axes.text(x + step / 4, middle, letter, transform=where, va="center", ha="left", fontsize=8)
    for row, i in enumerate(order):
        numbers = f"{ranking.score[i]:.2f} ({ranking.low[i]:.2f} to {ranking.high[i]:.2f})"
        x = 1 + step * (_columns(brackets) + 1.8)
        axes.text(x, row, numbers, transform=axes.get_yaxis_transform(), va="center", ha="left", fontsize=9)
    return tips


def draw_figure(ranking: "Ranking", label: str) -> Any:
    """Return a Matplotlib figure of a ranking, for a notebook or a paper.

    Raises:
        ImportError: If Matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('drawings need Matplotlib; pip install "davylamp[plot]"') from error
    left, width, right = 0.25 + 0.085 * max(map(len, ranking.subjects)), 3.6, margin_of(ranking)
    height, below = ROW * len(ranking.subjects) + 0.2, 0.55
    size = left + width + right, below + height + 0.15
    with rc_context({"text.parse_math": False}):  # a name with two dollar signs is a name
        figure = Figure(figsize=size)
        axes = figure.add_axes((left / size[0], below / size[1], width / size[0], height / size[1]))
        plot_ranking(axes, ranking, label=label)
    return figure


def margin_of(ranking: "Ranking") -> float:
    """Return the space in inches that `plot_ranking` needs to the right of the axes, for brackets and numbers."""
    return BRACKET * (_columns(_brackets(ranking)) + 2) + 1.55


def _brackets(ranking: "Ranking") -> dict[str, tuple[int, list[int]]]:
    """Return the column and the rows of the bracket around each tie group.

    Brackets that do not overlap share a column.
    """
    ends: list[int] = []
    brackets = {}
    for letter, rows in members(ranking).items():
        column = next((place for place, end in enumerate(ends) if end < rows[0]), len(ends))
        ends[column : column + 1] = [rows[-1]]
        brackets[letter] = column, rows
    return brackets


def _columns(brackets: Mapping[str, tuple[int, list[int]]]) -> int:
    return 1 + max((column for column, _ in brackets.values()), default=-1)


def members(ranking: "Ranking") -> dict[str, list[int]]:
    """Return the rows of the subjects in each tie group, by letter of the group. Row 0 is the best subject.

    Tie groups with a single subject are omitted.
    """
    order = np.argsort(-ranking.score, kind="stable")
    groups: dict[str, list[int]] = {}
    for row, i in enumerate(order):
        for letter in _letters(ranking.groups[i]):
            groups.setdefault(letter, []).append(row)
    return {letter: rows for letter, rows in groups.items() if len(rows) > 1}


def _letters(text: str) -> list[str]:
    """Split the group letters of a subject, such as "ab". After z, groups have numbers, such as "(27)(28)"."""
    letters, number = [], ""
    for character in text:
        number += character
        if character == ")" or (not number.startswith("(")):
            letters.append(number)
            number = ""
    return letters


def plot_item_map(
    axes: Any, ranking: "Ranking", difficulties: Mapping[str, np.ndarray], *, name: str = "items"
) -> dict[str, str]:
    """Plot abilities of subjects and difficulties of items on a common axis (Wright map).

    The subjects are plotted at the top, and the items of each kind below them. If ability equals difficulty, a subject
    responds positively to an item of average discrimination with probability 1/2. Items of about equal difficulty are
    drawn as one circle, whose area is proportional to their number.

    Args:
        axes: Matplotlib axes. The colours are those of the colour cycle.
        ranking: ranking with a fitted item response model.
        difficulties: difficulties of the items of each kind, by name of the kind.
        name: prefix of the identifiers (Matplotlib `gid`) of the plotted marks.

    Returns:
        Text that describes each plotted mark, by identifier of the mark.
    """
    tips, order = {}, np.argsort(-ranking.score, kind="stable")
    for row, i in enumerate(order):
        colour, tip = f"C{i % 8}", f"{name}-subject-{row}"
        axes.plot([ranking.low[i], ranking.high[i]], [row, row], color=colour, linewidth=4, alpha=0.35)
        axes.plot([ranking.score[i]], [row], MARKERS[i % 8], color=colour, markersize=7, gid=tip)
        tips[tip] = f"{ranking.subjects[i]}: ability {ranking.score[i]:.2f}"
        axes.axvline(ranking.score[i], color=colour, linewidth=0.8, alpha=0.5, linestyle=":")
    first = len(order) + 0.5
    largest = max(len(values) for values in difficulties.values())
    for place, values in enumerate(difficulties.values()):
        bins, counts = np.unique(np.round(values / ROUNDED).astype(int), return_counts=True)
        for number, (at, count) in enumerate(zip(bins * ROUNDED, counts, strict=True)):
            tip = f"{name}-{place}-{number}"
            size = max(2.5, 16 * float(np.sqrt(count / largest)))
            colour = axes.xaxis.label.get_color()
            axes.plot([at], [first + place], "o", color=colour, markersize=size, alpha=0.55, gid=tip)
            tips[tip] = f"{count} items of difficulty {at:.2g}"
    axes.axhline(first - 0.75, color=axes.xaxis.label.get_color(), linewidth=0.6)
    rows = [*range(len(order)), *(first + place for place in range(len(difficulties)))]
    axes.set_yticks(rows, [*(ranking.subjects[i] for i in order), *difficulties])
    axes.set_ylim(first + len(difficulties) - 0.4, -0.6)
    axes.set_xlabel("ability of a subject, difficulty of an item (logits)")
    axes.grid(axis="x")
    return tips
