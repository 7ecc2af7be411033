"""Indicators that set the cells of a folder against one another, image by image, with the exact paired test."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...adapters import IMPLEMENTATIONS, attack_of
from ...adapters.result import allowed_radius, measured_norm
from ...adapters.words import radius_text, threat_text
from ..cell import Cell, is_iterated, is_single_step
from ..statistics.paired_tests import mcnemar
from ..statistics.verdict import SIGNIFICANT
from ..store.outcomes import Outcome, Outcomes
from ..store.verdicts import PairVerdict, comparisons_of, judge_comparison
from .indicators import NEARER, NET_DISAGREEMENT, SEED_FAIL, SEED_WARN, Check, State, make_check, pick


def subject_of(cell: Cell) -> str:
    """How a check calls a cell: "foolbox:pgd (linf 4/255) on demo:efficientnet-lite0"."""
    return f"{cell.title} ({_describe(cell)}) on {cell.subject.name}"


def beaten_checks(outcomes: Outcomes) -> Iterator[Check]:
    """The checks "single-step" and "black-box" of every iterated white-box cell."""
    for outcome in outcomes.done:
        if not is_iterated(outcome.cell):
            continue
        rivals = [other for other in outcomes.done if _same_goal(outcome.cell, other.cell)]
        steps = [
            (other.cell.title, reach(other, outcome.cell))
            for other in rivals
            if is_single_step(other.cell) and not other.cell.surrogate
        ]
        boxes = [
            (other.cell.title, reach(other, outcome.cell)) for other in rivals if other.cell.knowledge != "white-box"
        ]
        boxes += _reach_transfers(outcome, outcomes)
        yield _beaten("single-step", outcome, steps, "no single-step attack (fgsm) was run under this threat model")
        yield _beaten(
            "black-box", outcome, boxes, "no black-box attack (square) and no transfer was run under this threat model"
        )


def growth_checks(outcomes: Outcomes) -> Iterator[Check]:
    """The check "epsilon-growth" of every fixed-budget attack over its radii."""
    fixed = [outcome for outcome in outcomes.done if _has_ball(outcome.cell)]
    for cells in _grouped(fixed, lambda cell: (*_settings(cell, skip="step_size"), cell.seed)):
        group = sorted(cells, key=lambda outcome: outcome.cell.threat_model.epsilon or 0.0)
        radii = sorted({outcome.cell.threat_model.epsilon or 0.0 for outcome in group})
        last = group[-1]
        if len(radii) < 2:
            detail, advice = (
                f"only epsilon {radius_text(last.cell.threat_model.norm, radii[0])} was run",
                "run it at two more radii (--epsilon, repeated)",
            )
            yield make_check("epsilon-growth", "unknown", subject_of(last.cell), last.cell.key, detail, advice=advice)
        else:
            yield _growth(group)


def seed_checks(outcomes: Outcomes) -> Iterator[Check]:
    """The check "seeds" of every attack over its seeds."""
    for group in _grouped(outcomes.done, lambda cell: (*_settings(cell), cell.threat_model.epsilon)):
        cell, first = group[0].cell, group[0].columns
        about = (subject_of(cell), cell.key)
        if len(group) < 2:
            if cell.row.random:
                advice = "run it with more seeds (--seed, repeated)"
                yield make_check("seeds", "unknown", *about, f"only seed {cell.seed} was run", advice=advice)
            else:
                yield make_check("seeds", "pass", *about, "the attack draws no random numbers")
            continue
        success = np.stack([outcome.columns["success"] for outcome in group])[:, first["attacked"]]
        mixed = np.asarray(success.any(0) & ~success.all(0))
        rates = success.mean(1) if success.shape[1] else np.zeros(len(group))
        share = float(mixed.mean()) if len(mixed) else 0.0
        state: State = "fail" if share > SEED_FAIL else "warn" if share > SEED_WARN else "pass"
        if mixed.any() and not cell.row.random:
            state = "fail"  # the attack draws no random numbers: those of the model must have moved it
        detail = f"success {rates.min():.3g} to {rates.max():.3g} over {len(group)} seeds; {int(mixed.sum())} of "
        detail += f"{len(mixed)} images depend on the seed"
        yield make_check("seeds", state, *about, detail, images=pick(first["image"][first["attacked"]], mixed))


def library_checks(outcomes: Outcomes) -> Iterator[Check]:
    """The check "libraries" of every comparison of implementations, by its verdicts, and of attacks that one ran."""
    met = set()
    for sides in comparisons_of(outcomes):
        met |= {side.cell.key for side in sides}
        if any(side.outcome is not None for side in sides):  # where all failed there is nothing to compare
            yield _disagreement(judge_comparison(sides))
    alone: dict[tuple[Any, ...], Cell] = {}
    for cell in (outcome.cell for outcome in outcomes.done if outcome.cell.key not in met):
        alone.setdefault(
            (cell.subject.key, cell.attack_title, *_goal(cell), cell.threat_model.epsilon, cell.seed), cell
        )
    for cell in alone.values():
        if len(_others(cell)) > 1:
            subject = f"{cell.attack_title} ({_describe(cell)}) on {cell.subject.name}"
            detail = f"only {cell.attack} was run"
            advice = f"run the attack by its name alone ({cell.row.canonical_name}): every library that has it"
            yield make_check("libraries", "unknown", subject, cell.key, detail, advice=advice)


def reach(outcome: Outcome, cell: Cell) -> np.ndarray:
    """How far each image has to be moved as far as an outcome knows, (n,): inf where it was not fooled.

    Under a cell with a radius every distance inside counts the same (0).
    """
    known, epsilon = outcome.columns, cell.threat_model.epsilon
    if epsilon is not None and epsilon == outcome.cell.threat_model.epsilon:
        return np.where(known["success"], 0.0, np.inf)
    return _in_ball(np.where(known["success"], known["distance"], np.inf), cell)


def wins(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Where the first reach is smaller than the second by more than searches differ."""
    return (first < NEARER * second) & np.isfinite(first)


def _in_ball(distance: np.ndarray, cell: Cell) -> np.ndarray:
    if cell.threat_model.epsilon is None:
        return distance
    return np.where(distance <= allowed_radius(cell.threat_model), 0.0, np.inf)


def _beaten(name: str, outcome: Outcome, rivals: list[tuple[str, np.ndarray]], missing: str) -> Check:
    """Whether the rivals together do better than the outcome."""
    cell, attacked = outcome.cell, outcome.columns["attacked"]
    if not rivals:
        advice = "run fgsm beside it" if name == "single-step" else "run square beside it, or --transfer full"
        return make_check(name, "unknown", subject_of(cell), cell.key, missing, advice=advice)
    mine, theirs = reach(outcome, cell), np.min([distances for _, distances in rivals], axis=0)
    lost, won = wins(theirs, mine) & attacked, wins(mine, theirs) & attacked
    p = mcnemar(lost, won)
    winners = [label for label, distances in rivals if (wins(distances, mine) & attacked).any()]
    names = ", ".join(dict.fromkeys(winners)) or ", ".join(dict.fromkeys(label for label, _ in rivals))
    significant = p < SIGNIFICANT and lost.sum() > won.sum()
    state: State = "fail" if significant else "warn" if lost.any() else "pass"
    better = "nearer or only" if cell.threat_model.epsilon is None else "only"
    detail = f"{int(lost.sum())} of {int(attacked.sum())} images fooled {better} by {names}, "
    detail += f"{int(won.sum())} only by this attack (p = {p:.2g})"
    return make_check(name, state, subject_of(cell), cell.key, detail, images=pick(outcome.columns["image"], lost))


def _growth(group: Sequence[Outcome]) -> Check:
    """Success at each radius against the next smaller one; the worst pair decides."""
    lost_images: dict[str, None] = {}
    significant = False
    attacked, last = group[0].columns["attacked"], group[-1]
    for small, large in pairwise(group):
        before, after = small.columns["success"] & attacked, large.columns["success"] & attacked
        lost = before & ~after
        lost_images |= dict.fromkeys(pick(small.columns["image"], lost))
        significant |= mcnemar(before, after) < SIGNIFICANT and before.sum() > after.sum()
    counts = [int((outcome.columns["success"] & attacked).sum()) for outcome in group]
    flat = counts[-1] <= counts[0] and counts[0] < attacked.sum()
    fell = any(after < before for before, after in pairwise(counts))
    state: State = "fail" if significant else "warn" if flat or fell else "pass"
    radii = [radius_text(outcome.cell.threat_model.norm, outcome.cell.threat_model.epsilon or 0.0) for outcome in group]
    steps = ", ".join(f"{n} at {radius}" for n, radius in zip(counts, radii, strict=True))
    detail = f"of {int(attacked.sum())} images fooled: {steps}"
    images = lost_images if state != "pass" else ()
    return make_check("epsilon-growth", state, subject_of(last.cell), last.cell.key, detail, images=images)


def _disagreement(pairs: Sequence[PairVerdict]) -> Check:
    """What the verdicts of a comparison come to: the pair that differs most decides."""
    states: list[State] = [_state_of(pair) for pair in pairs]
    order: list[State] = ["fail", "warn", "pass", "unknown"]
    place = min(range(len(pairs)), key=lambda i: (order.index(states[i]), np.nan_to_num(pairs[i].judgement.p, nan=2)))
    pair, state, judgement = pairs[place], states[place], pairs[place].judgement
    cell = next(side.cell for each in pairs for side in each[:2] if side.outcome is not None)
    subject = f"{cell.attack_title} ({_describe(cell)}) on {cell.subject.name}"
    names = f"{pair.a.cell.attack} and {pair.b.cell.attack}"
    if judgement.verdict == "broken":
        detail = f"{judgement.text}, of {names}{f': {judgement.reason}' if judgement.reason else ''}"
    elif not judgement.images:
        detail = f"{names} have no image to compare: {judgement.reason}"
    else:
        fooled = judgement.only_a + judgement.only_b
        detail = f"{fooled} of {judgement.images} images are fooled by one of {names} only "
        detail += f"(p = {judgement.p:.2g}, {judgement.pairs} pairs): {judgement.text}"
    if pair.unshared:
        detail += f"; only one of them has {', '.join(pair.unshared)}"
    cell = next(side.cell for side in (pair.b, pair.a, *pairs[0][:2]) if side.outcome is not None)
    if state == "unknown":
        more = judgement.needed - judgement.images
        advice = f"run {more} more images (--limit)" if more > 0 else ""
        return make_check("libraries", state, subject, cell.key, detail, advice=advice)
    images: list[str] = []
    if state != "pass" and pair.a.outcome is not None and pair.b.outcome is not None:
        columns = pair.a.outcome.columns
        images = pick(columns["image"], columns["success"] != pair.b.outcome.columns["success"])
    return make_check("libraries", state, subject, cell.key, detail, images=images)


def _state_of(pair: PairVerdict) -> State:
    judgement = pair.judgement
    if judgement.verdict in ("weaker", "broken"):
        return "fail"
    if judgement.images and abs(judgement.only_a - judgement.only_b) > NET_DISAGREEMENT * judgement.images:
        return "warn"
    return "unknown" if judgement.verdict == "undecided" else "pass"


def _reach_transfers(outcome: Outcome, outcomes: Outcomes) -> list[tuple[str, np.ndarray]]:
    """What the examples made on other models reach on the model of this outcome."""
    transfers = []
    for made in outcomes.done:
        predicted = (outcomes.transfers or {}).get(made.cell.key, {}).get(outcome.cell.subject.key)
        if predicted is None or _goal(made.cell) != _goal(outcome.cell) or made.cell.threat_model.targeted:
            continue
        columns, norm = made.columns, outcome.cell.threat_model.norm
        fooled = (predicted != columns["label"]) & ~np.isnan(predicted) & made.results.proven
        distance = np.where(fooled, columns[measured_norm(norm)], np.inf)
        transfers.append((f"{made.cell.attack} from {made.cell.subject.name}", _in_ball(distance, outcome.cell)))
    return transfers


def _describe(cell: Cell) -> str:
    return threat_text(cell.threat_model, cell.target) + (f", seed {cell.seed}" if cell.seed else "")


def _goal(cell: Cell) -> tuple[Any, ...]:
    return cell.threat_model.norm, cell.threat_model.targeted, cell.target, cell.pixels


def _same_goal(cell: Cell, other: Cell) -> bool:
    return cell.key != other.key and cell.subject == other.subject and _goal(cell) == _goal(other)


def _settings(cell: Cell, skip: str = "") -> tuple[Any, ...]:
    """All that a cell is, the radius and the seed aside."""
    shared = [{name: value for name, value in each.parameters.items() if name != skip} for each in cell.members]
    words = json.dumps([shared, dict(cell.grid)], sort_keys=True)
    return cell.subject.key, cell.attack, cell.surrogate, *_goal(cell), words, cell.shard_size, cell.version


def _has_ball(cell: Cell) -> bool:
    fixed = attack_of(cell.row).kind == "fixed-budget"
    return fixed and not cell.search.searches_radius and cell.threat_model.epsilon is not None


def _others(cell: Cell) -> set[str]:
    """The libraries that have this attack under its norm."""
    name = cell.row.canonical_name
    return {
        row.library for row in IMPLEMENTATIONS.values() if row.attack == name and cell.threat_model.norm in row.classes
    }


def _grouped(done: Iterable[Outcome], key: Any) -> list[list[Outcome]]:
    groups: dict[Any, list[Outcome]] = {}
    for outcome in done:
        groups.setdefault(key(outcome.cell), []).append(outcome)
    return list(groups.values())
