"""Section on the agreement of libraries: every attack with several implementations, compared on the same images."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...adapters.display_text import format_radius, format_threat_model
from ...engine.checks.verdicts import SEVERITY, PairComparison, comparisons_of, paired_outcomes
from ...engine.finding import plain
from ...engine.statistics.verdict import RULE, RULE_NOTES, Verdict
from ...engine.store.results import RunResult
from ...engine.tables.implementation_notes import About
from ...intervals import proportion_interval
from ..parts.blocks import Collapsible, Column, PageTable, Section, Statement, TableCell, Text, list_table, make_table
from ..parts.report_data import ReportData

_ACROSS = 6  # models side by side
_SAID = 2  # pairs that differ, on the first screen


def write_agreement(
    folder: ReportData, pairs: Sequence[PairComparison], about: Mapping[tuple[str, str], About]
) -> Section | None:
    """Build the section that compares the implementations of each attack in different libraries.

    Args:
        folder: data of the report.
        pairs: pairs of implementations with their verdicts.
        about: facts about each implementation, by name and norm.

    Returns:
        The section, or None if no attack was run in two or more libraries.
    """
    title = "Agreement of the libraries"
    lead = (
        "The same attack, radius and images: do the libraries give the same result? Their parameters may differ: see "
        "all runs in Provenance."
    )
    if not pairs:
        return None
    counts = Counter(pair.verdict for pair in pairs)
    summary = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    done = [each.outcome for group in comparisons_of(folder.outcomes) for each in group if each.outcome is not None]
    blocks: list[Any] = [Text(f"{len(pairs)} pairs: {summary}.", "lead"), _matrix(folder, pairs)]
    blocks.append(Collapsible("How a verdict is reached", _rule(pairs)))
    numbers = (_implementations(folder, done, about), _pairs_table(folder, pairs))
    blocks.append(Collapsible("Every implementation and every pair in numbers", numbers))
    return Section("agreement", title, lead, (*blocks, *_defaults(done, about)))


def summarise_agreement(pairs: Sequence[PairComparison]) -> tuple[Statement, ...]:
    """Describe the pairs of implementations that differ, the worst first, and count the other pairs by verdict."""
    if not pairs:
        how = "Evaluate `pgd`, not `foolbox:pgd`, to compare libraries."
        return (Statement("Not known: no attack was run through two or more libraries.", "unknown", proof=how),)
    worst = sorted(pairs, key=lambda pair: -_rank(pair))
    differ = [pair for pair in worst if pair.weaker]
    lines = [Statement(pair.sentence, pair.state, "agreement") for pair in differ[:_SAID]]
    if len(differ) > _SAID:
        lines.append(Statement(f"{len(differ) - _SAID} more of the {len(pairs)} pairs differ.", "warn", "agreement"))
    alike = [pair for pair in worst if not pair.weaker]
    counts: Counter[Verdict] = Counter(pair.verdict for pair in alike)
    for verdict, number in counts.most_common():
        state = SEVERITY[verdict]
        power = next(pair.judgement.power for pair in alike if pair.verdict == verdict)
        proof = "" if state == "pass" else f"{power[0].upper()}{power[1:]}."
        text = f"{number} of {len(pairs)} pairs: {verdict}."
        lines.append(Statement(text, state, "agreement", proof=proof))
    return tuple(lines)


def _rank(pair: PairComparison) -> int:
    return [*SEVERITY].index(pair.verdict)


def _matrix(folder: ReportData, pairs: Sequence[PairComparison]) -> PageTable:
    worst: dict[tuple[str, str, str], dict[str, PairComparison]] = {}
    for pair in pairs:
        seen = worst.setdefault((pair.a, pair.b, format_threat_model(pair.cell.threat_model)), {})
        model = folder.models[pair.cell.subject.key]
        seen[model] = max(seen.get(model, pair), pair, key=_rank)
    models = list(dict.fromkeys(folder.models[pair.cell.subject.key] for pair in pairs))
    if len(models) > _ACROSS:
        heads = ("model", *(f"{a} / {b}, {threat}" for a, b, threat in worst))
        rows = [(model, *(_verdict(seen.get(model)) for seen in worst.values())) for model in models]
    else:
        one = len({threat for _, _, threat in worst}) == 1
        heads = ("pair", Column("threat model", wide=one), *models)
        rows = [
            (f"{a} / {b}", threat, *(_verdict(seen.get(model)) for model in models))
            for (a, b, threat), seen in worst.items()
        ]
    return make_table("agreement-pairs", "Verdict on each pair", heads, rows)


def _rule(pairs: Sequence[PairComparison]) -> tuple[PageTable | Text, ...]:
    """Return the conditions of the verdicts, and notes on the tests."""
    columns = (("verdict", lambda item: item[0]), ("condition", lambda item: item[1]))
    table = list_table("agreement-rule", "The first condition that holds gives the verdict", RULE.items(), columns)
    return (table, *(Text(note, "note") for note in (*RULE_NOTES, _note(pairs))))


def _note(pairs: Sequence[PairComparison]) -> str:
    """Explain how a verdict is reached, and which differences the tests can detect with these numbers of images."""
    power = sorted({pair.judgement.power for pair in pairs}, key=lambda text: (len(text), text))
    more = f"; and {len(power) - _SAID} other numbers of images" if len(power) > _SAID else ""
    return f"Here, p is significant below {_levels(pairs)}; {'; '.join(power[:_SAID])}{more}."


def _levels(pairs: Sequence[PairComparison]) -> str:
    return " or ".join(dict.fromkeys(pair.judgement.correction for pair in pairs))


def _verdict(pair: PairComparison | None) -> TableCell:
    if pair is None:
        return TableCell("-")
    verdict = pair.judgement
    tests = f"p success {verdict.p_success:.2g}, p distance {verdict.p_distance:.2g}"
    title = f"{tests} (significant below {verdict.correction}), agree on {pair.agreeing:.0%}; {verdict.power}"
    return TableCell(verdict.text, verdict.text, kind=pair.state, title=title)


def _implementations(
    folder: ReportData, done: Sequence[RunResult], about: Mapping[tuple[str, str], About]
) -> PageTable:
    def findings(outcome: RunResult) -> TableCell:
        known = about[outcome.cell.attack, outcome.cell.threat_model.norm].findings
        return TableCell(", ".join(known), title="; ".join(known.values()))

    success = "proportion of these images that are fooled (MR) or classified as the target (TAS); 95 % interval"
    columns = (
        ("model", folder.model),
        ("implementation", lambda outcome: outcome.cell.attack),
        ("threat model", lambda outcome: format_threat_model(outcome.cell.threat_model)),
        (Column("n", "images attacked"), lambda outcome: int(outcome.results.attacked.sum())),
        (Column("success", success), _rate),
        (
            Column("8-bit", "success rate after rounding to 8 bits"),
            lambda outcome: _over(outcome, "success_8bit", np.mean),
        ),
        (Column("median distance", "median over the fooled images, in the norm of the threat model"), _distance),
        (Column("forwards", "median forward queries per image"), lambda outcome: _over(outcome, "forwards", np.median)),
        (
            Column("backwards", "median backward queries per image"),
            lambda outcome: _over(outcome, "backwards", np.median),
        ),
        ("s/image", lambda outcome: _over(outcome, "seconds", np.mean)),
        ("invalid", _violations),
        (Column("known issues", "known defects of the library's algorithm, which davylamp does not change"), findings),
    )
    return list_table("agreement-rows", "Implementations side by side", done, columns)


def _over(outcome: RunResult, column: str, of: Any) -> float | None:
    values = outcome.columns[column][outcome.results.attacked]
    return float(of(values)) if len(values) else None


def _rate(outcome: RunResult) -> TableCell | None:
    results = outcome.results
    if not (count := int(results.attacked.sum())):
        return None
    total, most = (float(np.nansum(ends)) for ends in (results.fooled, results.fooled_at_most))
    share = total / count
    return TableCell(
        f"{share:.3g}", share, proportion_interval(total, count)[0], proportion_interval(most, count)[1]
    )  # same as in tables


def _distance(outcome: RunResult) -> TableCell | None:
    if not outcome.columns["success"].any():
        return None
    distance = float(np.median(outcome.columns["distance"][outcome.columns["success"]]))
    return TableCell(format_radius(outcome.cell.threat_model.norm, distance), distance)


def _violations(outcome: RunResult) -> TableCell:
    """Return the number of attacked images with an invalid result, including fooled images.

    The tooltip has the reasons.
    """
    count = int(outcome.results.violated.sum())
    return TableCell(str(count), count, title=paired_outcomes(outcome).invalid_summary)


def _pairs_table(folder: ReportData, pairs: Sequence[PairComparison]) -> PageTable:
    left_out = "attacked images that are excluded, because an invalid result was not caused by the library"
    success = f"exact McNemar test, uncorrected; significant below {_levels(pairs)}"
    columns = (
        ("model", lambda pair: folder.models[pair.cell.subject.key]),
        ("a", lambda pair: pair.a),
        ("b", lambda pair: pair.b),
        ("threat model", lambda pair: format_threat_model(pair.cell.threat_model)),
        ("verdict", lambda pair: TableCell(pair.judgement.text, kind=pair.state, title=pair.judgement.power)),
        ("weaker or broken", lambda pair: pair.weaker),
        (Column("n", "images compared"), lambda pair: pair.judgement.images),
        (Column("left out", left_out), lambda pair: pair.judgement.left_out),
        (
            Column("agree on", "proportion of the compared images on which both succeed or both fail"),
            lambda pair: pair.agreeing,
        ),
        (Column("only a", "images that only a fools"), lambda pair: pair.judgement.only_a),
        (Column("only b", "images that only b fools"), lambda pair: pair.judgement.only_b),
        (
            Column("difference", "success rate of a minus that of b, with its interval at the verdict's level"),
            _difference,
        ),
        (Column("p success", success), lambda pair: pair.judgement.p_success),
        (
            Column(
                "p distance", "Wilcoxon's test on images that both fool, uncorrected, for minimum-norm attacks only"
            ),
            lambda pair: pair.judgement.p_distance,
        ),
    )
    return list_table("agreement-images", "Pairs in numbers", pairs, columns)


def _difference(pair: PairComparison) -> TableCell:
    value, low, high = plain(list(pair.judgement.difference))
    return TableCell("-" if value is None else f"{value:.3g}", value, low, high)


def _defaults(done: Sequence[RunResult], about: Mapping[tuple[str, str], About]) -> tuple[Collapsible, ...]:
    """Build a table of the parameters whose defaults differ between libraries, for each attack and norm.

    Empty if no defaults differ.
    """
    by_attack: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for cell in (outcome.cell for outcome in done):
        known = about[cell.attack, cell.threat_model.norm]
        key = (f"{known.title}, {cell.threat_model.norm}", cell.row.canonical_name)
        by_attack.setdefault(key, {})[cell.row.library] = known.defaults
    libraries = sorted({library for item in by_attack.values() for library in item})
    rows = []
    for (title, _), item in by_attack.items():
        for name in dict.fromkeys(name for defaults in item.values() for name in defaults):
            values = {library: item[library].get(name, "-") for library in libraries if library in item}
            if len(set(map(str, values.values()))) > 1:
                rows.append((title, name, *(values.get(library, "") for library in libraries)))
    if not rows:
        return ()
    note = "Each library's defaults. The runs above used the parameters in Provenance."
    heads = ("attack", "parameter", *libraries)
    table = make_table("agreement-defaults", "Defaults that differ", heads, rows, note=note)
    return (Collapsible("Parameters whose defaults differ", (table,)),)
