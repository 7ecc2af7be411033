"""Models on corrupted images: every number from predictions made by hand, resumed after a kill, from disk."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import nn

import davylamp
from davylamp.adapters.data.corruptions.sequences import SEQUENCES, frames_of
from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.classifier import Classifier
from davylamp.engine import ResultsStore
from davylamp.engine.run.corruptions import CorruptionPlan, count_images, measure_corruptions
from davylamp.engine.statistics.bootstrap import resample
from davylamp.engine.store.other_records import read_corruptions
from davylamp.engine.tables.corruption_table import build_corruptions, flip_probability_of, flips_of
from davylamp.errors import DavylampError

NAMES, LEVELS = ("gaussian_noise", "contrast", "fog"), (1, 3)


def network(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(243, 4)).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def models():
    return {name: Classifier(network(seed), name=name) for seed, name in enumerate(("first", "second"))}


@pytest.fixture(scope="module")
def images(models):
    generator = torch.Generator().manual_seed(5)
    coarse = torch.rand(12, 3, 6, 6, generator=generator)
    inputs = nn.functional.interpolate(coarse, size=(72, 72), mode="bicubic").clamp(0, 1).mul(255).round() / 255
    labels = models["first"].predict_logits(inputs).argmax(1)
    labels[0] = (labels[0] + 1) % 4
    return Data(inputs, labels, [f"image {place}" for place in range(12)])


@pytest.fixture(scope="module")
def plan(images):
    return CorruptionPlan("mine", NAMES, LEVELS, ("rotate", "gaussian_noise"), images=images)


@pytest.fixture(scope="module")
def folder(models, plan, tmp_path_factory):
    path = tmp_path_factory.mktemp("corrupted")
    summary = measure_corruptions(models, plan, ResultsStore(path))
    assert summary == (2 * (1 + 6 + 2), 0, {})
    return path


def errors(model, images, corruption, severity):
    data = davylamp.corrupt(images, corruption, severity)
    return (model.predict_logits(data.inputs).argmax(1) != data.labels).double().numpy()


def test_every_number_by_hand(models, images, folder):
    rates = {
        name: np.array([[errors(model, images, each, level).mean() for level in LEVELS] for each in NAMES])
        for name, model in models.items()
    }
    by_model = {row.labels["model"]: row.metrics for row in build_corruptions(folder, baseline="second").rows}
    records, failed = read_corruptions(folder)
    assert not failed
    assert all(record.picture and record.names[0] == "image 0" for record in records)
    assert len({record.cell.source for record in records} - {""}) == 1  # what made the images
    mine, clean = by_model["first"], 1 / 12
    assert mine["error"].value == pytest.approx(clean)
    assert mine["mCE"].value == pytest.approx(rates["first"].sum(1).mean())
    assert mine["RmCE"].value == pytest.approx((rates["first"] - clean).sum(1).mean())
    assert mine["mCE/base"].value == pytest.approx((rates["first"].sum(1) / rates["second"].sum(1)).mean())
    assert by_model["second"]["mCE/base"].value == pytest.approx(1)
    rows = build_corruptions(folder, by="corruptions", baseline="second").rows
    order = [row.labels["corruption"] for row in rows if row.labels["model"] == "first"]
    assert order == ["gaussian_noise", "fog", "contrast", "rotate"]  # the authors'; then sequences
    for row in rows:
        name, model = row.labels["corruption"], row.labels["model"]
        if name in NAMES:
            place = NAMES.index(name)
            assert row.metrics["E@3"].value == pytest.approx(rates[model][place, 1])
            assert row.metrics["CE"].value == pytest.approx(rates[model][place].sum())


def test_flips_by_hand(models, images, folder):
    flips = {}
    for model in models:
        for name, first in (("rotate", False), ("gaussian_noise", True)):
            changed = compared = 0
            for image in images.inputs:
                classes = models[model].predict_logits(frames_of(image, name)).argmax(1).tolist()
                assert len(classes) == SEQUENCES[name].frames
                for place in range(1, len(classes)):
                    changed += classes[place] != classes[0 if first else place - 1]
                    compared += 1
            flips[model, name] = changed / compared
    rows = build_corruptions(folder, by="corruptions", baseline="second").rows
    got = {(row.labels["model"], row.labels["corruption"]): row.metrics for row in rows}
    for key, value in flips.items():
        assert got[key]["FP"].value == pytest.approx(value)
    for record in read_corruptions(folder)[0]:
        if record.cell.sequence:  # what the interval draws is what the value is
            assert flips_of(record).mean() == pytest.approx(flip_probability_of(record))
    by_model = {row.labels["model"]: row.metrics for row in build_corruptions(folder, baseline="second").rows}
    assert flips["second", "gaussian_noise"] == 0  # undefined: left out
    ratios = [flips["first", "rotate"] / flips["second", "rotate"]]
    assert by_model["first"]["mFR"].value == pytest.approx(np.mean(ratios))
    assert by_model["second"]["mFR"].value == pytest.approx(1)
    notes = build_corruptions(folder, baseline="second").notes
    assert "first: mFR omits gaussian_noise: second never flips there" in notes
    assert not any("mCE/base omits" in note for note in notes)


def test_a_model_whose_classes_come_in_another_order_is_named(models, images, folder, tmp_path):
    moved = Data(images.inputs, (images.labels + 1) % 4, images.names)
    plan, store = CorruptionPlan("mine", ("fog",), (5, 1), images=moved), ResultsStore(tmp_path)
    measure_corruptions({"first": models["first"]}, plan, store)
    (line,) = (note for note in build_corruptions(tmp_path).notes if "different order" in note)
    assert line.startswith("first, clean: ")
    (clean,) = (record.cell.key for record in read_corruptions(tmp_path)[0] if not record.cell.corruption)
    store.remove("corruptions", clean)
    (line,) = (note for note in build_corruptions(tmp_path).notes if "different order" in note)
    assert line.startswith("first, fog 1: ")
    assert not any(note.startswith("first, clean") for note in build_corruptions(folder).notes)  # 11 of 12 are right


def test_alexnet_is_the_baseline_where_it_is_asked_for(models, images, folder, tmp_path):
    plan = CorruptionPlan("mine", NAMES, images=images)
    measure_corruptions({"first": models["first"]}, plan, ResultsStore(tmp_path))
    (row,) = build_corruptions(tmp_path, baseline="alexnet").rows
    means = [np.mean([errors(models["first"], images, each, level) for level in range(1, 6)]) for each in NAMES]
    ratios = np.array(means) / (0.886428, 0.853204, 0.819324)
    assert row.metrics["mCE/base"].value == pytest.approx(ratios.mean())
    assert "mCE/base" not in build_corruptions(tmp_path).symbols  # these are not ImageNet's images
    for by in ("models", "corruptions"):  # means over five severities are no baseline of two
        table = build_corruptions(folder, by=by, baseline="alexnet")
        assert not {"mCE/base", "CE/base"} & set(table.symbols)
        assert len([note for note in table.notes if note.startswith("no CE/base")]) == 1
    assert "CE/base" in build_corruptions(folder, by="corruptions", baseline="second").symbols


def test_the_interval_draws_images(models, images, folder):
    counts = resample(12, 200, 3).astype(float)
    tail = stats.norm.cdf(stats.t.ppf(0.025, 11) * np.sqrt(12 / 11))  # expanded percentiles
    first, last = int(np.ceil(200 * tail)) - 1, int(np.ceil(200 * (1 - tail))) - 1
    wrong = np.array([[errors(models["first"], images, each, level) for level in LEVELS] for each in NAMES])
    drawn = np.sort((counts @ wrong.reshape(-1, 12).T / 12).reshape(-1, 3, 2).sum(2).mean(1)[1:])
    table = build_corruptions(folder, bootstrap=200, seed=3)
    estimate = next(row for row in table.rows if row.labels["model"] == "first").metrics["mCE"]
    assert (estimate.low, estimate.high) == pytest.approx((drawn[first], drawn[last]))
    clean = (models["first"].predict_logits(images.inputs).argmax(1) != images.labels).double().numpy()
    rates = (counts @ wrong.reshape(-1, 12).T / 12).reshape(-1, 3, 2)
    rises = np.sort((rates - (counts @ clean / 12)[:, None, None]).sum(2).mean(1)[1:])
    relative = next(row for row in table.rows if row.labels["model"] == "first").metrics["RmCE"]
    assert (relative.low, relative.high) == pytest.approx((rises[first], rises[last]))
    assert np.isnan(build_corruptions(folder, bootstrap=0).rows[0].metrics["mCE"].low)


def test_a_killed_run_goes_on(models, plan, folder, tmp_path):
    calls = []

    def kill(title, count):
        calls.append(title)
        if len([title for title in calls if title]) == 7:
            raise KeyboardInterrupt

    assert count_images(models, plan) == 2 * 12 * 9
    with pytest.raises(KeyboardInterrupt):
        measure_corruptions(models, plan, ResultsStore(tmp_path), kill)
    before = {path.name for path in (tmp_path / "corruptions").iterdir()}
    assert len(before) == 6
    summary = measure_corruptions(models, plan, ResultsStore(tmp_path))
    assert (summary.done, summary.kept) == (12, 6)
    assert {path.name for path in (tmp_path / "corruptions").iterdir()} == {
        path.name for path in (folder / "corruptions").iterdir()
    }  # a name has a hash of what is in it
    assert measure_corruptions(models, plan, ResultsStore(tmp_path))[:2] == (0, 18)
    damaged = next((tmp_path / "corruptions").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert measure_corruptions(models, plan, ResultsStore(tmp_path))[:2] == (1, 17)


def test_at_small_sizes_alexnet_is_no_baseline(models, tmp_path):
    small = Data(torch.rand(6, 3, 64, 64), torch.zeros(6, dtype=torch.int64), list("abcdef"))
    plan = CorruptionPlan("demo:imagenet", ("contrast",), (1,), images=small)
    with torch.random.fork_rng():
        net = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, 4))
    measure_corruptions({"net": Classifier(net)}, plan, ResultsStore(tmp_path))
    table = build_corruptions(tmp_path)
    assert "mCE/base" not in table.symbols
    assert any("severities of tiny-imagenet" in note for note in table.notes)


def test_an_answer_that_is_not_finite_is_an_error(images, tmp_path):
    class Silent(nn.Module):
        def forward(self, inputs):
            return torch.full((len(inputs), 4), torch.nan)

    plan = CorruptionPlan("mine", ("fog",), (2,), ("brightness",), images=images)
    measure_corruptions({"silent": Classifier(Silent(), num_classes=4)}, plan, ResultsStore(tmp_path))
    table = build_corruptions(tmp_path, by="corruptions")
    assert table.rows[0].metrics["E@2"].value == 1
    assert any("non-finite outputs count as errors" in note for note in table.notes)


def test_a_model_that_fails_costs_itself(models, images, tmp_path):
    class Broken(nn.Module):
        def forward(self, inputs):
            raise RuntimeError("no")

    plan = CorruptionPlan("mine", ("fog",), (2,), images=images)
    both = {"broken": Classifier(Broken(), num_classes=4), "first": models["first"]}
    summary = measure_corruptions(both, plan, ResultsStore(tmp_path))
    assert summary.done == 2
    assert "no" in summary.failed["broken"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"severities": (0,)}, "severity .* 0"), ({"severities": (6,)}, "severity .* 6"),
        ({"corruptions": ("fogg",)}, "did you mean fog"), ({"sequences": ("rotat",)}, "did you mean rotate"),
        ({"corruptions": ()}, "got none"), ({"data": "imagenet-c:x", "sequences": ("rotate",)}, "need clean images"),
    ],
)  # fmt: skip
def test_plans_that_cannot_be(given, named):
    with pytest.raises(DavylampError, match=named):
        CorruptionPlan(**{"data": "demo:imagenet", "corruptions": ("fog",), **given}).check()


MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(9), nn.Flatten(), nn.Linear(243, 1000))
"""


def test_the_command_measures_what_is_on_disk(run, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    generator = np.random.default_rng(0)
    for folder in ("set/fog/1", "set/fog/2", "set/glare/1", "set/glare/2", "clean"):
        for wordnet in ("n01440764", "n01443537", "n01484850"):
            path = tmp_path / folder / wordnet / "0.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(generator.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)
    options = ("--data", "imagenet-c:set", "--clean", "imagefolder:clean", "--severity", "1,2", "-o", "out")
    code, out, err = run("corruptions", "run", "model.py:build", *options, "--json")
    assert code == 0, err
    (row,) = json.loads(out)["rows"]
    assert (row["corruptions"], row["severities"], row["images"]) == (2, "1 2", 3)
    assert row["metrics"]["RmCE"]["n"] == 3
    code, out, err = run("corruptions", "run", "-o", "out", "--by", "corruptions", "--csv")
    assert code == 0
    assert out.splitlines()[0].startswith("model,data,corruption,images,E@1")
    assert len(out.splitlines()) == 3
    code, out, err = run("corruptions", "run", "model.py:build", *options)
    assert "0 records written, 5 reused" in err


def write_set(root, corruptions, classes, severities=(1, 2, 3, 4, 5)):
    for corruption in corruptions:
        for severity in severities:
            for shade, name in enumerate(classes):
                path = root / corruption / str(severity) / name / "0.png"
                path.parent.mkdir(parents=True)
                Image.new("RGB", (40, 40), (20 * shade + 10, 0, 0)).save(path)


def test_an_interrupted_table_says_that_it_goes_on(run, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("davylamp.api.corrupting.measure_corruptions", stop)
    (tmp_path / "model.py").write_text(MODEL)
    write_set(tmp_path / "set", ("fog",), ("n01440764",), (1,))
    options = ("--data", "imagenet-c:set", "--severity", "1", "-o", "out")
    code, out, err = run("corruptions", "run", "model.py:build", *options)
    assert (code, out) == (130, "")
    assert err.endswith(
        "davylamp: interrupted; finished results are stored in out; run the same command again to resume\n"
    )


def test_a_set_without_a_severity_is_refused_before_anything_is_measured(run, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    write_set(tmp_path / "set", ("contrast",), ("n01440764", "n01443537"))
    write_set(tmp_path / "set", ("fog",), ("n01440764", "n01443537"), (1, 2, 4, 5))
    code, _, err = run("corruptions", "run", "model.py:build", "--data", "imagenet-c:set", "-o", "out")
    assert (code, all(words in err for words in ("severity 3", "set/fog", "1, 2, 4, 5"))) == (1, True)
    assert not list((tmp_path / "out").glob("corruptions/*"))


def test_of_a_set_on_disk_what_the_authors_keep_for_tuning_is_measured_if_it_is_asked_for(run, tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    write_set(tmp_path / "set", ("fog", "glare", "extra/spatter"), ("n01440764",))
    options = ("--data", "imagenet-c:set", "--by", "corruptions", "--json")
    for asked, expected in (((), {"fog", "glare"}), (("--corruption", "all"), {"fog", "glare", "spatter"})):
        code, out, err = run("corruptions", "run", "model.py:build", *options, *asked, "-o", f"out{len(asked)}")
        assert code == 0, err
        assert {row["corruption"] for row in json.loads(out)["rows"]} == expected
    write_set(tmp_path / "tuning", ("spatter",), ("n01440764",))
    code, out, err = run(
        "corruptions", "run", "model.py:build", "--data", "imagenet-c:tuning", *options[2:], "-o", "tuned"
    )
    assert [row["corruption"] for row in json.loads(out)["rows"]] == ["spatter"]


# The place of the folder is the red of its image, so that the model knows every label.
RED = """
import torch
from torch import nn

CLASSES = {classes}

class Red(nn.Module):
    def forward(self, inputs):
        place = (inputs[:, 0].mean((1, 2)) * 255 / 20).long()
        return nn.functional.one_hot(torch.tensor(CLASSES)[place], {count}) * 9.5

def build():
    return Red()
"""
FOLDERS = ("n02102040", "n01443537", "n03793489")  # English springer, goldfish, mouse: 217, 1, 673 of ImageNet


def test_a_model_that_does_not_say_how_many_classes_it_has_gets_imagenets_by_id(run, tmp_path):
    for file, classes, count in (("whole", (217, 1, 673), 1000), ("part", (1, 0, 2), 3)):
        (tmp_path / f"{file}.py").write_text(RED.format(classes=classes, count=count))
    write_set(tmp_path / "set", ("fog",), FOLDERS, (1,))
    write_set(tmp_path, ("clean",), FOLDERS, (1,))
    options = ("--data", "imagenet-c:set", "--clean", "imagefolder:clean/1", "--severity", "1", "--json")
    code, out, err = run("corruptions", "run", "whole.py:build", "part.py:build", *options, "-o", "out")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert {row["model"] for row in rows} == {"whole.py:build", "part.py:build"}
    assert all(row["metrics"]["error"]["value"] == row["metrics"]["mCE"]["value"] == 0 for row in rows)


def test_clean_images_that_are_others_cost_intervals_or_the_relative_error_only(run, tmp_path):
    (tmp_path / "model.py").write_text(RED.format(classes=(217, 1, 0), count=1000))
    write_set(tmp_path / "set", ("fog",), FOLDERS, (1,))
    write_set(tmp_path, ("fewer",), FOLDERS[:2], (1,))
    options = ("--data", "imagenet-c:set", "--severity", "1", "--by", "corruptions", "--json")
    code, out, _ = run("corruptions", "run", "model.py:build", *options, "--clean", "imagefolder:fewer/1", "-o", "few")
    (row,), notes = json.loads(out)["rows"], json.loads(out)["notes"]
    assert (code, row["metrics"]["E@1"]["value"]) == (0, pytest.approx(1 / 3))
    needed = "RmCE needs predictions on clean images for the same 3 images (got 2); add --clean DATA"
    assert f"model.py:build: {needed}" in notes
    write_set(tmp_path / "renamed", ("clean",), FOLDERS, (1,))
    for path in (tmp_path / "renamed").glob("clean/1/*/0.png"):
        path.rename(path.with_name("1.png"))
    code, out, _ = run(
        "corruptions", "run", "model.py:build", *options, "--clean", "imagefolder:renamed/clean/1", "-o", "o"
    )
    (row,), notes = json.loads(out)["rows"], json.loads(out)["notes"]
    error = row["metrics"]["E@1"]
    assert (error["low"], error["high"]) == pytest.approx((0.0084, 0.9057), abs=1e-4)  # Clopper and Pearson: 1 of 3
    assert "model.py:build: the records have different images, so only error rates have intervals" in notes


def test_labels_that_a_model_does_not_have_are_no_errors_of_it(run, tmp_path):
    (tmp_path / "whole.py").write_text(RED.format(classes=(217, 1, 673), count=1000))
    (tmp_path / "two.py").write_text(RED.format(classes=(0, 1, 0), count=2))
    write_set(tmp_path / "set", ("fog",), FOLDERS, (1,))
    options = ("--data", "imagenet-c:set", "--severity", "1", "-o", "out", "--json")
    code, out, err = run("corruptions", "run", "two.py:build", "whole.py:build", *options)
    assert (code, [row["model"] for row in json.loads(out)["rows"]]) == (0, ["whole.py:build"])
    assert "- two.py:build: expected labels from 0 to 1, got values from 0 to 2" in err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--severity", "6"), "a severity from 1 to 5"), (("--corruption", "fo"), "unknown corruption 'fo'"),
        (("--data", "foolbox:mnist", "--limit", "1"), "32 x 32"), (("--clean", "demo:imagenet"), "corrupted data"),
        (("--data", "imagenet-c:nowhere"), "CORRUPTION/SEVERITY/CLASS"),
    ],
)  # fmt: skip
def test_the_command_says_what_is_wrong_in_a_line(run, tmp_path, options, named):
    (tmp_path / "model.py").write_text(MODEL)
    code, _, err = run("corruptions", "run", "model.py:build", *options)
    assert (code, named in err) == (1, True)
    assert len([each for each in err.splitlines() if each.startswith("davylamp:")]) == 1
