"""Compares AttackBench's runner with davylamp: the same attacks of the same libraries, by AttackBench's rule.

    python -m davylamp.tools.attackbench.side_by_side [--quick] [--images 30] [--models digits:standard,...]
        [--norms linf,l2,l0] [--rows foolbox:fmn,...] [--out RESULTS.md]

AttackBench's rule (Cina et al. 2025): an attack may use 2000 forward plus backward passes per image. The nearest point
that fooled the model during the attack counts, whether or not the attack returned it. An image that was not fooled has
infinite distance.

Each implementation that AttackBench and davylamp have in common is run by both, on the same model and images, with
AttackBench's number of steps. Everything else is each program's default. AttackBench's runner clamps the model's inputs
to [0, 1] inside the graph. "no clamp" is its runner without this. AttackBench's files are imported into davylamp's
results folder, as a user would do it. All medians, envelopes and crashes are read from there.

Some attacks are omitted because they take hours: C&W, Brendel & Bethge, SPSA, HopSkipJump, EAD, AutoAttack, JSMA, and
all attacks of ART and CleverHans. `best` is davylamp's search by several attacks, with the same number of passes.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, import_attackbench, make_plan
from davylamp.engine.store.results import RunResult, read_outcomes
from davylamp.engine.tables.imported_table import build_references
from davylamp.errors import DavylampError
from davylamp.tools.attackbench.their_runner import BUDGET, TheirRun, run_theirs
from davylamp.tools.best_effort.equal_passes import Case, load_case

# Row of AttackBench's -> the same attack here, and its steps there; "": it is not here, or only as a search.
ROWS: Mapping[str, Mapping[str, tuple[str, int | None]]] = {
    "linf": {
        "adv_lib:fmn": ("adv-lib:fmn", 1000),
        "adv_lib:pdpgd": ("adv-lib:pdpgd", 500),
        "adv_lib:fab": ("adv-lib:fab", 100),
        "adv_lib:tr": ("adv-lib:trust-region", 100),
        "foolbox:deepfool": ("foolbox:deepfool", 50),
        "foolbox:fmn": ("foolbox:fmn", 100),
        "torchattacks:fab": ("torchattacks:fab", 100),
        "original:fmn": ("", None),
        "original:tr": ("", None),
        "original:apgd_minimal": ("", None),
        "foolbox:pgd_minimal": ("", None),
    },
    "l2": {
        "adv_lib:ddn": ("adv-lib:ddn", 1000),
        "adv_lib:fmn": ("adv-lib:fmn", 1000),
        "adv_lib:alma": ("adv-lib:alma", 1000),
        "adv_lib:pdgd": ("adv-lib:pdgd", 500),
        "foolbox:ddn": ("foolbox:ddn", 100),
        "torchattacks:deepfool": ("torchattacks:deepfool", 50),
        "original:superdeepfool": ("adv-lib:superdeepfool", 50),
        "original:deepfool": ("adv-lib:deepfool", 50),
        "original:fmn": ("", None),
    },
    "l0": {"original:sigma_zero": ("adv-lib:sigma-zero", 1000), "adv_lib:vfga": ("adv-lib:vfga", None)},
}
QUICK = {"linf": ("foolbox:fmn",), "l2": ("foolbox:ddn",), "l0": ("original:sigma_zero",)}


class OurRun(NamedTuple):
    """Result of davylamp for one implementation.

    It has the distance of the nearest fooling point of each image, (n,), passes and seconds per image, and errors.
    """

    distance: np.ndarray
    passes: float
    seconds: float
    failed: str = ""


class SideBySide(NamedTuple):
    """Line of the comparison: AttackBench's run with and without its clamp, and davylamp's run.

    None if it is missing.
    """

    name: str
    theirs: TheirRun | None
    unclamped: TheirRun | None
    ours: OurRun | None


def run_ours(name: str, steps: int | None, norm: str, model: str, case: Case, folder: Path) -> OurRun:
    """Run an implementation with davylamp into the results folder."""
    classifier, inputs, labels = case
    words = {"max_queries": BUDGET} | ({} if steps is None else {"steps": steps})
    choice = AttackChoice(name, norm, parameters=words)  # type: ignore[arg-type]
    config = Config(attacks=(choice,), data="digits", measures=("curve",))
    data = Data(inputs, labels, [str(place) for place in range(len(labels))])
    start = time.perf_counter()
    try:
        plan = make_plan(config, models={model: classifier}, data=data)
        evaluate(plan, ResultsStore(folder))
    except DavylampError as error:
        return OurRun(np.full(len(labels), math.nan), math.nan, math.nan, str(error)[:60])
    seconds = (time.perf_counter() - start) / len(labels)
    outcomes = read_outcomes(folder)
    key = plan.cells[0].key
    for outcome in outcomes.done:
        if outcome.cell.key == key:
            columns = outcome.columns
            return OurRun(nearest(outcome), float((columns["forwards"] + columns["backwards"]).mean()), seconds)
    why = next((reason for cell, reason in outcomes.failed if cell.key == key), "no result")
    return OurRun(np.full(len(labels), math.nan), math.nan, seconds, why[:60])


def nearest(outcome: RunResult) -> np.ndarray:
    """Return the distance of each image's nearest fooling point within the budget, (n,). Infinite if there is none."""
    columns = outcome.columns
    curves = zip(columns["curve_passes"], columns["curve_distances"], strict=True)
    asked = [
        min((float(d) for p, d in zip(passes, distances, strict=True) if p <= BUDGET), default=math.inf)
        for passes, distances in curves
    ]
    return np.minimum(asked, columns["distance"])


def run_row(name: str, norm: str, model: str, case: Case, folder: Path) -> SideBySide:
    """Run an implementation with both programs. AttackBench's file with its clamp is imported."""
    classifier, inputs, labels = case
    row, steps = ROWS[norm][name]
    files = folder / "files"
    theirs = run_theirs(name, classifier.model, inputs, labels, norm, files / model / norm)
    unclamped = run_theirs(name, classifier.model, inputs, labels, norm, files / "unclamped", clamped=False)
    ours = run_ours(row, steps, norm, model, case, folder / "results") if row else None
    return SideBySide(name, theirs, unclamped, ours)


def table_of(lines: Sequence[SideBySide], crashed: Mapping[str, int], norm: str) -> list[str]:
    """Return the lines as Markdown: first by AttackBench's distance, last the lines that only davylamp has."""
    head = ("attack", "its median", "no clamp", "ours", "ours / its", "ours / no clamp", "its passes", "really run")
    head = (*head, "no clamp: passes", "ours: passes", "its s", "our s", "crashes")
    text = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for line in sorted(lines, key=lambda each: _last_if_unknown(_their_median(each.theirs, norm))):
        its, free = _their_median(line.theirs, norm), _their_median(line.unclamped, norm)
        ours = math.nan if line.ours is None else float(np.median(line.ours.distance))
        cells = [line.name, *map(_number, (its, free, ours, ours / its, ours / free))]
        cells += [_number(_counted(line.theirs)), _number(math.nan if line.theirs is None else line.theirs.passes)]
        cells += [_number(_counted(line.unclamped))]
        cells += [_number(math.nan if line.ours is None else line.ours.passes)]
        images = math.nan if line.theirs is None else len(line.theirs.results["hashes"])
        cells += [_number(math.nan if line.theirs is None else line.theirs.seconds / images)]
        cells += [_number(math.nan if line.ours is None else line.ours.seconds), _crash(line, crashed)]
        text.append(f"| {' | '.join(cells)} |")
    return text


def compare_best(lines: Sequence[SideBySide], norm: str) -> str:
    """Compare davylamp's smallest median with AttackBench's smallest median, with and without the clamp."""
    ours = [(float(np.median(line.ours.distance)), line.name) for line in lines if line.ours and not line.ours.failed]
    text = []
    for kind, title in (("theirs", "as it runs them"), ("unclamped", "without its clamp")):
        known = [(_their_median(getattr(line, kind), norm), line.name) for line in lines]
        known = [each for each in known if not math.isnan(each[0])]
        if known and ours:
            (mine, name), (its, other) = min(ours), min(known)
            text.append(f"{title}: ours {mine:.4g} ({name}), its {its:.4g} ({other}), ratio {mine / its:.4f}")
    return f"Best of all rows by median, {'; '.join(text)}." if text else "Nothing of AttackBench's has a median."


def beside_envelope(folder: Path, model: str, norm: str) -> list[str]:
    """Compare davylamp's results with the envelope of AttackBench's, as `davylamp table --with-imported` does."""
    rows = [row for row in build_references(folder / "results", norm=norm).rows if row.labels["model"] == model]
    text = ["| row | judged by | gap to the envelope | n | OPT |", "|---|---|---|---|---|"]
    for row in rows:
        gap, optimality = row.metrics["gap"], row.metrics["OPT"]
        ends = (f"{_number(each.value)} [{_number(each.low)}, {_number(each.high)}]" for each in (gap, optimality))
        mean, share = ends
        text.append(f"| {row.labels['implementation']} | {row.labels['judged by']} | {mean} | {gap.n} | {share} |")
    return text


def run_case(model: str, norm: str, names: Sequence[str], case: Case, folder: Path) -> list[str]:
    """Run one model and norm, and return the section of the page."""
    lines = []
    for name in names:
        lines.append(run_row(name, norm, model, case, folder))
        print(f"{model} {norm} {name}", file=sys.stderr, flush=True)
    if norm in ("linf", "l2"):
        lines.append(
            SideBySide("davylamp: best", None, None, run_ours("best", None, norm, model, case, folder / "results"))
        )
    done, refused = import_attackbench(
        folder / "files" / model / norm, folder / "results", data=_data(case), model=model
    )
    crashed = {each.attack: each.crashed for each in done}
    text = [f"## {model}, {norm}, {len(case[2])} images", "", *table_of(lines, crashed, norm), ""]
    text += [*(f"Refused: {line}" for line in refused), compare_best(lines, norm), ""]
    return [*text, *beside_envelope(folder, model, norm), ""]


def _data(case: Case) -> Data:
    return Data(case[1], case[2], [str(place) for place in range(len(case[2]))])


def _their_median(run: TheirRun | None, norm: str) -> float:
    """Return the median distance from AttackBench's file, or NaN if there is no result, for example after a crash."""
    if run is None or any(run.results["batch_failures"]):
        return math.nan
    return float(np.median(run.results["distances"][norm]))


def _counted(run: TheirRun | None) -> float:
    if run is None:
        return math.nan
    return float(np.mean(np.add(run.results["num_forwards"], run.results["num_backwards"])))


def _crash(line: SideBySide, crashed: Mapping[str, int]) -> str:
    texts = []
    if line.theirs is not None and any(line.theirs.results["batch_failures"]):
        share = float(np.mean(line.theirs.results["adv_success"]))
        seen = "named by davylamp's import" if crashed.get(line.name) else "not noticed by davylamp's import"
        texts.append(f"its: {line.theirs.error[:80]}; stored by it as ASR {share:.2g}, {seen}")
    if line.ours is not None and line.ours.failed:
        texts.append(f"ours: {line.ours.failed}")
    return "; ".join(texts).replace("|", "\\|")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def _last_if_unknown(value: float) -> float:
    return math.inf if math.isnan(value) else value


def main() -> None:
    """Run everything, print the page, and write it if --out is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="run one implementation for each norm on 4 images")
    parser.add_argument("--images", type=int, default=30)
    parser.add_argument("--models", default="digits:standard")
    parser.add_argument("--norms", default="linf,l2,l0")
    parser.add_argument("--rows", default="", help="only these of AttackBench's implementations")
    parser.add_argument("--out", type=Path, help="also write the sections to this file")
    options = parser.parse_args()
    text: list[str] = []
    for model in options.models.split(","):
        case = load_case(model, 4 if options.quick else options.images)
        for norm in options.norms.split(","):
            chosen = QUICK[norm] if options.quick else tuple(ROWS[norm])
            names = [name for name in chosen if not options.rows or name in options.rows.split(",")]
            with tempfile.TemporaryDirectory(prefix="attackbench-") as folder:
                section = run_case(model, norm, names, case, Path(folder))
            print("\n".join(section), flush=True)
            text += section
            if options.out:
                options.out.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
