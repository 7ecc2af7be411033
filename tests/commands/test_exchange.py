"""`davylamp import` and `export` as a user meets them: a model and images by name, files as AttackBench writes them."""

import hashlib
import json

import numpy as np
import pytest
import torch

MODEL = """import torch
def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
"""


@pytest.fixture
def evaluated(run, tmp_path):
    """A linear model on 9 images of an array file, DDN in l2."""
    (tmp_path / "net.py").write_text(MODEL, encoding="utf-8")
    inputs = torch.rand(9, 3, 4, 4, generator=torch.Generator().manual_seed(2))
    torch.manual_seed(0)
    labels = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))(inputs).argmax(1)
    np.savez(tmp_path / "images.npz", inputs=inputs.numpy(), labels=labels.numpy())
    code, _, errors = run(
        "evaluate", "--models", "net.py:build", "--attacks", "foolbox:ddn", "--norm", "l2", "--param", "steps=20",
        "--data", "npz:images.npz", "-o", "results",
    )  # fmt: skip
    assert code == 0, errors
    return inputs, labels


def write(path, inputs, labels, **changes):
    content = {
        "distances": {"l2": [0.21 + 0.01 * place for place in range(len(labels))]},
        "correct": [True] * len(labels),
        "hashes": [hashlib.sha512(image.numpy().tobytes()).hexdigest() for image in inputs],
        "original_predictions": labels.tolist(),
        "num_forwards": [10] * len(labels),
        "num_backwards": [10] * len(labels),
        "times": [1.0],
        "batch_failures": [False],
        "metadata": {"protocol_version": 2, "threat_model": "l2", "attack_lib": "adv_lib", "attack_name": "fmn"},
    }
    path.write_text(json.dumps(content | changes), encoding="utf-8")


def test_imported_rows_stand_beside_ours_in_every_format(run, evaluated, tmp_path):
    write(tmp_path / "fmn.json", *evaluated)
    code, out, _ = run("import", "attackbench", "fmn.json", "-o", "results")
    assert code == 0
    assert "adv_lib:fmn" in out
    assert "left out" in out
    assert "left_out" not in out
    assert "--with-imported" in out
    code, out, _ = run("table", "results", "--with-imported", "--json")
    rows = {row["implementation"]: row for row in json.loads(out)["rows"]}
    assert rows["AttackBench adv_lib:fmn"]["judged by"] == "AttackBench, not davylamp"
    assert rows["AttackBench adv_lib:fmn"]["metrics"]["median"]["value"] == 0.25
    assert rows["foolbox:ddn"]["metrics"]["gap"]["n"] == 9
    for form in ("--csv", "--markdown", "--latex"):
        code, out, _ = run("table", "results", "--with-imported", form)
        assert code == 0
        assert out.count("foolbox:ddn") == 1
    assert "OPT of imported" in run("curves", "results")[1]
    assert "OPT of imported" in run("curves", "results", "--csv")[1]
    code, out, _ = run("curves", "results", "--json")
    curves = {curve["implementation"]: curve for curve in json.loads(out)["curves"]}
    assert curves["foolbox:ddn"]["metrics"]["OPT_imported"]["n"] == 9
    assert "not judged by davylamp" in run("table", "results")[1]
    assert run("report", "results", "-o", "report.html")[0] == 0
    assert "not judged by davylamp" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_exported_is_imported_again(run, evaluated, tmp_path):
    code, out, _ = run("export", "attackbench", "results", "-o", "files")
    assert code == 0
    assert "- 1 file for AttackBench" in out
    code, out, _ = run("import", "attackbench", "files", "-o", "results", "--json")
    ((done,), refused) = json.loads(out).values()
    assert (done["attack"], done["images"], done["left_out"], refused) == ("foolbox:ddn", 9, 0, [])


def test_a_crash_is_named(run, evaluated, tmp_path):
    write(tmp_path / "a.json", *evaluated, distances={"l2": [float("inf")] * 9}, batch_failures=[True])
    code, out, _ = run("import", "attackbench", "a.json", "-o", "results")
    assert code == 0
    assert "a missing result, not a success rate of 0" in out
    assert "9 of 9 images: the attack crashed" in run("table", "results", "--with-imported")[1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("import", "attackbench", "nowhere", "-o", "results"), "expected a JSON file of AttackBench"),
        (("import", "attackbench", "net.py", "-o", "results"), "expected a JSON file of AttackBench"),
        (("import", "attackbench", "ok.json", "-o", "none"), "expected a results folder"),
        (("import", "attackbench", "ok.json", "-o", "results", "--model", "other"), "unknown model"),
        (
            ("import", "attackbench", "ok.json", "-o", "results", "--data", "npz:none.npz"),
            "give the data set of the images as --data NAME",
        ),
        (("import", "attackbench", "other.json", "-o", "results"), "none of the 9 images"),
        (("table", "results", "--with-imported"), "davylamp import attackbench"),
        (("table", "results", "--with-imported", "--transfer"), "--with-imported cannot be combined"),
        (("table", "results", "--with-imported", "--pool-images"), "--with-imported cannot be combined"),
        (("export", "attackbenc", "results", "-o", "files"), "unknown format 'attackbenc'; did you mean attackbench?"),
        (("export", "attackbench", "none", "-o", "files"), "expected a results folder"),
        (("export", "attackbench", "results", "-o", "results"), "must differ from the results folder"),
        (("export", "attackbench", "results", "-o", "net.py"), "choose a different folder for --out"),
        (("export", "attackbench", "results", "-o", "files", "--no-images"), "cannot be combined with --images"),
        (("export", "results", "none/results.zip"), "choose a different file"),
        (("report", "results", "-o", "none/report.html"), "choose a different file for --out"),
    ],
)
def test_what_is_wrong_is_one_line(run, evaluated, tmp_path, arguments, line):
    inputs, labels = evaluated
    write(tmp_path / "ok.json", inputs, labels)
    write(tmp_path / "other.json", inputs + 0.01, labels)
    code, _, errors = run(*arguments)
    assert code == 1
    assert line in errors
    assert len(errors.strip().splitlines()) == 1
