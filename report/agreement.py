"""Do the libraries agree? Every attack that two or more of them implement, from the records of the same images."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ..engine.about import About
from ..engine.compare import TOO_MANY_VIOLATIONS, decide_pair
from ..engine.outcomes import Outcome
from ..engine.paired import mcnemar, wilcoxon, wilson_interval
from ..engine.words import radius_text, threat_text
from .blocks import Column, Entry, Fold, PageTable, Section, Text, make_table
from .folder import Folder

_SAME = 1e-6  # distances and probabilities this close are the same number up to float32 rounding
_STATE: Mapping[str, str] = {"same numbers": "pass", "equivalent": "pass", "weaker": "warn", "broken": "fail"}


class PairVerdict(NamedTuple):
    """Two implementations of one attack on one model, image by image; `weaker` names the weaker or broken one."""

    a: Outcome
    b: Outcome
    verdict: str
    weaker: str
    p_success: float
    p_distance: float
    only_a: int
    only_b: int
    agreeing: float


def judge_all(done: Sequence[Outcome], about: Mapping[tuple[str, str], About]) -> list[PairVerdict]:
    """Every pair of implementations of one attack under the same conditions."""
    return [judge(a, b, about) for bundle in shared_attacks(done) for a, b in combinations(bundle, 2)]


def write_agreement(folder: Folder, pairs: Sequence[PairVerdict], about: Mapping[tuple[str, str], About]) -> Section:
    """Success, distance, queries, time and verdict of each library beside the others; what their defaults say."""
    title = "Agreement of the libraries"
    lead = "The same attack, the same parameters, the same images: do the libraries find the same?"
    if not pairs:
        why = "No attack was run through two or more libraries here. Evaluate `pgd` rather than `foolbox:pgd` for this."
        return Section("agreement", title, lead, (Text(why, "note"),))
    counts = Counter(pair.verdict for pair in pairs)
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    bundles = list(shared_attacks(folder.outcomes.done))
    blocks: list[Any] = [Text(f"{len(pairs)} pairs: {told}.", "lead"), _matrix(folder, pairs)]
    blocks.append(Fold("Every implementation in numbers", (_rows_table(folder, bundles, about),)))
    blocks.append(Fold("Every pair, image by image", (_pairs_table(folder, pairs),)))
    blocks += _defaults(bundles, about)
    return Section("agreement", title, lead, tuple(blocks))


def shared_attacks(done: Sequence[Outcome]) -> Iterator[list[Outcome]]:
    """Cells of one attack, model, threat model, seed and shared parameters, by two or more implementations."""
    alike: dict[tuple[Any, ...], list[Outcome]] = {}
    for own in done:
        cell = own.cell
        key = (cell.subject.key, cell.row.attack, cell.is_best, cell.threat_model, cell.target, cell.seed, cell.pixels)
        alike.setdefault(key, []).append(own)
    for cells in alike.values():
        names = set.intersection(*(set(own.cell.parameters) for own in cells))
        settings: dict[str, list[Outcome]] = {}
        for own in cells:
            shared = {name: own.cell.parameters[name] for name in sorted(names)}
            settings.setdefault(json.dumps(shared), []).append(own)
        for bundle in settings.values():
            by_name = {own.cell.attack: own for own in bundle}
            if len(by_name) > 1:
                yield list(by_name.values())


def judge(a: Outcome, b: Outcome, about: Mapping[tuple[str, str], About]) -> PairVerdict:
    """The verdict of `engine.compare`, from records; "same numbers" where no distance and no prediction differs."""
    attacked = a.columns["attacked"] & b.columns["attacked"]
    first, second = a.columns["success"][attacked], b.columns["success"][attacked]
    both = first & second
    near, far = (own.columns["distance"][attacked][both] for own in (a, b))
    names = a.cell.attack, b.cell.attack
    p_success, p_distance = mcnemar(first, second), wilcoxon(near, far)
    minimum_norm = about[a.cell.attack, a.cell.threat_model.norm].kind == "minimum-norm"
    verdict, weaker = decide_pair(names, (p_success, p_distance), (first, second), (near, far), minimum_norm)
    broken = [own.cell.attack for own in (a, b) if _is_broken(own)]
    if broken:
        told, weaker = "broken", " and ".join(broken)
    else:
        told = "same numbers" if _is_same(a, b) else str(verdict)
    agreeing = float((first == second).mean()) if len(first) else float("nan")
    only_a, only_b = int((first & ~second).sum()), int((second & ~first).sum())
    return PairVerdict(a, b, told, weaker, p_success, p_distance, only_a, only_b, agreeing)


def _is_broken(own: Outcome) -> bool:
    return own.columns["violated"].sum() > TOO_MANY_VIOLATIONS * max(1, own.columns["attacked"].sum())


def _is_same(a: Outcome, b: Outcome) -> bool:
    names = ("l0", "l1", "l2", "linf", "success", "adv_predicted")
    rows = a.columns["attacked"]
    return all(
        np.allclose(
            a.columns[name][rows].astype(float), b.columns[name][rows].astype(float), _SAME, _SAME, equal_nan=True
        )
        for name in names
    )


def _matrix(folder: Folder, pairs: Sequence[PairVerdict]) -> PageTable:
    """A row for each pair of implementations and threat model, a column for each model."""
    models = list(dict.fromkeys(folder.model(pair.a) for pair in pairs))
    found: dict[tuple[str, str, str], dict[str, list[PairVerdict]]] = {}
    for pair in pairs:
        key = (pair.a.cell.attack, pair.b.cell.attack, threat_text(pair.a.cell.threat_model))
        found.setdefault(key, {}).setdefault(folder.model(pair.a), []).append(pair)
    rows = [(*key, *(_verdicts(own.get(model, [])) for model in models)) for key, own in found.items()]
    note = (
        "same numbers: no distance and no prediction differs. equivalent: no difference was found with this many "
        "images. weaker: exact McNemar test on success, or for attacks that look for the smallest change Wilcoxon's "
        "on the distances, at 5 % with Bonferroni's correction. broken: more than a tenth of the images broke a rule."
    )
    return make_table("agreement-pairs", "Verdict on each pair", ("a", "b", "threat model", *models), rows, note=note)


def _verdicts(pairs: Sequence[PairVerdict]) -> Entry:
    worst = max(pairs, key=lambda pair: list(_STATE).index(pair.verdict), default=None)
    if worst is None:
        return Entry("-")
    text = f"{worst.verdict}: {worst.weaker}" if worst.weaker else worst.verdict
    title = f"p success {worst.p_success:.2g}, p distance {worst.p_distance:.2g}, agree on {worst.agreeing:.0%}"
    return Entry(text, text, kind=_STATE[worst.verdict], title=title)


def _rows_table(folder: Folder, bundles: Sequence[list[Outcome]], about: Mapping[tuple[str, str], About]) -> PageTable:
    rows = [_row(folder, own, about) for bundle in bundles for own in bundle]
    columns = (
        "model", "implementation", "threat model", Column("n", "images attacked"),
        Column("MR", "share of them that are fooled, with its Wilson interval"), Column("8-bit", "after rounding"),
        Column("median distance", "in the norm of the threat model, over the successes"),
        Column("forwards", "median per image"), Column("backwards", "median per image"), "s/image", "violations",
        Column("known findings", "defects of the library's algorithm; the row runs as shipped"),
    )  # fmt: skip
    return make_table("agreement-rows", "Implementations side by side", columns, rows)


def _row(folder: Folder, own: Outcome, about: Mapping[tuple[str, str], About]) -> tuple[Any, ...]:
    columns, cell = own.columns, own.cell
    attacked, success = columns["attacked"], columns["success"]
    count, fooled = int(attacked.sum()), int(success.sum())
    share, (low, high) = fooled / count if count else float("nan"), wilson_interval(fooled, count)
    distances, findings = columns["distance"][success], about[cell.attack, cell.threat_model.norm].findings
    return (
        folder.model(own),
        cell.attack,
        threat_text(cell.threat_model),
        count,
        Entry(f"{share:.3g}", share, low, high) if count else None,
        float(columns["success_8bit"].sum() / count) if count else None,
        _length(cell.threat_model.norm, float(np.median(distances))) if fooled else None,
        *(float(np.median(columns[name][attacked])) if count else None for name in ("forwards", "backwards")),
        float(columns["seconds"][attacked].mean()) if count else None,
        int(columns["violated"].sum()),
        Entry(", ".join(findings), title="; ".join(findings.values())),
    )


def _length(norm: str, distance: float) -> Entry:
    return Entry(radius_text(norm, distance), distance)


def _pairs_table(folder: Folder, pairs: Sequence[PairVerdict]) -> PageTable:
    rows = [
        (
            folder.model(pair.a),
            pair.a.cell.attack,
            pair.b.cell.attack,
            threat_text(pair.a.cell.threat_model),
            Entry(pair.verdict, kind=_STATE[pair.verdict]),
            pair.weaker,
            pair.agreeing,
            pair.only_a,
            pair.only_b,
            pair.p_success,
            pair.p_distance,
        )
        for pair in pairs
    ]
    columns = (
        "model", "a", "b", "threat model", "verdict", "weaker or broken",
        Column("agree on", "share of the attacked images on which both succeed or both fail"),
        Column("only a", "images that only a fools"), Column("only b", "images that only b fools"),
        Column("p success", "exact McNemar test"), Column("p distance", "Wilcoxon's test where both succeed"),
    )  # fmt: skip
    return make_table("agreement-images", "Pairs, image by image", columns, rows)


def _defaults(bundles: Sequence[list[Outcome]], about: Mapping[tuple[str, str], About]) -> list[Any]:
    """A table of the defaults that differ, for each attack and norm."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for bundle in bundles:
        for own in bundle:
            norm = own.cell.threat_model.norm
            key = (f"{about[own.cell.attack, norm].title}, {norm}", own.cell.row.attack)
            found.setdefault(key, {})[own.cell.row.library] = about[own.cell.attack, norm].defaults
    libraries = sorted({library for own in found.values() for library in own})
    rows = []
    for (title, _), own in found.items():
        for name in dict.fromkeys(name for defaults in own.values() for name in defaults):
            values = [own[library].get(name, "-") if library in own else "" for library in libraries]
            if len({str(value) for library, value in zip(libraries, values, strict=True) if library in own}) > 1:
                rows.append((title, name, *values))
    if not rows:
        return [Text("No default of these implementations differs, or their libraries are not installed here.", "note")]
    note = "What each library does when nothing is given. The cells above ran with the parameters in Provenance."
    table = make_table(
        "agreement-defaults", "Defaults that differ", ("attack", "parameter", *libraries), rows, note=note
    )
    return [Fold("Parameters whose defaults differ", (table,))]
