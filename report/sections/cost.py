"""What the attacks cost: queries, seconds, and which of them nothing else beats on both success and cost."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...adapters.models.remote.traffic import read_traffic
from ...adapters.result import SURROGATE_PASSES
from ...adapters.words import threat_text
from ...engine.store.outcomes import Outcome
from ..parts.blocks import Column, PageTable, Panels, Section, Text, make_table
from ..parts.figures import Dot, draw_dots
from ..parts.reading import Folder

_DRAWN = 6  # drawings; the table has all


class Price(NamedTuple):
    """A cell's success among the attacked images, passes and seconds per image; `front`: on the Pareto front."""

    outcome: Outcome
    success: float
    passes: float
    seconds: float
    front: bool = False


def write_cost(folder: Folder) -> Section:
    """A drawing for each model and threat model, and a table of all cells."""
    bundles: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in folder.outcomes.done:
        if outcome.columns["attacked"].any():
            bundles.setdefault((folder.model(outcome), threat_text(outcome.cell.threat_model)), []).append(outcome)
    fronts = {key: mark_front([_price(outcome) for outcome in cells]) for key, cells in bundles.items()}
    drawn: list[Any] = []
    rows = []
    for (model, threat), prices in fronts.items():
        rows += [_row(folder, model, threat, price) for price in prices]
        if len(prices) > 2 and len(drawn) < _DRAWN:
            libraries = sorted({outcome.cell.row.library for outcome in folder.outcomes.done})
            dots = [
                Dot(p.outcome.cell.title, p.passes, p.success, libraries.index(p.outcome.cell.row.library), p.front)
                for p in prices
            ]
            caption = f"{model}, {threat}: success against queries; filled: on the Pareto front"
            drawn.append(
                draw_dots(
                    f"cost-{len(drawn)}",
                    dots,
                    libraries,
                    x_axis="passes per image",
                    y_axis="share fooled",
                    caption=caption,
                )
            )
    blocks: list[Any] = [Panels(tuple(drawn), shown=4)] if drawn else []
    columns = (
        "model", "threat model", "implementation", Column("MR", "share of the attacked images that are fooled"),
        Column("forwards", "mean per attacked image"), Column("backwards", "mean per attacked image"),
        Column("passes", "forward plus backward passes, mean"), Column("most passes", "of any image"),
        Column("s/image", "mean seconds per attacked image"),
        Column("front", "no other attack on this model under this threat model fools as many for fewer passes"),
    )  # fmt: skip
    table = make_table("cost-table", "Queries and seconds", columns, rows)
    if len(fronts) > _DRAWN:
        blocks.append(Text(f"The first {_DRAWN} of {len(fronts)} are drawn; the table has all.", "note"))
    lead = "Passes are counted by davylamp, per image, not by the library. Seconds depend on the machine."
    if any(SURROGATE_PASSES[0] in outcome.columns for outcome in folder.outcomes.done):
        lead += " With a surrogate, passes are the surrogate's: the model itself is not queried."
    more = [each for each in (_fits(folder), _servers(folder)) if each]
    return Section("cost", "Cost", lead, (*blocks, table, *more))


def _fits(folder: Folder) -> PageTable | None:
    """What attacks that learn once cost before the first image; None if there are none."""
    columns = (
        "implementation", Column("learned from", "number of images; none of them is scored, unless the name says so"),
        Column("forwards", "forward passes of images, in total"),
        Column("backwards", "backward passes of images, in total"), "seconds",
        Column("digest", "of what was learned"),
    )  # fmt: skip
    counts = ("images", "forwards", "backwards")
    rows = dict.fromkeys(
        (outcome.cell.title, *(fit[name] for name in counts), outcome.meta["fit_seconds"], fit["digest"])
        for outcome in folder.outcomes.done
        if (fit := outcome.meta.get("fit"))
    )
    return make_table("fit-table", "Learned once, before any image was attacked", columns, [*rows]) if rows else None


def _servers(folder: Folder) -> PageTable | None:
    """What servers of remote models were asked for each cell, and what of it they answered; None if there are none."""
    columns = (
        "model", "implementation", Column("asked", "images queried by attack, judge and probes"),
        Column("paid", "images that the server answered; the other answers were cached"),
        Column("probes", "paid images for which no cached answer may be used"),
        Column("sent again", "images in failed requests, which the server may have seen twice"),
        Column("price", "of the paid images, by --cost"),
    )  # fmt: skip
    rows = [
        (folder.model(outcome), folder.title(outcome), spent.asked, spent.paid, spent.probes, spent.retried, spent.cost)
        for outcome in folder.outcomes.done
        if (spent := read_traffic(outcome.meta.get("traffic")))
    ]
    return make_table("server-table", "Queries to servers", columns, rows) if rows else None


def mark_front(prices: Sequence[Price]) -> list[Price]:
    """The same, with those marked that no other beats: at least as good in both, better in one."""

    def beaten(price: Price) -> bool:
        return any(
            other.success >= price.success
            and other.passes <= price.passes
            and (other.success, other.passes) != (price.success, price.passes)
            for other in prices
        )

    return [price._replace(front=price.success > 0 and not beaten(price)) for price in prices]


def _price(outcome: Outcome) -> Price:
    columns, attacked = outcome.columns, outcome.columns["attacked"]
    forwards, backwards = spent_passes(outcome)
    passes = (forwards + backwards)[attacked]
    success = float(columns["success"][attacked].mean())
    return Price(outcome, success, float(passes.mean()), float(columns["seconds"][attacked].mean()))


def spent_passes(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Forward and backward passes of each image, (n,): of the model, or of the surrogate that was attacked for it."""
    columns = outcome.columns
    names = SURROGATE_PASSES if SURROGATE_PASSES[0] in columns else ("forwards", "backwards")
    return columns[names[0]], columns[names[1]]


def _row(folder: Folder, model: str, threat: str, price: Price) -> tuple[Any, ...]:
    attacked = price.outcome.columns["attacked"]
    spent = spent_passes(price.outcome)
    most = int((spent[0] + spent[1])[attacked].max())
    means = [float(np.mean(passes[attacked])) for passes in spent]
    name = folder.title(price.outcome)
    return model, threat, name, price.success, *means, price.passes, most, price.seconds, price.front
