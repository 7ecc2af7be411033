"""CANARY's Figures 6 and 7 (Sun et al. 2023). They have no numbers, so results are compared with the paper's text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...engine.statistics.bootstrap import Estimate
from ..shared.paper_numbers import load_rows
from ..shared.paper_result import PaperLine
from ..shared.paper_table import Options
from ..shared.reproduction import Size, build_rows, run_setting
from .setting import PUBLISHED_FORMS_OF, READINGS, SETTING, build_forms, paper_name, row_of

_SIX = ("FGSM", "AdvGan", "LSA", "HSJA")
_ENDS = 3  # best and worst attacks of a model
_VISIBILITY = {"ALMS": PUBLISHED_FORMS_OF["ALMS"], "ADMS": "ADMS"}


def compare_visibility(published: str, options: Options) -> dict[str, Any]:
    """Reproduce Figure 6: rank four attacks by the visibility of their examples on one model.

    Args:
        published: "canary_figures".
        options: options of the command.
    """
    attacks = tuple(choice for choice in SETTING.config.attacks if paper_name(choice.attack) in _SIX)
    quick = replace(SETTING.quick, images=2)
    default = Size(("demo:efficientnet-lite0",), 10, SETTING.default.limits, 200)
    setting = replace(SETTING, config=replace(SETTING.config, attacks=attacks, transfer="no"))
    with run_setting(replace(setting, default=default, quick=quick), options) as run:
        results, notes = build_forms(run.folder, [*_VISIBILITY], "pairs")
        symbols = [symbol for symbol, form in _VISIBILITY.items() if form in results.symbols]
        lines: list[PaperLine] = []
        for model in run.models:
            rows = {
                paper_name(row.labels["implementation"]): {each: row.metrics[_VISIBILITY[each]] for each in symbols}
                for row in results.rows
                if row.labels["model"] == model
            }
            lines += _ranked(model, rows, symbols)
            notes += [f"{model}: {line}" for line in _judged(published, rows)]
        readings = {symbol: READINGS[symbol] for symbol in symbols} | {"rank": "1 is the most visible"}
        return run.report(published, lines, readings=readings, left_out={}, notes=notes)


def _ranked(model: str, rows: Mapping[str, Mapping[str, Estimate]], symbols: Sequence[str]) -> Iterator[PaperLine]:
    for symbol in symbols:
        known = {name: metrics[symbol] for name, metrics in rows.items() if metrics[symbol].n}
        order = sorted(known, key=lambda name, known=known: -known[name].value)
        for place, name in enumerate(order, 1):
            title = f"{model}, {name}: rank {place} of {len(order)}"
            yield PaperLine(title, symbol, known[name], None, "Figure 6, on AlexNet", model=model)
        for name in (each for each in rows if each not in known):
            title = f"{model}, {name}: not ranked"
            yield PaperLine(title, symbol, rows[name][symbol], None, "Figure 6, on AlexNet", model=model)


def _judged(published: str, rows: Mapping[str, Mapping[str, Estimate]]) -> Iterator[str]:
    for stated in (row for row in load_rows(published) if row["figure"] == "6"):
        symbol = stated["symbol"]
        known = {name: metrics[symbol] for name, metrics in rows.items() if symbol in metrics and metrics[symbol].n}
        pairs = [(a, b) for a in stated["stronger"] for b in stated["weaker"] if a in known and b in known]
        held = sum(known[a].value > known[b].value for a, b in pairs)
        yield f"the paper's text: {stated['statement']}: {held} of {len(pairs)} pairs here"


def compare_extremes(published: str, options: Options) -> dict[str, Any]:
    """Reproduce Figure 7: find the three attacks with the highest and with the lowest misclassification rate.

    The attacks are listed for each model.

    Args:
        published: "canary_figures".
        options: options of the command.
    """
    with run_setting(SETTING, options) as run:
        results, notes = build_rows(run.folder, ["MR"], "pairs")
        lines, bests = [], {}
        for model in run.models:
            rows = {
                " ".join(row_of(row.labels).values()): row.metrics["MR"]
                for row in results.rows
                if row.labels["model"] == model and row.metrics["MR"].n
            }
            order = sorted(rows, key=lambda name, rows=rows: -rows[name].value)
            bests[model] = {name for name in order if rows[name].value == rows[order[0]].value}
            few = min(_ENDS, len(order))
            ends = [("best", place, order[place]) for place in range(few)]
            ends += [("worst", place, order[-1 - place]) for place in range(few)]
            for end, place, name in ends:
                ties = sum(other.value == rows[name].value for other in rows.values()) - 1
                title = f"{model}, {end} {place + 1}: {name}{f', tied with {ties}' if ties else ''}"
                lines.append(PaperLine(title, "MR", rows[name], None, "Figure 7", model=model))
        notes += _judged_bests(published, {model: run.row_of(model) for model in run.models}, bests)
        readings = {"MR": "the three highest and the three lowest of each model; equal rates in the order of the run"}
        return run.report(published, lines, readings=readings, left_out={}, notes=notes)


def _judged_bests(published: str, rows: Mapping[str, str], bests: Mapping[str, set[str]]) -> Iterator[str]:
    for stated in (row for row in load_rows(published) if row["figure"] == "7"):
        known = [model for model, row in rows.items() if row in stated["models"]]
        held = sum(stated["attack"] in bests[model] for model in known)
        yield f"the paper's text: {stated['statement']}: for {held} of {len(known)} such models here"
