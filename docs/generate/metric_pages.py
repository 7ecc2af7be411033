"""Pages of the metrics: formula, direction, range, source, Python call and command, and their list."""

import inspect

from formulas import FORMULAS, letters_of
from page_parts import ORPHAN, index_entries, prose, table

from davylamp.metrics import METRICS, NOTATION, Metric
from davylamp.report.text.metrics import describe_metric

HEADLINE = ("RA", "CA", "MR", "TAS", "AAW", "AAB", "AED", "AMD", "linf", "l2", "QNC_F", "QNC_B", "D_half", "OTR")
GROUPS = {  # module of the metric -> heading
    "accuracy": "Accuracy and confidence of a model",
    "effect": "Success and confidence of an attack",
    "attention": "Attention",
    "transfer": "Transfer",
    "cost": "Cost of an attack",
    "distance": "Distances between images",
    "frequency": "Frequencies of the perturbation",
    "perceptual": "Perceptual similarity",
    "defence": "A defence on clean images",
    "defence_attacked": "A defence under attack",
    "confusion": "How far predictions move",
    "coverage": "Neuron coverage",
    "stability": "Distance to the boundary and noise",
    "neurons": "Neurons",
    "corruption": "Corruptions",
    "curves": "Curves and 8-bit images",
    "recorded": "Recorded by every evaluation",
}


def render_all() -> dict[str, str]:
    """Render the page of each metric and their list, by file name."""
    text = prose("""
        # Metrics

        `davylamp metrics` lists them in the terminal, `davylamp metrics MR` prints one. `davylamp table FOLDER
        --metric MR,AED` computes them from a results folder. A name is a symbol or what a paper calls it, in any
        case. Some are measured only [on request](../../metric-options.md).
    """)
    text += "## The ones to know\n\n" + _list(HEADLINE)
    for group, title in GROUPS.items():
        symbols = tuple(symbol for symbol, metric in METRICS.items() if metric.group == group)
        text += f"\n## {title}\n\n" + _list(symbols) if symbols else ""
    return {"metrics/index.md": text, **{f"metrics/{symbol}.md": render(symbol) for symbol in METRICS}}


def _list(symbols: tuple[str, ...]) -> str:
    rows = []
    for symbol in symbols:
        metric = METRICS[symbol]
        also = ", ".join(alias for alias in metric.aliases if alias != symbol)
        rows.append([f"[{symbol}]({symbol}.md)", metric.title, also, metric.robust_when or "neither"])
    return table(["symbol", "metric", "also called", "more robust if"], rows)


def render(symbol: str) -> str:
    """Render the page of one metric."""
    metric, known = METRICS[symbol], describe_metric(symbol)
    text = f"{ORPHAN}# {known['title']} ({symbol})\n\n"
    text += index_entries((known["title"], symbol, *known["also"]))
    text += f"{known['meaning']}\n\n"
    if symbol in FORMULAS:
        text += f"```{{math}}\n{FORMULAS[symbol]}\n```\n\n"
        text += "".join(f"{meaning}.\n" for meaning in letters_of(FORMULAS[symbol])) + "\n"
    text += f"As `davylamp metrics {symbol}` prints it: `{known['formula']}`\n\n"
    text += f"```python\n{line_of(metric)}\n```\n\n"
    facts = {"also called": ", ".join(known["also"]), "better": known["better"]}
    facts |= {"range": f"{known['range']}, {known['unit']}", "source": known["source"]}
    facts |= {"needs": known["needs"], "from a results folder": f"`{known['shown_by']}`"}
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
