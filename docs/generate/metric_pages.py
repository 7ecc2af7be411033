"""A page for every metric: what it is, its formula, direction, range, source, and the command that gives it."""

from page_parts import ORPHAN, table

from davylamp.metrics import METRICS, NOTATION
from davylamp.report.text.metrics import describe_metric


def render_all() -> dict[str, str]:
    """Pages by name, and their list."""
    lines = []
    for symbol, metric in METRICS.items():
        better = metric.robust_when or "neither"
        known = describe_metric(symbol)
        names = [f"[{symbol}]({symbol}.md)", ", ".join(metric.aliases), metric.meaning, better]
        lines.append([*names, known["needs"], f"`{known['shown_by']}`"])
    head = (
        "# Metrics\n\n`davylamp metrics` prints the same. In the formulas: "
        + NOTATION.partition(":")[2].strip()
        + "\n\n"
    )
    index = head + table(["symbol", "also", "meaning", "robust when", "needs", "shown by"], lines)
    return {"metrics/index.md": index, **{f"metrics/{symbol}.md": render(symbol) for symbol in METRICS}}


def render(symbol: str) -> str:
    """The page of one metric."""
    known = describe_metric(symbol)
    text = f"{ORPHAN}# {symbol}: {known['title']}\n\n{known['meaning']}\n\n"
    text += f"```text\n{known['formula']}\n```\n\n{NOTATION}\n\n"
    facts = {"also": ", ".join(known["also"]), "better": known["better"], "range": f"{known['range']}, {known['unit']}"}
    facts |= {"source": known["source"], "needs": known["needs"], "shown by": f"`{known['shown_by']}`"}
    facts |= {"function": f"{{py:func}}`{known['function']}`"}
    text += table(["", ""], [[word, fact] for word, fact in facts.items() if fact])
    return text + (f"\n{known['note']}\n" if known["note"] else "")
