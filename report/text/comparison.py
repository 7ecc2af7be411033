"""Output of a library comparison: tables for the terminal, and a JSON document."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...adapters.catalogue.known_issues import FINDINGS
from ...adapters.display_text import format_radius, format_threat_model
from ...adapters.result import AttackResult
from ...engine.checks.verdicts import PairComparison
from ...engine.comparison.compare import Comparison, ImplementationResult, verdict_groups
from ...engine.run.provenance import versions
from ...engine.searches.saturation import SaturatedResult
from ...engine.statistics.paired_tests import min_images_for_equivalence
from ...engine.statistics.verdict import DISTANCE_MARGIN, MARGIN, SIGNIFICANT
from .console import KEPT, PlainConsole, format_cell, interval_text, print_notes, print_table, to_csv

_ROW_COLUMNS = {  # columns after the rate and its interval: heading and metric
    "l0": "l0_median", "l1": "l1_median", "l2 median": "l2_median", "l2 mean": "l2_mean", "linf median": "linf_median",
    "forwards": "forwards_median", "forwards max": "forwards_max", "backwards": "backwards_median",
    "backwards max": "backwards_max", "s/image": "seconds_per_image", "violations": "violations",
}  # fmt: skip
_NUMBERS = (  # columns after those of the rate
    "robust", "AMD", "AED", "l0_median", "l0_mean", "l1_median", "l1_mean",
    "l2_median", "l2_mean", "linf_median", "linf_mean", "forwards_median", "forwards_max", "backwards_median",
    "backwards_max", "seconds_per_image", "below_grey_level", "violations", "violation_kinds",
)  # fmt: skip


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON types, with undefined values as null.

    `chosen` lists the defaults that were used, `differing_defaults` those of each library if these were used, `notes`
    the warnings, errors and known issues, `versions` those of davylamp and of the libraries.
    """
    threat_model = comparison.threat_model
    document = {
        "attack": comparison.attack,
        "threat_model": {
            "norm": threat_model.norm,
            "epsilon": threat_model.epsilon,
            "targeted": threat_model.targeted,
        },
        "parameters": dict(comparison.parameters),
        "model": comparison.model,
        "model_digest": comparison.model_digest,
        "data": comparison.data,
        "data_digest": comparison.data_digest,
        "seed": comparison.seed,
        "chosen": dict(comparison.chosen),
        "defaults": comparison.defaults,
        "differing_defaults": comparison.differing_defaults().to_dict("index"),
        "versions": versions(),
        "rows": [_row_document(row, comparison.success_metric) for row in comparison.rows],
        "pairs": [_pair_document(pair) for pair in comparison.pairs],
        "notes": list(dict.fromkeys((*comparison.notes, *comparison.cautions, *_notes(comparison, every=True)))),
    }
    return _without_nan(document)


def comparison_json(comparison: Comparison) -> str:
    """Return `comparison_document` as indented JSON text."""
    return json.dumps(comparison_document(comparison), indent=2, allow_nan=False)


def comparison_csv(comparison: Comparison) -> str:
    """Return CSV with one line per implementation and numbers in full precision."""
    rules, rate = comparison.threat_model, comparison.success_metric
    case = {"model": comparison.model, "data": comparison.data, "norm": rules.norm, "epsilon": rules.epsilon}
    case["seed"] = comparison.seed
    columns = ["library", "implementation", *_numbers(rate), "error", *case]
    documents = [{**_row_document(row, rate), **case} for row in comparison.rows]
    return to_csv(columns, [[_flat(each[name]) for name in columns] for each in documents])


def print_comparison(comparison: Comparison, console: PlainConsole) -> None:
    """Print the range of the success rate and the verdicts on the pairs, then the implementations and the notes.

    Args:
        comparison: comparison to print.
        console: output console. If verbose, all pairs and explanations are printed.
    """
    broken = any(row.metrics.get("violations", 1) for row in comparison.rows)
    norm, rate = comparison.threat_model.norm, comparison.success_metric
    order = ["n", rate, "95 % interval", *(["violations"] if broken else [])]
    order += [f"{norm} median", "forwards", "backwards", "s/image", "8-bit", "l2 median", "linf median", "violations"]
    cells = [_row_cells(row, rate) for row in comparison.rows]
    heads = ("implementation", "n", rate, "95 % interval", "8-bit", *_ROW_COLUMNS, "known issues")
    chosen = format_cell(dict(comparison.parameters)) or "each library's own parameters"
    title = f"{comparison.attack} on {comparison.model}, {comparison.data}"
    about = f"{title}; {format_threat_model(comparison.threat_model)}; {chosen}; seed {comparison.seed}"
    rest = "" if console.verbose else "(-v)"
    for line in (*_range_text(comparison), *verdict_groups(comparison, rest)):
        console.print(line)
    print_table(about, heads, cells, console, order=order, narrow=True)
    defaults = comparison.differing_defaults()
    if len(defaults.columns):
        rows = [(str(name), *values) for name, values in zip(defaults.index, defaults.to_numpy(), strict=True)]
        print_table("Defaults that differ", ("implementation", *defaults.columns), rows, console, rest="stack")
    if comparison.pairs and console.verbose:
        heads = ("a", "b", "verdict", "n", "a - b", "interval", "p success", "p distance", "largest pixel difference")
        cells = [_pair_cells(pair) for pair in comparison.pairs]
        print_table(_verdicts_text(comparison.pairs), heads, cells, console, keys=2, rest="stack")
    lines = verdict_notes(comparison) if console.verbose else _power_lines(comparison)
    print_notes((*comparison.cautions, *lines, *_notes(comparison, every=console.verbose)), console)


def _range_text(comparison: Comparison) -> list[str]:
    """Describe the lowest and the highest success rate, with intervals and implementations."""
    done, rate = [row for row in comparison.rows if row.metrics], comparison.success_metric
    if not done:
        return []
    what = "fooled" if rate == "MR" else "classified as the target"
    values = sorted({row.metrics[rate] for row in done if not math.isnan(row.metrics[rate])})
    texts = []
    for value in dict.fromkeys((*values[:1], *values[-1:])):
        having = [row for row in done if row.metrics[rate] == value]
        low, high = having[0].metrics[f"{rate}_interval"]
        others = f" and {len(having) - 1} more" if len(having) > 1 else ""
        texts.append(f"{interval_text(value, low, high).replace(' ', KEPT)} ({having[0].implementation.name}{others})")
    images = sorted({row.metrics["images"] for row in done})
    counts = f"{images[0]}" if len(images) == 1 else f"{images[0]} to {images[-1]}"
    return [f"proportion of {counts} images that are {what} ({rate}): {' to '.join(texts) or '-'}"]


def verdict_notes(comparison: Comparison) -> list[str]:
    """Explain the power of the tests, the excluded images, and the meaning of "equivalent"."""
    lines = dict.fromkeys(_power_lines(comparison))
    tested = [pair.judgement for pair in comparison.pairs if pair.judgement.images]
    if levels := list(dict.fromkeys(each.correction for each in tested)):
        lines[f"p: uncorrected; significant below {' or '.join(levels)}"] = None
    for pair in comparison.pairs:
        if pair.judgement.left_out and pair.judgement.images:
            left = (
                f"{pair.judgement.left_out} invalid results are excluded; the interval covers either outcome for them"
            )
            lines[f"{pair.a}, {pair.b}: {left}"] = None
    levels = sorted({pair.judgement.level for pair in comparison.pairs if pair.judgement.images})
    shown = " and ".join(f"{100 * (1 - level):.4g} %" for level in levels)
    if levels:
        lines[f"interval of a - b: {shown}, 95 % for all pairs together; p is significant if it excludes 0"] = None
    least = min_images_for_equivalence(MARGIN, 1 - min(levels, default=SIGNIFICANT))
    if any(pair.verdict in {"equivalent", "no difference found"} for pair in comparison.pairs):
        also = f" and median ratio of distances within {DISTANCE_MARGIN:.0%} of 1" if comparison.minimum_norm else ""
        lines[f"equivalent: interval of a - b inside +-{MARGIN}{also}; needs at least {least} images"] = None
    rate = comparison.success_metric
    lines[f"a - b: difference of {rate}; l0 to linf: over the fooled images; forwards, backwards: median "
          "passes per image (`davylamp metrics NAME`)"] = None  # fmt: skip
    return list(lines)


def _verdicts_text(pairs: Sequence[PairComparison]) -> str:
    counts = Counter(pair.verdict for pair in pairs)
    few = len(pairs) == 1
    return (
        f"{len(pairs)} pair{'' if few else 's'}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}"
    )


def _power_lines(comparison: Comparison) -> list[str]:
    """Describe the smallest detectable differences, in one line for all pairs that can be significant."""
    judgements = [pair.judgement for pair in comparison.pairs_that_ran]
    able = dict.fromkeys((each.images, each.detectable) for each in judgements if each.can_be_significant)
    lines = list(dict.fromkeys(each.power for each in judgements if not each.can_be_significant))
    if len(able) == 1:
        return [*dict.fromkeys(each.power for each in judgements if each.can_be_significant), *lines]
    if able:
        parts = ", ".join(f"{least} images with n = {images}" for images, least in sorted(able))
        return [f"smallest differences that can be detected: {parts}", *lines]
    return lines


def _notes(comparison: Comparison, *, every: bool) -> list[str]:
    """Return notes on errors, invalid results, unsupported parameters and known issues."""
    lines = []
    for row in comparison.rows:
        name, result = row.implementation.name, row.result
        if row.error:
            lines.append(f"{'omitted: ' * row.excused}{name}: {row.error.removeprefix(f'{name} ')}")
        if isinstance(result, SaturatedResult):
            lines.append(f"{name}: {_saturation_text(result)}")
        if row.left_out:
            lines.append(f"{name}: does not support {', '.join(row.left_out)}; its own default was used")
        if result is not None and result.errors:
            lines.append(f"{name}: crashed on {len(result.errors)} of its batches: {result.errors[0]}")
        if row.metrics.get("violation_kinds"):
            kinds = format_cell(row.metrics["violation_kinds"])
            lines.append(f"{name}: invalid results: {kinds}; {_what_they_count(result)}")
        if row.metrics.get("below_grey_level"):
            count = row.metrics["below_grey_level"]
            changes = "changes" if count == 1 else "change"
            lines.append(f"{name}: {count} successful example{changes} no pixel after rounding to 8 bits")
        lines += [f"{name}: {key}: {FINDINGS[key]}" for key in row.findings if every]
    known = [f"{row.implementation.name}: {', '.join(row.findings)}" for row in comparison.rows if row.findings]
    return lines + [f"known issues (-v for details): {'; '.join(known)}"] * bool(known and not every)


def _what_they_count(result: AttackResult | None) -> str:
    """Describe how invalid results count, by cause."""
    faults = Counter(() if result is None else filter(None, result.faults))
    said = {
        "library": "caused by the library, counted as not fooled",
        "model": "caused by the model, counted as not robust",
    }
    said["unknown"] = "counted neither as fooled nor as robust"
    return "; ".join(f"{faults[fault]} {text}" for fault, text in said.items() if faults[fault])


def _saturation_text(result: SaturatedResult) -> str:
    norm, reached = result.threat_model.norm, format_radius(result.threat_model.norm, result.radius)
    if not max(result.saturation.ratios):
        return f"fooled no image up to {norm} {reached}, the largest radius"
    if result.saturation.epsilon is None:
        return f"its success was still growing at {norm} {reached}, the largest radius"
    return (
        f"its success stops growing at {norm} {reached}; passes are totals over {len(result.saturation.budgets)} radii"
    )


def _row_cells(row: ImplementationResult, rate: str) -> list[Any]:
    numbers, name = row.metrics, row.implementation.name
    if not numbers:
        return [name, "-", "left out" if row.excused else "failed", "-", "-", *["-"] * len(_ROW_COLUMNS), ""]
    low, high = numbers[f"{rate}_interval"]
    ends = f"{low:.2f} - {high:.2f}" if not math.isnan(low) else "-"
    shown = (numbers[number] for number in _ROW_COLUMNS.values())
    return [name, numbers["images"], numbers[rate], ends, numbers[f"{rate}_8bit"], *shown, ", ".join(row.findings)]


def _pair_cells(pair: PairComparison) -> list[Any]:
    judgement = pair.judgement
    difference = judgement.difference
    ends = "-" if math.isnan(difference.low) else f"{difference.low:.2f} to {difference.high:.2f}"
    numbers = judgement.images, difference.value, ends, judgement.p_success, judgement.p_distance, pair.max_difference
    return [pair.a, pair.b, judgement.text, *numbers]


def _numbers(rate: str) -> tuple[str, ...]:
    return ("images", rate, f"{rate}_interval", f"{rate}_8bit", *_NUMBERS)


def _row_document(row: ImplementationResult, rate: str) -> dict[str, Any]:
    numbers = {name: row.metrics.get(name) for name in _numbers(rate)}
    return {
        "library": row.implementation.library,
        "implementation": row.implementation.name,
        **numbers,
        "error": row.error or None,
        "left_out": list(row.left_out),
        "findings": list(row.findings),
    }


def _pair_document(pair: PairComparison) -> dict[str, Any]:
    judgement = pair.judgement
    return {
        "a": pair.a,
        "b": pair.b,
        "verdict": judgement.verdict,
        "weaker": judgement.weaker or None,
        "images": judgement.images,
        "left_out": judgement.left_out,
        "only_a": judgement.only_a,
        "only_b": judgement.only_b,
        "p_success": judgement.p_success,
        "p_distance": judgement.p_distance,
        "p_counts_below": judgement.level,
        "corrected_for": {"pairs": judgement.pairs, "tests": judgement.tests},
        "difference": {**judgement.difference._asdict(), "level": 1 - judgement.level, "margin": MARGIN},
        "distance_ratio": {**judgement.ratio._asdict(), "level": 1 - judgement.level, "margin": DISTANCE_MARGIN},
        "queries_ratio": judgement.queries,
        "fades_at_8_bits": judgement.fades,
        "max_difference": pair.max_difference,
        "detectable": judgement.detectable or None,
        "needed": judgement.needed or None,
        "power": judgement.power,
        "reason": judgement.reason or None,
    }


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value


def _flat(value: Any) -> Any:
    return format_cell(value) if isinstance(value, (dict, list, tuple)) else value
