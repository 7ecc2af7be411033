"""`evaluate --until`: linear models whose robustness to FGSM in linf is a closed form, on images in random order."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest

import davylamp
from davylamp.adapters.data import datasets
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.models.identity.digest import digest_data
from davylamp.api import evaluation
from davylamp.engine import AttackChoice, ResultsStore
from davylamp.engine.checks.standings import rank_models, robust_accuracy_estimate
from davylamp.engine.exchange.published_boards import place_estimate, place_on_board, read_boards
from davylamp.engine.sequential.evaluate_until import next_block
from davylamp.engine.sequential.question import Answers, parse_question
from davylamp.engine.sharing.bundle import write_bundle
from davylamp.engine.sharing.merge import merge_folders
from davylamp.engine.sharing.unpack import unpack_bundle
from davylamp.engine.sources import LoadedCache, load_subject_images
from davylamp.engine.statistics.anytime import AnytimeMean
from davylamp.engine.store.results import read_outcomes
from davylamp.engine.store.sequence import read_sequence
from davylamp.engine.tables.budget_curves import build_curves
from davylamp.engine.tables.groups import group_cells
from davylamp.errors import DavylampError, InvalidInput
from davylamp.intervals import proportion_interval

from .conftest import Interrupted

IMAGES, EPSILON = 240, 0.02
SETTINGS = {"attacks": "torchattacks:fgsm", "norm": "linf", "epsilon": EPSILON, "shard_size": 16, "measures": ()}


def linear(noise):
    """A linear model of two classes; the more noise in its weights, the less robust it is."""
    generator = torch.Generator().manual_seed(3)
    right, other = torch.randn(2, 1, 12, generator=generator)
    layer = torch.nn.Linear(12, 2)
    layer.weight.data = torch.cat([right + noise * other, -right - noise * other])
    layer.bias.data = -layer.weight.data.sum(1) / 2
    return torch.nn.Sequential(torch.nn.Flatten(), layer).eval()


MODELS = {"plain": linear(0.0), "noisy": linear(0.5), "noisier": linear(2.0)}
INPUTS = 0.1 + 0.8 * torch.rand(IMAGES, 3, 2, 2, generator=torch.Generator().manual_seed(5))
LABELS = MODELS["plain"](INPUTS).argmax(1)


def robust(name):
    """Whether each image keeps its class in the ball: by the l1 norm of the difference of both classes' weights."""
    model = MODELS[name]
    margin = (model(INPUTS)[:, 0] - model(INPUTS)[:, 1]) * torch.where(LABELS == 0, 1, -1)
    weight = model[1].weight.data
    return (margin > EPSILON * (weight[0] - weight[1]).abs().sum()).numpy()


def order(seed):
    return np.random.default_rng(seed).permutation(IMAGES)


def run(folder, until, *names, **settings):
    models = {name: MODELS[name] for name in names or MODELS}
    return davylamp.evaluate(models, INPUTS, LABELS, out=folder, until=until, **{**SETTINGS, **settings})


def rows_of(folder):
    return {row.labels["model"]: row.metrics["RA"] for row in davylamp.table(folder, "models", metrics=["RA"]).rows}


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    """Whether the plain model has a robust accuracy of at least 0.75."""
    folder = tmp_path_factory.mktemp("decided")
    return folder, run(folder, "RA_worst >= 0.75", "plain")


def test_it_stops_once_the_requirement_is_decided(decided):
    folder, done = decided
    truth = robust("plain")
    assert 0.75 < truth.mean() < 0.9
    mean, count = AnytimeMean(IMAGES), 0
    while not (mean.interval.low >= 0.75 or mean.interval.high < 0.75):
        block = order(0)[count : next_block(count, 16, 1, IMAGES)]
        mean.add(truth[block].astype(float))
        count += len(block)
    record = read_sequence(ResultsStore(folder))
    assert (record.images, record.population, record.is_decided) == (count, IMAGES, True)
    assert count < IMAGES
    assert rows_of(folder)["plain"][:3] == pytest.approx(tuple(mean.interval))
    frame = done.to_frame()
    assert list(frame["image"].astype(int)) == list(order(0)[:count])
    (outcome,) = read_outcomes(folder).done
    assert 0 < outcome.meta["seconds"] <= done.summary.seconds  # shards of earlier blocks count once
    assert len(list((folder / "cells").iterdir())) == len(list((folder / "clean").iterdir())) == 1


def test_every_view_has_the_interval_of_the_sequence(decided):
    folder, done = decided
    value, low, high, n = rows_of(folder)["plain"]
    (decision,) = davylamp.gate(folder, "RA >= 0.75").made
    assert (decision.verdict, decision.low, decision.high) == ("pass", low, high)
    assert any("random order" in note for note in davylamp.gate(folder, "RA >= 0.75").notes)
    ((standing,),) = [each.places for each in rank_models(read_outcomes(folder), ())]
    assert (standing.low, standing.high) == (low, high)
    fixed = proportion_interval(round(value * n), n)
    assert low < fixed[0]  # at this number of images, and the only one
    clean = davylamp.table(folder, "models", metrics=["CA"])
    mean = AnytimeMean(IMAGES)
    mean.add(np.ones(n))
    assert clean.rows[0].metrics["CA"][:3] == pytest.approx(tuple(mean.interval))
    assert {"sequence", "drawn-images"} <= {each.name for each in clean.findings}
    assert "RA >= 0.75" in done.stopped
    (curve,) = build_curves(folder).curves
    assert (curve.low[1], curve.high[1]) == (low, high)
    assert (curve.low[0], curve.high[0]) == clean.rows[0].metrics["CA"][1:3]
    (group,) = group_cells(read_outcomes(folder), "models")
    (board, *_) = read_boards()
    wide = AnytimeMean(IMAGES, 1 - 0.05 / len(board.entries))
    wide.add(robust("plain")[order(0)[:n]].astype(float))
    ends = (
        place_on_board(group, board, "plain"),
        place_estimate(
            robust_accuracy_estimate(group), (value, wide.interval.low), (value, wide.interval.high), board, "plain"
        ),
    )
    assert ends[0] == ends[1]


def test_what_has_no_interval_for_drawn_images_shows_none(decided, tmp_path):
    folder, _ = decided
    table = davylamp.table(folder, "classes")
    assert [np.isnan(each.low) for row in table.rows for each in row.metrics.values()] == [True] * 4
    assert "no-class-intervals" in {each.name for each in table.findings}
    assert "simultaneous-intervals" not in {each.name for each in table.findings}
    run(tmp_path, "RA >= 0.5", "plain", attacks="foolbox:ddn", norm="l2", epsilon=1.0, steps=3)
    (curve,) = build_curves(tmp_path).curves
    assert (curve.kind, np.isnan(curve.low).all()) == ("distances", True)


def test_a_gate_asks_for_no_more_images_than_there_are(decided):
    folder, _ = decided
    seen = read_sequence(ResultsStore(folder)).images
    value = rows_of(folder)["plain"].value
    (decision,) = davylamp.gate(folder, f"RA >= {value - 1e-3:.4f}").made
    assert (decision.verdict, decision.more) == ("too few images", IMAGES - seen)


def test_a_baseline_in_a_different_random_order_is_refused(decided, tmp_path):
    folder, _ = decided
    run(tmp_path, "RA >= 0.1", "plain", seeds=(1,))
    with pytest.raises(InvalidInput, match="random order"):
        davylamp.gate(folder, "CA >= 0.1", against=tmp_path)
    shorter = tmp_path / "same"
    run(shorter, "RA >= 0.1", "plain")
    assert read_sequence(ResultsStore(shorter)).images < read_sequence(ResultsStore(folder)).images
    made = davylamp.gate(folder, "RA >= 0.1", against=shorter).made
    (images,) = (each.images for each in made if "baseline" in each.requirement)
    assert images == read_sequence(ResultsStore(shorter)).images


def test_a_folder_without_its_record_goes_on_from_its_images(decided, tmp_path):
    """As after a merge of folders that answer different questions, or a sequence in a different order."""
    shutil.copytree(decided[0], tmp_path / "one")
    run(tmp_path / "two", "RA >= 0.7", "plain", seeds=(1,))
    summary = merge_folders([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    assert any("sequence.json" in each for each in summary.notes)
    assert read_sequence(ResultsStore(tmp_path / "both")) is None
    for seed, until, alone in ((0, "RA_worst >= 0.75", "one"), (1, "RA >= 0.7", "two"), (0, "RA >= 0.75", "one")):
        again = run(tmp_path / "both", until, "plain", seeds=(seed,))
        assert again.summary.done == 0
        assert (
            read_sequence(ResultsStore(tmp_path / "both")).images
            == read_sequence(ResultsStore(tmp_path / alone)).images
        )


def test_merges_and_bundles_keep_the_record(decided, tmp_path):
    folder, record = decided[0], read_sequence(ResultsStore(decided[0]))
    shutil.copytree(folder, tmp_path / "copy")
    merge_folders([folder, tmp_path / "copy"], tmp_path / "both")
    write_bundle(folder, tmp_path / "b.zip")
    unpack_bundle(tmp_path / "b.zip", tmp_path / "back")
    assert read_sequence(ResultsStore(tmp_path / "both")) == record == read_sequence(ResultsStore(tmp_path / "back"))


def test_a_baseline_is_compared_by_the_interval_of_the_sequence(decided, tmp_path):
    folder, _ = decided
    davylamp.evaluate({"plain": MODELS["noisier"]}, INPUTS, LABELS, out=tmp_path, **SETTINGS)
    decision = next(
        each for each in davylamp.gate(folder, "RA >= 0.1", against=tmp_path).made if "baseline" in each.requirement
    )
    drawn = order(0)[: read_sequence(ResultsStore(folder)).images]
    mean = AnytimeMean(IMAGES)
    mean.add((robust("plain").astype(float) - robust("noisier") + 1)[drawn] / 2)
    assert (decision.low, decision.high) == pytest.approx((2 * mean.interval.low - 1, 2 * mean.interval.high - 1))
    assert decision.images == len(drawn)


@pytest.mark.parametrize("tasks", [1, 4, 9])
def test_a_killed_run_resumes_and_stops_at_the_same_image(tasks, decided, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "choose_executor", lambda *_, **__: Interrupted(tasks))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "RA >= 0.75", "plain")
    monkeypatch.undo()
    done = run(tmp_path, "RA >= 0.75", "plain")
    columns = ["image", "success", "adv_predicted", "linf"]
    assert done.to_frame()[columns].equals(decided[1].to_frame()[columns])
    assert rows_of(tmp_path) == rows_of(decided[0])
    again = run(tmp_path, "RA >= 0.75", "plain")
    assert (again.summary.done, again.stopped) == (0, done.stopped)


def test_a_narrower_question_goes_on_from_the_images_so_far(decided, tmp_path):
    run(tmp_path, "RA >= 0.75", "plain")
    before = read_sequence(ResultsStore(tmp_path)).images
    seen = []
    done = run(tmp_path, "width <= 0.12", "plain", progress=lambda each: seen.append(each.plan) or _Nothing())
    low, high = rows_of(tmp_path)["plain"][1:3]
    assert high - low <= 0.12
    assert seen[0].subjects[0][0].images == before
    assert list(done.to_frame()["image"].astype(int)) == list(order(0)[: len(done.to_frame())])


class _Nothing:
    def __enter__(self):
        return lambda *_: None

    def __exit__(self, *_):
        return None


def test_pairs_are_decided_by_their_differences(tmp_path):
    done = run(tmp_path, "plain > noisier @ linf 0.02", seeds=(1,))
    count = read_sequence(ResultsStore(tmp_path)).images
    first, second = (robust(name)[order(1)[:count]] for name in ("plain", "noisier"))
    only = int((first & ~second).sum()), int((second & ~first).sum())
    assert "plain > noisier" in done.stopped
    assert count < IMAGES
    # A fixed number of images would show it as well, by McNemar's exact test.
    assert binomtest(only[0], sum(only)).pvalue < 0.05
    mean = AnytimeMean(IMAGES)
    mean.add((first.astype(float) - second + 1) / 2)
    (answer,) = Answers(parse_question("plain > noisier")).update(read_outcomes(tmp_path))
    assert answer.interval[1:] == pytest.approx((2 * mean.interval.low - 1, 2 * mean.interval.high - 1))
    assert answer.interval.value == pytest.approx((only[0] - only[1]) / count)
    assert answer.interval.low > 0


def test_invalid_results_widen_every_answer_and_targeted_attacks_have_none(writer):
    """Models that are robust on 70 % and 50 % of 120 images, of which 10 % have an invalid result, drawn from 200."""
    generator, labels, ends = np.random.default_rng(0), torch.zeros(120, dtype=torch.long), {}
    right, wrong = torch.eye(2)[labels] * 4, torch.eye(2)[1 - labels] * 4
    for name, share in (("a", 0.7), ("b", 0.5)):
        fooled, invalid = generator.random(120) > share, generator.random(120) < 0.1
        subject = writer.clean(name, right, labels)
        examples = torch.where(torch.as_tensor(fooled)[:, None], wrong, right)
        writer.cell(subject, "foolbox:pgd", right, examples, labels, violated=torch.as_tensor(invalid))
        writer.cell(subject, "foolbox:pgd", right, wrong, labels, target="random")
        ends[name] = (~fooled & ~invalid).astype(float), (~fooled | invalid).astype(float)
    outcomes = read_outcomes(writer.store.folder)
    subjects = (replace(each.cell.subject, drawn=(200, 0)) for each in outcomes.done)
    drawn = (replace(each, cell=replace(each.cell, subject=s)) for each, s in zip(outcomes.done, subjects, strict=True))
    outcomes = replace(outcomes, done=tuple(drawn))
    answers = {answer.models[0]: answer.interval for answer in Answers(parse_question("RA >= 0.5")).update(outcomes)}
    (pair,) = Answers(parse_question("a > b")).update(outcomes)
    means = {name: AnytimeMean(200) for name in ("a", "b", "pair")}
    for name in "ab":
        means[name].add(*ends[name])
        assert answers[name][1:] == pytest.approx(means[name].interval[1:])
    means["pair"].add((ends["a"][0] - ends["b"][1] + 1) / 2, (ends["a"][1] - ends["b"][0] + 1) / 2)
    low, high = means["pair"].interval[1:]
    assert pair.interval == pytest.approx((ends["a"][0].mean() - ends["b"][0].mean(), 2 * low - 1, 2 * high - 1))


def test_the_union_of_threat_models_is_decided_image_by_image(tmp_path):
    """FGSM in l2 moves a linear model's margin by the l2 norm of its weights, in linf by the l1 norm."""
    radius, attacks = 0.06, ["torchattacks:fgsm", "foolbox:fgm"]
    choices = [AttackChoice(attacks[0], "linf", EPSILON), AttackChoice(attacks[1], "l2", radius)]
    settings = {**SETTINGS, "attacks": choices, "norm": None, "epsilon": None}
    names = ("plain", "noisier")
    kept = {}
    for name in names:
        model = MODELS[name]
        margin = (model(INPUTS)[:, 0] - model(INPUTS)[:, 1]) * torch.where(LABELS == 0, 1, -1)
        weight = model[1].weight.data[0] - model[1].weight.data[1]
        kept[name] = (margin > max(EPSILON * weight.abs().sum(), radius * weight.norm())).numpy()
    models = {name: MODELS[name] for name in names}
    done = davylamp.evaluate(models, INPUTS, LABELS, out=tmp_path, until="RA_union >= 0.68", **settings)
    record = read_sequence(ResultsStore(tmp_path))
    assert record.is_decided
    assert 16 < record.images < IMAGES
    rows = davylamp.table(tmp_path, "models", metrics=["RA", "RA_union"]).rows
    for name in names:
        mean = AnytimeMean(IMAGES)
        mean.add(kept[name][order(0)[: record.images]].astype(float))
        for row in (each.metrics["RA_union"] for each in rows if each.labels["model"] == name):
            assert row[:3] == pytest.approx(tuple(mean.interval))
    verdicts = {
        name: f"{name}, l2 0.06 + linf 0.02: {'' if met else 'not '}RA_union >= 0.68"
        for name, met in zip(names, (True, False), strict=True)
    }
    assert all(text in done.stopped for text in verdicts.values())
    (decision, other) = davylamp.gate(tmp_path, "RA_union >= 0.68").made
    assert {decision.verdict, other.verdict} == {"pass", "fail"}


def test_the_union_counts_an_image_that_one_threat_model_fools_and_widens_by_invalid_results(writer):
    """100 of 300 images, of which linf fools some, l2 others, and l2 has invalid results."""
    generator, labels = np.random.default_rng(1), torch.zeros(100, dtype=torch.long)
    right, wrong = torch.eye(2)[labels] * 4, torch.eye(2)[1 - labels] * 4
    by_linf, by_l2, invalid = (generator.random(100) < share for share in (0.2, 0.15, 0.1))
    subject = writer.clean("a", right, labels)
    examples = [torch.where(torch.as_tensor(fooled)[:, None], wrong, right) for fooled in (by_linf, by_l2)]
    writer.cell(subject, "foolbox:pgd", right, examples[0], labels)
    l2 = {"norm": "l2", "epsilon": 0.5, "violated": torch.as_tensor(invalid)}
    writer.cell(subject, "foolbox:pgd", right, examples[1], labels, **l2)
    outcomes = read_outcomes(writer.store.folder)
    drawn = (replace(each.cell, subject=replace(subject, drawn=(300, 0))) for each in outcomes.done)
    outcomes = replace(
        outcomes, done=tuple(replace(each, cell=cell) for each, cell in zip(outcomes.done, drawn, strict=True))
    )
    (answer,) = Answers(parse_question("RA_union >= 0.5")).update(outcomes)
    low = ~by_linf & ~by_l2 & ~invalid
    mean = AnytimeMean(300)
    mean.add(low.astype(float), (~by_linf & (invalid | ~by_l2)).astype(float))
    assert answer.interval[1:] == pytest.approx(mean.interval[1:])
    assert answer.interval.value == pytest.approx(low.mean())


def test_the_order_of_all_models_is_that_of_all_images(tmp_path):
    done = run(tmp_path, "ranked @ linf 0.02", shard_size=48)
    truth = {name: robust(name).mean() for name in MODELS}
    names = sorted(truth, key=lambda name: -truth[name])
    assert all(truth[one] > truth[other] for one, other in pairwise(names))
    assert " > ".join(names) in done.stopped
    assert any("random order" in each for each in davylamp.rank(tmp_path, scoring="mean").notes)
    count, level = read_sequence(ResultsStore(tmp_path)).images, 1 - 0.05 / 3  # Bonferroni, for three pairs
    for answer in Answers(parse_question("ranked")).update(read_outcomes(tmp_path)):
        first, second = (robust(name)[order(0)[:count]].astype(float) for name in answer.models)
        mean = AnytimeMean(IMAGES, level)
        mean.add((first - second + 1) / 2)
        assert answer.interval[1:] == pytest.approx((2 * mean.interval.low - 1, 2 * mean.interval.high - 1))
    assert read_sequence(ResultsStore(tmp_path)).is_decided


def test_all_images_answer_what_remains(tmp_path):
    """Equal models differ by exactly 0, which only the last image shows."""
    models = {"one": MODELS["plain"], "same": linear(1e-9)}
    done = davylamp.evaluate(models, INPUTS[:48], LABELS[:48], out=tmp_path, until="one > same", **SETTINGS)
    assert "equal, 0.000 [0.000, 0.000]" in done.stopped
    assert read_sequence(ResultsStore(tmp_path)).images == 48


def test_blocks_have_a_shard_for_every_worker_and_grow():
    ends = [0]
    while ends[-1] < 10_000:
        ends.append(next_block(ends[-1], 64, 3, 10_000))
    sizes = np.diff(ends)
    assert (ends[1], ends[-1]) == (192, 10_000)
    assert all(
        size % 64 == 0 and 192 <= size < max(193, 0.1 * end + 64) for end, size in zip(ends, sizes[:-1], strict=False)
    )
    assert len(ends) < 40


@pytest.fixture
def files(tmp_path):
    """A folder with the images as PNG files, by class."""
    for place, (image, label) in enumerate(zip(INPUTS, LABELS, strict=True)):
        (tmp_path / "files" / str(int(label))).mkdir(parents=True, exist_ok=True)
        pixels = image.mul(255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(tmp_path / "files" / str(int(label)) / f"{place:03}.png")
    return tmp_path / "files"


def test_only_the_images_that_are_attacked_are_decoded(files, tmp_path, monkeypatch):
    whole, read, open_image = load_data(f"imagefolder:{files}"), set(), datasets._open_image
    monkeypatch.setattr(datasets, "_open_image", lambda item, wanted: read.add(item.name) or open_image(item, wanted))
    settings = {**SETTINGS, "data": f"imagefolder:{files}", "until": "RA >= 0.7", "seeds": (2,), "shard_size": 8}
    done = davylamp.evaluate({"plain": MODELS["plain"]}, out=tmp_path / "out", **settings)
    drawn = order(2)[: read_sequence(ResultsStore(tmp_path / "out")).images]
    assert 8 < len(drawn) < IMAGES  # several blocks
    assert read == {whole.names[place] for place in (0, 1, *drawn)}  # the first two identify the model
    assert [*done.to_frame()["image"]] == [whole.names[place] for place in drawn]
    ((subject, _),) = done.plan.subjects
    assert subject.data_digest == digest_data(whole.inputs[drawn], whole.labels[drawn])
    read.clear()
    again = load_subject_images(subject, None, LoadedCache())
    assert torch.equal(again.inputs, whole.inputs[drawn])
    assert read == {whole.names[place] for place in drawn}


def test_a_later_image_of_a_different_size_is_refused(files, tmp_path):
    last = load_data(f"imagefolder:{files}").names[order(0)[-1]]
    Image.new("RGB", (3, 2)).save(files / last)
    settings = {**SETTINGS, "data": f"imagefolder:{files}", "until": "width <= 0.01"}
    with pytest.raises(InvalidInput, match="images of one size"):
        davylamp.evaluate({"plain": MODELS["plain"]}, out=tmp_path / "out", **settings)


def test_duplicates_of_attacked_images_are_noted(tmp_path):
    inputs = torch.cat([INPUTS[:1], INPUTS[:1], INPUTS[2:]])
    settings = {**SETTINGS, "until": "RA >= 0.1", "progress": False}
    done = davylamp.evaluate({"plain": MODELS["plain"]}, inputs, LABELS, out=tmp_path / "few", **settings)
    assert not {0, 1} <= {*order(0)[: read_sequence(ResultsStore(tmp_path / "few")).images]}
    assert not any("duplicate" in note for note in done.notes)
    settings["until"] = "width <= 0.001"
    done = davylamp.evaluate({"plain": MODELS["plain"]}, inputs, LABELS, out=tmp_path / "all", **settings)
    assert sum(f"1 of {IMAGES} images duplicate" in note for note in done.notes) == 1


@pytest.mark.parametrize(
    ("until", "more", "expected"),
    [
        ("RA >= 50", {}, "0.5"),
        ("CA >= 0.5", {}, "RA and RA_union only"),
        ("RA_union >= 0.5", {}, "several threat models"),
        ("RA_union >= 0.5 @ linf 0.02", {}, "remove the @ part"),
        ("soon", {}, "ranked"),
        ("plain >= noisy", {}, "got"),
        ("plain > none", {}, "none"),
        ("RA >= 0.5 @ l2 1", {}, "l2 1"),
        ("width <= 2", {}, "width"),
        ("width < 0.1", {}, "width <= "),
        ("ranked @ l2 1", {}, "l2 1"),
        ("RA >= 0.5", {"part": "1/2"}, "part"),
        ("RA >= 0.5", {"attacks": "at-saturation(torchattacks:fgsm)", "epsilon": None}, "all images at once"),
    ],
)
def test_what_cannot_be_decided_is_refused_before_anything_runs(until, more, expected, tmp_path):
    with pytest.raises(DavylampError, match=expected) as caught:
        run(tmp_path / "out", until, "plain", "noisy", **more)
    assert isinstance(caught.value, InvalidInput)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "cells").exists()


def test_a_damaged_record_starts_again_and_never_crashes_a_table(decided, tmp_path):
    run(tmp_path, "RA >= 0.75", "plain")
    whole = json.loads((tmp_path / "sequence.json").read_text())
    for text in ("", "[]", json.dumps({**whole, "images": "9"}), json.dumps({**whole, "more": 1})):
        (tmp_path / "sequence.json").write_text(text)
        assert read_sequence(ResultsStore(tmp_path)) is None
        assert rows_of(tmp_path) == rows_of(decided[0])


def test_all_images_in_random_order_beside_the_results_of_an_evaluation_on_all(tmp_path):
    """Both image sets are equal. The answer needs those in random order, tables need each result once."""
    davylamp.evaluate({"plain": MODELS["plain"]}, INPUTS, LABELS, out=tmp_path / "r", **SETTINGS)
    done = run(tmp_path / "r", "width <= 0.0001", "plain")
    record = read_sequence(ResultsStore(tmp_path / "r"))
    assert (record.images, record.is_decided) == (IMAGES, True)
    assert rows_of(tmp_path / "r")["plain"].value == robust("plain").mean()
    ((row,), (whole,)) = (
        list(each.table("models", metrics=["RA"]).rows) for each in (done, davylamp.Evaluation(tmp_path / "r"))
    )
    assert row.metrics["RA"].value == whole.metrics["RA"].value == robust("plain").mean()
    (outcome,) = read_outcomes(tmp_path / "r").done
    assert not outcome.cell.subject.drawn
