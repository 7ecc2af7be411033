"""`davylamp reproduce` as a user meets it."""

import json

import numpy as np
import pytest

from davylamp.benchmarks.reproductions import list_tables, measured_seconds


def test_every_table_is_listed(run):
    code, out, _ = run("reproduce")
    assert code == 0
    for name, table in list_tables().items():
        assert name in out
        assert table.title in out


def test_the_list_says_how_long_each_takes(run):
    code, out, _ = run("reproduce", "--list")
    assert code == 0
    head = next(line for line in out.splitlines() if line.startswith("name"))
    assert head.split() == ["name", "what", "default", "--quick"]
    took = measured_seconds()
    assert set(took) == set(list_tables())
    assert all(set(each) == {"default", "quick"} and min(each.values()) > 0 for each in took.values())
    row = next(line for line in out.splitlines() if line.startswith("canary-table9"))
    assert row.rstrip().endswith((" s", " min"))
    code, _, err = run("reproduce", "canary-table9", "--list")
    assert code == 1
    assert "--list" in err


def test_table_9_as_json_and_as_a_table(run):
    code, out, _ = run("reproduce", "canary-table9", "--quick", "--json")
    assert code == 0
    result = json.loads(out)
    assert {"spearman", "kendall", "max_difference", "rows"} <= set(result["white"])
    row = {"model", "score", "published", "rank", "published_rank", "rank_low", "rank_high"}
    assert all(set(each) == row for each in result["white"]["rows"])
    assert result["seconds"] > 0
    code, out, _ = run("reproduce", "canary-table9", "--quick")
    assert code == 0
    assert "EfficientNetV2" in out
    assert "Spearman 0.9" in out


def test_what_has_no_rows_is_no_empty_latex_table(run):
    code, out, err = run("reproduce", "checks", "--latex")
    assert (code, out) == (1, "")
    assert err.startswith("davylamp: checks ")
    assert "that --latex could compare with published ones; use --json" in err


def test_an_unknown_name_is_one_line(run):
    code, out, err = run("reproduce", "canary-table10")
    assert (code, out) == (1, "")
    assert "canary-table9" in err
    assert err.count("\n") == 1


def test_models_may_be_a_list_with_commas(run):
    code, _, err = run(
        "reproduce", "robic-table2", "--quick", "--models", "demo:nobody+jpeg:quality=9,gradients=none,x"
    )
    assert code == 1
    assert "unknown model 'demo:nobody'" in err
    code, _, err = run("reproduce", "robic-table2", "--quick", "--models", "demo:efficientnet-lite0,demo:nobody")
    assert "unknown model 'demo:nobody'" in err


def test_a_reproduction_in_which_every_cell_failed_fails(run, tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "class Detached(torch.nn.Module):\n"
        "    def forward(self, inputs):\n"
        "        return inputs.detach().flatten(1)[:, :3]\n"
    )
    images = np.random.default_rng(0).random((3, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "images.npz", inputs=images, labels=images.reshape(3, -1)[:, :3].argmax(1))
    options = ("--models", "net.py:Detached", "--data", "npz:images.npz")
    code, out, err = run("reproduce", "robic-figure2", "--quick", *options)
    assert code == 1
    assert "needs gradients, but the model returns none" in out + err
    assert err.splitlines()[-1].startswith("davylamp: best(foolbox:pgd) on net.py:Detached")  # nothing was run


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("-o", "kept"),
            "davylamp: interrupted; finished results are stored in kept; run the same command again to resume\n",
        ),
        (
            (),
            "davylamp: interrupted; no results are stored; use -o FOLDER to store finished results and resume from "
            "them\n",
        ),
    ],
)
def test_an_interrupted_reproduction_says_what_is_left_of_it(run, monkeypatch, options, line):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("davylamp.benchmarks.shared.paper_table.PaperTable.run", stop)
    assert run("reproduce", "robic-table2", "--quick", *options) == (130, "", line)
