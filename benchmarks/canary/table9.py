"""CANARY, Table 9 (Sun et al. 2023): scores and ranks of 15 models from the metrics of Tables 7 and 8.

Ours beside the published scores. The published program is one Metropolis chain per fit without a convergence check; its
scores move with its seed, by up to 0.1.
"""

import time
from typing import Any

import numpy as np
from rich.console import Console
from scipy.stats import kendalltau, spearmanr

from ...report.text.console import print_table
from ...scoring import Ranking, rank_table
from ..shared.paper_numbers import load_rows
from ..shared.paper_table import Options


def metrics_under(kind: str) -> tuple[np.ndarray, list[str], list[str]]:
    """Tables 7 and 8 side by side.

    Args:
        kind: "white" or "black", the attacks that Table 8 averages over.

    Returns:
        Values, shape (15, 15); the models; the metrics' symbols.
    """
    capability = {row["model"]: row for row in load_rows("canary_table7")}
    attacked = [row for row in load_rows("canary_table8") if row["attack_type"] == kind]
    rows = [{**capability[row["model"]], **row} for row in attacked]
    metrics = [name for name in rows[0] if name not in ("model", "attack_type")]
    return np.array([[row[name] for name in metrics] for row in rows]), [row["model"] for row in rows], metrics


def compare_scores(table: str, options: Options) -> dict[str, Any]:
    """Rank the 15 models, white-box and black-box.

    Args:
        table: "canary_table9".
        options: the seed of the fits; if quick, the white-box column alone.

    Returns:
        "white" and "black", each with spearman, kendall, max_difference, rhat and rows; "seconds".
    """
    start = time.perf_counter()
    result: dict[str, Any] = {}
    for kind in ("white",) if options.quick else ("white", "black"):
        values, models, metrics = metrics_under(kind)
        result[kind] = _beside(rank_table(values, models, metrics, seed=options.seed), table, kind)
    return {**result, "seconds": time.perf_counter() - start}


def print_result(result: dict[str, Any], console: Console) -> None:
    """Print ours beside theirs.

    Args:
        result: of `compare_scores`.
        console: to print on.
    """
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
    """Ours and theirs of a column; ranks count from the least robust, as theirs."""
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
