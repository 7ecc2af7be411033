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
from .image_outcomes import Kept, right_of
from .listing import listed
from .percent import percent_range, percent_text
from .standings import ModelPlace, Standing, list_standings

_DIFFERENT = "Significantly different from"


def write_caveats(outcomes: Outcomes) -> list[str]:
    """A sentence for all that forbids to read the folder as a finished evaluation of sound models."""
    lines, done, names = [f"{line}." for line in outcomes.unsteady], len(outcomes.done), model_names(outcomes)
    missing, failed = len(outcomes.running) + len(outcomes.waiting), len(outcomes.failed)
    if missing:
        every = done + failed + missing
        lines.append(f"Not finished: {missing} of {every} cells have no result yet; what this page says may change.")
    if outcomes.damaged:
        lines.append(f"{_many(len(outcomes.damaged), 'damaged file')} left out; evaluate again.")
    if failed:
        reasons = Counter(f"{cell.title} on {names[cell.subject.key]}: {why}" for cell, why in outcomes.failed)
        examples = listed(list(reasons), between="; ")
        verb = "is" if failed == 1 else "are"
        lines.append(f"{_many(failed, 'cell')} failed and {verb} not counted ({examples}).")
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
        return Said(f"{standing.threat}: {standing.why}.")
    first = standing.places[0]
    if math.isnan(first.kept.value):
        why = "every image is undecided, as a result broke a rule and no attack fools it: there is no first place"
        return Said(f"{standing.threat}: {why}.")
    leaders, rest = standing.places[: standing.tied], standing.places[standing.tied :]
    if len(leaders) > 1:
        lead = listed([place.model for place in leaders], last=" and ")
        verb = f"tie{' for the first place' if rest else ''}: each "
    else:
        shared = any(not place.apart and not math.isnan(place.p) for place in rest)
        lead, verb = first.model, "ranks first, but not significantly: it " if shared else ""
    text = f"{verb}{_claim(standing, leaders)}; {standing.threat}."
    if len(standing.places) == 1:
        proof = "It is the only model." if not others else f"{_many(others, 'other model')} cannot be compared with it."
        return Said(text, lead=lead, proof=" ".join([proof, *_write_left(standing)]))
    proofs = [_compare_tied(standing, leaders)] if len(leaders) > 1 else []
    proofs += [_compare(standing, rest)] if rest else []
    return Said(text, lead=lead, proof=" ".join(proofs + _write_limits(standing)))


def _claim(standing: Standing, leaders: Sequence[ModelPlace]) -> str:
    """What is left of the first, or of each of those that tie, with its interval and what is undecided."""
    first, norm, kept = leaders[0], standing.norm, leaders[0].kept
    if any(_counts(place) != _counts(first) for place in leaders):
        size, known = "its images", "the figure has the interval of each"
    else:
        decided = f"{kept.images - kept.undecided} decided" if kept.undecided else f"{kept.images}"
        size, known = f"its {decided} images", "; ".join([*_undecided(kept, norm), _range(norm, kept)])
    if norm and any(place.clean < 1 for place in leaders):
        size += ", 0 where wrong when clean"
    if not norm:
        share, under = percent_text(kept.value), f"under {standing.under}"
        draws = " by shares of its draws" if first.random else ""
        if standing.targeted:
            return f"is right when clean and not driven to the target on {share} of {size}{draws} {under} ({known})"
        return f"keeps {share} of {size} right{draws} {under} ({known})"
    under = f" under {standing.under}" if standing.left else ""
    aim = " to the target" if standing.targeted else ""
    if math.isinf(kept.value):
        done = "driven to the target" if standing.targeted else "fooled"
        return f"{_few_fooled(kept, size, done)}{under or ' by any attack'}, so that no median is known ({known})"
    if len(leaders) > 1 or len(standing.places) == 1:
        return f"needs a change of {_value(first, norm)}{aim} in the median over {size}{under} ({known})"
    return f"needs the largest change{aim} over {size}{under}: median {_value(first, norm)} ({known})"


def _few_fooled(kept: Kept, size: str, done: str) -> str:
    """On how many images a model was found wrong at all, which is less than half of them."""
    if kept.unfooled + kept.undecided == kept.images:
        return f"is {done} on none of {size}"
    number = kept.images - kept.undecided - kept.unfooled
    return f"is wrong when clean or {done} on {number} of {size}"


def _counts(place: ModelPlace) -> tuple[object, ...]:
    """What must be the same for one sentence to be about several models."""
    kept = place.kept
    return kept.images, kept.undecided, str(kept.low), str(kept.high), place.random


def _undecided(kept: Kept, norm: str) -> list[str]:
    """How many images are undecided, and what the share of all is between."""
    if not kept.undecided:
        return []
    text = f"{kept.undecided} of {kept.images} are undecided: a result broke a rule, no attack fools them"
    if norm:
        return [text]
    return [f"{text}; {percent_text(kept.least)} of all if they are fooled, {percent_text(kept.most)} if not"]


def _range(norm: str, kept: Kept) -> str:
    """The interval; an end of a median that is infinite is more than any attack found."""
    if not norm:
        return f"95 % interval {percent_range(kept.low, kept.high)}"
    if math.isnan(kept.low):
        return "too few images for an interval"
    low, high = (radius_text(norm, float(f"{end:.3g}")) for end in (kept.low, kept.high))
    if math.isinf(kept.low):
        return "more than any attack found, with 95 % confidence"
    return f"95 % interval {low} upwards" if math.isinf(kept.high) else f"95 % interval {low} to {high}"


def _compare_tied(standing: Standing, leaders: Sequence[ModelPlace]) -> str:
    """Whether those that share the first place are told apart image by image."""
    tests = [place.p for place in leaders[1:] if not math.isnan(place.p)]
    if not tests:
        return _why_untested(leaders[1:])
    least = "" if len(tests) == 1 else "least "
    p = f"{least}{_test_name(standing)} p = {min(tests):.2g}"
    if any(place.apart for place in leaders):
        return f"Image by image they are significantly different all the same: {p}."
    margin = f"; equivalent within {MARGIN:.0%}" if standing.equivalent else ""
    pairs = [place.pairs for place in leaders[1:] if place.pairs]
    return f"Not significantly different{margin}: {p}; {_power(min(pairs), _level(standing))}."


def _compare(standing: Standing, rest: Sequence[ModelPlace]) -> str:
    """Whether the others are told from the first, or from all that share its place."""
    norm, test = standing.norm, _test_name(standing)
    known = [place for place in rest if not math.isnan(place.p)]
    strangers = [place for place in rest if math.isnan(place.p)]
    if not known:
        return _why_untested(strangers)
    aside = f" {_why_untested(strangers)}" if strangers else ""
    largest = max(place.p for place in known)
    if all(place.apart for place in known):
        if len(known) > 1:
            return f"{_DIFFERENT} each of the {len(known)} others: largest {test} p = {largest:.2g}.{aside}"
        return f"{_DIFFERENT} {known[0].model} ({_value(known[0], norm)}): {test} p = {largest:.2g}.{aside}"
    power = _power(min(place.pairs or 0 for place in known), _level(standing))
    if len(known) > 1:
        close = [place for place in known if not place.apart]
        verb = "does" if len(close) == 1 else "do"
        shared = f"{len(close)} of the {len(known)} others {verb} not differ significantly from it: {_names(close)}"
        return f"{shared} ({test}, Bonferroni; {power}).{aside}"
    margin = f"; equivalent within {MARGIN:.0%}" if standing.equivalent else ""
    other = f"{known[0].model} ({_value(known[0], norm)}){margin}"
    return f"Not significantly different from {other}: {test} p = {largest:.2g}; {power}.{aside}"


def _write_limits(standing: Standing) -> list[str]:
    """What the tests leave out, and what could turn them round."""
    lines = []
    tested = [place for place in standing.places if place.pairs]
    fewest = min((place.pairs or 0 for place in tested), default=0)
    if tested and any(place.kept.undecided for place in standing.places):
        least = "" if len(tested) == 1 else ", at least"
        lines.append(f"Compared on the images that are decided on both{least}: {fewest}.")
    first = standing.places[0].kept
    turned = [place for place in standing.places if place.apart and place.kept.most > first.least]
    if turned:
        lines.append(f"What is undecided could turn the order round: {_names(turned)}.")
    return lines + _write_left(standing)


def _write_left(standing: Standing) -> list[str]:
    """A sentence on the attacks that do not count, as not all of the models have a result of them."""
    if not standing.left:
        return []
    parts = [f"{attack} (no result on {listed(models)})" for attack, models in standing.left.items()]
    return [f"Left out: {listed(parts)}."]


def _why_untested(places: Sequence[ModelPlace]) -> str:
    """Why no paired test is possible with some models."""
    saw = [place for place in places if place.pairs is None]
    nothing = [place for place in places if place.pairs is not None]
    lines = [f"{_names(saw)} saw other images: no paired test is possible."] if saw else []
    lines += [f"No image is decided on both with {_names(nothing)}: no paired test is possible."] if nothing else []
    return " ".join(lines)


def _test_name(standing: Standing) -> str:
    name = "sign test" if standing.norm else "exact McNemar"
    return f"{name} by the majority of draws" if any(place.random for place in standing.places) else name


def _value(place: ModelPlace, norm: str) -> str:
    kept = place.kept
    if not norm or math.isnan(kept.value):
        return percent_text(kept.value)
    if math.isinf(kept.value):
        return f"{kept.unfooled} of {kept.images} never fooled"
    return radius_text(norm, float(f"{kept.value:.3g}"))


def _level(standing: Standing) -> float:
    """Of each of the tests against the first, by Bonferroni."""
    return SIGNIFICANT / sum(not math.isnan(place.p) for place in standing.places)


def _power(images: int, level: float) -> str:
    """What so many images can show at all."""
    least = least_decisive(level)
    if images < least:
        few = f"with {_many(images, 'image')}, no outcome can be significant"
        return f"{few}: at least {least} are needed, {least - images} more"
    return f"with {images} images, only differences of at least {least} images can be detected"


def _names(places: Sequence[ModelPlace]) -> str:
    return listed([place.model for place in places])


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
