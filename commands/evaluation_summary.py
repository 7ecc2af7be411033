"""Prints the summary at the end of `davylamp evaluate`: robust accuracies, strongest attacks, and next commands."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

NORMS = ("linf", "l2", "l1", "l0")
_ALIKE = ("model", "norm", "epsilon", "targeted")


class _SummaryWording(NamedTuple):
    kept: str
    none: str  # formatted with the number of images
    most: str
    also: str  # for other attacks with the same number


_UNTARGETED = _SummaryWording(
    "robust accuracy", "no attack fooled any of {} images", "most fooled by", "fooled as many"
)
_TARGETED = _SummaryWording(
    "correct and not classified as the target",
    "no attack reached the target on any of {} images",
    "target reached most often by",
    "reached it as often",
)
SHOWN = 5  # models
_NAMED = 2  # most attacks named with invalid results
MANY = 400  # most runs; reading more of them would take too long


def print_summary(plan: Any, store: Any, out: Path) -> None:
    """Print at most five lines with the robust accuracy and the strongest attack of a model under a threat model.

    Args:
        plan: plan of the evaluation.
        store: results folder.
        out: path of the results folder as given by the user.
    """
    from ..report.text.console import make_console

    console, folder = make_console(), quote(str(out))
    lines = result_lines(plan, store) if len(plan.cells) <= MANY else []
    after = f"next: davylamp report {folder} -o report.html; davylamp table {folder}; davylamp check {folder}"
    for line in (*lines, after):
        console.print(line)


def result_lines(plan: Any, store: Any) -> list[str]:
    """Return lines with the worst-case accuracy and the strongest attack of each model under each threat model.

    Further lines list the failure indicators that fail.
    """
    from ..engine.checks.check_folder import check_folder
    from ..engine.store.notes import unsteady_subjects
    from ..engine.store.results import read_outcomes
    from ..engine.tables.groups import group_cells, worst_case_bias_note
    from ..engine.tables.table import build_table
    from ..report.text.checks import count_states

    alone = len(store.keys("cells")) == len(plan.cells)  # then the folder contains only these models
    about = () if alone else {cell.subject.model for cell in plan.cells}
    outcomes = _about(plan, read_outcomes(store.folder, ["OTR", "RA"], models=about))
    names = {each.cell.subject.name for each in outcomes.done}
    if not names:
        return []
    table = build_table(outcomes, by="models", metrics=["CA", "RA"], bootstrap=1)
    rows = [row for row in table.rows if row.labels["cells"]]
    rows.sort(key=lambda row: -row.metrics["RA"].value)
    pairs = [group for group in group_cells(outcomes, "pairs") if group.parts]
    unsteady = {subject.name for subject in unsteady_subjects(outcomes).values()}
    lines = [_model_line(row, pairs, is_unsteady=row.labels["model"] in unsteady) for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        more = f"davylamp table {quote(str(store.folder))} --by models"
        lines.append(f"{len(rows) - SHOWN} more models with lower values: `{more}`")
    groups = group_cells(outcomes, "models")
    lines += [f"- {line}" for line in worst_case_bias_note([each for each in groups if _has_radius(each.labels)])]
    checks = check_folder(outcomes, models=sorted(names))
    return [*lines, *_gave_up(outcomes), f"failure indicators: {count_states(checks)}"]


def _about(plan: Any, outcomes: Any) -> Any:
    """Select the results of the plan's models on its images.

    A folder counts equal images once, and images that are part of more images of the same data together with these.
    Then the results under the other name, or on all images, are selected.
    """
    planned = {cell.subject.key: cell.subject for cell in plan.cells}
    done = {each.cell.subject.key for each in outcomes.done}
    elsewhere = [each for key, each in planned.items() if key not in done]

    def is_again(subject: Any) -> bool:
        models = [
            each for each in elsewhere if (each.model, each.model_digest) == (subject.model, subject.model_digest)
        ]
        return any(subject.data == each.data or subject.data_digest == each.data_digest for each in models)

    return outcomes.of_subjects(lambda subject: subject.key in planned or is_again(subject))


def _gave_up(outcomes: Any) -> list[str]:
    """Return hints for user attacks that returned clean images, and do not declare that this means failure."""
    from ..engine.checks.verdicts import paired_outcomes

    counts: Counter[str] = Counter()
    for each in outcomes.done:
        if each.cell.row.is_user_attack:
            counts[each.cell.attack] += sum("unchanged" in kinds for kinds in paired_outcomes(each).violations)
    return [
        f"- {name} returned {count} unchanged images, which are invalid; if this means failure, declare "
        f'{name.rpartition(":")[2].rstrip(")")}.failure = "input" (docs/my-attack.md)'
        for name, count in counts.items()
        if count
    ]


def _model_line(row: Any, pairs: Sequence[Any], *, is_unsteady: bool) -> str:
    """Describe the worst case of a model, and its strongest attack.

    The strongest attack fooled the most images, or needed the smallest distance.
    """
    from ..adapters.display_text import format_threat_labels
    from ..adapters.result import UNSTEADY
    from ..engine.checks.standings import place_attacks
    from ..report.text.console import KEPT, interval_text

    def shown(*estimate: float) -> str:
        return interval_text(*estimate).replace(" ", KEPT)

    labels, worst, has_radius = row.labels, row.metrics["RA"], _has_radius(row.labels)
    if is_unsteady:
        return f"{labels['model']}, {format_threat_labels(labels)}: not judged: {UNSTEADY}"
    phrases = _TARGETED if labels["targeted"] else _UNTARGETED
    alike = [pair for pair in pairs if all(str(pair.labels[name]) == str(labels[name]) for name in _ALIKE)]
    places = [place for place in place_attacks(alike) if place.images] if alike else []
    line = f"{labels['model']}, {format_threat_labels(labels)}: clean accuracy {shown(*row.metrics['CA'][:3])}; "
    if has_radius:
        line += f"{phrases.kept} {shown(*worst[:3])} on {worst.n} images (worst case{_undecided(alike)}); "
    if not places:
        return f"{line}no attack has a result"
    best = min(places, key=lambda place: (-place.value, math.inf if math.isnan(place.distance) else place.distance))
    of = f"{best.tries}" + (f" in {best.runs} runs" if best.runs > 1 else "")
    if best.value == 0:
        return f"{line}{phrases.none.format(of)}"
    line += f"{phrases.most} {best.attack}: {shown(best.value, best.low, best.high)} of {of}"
    if not has_radius and not math.isnan(best.distance):
        line += f", mean {labels['norm']} distance {best.distance:.3g}"
    equal = sum(place.value == best.value for place in places) - 1
    if equal and has_radius:
        line += f" ({'another' if equal == 1 else f'{equal} others'} {phrases.also})"
    return line


def _has_radius(labels: Any) -> bool:
    """Whether the threat model of a table row has a radius, so that a worst case has a meaning."""
    return labels["norm"] == "unrestricted" or not math.isnan(labels["epsilon"])


def _undecided(pairs: Sequence[Any]) -> str:
    """Return a phrase with the numbers of invalid results. "" if no result is invalid."""
    from ..adapters.display_text import counted

    broken: Counter[str] = Counter()
    for pair in pairs:
        if pair.labels["violations"]:
            broken[pair.labels["implementation"]] += pair.labels["violations"]
    if len(broken) > _NAMED:
        return f"; {counted(broken.total(), 'invalid result')} of {len(broken)} attacks"
    return "".join(f"; {counted(count, 'invalid result')} of {name}" for name, count in broken.items())
