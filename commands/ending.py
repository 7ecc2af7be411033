"""What `davylamp evaluate` ends with: for each model what is left and what took it; what to look at next."""

from collections import Counter
from pathlib import Path
from typing import Any

NORMS = ("linf", "l2", "l1", "l0")
_ALIKE = ("model", "norm", "epsilon", "targeted")
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
    for line in (*lines, f"next: davylamp report {out} -o report.html; davylamp table {out}; davylamp check {out}"):
        console.print(line)


def result_lines(plan: Any, store: Any) -> list[str]:
    """For each model and threat model what is left in the worst case and the strongest attack; then the indicators."""
    from ..engine.checks.check_folder import check_folder
    from ..engine.store.outcomes import read_outcomes
    from ..engine.tables.table import build_table

    outcomes = read_outcomes(store.folder, ["OTR", "MR", "RA_worst", *NORMS])
    names = {cell.subject.model for cell in plan.cells}
    if not any(each.cell.subject.model in names for each in outcomes.done):
        return []
    models = build_table(outcomes, by="models", metrics=["RA_worst"], bootstrap=1)
    pairs = build_table(outcomes, by="pairs", metrics=["MR", *NORMS], bootstrap=1)
    rows = [row for row in models.rows if row.labels["model"] in names and row.labels["cells"]]
    rows.sort(key=lambda row: -row.metrics["RA_worst"].value)
    lines = [_model_line(row, pairs.rows) for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        lines.append(
            f"{len(rows) - SHOWN} more models with lower values: `davylamp table {store.folder.name} --by models`"
        )
    checks = check_folder(outcomes, models=sorted(names & _models(outcomes)))
    failing = Counter(check.title for check in checks if check.state == "fail")
    said = ", ".join(f"{title} ({count})" if count > 1 else title for title, count in failing.items())
    return [*lines, f"failure indicators: {said or 'none failed'}"]


def _models(outcomes: Any) -> set[str]:
    return {subject.model for subject in outcomes.subjects.values()}


def _model_line(row: Any, pairs: Any) -> str:
    """What is left of a model in the worst case, and the attack that fooled most, or nearest."""
    from ..adapters.words import labels_text
    from ..engine.worst_case import WORST_CASE

    labels, worst = row.labels, row.metrics["RA_worst"]
    has_radius = labels["norm"] == "unrestricted" or labels["epsilon"] == labels["epsilon"]
    rivals = [
        pair
        for pair in pairs
        if all(str(pair.labels[name]) == str(labels[name]) for name in _ALIKE) and pair.metrics["MR"].n
    ]
    rivals = [each for each in rivals if not each.labels["implementation"].startswith(WORST_CASE)] or rivals
    line = f"{labels['model']}, {labels_text(labels)}: "
    if has_radius:
        line += f"robust accuracy {_kept(worst)} on {worst.n} images (worst case); "
    if not rivals:
        return f"{line}no attack has a result"
    norm = labels["norm"] if labels["norm"] in NORMS else ""
    best = min(rivals, key=lambda pair: (-pair.metrics["MR"].value, pair.metrics[norm].value if norm else 0.0))
    fooled, distance = best.metrics["MR"], best.metrics[norm] if norm else None
    if fooled.value == 0:
        return f"{line}no attack fooled any of {fooled.n} images"
    line += f"strongest: {best.labels['implementation']}, fooled {_kept(fooled)} of {fooled.n}"
    if not has_radius and distance is not None and distance.n:
        line += f", mean {norm} distance {distance.value:.3g}"
    equal = sum(pair.metrics["MR"].value == fooled.value for pair in rivals) - 1
    return f"{line} ({_more(equal)} as many)" if equal and has_radius else line


def _more(count: int) -> str:
    return "another fooled" if count == 1 else f"{count} others fooled"


def _kept(estimate: Any) -> str:
    """An estimate with its interval, which stays on a line."""
    from ..report.text.console import KEPT, interval_text

    return interval_text(*estimate[:3]).replace(" ", KEPT)
