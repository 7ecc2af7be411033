"""Zero-shot models in open_clip's files: logits and preprocessing as open_clip computes them."""

import functools
import json
import logging
import sys
from copy import deepcopy

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from davylamp.adapters.data.datasets import load_data_for
from davylamp.adapters.models.identity.digest import digest_model
from davylamp.adapters.models.zoo.load import load_model
from davylamp.errors import InvalidInput, MissingLibrary, Unavailable, Unsupported

from .test_clip import VOCABULARY

WORDS, TEMPLATES = ("zero", "one", "two"), ("a photo of the digit {}", "{} in ink.")
TOWER = {"image_size": 16, "patch_size": 4, "width": 32, "layers": 1, "head_width": 16}
TEXT = {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
LETTERS = {**TEXT, "vocab_size": len(VOCABULARY), "hf_tokenizer_name": "made/here"}
SIGLIP = {"no_causal_mask": True, "pool_type": "last", "proj_type": "none", "context_length": 32}
CONFIGS = {
    "clip": {"vision_cfg": TOWER, "text_cfg": TEXT, "quick_gelu": True},
    "siglip": {
        "vision_cfg": {
            **{"image_size": 16, "timm_model_name": "test_resnet", "timm_model_pretrained": True},
            **{"timm_pool": "avg", "timm_proj": "linear"},
        },
        "text_cfg": {**LETTERS, **SIGLIP, "width": 24},
        "init_logit_bias": -10,
        "custom_text": True,
    },
    "coca": {
        "vision_cfg": {**TOWER, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {**TEXT, "attn_pooler_heads": 2},
        "custom_text": True,
    },
}
PREPROCESSING = {
    **{"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "interpolation": "bicubic", "resize_mode": "shortest"},
}


@functools.cache  # CoCa leaves some weights as they were in memory
def make(kind):
    """A tiny model without training."""
    config = json.loads(json.dumps({"embed_dim": 24, **CONFIGS[kind]}))
    config["vision_cfg"].pop("timm_model_pretrained", None)
    made = {"clip": open_clip.CLIP, "siglip": open_clip.CustomTextCLIP, "coca": open_clip.CoCa}[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return made(**{key: value for key, value in config.items() if key != "custom_text"}).eval()


def save(model, folder, kind, **preprocessing):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {key: value.contiguous() for key, value in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )
    config = {"embed_dim": 24, **CONFIGS[kind]}
    document = {"model_cfg": config, "preprocess_cfg": {**PREPROCESSING, **preprocessing}}
    (folder / "open_clip_config.json").write_text(json.dumps(document))
    (folder / "config.json").write_text(json.dumps({"architecture": "vit_base_patch32_clip_224"}))  # timm's, beside it
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(VOCABULARY)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CLIPTokenizer"}))
    (folder / "classes.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "templates.txt").write_text("\n".join(TEMPLATES) + "\n")


@pytest.fixture(scope="module", params=list(CONFIGS))
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("open") / request.param
    save(make(request.param), path, request.param)
    return path


def test_logits_are_those_of_open_clip(folder):
    loaded = load_model(f"clip:{folder}?prompts={folder}/classes.txt&templates={folder}/templates.txt")
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    pictures = [
        Image.fromarray(pixels) for pixels in np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), np.uint8)
    ]
    with torch.no_grad():
        images = model.eval().encode_image(torch.stack([transform(each) for each in pictures]), normalize=True)
        classes = []
        for word in WORDS:
            each = model.encode_text(tokenizer([template.format(word) for template in TEMPLATES]), normalize=True)
            classes.append(each.mean(0) / each.mean(0).norm())
        wanted = model.logit_scale.exp() * images @ torch.stack(classes).T
        wanted = wanted if getattr(model, "logit_bias", None) is None else wanted + model.logit_bias
    pixels = torch.stack([torch.tensor(np.asarray(each)).permute(2, 0, 1) / 255 for each in pictures])
    assert wanted.std(0).min() > 1e-3
    torch.testing.assert_close(loaded.predict_logits(pixels), wanted, rtol=1e-4, atol=1e-4)
    assert (loaded.class_names, loaded.num_classes) == (WORDS, 3)


def test_image_files_are_resized_as_open_clip_does(folder, tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (23, 37, 3), np.uint8)
    (tmp_path / "one").mkdir()
    Image.fromarray(picture).save(tmp_path / "one" / "a.png")
    loaded = load_model(f"clip:{folder}?prompts={folder}/classes.txt")
    read = load_data_for(loaded, f"imagefolder:{tmp_path}")
    wanted = open_clip.create_model_and_transforms(f"local-dir:{folder}")[2](Image.fromarray(picture))
    mean, std = (torch.tensor(PREPROCESSING[word]).view(3, 1, 1) for word in ("mean", "std"))
    torch.testing.assert_close((read.inputs[0] - mean) / std, wanted)
    assert read.labels.tolist() == [1]


def test_gradients_pass_through_the_image_tower(folder):
    classifier = load_model(f"clip:{folder}?prompts={folder}/classes.txt")
    image = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (slope,) = torch.autograd.grad(classifier(image)[0, 2], image)
    step = slope.detach() / slope.norm()
    ends = classifier(torch.cat([image + 1e-2 * step, image - 1e-2 * step]).detach())[:, 2]
    assert float(slope.norm()) == pytest.approx(float(ends[0] - ends[1]) / 2e-2, rel=0.05)


def test_its_identity_is_its_files_and_prompts(folder, tmp_path):
    kind = folder.name
    name = f"?prompts={folder}/classes.txt"
    digest = digest_model(load_model(f"clip:{folder}{name}"))
    save(make(kind), tmp_path / "same", kind)
    assert digest_model(load_model(f"clip:{tmp_path}/same{name}")) == digest
    assert digest_model(load_model(f"clip:{folder}{name}&templates={folder}/templates.txt")) != digest
    for word in ("visual", "token_embedding", "logit_scale"):
        changed = deepcopy(make(kind))
        next(value for key, value in changed.named_parameters() if word in key).data += 1e-3
        save(changed, tmp_path / word, kind)
        assert digest_model(load_model(f"clip:{tmp_path / word}{name}")) != digest
    save(make(kind), tmp_path / "mean", kind, mean=[0.1, 0.2, 0.3])
    assert digest_model(load_model(f"clip:{tmp_path}/mean{name}")) != digest


def test_loading_changes_neither_logging_nor_random_numbers(folder, capsys, monkeypatch):
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    before = torch.random.get_rng_state()
    load_model(f"clip:{folder}?prompts={folder}/classes.txt")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert root.handlers == []
    assert capsys.readouterr() == ("", "")


def test_prompts_that_open_clip_would_truncate_are_refused(folder, tmp_path):
    longest = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]["text_cfg"]["context_length"]
    letters = "a" if folder.name == "siglip" else "7"  # each is one token, in open_clip's own tokenizer too
    for count, fits in ((longest - 2, True), (longest - 1, False), (longest + 9, False)):
        (tmp_path / "p.txt").write_text(f"a\n{' '.join(letters * count)}")
        (tmp_path / "t.txt").write_text("{}")
        name = f"clip:{folder}?prompts={tmp_path}/p.txt&templates={tmp_path}/t.txt"
        if fits:
            assert load_model(name).num_classes == 2
        else:
            with pytest.raises(InvalidInput, match=str(longest)):
                load_model(name)


def test_damaged_and_foreign_files_are_refused(tmp_path, monkeypatch):
    save(make("clip"), tmp_path / "a", "clip")
    prompts = f"?prompts={tmp_path}/a/classes.txt"
    (tmp_path / "a" / "open_clip_model.safetensors").write_bytes(b"none")
    with pytest.raises(Unavailable):
        load_model(f"clip:{tmp_path}/a{prompts}")
    (tmp_path / "a" / "open_clip_model.safetensors").unlink()
    with pytest.raises(Unavailable):
        load_model(f"clip:{tmp_path}/a{prompts}")
    save(make("siglip"), tmp_path / "b", "clip")  # the weights of another model
    with pytest.raises(Unavailable):
        load_model(f"clip:{tmp_path}/b{prompts}")
    (tmp_path / "b" / "open_clip_config.json").write_text("{}")
    with pytest.raises((Unavailable, InvalidInput)):
        load_model(f"clip:{tmp_path}/b{prompts}")
    (tmp_path / "b" / "open_clip_config.json").unlink()
    with pytest.raises(Unsupported):
        load_model(f"clip:{tmp_path}/b{prompts}")
    save(make("clip"), tmp_path / "c", "clip", resize_mode="squash")
    assert any("squeezes" in note for note in load_model(f"clip:{tmp_path}/c{prompts}").loading_notes)
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(MissingLibrary, match=r"davylamp\[hf\]"):
        load_model(f"clip:{tmp_path}/c{prompts}")


def test_a_repository_in_the_cache_of_the_hub_is_found(folder, tmp_path, monkeypatch):
    """Only open_clip's files are there; the configuration of timm beside them is not one of transformers."""
    import huggingface_hub

    monkeypatch.setattr(
        huggingface_hub,
        "try_to_load_from_cache",
        lambda _, file, revision: str(folder / file) if (folder / file).is_file() else None,
    )
    name = f"?prompts={folder}/classes.txt"
    digest = digest_model(load_model(f"clip:{folder}{name}"))
    assert digest_model(load_model(f"clip:made/here{name}")) == digest
