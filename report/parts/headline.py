"""The first sentences of the page: what is missing, failed or at chance, then who is first and how sure that is."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from ...adapters.words import threat_text
from ...engine.statistics.verdict import MARGIN, judge_rates
from ...engine.store.outcomes import Clean, Outcomes
from ...engine.tables.groups import Group, group_cells, model_names
from ...intervals import share_interval

_REASONS = 3  # that are shown of failed cells


def write_caveats(outcomes: Outcomes) -> list[str]:
    """A sentence for all that forbids to read the folder as a finished evaluation of sound models."""
    lines, done, names = [], len(outcomes.done), model_names(outcomes)
    missing, failed = len(outcomes.running) + len(outcomes.waiting), len(outcomes.failed)
    if missing:
        every = done + failed + missing
        lines.append(f"Not finished: {missing} of {every} cells have no result yet; what this page says may change.")
    if outcomes.damaged:
        lines.append(f"{_many(len(outcomes.damaged), 'damaged file')} left out; evaluate again.")
    if failed:
        reasons = Counter(f"{cell.title} on {names[cell.subject.key]}: {why}" for cell, why in outcomes.failed)
        more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
        examples = "; ".join(list(reasons)[:_REASONS])
        lines.append(f"{_many(failed, 'cell')} failed and count for nobody ({examples}{more}).")
    finished = {outcome.cell.subject.key for outcome in outcomes.done}
    for key in dict.fromkeys(cell.subject.key for cell, _ in outcomes.failed):
        if key not in finished:
            lines.append(f"{names[key]}: no cell has a result, so nothing is known of its robustness.")
    for key in find_chance(outcomes):
        lines.append(f"{names[key]}: {_at_chance(outcomes.clean[key])}, so no attack can say anything about it.")
    return lines


def find_chance(outcomes: Outcomes) -> list[str]:
    """Keys of the subjects whose clean accuracy cannot be told from guessing, or is below it."""
    keys = []
    for key, clean in outcomes.clean.items():
        right = clean.columns["predicted"] == clean.columns["label"]
        if share_interval(int(right.sum()), len(right))[0] <= 1 / clean.logits.shape[1]:
            keys.append(key)
    return keys


def judge_first_places(outcomes: Outcomes) -> list[str]:
    """A sentence for each threat model with a radius: who is first, and whether a paired test tells it apart."""
    threats: dict[str, list[Group]] = {}
    for group in group_cells(outcomes, "models"):
        if group.parts and group.parts[0][0].cell.threat_model.epsilon is not None:
            threats.setdefault(threat_of(group), []).append(group)
    guessing, subjects = set(find_chance(outcomes)), _all_subjects(outcomes)
    lines = [f"{threat}: {_judge_first(each, guessing, subjects)}" for threat, each in sorted(threats.items())]
    return lines or [
        "No attack inside a ball has a result, so there is no worst case; see Curves for the smallest changes."
    ]


def robust_to_all(group: Group) -> np.ndarray:
    """Images that every attack of a row leaves robust, (n,) bool."""
    return np.logical_and.reduce([outcome.columns["robust"] for part in group.parts for outcome in part])


def threat_of(group: Group) -> str:
    """The threat model of a row, and what tells it apart from rows of the same."""
    setting = f", {group.labels['setting']}" if group.labels["setting"] else ""
    return threat_text(group.parts[0][0].cell.threat_model) + setting


def _judge_first(groups: Sequence[Group], guessing: Collection[str], subjects: Collection[str]) -> str:
    sound = [group for group in groups if group.parts[0][0].cell.subject.key not in guessing]
    if not sound:
        return "every model with a result is at chance when clean: there is no first place."
    first, *rest = sorted(sound, key=lambda group: -robust_to_all(group).mean())
    if not rest:
        others = len(subjects) - 1
        rivals = "it is the only model" if not others else f"{_many(others, 'other model')} cannot be compared with it"
        return f"{first.labels['model']} keeps {_share(first)} of its images in the worst case; {rivals}."
    return _compare(first, rest[0])


def _compare(first: Group, second: Group) -> str:
    """The two best, by the rule of the verdicts."""
    name, other = first.labels["model"], second.labels["model"]
    a, b = first.parts[0][0].cell.subject, second.parts[0][0].cell.subject
    if a.data_digest != b.data_digest:
        return (
            f"{name} keeps {_share(first)}; {other} ({_share(second)}) saw other images, so no paired test is possible."
        )
    robust = robust_to_all(first), robust_to_all(second)
    attacks = [{outcome.cell.title for part in group.parts for outcome in part} for group in (first, second)]
    unequal = "" if attacks[0] == attacks[1] else " Not the same attacks have a result on both."
    outcome = judge_rates((name, other), *robust)
    p, n = outcome.p_success, outcome.images
    if outcome.verdict == "weaker":
        sentence = f"{name} leads with {_share(first)}, distinguishable from {other} ({_share(second)}): "
        return f"{sentence}exact McNemar p = {p:.2g}, n = {n}.{unequal}"
    if _share(first) == _share(second):
        sentence = f"{name} and {other} both keep {_share(first)}"
    else:
        sentence = f"{name} leads with {_share(first)}, not distinguishable from {other} ({_share(second)})"
    if outcome.verdict == "equivalent":
        sentence += f", equivalent within {MARGIN:.0%}"
    return f"{sentence}: exact McNemar p = {p:.2g}; {outcome.power}.{unequal}"


def _share(group: Group) -> str:
    return f"{robust_to_all(group).mean():.3g}"


def _all_subjects(outcomes: Outcomes) -> set[str]:
    cells = [*outcomes.running, *outcomes.waiting]
    return {*outcomes.subjects, *(cell.subject.key for cell in cells)}


def _at_chance(clean: Clean) -> str:
    right = clean.columns["predicted"] == clean.columns["label"]
    low, high = share_interval(int(right.sum()), len(right))
    classes = clean.logits.shape[1]
    return (
        f"right on {int(right.sum())} of {len(right)} clean images ({low:.2g} to {high:.2g}), "
        f"which cannot be told from guessing one of {classes} classes"
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
