"""What is sent and read: bytes, JSON, channels last, pixels as bytes, the JSON form; labels and probabilities."""

import pytest
import torch
from PIL import Image

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.models.remote.server_usage import total_usage
from davylamp.adapters.models.remote.transport import Transport
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import ModelFailed, Unsupported


@pytest.mark.parametrize(
    "settings",
    [{}, {"is_binary": False}, {"layout": "NHWC"}, {"layout": "NHWC", "is_binary": False}, {"batch": 8}, {"side": -1}],
    ids=str,
)
def test_logits_come_back_as_they_are_in_process(settings, digits, serve):
    server = serve(**settings)
    remote = load_model(server.url)
    expected = digits.module(digits.inputs[:5])
    torch.testing.assert_close(remote(digits.inputs[:5]), expected, rtol=0, atol=1e-5)
    assert remote.outputs == "logits"
    assert not remote.gradients
    assert remote.num_classes == 10
    sent = [count for _, count in server.requests]
    assert sent == ([8] if settings.get("batch") else [5])
    assert total_usage(remote).paid == sum(sent)  # also those that fill a request up


@pytest.mark.parametrize("query", ["", "?writing=lists", "?layout=NHWC"])
def test_the_small_json_form_asks_the_same(query, digits, serve):
    server = serve(layout="NHWC" if "NHWC" in query else "NCHW")
    remote = load_model(f"{server.json_url}{query}")
    torch.testing.assert_close(remote(digits.inputs[:3]), digits.module(digits.inputs[:3]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ["url", "json_url"])
def test_probabilities_are_seen_and_their_logarithm_is_attacked(form, digits, serve):
    remote = load_model(getattr(serve(kind="probabilities"), form))
    logits = remote(digits.inputs)
    assert remote.outputs == "probabilities"
    torch.testing.assert_close(logits, digits.module(digits.inputs).log_softmax(1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", ["url", "json_url"])
def test_labels_meet_decision_based_attacks_only(form, digits, serve):
    server = serve(kind="labels")
    remote = load_model(f"{getattr(server, form)}?classes=10")
    inputs, labels = digits.inputs[:2], digits.labels[:2]
    rules, parameters = ThreatModel("l2"), {"steps": 1, "initial_evaluations": 4, "max_evaluations": 8}
    result = run_attack("foolbox:hopskipjump", remote, inputs, labels, rules, **parameters)
    expected = run_attack(
        "foolbox:hopskipjump", Classifier(digits.module, outputs="labels"), inputs, labels, rules, **parameters
    )
    assert torch.equal(result.adv_inputs, expected.adv_inputs)
    with pytest.raises(Unsupported, match="needs scores, and the model"):
        run_attack("torchattacks:square", remote, inputs, labels, ThreatModel("linf", 0.1))


def test_an_attack_by_gradients_is_refused_before_it_runs(digits, serve):
    server = serve()
    remote = load_model(server.url)
    with pytest.raises(Unsupported, match="foolbox:pgd needs gradients, but the model returns none"):
        run_attack("foolbox:pgd", remote, digits.inputs[:2], digits.labels[:2], ThreatModel("linf", 0.1))
    assert server.images() <= 4


def test_a_server_of_bytes_gets_bytes_and_that_is_said(digits, serve):
    server = serve(datatype="UINT8")
    remote = load_model(server.url)
    rounded = (digits.inputs[:3] * 255).round() / 255
    torch.testing.assert_close(remote(digits.inputs[:3]), digits.module(rounded), rtol=0, atol=1e-5)
    assert remote.model.notes == ("the server takes bytes, so images are rounded to 8 bits when sent",)


def test_pixels_from_0_to_255_in_floating_point(digits, serve):
    server = serve()
    server.change = lambda images: images / 255
    remote = load_model(f"{server.url}?scale=255")
    torch.testing.assert_close(remote(digits.inputs[:3]), digits.module(digits.inputs[:3]), rtol=0, atol=1e-4)


def test_a_version_and_a_defence_belong_to_a_name(digits, serve):
    server = serve()
    plain = load_model(f"{server.url}/versions/3")
    defended = load_model(f"{server.url}+bit-depth:bits=1")
    assert torch.equal(plain(digits.inputs[:2]), digits.module(digits.inputs[:2]))
    assert torch.equal(defended(digits.inputs[:2]), digits.module((digits.inputs[:2]).round()))


def test_what_it_wants_of_an_image_may_stand_behind_its_name(digits, serve, tmp_path):
    server = serve()
    transport = Transport(answers=str(tmp_path / "answers.sqlite"))
    remote = load_model(f"{server.url}+input:mean=0.5,std=0.25+bit-depth:bits=1", transport=transport)
    wanted = digits.module((digits.inputs[:2].round() - 0.5) / 0.25)
    torch.testing.assert_close(remote(digits.inputs[:2]), wanted, rtol=0, atol=1e-4)
    paid = total_usage(remote).paid
    remote(digits.inputs[:2])
    assert total_usage(remote).paid == paid  # kept


@pytest.mark.parametrize(("side", "resize"), [(16, 16), (224, 256)])
def test_small_images_of_the_models_size_stay_as_they_are(side, resize, serve, tmp_path):
    """Those of CIFAR or MNIST would be enlarged and cropped: others than a model in process is shown."""
    remote = load_model(serve(side=side).url)
    assert (remote.resize, remote.crop) == (resize, side)
    noise = torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8)
    (tmp_path / "cat").mkdir()
    Image.fromarray(noise.numpy()).save(tmp_path / "cat" / "one.png")
    if side == 16:
        assert torch.equal(load_data_for(remote, f"imagefolder:{tmp_path}").inputs[0] * 255, noise.permute(2, 0, 1))


def test_several_labels_of_each_image_are_no_scores(serve):
    server = serve(faults=['{"labels": [[3, 5, 1]]}'] * 3)
    with pytest.raises(ModelFailed, match=r"several labels per image, shape \(1, 3\)"):
        load_model(server.json_url)(torch.rand(1, 3, 16, 16))
