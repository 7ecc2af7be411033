"""Section on the cost of attacks: queries, seconds, and the Pareto front of success against cost."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...adapters.display_text import format_threat_model
from ...adapters.models.remote.server_usage import read_traffic
from ...adapters.result import SURROGATE_PASSES
from ...engine.store.results import RunResult
from ..parts.blocks import Collapsible, Column, PageTable, Panels, Section, Text, list_table, make_table
from ..parts.figures import LabelledPoint, draw_dots
from ..parts.report_data import ReportData

_DRAWN = 6  # drawings; the table has all


class CostPoint(NamedTuple):
    """Success and cost of a run, as means over the attacked images.

    Args:
        outcome: results of the run.
        success: rate of fooled images.
        passes: number of forward and backward passes per image.
        seconds: seconds per image.
        front: whether the run is on the Pareto front of success against passes.
    """

    outcome: RunResult
    success: float
    passes: float
    seconds: float
    front: bool = False


def write_cost(folder: ReportData) -> Section:
    """Build the section on cost: a drawing for each model and threat model, and a table of all runs."""
    bundles: dict[tuple[str, str], list[CostPoint]] = {}
    done = folder.outcomes.done
    for outcome in done:
        if outcome.results.attacked.any():
            key = folder.model(outcome), format_threat_model(outcome.cell.threat_model)
            bundles.setdefault(key, []).append(_price(outcome))
    fronts = {key: mark_pareto_front(prices) for key, prices in bundles.items()}
    libraries = sorted({outcome.cell.row.library for outcome in done})
    drawn = []
    for (model, threat), prices in [item for item in fronts.items() if len(item[1]) > 2][:_DRAWN]:
        cells = [(each.outcome.cell, each) for each in prices]
        dots = [
            LabelledPoint(cell.title, p.passes, p.success, libraries.index(cell.row.library), p.front)
            for cell, p in cells
        ]
        axes = {"x_axis": "queries per image", "y_axis": "fooling rate"}
        caption = f"{model}, {threat}: success against queries; filled: on the Pareto front"
        drawn.append(draw_dots(f"cost-{len(drawn)}", dots, libraries, caption=caption, **axes))
    blocks: list[Any] = [Panels(tuple(drawn), shown=2)] if drawn else []
    if len(fronts) > _DRAWN:
        blocks.append(Text(f"The first {_DRAWN} of {len(fronts)} are drawn; the table has all.", "note"))
    lead = "davylamp counts queries itself, forward and backward, per image. Seconds depend on the machine."
    if any(SURROGATE_PASSES[0] in outcome.columns for outcome in done):
        lead += " With a surrogate, queries are the surrogate's: the model itself is not queried."
    table = _prices(folder, [price for prices in fronts.values() for price in prices])
    blocks.append(Collapsible(f"{table.caption} of every run", (table,)))
    return Section("cost", "Cost", lead, (*blocks, *filter(None, [_fits(folder), _servers(folder)])))


def _prices(folder: ReportData, prices: Sequence[CostPoint]) -> PageTable:
    def spent(price: CostPoint) -> tuple[np.ndarray, np.ndarray]:
        forwards, backwards = spent_passes(price.outcome)
        attacked = price.outcome.results.attacked
        return forwards[attacked], backwards[attacked]

    front = "no other attack on this model under this threat model fools as many with fewer queries"
    columns = (
        ("model", lambda price: folder.model(price.outcome)),
        ("threat model", lambda price: format_threat_model(price.outcome.cell.threat_model)),
        ("implementation", lambda price: folder.title(price.outcome)),
        (Column("MR", "proportion of attacked images that are fooled"), lambda price: price.success),
        (Column("forwards", "mean forward queries per attacked image"), lambda price: float(spent(price)[0].mean())),
        (Column("backwards", "mean backward queries per attacked image"), lambda price: float(spent(price)[1].mean())),
        (Column("queries", "mean of forward plus backward queries per attacked image"), lambda price: price.passes),
        (
            Column("most queries", "largest number of queries for one image"),
            lambda price: int(np.add(*spent(price)).max()),
        ),
        (Column("s/image", "mean seconds per attacked image"), lambda price: price.seconds),
        (Column("front", front), lambda price: price.front),
    )
    return list_table("cost-table", "Queries and seconds", prices, columns)


def _fits(folder: ReportData) -> PageTable | None:
    """Build a table of the cost of fitting attacks before the evaluation. None if no attack was fitted."""
    columns = (
        "implementation",
        Column("fitted on", "number of fit images; they are not evaluation images, unless the name states it"),
        Column("forwards", "forward queries, in total"),
        Column("backwards", "backward queries, in total"),
        "seconds",
        Column("digest", "hash of the fitted arrays"),
    )
    counts = ("images", "forwards", "backwards")
    rows = dict.fromkeys(
        (outcome.cell.title, *(fit[name] for name in counts), outcome.meta["fit_seconds"], fit["digest"])
        for outcome in folder.outcomes.done
        if (fit := outcome.meta.get("fit"))
    )
    return make_table("fit-table", "Fitted before the evaluation", columns, [*rows]) if rows else None


def _servers(folder: ReportData) -> PageTable | None:
    """Build a table of the queries that each run sent to servers. None if there are no remote models."""
    columns = (
        ("model", lambda item: folder.model(item[0])),
        ("implementation", lambda item: folder.title(item[0])),
        (Column("requested", "images queried by attack, judge and probes"), lambda item: item[1].asked),
        (
            Column("billed", "images that the server answered; the other answers were cached"),
            lambda item: item[1].paid,
        ),
        (
            Column("probes", "billed queries that are always sent to the server, even if the answer is cached"),
            lambda item: item[1].probes,
        ),
        (
            Column("retried", "images in failed requests, which the server may have seen twice"),
            lambda item: item[1].retried,
        ),
        (Column("price", "price of the billed images, from --price-per-image"), lambda item: item[1].cost),
    )
    spent = [(outcome, read_traffic(outcome.meta.get("traffic"))) for outcome in folder.outcomes.done]
    asked = [item for item in spent if item[1]]
    return list_table("server-table", "Queries to servers", asked, columns) if asked else None


def mark_pareto_front(prices: Sequence[CostPoint]) -> list[CostPoint]:
    """Return the points with the field `front` set.

    A point is on the Pareto front unless some other point is at least as good in success and in cost, and better in one
    of the two. Points without any success are not on the front.
    """
    points = np.array([(-price.success, price.passes) for price in prices]).reshape(-1, 2)
    no_worse = (points[None] <= points[:, None]).all(2) & (points[None] != points[:, None]).any(2)
    return [
        price._replace(front=price.success > 0 and not bool(beaten))
        for price, beaten in zip(prices, no_worse.any(1).tolist(), strict=True)
    ]


def _price(outcome: RunResult) -> CostPoint:
    attacked = outcome.results.attacked
    means = [float(values[attacked].mean()) for values in (np.add(*spent_passes(outcome)), outcome.columns["seconds"])]
    return CostPoint(outcome, float(outcome.columns["success"][attacked].mean()), means[0], means[1])


def spent_passes(outcome: RunResult) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of forward and backward passes for each image, two arrays of shape (n,).

    If the attack uses a surrogate, the passes are those of the surrogate.
    """
    columns = outcome.columns
    names = SURROGATE_PASSES if SURROGATE_PASSES[0] in columns else ("forwards", "backwards")
    return columns[names[0]], columns[names[1]]
