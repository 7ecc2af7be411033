"""CANARY, Table 9 (Sun et al. 2023): scores and ranks of 15 models from the metrics of Tables 7 and 8.

davylamp's scores are compared with the published ones. The published program runs one Metropolis chain per fit without
a convergence check, so its scores vary by up to 0.1 with the seed.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from scipy.stats import kendalltau, spearmanr

from ...errors import InvalidInput, UnknownName
from ...report.text.console import print_table
from ...scoring import Ranking, metrics_of, rank_table
from ..shared.paper_numbers import load_published, load_rows
from ..shared.paper_table import Options

PUBLISHED = {"canary-table9": "models", "canary-table4": "attacks"}  # baselines and their subjects


def metrics_under(kind: str) -> tuple[np.ndarray, list[str], list[str]]:
    """Join Tables 7 and 8.

    Args:
        kind: attacks that are averaged in Table 8, "white" or "black".

    Returns:
        Values, shape (15, 15), the models, and the metrics' symbols.
    """
    capability = {row["model"]: row for row in load_rows("canary_table7")}
    attacked = [row for row in load_rows("canary_table8") if row["attack_type"] == kind]
    rows = [{**capability[row["model"]], **row} for row in attacked]
    metrics = [name for name in rows[0] if name not in ("model", "attack_type")]
    return np.array([[row[name] for name in metrics] for row in rows]), [row["model"] for row in rows], metrics


def published_baseline(name: str, knowledge: str | None) -> tuple[np.ndarray, list[str], list[str]]:
    """Return the metrics of the baseline for `davylamp rank --against published:NAME`.

    Args:
        name: "canary-table9" for models by Tables 7 and 8, or "canary-table4" for attacks by Tables 4 and 5.
        knowledge: "white-box" or "black-box". None means "white-box".

    Returns:
        Values, shape (N, M), NaN if not published, the subjects, and the metrics' symbols.

    Raises:
        UnknownName: If there is no such table.
        InvalidInput: If `knowledge` has any other value.
    """
    if name not in PUBLISHED:
        raise UnknownName("published baseline", name, PUBLISHED)
    if knowledge not in (None, "white-box", "black-box"):
        raise InvalidInput(f"expected `knowledge` white-box or black-box with published:{name}, got {knowledge}")
    if PUBLISHED[name] == "models":
        return metrics_under("black" if knowledge == "black-box" else "white")
    rows = [
        {**other, **row}
        for row, other in zip(load_rows("canary_table4"), load_rows("canary_table5"), strict=True)
        if row["kind"] == (knowledge or "white-box")
    ]
    for row in rows:
        row["QN"] = (row["QNC_F"] + row["QNC_B"]) / 2 if row["QNC_B"] else row["QNC_F"]
    rows = [row for row in rows if row["CTC"] is not None or row["QN"] is not None]  # each layer needs a metric
    metrics = [symbol for symbol in metrics_of("attack") if symbol in rows[0]]
    values = [[np.nan if row[symbol] is None else row[symbol] for symbol in metrics] for row in rows]
    return np.array(values, dtype=float), [row["attack"] for row in rows], metrics


def compare_scores(table: str, options: Options) -> dict[str, Any]:
    """Rank the 15 models under white-box and under black-box attacks.

    Args:
        table: "canary_table9".
        options: options of the command: the seed, and whether only the white-box column is ranked (`quick`).

    Returns:
        "white" and "black", each with spearman, kendall, max_difference, rhat and rows. "seconds" is the duration.
    """
    start = time.perf_counter()
    result: dict[str, Any] = {}
    for kind in ("white",) if options.quick else ("white", "black"):
        values, models, metrics = metrics_under(kind)
        result[kind] = _beside(rank_table(values, models, metrics, seed=options.seed), table, kind)
    published = load_published(table)
    about = {"table": table, "source": published["source"], "unit": published["note"]}
    return {**about, **result, "seconds": time.perf_counter() - start}


def score_lines(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scores and ranks as lines, with the labels of their published rows.

    Args:
        result: result of `compare_scores` or of `PaperTable.published_result`.
    """
    return [
        {"labels": {"model": row["model"]}, "model": None, "column": f"irt_{kind}_{name}", "ours": row[name]}
        for kind in ("white", "black")
        for row in result.get(kind, {}).get("rows", ())
        for name in ("score", "rank")
    ]


def print_result(result: dict[str, Any], console: Console) -> None:
    """Print davylamp's scores next to the published ones."""
    columns = ("model", "score", "published", "rank", "95 %", "published rank")
    for kind in ("white", "black"):
        if kind not in result:
            continue
        column = result[kind]
        rows = [
            (
                row["model"],
                row["score"],
                row["published"],
                row["rank"],
                f"{row['rank_low']} - {row['rank_high']}",
                row["published_rank"],
            )
            for row in column["rows"]
        ]
        print_table(f"CANARY Table 9, {kind}-box; rank 1 is the least robust", columns, rows, console)
        console.print(
            f"Spearman {column['spearman']:.3f}, Kendall {column['kendall']:.3f}, largest difference "
            f"{column['max_difference']:.2f}; R-hat {column['rhat']:.4f}",
            highlight=False,
        )
    console.print(f"{result['seconds']:.1f} s", highlight=False)


def _beside(ranking: Ranking, table: str, kind: str) -> dict[str, Any]:
    """Return davylamp's and the published values of a column. As published, rank 1 is the least robust model."""
    theirs = {row["model"]: row for row in load_rows(table)}
    count = len(ranking.subjects)
    rows = [
        {
            "model": model,
            "score": float(ranking.score[place]),
            "published": theirs[model][f"irt_{kind}_score"],
            "rank": count + 1 - int(ranking.rank[place]),
            "published_rank": theirs[model][f"irt_{kind}_rank"],
            "rank_low": count + 1 - int(ranking.rank_high[place]),
            "rank_high": count + 1 - int(ranking.rank_low[place]),
        }
        for place, model in enumerate(ranking.subjects)
    ]
    ours, published_scores = (np.array([row[name] for row in rows]) for name in ("score", "published"))
    compared: Any = (spearmanr(ours, published_scores)[0], kendalltau(ours, published_scores)[0])
    return {
        "spearman": float(compared[0]),
        "kendall": float(compared[1]),
        "max_difference": float(np.abs(ours - published_scores).max()),
        "rhat": ranking.diagnostics.rhat if ranking.diagnostics else None,
        "rows": sorted(rows, key=lambda row: row["rank"]),
    }
