"""Do the libraries agree? Every attack that two or more of them implement, from the records of the same images."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...adapters.words import radius_text, threat_text
from ...engine.statistics.paired_tests import Interval
from ...engine.statistics.verdict import RULE, Verdict
from ...engine.store.outcomes import Outcome, side_of
from ...engine.store.verdicts import PairVerdict, comparisons_of
from ...engine.tables.implementation_notes import About
from ...intervals import share_interval
from ..parts.blocks import Column, Entry, Fold, PageTable, Said, Section, Text, make_table, plain
from ..parts.reading import Folder

_ACROSS = 6  # models that stand beside each other
_SAID = 2  # pairs that differ, on the first screen
_STATE: Mapping[Verdict, str] = {
    "identical": "pass",
    "equivalent": "pass",
    "no difference found": "unknown",
    "undecided": "unknown",
    "weaker": "warn",
    "broken": "fail",
}


def write_agreement(folder: Folder, pairs: Sequence[PairVerdict], about: Mapping[tuple[str, str], About]) -> Section:
    """Success, distance, queries, time and verdict of each library beside the others; what their defaults say."""
    title = "Agreement of the libraries"
    lead = "The same attack, the same parameters, the same images: do the libraries give the same result?"
    if not pairs:
        why = "No attack was run through two or more libraries here. Evaluate `pgd` rather than `foolbox:pgd` for this."
        return Section("agreement", title, lead, (Text(why, "note"),))
    counts = Counter(pair.judgement.verdict for pair in pairs)
    summary = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    bundles = [
        [side.outcome for side in sides if side.outcome is not None] for sides in comparisons_of(folder.outcomes)
    ]
    blocks: list[Any] = [Text(f"{len(pairs)} pairs: {summary}.", "lead"), _matrix(folder, pairs)]
    blocks.append(Fold("How a verdict is reached", (Text(_note(pairs), "note"),)))
    blocks.append(Fold("Every implementation in numbers", (_rows_table(folder, bundles, about),)))
    blocks.append(Fold("Every pair, image by image", (_pairs_table(folder, pairs),)))
    blocks += _defaults(bundles, about)
    return Section("agreement", title, lead, tuple(blocks))


def summarise_agreement(pairs: Sequence[PairVerdict]) -> tuple[Said, ...]:
    """The pairs that differ, each in a sentence, the worst first, and how many show no difference."""
    if not pairs:
        return (Said("Not known: no attack was run through two or more libraries.", "unknown", "agreement"),)
    worst = sorted(pairs, key=lambda pair: -list(_STATE).index(pair.judgement.verdict))
    differ = [pair for pair in worst if pair.judgement.verdict in ("broken", "weaker")]
    lines = [Said(_difference(pair), _STATE[pair.judgement.verdict], "agreement") for pair in differ[:_SAID]]
    if len(differ) > _SAID:
        lines.append(Said(f"{len(differ) - _SAID} more of the {len(pairs)} pairs differ.", "warn", "agreement"))
    alike = [pair for pair in worst if pair.judgement.verdict not in ("broken", "weaker")]
    counts: Counter[Verdict] = Counter(pair.judgement.verdict for pair in alike)
    for verdict, number in counts.most_common():
        power = next(pair.judgement.power for pair in alike if pair.judgement.verdict == verdict)
        proof = "" if _STATE[verdict] == "pass" else f"{power[0].upper()}{power[1:]}."
        text = f"{number} of {len(pairs)} pairs: {verdict}."
        lines.append(Said(text, _STATE[verdict], "agreement", proof=proof))
    return tuple(lines)


def _difference(pair: PairVerdict) -> str:
    """What one implementation does worse than another, with the numbers of the test."""
    judgement, (a, b) = pair.judgement, (pair.a.cell, pair.b.cell)
    sides = [side_of(each.outcome) for each in (pair.a, pair.b) if each.outcome is not None]
    where = f"{a.subject.name}, {threat_text(a.threat_model)}"
    if judgement.verdict == "broken":
        complaint = judgement.reason or "; ".join(side.complaint for side in sides if side.is_broken)
        return f"{judgement.weaker} is broken ({complaint}) on {where}."
    better, level = b.title if judgement.weaker == a.title else a.title, judgement.correction
    costs = f", {judgement.costs}" if judgement.costs else ""
    costs += f"; only one of them has {', '.join(pair.unshared)}" if pair.unshared else ""
    if not judgement.is_apart:
        numbers = f"larger changes where both succeed, Wilcoxon p = {judgement.p_distance:.2g}, below {level}"
    else:
        most, least = sorted((judgement.only_a, judgement.only_b), reverse=True)
        numbers = f"{most} images are fooled only by the other, {least} only by it, "
        numbers += f"exact McNemar p = {judgement.p_success:.2g}, below {level}"
    return f"{judgement.weaker} is weaker than {better} on {where}{costs}: {numbers}; n = {judgement.images}."


def _model(folder: Folder, pair: PairVerdict) -> str:
    return folder.models[pair.a.cell.subject.key]


def _matrix(folder: Folder, pairs: Sequence[PairVerdict]) -> PageTable:
    """A row for each pair of implementations and threat model, a column for each model."""
    models = list(dict.fromkeys(_model(folder, pair) for pair in pairs))
    by_attack: dict[tuple[str, str, str], dict[str, list[PairVerdict]]] = {}
    for pair in pairs:
        key = (pair.a.cell.attack, pair.b.cell.attack, threat_text(pair.a.cell.threat_model))
        by_attack.setdefault(key, {}).setdefault(_model(folder, pair), []).append(pair)
    if len(models) > _ACROSS:
        heads = ("model", *(f"{a} / {b}, {threat}" for a, b, threat in by_attack))
        rows = [(model, *(_verdicts(each.get(model, [])) for each in by_attack.values())) for model in models]
        return make_table("agreement-pairs", "Verdict on each pair", heads, rows)
    rows = [(*key, *(_verdicts(verdicts.get(model, [])) for model in models)) for key, verdicts in by_attack.items()]
    return make_table("agreement-pairs", "Verdict on each pair", ("a", "b", "threat model", *models), rows)


def _note(pairs: Sequence[PairVerdict]) -> str:
    """The rule, and what these numbers of images can show."""
    power = sorted({pair.judgement.power for pair in pairs}, key=lambda text: (len(text), text))
    more = f"; and {len(power) - _SAID} other numbers of images" if len(power) > _SAID else ""
    level = " or ".join(dict.fromkeys(pair.judgement.correction for pair in pairs))
    return f"{RULE} Here: p counts below {level}; {'; '.join(power[:_SAID])}{more}."


def _verdicts(pairs: Sequence[PairVerdict]) -> Entry:
    worst = max(pairs, key=lambda pair: list(_STATE).index(pair.judgement.verdict), default=None)
    if worst is None:
        return Entry("-")
    verdict = worst.judgement
    tests = f"p success {verdict.p_success:.2g}, p distance {verdict.p_distance:.2g}"
    title = f"{tests} (below {verdict.correction} it counts), agree on {worst.agreeing:.0%}; {verdict.power}"
    return Entry(verdict.text, verdict.text, kind=_STATE[verdict.verdict], title=title)


def _rows_table(folder: Folder, bundles: Sequence[list[Outcome]], about: Mapping[tuple[str, str], About]) -> PageTable:
    rows = [_row(folder, outcome, about) for bundle in bundles for outcome in bundle]
    columns = (
        "model", "implementation", "threat model", Column("n", "images attacked"),
        Column("success", "share of them that are fooled (MR) or taken for their target (TAS), with its 95 % interval"),
        Column("8-bit", "the same after rounding"),
        Column("median distance", "in the norm of the threat model, over the images that are fooled"),
        Column("forwards", "median per image"), Column("backwards", "median per image"), "s/image", "violations",
        Column("known findings", "defects of the library's algorithm; the row runs as shipped"),
    )  # fmt: skip
    return make_table("agreement-rows", "Implementations side by side", columns, rows)


def _row(folder: Folder, outcome: Outcome, about: Mapping[tuple[str, str], About]) -> tuple[Any, ...]:
    columns, cell = outcome.columns, outcome.cell
    attacked, success = columns["attacked"], columns["success"]
    count, fooled = int(attacked.sum()), int(success.sum())
    total, most = (float(np.nansum(ends)) for ends in (outcome.results.fooled, outcome.results.fooled_at_most))
    share = total / count if count else float("nan")
    low, high = share_interval(total, count)[0], share_interval(most, count)[1]  # as in tables
    distances, findings = columns["distance"][success], about[cell.attack, cell.threat_model.norm].findings
    return (
        folder.model(outcome),
        cell.attack,
        threat_text(cell.threat_model),
        count,
        Entry(f"{share:.3g}", share, low, high) if count else None,
        float(columns["success_8bit"].sum() / count) if count else None,
        _length(cell.threat_model.norm, float(np.median(distances))) if fooled else None,
        *(float(np.median(columns[name][attacked])) if count else None for name in ("forwards", "backwards")),
        float(columns["seconds"][attacked].mean()) if count else None,
        _violations(outcome),
        Entry(", ".join(findings), title="; ".join(findings.values())),
    )


def _violations(outcome: Outcome) -> Entry:
    """Attacked images that broke a rule, whether or not they fool the model, and which rules."""
    side = side_of(outcome)
    count = int(side.violated.sum())
    return Entry(str(count), count, title=side.complaint)


def _length(norm: str, distance: float) -> Entry:
    return Entry(radius_text(norm, distance), distance)


def _pairs_table(folder: Folder, pairs: Sequence[PairVerdict]) -> PageTable:
    rows = [
        (
            _model(folder, pair),
            pair.a.cell.attack,
            pair.b.cell.attack,
            threat_text(pair.a.cell.threat_model),
            Entry(pair.judgement.text, kind=_STATE[pair.judgement.verdict], title=pair.judgement.power),
            pair.judgement.weaker,
            pair.judgement.images,
            pair.judgement.left_out,
            pair.agreeing,
            pair.judgement.only_a,
            pair.judgement.only_b,
            _interval(pair.judgement.difference),
            pair.judgement.p_success,
            pair.judgement.p_distance,
        )
        for pair in pairs
    ]
    levels = " or ".join(dict.fromkeys(pair.judgement.correction for pair in pairs))
    columns = (
        "model", "a", "b", "threat model", "verdict", "weaker or broken", Column("n", "images compared"),
        Column("left out", "attacked images with an invalid result of one of the two, through no fault of its library"),
        Column("agree on", "share of the images compared on which both succeed or both fail"),
        Column("only a", "images that only a fools"), Column("only b", "images that only b fools"),
        Column("difference", "success rate of a less that of b, with its interval at the level of the verdict"),
        Column("p success", f"exact McNemar test, as computed; it counts below {levels}"),
        Column("p distance", "Wilcoxon's test where both succeed, as computed; it counts for smallest changes only"),
    )  # fmt: skip
    return make_table("agreement-images", "Pairs, image by image", columns, rows)


def _interval(interval: Interval) -> Entry:
    value, low, high = plain(list(interval))
    return Entry("-" if value is None else f"{value:.3g}", value, low, high)


def _defaults(bundles: Sequence[list[Outcome]], about: Mapping[tuple[str, str], About]) -> list[Any]:
    """A table of the defaults that differ, for each attack and norm."""
    by_attack: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for bundle in bundles:
        for item in bundle:
            norm = item.cell.threat_model.norm
            key = (f"{about[item.cell.attack, norm].title}, {norm}", item.cell.row.canonical_name)
            by_attack.setdefault(key, {})[item.cell.row.library] = about[item.cell.attack, norm].defaults
    libraries = sorted({library for item in by_attack.values() for library in item})
    rows = []
    for (title, _), item in by_attack.items():
        for name in dict.fromkeys(name for defaults in item.values() for name in defaults):
            values = [item[library].get(name, "-") if library in item else "" for library in libraries]
            if len({str(value) for library, value in zip(libraries, values, strict=True) if library in item}) > 1:
                rows.append((title, name, *values))
    if not rows:
        return [Text("No default of these implementations differs, or their libraries are not installed here.", "note")]
    note = "What each library does by default. The cells above ran with the parameters in Provenance."
    table = make_table(
        "agreement-defaults", "Defaults that differ", ("attack", "parameter", *libraries), rows, note=note
    )
    return [Fold("Parameters whose defaults differ", (table,))]
