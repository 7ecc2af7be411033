"""The quickstart's numbers: a PGD written here finds them, and its folder and its page have the same."""

import re
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import davylamp
from davylamp import cli
from davylamp.commands import quickstart

from ..madry import ascend

IMAGES = 24


@pytest.fixture(scope="module")
def both(tmp_path_factory, read_page, with_few_draws):
    """The terminal's lines, the folder and the page, of fewer images than the quickstart has."""
    folder = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patch, with_few_draws():
        patch.setattr(quickstart, "IMAGES", IMAGES)
        patch.setenv("COLUMNS", "80")
        done = CliRunner().invoke(cli.app, ["quickstart", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines(), folder, read_page((folder / "report.html").read_text(encoding="utf-8"))


def count_fooled(name):
    """Of the first images: how many are right, and how many of these a PGD written here fools."""
    model, (inputs, labels, _) = davylamp.load_model(name), davylamp.load_data("demo:digits", limit=IMAGES)
    right = model(inputs).argmax(1) == labels
    moved = ascend(model, inputs, labels, 20, quickstart.EPSILON)
    return int(right.sum()), int((right & (model(moved).argmax(1) != labels)).sum())


def test_the_libraries_agree_with_a_pgd_written_here_once_they_have_its_parameters(both):
    lines, _, _ = both
    right, fooled = count_fooled(quickstart.PLAIN)
    (line,) = (line for line in lines if line.startswith("With 20 steps"))
    assert line.endswith(f" {fooled / right:.2f}")
    (identical,) = (line for line in lines if line.startswith("identical: "))
    assert {*identical.removeprefix("identical: ").split(", ")} == {*quickstart.LIBRARIES}


def test_it_fits_a_terminal_of_80_columns_and_names_its_page(both):
    lines, folder, _ = both
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80 + len(str(folder))
    assert any("Report: " in line for line in lines)


def test_the_terminal_says_what_is_in_the_folder_and_on_the_page(both):
    lines, folder, page = both
    results = davylamp.load(folder)
    mine = results[(results["model"] == quickstart.PLAIN) & results["attacked"]]
    shares = mine.groupby("implementation")["success"].mean()
    assert len(shares) == len(quickstart.LIBRARIES)
    for name, share in shares.items():
        (line,) = (line for line in lines if line.startswith(f"{name} "))
        assert line.split()[1] == f"{share:.2f}"
    for model in (quickstart.PLAIN, quickstart.ROBUST):
        images = results[results["model"] == model].groupby("image")
        kept = (images["attacked"].all() & ~images["success"].any()).mean()
        (line,) = (line for line in lines if line.startswith(f"{model}:"))
        assert line.split()[1] == f"{kept:.2f}"
    assert shares.max() - shares.min() > 0.2
    assert {row["implementation"].text for row in page.table("agreement-rows")} == {*shares.index}


def test_only_installed_libraries_are_run(monkeypatch):
    """`.ci/installed` runs the whole of it where two of the five are missing."""
    from davylamp.adapters.catalogue import lookup

    assert quickstart._installed() == quickstart.LIBRARIES
    monkeypatch.setattr(lookup, "find_library", lambda name: SimpleNamespace(is_installed="torchattack" not in name))
    assert quickstart._installed() == ("art", "cleverhans", "foolbox")


def test_a_defence_without_gradients_is_not_called_robust(both):
    lines, folder, _ = both
    results = davylamp.load(folder)
    masked = results[results["model"] == quickstart.MASKED]
    assert masked["violated"].sum() == len(masked[masked["attacked"]]) > 0
    (said,) = (line for line in lines if "results are invalid" in line)
    assert re.search(r"but (\d+) results", said)[1] == str(int(masked["violated"].sum()))
    assert any("Unavailable gradients" in line for line in lines)


@pytest.mark.parametrize(("name", "right"), [(quickstart.PLAIN, 369), (quickstart.ROBUST, 375)])
def test_the_weights_that_are_shipped_know_the_digits(name, right):
    inputs, labels, names = davylamp.load_data("demo:digits")
    assert (len(inputs), names[0]) == (397, "0")
    assert int((davylamp.load_model(name)(inputs).argmax(1) == labels).sum()) == right


def test_adversarial_training_shows():
    (right, fooled), (still_right, still_fooled) = count_fooled(quickstart.PLAIN), count_fooled(quickstart.ROBUST)
    assert still_fooled / still_right < 0.5 * fooled / right


def test_results_of_another_call_are_not_mixed_in(both, run):
    _, folder, _ = both
    before = {path.name for path in (folder / "cells").iterdir()}
    code, out, err = run("quickstart", "--seed", "1", "-o", folder)
    assert (code, out) == (1, "")
    assert str(folder) in err
    assert {path.name for path in (folder / "cells").iterdir()} == before
