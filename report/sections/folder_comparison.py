"""Comparison of two results folders: paired tests for runs that are in both folders, and other differences."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ... import __version__
from ...adapters.display_text import format_threat_model
from ...engine.attack_run import AttackRun
from ...engine.statistics.paired_tests import mcnemar, min_images_for_significance, wilcoxon
from ...engine.statistics.verdict import corrected_level
from ...engine.store.plan_records import CellState
from ...engine.store.results import Results, RunResult, read_outcomes
from ...errors import Unavailable
from ..parts.blocks import Column, DefinitionList, PageTable, Section, TableCell, Text, badge, list_table, make_table
from .provenance import collect_versions

_SAME = 1e-6  # distances this close are the same number up to float32 rounding


@dataclass(frozen=True)
class RunChange:
    """Comparison of the results that two folders have for the same run.

    Args:
        cell: run as recorded in the second folder.
        images: number of images that both folders have with the same name and label.
        left_out: number of images that are excluded from the tests, because a result is invalid in one of the folders.
        before: rate of robust images in the first folder.
        after: rate of robust images in the second folder.
        lost: names of the images that are robust in the first folder only.
        gained: names of the images that are robust in the second folder only.
        p_robust: p-value of the exact McNemar test on robustness.
        p_distance: p-value of Wilcoxon's test on the distances of images that are fooled in both folders.
        differs: other differences between the folders, such as the weights, the pixels or the version of the library.
        verdict: "moved" if a test is significant at 5 % after Bonferroni's correction for all tests of the page.
            "identical" if no outcome and no distance differs. "undecided" if there are too few images for a significant
            test. Otherwise "no difference found".
    """

    cell: AttackRun
    images: int
    left_out: int
    before: float
    after: float
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    p_robust: float
    p_distance: float
    differs: tuple[str, ...]
    verdict: Literal["moved", "identical", "no difference found", "undecided"]

    @property
    def moved(self) -> bool:
        """Whether the results differ significantly between the folders."""
        return self.verdict == "moved"


def find_changes(a: Results, b: Results) -> list[RunChange]:
    """Compare every run that is in both results folders.

    Two runs are the same if model, attack, threat model, parameters, seed and data have the same names and values.
    """
    old = {_identity(outcome.cell): outcome for outcome in a.done}
    both = [(old[_identity(outcome.cell)], outcome) for outcome in b.done if _identity(outcome.cell) in old]
    changes = [_compare(first, second) for first, second in both]
    return [_decide(change, corrected_level(_count_tests(changes))) for change in changes]


def _count_tests(changes: Sequence[RunChange]) -> int:
    return max(1, sum(not np.isnan(p) for change in changes for p in (change.p_robust, change.p_distance)))


def _decide(change: RunChange, level: float) -> RunChange:
    # NaN (no test possible) is never below the level.
    if change.p_robust < level or change.p_distance < level:
        return replace(change, verdict="moved")
    few = change.images - change.left_out < min_images_for_significance(level)
    return replace(change, verdict="undecided") if few and change.verdict != "identical" else change


def list_differences(a: str | Path, b: str | Path) -> list[Section]:
    """Return the sections of the page that compares two results folders.

    Raises:
        Unavailable: If a folder does not exist, or the two folders have no finished run in common.
    """
    first, second = read_outcomes(a), read_outcomes(b)
    changes = find_changes(first, second)
    if not changes:
        raise Unavailable(f"no finished run is in both {a} and {b}, so nothing can be compared")
    counts = Counter(change.verdict for change in changes)
    summary = f"{len(changes)} runs: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    least = min_images_for_significance(corrected_level(_count_tests(changes)))
    facts = DefinitionList(
        (("first folder", str(a)), ("second folder", str(b)), ("page made by", f"davylamp {__version__}"))
    )
    rule = (
        "The folders are compared image by image. Robustness: exact McNemar test. Distances of images that are fooled "
        "in both folders: Wilcoxon's test. The level is 5 % for all tests of this page together (Bonferroni, "
        f"{_count_tests(changes)} tests). With this level, only differences of at least {least} images in a run can be "
        "detected; runs with fewer images are undecided. Invalid results are excluded from the tests. Finding no "
        "difference does not show that there is none."
    )
    blocks = (Text(f"{summary}.", "lead"), Text(rule, "note"), facts, _table(changes))
    apart = (_alone("a-only", f"Only in {a}", first, second), _alone("b-only", f"Only in {b}", second, first))
    return [
        Section("moved", "What moved", "", blocks),
        Section("versions", "Versions that changed", "", (_versions(first, second),)),
        Section("apart", "Runs in one folder only", "", apart),
    ]


def _identity(cell: AttackRun) -> str:
    """Return a text that identifies a run in both folders. It excludes weights, pixels and library version."""
    rules = cell.threat_model
    about = [cell.subject.name, cell.subject.data, cell.title, rules.norm, rules.epsilon, rules.targeted, cell.target]
    grid = {name: list(values) for name, values in cell.grid.items()}
    return json.dumps([*about, dict(cell.parameters), grid, cell.seed, cell.pixels], sort_keys=True)


def _compare(a: RunResult, b: RunResult) -> RunChange:
    names = [list(zip(each.columns["image"], each.columns["label"], strict=True)) for each in (a, b)]
    places = {image: place for place, image in enumerate(names[1])}
    shared = [(place, places[image]) for place, image in enumerate(names[0]) if image in places]
    left, right = (np.array([pair[side] for pair in shared], int) for side in (0, 1))
    robust = a.columns["robust"][left], b.columns["robust"][right]
    hits = a.columns["success"][left], b.columns["success"][right]
    far = a.columns["distance"][left], b.columns["distance"][right]
    kept = ~a.results.violated[left] & ~b.results.violated[right]
    both = hits[0] & hits[1] & kept
    alike = np.array_equal(*robust) and np.array_equal(*hits) and np.allclose(*far, rtol=_SAME, atol=_SAME)
    images = a.columns["image"][left]
    return RunChange(
        b.cell,
        len(shared),
        int((~kept).sum()),
        *(float(each.mean()) if len(shared) else float("nan") for each in robust),
        lost=tuple(images[robust[0] & ~robust[1] & kept]),
        gained=tuple(images[robust[1] & ~robust[0] & kept]),
        p_robust=mcnemar(robust[0][kept], robust[1][kept]) if kept.any() else float("nan"),
        p_distance=wilcoxon(far[0][both], far[1][both]),
        differs=tuple(_differing(a, b)),
        verdict="identical" if alike and shared else "no difference found",
    )


def _differing(a: RunResult, b: RunResult) -> list[str]:
    one, two = a.cell, b.cell
    differences = []
    if one.subject.model_digest != two.subject.model_digest:
        differences.append("model (structure, weights or preprocessing)")
    if one.subject.data_digest != two.subject.data_digest:
        differences.append("images")
    if one.version != two.version:
        differences.append(f"{one.row.library} {one.version or '?'} to {two.version or '?'}")
    return differences


def _table(changes: Sequence[RunChange]) -> PageTable:
    def named(images: Sequence[str]) -> TableCell:
        return TableCell(str(len(images)), len(images), title=", ".join(images[:20]))

    columns = (
        ("verdict", lambda change: badge("warn", "moved") if change.moved else TableCell(change.verdict)),
        ("model", lambda change: change.cell.subject.name),
        ("implementation", lambda change: change.cell.title),
        ("threat model", lambda change: format_threat_model(change.cell.threat_model)),
        (Column("n", "images that are in both folders"), lambda change: change.images),
        (
            Column(
                "violations",
                "invalid in one of the folders: excluded from the tests, from lost and from gained",
            ),
            lambda change: change.left_out,
        ),
        (Column("before", "robust accuracy in the first folder"), lambda change: change.before),
        (Column("after", "robust accuracy in the second folder"), lambda change: change.after),
        ("change", lambda change: change.after - change.before),
        (Column("lost", "images that are robust in the first folder only"), lambda change: named(change.lost)),
        (Column("gained", "images that are robust in the second folder only"), lambda change: named(change.gained)),
        (Column("p robust", "exact McNemar test"), lambda change: change.p_robust),
        (
            Column("p distance", "Wilcoxon's test on images fooled in both folders"),
            lambda change: change.p_distance,
        ),
        (Column("differs", "other differences"), lambda change: ", ".join(change.differs)),
    )
    ordered = sorted(changes, key=lambda change: (not change.moved, change.p_robust, change.p_distance))
    return list_table("changes", "Runs in both folders", ordered, columns)


def _versions(a: Results, b: Results) -> Any:
    old, new = (_about([*folder.states.values()]) for folder in (a, b))
    names = dict.fromkeys((*old, *new))
    rows = [(name, old.get(name, "-"), new.get(name, "-")) for name in names if old.get(name) != new.get(name)]
    if not rows:
        return Text("No version, device or Python differs between the two folders.", "note")
    return make_table("changed-versions", "Versions that changed", ("what", "first folder", "second folder"), rows)


def _about(states: Sequence[CellState]) -> Mapping[str, str]:
    known = [state for state in states if state.status == "done"]
    others = {name: ", ".join(sorted({str(s.meta.get(name, "")) for s in known})) for name in ("python", "device")}
    return {**collect_versions(list(known)), **others}


def _alone(name: str, caption: str, outcomes: Results, other: Results) -> Any:
    known = {_identity(each.cell) for each in other.done}
    cells = [each.cell for each in outcomes.done if _identity(each.cell) not in known]
    columns = (
        ("model", lambda cell: cell.subject.name),
        ("implementation", lambda cell: cell.title),
        ("threat model", lambda cell: format_threat_model(cell.threat_model)),
        ("seed", lambda cell: cell.seed),
        ("parameters", lambda cell: json.dumps(dict(cell.parameters))),
    )
    return list_table(name, caption, cells, columns) if cells else Text(f"{caption}: nothing.", "note")
