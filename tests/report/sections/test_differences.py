"""What moved between two folders, where it is known what was changed."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from davylamp.engine.attack_run import AttackRun
from davylamp.engine.store.results import RunResult, read_outcomes
from davylamp.engine.store.store import ResultsStore
from davylamp.errors import Unavailable
from davylamp.report.page.build import build_differences
from davylamp.report.sections.folder_comparison import find_changes
from davylamp.tools.speed.synthetic_results import write_results

ATTACKS = ("art:pgd", "foolbox:pgd", "foolbox:deepfool")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same twice, but in the second foolbox:pgd on model-a is of another version and fools ten images fewer."""
    path = tmp_path_factory.mktemp("two")
    for name in ("a", "b"):
        write_results(path / name, models=("model-a", "model-b"), attacks=ATTACKS, images=40, classes=5, side=32)
    store = ResultsStore(path / "b")
    for key, record in list(store.read_all("cells")):
        cell = AttackRun.from_spec(record.meta["spec"])
        if (cell.attack, cell.subject.model) == ("foolbox:pgd", "model-a"):
            table = record.table.to_pydict()
            fooled = [place for place, hit in enumerate(table["success"]) if hit][:10]
            for place in fooled:
                table["success"][place], table["robust"][place] = False, True
            store.remove("cells", key)
            changed = AttackRun.from_spec({**cell.spec, "version": "2.0"})
            import pyarrow as pa

            meta = {**record.meta, "key": changed.key, "spec": changed.spec}
            meta["versions"] = {**record.meta["versions"], "foolbox": "2.0"}
            store.write("cells", changed.key, pa.table(table, schema=record.table.schema), meta)
    return path / "a", path / "b"


def test_only_what_was_changed_has_moved(folders):
    changes = find_changes(*map(read_outcomes, folders))
    assert len(changes) == 6
    (moved,) = [change for change in changes if change.moved]
    assert (moved.cell.attack, moved.cell.subject.model) == ("foolbox:pgd", "model-a")
    assert (len(moved.gained), len(moved.lost)) == (10, 0)
    assert moved.p_robust == pytest.approx(stats.binomtest(10, 10).pvalue)
    assert moved.after - moved.before == pytest.approx(10 / 40)
    assert moved.differs == ("foolbox 1.0 to 2.0",)
    for change in changes:
        if not change.moved:
            assert (change.verdict, change.p_robust, change.before) == ("identical", 1.0, change.after)


def test_few_images_are_undecided_and_violations_left_out(folders):
    before, after = map(read_outcomes, folders)

    def cut(outcomes, images, violated=0):
        done = []
        for outcome in outcomes.done:
            columns = {name: values[:images].copy() for name, values in outcome.columns.items()}
            columns["violations"] = np.where(np.arange(images) < violated, "nan", "")
            columns["attacked"] = np.ones(images, bool)
            done.append(RunResult(outcome.cell, columns, outcome.unmeasured))
        return replace(outcomes, done=tuple(done))

    few = find_changes(cut(before, 5), cut(after, 5))
    assert {change.verdict for change in few} <= {"undecided", "identical"}
    assert "undecided" in {change.verdict for change in few}
    hidden = find_changes(cut(before, 40), cut(after, 40, violated=40))
    assert not any(change.moved for change in hidden)
    assert {(change.left_out, len(change.lost), len(change.gained)) for change in hidden} == {(40, 0, 0)}


def test_the_page_names_it(folders, read_page):
    page = read_page(build_differences(*folders))
    first = page.table("changes")[0]
    assert first["verdict"].text == "moved"
    assert first["gained"].value == 10
    assert [row["what"].text for row in page.table("changed-versions")] == ["foolbox"]


def test_a_cell_in_one_folder_only_is_named(folders, tmp_path, read_page):
    write_results(tmp_path / "c", models=("model-a", "model-c"), attacks=ATTACKS[:1], images=40, classes=5, side=32)
    page = read_page(build_differences(folders[0], tmp_path / "c"))
    assert {(row["model"].text, row["implementation"].text) for row in page.table("b-only")} == {("model-c", "art:pgd")}
    assert len(page.table("a-only")) == 5
    assert len(page.table("changes")) == 1


def test_nothing_in_common_is_one_line(folders, tmp_path):
    write_results(tmp_path / "other", models=("else",), attacks=ATTACKS[:1], images=5, classes=5, side=32)
    with pytest.raises(Unavailable, match="nothing can be compared"):
        build_differences(folders[0], tmp_path / "other")
