"""AttackBench's files against what was written into them by hand, and what AttackBench itself wrote and reads."""

import hashlib
import json
import math
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from davylamp import metrics
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.identity.digest import digest_data
from davylamp.engine.exchange.attackbench_export import export_attackbench
from davylamp.engine.exchange.attackbench_file import failed_batches, read_runs
from davylamp.engine.exchange.attackbench_import import import_attackbench
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.tables.budget_curves import build_curves
from davylamp.engine.tables.imported_table import build_references, draw_medians
from davylamp.engine.tables.table import build_table
from davylamp.errors import InvalidInput, Unavailable, UnknownName, Unsupported

HERE = Path(__file__).parent
N = 12
LABELS = torch.arange(N) % 3
INPUTS = torch.rand(N, 1, 4, 4, generator=torch.Generator().manual_seed(5))
DATA = Data(INPUTS, LABELS, [str(i) for i in range(N)])
CLEAN = torch.nn.functional.one_hot(torch.where(torch.arange(N) == 0, 2, LABELS), 3).float()  # the first is wrong
FOOLED = torch.nn.functional.one_hot((LABELS + 1) % 3, 3).float()
OURS = torch.linspace(0.5, 1.6, N, dtype=torch.double)
HASHES = [hashlib.sha512(image.numpy().tobytes()).hexdigest() for image in INPUTS]
# What AttackBench 2.0.2 requires of a file (its wandb.manager.PRECOMPILED_RESULT_FIELDS).
FIELDS = {
    *("distances", "final_distances", "adv_success", "ori_success", "correct", "hashes", "original_predictions"),
    *("adversarial_predictions", "num_forwards", "num_backwards", "times", "box_failures", "batch_failures"),
    *("targeted", "query_budget"),
}


def document(values, order=range(N), *, attack="fmn", norm="l2", predicted=None, **changes):
    """A file of AttackBench with these distances of images that are right when clean."""
    order, predicted = list(order), CLEAN.argmax(1) if predicted is None else predicted
    correct = [bool(predicted[i] == LABELS[i]) for i in order]
    kept = [float(values[i]) if right else 0.0 for i, right in zip(order, correct, strict=True)]
    about = {"dataset": "mine", "model_name": "net", "attack_name": attack, "attack_lib": "adv_lib"}
    content = {
        "distances": {norm: kept},
        "correct": correct,
        "hashes": [HASHES[i] for i in order],
        "original_predictions": [int(predicted[i]) for i in order],
        "num_forwards": [50] * len(order),
        "num_backwards": [40] * len(order),
        "times": [1.5, 0.5],
        "batch_failures": [False, False],
        "query_budget": 2000,
        "metadata": {**about, "threat_model": norm, "protocol_version": 2, "distance_semantics": "best_observed"},
    }
    return content | changes


@pytest.fixture
def folder(writer):
    """One model, a minimum-norm attack whose distances are `OURS`, and one in a ball."""
    subject = writer.clean("net", CLEAN, LABELS, data="mine", digest=digest_data(INPUTS, LABELS))
    writer.cell(subject, "foolbox:ddn", CLEAN, FOOLED, LABELS, sizes=OURS, norm="l2", epsilon=None)
    writer.cell(subject, "foolbox:pgd", CLEAN, CLEAN, LABELS, norm="l2", epsilon=0.5)
    return writer.store.folder


def bring(folder, tmp_path, *documents, **words):
    files = tmp_path / "files"
    files.mkdir(exist_ok=True)
    for place, content in enumerate(documents):
        (files / f"{place}.json").write_text(json.dumps(content), encoding="utf-8")
    return import_attackbench(files, folder, data=DATA, **words)


def row_of(table, name):
    """The row whose name ends so, ours before an imported one."""
    rows = [row for row in table.rows if row.labels["implementation"].endswith(name)]
    return min(rows, key=lambda row: row.labels["judged by"] != "davylamp")


def test_distances_find_their_images_in_any_order(folder, tmp_path):
    theirs = torch.rand(N, generator=torch.Generator().manual_seed(1)).double()
    order = [7, 3, 0, 11, 5]
    (done,), refused = bring(folder, tmp_path, document(theirs, order))
    assert (done.images, done.left_out, done.fooled, done.crashed, refused) == (5, 0, 4, 0, [])
    (reference,) = read_outcomes(folder).references
    covered = reference.columns["covered"]
    assert np.flatnonzero(covered).tolist() == sorted(order)
    expected = [0.0 if i == 0 else float(theirs[i]) for i in sorted(order)]
    assert reference.columns["distance"][covered].tolist() == expected
    assert np.isnan(reference.columns["distance"][~covered]).all()
    bring(folder, tmp_path, document(theirs, order))
    assert len(read_outcomes(folder).references) == 1


def test_each_row_stands_against_the_least_distance_of_all_imported_ones(folder, tmp_path):
    first, second = OURS * 0.9, torch.where(torch.arange(N) < 6, OURS * 0.5, OURS * 2)
    bring(folder, tmp_path, document(first), document(second, attack="ddn"))
    envelope = torch.minimum(first, second)
    envelope[0] = 0
    table = build_references(folder)
    ours = row_of(table, "foolbox:ddn").metrics
    falls = torch.where(torch.arange(N) == 0, 0.0, OURS)
    assert ours["gap"].value == pytest.approx(float((OURS - envelope)[1:].mean()))
    assert ours["gap"].n == 11
    assert ours["gap"].low < ours["gap"].value < ours["gap"].high
    assert ours["OPT"].value == pytest.approx(float(metrics.local_optimality(falls, envelope)))
    assert ours["median"].value == pytest.approx(float(np.median(OURS[1:])))
    assert (ours["fooled"].value, ours["passes"].value, ours["seconds"].value) == (1, 5, 0.5)
    theirs = row_of(table, "AttackBench adv_lib:fmn")
    assert theirs.metrics["OPT"].value == pytest.approx(
        float(metrics.local_optimality(torch.where(torch.arange(N) == 0, 0.0, first), envelope))
    )
    assert (theirs.metrics["passes"].value, theirs.metrics["seconds"].value) == (90, pytest.approx(2 / 12))
    assert theirs.labels["judged by"] == "AttackBench, not davylamp"
    ball = row_of(table, "foolbox:pgd").metrics
    assert (ball["fooled"].value, ball["OPT"].value, ball["median"].value) == (0, 0, math.inf)
    assert math.isnan(ball["gap"].value)
    assert any("2 rows of AttackBench, not judged" in note for note in build_table(folder).notes)


def test_an_attack_nearer_than_all_imported_rows_has_more_than_one(folder, tmp_path):
    bring(folder, tmp_path, document(OURS * 1.1))
    ours = row_of(build_references(folder), "foolbox:ddn").metrics
    assert ours["OPT"].value > 1
    assert ours["gap"].value < 0


def test_a_crash_is_no_success_of_zero_and_an_honest_zero_is_one(folder, tmp_path):
    nothing = torch.full((N,), math.inf)
    crashed = document(nothing, attack="sigma_zero", batch_failures=[True, True])
    silent = document(nothing, attack="silent", num_forwards=[0] * N, num_backwards=[0] * N)
    honest = document(nothing, attack="honest")
    half = document(torch.where(torch.arange(N) < 6, OURS, math.inf), attack="half", batch_failures=[False, True])
    done, _ = bring(folder, tmp_path, crashed, silent, honest, half)
    assert {each.attack: each.crashed for each in done} == {
        "adv_lib:sigma_zero": 11, "adv_lib:silent": 11, "adv_lib:honest": 0, "adv_lib:half": 6,
    }  # fmt: skip
    table = build_references(folder)
    for name in ("sigma_zero", "silent"):
        assert math.isnan(row_of(table, name).metrics["fooled"].value)
        assert row_of(table, name).labels["crashed"] == 11
    assert row_of(table, "honest").metrics["fooled"].value == 0
    assert row_of(table, "half").metrics["fooled"][::3] == (1, 5)
    curve = {each.labels["implementation"]: each for each in build_curves(folder).curves}
    assert curve["AttackBench adv_lib:sigma_zero (not judged by davylamp)"].accuracy[1:].max() == 0
    assert curve["AttackBench adv_lib:honest (not judged by davylamp)"].accuracy[-1] == pytest.approx(11 / 12)


def test_the_images_of_a_failed_batch():
    assert failed_batches([False, True], 12).tolist() == [False] * 6 + [True] * 6
    assert failed_batches([True, False], 5).tolist() == [True] * 4 + [False]  # of 3 and 2, or of 4 and 1
    assert failed_batches([True], 3).all()
    assert not failed_batches([False, False], 3).any()
    assert not failed_batches(None, 3).any()


def test_a_curve_has_the_optimality_against_imported_rows(folder, tmp_path):
    theirs = OURS * 0.8
    bring(folder, tmp_path, document(theirs))
    curves = {each.labels["implementation"]: each for each in build_curves(folder, budgets=[0.7, 1]).curves}
    zero = torch.arange(N) == 0
    expected = metrics.local_optimality(torch.where(zero, 0.0, OURS), torch.where(zero, 0.0, theirs))
    assert curves["foolbox:ddn"].reference_optimality.value == pytest.approx(float(expected))
    imported = curves["AttackBench adv_lib:fmn (not judged by davylamp)"]
    assert not imported.judged
    at = dict(zip(imported.budgets.tolist(), imported.accuracy.tolist(), strict=True))
    assert at[0.7] == pytest.approx(float((~zero & (theirs > 0.7)).double().mean()))
    assert at[0] == pytest.approx(11 / 12)


def test_a_file_of_another_model_is_refused(folder, tmp_path):
    others = (CLEAN.argmax(1) + (torch.arange(N) == 4)) % 3
    with pytest.raises(InvalidInput, match="clean predictions in the file differ from those of net on 1 of 12 images"):
        bring(folder, tmp_path, document(OURS, predicted=others))
    assert read_outcomes(folder).references == ()
    with pytest.raises(UnknownName, match="model"):
        bring(folder, tmp_path, document(OURS), model="other")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"metadata": {"protocol_version": 1}}, "protocol 2"),
        ({"metadata": {}}, "protocol 2"),
        ({"distances": {}}, "expected distances"),
        ({"distances": {"linf": [0.1] * N}}, "expected distances in linf, l2, l1 or l0, got l2"),
        ({"distances": {"l2": [0.1]}}, "12 numbers"),
        ({"distances": {"l2": [math.nan] * N}}, "NaN"),
        ({"distances": {"l2": [-1.0] * N}}, "negative"),
        ({"distances": {"l2": ["a"] * N}}, "12 numbers"),
        ({"hashes": []}, "has no hashes"),
        ({"hashes": ["ab"] * N}, "SHA-512"),
        ({"hashes": ["0" * 128] * N}, "none of the 12 images"),
        ({"targeted": True}, "is targeted and cannot be imported"),
        ({"num_forwards": [1]}, "num_forwards"),
    ],
)
def test_every_fault_of_a_file_is_one_line(folder, tmp_path, changes, line):
    with pytest.raises(InvalidInput, match=line) as caught:
        bring(folder, tmp_path, document(OURS, **changes))
    assert "\n" not in str(caught.value)
    assert "0.json" in str(caught.value)


def test_what_is_no_file_of_it_is_one_line(folder, tmp_path):
    for name, content in (
        ("a.json", b"{"),
        ("b.json", b"[1]"),
        ("c.json", b'{"metadata": 3}'),
        ("d.json", b"\xff\xfe\0"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput, match=name):
            import_attackbench(tmp_path / name, folder, data=DATA)
    for path in (tmp_path / "nowhere", tmp_path / "folder" / "cells"):
        with pytest.raises(Unavailable, match="expected a JSON file of AttackBench, or a folder"):
            import_attackbench(path, folder, data=DATA)
    with pytest.raises(Unavailable, match="results folder"):
        import_attackbench(tmp_path / "a.json", tmp_path / "none", data=DATA)
    with pytest.raises(Unavailable, match="differ from the images of the evaluation"):
        import_attackbench(tmp_path / "a.json", folder, data=Data(INPUTS + 0.1, LABELS, DATA.names))
    with pytest.raises(Unsupported, match="import attackbench"):
        build_references(folder)


def test_a_folder_of_files_costs_only_the_bad_ones(folder, tmp_path):
    done, refused = bring(folder, tmp_path, document(OURS), document(OURS, hashes=["0" * 128] * N))
    assert (len(done), len(refused)) == (1, 1)
    assert refused[0].startswith("1.json: none of the 12 images is in the results folder")


def test_an_envelope_by_hash_is_a_row(folder, tmp_path):
    theirs = {HASHES[i]: 0.0 if i == 0 else float(OURS[i]) / 2 for i in range(N)}
    about = {"protocol_version": 2, "distance_semantics": "best_observed", "format": "hash_based"}
    bring(folder, tmp_path, {"distances": {"l2": theirs}, "metadata": about})
    ours = row_of(build_references(folder), "foolbox:ddn").metrics
    assert ours["gap"].value == pytest.approx(float((OURS / 2)[1:].mean()))


def test_medians_are_those_of_the_drawn_images():
    generator = np.random.default_rng(0)
    values = generator.random(9)
    weights = np.stack([np.ones(9, int), *(np.bincount(generator.integers(9, size=9), minlength=9) for _ in range(20))])
    expected = [np.median(np.repeat(values, row)) for row in weights]
    np.testing.assert_allclose(draw_medians(weights, values), expected)
    assert draw_medians(np.ones((1, 3)), np.array([1, math.inf, math.inf])).tolist() == [math.inf]


def test_a_file_that_attackbench_wrote():
    """AttackBench 2.0.2 on four digits: Foolbox's DDN, and sigma-zero, which raised before it asked anything."""
    (run,) = read_runs(HERE / "attackbench-foolbox-ddn.json")
    assert (run.attack, run.norm, run.budget, len(run.hashes)) == ("foolbox:ddn", "l2", 2000, 4)
    assert np.isfinite(run.distance).all()
    assert not run.crashed.any()
    assert (run.passes["forwards"] + run.passes["backwards"] == 200).all()
    (crash,) = read_runs(HERE / "attackbench-original-sigma_zero.json")
    written = json.loads((HERE / "attackbench-original-sigma_zero.json").read_text(encoding="utf-8"))
    assert written["ASR"] == 0
    assert crash.crashed.all()


@pytest.fixture
def evaluated(small_folder, tmp_path):
    """The digits evaluation, in a folder that may be written to."""
    shutil.copytree(small_folder, tmp_path / "results")
    return tmp_path / "results"


def test_what_is_exported_has_every_field_and_the_numbers_of_the_cells(evaluated, tmp_path, images):
    exported = export_attackbench(evaluated, tmp_path / "out", data=images)
    outcomes = {each.cell.attack: each for each in read_outcomes(evaluated).done}
    assert len(exported.files) == len(outcomes) == 3
    for file in exported.files:
        content = json.loads(file.read_text(encoding="utf-8"))
        about = content["metadata"]
        assert set(content) >= FIELDS
        assert (about["protocol_version"], about["distance_semantics"], about["n_samples"]) == (2, "best_observed", 16)
        assert content["hashes"] == [hashlib.sha512(image.numpy().tobytes()).hexdigest() for image in images.inputs]
        (outcome,) = [each for each in outcomes.values() if each.cell.row.library == about["attack_lib"]
                      and about["attack_name"].startswith(each.cell.row.attack)]  # fmt: skip
        columns = outcome.columns
        np.testing.assert_array_equal(content["distances"][about["threat_model"]], columns["distance"])
        assert content["num_forwards"] == columns["forwards"].tolist()
        assert content["adv_success"] == columns["success"].tolist()
        fooled = columns["success"]
        np.testing.assert_array_equal(np.array(content["distances"]["l1"])[fooled], columns["l1"][fooled])
        assert np.isinf(np.array(content["distances"]["l1"])[~fooled]).all()


def test_what_is_exported_comes_back_as_it_was(evaluated, tmp_path, images):
    exported = export_attackbench(evaluated, tmp_path / "out", data=images)
    done, refused = import_attackbench(tmp_path / "out", evaluated, data=images)
    assert (len(done), refused) == (len(exported.files), [])
    table = build_references(evaluated)
    (mine,) = [row for row in table.rows if row.labels["implementation"] == "foolbox:ddn"]
    back = row_of(table, "AttackBench foolbox:ddn")
    for name in ("fooled", "median", "gap", "OPT", "passes"):
        assert mine.metrics[name] == back.metrics[name], name
    assert (mine.metrics["gap"].value, mine.metrics["OPT"].value) == (0, 1)


def test_a_violation_is_exported_as_a_failed_batch(writer, tmp_path):
    subject = writer.clean("net", CLEAN, LABELS, data="mine", digest=digest_data(INPUTS, LABELS))
    violated = torch.arange(N) == 5
    writer.cell(subject, "foolbox:ddn", CLEAN, FOOLED, LABELS, sizes=OURS, norm="l2", epsilon=None, violated=violated)
    writer.cell(subject, "foolbox:pgd", CLEAN, FOOLED, LABELS, target="random")
    writer.failed(subject, "foolbox:cw", "it crashed")
    exported = export_attackbench(writer.store.folder, tmp_path / "out", data=DATA)
    (file,) = exported.files
    assert json.loads(file.read_text(encoding="utf-8"))["batch_failures"] == violated.tolist()
    assert {note.partition(":")[0] for note in exported.notes} == {"omitted", "foolbox"}
    assert len(exported.notes) == 3
    assert sum("it failed" in note or "1 invalid results" in note for note in exported.notes) == 2
    ((done,), _) = import_attackbench(file, writer.store.folder, data=DATA)
    assert (done.fooled, done.crashed) == (10, 1)


def test_a_file_is_of_the_model_that_it_names_though_another_predicts_the_same(writer, tmp_path):
    for name, sizes in (("net", OURS), ("noisy", OURS * 2)):
        subject = writer.clean(name, CLEAN, LABELS, data="mine", digest=digest_data(INPUTS, LABELS))
        writer.cell(subject, "foolbox:ddn", CLEAN, FOOLED, LABELS, sizes=sizes, norm="l2", epsilon=None)
    folder = writer.store.folder
    export_attackbench(folder, tmp_path / "files", data=DATA)
    done, refused = import_attackbench(tmp_path / "files", folder, data=DATA)
    assert ({each.model for each in done}, refused) == ({"net", "noisy"}, [])
    for reference in read_outcomes(folder).references:
        least = OURS if reference.subject.model == "net" else OURS * 2
        np.testing.assert_array_equal(reference.columns["distance"][1:], least[1:].numpy())


def test_with_a_model_the_files_of_others_are_left_out_and_counted(writer, tmp_path):
    for name in ("net", "noisy"):
        subject = writer.clean(name, CLEAN, LABELS, data="mine", digest=digest_data(INPUTS, LABELS))
        writer.cell(subject, "foolbox:ddn", CLEAN, FOOLED, LABELS, sizes=OURS, norm="l2", epsilon=None)
    folder = writer.store.folder
    export_attackbench(folder, tmp_path / "files", data=DATA)
    unknown = document(OURS)
    unknown["metadata"]["model_name"] = "theirs"
    (tmp_path / "files" / "unknown.json").write_text(json.dumps(unknown), encoding="utf-8")
    done, (line,) = import_attackbench(tmp_path / "files", folder, data=DATA, model="net")
    assert [(each.attack, each.model) for each in done] == [("foolbox:ddn", "net"), ("adv_lib:fmn", "net")]
    assert line == "1 runs belong to other models in the folder, not to net: noisy"
    with pytest.raises(InvalidInput, match=r"net, noisy; .*`model`"):
        import_attackbench(tmp_path / "files" / "unknown.json", folder, data=DATA)


@pytest.mark.filterwarnings("ignore:The reference lower envelope leaves")
def test_attackbench_reads_what_is_exported(evaluated, tmp_path, images, monkeypatch):
    monkeypatch.setitem(
        sys.modules, "wandb", types.SimpleNamespace(Api=object)
    )  # it uploads with that; nothing here does
    attackbench = pytest.importorskip("attackbench")
    from attackbench.metrics.storage import load_precompiled_distances
    from attackbench.wandb.manager import _validate_precompiled_data

    exported = export_attackbench(evaluated, tmp_path / "out", data=images)
    for file in exported.files:
        content = load_precompiled_distances(str(file))
        assert _validate_precompiled_data(content, file.name) is content
        norm = content["metadata"]["threat_model"]
        optimality = attackbench.compute_local_optimality(content, reference_results=[content])
        finite = np.isfinite(content["distances"][norm]).all()
        assert optimality["optimality"] == pytest.approx(1) or not finite
        assert attackbench.get_stats(content, norm)["ASR"] == pytest.approx(np.mean(content["adv_success"]))
