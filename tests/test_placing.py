"""New models attacked as those of a folder were: placed as their records say, by all images or by those chosen."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import davylamp
from davylamp.api.baseline_placement import AdaptiveSettings, place_on_baseline, read_baseline
from davylamp.api.python_inputs import labelled_images
from davylamp.engine import AttackChoice, ResultsStore, evaluate
from davylamp.errors import InvalidInput, Unavailable
from davylamp.scoring import place_results

ATTACKS = (
    AttackChoice("foolbox:fgsm", "linf", 0.05),
    AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 3}),
    AttackChoice("torchattacks:pgd", "l2", 0.5, parameters={"steps": 3, "random_start": False}),
)
MEASURES = ("effect",)


class Images(nn.Module):
    """The digits CNN with noise on its weights."""

    def __init__(self, module: nn.Module, noise: float):
        super().__init__()
        self.net = copy.deepcopy(module)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(100 * noise))
            for weight in self.net.parameters():
                weight.add_(noise * weight.std() * torch.randn_like(weight))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net(inputs)


@pytest.fixture(scope="module", autouse=True)
def _few_draws(with_few_draws):
    """Two ways to one placement are compared; how good it is is tested in tests/scoring."""
    with with_few_draws():
        yield


@pytest.fixture(scope="module")
def baseline(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("placing") / "baseline"
    models = {f"noise {noise}": Images(digits.module, noise) for noise in (0.0, 0.2, 0.5)}
    davylamp.evaluate(models, digits.inputs, digits.labels, attacks=ATTACKS, out=folder, measures=MEASURES)
    return folder


@pytest.fixture(scope="module")
def newcomer(digits):
    return {"new": Images(digits.module, 0.3)}


@pytest.fixture(scope="module")
def evaluated(digits, newcomer, tmp_path_factory):
    """The newcomer, evaluated on all images without a thought of any baseline."""
    folder = tmp_path_factory.mktemp("placing") / "evaluated"
    davylamp.evaluate(newcomer, digits.inputs, digits.labels, attacks=ATTACKS, out=folder, measures=MEASURES)
    return folder


@pytest.fixture(scope="module")
def chosen(digits, baseline, newcomer, tmp_path_factory):
    """Its placement by chosen images, and the folder."""
    folder = tmp_path_factory.mktemp("placing") / "chosen"
    options = {"against": baseline, "out": folder, "adaptive": True, "max_rank_width": 1, "batch_images": 3}
    (placed,) = davylamp.place(newcomer, digits.inputs, digits.labels, **options)
    return placed, folder


def test_by_all_images_it_stands_where_its_records_put_it(digits, baseline, newcomer, evaluated, tmp_path):
    (placed,) = davylamp.place(newcomer, digits.inputs, digits.labels, against=baseline, out=tmp_path / "out")
    (expected,) = davylamp.rank(evaluated, against=baseline)
    assert placed.choice is None
    assert (placed.rank_interval, placed.interval) == (expected.rank_interval, expected.interval)
    assert placed.beats == expected.beats
    assert placed.responses == len(ATTACKS) * len(digits.labels)


def test_the_images_chosen_are_those_that_stored_records_would_give(baseline, evaluated, chosen):
    placed, _ = chosen
    frames = davylamp.load(baseline), davylamp.load(evaluated)
    (again,) = place_results(*frames, adaptive=True, max_rank_width=1, batch_images=3)
    assert placed.choice == again.choice
    assert len(placed.choice.steps) > 1


def test_only_the_chosen_images_are_attacked_and_counted(baseline, evaluated, chosen):
    placed, folder = chosen
    records, every = davylamp.load(folder), davylamp.load(evaluated)
    images = {image.removeprefix("given ") for image in placed.choice.images}
    assert set(records["image"]) == images
    assert len(records) == len(images) * len(ATTACKS) == placed.responses
    assert placed.images == len(images)
    note = f"new: evaluated on {len(images)} images selected by name; the results may not hold for other images"
    assert note in davylamp.table(folder).notes
    of_all = every.set_index(["implementation", "image"])["success"]
    assert all(of_all[row.implementation, row.image] == row.success for row in records.itertuples())


def test_a_second_call_runs_nothing_and_a_lost_batch_is_run_again(digits, baseline, newcomer, chosen):
    placed, folder = chosen
    store, base = ResultsStore(folder), read_baseline(baseline, adaptive=True)
    classifiers = {"new": davylamp.Classifier(newcomer["new"])}
    data = labelled_images(digits.inputs, digits.labels, None)
    done = []

    def run(plan):
        done.append(evaluate(plan, store))
        return done[-1]

    def again():
        done.clear()
        asking = AdaptiveSettings(adaptive=True, max_rank_width=1, batch_images=3)
        (result,) = place_on_baseline(base, store, base.config, asking, models=classifiers, data=data, run=run)
        return result.choice, result.beats

    assert again() == (placed.choice, placed.beats)
    assert sum(each.done for each in done) == 0 < sum(each.kept for each in done)
    lost = next((folder / "cells").glob("*.parquet"))
    lost.unlink()
    assert again() == (placed.choice, placed.beats)
    assert sum(each.done for each in done) == 1


def test_the_choice_stops_as_soon_as_the_rank_is_as_narrow_as_asked(digits, baseline, chosen, tmp_path):
    weak = {"weak": Images(digits.module, 4.0)}  # wrong nearly everywhere: its place is soon known
    options = {"against": baseline, "out": tmp_path, "adaptive": True, "max_rank_width": 1, "batch_images": 3}
    (placed,) = davylamp.place(weak, digits.inputs, digits.labels, **options)
    *before, last = placed.choice.steps
    assert placed.choice.enough
    assert last.width <= 1
    assert all(step.width > 1 for step in before)
    assert len(set(davylamp.load(tmp_path)["image"])) == last.images < 16
    hard = chosen[0].choice  # as good as the others: all images do not place it
    assert not hard.enough
    assert hard.steps[-1].images == 16


def test_attacks_that_cannot_place_are_left_out(digits, baseline, tmp_path):
    models = {"a": Images(digits.module, 0.1), "b": Images(digits.module, 0.4)}
    both = {"attacks": ATTACKS[:1], "out": tmp_path, "measures": MEASURES}
    davylamp.evaluate(models, digits.inputs[:4], digits.labels[:4], **both)
    alone = {**both, "attacks": ATTACKS[1:2]}
    davylamp.evaluate({"a": models["a"]}, digits.inputs[:4], digits.labels[:4], **alone)
    base = read_baseline(tmp_path)
    assert [choice.attack for choice in base.config.attacks] == ["foolbox:fgsm"]
    assert base.notes == ("omitted: foolbox:pgd: not run on every model",)
    assert set(base.frame["implementation"]) == {"foolbox:fgsm"}


def test_what_is_no_baseline_is_refused(digits, baseline, newcomer, tmp_path):
    images = (digits.inputs, digits.labels)
    with pytest.raises(InvalidInput, match="the baseline already contains noise"):
        davylamp.place({"noise 0.2": newcomer["new"]}, *images, against=baseline, out=tmp_path / "out")
    with pytest.raises(InvalidInput, match="`against` and `attacks` cannot be combined"):
        davylamp.place(newcomer, *images, against=baseline, out=tmp_path / "out", attacks="pgd")
    with pytest.raises(InvalidInput, match="expected max_rank_width as a whole number >= 0, got -1"):
        davylamp.place(newcomer, *images, against=baseline, out=tmp_path / "out", adaptive=True, max_rank_width=-1)
    with pytest.raises(Unavailable):
        davylamp.place(newcomer, *images, against=tmp_path / "nothing", out=tmp_path / "out")
    other = tmp_path / "two sizes"
    for count in (4, 6):
        few = {"attacks": ATTACKS[:1], "out": other, "measures": MEASURES, "limit": count}
        davylamp.evaluate({"a": newcomer["new"], "b": newcomer["new"]}, *images, **few)
    with pytest.raises(InvalidInput, match="got 2 groups of settings"):
        davylamp.place(newcomer, *images, against=other, out=tmp_path / "out")


def test_a_model_that_answers_nothing_is_one_line(digits, baseline, tmp_path):
    class Broken(nn.Module):
        def forward(self, inputs):
            return inputs.flatten(1)[:, :10] * float("nan")

    with pytest.raises((Unavailable, InvalidInput)) as caught:
        davylamp.place(
            {"broken": Broken()}, digits.inputs, digits.labels, against=baseline, out=tmp_path, adaptive=True
        )
    assert "\n" not in str(caught.value)


MODEL = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    layer = nn.Linear(48, 4)
    torch.manual_seed({seed})
    layer.weight.data += 0.02 * {seed} * torch.randn_like(layer.weight)
    return nn.Sequential(nn.Flatten(), layer)
"""


@pytest.fixture(scope="module")
def folder_of_files(tmp_path_factory):
    """Three linear models, and images with the labels that the first of them gives."""
    folder = tmp_path_factory.mktemp("files")
    for seed in range(3):
        (folder / f"model{seed}.py").write_text(MODEL.format(seed=seed), encoding="utf-8")
    inputs = torch.rand(20, 3, 4, 4, generator=torch.Generator().manual_seed(5))
    labels = davylamp.load_model(f"{folder}/model0.py:build")(inputs).argmax(1)
    np.savez(folder / "images.npz", inputs=inputs.numpy(), labels=labels.numpy())
    return folder


def test_the_command_places_and_says_how_far_it_is(run, folder_of_files):
    models = ",".join(f"{folder_of_files}/model{seed}.py:build" for seed in range(2))
    new = f"{folder_of_files}/model2.py:build"
    data = f"npz:{folder_of_files}/images.npz"
    attacks = ("--attacks", "foolbox:fgsm", "--epsilon", "0.01,0.03", "--data", data)
    code, _, errors = run("evaluate", "--models", models, *attacks, "-o", "base")
    assert code == 0, errors
    options = ("--adaptive", "--batch-images", "10", "--max-rank-width", "0")
    code, output, errors = run("evaluate", "--models", new, "--against", "base", *options, "-o", "new")
    assert code == 0, errors
    assert ": 10 images: ranks " in errors
    assert "of new against base" in output
    code, output, _ = run("evaluate", "--models", new, "--against", "base", *options, "-o", "new", "--json")
    (placed,) = json.loads(output)["placements"]
    assert placed["choice"]["width"] == 0
    assert len(placed["choice"]["images"]) == placed["placed"]["images"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--adaptive",), "--adaptive needs --against BASELINE"),
        (
            ("--against", "base", "--models", "m", "--max-rank-width", "1"),
            "--max-rank-width cannot be used without --adaptive",
        ),
        (("--against", "base", "--models", "m", "--attacks", "pgd"), "--against and --attacks cannot be combined"),
        (("--against", "base", "--models", "m", "--preset", "robic"), "--against and --preset cannot be combined"),
        (("--against", "base"), "--against needs --models"),
        (("--against", "base.csv", "--models", "m"), "expected a results folder for --against, got base.csv"),
    ],
)
def test_options_that_would_be_ignored_are_refused(run, options, said):
    code, _, errors = run("evaluate", *options)
    assert code == 1
    assert said in " ".join(errors.split())


def test_frames_are_those_of_the_baseline(baseline):
    base = read_baseline(baseline, adaptive=True)
    whole = davylamp.load(baseline)
    shared = [name for name in base.frame if name in whole and name != "target"]  # that of each image in `load`
    pd.testing.assert_frame_equal(base.frame[shared].astype(whole[shared].dtypes), whole[shared])
    assert {"image", "success", "distance", "model"} < set(shared)
    assert np.isfinite(base.frame["distance"]).any()
    assert {choice.attack for choice in base.config.attacks} == {choice.attack for choice in ATTACKS}
