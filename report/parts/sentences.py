"""Writes the opening sentences of the report: the most robust model, the strongest attack, and missing results."""

import math
from collections.abc import Sequence

from ...adapters.display_text import format_radius
from ...engine.checks.check_folder import check_completeness
from ...engine.checks.standings import RobustnessEstimate, StandingRow, ThreatModelRanking, listed
from ...engine.finding import Finding
from ...engine.statistics.paired_tests import min_images_for_significance
from ...engine.statistics.verdict import MARGIN
from ...engine.store.results import Results
from .blocks import Statement

_DIFFERENT = "Significantly different from"


def percent_text(share: float) -> str:
    """Format a proportion in per cent: "18 %", "2.5 %", "0.04 %". Only exactly 0 and 1 give "0 %" and "100 %"."""
    value = 100 * share
    if math.isnan(value):
        return "unknown"
    if value in (0, 100):
        return f"{value:.0f} %"
    text = f"{value:.0f}" if 10 <= value < 99.5 else f"{value:.3g}" if value >= 99.5 else f"{value:.2g}"
    return f"{'> 99.9' if text == '100' else text} %"


def percent_range(low: float, high: float) -> str:
    """Format the bounds of an interval in per cent: "8.6 to 31 %"."""
    return f"{percent_text(low).removesuffix(' %')} to {percent_text(high)}"


def value_text(place: StandingRow, norm: str) -> str:
    """Format the robust accuracy of a model, or its median robust distance."""
    kept = place.kept
    if not norm or math.isnan(kept.value):
        return percent_text(kept.value)
    if math.isinf(kept.value):
        return f"{kept.unfooled} of {kept.images} never fooled"
    return format_radius(norm, float(f"{kept.value:.3g}"))


def say_missing(outcomes: Results, checks: Sequence[Finding]) -> tuple[Statement, ...]:
    """Return a sentence for each result that a finished evaluation would have and this one lacks."""
    nowhere = {"complete": "", "few-images": ""}  # shown elsewhere on the page
    lines = [
        Statement(each.detail, each.state, nowhere.get(each.name, "provenance"))
        for each in check_completeness(outcomes)
    ]
    unknown = [check for check in checks if check.state == "unknown"]
    not_run = sum("--probe" in check.advice or check.detail == "not run yet" for check in unknown)
    texts = [f"{not_run} of {len(checks)} checks were not run: `davylamp check FOLDER --probe`."] if not_run else []
    if rest := len(unknown) - not_run:
        which = "more" if not_run else f"of {len(checks)} checks"
        texts.append(f"{rest} {which} cannot be decided from these records.")
    return (*lines, Statement(" ".join(texts), "unknown", "trust")) if texts else tuple(lines)


def say_best_models(outcomes: Results, standings: Sequence[ThreatModelRanking]) -> list[Statement]:
    """Describe for each threat model which model ranks first, its uncertainty, and the paired tests."""
    unfinished = [cell.subject for cell in (*outcomes.running, *outcomes.waiting)]
    models = {(each.model, each.model_digest) for each in (*outcomes.subjects.values(), *unfinished)}
    return [_say_best_model(each, len(models) - 1) for each in standings]


def _say_best_model(standing: ThreatModelRanking, others: int) -> Statement:
    if not standing.places:
        return Statement(f"{standing.threat}: {standing.why}.")
    first, leaders, rest = standing.places[0], standing.tied, standing.rest
    if math.isnan(first.value):
        why = "every image is undecided (an invalid result, and no attack fooled it), so no model ranks first"
        return Statement(f"{standing.threat}: {why}.")
    if len(leaders) > 1:
        lead = listed([place.name for place in leaders], last=" and ")
        verb = f"tie{' for the first place' if rest else ''}: each "
    else:
        shared = any(not place.apart and not math.isnan(place.p) for place in rest)
        lead, verb = first.name, "ranks first, but not significantly: it " if shared else ""
    text = f"{verb}{_claim(standing)}; {standing.threat}."
    left = [f"{attack} (no result on {listed(models)})" for attack, models in (standing.left or {}).items()]
    left = [f"Omitted: {listed(left)}."] if left else []
    if len(standing.places) == 1:
        proof = "It is the only model." if not others else f"{_many(others, 'other model')} cannot be compared with it."
        return Statement(text, lead=lead, proof=" ".join([proof, *left]))
    proofs = [_compare_tied(standing)] if len(leaders) > 1 else []
    proofs += [_compare_rest(standing)] if rest else []
    return Statement(text, lead=lead, proof=" ".join([*proofs, *_limits(standing), *left]))


def _claim(standing: ThreatModelRanking) -> str:
    """Describe the models in first place: accuracy or distance, interval, undecided images."""
    first, norm, leaders = standing.places[0], standing.norm, standing.tied
    kept = first.kept
    counts = {(str(each.low), str(each.high), each.images, each.kept.undecided, each.drawn) for each in leaders}
    if len(counts) > 1:
        size, known = "its images", "the figure has the interval of each"
    else:
        decided = f"{kept.images - kept.undecided} decided" if kept.undecided else f"{kept.images}"
        size, known = f"its {decided} images", "; ".join([*_undecided(kept, norm), _range(norm, kept)])
    if norm and any(place.clean < 1 for place in leaders):
        size += ", 0 if misclassified when clean"
    if not norm:
        share, under = percent_text(kept.value), f"under {standing.attacks_text}"
        draws = " by rates over its samples" if first.drawn else ""
        if standing.targeted:
            return (
                f"is correct when clean and does not predict the target on {share} of {size}{draws} {under} ({known})"
            )
        return f"classifies {share} of {size} correctly{draws} {under} ({known})"
    under = f" under {standing.attacks_text}" if standing.left else ""
    aim = " to the target" if standing.targeted else ""
    if math.isinf(kept.value):
        done = "classified as the target" if standing.targeted else "fooled"
        number = kept.images - kept.undecided - kept.unfooled
        few = (
            f"is misclassified when clean or {done} on {number} of {size}" if number else f"is {done} on none of {size}"
        )
        return f"{few}{under or ' by any attack'}, so the median is unknown ({known})"
    if len(leaders) > 1 or len(standing.places) == 1:
        return f"needs a change of {value_text(first, norm)}{aim} in the median over {size}{under} ({known})"
    return f"needs the largest change{aim} over {size}{under}: median {value_text(first, norm)} ({known})"


def _undecided(kept: RobustnessEstimate, norm: str) -> list[str]:
    """Describe how many images are undecided, and the resulting bounds on robust accuracy over all images."""
    if not kept.undecided:
        return []
    text = f"{kept.undecided} of {kept.images} are undecided: a result is invalid, and no attack fools them"
    bounds = f"; {percent_text(kept.least)} of all if they are fooled, {percent_text(kept.most)} if not"
    return [text if norm else text + bounds]


def _range(norm: str, kept: RobustnessEstimate) -> str:
    """Describe the 95 % interval of a robust accuracy, or of a median distance.

    The upper bound of a median is infinite if it is larger than every distance that was found.
    """
    if not norm:
        return f"95 % interval {percent_range(kept.low, kept.high)}"
    if math.isnan(kept.low):
        return "too few images for an interval"
    if math.isinf(kept.low):
        return "more than any attack found, with 95 % confidence"
    low, high = (format_radius(norm, float(f"{end:.3g}")) for end in (kept.low, kept.high))
    return f"95 % interval {low} upwards" if math.isinf(kept.high) else f"95 % interval {low} to {high}"


def _compare_tied(standing: ThreatModelRanking) -> str:
    others = standing.tied[1:]
    tests = [place.p for place in others if not math.isnan(place.p)]
    if not tests:
        return _why_untested(others)
    p = f"{'' if len(tests) == 1 else 'least '}{_test_name(standing)} p = {min(tests):.2g}"
    if any(place.apart for place in others):
        return f"The paired test over images is nevertheless significant: {p}."
    margin = f"; equivalent within {MARGIN:.0%}" if standing.equivalent else ""
    fewest = min(place.pairs for place in others if place.pairs)
    return f"Not significantly different{margin}: {p}; {_power(fewest, standing.level)}."


def _compare_rest(standing: ThreatModelRanking) -> str:
    norm, test = standing.norm, _test_name(standing)
    known = [place for place in standing.rest if not math.isnan(place.p)]
    strangers = [place for place in standing.rest if math.isnan(place.p)]
    if not known:
        return _why_untested(strangers)
    aside = f" {_why_untested(strangers)}" if strangers else ""
    largest, close = max(place.p for place in known), [place for place in known if not place.apart]
    one = f"{known[0].name} ({value_text(known[0], norm)})"
    if not close and len(known) > 1:
        return f"{_DIFFERENT} each of the {len(known)} others: largest {test} p = {largest:.2g}.{aside}"
    if not close:
        return f"{_DIFFERENT} {one}: {test} p = {largest:.2g}.{aside}"
    power = _power(min(place.pairs or 0 for place in known), standing.level)
    if len(known) > 1:
        verb = "does" if len(close) == 1 else "do"
        shared = f"{len(close)} of the {len(known)} others {verb} not differ significantly from it: {_names(close)}"
        return f"{shared} ({test}, Bonferroni; {power}).{aside}"
    margin = f"; equivalent within {MARGIN:.0%}" if standing.equivalent else ""
    return f"Not significantly different from {one}{margin}: {test} p = {largest:.2g}; {power}.{aside}"


def _limits(standing: ThreatModelRanking) -> list[str]:
    """Describe images that are excluded from the tests, and results that could reverse the order."""
    lines, first = [], standing.places[0].kept
    tested = [place.pairs for place in standing.places if place.pairs]
    if tested and any(place.kept.undecided for place in standing.places):
        least = "" if len(tested) == 1 else ", at least"
        lines.append(f"Compared on the images decided for both models{least}: {min(tested)}.")
    turned = [place for place in standing.places if place.apart and place.kept.most > first.least]
    return [*lines, f"The undecided images could reverse this order: {_names(turned)}."] if turned else lines


def _why_untested(places: Sequence[StandingRow]) -> str:
    saw = [place for place in places if place.pairs is None]
    nothing = [place for place in places if place.pairs is not None]
    lines = [f"{_names(saw)}: evaluated on different images, so no paired test is possible."] if saw else []
    lines += [f"No image is decided for both with {_names(nothing)}, so no paired test is possible."] if nothing else []
    return " ".join(lines)


def _test_name(standing: ThreatModelRanking) -> str:
    name = "sign test" if standing.norm else "exact McNemar"
    return f"{name} by the majority of samples" if any(place.drawn for place in standing.places) else name


def _power(images: int, level: float) -> str:
    """Describe the smallest difference that a test with this number of images can detect."""
    least = min_images_for_significance(level)
    if images < least:
        few = f"with {_many(images, 'image')}, no outcome can be significant"
        return f"{few}: at least {least} are needed, {least - images} more"
    return f"with {images} images, only differences of at least {least} images can be detected"


def say_strongest_attacks(standings: Sequence[ThreatModelRanking]) -> list[Statement]:
    """Describe for each threat model with a radius which attack fools most images over all models."""
    return [_say_strongest(each) for each in standings]


def _say_strongest(standing: ThreatModelRanking) -> Statement:
    threat, first, tied, rest = standing.threat, standing.places[0], standing.tied, standing.rest
    broken = sum(each.violations for each in standing.places)
    if math.isnan(first.value):
        return Statement(f"{threat}: no image was attacked.")
    if first.value == 0:
        images = f"{first.images} attacked images" if standing.targeted else ""
        does = (
            f"reaches the target on any of the {images}"
            if images
            else f"fools any of the {first.images} attacked images"
        )
        return Statement(f"{threat}: no attack {does}{f'; {_broke(broken)}' if broken else ''}.", link="trust")
    others = standing.others
    fewer = f" {others} run on other models {'is' if others == 1 else 'are'} omitted." if others else ""
    lead, text = _name_first(standing)
    text = f"{text}; {threat}{', ranked by how often the target is reached' if standing.targeted else ''}."
    if len(standing.places) == 1:
        return Statement(
            text, lead=lead, proof=f"No other attack was run on the same models.{fewer}", link="leaderboard"
        )
    aside = " Invalid results count as not fooled and are excluded from the tests: "
    aside = f"{aside}{_broken(rest)}." if _broken(rest) else ""
    unseen = [each.name for each in (*tied[1:], *rest) if not each.pairs]
    proofs = [_compare_attacks(standing)] if len(unseen) < len(standing.places) - 1 else []
    proofs += [f"No test, because no image is decided under both {first.name} and {listed(unseen)}"] if unseen else []
    return Statement(text, lead=lead, proof=f"{'. '.join(proofs)}.{aside}{fewer}", link="leaderboard")


def _name_first(standing: ThreatModelRanking) -> tuple[str, str]:
    tied, first, models = standing.tied, standing.places[0], len(standing.places[0].results)
    size = f"{first.images} attacked images" if len({each.images for each in tied}) == 1 else "its attacked images"
    size += f" of {models} models" if models > 1 else ""
    broken = {each.violations for each in tied}
    known = f"95 % interval {percent_range(first.low, first.high)}"
    if len(broken) > 1:
        known = f"invalid results count as not fooled: {_broken(tied)}"
    elif first.violations:
        known += f"; {_broke(first.violations)}"
    share = percent_text(first.value)
    does = f"reaches the target on {share} of {size}" if standing.targeted else f"fools {share} of {size}"
    if len(tied) == 1:
        return first.name, f"{does} ({known})"
    tie = f"tie{' for the first place' if standing.rest else ''}: each {does} ({known})"
    return listed([each.name for each in tied], last=" and "), tie


def _compare_attacks(standing: ThreatModelRanking) -> str:
    tied, rest = ([each for each in those if each.pairs] for those in (standing.tied[1:], standing.rest))
    images, least = min(each.pairs or 0 for each in (*tied, *rest)), min_images_for_significance(standing.level)
    few = f"; {images} images are too few for a significant difference; at least {least} are needed"
    few = few if images < least else ""
    if not rest:
        p = min(each.p for each in tied)
        differ = (
            "Not significantly different"
            if p >= standing.level
            else "Equal medians, but significantly different image by image"
        )
        return f"{differ}: {'' if len(tied) == 1 else 'least '}sign test p = {p:.2g}{few}"
    close = [each for each in rest if not each.apart]
    largest = max(each.p for each in (rest if not close else (*tied, *rest)))
    if not close and len(rest) == 1:
        return f"More than {rest[0].name} ({percent_text(rest[0].value)}): sign test p = {largest:.2g}"
    if not close:
        return f"More than each of the {len(rest)} others: largest sign test p = {largest:.2g}"
    names = listed([f"{each.name} ({percent_text(each.value)})" for each in close])
    test = f"sign test p = {largest:.2g}" if len(rest) == 1 and not tied else "sign tests, Bonferroni"
    return f"Not significantly different from {names}: {test}{few}"


def _broke(count: int) -> str:
    return (
        f"{_many(count, 'result')} {'is invalid and counts' if count == 1 else 'are invalid and count'} as not fooled"
    )


def _broken(places: Sequence[StandingRow]) -> str:
    return listed([f"{each.name} {each.violations}" for each in places if each.violations])


def _names(places: Sequence[StandingRow]) -> str:
    return listed([place.name for place in places])


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
