"""The first sentences of the page: what is missing, failed or at chance, then who is first and how sure that is."""

import math
from collections import Counter
from collections.abc import Sequence

from ...adapters.words import radius_text
from ...engine.statistics.paired_tests import least_decisive
from ...engine.statistics.verdict import MARGIN, SIGNIFICANT
from ...engine.store.outcomes import Clean, Outcomes
from ...engine.tables.groups import model_names
from ...intervals import share_interval
from .blocks import Said
from .percent import percent_range, percent_text
from .standings import ModelPlace, Standing, list_standings, right_of

_DIFFERENT = "Significantly different from"
_REASONS = 3  # that are shown of failed cells
_NAMED = 3  # models that a sentence names


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
        verb = "is" if failed == 1 else "are"
        lines.append(f"{_many(failed, 'cell')} failed and {verb} not counted ({examples}{more}).")
    finished = {outcome.cell.subject.key for outcome in outcomes.done}
    for key in dict.fromkeys(cell.subject.key for cell, _ in outcomes.failed):
        if key not in finished:
            lines.append(f"{names[key]}: no cell has a result, so nothing is known of its robustness.")
    for key in find_chance(outcomes):
        lines.append(f"{names[key]}: {_at_chance(outcomes.clean[key])}, so attacks on it say nothing.")
    return lines


def find_chance(outcomes: Outcomes) -> list[str]:
    """Keys of the subjects whose clean accuracy cannot be told from guessing, or is below it."""
    keys = []
    for key, clean in outcomes.clean.items():
        right = right_of(clean)
        if share_interval(int(right.sum()), len(right))[0] <= 1 / clean.logits.shape[1]:
            keys.append(key)
    return keys


def judge_first_places(outcomes: Outcomes, standings: Sequence[Standing]) -> list[Said]:
    """For each threat model: who is first, how sure that is, and whether a paired test tells it apart."""
    others = len(_all_models(outcomes)) - 1
    return [_judge_first(each, others) for each in standings]


def order_models(outcomes: Outcomes) -> list[str]:
    """Names of the models, the most robust under the first threat model before the others."""
    standings = list_standings(outcomes, find_chance(outcomes))
    return list(dict.fromkeys(place.model for each in standings for place in each.places))


def _judge_first(standing: Standing, others: int) -> Said:
    if not standing.places:
        return Said(f"{standing.threat}: every model with a result is at chance when clean: there is no first place.")
    first, norm = standing.places[0], standing.norm
    if not norm:
        value = f"keeps {percent_text(first.value)} of its {first.images} images right under every attack"
        known = f"95 % interval {percent_range(first.low, first.high)}"
    else:
        known = _range(norm, first)
        median = "no attack fools half of them" if math.isinf(first.value) else f"median {_value(first, norm)}"
        value = f"needs the largest change over its {first.images} images: {median}"
    shared = any(not place.apart and not math.isnan(place.p) for place in standing.places[1:])
    verb = "ranks first, but not significantly: it " if shared else ""
    text = f"{verb}{value} ({known}); {standing.threat}."
    if len(standing.places) == 1:
        proof = "It is the only model." if not others else f"{_many(others, 'other model')} cannot be compared with it."
    else:
        proof = _compare(standing) + ("" if standing.even else " Not the same attacks have a result on all of them.")
    return Said(text, lead=first.model, proof=proof)


def _range(norm: str, place: ModelPlace) -> str:
    """The interval of a median; what is infinite is more than any attack found."""
    if math.isnan(place.low):
        return "too few images for an interval"
    low, high = (radius_text(norm, float(f"{end:.3g}")) for end in (place.low, place.high))
    if math.isinf(place.low):
        return "more than any attack found, with 95 % confidence"
    return f"95 % interval {low} upwards" if math.isinf(place.high) else f"95 % interval {low} to {high}"


def _compare(standing: Standing) -> str:
    first, *rest = standing.places
    norm = standing.norm
    known = [place for place in rest if not math.isnan(place.p)]
    if not known:
        return f"{_names(rest)} saw other images: no paired test is possible."
    strangers = [place for place in rest if math.isnan(place.p)]
    aside = f" {_names(strangers)} saw other images and cannot be compared." if strangers else ""
    test, largest = "sign test" if norm else "exact McNemar", max(place.p for place in known)
    if all(place.apart for place in known):
        if len(known) > 1:
            return f"{_DIFFERENT} each of the {len(known)} others: largest {test} p = {largest:.2g}.{aside}"
        return f"{_DIFFERENT} {known[0].model} ({_value(known[0], norm)}): {test} p = {largest:.2g}.{aside}"
    power = _power(first.images, SIGNIFICANT / len(known))
    if len(known) > 1:
        close = [place for place in known if not place.apart]
        verb = "does" if len(close) == 1 else "do"
        shared = f"{len(close)} of the {len(known)} others {verb} not differ significantly from it: {_names(close)}"
        return f"{shared} ({test}, Bonferroni; {power}).{aside}"
    same = _value(first, norm) == _value(known[0], norm)
    other = f"{known[0].model}, which {'needs' if norm else 'keeps'} as much" if same else known[0].model
    margin = f"; equivalent within {MARGIN:.0%}" if standing.equivalent else ""
    value = "" if same else f" ({_value(known[0], norm)})"
    return f"Not significantly different from {other}{value}{margin}: {test} p = {largest:.2g}; {power}.{aside}"


def _value(place: ModelPlace, norm: str) -> str:
    return radius_text(norm, float(f"{place.value:.3g}")) if norm else percent_text(place.value)


def _power(images: int, level: float) -> str:
    """What so many images can show at all."""
    least = least_decisive(level)
    if images < least:
        few = f"with {_many(images, 'image')}, no outcome can be significant"
        return f"{few}: at least {least} are needed, {least - images} more"
    return f"with {images} images, only differences of at least {least} images can be detected"


def _names(places: Sequence[ModelPlace]) -> str:
    rest = len(places) - _NAMED
    return ", ".join(place.model for place in places[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _all_models(outcomes: Outcomes) -> set[tuple[str, str]]:
    """Names with digests, one for each model on however many sets of images."""
    unfinished = [cell.subject for cell in (*outcomes.running, *outcomes.waiting)]
    return {(each.model, each.model_digest) for each in (*outcomes.subjects.values(), *unfinished)}


def _at_chance(clean: Clean) -> str:
    right = right_of(clean)
    low, high = share_interval(int(right.sum()), len(right))
    classes = clean.logits.shape[1]
    return (
        f"right on {int(right.sum())} of {len(right)} clean images ({low:.2g} to {high:.2g}), "
        f"not distinguishable from guessing one of {classes} classes"
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
