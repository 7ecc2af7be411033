"""ONNX files: the same attacks as on the model that was exported, with gradients and as a black box; one line each for
what cannot be attacked."""

import pickle
import re
import shutil
import warnings
from importlib.util import find_spec

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.models.classifier import Classifier
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable

RULES = ThreatModel("linf", 0.1)
with_gradients = pytest.mark.skipif(find_spec("onnx2pytorch") is None, reason="onnx2pytorch needs Python 3.11")


def export(net, path, example, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's: the exporter that needs no further package is the older one
        torch.onnx.export(net, (example,), path, dynamo=False, input_names=["images"], **settings)
    return path


@pytest.fixture(scope="session")
def exported(digits, tmp_path_factory):
    """The digits' network as ONNX, for any number of images."""
    path = tmp_path_factory.mktemp("onnx") / "digits.onnx"
    return export(digits.module, path, digits.inputs[:1], dynamic_axes={"images": {0: "n"}})


@pytest.fixture(scope="session")
def opaque(exported):
    """The same with operations that only onnxruntime knows, as its own optimiser writes them."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(exported.with_name("opaque.onnx"))
    options.log_severity_level = 4
    onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    return exported.with_name("opaque.onnx")


def changed(path, target, change):
    proto = onnx.load(path)
    change(proto)
    onnx.save(proto, target)
    return f"onnx:{target}"


def attacked(classifier, case, attack, rules=RULES, **parameters):
    return run_attack(attack, classifier, case.inputs, case.labels, rules, seed=1, **parameters)


@with_gradients
def test_pgd_with_gradients_is_that_of_the_exported_model(digits, exported):
    classifier = load_model(f"onnx:{exported}")
    assert classifier.model.gradients
    assert (classifier.num_classes, classifier.crop, classifier.channels) == (10, 16, 3)
    ours, theirs = (
        attacked(model, digits, "foolbox:pgd", steps=10, random_start=True)
        for model in (classifier, Classifier(digits.module))
    )
    assert torch.allclose(ours.adv_inputs, theirs.adv_inputs, atol=1e-5)
    assert torch.equal(ours.success, theirs.success)
    assert theirs.success.any()
    assert torch.equal(ours.backwards, theirs.backwards)
    assert "gradients through onnx2pytorch" in classifier.loading_notes[0]


@with_gradients
def test_pgd_on_the_export_of_an_embedded_model_is_that_on_the_model(tmp_path):
    """Nothing of this model is folded when it is exported: the same operations, so the same signs of gradients."""
    model = load_model("demo:mnist-lenet5", fold=False)
    images, labels, _ = load_data_for(model, "demo:mnist")
    export(model.eval(), tmp_path / "lenet.onnx", images[:1], dynamic_axes={"images": {0: "n"}})
    theirs, ours = (
        run_attack("foolbox:pgd", each, images, labels, ThreatModel("linf", 0.2), seed=0)
        for each in (model, load_model(f"onnx:{tmp_path / 'lenet.onnx'}"))
    )
    assert torch.allclose(ours.adv_inputs, theirs.adv_inputs, atol=1e-5)
    assert torch.equal(ours.success, theirs.success)
    assert 10 <= theirs.success.sum() < 20


@pytest.mark.parametrize(
    ("attack", "rules"),
    [("torchattacks:square", RULES), ("davylamp:rays", ThreatModel("linf", 0.3))],
)
def test_a_black_box_attack_is_that_of_the_exported_model(digits, opaque, attack, rules):
    classifier = load_model(f"onnx:{opaque}")
    assert not classifier.model.gradients
    assert classifier.model.layers_note == "onnxruntime shows no layers"
    assert "a black box, run by onnxruntime" in classifier.loading_notes[0]
    models = (classifier, Classifier(digits.module))
    ours, theirs = (attacked(model, digits, attack, rules, max_queries=80) for model in models)
    assert torch.allclose(ours.adv_inputs, theirs.adv_inputs, atol=1e-5)
    assert torch.equal(ours.success, theirs.success)
    assert torch.equal(ours.forwards, theirs.forwards)
    assert theirs.success.any()


@with_gradients
def test_a_fixed_batch_is_filled_and_cut(digits, exported, opaque, tmp_path):
    def fix(proto):
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
        proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 3

    expected = digits.module(digits.inputs)
    for source, in_pieces in ((opaque, True), (exported, False)):
        classifier = load_model(changed(source, tmp_path / "three.onnx", fix))
        assert torch.allclose(classifier(digits.inputs), expected, atol=1e-5)
        # What was converted takes any number of them.
        assert any("takes 3 images at a time" in note for note in classifier.loading_notes) is in_pieces


def test_channels_last_and_8_bits(digits, exported, tmp_path):
    def change(proto):
        nodes, weights = proto.graph.node, proto.graph.initializer
        proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("bytes", TensorProto.UINT8, ["n", 16, 16, 3]))
        weights.append(numpy_helper.from_array(np.float32(255), "most"))
        before = [
            helper.make_node("Cast", ["bytes"], ["real"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["real", "most"], ["pixels"]),
            helper.make_node("Transpose", ["pixels"], ["images"], perm=[0, 3, 1, 2]),
        ]
        kept = list(nodes)
        del nodes[:]
        nodes.extend([*before, *kept])

    classifier = load_model(changed(exported, tmp_path / "bytes.onnx", change))
    assert not classifier.model.gradients
    assert (classifier.channels, classifier.crop) == (3, 16)
    expected = digits.module((digits.inputs * 255).round() / 255)
    assert torch.allclose(classifier(digits.inputs), expected, atol=1e-5)
    said = " ".join(classifier.loading_notes)
    assert "rounding to 8 bits blocks gradients" in said
    assert "takes its channels last" in said


def test_an_open_size_is_found_by_asking(digits, exported, tmp_path):
    def open_size(proto):
        for place in (2, 3):
            proto.graph.input[0].type.tensor_type.shape.dim[place].dim_param = f"side{place}"
        del proto.graph.value_info[:]

    classifier = load_model(changed(exported, tmp_path / "open.onnx", open_size))
    assert classifier.crop == 16  # the linear layer takes no other
    assert torch.allclose(classifier(digits.inputs), digits.module(digits.inputs), atol=1e-5)
    anything = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    axes = {"images": {0: "n", 2: "h", 3: "w"}}
    file = export(anything.eval(), tmp_path / "any.onnx", torch.rand(1, 1, 9, 9), dynamic_axes=axes)
    classifier = load_model(f"onnx:{file}")
    assert (classifier.crop, classifier.channels, classifier.num_classes) == (None, 1, 3)
    images = torch.rand(2, 1, 20, 24)
    assert torch.allclose(classifier(images), anything(images), atol=1e-5)


def test_of_several_outputs_the_logits_are_taken(digits, exported, tmp_path):
    def add(proto):
        first = proto.graph.node[0].output[0]
        proto.graph.output.insert(0, helper.make_tensor_value_info(first, TensorProto.FLOAT, ["n", 8, 8, 8]))

    classifier = load_model(changed(exported, tmp_path / "two.onnx", add))
    assert torch.allclose(classifier(digits.inputs), digits.module(digits.inputs), atol=1e-5)
    assert any("returns 2 outputs: took" in note for note in classifier.loading_notes)


def test_identity_is_the_file_and_how_it_is_run(exported, opaque, tmp_path):
    first, again = (identify_model(load_model(f"onnx:{exported}")) for _ in range(2))
    assert first == again
    assert first.reasons == ()
    shutil.copy(exported, tmp_path / "copy.onnx")
    assert identify_model(load_model(f"onnx:{tmp_path / 'copy.onnx'}")) == first
    black_box = identify_model(load_model(f"onnx:{opaque}"))
    assert black_box.reasons == ()
    assert black_box.digest != first.digest

    def touch(proto):
        raw = numpy_helper.to_array(proto.graph.initializer[0]).copy()
        raw.flat[0] += 1e-3
        proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(raw, proto.graph.initializer[0].name))

    assert identify_model(load_model(changed(exported, tmp_path / "other.onnx", touch))).digest != first.digest


def test_external_data_counts_and_is_missed(digits, exported, tmp_path):
    file = tmp_path / "outside.onnx"
    onnx.save(onnx.load(exported), file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    classifier = load_model(f"onnx:{file}")
    assert torch.allclose(classifier(digits.inputs), digits.module(digits.inputs), atol=1e-5)
    digest = identify_model(classifier).digest
    data = tmp_path / "weights.bin"
    raw = bytearray(data.read_bytes())
    raw[3] ^= 1
    data.write_bytes(raw)
    assert identify_model(load_model(f"onnx:{file}")).digest != digest
    data.unlink()
    with pytest.raises(Unavailable, match=r"could not read .*outside.onnx as ONNX \(.*weights.bin") as caught:
        load_model(f"onnx:{file}")
    assert "\n" not in str(caught.value)


def test_a_black_box_goes_to_another_process_and_knows_its_file(digits, opaque, tmp_path):
    copy = tmp_path / "copy.onnx"
    shutil.copy(opaque, copy)
    classifier = load_model(f"onnx:{copy}")
    sent = pickle.dumps(classifier.model)
    assert torch.equal(pickle.loads(sent)(digits.inputs), classifier.model(digits.inputs))
    shutil.copy(opaque.with_name("digits.onnx"), copy)
    with pytest.raises(Unavailable, match="has changed since it was loaded"):
        pickle.loads(sent)(digits.inputs)


def no_opset(proto):
    del proto.opset_import[:]


def two_inputs(proto):
    proto.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1]))


def eight_bit_integers(proto):
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8


def flat(proto):
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 784]))


def unknown_operation(proto):
    proto.graph.node[0].op_type = "Convolve"


def later_opset(proto):
    proto.opset_import[0].version = 999


def no_nodes(proto):
    del proto.graph.node[:]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (no_opset, InvalidInput, "does not state its opset"),
        (two_inputs, InvalidInput, "expected one input, the images, in .*, got 2: images, mask"),
        (eight_bit_integers, InvalidInput, "expected images of float32, uint8.* got int8; export it"),
        (flat, InvalidInput, r"expected an input of shape \(N, C, H, W\) .*, got \? x 784"),
        (unknown_operation, Unavailable, "onnxruntime cannot run .*Convolve"),
        (later_opset, Unavailable, "onnxruntime cannot run .*999"),
        (no_nodes, InvalidInput, "the ONNX model in .* has no nodes"),
    ],
)
def test_a_file_that_cannot_be_attacked_is_one_line(exported, tmp_path, change, error, words):
    with pytest.raises(error, match=words) as caught:
        load_model(changed(exported, tmp_path / "bad.onnx", change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"<html>no</html>", b"\x08\x07" * 20, None])
def test_what_is_no_onnx_file_is_one_line(tmp_path, content):
    file = tmp_path / "no.onnx"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises((Unavailable, InvalidInput), match=r"no\.onnx") as caught:
        load_model(f"onnx:{file}")
    assert "\n" not in str(caught.value)


def test_nan_is_said_before_anything_runs(digits, exported, tmp_path):
    def spoil(proto):
        weights = proto.graph.initializer[-1]
        raw = np.full_like(numpy_helper.to_array(weights), np.nan)
        weights.CopyFrom(numpy_helper.from_array(raw, weights.name))

    classifier = load_model(changed(exported, tmp_path / "nan.onnx", spoil))
    with pytest.raises(InvalidInput, match="expected finite logits, got NaN"):
        attacked(classifier, digits, "torchattacks:square", max_queries=5)


def test_a_missing_package_names_its_extra(exported, opaque, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx2pytorch", None)
    classifier = load_model(f"onnx:{exported}")
    assert not classifier.model.gradients
    assert 'pip install "davylamp[onnx]"' in classifier.loading_notes[0]
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(MissingLibrary, match=r"davylamp\[onnx\]"):
        load_model(f"onnx:{opaque}")


def test_images_of_another_size_are_one_line(exported, opaque):
    for file in (exported, opaque):
        with pytest.raises(ModelFailed, match="on images of shape") as caught:
            load_model(f"onnx:{file}")(torch.rand(2, 3, 20, 20))
        assert "\n" not in str(caught.value)


@with_gradients
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda answers: answers * 1.0001, "onnx2pytorch's outputs differ"),
        (lambda answers: answers.detach(), "it blocks gradients"),
        (lambda answers: answers.detach() + 0 * answers, "its gradients are all zero"),
        (lambda answers: answers[:, :9], r"returns \(6, 9\) instead of \(6, 10\)"),
        (lambda answers: answers.reshape(7, 7), "its conversion by onnx2pytorch fails"),
    ],
)
def test_a_wrong_conversion_is_not_taken(digits, exported, monkeypatch, spoil, reason):
    import onnx2pytorch

    class Spoilt(onnx2pytorch.ConvertModel):
        def forward(self, *inputs):
            return spoil(super().forward(*inputs))

    monkeypatch.setattr(onnx2pytorch, "ConvertModel", Spoilt)
    classifier = load_model(f"onnx:{exported}")
    assert not classifier.model.gradients
    assert re.search(reason, classifier.loading_notes[0])
    assert torch.allclose(classifier(digits.inputs), digits.module(digits.inputs), atol=1e-5)
