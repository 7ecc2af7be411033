"""Calls as a newcomer makes them: what davylamp takes as it is, and what the one line says where it cannot."""

import pytest
import torch

import davylamp
from davylamp.adapters import Classifier, ThreatModel
from davylamp.adapters import run_attack as run_row
from davylamp.errors import InvalidInput, ModelFailed, UnknownName


@pytest.fixture(scope="module")
def digits_cnn():
    data = davylamp.load_data("demo:digits", limit=24)
    return davylamp.load_model("demo:digits-cnn"), data.inputs, data.labels


@pytest.mark.parametrize("switched_off", [torch.no_grad, torch.inference_mode])
def test_a_caller_without_gradients_gets_the_same_result(digits_cnn, switched_off, tmp_path):
    model, images, labels = digits_cnn
    asked = {"norm": "linf", "epsilon": 0.1, "steps": 5}
    expected = davylamp.run_attack("foolbox:pgd", model, images, labels, **asked)
    stored = davylamp.evaluate(model, images, labels, attacks="foolbox:pgd", out=tmp_path / "on", **asked)
    with switched_off():
        result = davylamp.run_attack("foolbox:pgd", model, images + 0, labels + 0, **asked)
        again = davylamp.evaluate(model, images + 0, labels + 0, attacks="foolbox:pgd", out=tmp_path / "off", **asked)
        assert torch.is_grad_enabled() is False
    assert torch.equal(result.adv_inputs, expected.adv_inputs)
    success = stored.to_frame()["success"]
    assert success.any()
    assert success.equals(again.to_frame()["success"])


def test_a_class_for_each_image_is_its_target(digits_cnn):
    model, images, labels = digits_cnn
    wanted = (labels + 3) % 10
    aimed = ThreatModel("linf", 0.2, targeted=True)
    expected = run_row("foolbox:pgd", Classifier(model), images, labels, aimed, targets=wanted, steps=20)
    for given in (wanted, wanted.numpy(), wanted.tolist()):
        result = davylamp.run_attack("foolbox:pgd", model, images, labels, epsilon=0.2, target=given, steps=20)
        assert torch.equal(result.adv_inputs, expected.adv_inputs)
    assert result.success.any()
    assert (model(result.adv_inputs).argmax(1) == wanted)[result.success].all()


def test_channels_that_come_last_are_named(digits_cnn):
    model, images, labels = digits_cnn
    with pytest.raises(ModelFailed, match=r"permute\(0, 3, 1, 2\)"):
        davylamp.run_attack("foolbox:pgd", model, images.permute(0, 2, 3, 1), labels, epsilon=0.1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("apgd", "apgd-ce or apgd-dlr or apgd-margin"), ("Deep", "deepfool"), ("fgs", "fgsm")],
)
def test_a_name_that_is_incomplete_means_those_that_begin_with_it(name, meant):
    with pytest.raises(UnknownName, match=rf"did you mean {meant}\b"):
        davylamp.find_attack(name)


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (lambda images: images[:, 0], r"inputs\[:, None\]"),
        (lambda images: images[0], r"inputs\[None\]"),
        (lambda images: images * 16, "largest possible value"),
        (lambda images: images * 255, "8-bit images by 255"),
    ],
)
def test_images_of_another_form_are_told_what_to_do(digits_cnn, change, advice):
    model, images, labels = digits_cnn
    with pytest.raises(InvalidInput, match=advice):
        davylamp.robust_accuracy(model, change(images), labels, epsilon=0.1)


def test_the_text_of_a_check_has_failures_and_what_unknown_indicators_need(digits_cnn, tmp_path):
    model, images, labels = digits_cnn
    how = {"norm": "linf", "epsilon": 0.1, "steps": 2, "out": tmp_path / "r"}
    davylamp.evaluate(model, images, labels, attacks=["foolbox:pgd", "foolbox:fgsm"], **how)
    checked = davylamp.check(tmp_path / "r")
    table = checked.to_frame()
    assert set(table["state"]) >= {"unknown", "pass"}
    assert checked.short is not None
    rows, lines = checked.short
    assert {row["state"] for row in rows} <= {"fail", "warn"}
    assert len(rows) == int(table["state"].isin(["fail", "warn"]).sum())
    unknown = [line for line in lines if " unknown: " in line]
    assert sum(int(line.split()[0]) for line in unknown) == int((table["state"] == "unknown").sum())
    assert all(f"- {line}" in repr(checked).splitlines() for line in unknown)


def test_what_a_call_of_one_model_can_rank_is_named_as_a_call(digits_cnn, tmp_path):
    model, images, labels = digits_cnn
    attacks, how = ["foolbox:pgd", "foolbox:fgsm"], {"norm": "linf", "epsilon": 0.1}
    done = davylamp.evaluate(model, images, labels, attacks=attacks, out=tmp_path / "r", steps=2, **how)
    with pytest.raises(InvalidInput, match="got one: ") as error:
        done.rank()
    assert "`rank(subjects='attacks')`" in str(error.value)
    assert "--" not in str(error.value)
    assert len(done.rank(subjects="attacks").subjects) == 2


def test_what_a_library_does_not_have_is_named_with_what_there_is(digits_cnn):
    model, images, labels = digits_cnn
    with pytest.raises(UnknownName, match="pyautoattack:autoattack"):
        davylamp.run_attack("foolbox:autoattack", model, images, labels, epsilon=0.1)
    with pytest.raises(UnknownName, match="torchvision:resnet18"):
        davylamp.load_model("resnet18")
    with pytest.raises(UnknownName, match=r"model\.to\(device\)"):
        davylamp.run_attack("foolbox:pgd", model, images, labels, epsilon=0.1, device="cpu")


def test_targets_that_do_not_fit_the_images_or_come_twice_are_refused(digits_cnn):
    model, images, labels = digits_cnn
    with pytest.raises(InvalidInput, match=r"24 images.*\(2,\)"):
        davylamp.run_attack("foolbox:pgd", model, images, labels, epsilon=0.1, target=[1, 2])
    with pytest.raises(InvalidInput, match="`target` and `targets`"):
        davylamp.run_attack("foolbox:pgd", model, images, labels, epsilon=0.1, target="random", targets=labels)
    plain = davylamp.run_attack("foolbox:fgsm", model, images, labels, epsilon=0.1, targets=None)
    assert plain.threat_model.targeted is False


def test_adapters_alone_compute_gradients_for_a_caller_that_has_none(digits_cnn):
    model, images, labels = digits_cnn
    expected = run_row("foolbox:fgsm", Classifier(model), images, labels, ThreatModel("linf", 0.1))
    with torch.inference_mode():
        result = run_row("foolbox:fgsm", Classifier(model), images + 0, labels + 0, ThreatModel("linf", 0.1))
    assert torch.equal(result.adv_inputs, expected.adv_inputs)
