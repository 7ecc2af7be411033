"""Zero-shot models from a folder: logits as transformers computes them, and what identifies them."""

import json
import string
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.nn import functional

import davylamp
from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import InvalidInput, Unavailable, Unsupported

transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEMPLATES = ("a photo of the digit {}", "{} in ink")
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
LETTERS = string.ascii_lowercase + ".,"
VOCABULARY = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
SIDE = {"image_size": 16, "patch_size": 4}
PROCESSOR = {
    **{"do_resize": True, "size": {"shortest_edge": 16}, "resample": 3, "do_rescale": True, "rescale_factor": 1 / 255},
    **{"do_center_crop": True, "crop_size": {"height": 16, "width": 16}, "do_normalize": True},
    **{"image_mean": MEAN, "image_std": STD, "image_processor_type": "CLIPImageProcessor"},
}


def make(kind):
    """A tiny model without training."""
    text = {**TOWER, "vocab_size": len(VOCABULARY), "max_position_embeddings": 40}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        if kind == "clip":
            config = transformers.CLIPConfig(text_config=text, vision_config={**TOWER, **SIDE}, projection_dim=24)
            return transformers.CLIPModel(config).eval()
        config = transformers.SiglipConfig(text_config=text, vision_config={**TOWER, **SIDE})
        return transformers.SiglipModel(config).eval()


def save(model, folder):
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(VOCABULARY)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    (folder / "classes.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "templates.txt").write_text("\n".join(TEMPLATES) + "\n")


def tokens_of(texts):
    """Letters between a start and an end, padded by ends."""
    rows = []
    for text in texts:
        letters = [
            f"{a}</w>" if i == len(word) - 1 else a
            for word in text.replace(".", " .").split()
            for i, a in enumerate(word)
        ]
        rows.append([0, *(VOCABULARY.index(each) for each in letters), *[1] * (39 - len(letters))])
    return torch.tensor(rows)


@pytest.fixture(scope="module", params=["clip", "siglip"])
def saved(request, tmp_path_factory):
    model = make(request.param)
    folder = tmp_path_factory.mktemp("hub") / request.param
    save(model, folder)
    return model, folder


def test_one_template_gives_the_logits_of_transformers(saved):
    model, folder = saved
    classifier = load_model(f"clip:{folder}?prompts={folder}/classes.txt")
    images = torch.rand(5, 3, 16, 16)
    pixels = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        wanted = model(pixel_values=pixels, input_ids=tokens_of([f"a photo of a {word}." for word in WORDS]))
    torch.testing.assert_close(classifier.predict_logits(images), wanted.logits_per_image, rtol=1e-4, atol=1e-4)
    assert (classifier.class_names, classifier.num_classes) == (WORDS, 10)
    assert (classifier.resize, classifier.crop, classifier.interpolation) == (16, 16, "bicubic")
    assert any("zero-shot" in note for note in classifier.loading_notes)


def test_several_templates_are_averaged_after_normalisation(saved):
    """As in CLIP's notebook: the mean of unit vectors, made a unit vector again."""
    model, folder = saved
    loaded = load_model(f"clip:{folder}?prompts={folder}/classes.txt&templates={folder}/templates.txt")
    project = getattr(model, "text_projection", torch.nn.Identity())
    with torch.no_grad():
        each = [
            functional.normalize(project(model.text_model(input_ids=tokens_of([template.format(word)])).pooler_output))
            for word in WORDS
            for template in TEMPLATES
        ]
    wanted = functional.normalize(torch.stack(each).view(10, 2, -1).mean(1))
    torch.testing.assert_close(loaded.model.features, wanted)


def test_gradients_pass_through_the_image_tower(saved):
    _, folder = saved
    classifier = load_model(f"clip:{folder}?prompts={folder}/classes.txt")
    image = torch.rand(1, 3, 16, 16, dtype=torch.float32)
    image.requires_grad_()
    (slope,) = torch.autograd.grad(classifier(image)[0, 3], image)
    step = torch.randn_like(image)
    ends = classifier(torch.cat([image + 1e-2 * step, image - 1e-2 * step]).detach())[:, 3]
    assert float(slope.mul(step).sum()) == pytest.approx(float(ends[0] - ends[1]) / 2e-2, rel=0.05, abs=1e-3)


def test_prompts_templates_weights_and_tokens_are_its_identity_and_rounding_is_not(saved, tmp_path, monkeypatch):
    model, folder = saved
    name = f"clip:{folder}?prompts={folder}/classes.txt"
    digest = digest_model(load_model(name))
    assert digest_model(load_model(name)) == digest
    (tmp_path / "classes.txt").write_text("\n".join(("nought", *WORDS[1:])))
    (tmp_path / "same.txt").write_text("\n\n".join(WORDS))
    assert digest_model(load_model(f"clip:{folder}?prompts={tmp_path}/same.txt")) == digest
    assert digest_model(load_model(f"clip:{folder}?prompts={tmp_path}/classes.txt")) != digest
    assert digest_model(load_model(f"{name}&templates={folder}/templates.txt")) != digest
    for part in (model.text_model, model.vision_model):
        changed = make(model.config.model_type)
        changed.load_state_dict(model.state_dict())
        weights = next(changed.get_submodule(part_name(model, part)).parameters())
        weights.data[0] += 1e-3
        save(changed, tmp_path / part_name(model, part))
        assert (
            digest_model(load_model(f"clip:{tmp_path / part_name(model, part)}?prompts={tmp_path}/same.txt")) != digest
        )
    from davylamp.adapters.models.zoo import clip

    exact = clip._features
    monkeypatch.setattr(clip, "_features", lambda *given: exact(*given) * (1 + 1e-6))
    again = load_model(name)
    assert digest_model(again) == digest
    again.model.features[0] += 0.1  # a change after loading
    assert digest_model(again) != digest


def part_name(model, part):
    return next(name for name, module in model.named_modules() if module is part)


def test_folders_are_matched_with_the_prompts_by_name_and_never_by_their_order(saved, tmp_path):
    for word in ("two", "nine"):
        (tmp_path / word).mkdir()
        Image.new("RGB", (16, 16)).save(tmp_path / word / "a.png")
    classifier = load_model(f"clip:{saved[1]}?prompts={saved[1]}/classes.txt")
    data = load_data_for(classifier, f"imagefolder:{tmp_path}")
    assert dict(zip(data.names, data.labels.tolist(), strict=True)) == {"two/a.png": 2, "nine/a.png": 9}
    (tmp_path / "two").rename(tmp_path / "deux")
    with pytest.raises(InvalidInput, match="deux"):
        load_data_for(classifier, f"imagefolder:{tmp_path}")


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", InvalidInput),
        ("?prompts=classes.txt&template=x", InvalidInput),
        ("?prompts=one.txt", InvalidInput),
        ("?prompts=twice.txt", InvalidInput),
        ("?prompts=long.txt", InvalidInput),
        ("?prompts=unknown.txt", InvalidInput),
        ("?prompts=binary.txt", InvalidInput),
        ("?prompts=missing.txt", Unavailable),
        ("?prompts=classes.txt&templates=plain.txt", InvalidInput),
        ("?prompts=classes.txt&templates=format.txt", InvalidInput),
    ],
)
def test_wrong_names_and_files_are_refused(saved, query, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"classes": "a\nb", "one": "a", "twice": "a\nb\na", "long": f"a\n{'b' * 50}", "unknown": "7\n8"}
    for name, text in {**files, "plain": "a photo", "format": "a {} of {size}"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(error):
        load_model(f"clip:{saved[1]}{query}")


def test_other_models_and_a_missing_tokenizer_are_refused(saved, tmp_path):
    model, folder = saved
    prompts = f"prompts={folder}/classes.txt"
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(Unavailable, match="tokenizer"):
        load_model(f"clip:{tmp_path}/bare?{prompts}")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(Unsupported, match="vit"):
        load_model(f"clip:{tmp_path}?{prompts}")
    with pytest.raises(InvalidInput, match="clip:ORG/NAME"):
        load_model(f"clip:nothing?{prompts}")


def test_one_trained_on_digits_is_evaluated_like_any_other_model(tmp_path, run):
    model, data = make("clip"), load_digits()
    images = torch.tensor(data.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1)
    images = functional.interpolate(images, scale_factor=2)
    labels, tokens = torch.tensor(data.target), tokens_of([f"a photo of a {word}." for word in WORDS])
    pixels = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(25):
        for batch in torch.randperm(1400).split(100):
            optimiser.zero_grad()
            scores = model(pixel_values=pixels[batch], input_ids=tokens).logits_per_image
            functional.cross_entropy(scores, labels[batch]).backward()
            optimiser.step()
    save(model, tmp_path / "digits")
    with torch.no_grad():
        right = model(pixel_values=pixels[1400:], input_ids=tokens).logits_per_image.argmax(1) == labels[1400:]
    np.savez(tmp_path / "d.npz", inputs=images[1400:1440], labels=labels[1400:1440])
    name = "clip:./digits?prompts=digits/classes.txt"
    shared = ("--data", "npz:d.npz", "--norm", "linf", "--epsilon", "0.1", "--keep-images", "-o", "results")
    assert run("evaluate", "--models", name, "--attacks", "foolbox:pgd", *shared)[0] == 0
    frame = davylamp.load("results")
    assert frame["attacked"].sum() == int(right[:40].sum()) > 25
    assert frame["robust"].mean() < right[:40].float().mean()
    assert run("export", "results", "a.zip", "--verdict")[0] == 0
    assert run("verify", "a.zip", "--model", name, "--data", "npz:d.npz")[0] == 0
    code, _, err = run("evaluate", "--models", f"{name}+bit-depth:bits=4", "--attacks", "foolbox:fgsm", *shared)
    assert code == 0, err
