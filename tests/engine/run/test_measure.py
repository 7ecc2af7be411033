"""The records of an evaluation against the attacks run by hand and the metrics computed from them."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from davylamp import metrics
from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.data.datasets import load_data
from davylamp.adapters.running.judge import quantise
from davylamp.engine import Config, ResultsStore, evaluate, load, load_clean, make_plan
from davylamp.engine.cell_defaults import ALL_MEASURES
from davylamp.engine.run import worker
from davylamp.engine.run.measure import measured_symbols, result_table
from davylamp.engine.run.worker import describe_gpu
from davylamp.report.page.build import build_report


@pytest.fixture(scope="module")
def records(small_folder):
    return load(small_folder, heavy=True)


def by_hand(name, threat_model, digits, **parameters):
    """The result of the cell, shard by shard."""
    results = []
    for first in range(0, 16, 6):
        part = slice(first, first + 6)
        inputs, labels = digits.inputs[part], digits.labels[part]
        results.append(run_attack(name, digits.classifier, inputs, labels, threat_model, first=first, **parameters))
    return results


def test_the_records_are_those_of_the_attack(records, digits, images):
    assert len(records) == 3 * 16
    recorded = records[records["implementation"] == "foolbox:ddn"]
    assert (recorded["distance"][recorded["success"]] == recorded["l2"][recorded["success"]]).all()
    assert np.isinf(recorded["distance"][~recorded["success"]]).all()
    recorded = records[records["implementation"] == "foolbox:pgd"]
    assert (recorded["index"].tolist(), recorded["image"].tolist()) == (list(range(16)), images.names)
    step_size = 2.5 * 0.1 / 5
    made_by_hand = by_hand(
        "foolbox:pgd", ThreatModel("linf", 0.1), digits, steps=5, step_size=step_size, random_start=False
    )
    adv_inputs = torch.cat([result.adv_inputs for result in made_by_hand])
    success = torch.cat([result.success for result in made_by_hand])
    adv_logits = torch.cat([result.adv_logits for result in made_by_hand])
    logits, labels = digits.module(digits.inputs), digits.labels
    assert recorded["success"].tolist() == success.tolist()
    assert np.array_equal(np.stack(recorded["adv_logits"]), adv_logits.numpy())
    expected = {
        "MR": metrics.misclassification_ratio(logits, adv_logits, labels, reduction="none"),
        "AIAC": metrics.adversarial_confidence_increase(logits, adv_logits, labels, reduction="none"),
        "AED": metrics.euclidean_distortion(digits.inputs, adv_inputs, success, reduction="none"),
        "FDL": metrics.low_frequency_distortion(digits.inputs, adv_inputs, success, reduction="none"),
        "RMSD": metrics.pixel_rms_distance(digits.inputs, adv_inputs, reduction="none"),
    }
    for symbol, values in expected.items():
        np.testing.assert_allclose(recorded[symbol], values.double(), rtol=1e-6, err_msg=symbol)
    l2 = (adv_inputs.double() - digits.inputs.double()).flatten(1).norm(dim=1)
    np.testing.assert_allclose(recorded["l2"], l2)
    on_grid = (quantise(adv_inputs).double() - digits.inputs.double()).flatten(1).norm(dim=1)
    np.testing.assert_allclose(recorded["l2_8bit"], on_grid)


def test_kept_images_are_exact_and_can_be_attacked_again(small_folder, small_plan, digits):
    cell = next(c for c in small_plan.cells if c.attack == "foolbox:pgd")
    (result, *_) = by_hand("foolbox:pgd", cell.threat_model, digits, **cell.parameters)
    kept = load_data(f"npz:{ResultsStore(small_folder).images_path(f'{cell.key}-0')}")
    assert torch.equal(kept.inputs, result.adv_inputs)
    assert torch.equal(kept.labels, digits.labels[:6])


def test_pictures_are_the_images_on_the_8_bit_grid(records, small_folder, digits):
    clean = load_clean(small_folder, heavy=True)
    np.testing.assert_array_equal(np.stack(clean["logits"]), digits.module(digits.inputs))
    assert clean["CA"].mean() == 1
    assert clean["picture"].notna().sum() == 6
    assert records.groupby("cell")["adv_picture"].apply(lambda column: column.notna().sum()).eq(6).all()
    pixels = np.asarray(Image.open(io.BytesIO(clean["picture"][2]))) / np.float32(255)
    np.testing.assert_allclose(pixels.transpose(2, 0, 1), quantise(digits.inputs[2]), atol=1e-7)


def test_a_violation_is_no_credit_to_anyone(digits):
    """An image that comes back black is neither fooled nor robust; its confidences count for nothing."""
    result = run_attack("foolbox:fgsm", digits.classifier, digits.inputs, digits.labels, ThreatModel("linf", 0.3))
    fooled = int(result.success.nonzero()[0])
    violations = tuple(("black",) if i == fooled else () for i in range(16))
    success = result.success.clone()
    success[fooled] = False
    broken = type(result)(**{**vars(result), "success": success, "violations": violations})
    table, _ = result_table(broken, digits.classifier, digits.inputs, [""] * 16, first=0, measures=ALL_MEASURES)
    row = table.to_pylist()[fooled]
    assert row["violated"]
    assert not row["robust"]
    assert row["MR"] == 0
    assert row["AAW"] == 0
    assert np.isnan(row["AIAC"])
    assert np.isnan(row["AED"])


def test_outside_its_radius_a_minimum_norm_example_counts_as_robust(digits):
    unbounded = run_attack("foolbox:ddn", digits.classifier, digits.inputs, digits.labels, ThreatModel("l2"), steps=20)
    middle = float(unbounded.distance.median())
    threat_model = ThreatModel("l2", middle)
    result = run_attack("foolbox:ddn", digits.classifier, digits.inputs, digits.labels, threat_model, steps=20)
    table, unmeasured = result_table(
        result, digits.classifier, digits.inputs, [""] * 16, first=0, measures=ALL_MEASURES
    )
    assert "17 x 17" in unmeasured["ALMS"]
    assert np.isnan(table["ALMS"].to_numpy()).all()
    rates = table.select(["MR", "AAW"]).to_pandas()
    assert 0 < result.success.sum() < 16
    assert rates["MR"].tolist() == result.success.double().tolist()
    assert rates["AAW"].tolist() == (~result.success).double().tolist()


def test_attention_is_measured_where_a_layer_is_known():
    from torchvision.models import squeezenet1_1

    from davylamp.adapters import Classifier
    from davylamp.adapters.data.datasets import Data

    torch.manual_seed(0)
    model = squeezenet1_1(num_classes=4)
    inputs = torch.rand(3, 3, 64, 64)
    labels = Classifier(model).predict_logits(inputs).argmax(1)
    config = Config(data="noise", shard_size=2)
    plan = make_plan(config, models={"net": Classifier(model)}, data=Data(inputs, labels, list("abc")))
    cell = next(c for c in plan.cells if c.attack == "foolbox:pgd")
    result = run_attack("foolbox:pgd", Classifier(model), inputs, labels, cell.threat_model, **cell.parameters)
    table, _ = result_table(result, Classifier(model), inputs, list("abc"), first=0, measures=("attention",))
    cams = [metrics.grad_cam(Classifier(model), x, labels) for x in (inputs, result.adv_inputs)]
    expected = metrics.true_attention_similarity(*cams, result.logits, labels, reduction="none")
    np.testing.assert_allclose(table["ACAMC_T"].to_numpy(), expected.double(), rtol=1e-5)
    assert np.nanmax(table["ACAMC_A"].to_numpy()) <= 1 + 1e-6


def test_fewer_measures_fewer_columns(digits, images, tmp_path):
    config = Config(measures=("cost",), libraries=("foolbox",))
    plan = make_plan(config, models={"cnn": digits.classifier}, data=images)
    evaluate(plan, ResultsStore(tmp_path))
    assert measured_symbols(("cost",)) == ["QNC_F", "QNC_B"]
    assert "AED" not in load(tmp_path).columns


def test_the_gpu_and_its_rounding_are_known(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device.index or 0}")
    assert describe_gpu(torch.device("cpu")) == ""
    assert describe_gpu(torch.device("cuda", 1)) == "card 1 (convolutions of attacks in TF32, judged in float32)"
    asked = [({"bfloat16"}, " (attacks in bfloat16, judged in float32)"), ({"float32"}, "")]
    asked += [({"tf32"}, " (convolutions and matrix products of attacks in TF32, judged in float32)")]
    for precision, words in asked:
        assert describe_gpu(torch.device("cuda"), precision) == "card 0" + words
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert describe_gpu(torch.device("cuda")) == "card 0"


def test_the_gpu_stands_in_records_and_on_the_page(small_plan, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "describe_gpu", lambda device, asked: "some card")
    evaluate(replace(small_plan, cells=small_plan.cells[:1]), ResultsStore(tmp_path))
    ((_, record),) = ResultsStore(tmp_path).read_all("cells")
    assert record.meta["gpu"] == "some card"
    assert "some card" in build_report(tmp_path, bootstrap=0)
