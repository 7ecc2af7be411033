"""Figure of a ranking: scores with intervals, and letters shared by subjects that do not differ significantly."""

import math
from typing import Any

from .canvas import COLOURS, MARKERS

_ROW, _BESIDE = 0.16, 0.6  # inches of a row, and of the axis below


def draw_ranking(make: type, width: float, ranking: Any) -> Any:
    """Draw the scores of ranked subjects with 95 % intervals, the best first. Tie group letters are on the right.

    Subjects with a common letter do not differ significantly at 95 %. Subjects that differ significantly from the best
    subject are grey.

    Args:
        make: Matplotlib's `Figure`.
        width: width of the figure, inches.
        ranking: result of `davylamp.rank`.
    """
    frame = ranking.to_frame()
    figure = make(figsize=(width, _ROW * len(frame) + _BESIDE), layout="constrained")
    axes = figure.add_subplot()
    apart = ranking.apart[ranking.subjects.index(frame["subject"][0])]
    places = {name: place for place, name in enumerate(ranking.subjects)}
    beside = max(30, 6 + 4.5 * max(map(len, frame["group"])))  # points from the axis to the ranks
    for place, row in enumerate(frame.to_dict("records")):
        first = not apart[places[row["subject"]]]
        colour = COLOURS[0] if first else "#555555"
        if not math.isnan(row["low"]):
            axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1.1, solid_capstyle="butt")
        axes.plot([row["score"]], [place], MARKERS[0 if first else 1], color=colour, markersize=3.8)
        ranks = (
            f"{row['rank_low']}"
            if row["rank_low"] == row["rank_high"]
            else f"{row['rank_low']}\u2013{row['rank_high']}"
        )
        _write(axes, place, row["group"], ranks, beside)
    _write(axes, -1.1, "group", "ranks", beside, color="#555555")
    axes.set_yticks(range(len(frame)), list(frame["subject"]))
    axes.set_ylim(len(frame) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"{ranking.label}, 95 % interval")
    axes.grid(axis="x")
    return figure


def _write(axes: Any, place: float, group: str, ranks: str, beside: float, *, color: str = "black") -> None:
    for text, points in ((group, 5.0), (ranks, beside)):
        look = {"textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 7, "color": color}
        axes.annotate(text, (1, place), xycoords=axes.get_yaxis_transform(), xytext=(points, 0), **look)
