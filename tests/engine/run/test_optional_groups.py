"""Coverage, boundary, neurons and consistency: equal to the metrics called directly on the whole set at once."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

from davylamp import metrics
from davylamp.adapters import Classifier
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, build_table, evaluate, make_plan
from davylamp.engine.hierarchy import read_hierarchy, similarity_of_file
from davylamp.engine.measure_groups import read_group
from davylamp.engine.run import activations, optional_groups
from davylamp.engine.run.activations import visit_layers
from davylamp.engine.store.columns import Reached, pack, read_examples, restore_images, unpack
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import DavylampError, UnknownName

GROUPS = (
    "effect",
    "confusion",
    "coverage:sections=7,k=2",
    "boundary:directions=3,spacing=21,limit=60",
    "neurons",
    "consistency:versions=4",
    "ALD@inf",
    "QI_Vis@0.4",
)
COVERAGES = ("KMNCov", "NBCov", "SNACov", "TKNCov")


@pytest.fixture(scope="module")
def profile(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "profile.npz"
    generator = torch.Generator().manual_seed(0)
    noise = 0.1 * torch.rand(40, 3, 16, 16, generator=generator)
    inputs = (digits.inputs.repeat(3, 1, 1, 1)[:40] + noise - 0.05).clamp(0, 1)
    np.savez(path, inputs=inputs.numpy(), labels=digits.labels.repeat(3)[:40].numpy())
    return path, inputs


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    path = tmp_path_factory.mktemp("tree") / "digits.json"
    path.write_text(
        json.dumps({"round": ["0", "6", "8", "9"], "straight": {"one": ["1", "7", "4"], "bent": ["2", "3", "5"]}})
    )
    return path


def plan_of(digits, profile, tree, shard_size=6, measures=GROUPS):
    config = Config(
        attacks=(AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 5}),),
        data="digits",
        shard_size=shard_size,
        keep_images=True,
        measures=measures,
        neuron_profile=f"npz:{profile[0]}" if any(each.startswith("coverage") for each in measures) else "",
        hierarchy=str(tree),
    )
    data = Data(digits.inputs, digits.labels, [str(place) for place in range(16)])
    return make_plan(config, models={"cnn": digits.classifier}, data=data)


@pytest.fixture(scope="module")
def world(digits, profile, tree, tmp_path_factory):
    """Shards of 6 images in passes of 4, while the truth is computed of all at once."""
    folder = tmp_path_factory.mktemp("optional")
    before = activations.GROUP, optional_groups.GROUP
    activations.GROUP = optional_groups.GROUP = 4
    try:
        plan = plan_of(digits, profile, tree)
        store = ResultsStore(folder)
        summary = evaluate(plan, store)
    finally:
        activations.GROUP, optional_groups.GROUP = before
    assert not summary.failed
    (cell,) = plan.cells
    parts = [restore_images(store.read_images(f"{cell.key}-{shard}")) for shard in range(cell.shards)]
    return folder, torch.cat(parts), cell


def layers_of(digits, inputs):
    layers = {}
    visit_layers(digits.classifier, inputs, lambda name, output: layers.update({name: output}))
    return layers


def test_layers_are_the_convolutions_and_the_last_one(digits):
    layers = layers_of(digits, digits.inputs)
    with torch.no_grad():
        first = digits.module[0](digits.inputs)
    assert list(layers) == ["0", "2", "5"]
    assert torch.equal(layers["0"], first)
    assert layers["5"].shape == (16, 10)


@pytest.mark.parametrize("clean", [False, True])
def test_coverages_are_those_of_the_whole_set(digits, profile, world, clean):
    folder, adversarial, _ = world
    images = digits.inputs if clean else adversarial
    channels = {name: each.mean((2, 3)) if each.ndim == 4 else each for name, each in layers_of(digits, images).items()}
    known = {
        name: each.mean((2, 3)) if each.ndim == 4 else each for name, each in layers_of(digits, profile[1]).items()
    }
    units, usual = torch.cat(list(channels.values()), 1), torch.cat(list(known.values()), 1)
    low, high = usual.amin(0), usual.amax(0)
    truth = {
        "KMNCov": metrics.multisection_coverage(units, low, high, 7),
        "NBCov": metrics.boundary_coverage(units, low, high),
        "SNACov": metrics.strong_activation_coverage(units, low, high),
        "TKNCov": metrics.top_k_coverage(list(channels.values()), 2),
    }
    symbols = [f"{symbol}@clean" if clean else symbol for symbol in COVERAGES]
    (row,) = build_table(folder, metrics=symbols).rows
    for symbol, name in zip(symbols, COVERAGES, strict=True):
        assert row.metrics[symbol].value == pytest.approx(float(truth[name]), abs=1e-6), symbol
        assert np.isnan(row.metrics[symbol].low)
    (row,) = build_table(folder, metrics=[f"KMNCov@{'clean@' if clean else ''}5"]).rows
    start = units.shape[1] - 10
    alone = metrics.multisection_coverage(units[:, start:], low[start:], high[start:], 7)
    assert next(iter(row.metrics.values())).value == pytest.approx(float(alone))


def test_the_others_are_those_of_the_whole_set(digits, world):
    folder, adversarial, _ = world
    (row,) = build_table(folder, metrics=["EBD", "EBD2", "NS", "NU", "ENI", "NS@2"]).rows
    got = {symbol: estimate.value for symbol, estimate in row.metrics.items()}
    model = digits.classifier
    directions = metrics.orthogonal_directions(3, digits.inputs[0])
    grid = torch.arange(0, 127, 21.0)
    assert got["EBD"] == pytest.approx(
        float(metrics.empirical_boundary_distance(model, digits.inputs, digits.labels, directions, grid))
    )
    steps = metrics.boundary_steps(model, digits.inputs, digits.labels, 0.0005, 60, reduction="none")
    assert got["EBD2"] == pytest.approx(float(steps.nanmean()), nan_ok=True)
    before, after = layers_of(digits, digits.inputs), layers_of(digits, adversarial)
    sensitivity = {name: float(metrics.neuron_sensitivity(before[name], after[name])) for name in before}
    assert got["NS"] == pytest.approx(np.mean(list(sensitivity.values())), rel=1e-5)
    assert got["NS@2"] == pytest.approx(sensitivity["2"], rel=1e-5)
    assert got["NU"] == pytest.approx(np.mean([float(metrics.neuron_uncertainty(each)) for each in before.values()]))
    noisy = torch.stack([optional_groups.noisy_versions(image, 4, 8 / 255) for image in digits.inputs])
    change = (noisy - digits.inputs[:, None]).abs()
    assert 0.9 * 8 / 255 < change.max() < 8 / 255 + 1e-6
    assert change.amax((2, 3, 4)).min() > 0.9 * 8 / 255
    logits = model.predict_logits(digits.inputs)
    answers = model.predict_logits(noisy.flatten(0, 1)).unflatten(0, (16, 4))
    truth = metrics.noise_insensitivity(logits, answers, digits.inputs, noisy, digits.labels, 8 / 255)
    assert got["ENI"] == pytest.approx(float(truth), rel=1e-5)


def test_parameters_in_symbols(digits, tree, world):
    folder, adversarial, _ = world
    assert {"EBD", "NS", "KMNCov", "ENI"} <= set(build_table(folder).symbols)
    outcome = read_outcomes(folder, ["QI_Wup@0.5"]).done[0]
    similarity = similarity_of_file(tree, 10)
    clean, attacked = (digits.classifier.predict_logits(each) for each in (digits.inputs, adversarial))
    truth = metrics.semantic_confusion(clean, attacked, similarity, 0.5, reduction="none")
    assert np.array_equal(outcome.columns["QI_Wup@0.5"], truth.numpy())
    assert 0 < truth.mean() <= 1
    visual = metrics.visual_confusion(clean, attacked, digits.module[5].weight, 0.4, reduction="none")
    assert np.array_equal(outcome.columns["QI_Vis@0.4"], visual.numpy())
    success = torch.tensor(outcome.columns["success"])
    truth = metrics.relative_distortion(digits.inputs, adversarial, success, p=float("inf"))
    (row,) = build_table(folder, metrics=["ALD@inf"]).rows
    assert row.metrics["ALD@inf"].value == pytest.approx(float(truth))


def test_a_killed_run_and_larger_shards_say_the_same(digits, profile, tree, world, tmp_path):
    plan, calls = plan_of(digits, profile, tree), []

    def kill(*_):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, ResultsStore(tmp_path / "killed"), progress=kill)
    evaluate(plan, ResultsStore(tmp_path / "killed"))
    whole = plan_of(digits, profile, tree, shard_size=16)
    evaluate(whole, ResultsStore(tmp_path / "whole"))
    symbols = [*COVERAGES, "EBD", "NS", "NU", "ENI"]
    tables = [build_table(folder, metrics=symbols) for folder in (world[0], tmp_path / "killed", tmp_path / "whole")]
    values = [[row.metrics[symbol].value for symbol in symbols] for (row,) in (table.rows for table in tables)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)  # some processors round a product by where it lies in memory
    assert values[0] == pytest.approx(values[2], rel=1e-5)


def test_the_profile_is_part_of_the_cell(digits, profile, tree, world, tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, inputs=profile[1].numpy()[:20], labels=np.zeros(20, int))
    cells = plan_of(digits, (other, None), tree).cells
    assert cells[0].key != world[2].key
    plain = plan_of(digits, profile, tree, measures=("effect",))
    assert plain.cells[0].measures == ("effect",)


def test_a_model_without_layers_says_so(digits, tmp_path):
    class Mean(nn.Module):
        def forward(self, inputs):
            return inputs.flatten(1)[:, :10]

    data = Data(digits.inputs, Mean()(digits.inputs).argmax(1), [str(place) for place in range(16)])
    config = Config(
        attacks=(AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 1}),), measures=("effect", "neurons")
    )
    evaluate(make_plan(config, models={"mean": Classifier(Mean())}, data=data), ResultsStore(tmp_path))
    table = build_table(tmp_path, metrics=["NS"])
    assert np.isnan(table.rows[0].metrics["NS"].value)
    assert any("calls no convolution or linear layer" in note for note in table.notes)


def test_readings_are_the_options_of_the_metric(digits, tmp_path):
    """Every reading that an evaluation measures, and those of stored logits without having been asked for."""
    options = {f"{symbol}@{word}": reading.options for symbol, record in metrics.METRICS.items()
               for word, reading in record.readings.items()
               if not record.group.startswith("defence") and record.group not in ("confusion", "curves")}  # fmt: skip
    options |= {"FDL@db4": {"wavelet": "db4"}, "FDH@bior2.2": {"wavelet": "bior2.2"}}
    large = nn.functional.interpolate(digits.inputs, size=(20, 20), mode="bilinear")
    model = Classifier(nn.Sequential(nn.Upsample((16, 16), mode="bilinear"), digits.module))
    labels = model.predict_logits(large).argmax(1)
    measured = tuple(symbol for symbol in options if symbol.partition("@")[0] not in ("NTE", "ACTC"))
    config = Config(
        attacks=(AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 5}),),
        measures=("effect", *measured),
        keep_images=True,
    )
    plan = make_plan(config, models={"cnn": model}, data=Data(large, labels, [str(place) for place in range(16)]))
    store = ResultsStore(tmp_path)
    evaluate(plan, store)
    outcome = read_outcomes(tmp_path, [*options, "NTE"]).done[0]
    examples = read_examples(store, plan.cells[0])
    success = torch.tensor(outcome.columns["success"])
    given = {"inputs": large, "adv_inputs": examples, "labels": labels, "success": success}
    given["adv_logits"] = model.predict_logits(examples)
    assert 0 < success.sum() < 16
    for symbol, chosen in options.items():
        record = metrics.record_of(symbol)
        wanted = {name: given[name] for name in record.arguments}
        values = record.function(**wanted, **chosen, reduction="none").double()
        assert outcome.columns[symbol] == pytest.approx(values.numpy(), rel=1e-4, nan_ok=True), symbol
        (row,) = build_table(tmp_path, metrics=[symbol, record.symbol]).rows if record.group == "effect" else [None]
        if row is not None:
            assert row.metrics[symbol].n == 16 > row.metrics[record.symbol].n


def test_labels_under_attack_are_read_from_any_folder(digits, world):
    folder, adversarial, _ = world
    clean, attacked = (digits.classifier.predict_logits(each) for each in (digits.inputs, adversarial))
    symbols = ["RANK", "RANK_max", "CLASSES", "WITHIN@0-4+7", "WITHIN"]
    (row,) = build_table(folder, metrics=symbols).rows
    got = {symbol: estimate.value for symbol, estimate in row.metrics.items()}
    assert got == pytest.approx({
        "RANK": float(metrics.demotion_rank(clean, attacked)),
        "RANK_max": float(metrics.largest_demotion_rank(clean, attacked)),
        "CLASSES": float(metrics.reached_classes(attacked)),
        "WITHIN@0-4+7": float(metrics.confusion_within(clean, attacked, [0, 1, 2, 3, 4, 7])),
        "WITHIN": float(metrics.confusion_within(clean, attacked)),
    })  # fmt: skip
    assert got["RANK_max"] > got["RANK"] > 1
    assert row.metrics["RANK"].low < got["RANK"] < row.metrics["RANK"].high
    assert np.isnan(row.metrics["RANK_max"].low)
    assert 0 < row.metrics["WITHIN@0-4+7"].n < row.metrics["WITHIN"].n == 16
    with pytest.raises(DavylampError, match="expected class numbers such as 151-268"):
        build_table(folder, metrics=["WITHIN@4-0"])
    assert np.isnan(build_table(folder, metrics=["WITHIN@5-12"]).rows[0].metrics["WITHIN@5-12"].value)


def test_first_senses_are_read_from_any_folder_of_imagenets_classes(digits, tmp_path):
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 1000)))
    labels = model.predict_logits(digits.inputs).argmax(1)
    config = Config(
        attacks=(AttackChoice("foolbox:pgd", "linf", 0.3, parameters={"steps": 5}),),
        measures=("effect", "confusion", "QI_Wup@first-sense"),
    )
    data = Data(digits.inputs, labels, [str(place) for place in range(16)])
    evaluate(make_plan(config, models={"m": model}, data=data), ResultsStore(tmp_path / "measured"))
    plain = dataclasses.replace(config, measures=("effect", "confusion"))
    evaluate(make_plan(plain, models={"m": model}, data=data), ResultsStore(tmp_path / "derived"))
    outcomes = [read_outcomes(tmp_path / name, ["QI_Wup@first-sense"]).done[0] for name in ("measured", "derived")]
    assert "QI_Wup@first-sense" not in plain.measures
    wup = metrics.imagenet_wup("first")
    for outcome in outcomes:
        pairs = zip(outcome.columns["predicted"], outcome.columns["adv_predicted"], strict=True)
        truth = [float(wup[before, after] < 0.7) for before, after in pairs]
        assert outcome.columns["QI_Wup@first-sense"] == pytest.approx(truth)
        assert len({*truth}) == 2 or np.mean(truth) > 0.9
    ten = build_table(tmp_path / "derived", metrics=["QI_Wup@first-sense"]).rows[0]
    assert ten.metrics["QI_Wup@first-sense"].n == 16


@pytest.mark.parametrize("noise", ["gaussian+blur", "adversarial", "uniform+adversarial"])
def test_insensitivity_to_several_kinds_of_noise(digits, profile, tree, tmp_path, noise):
    plan = plan_of(digits, profile, tree, measures=("effect", "confusion", f"consistency:versions=3,noise={noise}"))
    store = ResultsStore(tmp_path)
    evaluate(plan, store)
    (cell,) = plan.cells
    examples = read_examples(store, cell)
    epsilon, answers, values = 8 / 255, digits.classifier.predict_logits, []
    for image, example, label in zip(digits.inputs, examples, digits.labels, strict=True):
        versions = [
            each for kind in noise.split("+") if kind != "adversarial"
            for each in optional_groups.noisy_versions(image, 3, epsilon, kind)
        ]  # fmt: skip
        versions += [image + (example - image).clamp(-epsilon, epsilon)] if "adversarial" in noise else []
        assert len(versions) == 3 * len(set(noise.split("+")) - {"adversarial"}) + ("adversarial" in noise)
        losses = [float(nn.functional.cross_entropy(answers(each[None]), label[None])) for each in (image, *versions)]
        values.append([abs(loss - losses[0]) / float((each - image).abs().max())
                       for loss, each in zip(losses[1:], versions, strict=True)])  # fmt: skip
    (row,) = build_table(tmp_path, metrics=["ENI"]).rows
    assert row.metrics["ENI"].value == pytest.approx(np.nanmean(np.nanmean(values, axis=1)), rel=1e-3)


def test_noise_of_each_kind():
    image = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))
    gaussian = optional_groups.noisy_versions(image, 400, 0.1, "gaussian") - image
    assert gaussian.abs().max() == pytest.approx(0.1, abs=1e-6)
    inside = gaussian[:, (image > 0.15) & (image < 0.85)]
    assert inside.std() == pytest.approx(
        0.05 * 0.9594, rel=0.01
    )  # of a normal number cut at two deviations, integrated
    blur = optional_groups.noisy_versions(image, 3, 1.0, "blur")
    for version, sigma in zip(blur, (0.5, 1.0, 1.5), strict=True):
        expected = gaussian_filter(image.double().numpy(), sigma=(0, sigma, sigma), mode="mirror", radius=(0, 3, 3))
        torch.testing.assert_close(version.double(), torch.from_numpy(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"measures": ("coverage",)}, "`neuron_profile=DATA`"),
        ({"neuron_profile": "demo:imagenet"}, "`neuron_profile` needs `measures=coverage`"),
        ({"measures": ("coverage:sections=0",)}, "expected sections from 1"),
        ({"measures": ("coverage:section=3",)}, "did you mean sections"),
        ({"measures": ("boundry",)}, "did you mean boundary"),
        ({"measures": ("consistency:epsilon=0",)}, "expected epsilon to be a number above 0"),
        (
            {"measures": ("consistency:noise=blur+rain",)},
            "expected noise to be uniform or gaussian or blur or adversarial",
        ),
        ({"measures": ("boundary:towards=all",)}, "expected towards to be any or each, got 'all'"),
        ({"measures": ("FDL@db",)}, "discrete wavelet of PyWavelets such as db4 after FDL@, got 'db'"),
        ({"measures": ("PSD@all",)}, "PSD@product or PSD@complement"),
        ({"measures": ("ALD@x",)}, "expected p of ALD as a number"),
        ({"measures": ("QI_Wup@2",)}, "expected a threshold from -1 to 1"),
        ({"hierarchy": "nowhere.json"}, "cannot read the hierarchy"),
    ],
)
def test_one_line(given, line, digits):
    with pytest.raises(DavylampError, match=line) as caught:
        make_plan(
            dataclasses.replace(Config(attacks=(AttackChoice("foolbox:pgd", "linf", 0.1),)), **given),
            models={"cnn": digits.classifier},
            data=Data(digits.inputs, digits.labels, list("abcdefghijklmnop")),
        )
    assert "\n" not in str(caught.value)


def test_settings_of_a_group():
    with pytest.raises(UnknownName, match="'spacin'; did you mean spacing"):
        read_group("boundary:directions=2,spacin=42")
    group = read_group("coverage:sections=100,profile=imagefolder:/a,b=c/d,k=3 code 12")
    assert (group["sections"], group["k"], group["profile"]) == (100, 3, "imagefolder:/a,b=c/d")


def test_bits_come_back():
    generator = np.random.default_rng(0)
    coverage = {
        name: Reached(generator.random((count, 5)) > 0.5, *(generator.random(count) > 0.5 for _ in range(3)))
        for name, count in (("a", 3), ("b", 7))
    }
    back = unpack(pack(coverage), ["a", "b"], [5, 3, 7])
    assert all(np.array_equal(x, y) for name in coverage for x, y in zip(coverage[name], back[name], strict=True))
    with pytest.raises(ValueError, match="bits"):
        unpack(pack(coverage)[:-2], ["a", "b"], [5, 3, 7])


def test_hierarchies(tmp_path):
    csv = tmp_path / "tree.csv"
    csv.write_text("child,parent\ncat,pet\ndog,pet\npet,animal\nanimal,\ncar,vehicle\n")
    paths = read_hierarchy(csv)
    assert [path[-1] for path in paths] == ["cat", "dog", "car"]
    similarity = similarity_of_file(csv, 3)
    # depths with the root over all: cat 4, car 3; common: the pet at 3, the root at 1
    assert similarity[0, 1] == pytest.approx(2 * 3 / 8)
    assert similarity[0, 2] == pytest.approx(2 * 1 / 7)
    json_file = tmp_path / "tree.json"
    json_file.write_text(json.dumps({"animal": {"pet": ["cat", "dog"]}, "vehicle": ["car"]}))
    assert torch.equal(similarity, similarity_of_file(json_file, 3))
    for text, line in (
        ("a,b\nb,a\nc,a", "cycles"),
        ("a,b\nb,a\nc,d", "cycles in .*, got a cycle above 'a'"),
        ("0,a\n2,a", "expected the classes 0 to 1 in .*, but 1 is missing"),
        ("a,b\na,c", "one parent of 'a'"),
        ("a", "expected child,parent in line 1"),
    ):
        csv.write_text(text)
        with pytest.raises(DavylampError, match=line):
            similarity_of_file(csv, 1)
    with pytest.raises(DavylampError, match="expected 5 classes in the hierarchy"):
        similarity_of_file(json_file, 5)
    upper = tmp_path / "TREE.JSON"
    upper.write_text(json.dumps({"cat": ["cat", "dog"], "vehicle": ["car"]}))  # a group may be called as a class is
    assert similarity_of_file(upper, 3)[0].tolist() == pytest.approx([1, 2 * 2 / 6, 2 * 1 / 6])


def test_classes_in_another_order_than_the_models_are_refused_or_shown(tmp_path, digits):
    numbers, words = tmp_path / "numbers.json", tmp_path / "words.json"
    numbers.write_text(json.dumps({"even": [0, 2, 4, 6, 8], "odd": [9, 7, 5, 3, 1]}))
    words.write_text(json.dumps({"even": ["zero", "two", "four", "six", "eight"], "odd": list("abcde")}))
    data = Data(digits.inputs, digits.labels, list("abcdefghijklmnop"))
    model = Classifier(digits.classifier.model, num_classes=10)

    def notes_of(path):
        config = Config(attacks=(AttackChoice("foolbox:pgd", "linf", 0.1),), hierarchy=str(path))
        return [note for note in make_plan(config, models={"cnn": model}, data=data).notes if path.name in note]

    assert notes_of(numbers) == []
    assert similarity_of_file(numbers, 10)[1, 9] > similarity_of_file(numbers, 10)[1, 8]
    (note,) = notes_of(words)
    assert note.endswith(
        "assumed to be in the order of the file: 0 zero, 1 two, 2 four, 3 six, 4 eight, 5 a, 6 b, 7 c, 8 d, 9 e"
    )
    model.class_names = ("zero", "two", "four", "six", "eight", *"abcde")
    assert notes_of(words) == []
    model.class_names = ("zero", "one", "two", "three", "four", *"abcde")
    with pytest.raises(DavylampError, match=r"order, got 'two' where the model has 'one' \(class 1\)"):
        notes_of(words)
    assert notes_of(numbers) == []
