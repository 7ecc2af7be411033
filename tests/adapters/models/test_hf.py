"""Transformers' image classifiers from a folder: logits, sizes and names as its own processor and model have them."""

import json
import shutil
import warnings

import pytest
import torch
from PIL import Image

from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.zoo.hf import read_processor
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import InvalidInput, MissingLibrary, Unavailable, Unsupported

transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")
NAMES = {0: "cat", 1: "ant", 2: "bee"}
PROCESSOR = {
    "do_resize": True,
    "size": {"shortest_edge": 40},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 32, "width": 32},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.2, 0.3, 0.4],
    "image_processor_type": "ViTImageProcessor",
}


def save(model, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tiny ViT without training, as save_pretrained writes it."""
    settings = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(**settings, image_size=32, patch_size=8, id2label=NAMES)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.ViTForImageClassification(config).eval()
    folder = tmp_path_factory.mktemp("hub") / "vit"
    save(model, folder)
    return model, folder


def test_logits_are_those_of_the_model_on_normalised_pixels(saved):
    model, folder = saved
    state = torch.random.get_rng_state()
    classifier = load_model(f"hf:{folder}")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (classifier.resize, classifier.crop, classifier.interpolation) == (40, 32, "bicubic")
    assert (classifier.num_classes, classifier.class_names) == (3, ("cat", "ant", "bee"))
    images = torch.rand(2, 3, 32, 32)
    mean, std = (torch.tensor(PROCESSOR[f"image_{word}"]).view(3, 1, 1) for word in ("mean", "std"))
    with torch.no_grad():
        assert torch.allclose(classifier(images), model((images - mean) / std).logits, atol=1e-5)


def test_an_image_file_becomes_what_the_processor_makes_of_it(saved, tmp_path):
    folder = saved[1]
    noise = torch.randint(0, 256, (50, 70, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for name in NAMES.values():
        (tmp_path / name).mkdir()
        Image.fromarray(noise.numpy()).save(tmp_path / name / "one.png")
    classifier = load_model(f"hf:{folder}")
    data = load_data_for(classifier, f"imagefolder:{tmp_path}")
    assert dict(zip(data.names, data.labels.tolist(), strict=True)) == {
        "cat/one.png": 0,
        "ant/one.png": 1,
        "bee/one.png": 2,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.AutoImageProcessor.from_pretrained(folder)(
            Image.fromarray(noise.numpy()), return_tensors="pt"
        )
    ours = (data.inputs[0] - classifier.mean[0]) / classifier.std[0]
    assert (ours - theirs["pixel_values"][0]).abs().mean() < 0.02  # theirs may resize tensors, ours resizes with Pillow


def test_identity_does_not_hold_the_place(saved, tmp_path):
    _, folder = saved
    shutil.copytree(folder, tmp_path / "copy")
    first, copy = (identify_model(load_model(f"hf:{each}")) for each in (folder, tmp_path / "copy"))
    assert first == copy
    assert first.reasons == ()


def test_a_network_with_batch_normalisation_is_folded(tmp_path):
    settings = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**settings, num_labels=4)).eval()
    save(model, tmp_path / "net")
    plain, folded = (load_model(f"hf:{tmp_path / 'net'}", fold=fold) for fold in (False, True))
    images = torch.rand(2, 3, 32, 32)
    assert torch.allclose(plain(images), folded(images), atol=1e-4)
    assert plain.class_names == ()  # LABEL_0, ... name nothing
    assert any(isinstance(layer, torch.nn.BatchNorm2d) for layer in plain.modules())
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in folded.modules())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (40, 32, "bicubic")),
        ({"size": {"height": 32, "width": 32}, "do_center_crop": False, "resample": 2}, (32, 32, "bilinear")),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875, "do_center_crop": None}, (256, 224, "bicubic")),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875, "do_center_crop": None}, (384, 384, "bicubic")),
        ({"size": 48, "crop_size": 40}, (48, 40, "bicubic")),
        ({"do_resize": False}, (None, 32, "bicubic")),
        ({"resample": 1}, (40, 32, "bicubic")),
    ],
)
def test_sizes_of_processors(changes, expected):
    settings, notes = read_processor({**PROCESSOR, **changes}, None)
    assert (settings["resize"], settings["crop"], settings["interpolation"]) == expected
    squeezed = isinstance(changes.get("size"), dict) and (
        "height" in changes["size"] or changes["size"]["shortest_edge"] == 384
    )
    assert any("squeezes" in note for note in notes) is squeezed
    assert any("filter 1" in note for note in notes) is (changes.get("resample") == 1)


@pytest.mark.parametrize(
    ("changes", "model_input"),
    [
        ({}, lambda p: (p - 0.5) / 0.3),
        ({"do_normalize": False}, lambda p: p),
        ({"rescale_factor": 1 / 127.5, "rescale_offset": True, "do_normalize": False}, lambda p: 2 * p - 1),
        ({"do_rescale": False, "do_normalize": False}, lambda p: 255 * p),
        ({"rescale_factor": 1 / 127.5, "rescale_offset": True}, lambda p: (2 * p - 1 - 0.5) / 0.3),
    ],
)
def test_normalisation_of_processors(changes, model_input):
    given = {**PROCESSOR, "image_mean": [0.5] * 3, "image_std": [0.3] * 3, **changes}
    settings, _ = read_processor(given, None)
    mean, std = settings["mean"] or [0.0] * 3, settings["std"] or [1.0] * 3
    for pixel in (0.0, 0.3, 1.0):
        assert (pixel - mean[0]) / std[0] == pytest.approx(model_input(pixel))


def test_no_processor_is_said():
    settings, notes = read_processor(None, 32)
    assert settings == {"mean": None, "std": None, "resize": 32, "crop": 32}
    assert "no preprocessor_config.json" in notes[0]


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (
            lambda f: change_config(f, architectures=["ViTModel"]),
            Unsupported,
            "expected an image classifier as .*ViTModel",
        ),
        (
            lambda f: change_config(f, model_type="odd", auto_map={"AutoConfig": "odd.py"}),
            Unsupported,
            r"its own code \(trust_remote_code\)",
        ),
        (lambda f: change_config(f, num_hidden_layers=2), InvalidInput, "the weights of ViTFor.* are incomplete"),
        (lambda f: (f / "model.safetensors").unlink(), Unavailable, "could not load the weights of hf"),
        (lambda f: (f / "model.safetensors").write_bytes(b"none"), Unavailable, "could not load the weights of hf"),
        (lambda f: (f / "config.json").unlink(), Unavailable, "expected a folder written by save_pretrained"),
        (lambda f: (f / "config.json").write_text("{"), Unavailable, "could not read .*config.json"),
        (
            lambda f: (f / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 2, "width": 3}})),
            Unsupported,
            "only square images",
        ),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_one_line(saved, tmp_path, spoil, error, words):
    folder = tmp_path / "vit"
    shutil.copytree(saved[1], folder)
    spoil(folder)
    with pytest.raises(error, match=words) as caught:
        load_model(f"hf:{folder}")
    assert "\n" not in str(caught.value)


def test_without_a_network_one_line_says_what_to_fetch(tmp_path, monkeypatch):
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setattr("urllib.request._opener", None)
    with pytest.raises(
        Unavailable,
        match=r"fetch config.json, .* on a different machine, and name their "
        r"folder here",
    ) as caught:
        load_model("hf:nobody/such-model")
    assert "\n" not in str(caught.value)
    for name in ("hf:vit", "hf:a/b/c", "hf:/"):
        with pytest.raises((InvalidInput, Unavailable)):
            load_model(name)


def test_a_missing_package_names_its_extra(saved, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(MissingLibrary, match=r"davylamp\[hf\]"):
        load_model(f"hf:{saved[1]}")
