"""A line of a reproduction, ours beside theirs: as JSON, as text, and when a difference would mean nothing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console

from ...engine.statistics.bootstrap import Estimate
from ...report.text.console import print_table

# What data are of, where their name says it; a model is of the same, as it is one for these images.
_DATA_SETS: Mapping[str, str] = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "digits": "digits",
    "imagenet": "ImageNet",
    "mnist": "MNIST",
    "tiny-imagenet": "ImageNet",
}
_OTHER_READING = "another reading"


class PaperLine(NamedTuple):
    """Ours beside theirs.

    Args:
        row: what it is about.
        symbol: of the metric.
        ours: the number.
        published: theirs.
        beside: which published row.
        comparable: whether the two are the same quantity.
        data_set: that the published row is of, where the setting does not say it: "CIFAR-10".
    """

    row: str
    symbol: str
    ours: Estimate
    published: float | None
    beside: str
    comparable: bool = True
    data_set: str = ""


def data_set_of(data: str) -> str:
    """The data set that samples are of by their name; "" where the name does not say it."""
    source, _, name = data.partition("+")[0].rpartition(":")
    return _DATA_SETS.get(name, "") if source in ("", "demo", "foolbox") else ""


def plain_line(line: PaperLine, data: str, data_set: str = "") -> dict[str, Any]:
    """A line in JSON's types, with the difference where it means something and else why it does not.

    Args:
        line: ours beside theirs.
        data: name of ours.
        data_set: that the published row is of, where the line does not say it; "" where it is not known.
    """
    ours = {name: _plain(value) for name, value in zip(("ours", "low", "high", "n"), line.ours, strict=True)}
    mine, theirs = data_set_of(data), line.data_set or data_set
    why = "" if line.comparable else _OTHER_READING
    if mine and theirs and mine != theirs:
        why = f"{mine}, not {theirs}"
    known = not why and line.published is not None and ours["ours"] is not None
    difference = line.ours.value - line.published if known and line.published is not None else None
    beside = {"published": line.published, "difference": difference, "beside": line.beside}
    return {"row": line.row, "symbol": line.symbol, **ours, **beside, "no_difference": why}


def join_results(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One result of several of the same table; of lines about the same published number the first result's stay.

    Args:
        results: of `SettingRun.report`, whose lines begin with the model before a comma.
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
        for name, word in (("data", " and "), ("budget", "; ")):
            joined[name] = word.join(dict.fromkeys([joined[name], result[name]]))
        for name in ("images", "seconds"):
            joined[name] += result[name]
    return joined


def _theirs(line: Mapping[str, Any]) -> tuple[str, str, str]:
    return line["beside"], line["symbol"], line["row"].partition(", ")[2]


def _plain(value: float) -> float | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_result(result: Mapping[str, Any], console: Console) -> None:
    """Print ours beside theirs, with what stands in the way of comparing them.

    Args:
        result: of `SettingRun.report`.
        console: to print on.
    """
    labels = f"{', '.join(result['labels'])}; " if result["labels"] else ""
    title = f"{result['table']}: {labels}{result['images']} images of {result['data']}"
    columns = ("row", "metric", "ours", "95 % interval", "n", "published", "difference", "beside")
    rows = [
        (
            *(line[name] for name in ("row", "symbol", "ours")),
            _interval(line["low"], line["high"]),
            *(line[name] for name in ("n", "published")),
            line["no_difference"] if line["published"] is not None and line["no_difference"] else line["difference"],
            line["beside"],
        )
        for line in result["lines"]
    ]
    print_table(title, columns, rows, console)
    lines = [result["source"], f"models: {', '.join(result['models'])}; budget: {result['budget']}"]
    lines += [f"{symbol}: {text}" for symbol, text in result["readings"].items()]
    lines += [f"left out: {row}: {reason}" for row, reason in result["left_out"].items()]
    for text in [*lines, *result["notes"], f"{result['seconds']:.0f} s"]:
        console.print(f"- {text}", highlight=False, markup=False)


def _interval(low: float | None, high: float | None) -> str:
    if low is None:
        return "-"
    return f"{low:.3g} - {'unbounded' if high is None else format(high, '.3g')}"
