"""`davylamp evaluate` and `status` as a user meets them."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

from davylamp.engine import load, load_transfer

FACTORY = """
import torch
from torch import nn

def one():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 4))

def pair():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 2))

def two():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
"""
CRASH = """
def crash(model, inputs, labels, epsilon):
    if model(inputs).shape[1] == 2:
        raise ValueError("two classes")
    return (inputs + epsilon).clamp(0, 1)
"""
COMMON = ("--models", "net.py:one", "--models", "net.py:two", "--data", "npz:images.npz", "--out", "out")
PGD = ("--attacks", "foolbox:pgd,torchattacks:pgd", "--norm", "linf", "--epsilon", "2/255", "--param", "steps=3")


@pytest.fixture
def run(run, tmp_path):
    """Run a command where there is a model and images."""
    (tmp_path / "net.py").write_text(FACTORY)
    (tmp_path / "crash.py").write_text(CRASH)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (8, 3, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", inputs=images, labels=np.arange(8) % 2)
    return run


def test_evaluate_then_resume(run):
    code, out, _ = run("evaluate", *COMMON, *PGD, "--transfer", "full")
    assert code == 0
    assert out.startswith("out: 4 runs done, 0 failed")
    records = load("out")
    assert len(records) == 4 * 8
    transfer = load_transfer("out")
    assert {(a, b) for a, b in zip(transfer["made_on"], transfer["tested_on"], strict=True)} == {
        ("net.py:one", "net.py:two"),
        ("net.py:two", "net.py:one"),
    }
    code, out, _ = run("evaluate", *COMMON, *PGD, "--transfer", "full", "--json")
    assert json.loads(out)["kept"] == 4
    assert json.loads(out)["done"] == 0


def test_parts_of_a_job_array_complete_each_other(run):
    command = ("evaluate", *COMMON, *PGD, "--shard-size", "3", "--part")
    code, out, _ = run(*command, "2/2")
    assert code == 0
    assert out.startswith("out, part 2/2: 4 runs done, 0 failed, 4 waiting for shards of other parts")
    assert "every part is finished: davylamp status out; davylamp table out" in out
    _, out, _ = run("status", "out")
    assert "- part 1/2: 6 of 6 shards missing; run its command again to resume" in out
    _, out, _ = run("status", "out", "--json")
    assert json.loads(out)["parts"][0] == {"number": 1, "of": 2, "pieces": 6, "missing": 6, "running": 0}
    _, out, _ = run(*command, "1/2")
    assert out.startswith("out, part 1/2: 4 runs done, 0 failed, ")
    assert "robust accuracy" in out
    _, out, _ = run("status", "out")
    assert "part 1/2" not in out
    _, out, _ = run(*command, "13/13")
    assert "- nothing to do in part 13/13: there are fewer shards than parts" in out
    whole = load("out").drop(columns="seconds")
    run("evaluate", *COMMON[:-1], "one-run", *PGD, "--shard-size", "3")
    assert whole.equals(load("one-run").drop(columns="seconds"))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--part", "0/4"), "expected a part from 1 to 4, got '0/4': parts count from 1 (Slurm: --array=1-4)"),
        (("--part", "1/4", "--executor", "ray"), "--part and --executor ray cannot be combined"),
        (("--part", "1/4", "--detector", "d.pt"), "--part and --detector cannot be combined"),
        (("--part", "1/4", "--against", "old"), "--against and --part cannot be combined"),
    ],
)
def test_a_part_that_cannot_be_is_a_line(run, options, line):
    threat = () if "--against" in options else PGD
    code, _, error = run("evaluate", *(COMMON if threat else COMMON[:2]), *threat, *options)
    assert code == 1
    assert line in error
    assert len(error.strip().splitlines()) == 1


def test_a_model_that_is_partly_unknown_is_run_again_and_named(run, tmp_path):
    odd = "\ndef odd():\n    net = one()\n    net.it = (i for i in 'ab')\n    return net\n"
    (tmp_path / "net.py").write_text(FACTORY + odd)
    command = ("evaluate", "--models", "net.py:odd", *COMMON[4:], "--attacks", "foolbox:fgsm", *PGD[2:6], "--json")
    answers = [json.loads(run(*command, *extra)[1]) for extra in ((), (), ("--trust-unknown",))]
    assert [(each["done"], each["kept"]) for each in answers] == [(1, 0), (1, 0), (0, 1)]
    assert answers[0]["unknown"] == {"net.py:odd": "model.it is a generator, whose content cannot be read"}


def test_a_printed_config_runs_the_same_cells(run, tmp_path):
    run("evaluate", *COMMON, *PGD)
    _, out, _ = run("evaluate", *COMMON, *PGD, "--print-config")
    (tmp_path / "run.toml").write_text(out)
    code, out, _ = run("evaluate", "run.toml", "--out", "out", "--json")
    assert code == 0
    assert json.loads(out)["kept"] == 4


def test_a_step_may_be_relative_to_the_radius(run):
    radius = ("--attacks", "foolbox:pgd", "--norm", "linf", "--epsilon", "2/255", "--param", "steps=4")
    run("evaluate", *COMMON, *radius, "--param", f"step_size={2.5 * 2 / 255 / 4!r}")
    _, out, _ = run("evaluate", *COMMON, *radius, "--param", "step_size=2.5 epsilon / steps", "--print-config")
    assert 'step_size = "2.5 epsilon / steps"' in out
    _, out, _ = run("evaluate", *COMMON, *radius, "--param", "step_size=2.5 epsilon / steps", "--json")
    assert json.loads(out)["kept"] == 2  # the same cells as with the number


def test_a_preset_is_a_config(run):
    code, out, _ = run("evaluate", "--preset", "canary", "--print-config", "--limit", "3", "--shard-size", "2")
    assert code == 0
    assert "limit = 3" in out
    assert "shard_size = 2" in out
    assert 'transfer = "simple"' in out


def test_a_failed_cell_is_told_and_shown(run):
    attacks = ("--attacks", "foolbox:pgd", "--attacks", "crash.py:crash", "--norm", "linf")
    code, out, _ = run("evaluate", "--models", "net.py:pair", *COMMON[4:], *attacks)
    assert code == 0
    assert "failed: crash.py:crash on net.py:pair: AttackFailed: crash.py:crash crashed: " in out
    _, out, _ = run("status", "out", "--json")
    states = {cell["attack"]: cell["status"] for cell in json.loads(out)["cells"]}
    assert states == {"foolbox:pgd": "done", "crash.py:crash": "failed"}
    code, out, err = run("evaluate", "--models", "net.py:pair", *COMMON[4:], *attacks[2:], "--json")
    assert code == 1  # nothing could be computed
    assert "davylamp: failed: AttackFailed: crash.py:crash crashed: " in err
    assert len(json.loads(out)["failed"]) == 1
    command = ("evaluate", "--models", "net.py:pair", *COMMON[4:], "--norm", "linf", "--strict", "--attacks")
    assert run(*command, "crash.py:crash")[0] == 2
    assert run(*command, "crash.py:crash", "--json")[0] == 2
    assert run(*command, "foolbox:pgd")[0] == 0


def test_an_attack_that_needs_more_classes_is_left_out_with_the_reason(run):
    attacks = ("--attacks", "foolbox:pgd", "--attacks", "torchattacks:apgd-dlr", "--norm", "linf")
    code, out, _ = run("evaluate", "--models", "net.py:pair", *COMMON[4:], *attacks)
    assert code == 0
    assert "omitted: torchattacks:apgd-dlr on net.py:pair: needs at least 3 classes, got 2" in out
    assert len(load("out")) == 8


@pytest.mark.parametrize("transfer", ["no", "simple", "full"])
def test_progress_ends_where_all_is_done_also_with_failed_cells_and_transfers(run, monkeypatch, transfer):
    reports = []

    class Report:
        def __init__(self, total):
            self.total, self.done, self.kept = total, 0, 0

        def __call__(self, name, images):
            if name:
                self.done += images
            else:
                self.kept += images

        def skip(self, name, images):
            self.kept += images

        def asked(self, name, passes):
            assert passes > 0

    @contextmanager
    def show(total, *_):
        reports.append(Report(total))
        yield reports[-1]

    monkeypatch.setattr("davylamp.report.text.progress.show_progress", show)
    attacks = ("--attacks", "foolbox:fgsm", "--attacks", "crash.py:crash", "--norm", "linf")
    models = ("--models", "net.py:pair", "--models", "net.py:one", *COMMON[4:])
    for _ in range(2):
        run("evaluate", *models, *attacks, "--shard-size", "3", "--transfer", transfer)
    transfers = {"no": 0, "simple": 4, "full": 4}[transfer]
    totals = [report.total for report in reports]
    assert [report.done + report.kept for report in reports] == totals == [(2 + 4 + transfers) * 8] * 2
    assert reports[1].done == 0  # all was there


def test_status_counts_and_names_damage(run, tmp_path):
    run("evaluate", *COMMON, *PGD)
    file = sorted((tmp_path / "out" / "cells").glob("*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:-20])
    code, out, _ = run("status", "out")
    assert code == 0
    assert out.splitlines()[-1].startswith("out: 3 done")
    assert "is damaged" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("evaluate", "missing.toml"), "TOML file missing.toml"),
        (("evaluate", "--preset", "canari", "--print-config"), "did you mean canary"),
        (("evaluate", "--preset", "canary", "--epsilon", "1/255"), "cannot be used without --attacks"),
        (("evaluate", *COMMON, "--attacks", "PGD "), "unknown attack 'PGD'; did you mean pgd"),
        (("evaluate", *COMMON, "--attacks", "pgd,,fgsm"), "expected --attacks A,B"),
        (
            ("evaluate", *COMMON, "--attacks", "best(foolbox:fgsm"),
            "expected an attack as NAME, LIBRARY:NAME, best(LIBRARY:NAME)",
        ),
        (
            ("evaluate", *COMMON, "--attacks", "foolbox:fgsm", "--library", "art"),
            "expected a library that implements foolbox:fgsm",
        ),
        (("evaluate", *COMMON, "--attacks", "pgd", "--library", "Art"), "did you mean art"),
        (
            ("evaluate", *COMMON, "--attacks", "pgd", "--epsilon", "8"),
            "epsilon 8 for pgd needs a norm",
        ),
        (
            ("evaluate", *COMMON, "--attacks", "fgsm,fgm", "--epsilon", "0.1"),
            "epsilon 0.1 for fgm needs a norm",
        ),
        (
            ("evaluate", *COMMON, "--attacks", "fgsm,deepfool", "--epsilon", "8/255"),
            "for deepfool needs a norm",
        ),
        (("evaluate", *COMMON, "--attacks", "foolbox:cw", "--epsilon", "2/255"), "for cw needs a norm"),
        (
            ("evaluate", *COMMON, "--attacks", "fgsm,art:jsma", "--epsilon", "1"),
            "(linf for fgsm and l0 for art:jsma)",
        ),
        (
            ("evaluate", *COMMON, "--attacks", "pgd,fgsm", "--param", "overshoot=1"),
            "does not exist for pgd or fgsm",
        ),
        (
            ("evaluate", *COMMON, "--attacks", "pgd", "--seed", "-1"),
            "davylamp: --seed: expected a whole number >= 0, got -1",
        ),
        (("evaluate", *COMMON, "--attacks", "pgd", "--seed", "a"), '--seed: expected a whole number, got "a"'),
        (("evaluate", *COMMON, "--attacks", "pgd", "--seed", "4294967296"), "expected a whole number <= 4294967295"),
        (
            ("evaluate", *COMMON, "--attacks", "pgd", "--max-queries", "9" * 23),
            "--max-queries: expected a whole number <=",
        ),
        (("evaluate", *COMMON, "--attacks", "pgd", "--limit", "0"), "--limit: expected a whole number >= 1, got 0"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--target", "²"), "--target: expected a target of second-likely"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--transfer", "all"), "unknown transfer 'all'"),
        (("evaluate", *COMMON[:-1], "net.py", "--attacks", "pgd"), "expected a folder for --out, got the file net.py"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--executor", "slurm"), "unknown executor"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--address", "x:1"), "--address needs --executor ray"),
        (("evaluate", *COMMON, "--attacks", "pgd", "--workers", "0"), "at least one worker"),
        (("evaluate", "--models", "vgg*", "--attacks", "pgd"), "unknown model"),
        (("status", "nowhere"), "expected a results folder"),
    ],
)
def test_mistakes_get_one_line(run, arguments, words, tmp_path):
    code, out, err = run(*arguments)
    assert code == 1
    assert words in err
    assert err.count("\n") == 1
    assert out == ""
    assert not (tmp_path / "out").exists()  # refused before anything is made


def test_a_mistake_is_refused_before_a_model_is_loaded(run, tmp_path):
    (tmp_path / "net.py").write_text("raise RuntimeError('loaded')")
    assert "loaded" in run("evaluate", *COMMON, "--attacks", "fgsm")[2]
    for wrong in (("pgd", "--epsilon", "8"), ("pgd", "--norm", "l0"), ("foolbox:pgd", "--param", "theta=1")):
        assert "loaded" not in run("evaluate", *COMMON, "--attacks", *wrong)[2]


def test_what_was_chosen_is_one_line_and_stored(run):
    attacks = ("--attacks", "foolbox:pgd,best(foolbox:fgsm)", "--attacks", "foolbox:deepfool", "--param", "steps=3")
    code, out, err = run("evaluate", *COMMON, *attacks, "--seed", "0")
    assert code == 0
    notes = ("classified correctly", "in a separate process", "in separate processes")
    line, note = [line for line in err.splitlines() if not any(words in line for words in notes)]
    assert note == "- the parameter steps does not exist for best(foolbox:fgsm) and is ignored there"
    assert line == (
        "chosen: foolbox:pgd: norm linf, epsilon 4/255 (customary), step_size 2.5 epsilon / steps, random_start no "
        "(matched); best(foolbox:fgsm): norm linf; foolbox:deepfool: norm l2, overshoot 0.02, candidates 10 (matched); "
        "device cpu"
    )
    from davylamp.engine.store.store import ResultsStore

    chosen = {
        record.meta["spec"]["attack"]: record.meta["chosen"] for _, record in ResultsStore("out").read_all("cells")
    }
    assert chosen["foolbox:pgd"]["norm"] == "linf"
    assert chosen["foolbox:pgd"]["epsilon"] == 4 / 255
    assert chosen["foolbox:deepfool"] == {"norm": "l2", "parameters": {"overshoot": 0.02, "candidates": 10}}
    assert chosen["best(foolbox:fgsm)"] == {"norm": "linf"}
    _, out, _ = run("evaluate", *COMMON, *attacks, "--json")
    assert json.loads(out)["chosen"].endswith("candidates 10 (matched); seed 0; device cpu")


def test_what_is_named_is_not_chosen(run, tmp_path):
    (tmp_path / "run.toml").write_text(
        'models = ["net.py:one"]\ndata = "npz:images.npz"\nseeds = [1]\ndevice = "cpu"\n'
        '[[attacks]]\nattack = "foolbox:fgsm"\nnorm = "linf"\nepsilon = "8/255"\n'
    )
    code, _, err = run("evaluate", "run.toml", "-o", "out")
    assert code == 0
    assert "chosen" not in err


def test_a_radius_lands_in_the_norm_that_is_named_only(run):
    """DeepFool has linf in Foolbox alone: the radius is never one of l2, in which the others have it."""
    assert run("evaluate", *COMMON, "--attacks", "fgsm,deepfool", "--norm", "linf", "--epsilon", "8/255")[0] == 0
    records = load("out")
    assert set(records["norm"]) == {"linf"}
    assert set(records["implementation"]) >= {"foolbox:deepfool", "art:fgsm"}


def test_steps_that_cannot_reach_the_radius_are_named_before_the_run(run):
    radius = ("--norm", "linf", "--epsilon", "0.5", "--param", "steps=2", "--param", "step_size=0.01")
    assert (
        "- foolbox:pgd: its steps together reach 0.04 of the radius"
        in run("evaluate", *COMMON, "--attacks", "foolbox:pgd", *radius)[2]
    )
    words = ("--model", "net.py:one", *COMMON[4:6], *radius, "--library", "foolbox")
    assert "- foolbox:pgd: its steps together reach 0.04 of the radius" in run("compare", "pgd", *words)[2]
