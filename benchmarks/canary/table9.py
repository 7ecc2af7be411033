"""CANARY, Table 9 (Sun et al. 2023): scores and ranks of 15 models, computed from the metrics of Tables 7 and 8.

davylamp's scores are compared with the published scores. The published program runs one Metropolis chain without a
convergence check, so its scores vary by up to 0.1 with the seed.
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
    """Return the published metrics of the 15 models: those of Table 7, and those of Table 8 under one kind of attacks.

    Args:
        kind: kind of attacks in Table 8, "white" or "black".

    Returns:
        The values, shape (models, metrics), the names of the models, and the symbols of the metrics.
    """
    capability = {row["model"]: row for row in load_rows("canary_table7")}
    attacked = [row for row in load_rows("canary_table8") if row["attack_type"] == kind]
    rows = [{**capability[row["model"]], **row} for row in attacked]
    metrics = [name for name in rows[0] if name not in ("model", "attack_type")]
    return np.array([[row[name] for name in metrics] for row in rows]), [row["model"] for row in rows], metrics


def published_baseline(name: str, knowledge: str | None) -> tuple[np.ndarray, list[str], list[str]]:
    """Return the published metrics with which `davylamp rank --against published:NAME` compares new results.

    Args:
        name: "canary-table9" for the models of Tables 7 and 8, or "canary-table4" for the attacks of Tables 4 and 5.
        knowledge: "white-box" or "black-box" attacks. None means "white-box".

    Returns:
        The values, shape (N, M), the names of the N models or attacks, and the symbols of the M metrics. A value is NaN
        if the paper does not print it.

    Raises:
        UnknownName: If `name` is not the name of a baseline.
        InvalidInput: If `knowledge` has a different value.
    """
    if name not in PUBLISHED:
        raise UnknownName("published baseline", name, PUBLISHED)
    if knowledge not in (None, "white-box", "black-box"):
        raise InvalidInput(f"expected `knowledge` to be white-box or black-box with published:{name}, got {knowledge}")
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
    """Rank CANARY's 15 models by their published metrics, and compare scores and ranks with Table 9.

    Args:
        table: "canary_table9".
        options: options of the command. Only the seed and `quick` apply. With `quick`, the models are ranked under
            white-box attacks only.

    Returns:
        A dictionary with the keys "white" and "black", for the two kinds of attacks. Each value has these keys:

        - "spearman" and "kendall": correlation of davylamp's scores and the published scores;
        - "max_difference": largest difference of the scores;
        - "rhat": R-hat of the fit;
        - "rows": scores and ranks of each model.

        The key "seconds" has the duration.
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
    """Convert a result to lines for `build_grid`: one line for each score and each rank.

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
    """Print davylamp's scores and ranks next to those of Table 9. `result` is that of `compare_scores`."""
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
    """Compare a ranking with a column of Table 9. As in the paper, rank 1 is the least robust model.

    Returns:
        One value of the result of `compare_scores`.
    """
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
