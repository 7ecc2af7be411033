"""Results of a reproduction: davylamp's number and the published number in each line, as JSON types and as text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from ...engine.statistics.bootstrap import Estimate
from ...report.text.console import print_table

OTHER_READING = "another reading"


class PaperLine(NamedTuple):
    """A number computed by davylamp, with the published number with which it is compared.

    Args:
        row: title of the line.
        symbol: symbol of the metric.
        ours: number computed by davylamp, with its interval.
        published: published number. None if there is none.
        beside: description of the published number, such as the name of the paper's model.
        why: reason why the two numbers are different quantities. "" if they are the same quantity.
        data_set: data set of the published number, such as "CIFAR-10". "" if it is the data set of the setting.
        model: name of the evaluated model. None if the computed number is a mean over all models.
        labels: labels of the published row, such as "attack" and "model". If the evaluated model corresponds to no
            published row, the label "model" is the name of the evaluated model.
        column: name of the published column. "" if it is the symbol of the metric.
    """

    row: str
    symbol: str
    ours: Estimate
    published: float | None
    beside: str
    why: str = ""
    data_set: str = ""
    model: str | None = None
    labels: Mapping[str, str] = {}
    column: str = ""


def plain_line(line: PaperLine, why: str = "") -> dict[str, Any]:
    """Convert a line to JSON types, with the difference between the computed and the published number.

    If the two numbers are not comparable, the difference is None and the line has the reason.

    Args:
        line: the line.
        why: reason why models or data differ from those of the paper. "" if they do not differ.
    """
    ours = {name: _plain(value) for name, value in zip(("ours", "low", "high", "n"), line.ours, strict=True)}
    why = line.why or why
    known = not why and line.published is not None and ours["ours"] is not None
    difference = line.ours.value - line.published if known and line.published is not None else None
    beside = {"published": line.published, "difference": difference, "beside": line.beside}
    cell = {"column": line.column or line.symbol, "labels": dict(line.labels), "model": line.model}
    return {"row": line.row, "symbol": line.symbol, **ours, **beside, "no_difference": why, **cell}


def lines_of(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the lines of a result of `SettingRun.report`."""
    return result.get("lines", ())


def join_results(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join several results for the same published table.

    If several results have a line for the same published number, the line of the first of these results is kept.

    Args:
        results: results of `SettingRun.report`. The title of a line starts with the name of the model and a comma.
    """
    first, *more = results
    joined = dict(first)
    for result in more:
        known = {_theirs(line) for line in joined["lines"]}
        joined["lines"] = [*joined["lines"], *(line for line in result["lines"] if _theirs(line) not in known)]
        for name in ("labels", "models", "notes"):
            joined[name] = list(dict.fromkeys([*joined[name], *result[name]]))
        for name in ("readings", "left_out"):
            joined[name] = {**joined[name], **result[name]}
        for name, word in (("data", " and "), ("budget", "; "), ("stand_ins", " ")):
            joined[name] = word.join(dict.fromkeys([joined[name], result[name]]))
        for name in ("images", "seconds"):
            joined[name] += result[name]
    return joined


def _theirs(line: Mapping[str, Any]) -> tuple[str, str, str]:
    return line["beside"], line["symbol"], line["row"].partition(", ")[2]


def _plain(value: float) -> float | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_first(result: Mapping[str, Any], console: Console) -> None:
    """Print which models and data replace those of the paper, and why some numbers have no difference.

    Args:
        result: result of `SettingRun.report`.
        console: output console.
    """
    beside = [line for line in result["lines"] if line["published"] is not None]
    given = sum(line["difference"] is not None for line in beside)
    reasons = ", ".join(dict.fromkeys(line["no_difference"] for line in beside if line["no_difference"]))
    tail = f"No difference is given for {len(beside) - given} of {len(beside)} numbers ({reasons})." if reasons else ""
    first = f"{result['stand_ins']} Budget: {result['budget']}. {tail}"
    console.print(first.rstrip(), highlight=False, markup=False)


def print_result(result: Mapping[str, Any], console: Console) -> None:
    """Print davylamp's numbers next to the published numbers, with notes on numbers that are not comparable.

    Args:
        result: result of `SettingRun.report`.
        console: output console.
    """
    print_first(result, console)
    labels = f"{', '.join(result['labels'])}; " if result["labels"] else ""
    title = f"{result['table']}: {labels}{result['images']} images of {result['data']}"
    compared = any(line["difference"] is not None for line in result["lines"])
    columns = ["row", "metric", "ours", "95 % interval", "n", "published"]
    columns += [*["difference"] * compared, "beside"]
    rows = [
        (
            *(line[name] for name in ("row", "symbol", "ours")),
            _interval(line["low"], line["high"]),
            *(line[name] for name in ("n", "published")),
            *[line["no_difference"] if line["published"] is not None and line["no_difference"] else line["difference"]]
            * compared,
            line["beside"],
        )
        for line in result["lines"]
    ]
    print_table(title, columns, rows, console)
    lines = [result["source"], f"models: {', '.join(result['models'])}; budget: {result['budget']}"]
    lines += [f"{symbol}: {text}" for symbol, text in result["readings"].items()]
    lines += [f"omitted: {row}: {reason}" for row, reason in result["left_out"].items()]
    for text in [*lines, *result["notes"], f"{result['seconds']:.0f} s"]:
        console.print(f"- {text}", highlight=False, markup=False)


def _interval(low: float | None, high: float | None) -> str:
    if low is None:
        return "-"
    return f"{low:.3g} - {'unbounded' if high is None else format(high, '.3g')}"
