"""Prints a Markdown table of all metrics: `python -m davylamp.metrics`, or `python -m davylamp_metrics` if separate."""

from . import METRICS, NOTATION, Metric


def render() -> str:
    """Return the table of all metrics in Markdown, with one row per metric, after the notation of the formulas."""
    heads = ("symbol", "function", "also", "meaning", "formula", "robust when", "range", "unit", "source")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return f"{NOTATION}\n\n" + "\n".join(rows + [_row(record) for record in METRICS.values()]) + "\n"


def _row(record: Metric) -> str:
    cells = (
        record.symbol,
        f"`{record.function.__name__}`",
        ", ".join(record.aliases) or "-",
        record.meaning,
        f"`{record.formula}`".replace("|", "\\|"),
        record.robust_when or "-",
        record.range,
        record.unit,
        record.source,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(render(), end="")  # noqa: T201 - the product
