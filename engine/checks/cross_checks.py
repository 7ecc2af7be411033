"""Failure indicators that compare the runs of a folder with each other, image by image, with exact paired tests."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...adapters import IMPLEMENTATIONS, canonical_attack
from ...adapters.display_text import format_radius
from ...adapters.result import distance_norm, radius_with_tolerance
from ..attack_run import AttackRun, is_iterated, is_single_step
from ..finding import Finding, State
from ..statistics.paired_tests import mcnemar
from ..statistics.verdict import SIGNIFICANT
from ..store.results import Results, RunResult
from ..store.shown import fooled_when_shown
from .cell_checks import describe, find_in_cell
from .indicators import NEARER, NET_DISAGREEMENT, SEED_FAIL, SEED_WARN, Judged, find, judged, state_of
from .verdicts import PairComparison, comparisons_of, judge_comparison

_ORDER: tuple[State, ...] = ("fail", "warn", "pass", "unknown")  # the first state of any pair decides


def cross_checks(outcomes: Results) -> list[Finding]:
    """Return the findings of all failure indicators that compare several runs of a folder."""
    return [
        *_beaten_checks(outcomes),
        *_growth_checks(outcomes),
        *_seed_checks(outcomes),
        *_library_checks(outcomes),
    ]


def _beaten_checks(outcomes: Results) -> Iterator[Finding]:
    """Yield the findings "single-step" and "black-box" for every iterative white-box run: do weaker attacks beat it?"""
    for outcome in outcomes.done:
        cell = outcome.cell
        if not is_iterated(cell):
            continue
        rivals = [
            other
            for other in outcomes.done
            if other.cell.key != cell.key and other.cell.subject == cell.subject and _goal(other.cell) == _goal(cell)
        ]
        steps = [each for each in rivals if is_single_step(each.cell) and not each.cell.surrogate]
        boxes = [each for each in rivals if each.cell.knowledge != "white-box"]
        none = "no single-step attack (fgsm) was run under this threat model"
        judgement = _beaten(outcome, [(each.cell.title, _reach(each, cell)) for each in steps])
        yield find_in_cell("single-step", cell, judgement or Judged("unknown", none, advice="also run fgsm"))
        none = "no black-box attack (square) and no transfer was run under this threat model"
        reached = [(each.cell.title, _reach(each, cell)) for each in boxes] + _reach_transfers(outcome, outcomes)
        unknown = Judged("unknown", none, advice="also run square, or use --transfer full")
        yield find_in_cell("black-box", cell, _beaten(outcome, reached) or unknown)


def _beaten(outcome: RunResult, rivals: list[tuple[str, np.ndarray]]) -> Judged | None:
    """Judge a run by the images that it fools and those that any of its rivals fools; None without rivals.

    `rivals` are names with the distances of `_reach`.
    """
    if not rivals:
        return None
    cell, attacked = outcome.cell, outcome.results.attacked
    mine, theirs = _reach(outcome, cell), np.min([distances for _, distances in rivals], axis=0)
    lost, won = _wins(theirs, mine) & attacked, _wins(mine, theirs) & attacked
    p = mcnemar(lost, won)
    winners = [label for label, distances in rivals if (_wins(distances, mine) & attacked).any()]
    numbers = {"lost": int(lost.sum()), "won": int(won.sum()), "attacked": int(attacked.sum()), "p": p}
    numbers |= {"names": ", ".join(dict.fromkeys(winners or [label for label, _ in rivals]))}
    numbers |= {"better": "only, or at a smaller distance," if cell.threat_model.epsilon is None else "only"}
    sentence = "{lost} of {attacked} images are fooled {better} by {names}; {won} are fooled only by this attack"
    beaten = lost.sum() > won.sum()  # both miss some images by chance
    sentence += " (p = {p:.2g})" * int(beaten)  # of the difference, so not of a rival that is weaker
    state = state_of(beaten and p < SIGNIFICANT, beaten)
    return judged(state, sentence, outcome.columns["image"][lost] if beaten else (), **numbers)


def _reach(outcome: RunResult, cell: AttackRun) -> np.ndarray:
    """Return the distance at which a run fooled each image, (n,); infinite if the image was not fooled.

    If `cell` has a radius, the distance is 0 for all images that are fooled within the radius.
    """
    known, epsilon = outcome.columns, cell.threat_model.epsilon
    if epsilon is not None and epsilon == outcome.cell.threat_model.epsilon:
        return np.where(known["success"], 0.0, np.inf)
    return _in_ball(np.where(known["success"], known["distance"], np.inf), cell)


def _reach_transfers(outcome: RunResult, outcomes: Results) -> list[tuple[str, np.ndarray]]:
    """Return names and distances, as from `_reach`, of other models' examples that were tested on the run's model."""
    transfers = []
    for made in outcomes.done:
        fooled = fooled_when_shown(outcomes, made, outcome.cell.subject.key)
        if fooled is None or _goal(made.cell) != _goal(outcome.cell):
            continue
        distance = np.where(fooled, made.columns[distance_norm(outcome.cell.threat_model.norm)], np.inf)
        transfers.append((f"{made.cell.attack} from {made.cell.subject.name}", _in_ball(distance, outcome.cell)))
    return transfers


def _in_ball(distance: np.ndarray, cell: AttackRun) -> np.ndarray:
    if cell.threat_model.epsilon is None:
        return distance
    return np.where(distance <= radius_with_tolerance(cell.threat_model), 0.0, np.inf)


def _wins(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return whether the first distance is clearly smaller than the second, (n,) bool.

    Differences of a few per cent do not count, because searches stop that near to the smallest distance.
    """
    return (first < NEARER * second) & np.isfinite(first)


def _growth_checks(outcomes: Results) -> Iterator[Finding]:
    fixed = [outcome for outcome in outcomes.done if _has_ball(outcome.cell)]
    for cells in _grouped(fixed, lambda cell: (*_settings(cell, skip="step_size"), cell.seed)):
        group = sorted(cells, key=lambda outcome: outcome.cell.threat_model.epsilon or 0.0)
        last = group[-1].cell
        if len({outcome.cell.threat_model.epsilon for outcome in group}) < 2:
            radius = format_radius(last.threat_model.norm, last.threat_model.epsilon or 0.0)
            advice = "run it at two more radii (--epsilon, repeated)"
            judgement = judged("unknown", "only epsilon {radius} was run", advice=advice, radius=radius)
        else:
            judgement = _growth(group)
        yield find_in_cell("epsilon-growth", last, judgement)


def _growth(group: Sequence[RunResult]) -> Judged:
    """Judge whether success grows with the radius. The pair of neighbouring radii with the worst state decides."""
    attacked, images = group[0].results.attacked, group[0].columns["image"]
    fooled = [outcome.columns["success"] & attacked for outcome in group]
    counts = [int(flags.sum()) for flags in fooled]
    lost: dict[str, None] = {}
    significant = False
    for before, after in pairwise(fooled):
        lost |= dict.fromkeys(images[before & ~after].tolist())
        significant |= mcnemar(before, after) < SIGNIFICANT and before.sum() > after.sum()
    flat = counts[-1] <= counts[0] and counts[0] < attacked.sum()
    state = state_of(significant, flat or any(after < before for before, after in pairwise(counts)))
    rules = [outcome.cell.threat_model for outcome in group]
    radii = [format_radius(rule.norm, rule.epsilon or 0.0) for rule in rules]
    steps = ", ".join(f"{count} at {radius}" for count, radius in zip(counts, radii, strict=True))
    numbers = {"attacked": int(attacked.sum()), "steps": steps}
    return judged(state, "fooled of {attacked} images: {steps}", () if state == "pass" else lost, **numbers)


def _seed_checks(outcomes: Results) -> Iterator[Finding]:
    for group in _grouped(outcomes.done, lambda cell: (*_settings(cell), cell.threat_model.epsilon)):
        yield find_in_cell("seeds", group[0].cell, _seeds(group))


def _seeds(group: Sequence[RunResult]) -> Judged:
    cell, attacked = group[0].cell, group[0].results.attacked
    if len(group) < 2 and not cell.row.random:
        return Judged("pass", "the attack uses no random numbers")
    if len(group) < 2:
        advice = "run it with more seeds (--seed, repeated)"
        return judged("unknown", "only seed {seed} was run", advice=advice, seed=cell.seed)
    success = np.stack([outcome.columns["success"] for outcome in group])[:, attacked]
    mixed = np.asarray(success.any(0) & ~success.all(0))
    rates = success.mean(1) if success.shape[1] else np.zeros(len(group))
    share = float(mixed.mean()) if len(mixed) else 0.0
    drawn_by_model = (
        mixed.any() and not cell.row.random
    )  # the attack is deterministic, so the model's randomness changed the outcome
    state = state_of(share > SEED_FAIL or drawn_by_model, share > SEED_WARN)
    sentence = "success {least:.3g} to {most:.3g} over {seeds} seeds; {mixed} of {attacked} images depend on the seed"
    numbers = {"least": rates.min(), "most": rates.max(), "seeds": len(group), "mixed": int(mixed.sum())}
    return judged(state, sentence, group[0].columns["image"][attacked][mixed], attacked=len(mixed), **numbers)


def _library_checks(outcomes: Results) -> Iterator[Finding]:
    """Yield the finding "libraries" for each comparison of implementations, and for attacks of a single library."""
    met = set()
    for contenders in comparisons_of(outcomes):
        met |= {each.cell.key for each in contenders if each.cell is not None}
        done = [each.outcome.cell for each in contenders if each.outcome is not None]
        if done:  # nothing to compare if all failed
            pairs = judge_comparison(contenders)
            pair = min(pairs, key=lambda each: (_ORDER.index(_state_of(each)), np.nan_to_num(each.judgement.p, nan=2)))
            cell = next((each.cell for each in reversed(pair.outcomes)), done[0])
            yield find("libraries", _disagreement(pair), _title(done[0]), cell.key)
    alone: dict[tuple[Any, ...], AttackRun] = {}
    for cell in (outcome.cell for outcome in outcomes.done if outcome.cell.key not in met):
        key = (cell.subject.key, cell.attack_title, *_goal(cell), cell.threat_model.epsilon, cell.seed)
        alone.setdefault(key, cell)
    for cell in alone.values():
        if len(_others(cell)) > 1:
            advice = f"run the attack by its name alone ({cell.row.canonical_name}) to use every library"
            yield find(
                "libraries", Judged("unknown", f"only {cell.attack} was run", advice=advice), _title(cell), cell.key
            )


def _title(cell: AttackRun) -> str:
    return f"{cell.attack_title} ({describe(cell)}) on {cell.subject.name}"


def _disagreement(pair: PairComparison) -> Judged:
    state, judgement, names = _state_of(pair), pair.judgement, f"{pair.a} and {pair.b}"
    if judgement.verdict == "broken":
        detail = f"{judgement.text}, for {names}{f': {judgement.reason}' if judgement.reason else ''}"
    elif not judgement.images:
        detail = f"{names} have no image to compare: {judgement.reason}"
    else:
        only = judgement.only_a + judgement.only_b
        detail = f"{only} of {judgement.images} images are fooled by one of {names} only "
        detail += f"(p = {judgement.p:.2g}, {judgement.pairs} pairs): {judgement.text}"
    detail += pair.causes
    if state == "unknown":
        more = judgement.needed - judgement.images
        return Judged(state, detail, advice=f"run {more} more images (--limit)" if more > 0 else "")
    images: Any = ()
    if state != "pass" and len(pair.outcomes) == 2:
        first, second = (outcome.columns for outcome in pair.outcomes)
        images = first["image"][first["success"] != second["success"]]
    return Judged(state, detail, images)


def _state_of(pair: PairComparison) -> State:
    judgement = pair.judgement
    apart = abs(judgement.only_a - judgement.only_b) > NET_DISAGREEMENT * judgement.images
    if pair.weaker or (judgement.images and apart):
        return "fail" if pair.weaker else "warn"
    return "unknown" if judgement.verdict == "undecided" else "pass"


def _goal(cell: AttackRun) -> tuple[Any, ...]:
    return cell.threat_model.norm, cell.threat_model.targeted, cell.target, cell.pixels


def _settings(cell: AttackRun, skip: str = "") -> tuple[Any, ...]:
    """Return all settings of a run except radius, seed and the parameter `skip`.

    Runs with equal settings form a group.
    """
    shared = [{name: value for name, value in each.parameters.items() if name != skip} for each in cell.members]
    words = json.dumps([shared, dict(cell.grid)], sort_keys=True)
    return cell.subject.key, cell.attack, cell.surrogate, *_goal(cell), words, cell.shard_size, cell.version


def _has_ball(cell: AttackRun) -> bool:
    fixed = canonical_attack(cell.row).kind == "fixed-budget"
    return fixed and not cell.search.searches_radius and cell.threat_model.epsilon is not None


def _others(cell: AttackRun) -> set[str]:
    """Return the names of all libraries that implement the attack of a run in its norm."""
    rows = [row for row in IMPLEMENTATIONS.values() if row.attack == cell.row.canonical_name]
    return {row.library for row in rows if cell.threat_model.norm in row.classes}


def _grouped(done: Iterable[RunResult], key: Callable[[AttackRun], Any]) -> list[list[RunResult]]:
    groups: dict[Any, list[RunResult]] = {}
    for outcome in done:
        groups.setdefault(key(outcome.cell), []).append(outcome)
    return list(groups.values())
