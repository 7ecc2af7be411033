"""Renders the pages of metrics: formula, direction, range, source, Python call, command, and the list of metrics."""

import inspect
import sys

from page_parts import ORPHAN, index_entries, prose, table

from davylamp.metrics import METRICS, NOTATION, Metric
from davylamp.report.text.metrics import describe_metric


def render_all() -> dict[str, str]:
    """Render the page of each metric and their list, by file name."""
    text = prose("""
        # Metrics

        `davylamp metrics` lists them in the terminal, `davylamp metrics MR` prints one. `davylamp table FOLDER
        --metric MR,AED` computes them from a results folder. A name is a symbol or what a paper calls it, in any
        case. Some are measured only [on request](../../metric-options.md).
    """)
    text += "## The ones to know\n\n" + _list([metric for metric in METRICS.values() if metric.brief])
    groups: dict[str, list[Metric]] = {}
    for metric in METRICS.values():
        groups.setdefault(_title_of(metric), []).append(metric)
    for title, metrics in groups.items():
        text += f"\n## {title}\n\n" + _list(metrics)
    return {"metrics/index.md": text, **{f"metrics/{symbol}.md": render(symbol) for symbol in METRICS}}


def _title_of(metric: Metric) -> str:
    """Return the first line of the docstring of a metric's module."""
    text = sys.modules[f"davylamp.metrics.{metric.group}"].__doc__ or metric.group
    return text.strip().partition("\n")[0].rstrip(".")


def _list(metrics: list[Metric]) -> str:
    rows = []
    for metric in metrics:
        also = ", ".join(alias for alias in metric.aliases if alias != metric.symbol)
        rows.append([f"[{metric.symbol}]({metric.symbol}.md)", metric.title, also, metric.robust_when or "neither"])
    return table(["symbol", "metric", "also called", "more robust if"], rows)


def render(symbol: str) -> str:
    """Render the page of one metric."""
    metric, known = METRICS[symbol], describe_metric(symbol)
    text = f"{ORPHAN}# {known['title']} ({symbol})\n\n"
    text += index_entries((known["title"], symbol, *known["also"]))
    text += f"{known['meaning']}\n\n"
    text += f"```{{math}}\n{metric.latex}\n```\n\n" if metric.latex else ""
    text += f"As `davylamp metrics {symbol}` prints it: `{known['formula']}`\n\n"
    text += f"```python\n{line_of(metric)}\n```\n\n"
    facts = {"also called": ", ".join(known["also"]), "better": known["better"]}
    facts |= {"range": f"{known['range']}, {known['unit']}", "source": known["source"]}
    facts |= {"needs": known["needs"], "from a results folder": f"`{known['shown_by']}`"}
    facts |= {"other readings": "; ".join(f"`{name}`: {meaning}" for name, meaning in known["readings"].items())}
    facts |= {"AISafety, Table I": known["taxonomy"]}
    facts |= {"function": f"{{py:func}}`{known['function']}`"}
    text += table(["", ""], [[word, fact] for word, fact in facts.items() if fact])
    text += f"\n{known['note']}\n" if known["note"] else ""
    return f"{text}\n{NOTATION}\n"


def line_of(metric: Metric) -> str:
    """Format a call of the metric's function with its required arguments."""
    parameters = inspect.signature(metric.function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty]
    usual = {metric.parameter: metric.usual} if metric.usual is not None else {}
    given = [_argument(each, usual) for each in needed]
    return f"davylamp.metrics.{metric.function.__name__}({', '.join(given)})"


def _argument(parameter: inspect.Parameter, usual: dict[str, float]) -> str:
    if parameter.name in usual:
        return f"{parameter.name}={usual[parameter.name]:g}"
    return f"{parameter.name}={parameter.name}" if parameter.kind is parameter.KEYWORD_ONLY else parameter.name
