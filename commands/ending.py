"""What `davylamp evaluate` ends with: for each model what is left and what took it; what to look at next."""

from collections import Counter
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

NORMS = ("linf", "l2", "l1", "l0")
_ALIKE = ("model", "norm", "epsilon", "targeted")


class _Phrases(NamedTuple):
    """The metric of an attack's success, and how a line says what a model keeps and what became of the other images."""

    rate: str
    kept: str
    none: str  # of so many images
    most: str
    also: str  # other attacks, as many


_UNTARGETED = _Phrases("MR", "robust accuracy", "no attack fooled any of {} images", "most fooled by", "fooled as many")
_TARGETED = _Phrases(
    "TAS",
    "right and not driven to the target",
    "no attack drove any of {} images to the target",
    "most driven to the target by",
    "drove as many",
)
SHOWN = 5  # models
MANY = 400  # cells; reading more of them again would keep the user waiting


def say_result(plan: Any, store: Any, out: Path) -> None:
    """Print the result of an evaluation: a line for each of at most five models and threat models.

    Args:
        plan: what was evaluated.
        store: where the records are.
        out: the folder, as the user named it.
    """
    from ..report.text.console import make_console

    console = make_console()
    lines = result_lines(plan, store) if len(plan.cells) <= MANY else []
    for line in (*lines, _next_line(out)):
        console.print(line)


def _next_line(out: Path) -> str:
    """What to look at next, to be copied into a shell."""
    folder = quote(str(out))
    return f"next: davylamp report {folder} -o report.html; davylamp table {folder}; davylamp check {folder}"


def result_lines(plan: Any, store: Any) -> list[str]:
    """For each model and threat model what is left in the worst case and the strongest attack; then the indicators."""
    from ..engine.checks.check_folder import check_folder
    from ..engine.store.outcomes import read_outcomes
    from ..engine.tables.groups import group_cells, least_of_draws
    from ..engine.tables.table import build_table

    alone = len(store.keys("cells")) == len(plan.cells)  # then all that is there is about these models
    about = () if alone else {cell.subject.model for cell in plan.cells}
    outcomes = read_outcomes(store.folder, ["OTR", "MR", "TAS", "RA", *NORMS], models=about)
    models = {(cell.subject.model, cell.subject.model_digest) for cell in plan.cells}  # of fewer images or of more
    subjects = [each.cell.subject for each in outcomes.done]
    names = {subject.name for subject in subjects if (subject.model, subject.model_digest) in models}
    if not names:
        return []
    table = build_table(outcomes, by="models", metrics=["RA"], bootstrap=1)
    rows = [row for row in table.rows if row.labels["model"] in names and row.labels["cells"]]
    rates = sorted({_phrases(row).rate for row in rows})
    pairs = build_table(outcomes, by="pairs", metrics=[*rates, *NORMS], bootstrap=1)
    rows.sort(key=lambda row: -row.metrics["RA"].value)
    lines = [_model_line(row, pairs.rows) for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        more = f"davylamp table {quote(str(store.folder))} --by models"
        lines.append(f"{len(rows) - SHOWN} more models with lower values: `{more}`")
    groups = [each for each in group_cells(outcomes, "models") if each.labels["model"] in names]
    lines += [f"- {line}" for line in least_of_draws([each for each in groups if _has_radius(each.labels)])]
    checks = check_folder(outcomes, models=sorted(names))
    failing = Counter(check.title for check in checks if check.state == "fail")
    said = ", ".join(f"{title} ({count})" if count > 1 else title for title, count in failing.items())
    return [*lines, *_gave_up(outcomes, names), f"failure indicators: {said or 'none failed'}"]


def _gave_up(outcomes: Any, names: set[str]) -> list[str]:
    """A line for each attack of the user that returned clean images, which only some may do where they fail."""
    counts: Counter[str] = Counter()
    for each in outcomes.done:
        if each.cell.subject.name in names and each.cell.row.is_users:
            counts[each.cell.attack] += sum("unchanged" in kinds.split() for kinds in each.columns["violations"])
    return [
        f"- {name} returned {count} clean images, which proves nothing: if it does so where it fails, say so by "
        f'{name.rpartition(":")[2].rstrip(")")}.failure = "input" (docs/my-attack.md)'
        for name, count in counts.items()
        if count
    ]


def _model_line(row: Any, pairs: Any) -> str:
    """What is left of a model in the worst case, and the attack that fooled most, or nearest."""
    from ..adapters.words import labels_text
    from ..engine.searches.kinds import kind_in

    labels, worst = row.labels, row.metrics["RA"]
    has_radius = _has_radius(labels)
    phrases = _phrases(row)
    alike = [pair for pair in pairs if all(str(pair.labels[name]) == str(labels[name]) for name in _ALIKE)]
    rivals = [pair for pair in alike if pair.metrics[phrases.rate].n]
    rivals = [each for each in rivals if kind_in(each.labels["implementation"]) != "worst-case"] or rivals
    line = f"{labels['model']}, {labels_text(labels)}: "
    if has_radius:
        line += f"{phrases.kept} {_kept(worst)} on {worst.n} images (worst case{_undecided(alike)}); "
    if not rivals:
        return f"{line}no attack has a result"
    norm = labels["norm"] if labels["norm"] in NORMS else ""
    best = min(rivals, key=lambda pair: (-pair.metrics[phrases.rate].value, pair.metrics[norm].value if norm else 0.0))
    fooled, distance = best.metrics[phrases.rate], best.metrics[norm] if norm else None
    of = f"{fooled.n}{_runs(best)}"
    if fooled.value == 0:
        return f"{line}{phrases.none.format(of)}"
    line += f"{phrases.most} {best.labels['implementation']}: {_kept(fooled)} of {of}"
    if not has_radius and distance is not None and distance.n:
        line += f", mean {norm} distance {distance.value:.3g}"
    equal = sum(pair.metrics[phrases.rate].value == fooled.value for pair in rivals) - 1
    if equal and has_radius:
        line += f" ({'another' if equal == 1 else f'{equal} others'} {phrases.also})"
    return line


def _has_radius(labels: Any) -> bool:
    """Whether a row has a worst case: one over attacks without a radius says nothing."""
    return labels["norm"] == "unrestricted" or labels["epsilon"] == labels["epsilon"]


def _undecided(pairs: Any) -> str:
    """Of which attacks some results prove nothing, and how many."""
    broken: Counter[str] = Counter()
    for pair in pairs:
        broken[pair.labels["implementation"]] += pair.labels["violations"]
    return "".join(f"; {count} results of {name} prove nothing" for name, count in broken.items() if count)


def _runs(pair: Any) -> str:
    """What an image is counted for where it was attacked more than once."""
    return f" in {pair.labels['cells']} runs" if pair.labels["cells"] > 1 else ""


def _phrases(row: Any) -> _Phrases:
    return _TARGETED if row.labels["targeted"] else _UNTARGETED


def _kept(estimate: Any) -> str:
    """An estimate with its interval, which stays on a line."""
    from ..report.text.console import KEPT, interval_text

    return interval_text(*estimate[:3]).replace(" ", KEPT)
