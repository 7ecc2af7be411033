"""Purifiers by name: closed forms, and the steps of diffusers' own scheduler."""

import sys
import warnings

import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, defend
from davylamp.adapters.models.defences.names import is_defence, parse_defence, write_defence
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.models.sandbox.isolation import foreign_files
from davylamp.adapters.running.seeding import seeded
from davylamp.errors import InvalidInput, MissingLibrary, ModelFailed, Unavailable, UnknownName, Unsupported

FILE = """
import torch
from torch import nn

class Shrink(nn.Module):
    def __init__(self, factor=0.75):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))
        self.calls = []

    def forward(self, images, level):
        from beside import bent
        self.calls.append(level)
        return bent(self.factor * images)

def make(): return Shrink()
def weaker(): return Shrink(0.7)
def nothing(): return None
class Wide(nn.Module):
    def forward(self, images, level): return images.repeat(1, 1, 2, 2)
wide = Wide()
"""


class Pixels(nn.Module):
    """Logits that are the pixels."""

    def forward(self, inputs):
        return inputs.flatten(1)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside.py").write_text("def bent(x):\n    return x\n")
    (tmp_path / "den.py").write_text(FILE)
    return tmp_path / "den.py"


@pytest.fixture
def images():
    return 0.3 + 0.4 * torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def noise_like(images, seed=3):
    with seeded(seed):
        return torch.randn_like(images)


def test_a_linear_denoiser_has_a_closed_form(file, images):
    """With D(x) = c x, a step from level s to s' multiplies x by c + (1 - c) s' / s."""
    model = defend(Classifier(Pixels()), f"purify:{file}:make:noise=0.2,steps=4")
    with seeded(3):
        got = model(images).view_as(images)
    factor = 0.75
    for step in (3 / 4, 2 / 3, 1 / 2):
        factor *= 0.75 + 0.25 * step
    torch.testing.assert_close(got, (factor * (images + 0.2 * noise_like(images))).clamp(0, 1))
    assert model.random
    assert model.model.transform.denoiser.calls == pytest.approx([0.2, 0.15, 0.1, 0.05])


def test_gradients_are_exact_straight_through_or_none(file, images):
    weights = torch.rand(images[0].numel(), generator=torch.Generator().manual_seed(1))
    factor = 0.75 * (0.75 + 0.25 / 2)
    for way, wanted in (("exact", factor), ("straight-through", 1.0), ("none", 0.0)):
        model = defend(Classifier(Pixels()), f"purify:{file}:make:noise=0.01,steps=2,gradients={way}")
        point = images.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((model(point) @ weights).sum(), point)
        torch.testing.assert_close(gradient, wanted * weights.view_as(images[0]).expand_as(images))
        calls = len(model.model.transform.denoiser.calls)
        assert calls == (4 if way == "exact" else 2)  # each step is computed again in the backward pass


def test_its_parameters_weights_and_file_are_its_identity(file):
    base = "demo:digits-cnn+purify:"
    names = [f"{base}{file}:{each}" for each in ("make", "weaker", "make:steps=2", "make:noise=0.3")]
    identities = [identify_model(davylamp.load_model(name), name) for name in [*names, "demo:digits-cnn"]]
    assert all(identity.reasons == () for identity in identities)
    assert len({identity.digest for identity in identities}) == 5
    assert identify_model(davylamp.load_model(names[0]), names[0]) == identities[0]
    full = f"demo:digits-cnn+davylamp:purify:{file}:make:noise=0.1,t=0,steps=4,gradients=exact"
    assert identify_model(davylamp.load_model(full), full).digest == identities[0].digest
    (file.parent / "beside.py").write_text("def bent(x):\n    return x * 1\n")
    assert identify_model(davylamp.load_model(names[0]), names[0]).digest != identities[0].digest
    assert foreign_files(names[2]) == [file]


def test_names_are_read_as_they_are_written():
    for text in ("purify:a/den.py:make", "davylamp:purify:den.py:make:steps=2,gradients=none", "purify:./ddpm:t=80"):
        assert is_defence(text)
        assert parse_defence(write_defence(parse_defence(text))) == parse_defence(text)
    assert parse_defence("purify:a/den.py:make").parameters["member"] == "a/den.py:make"
    for wrong in ("purify", "purify:", "purify:steps=2", "purify:d.py:make:steps=0", "purify:d.py:make:noise=0"):
        with pytest.raises(InvalidInput):
            parse_defence(wrong)
    with pytest.raises(UnknownName):
        parse_defence("purify:d.py:make:step=2")


def test_mistakes_in_files_and_folders_are_refused(file, images, monkeypatch):
    plain = Classifier(Pixels())
    for text, error in (
        (f"{file}:make:t=3", InvalidInput),
        (f"{file}:nothing", InvalidInput),
        (f"{file}:absent", UnknownName),
        (f"{file}", Unavailable),
        (f"{file.parent}/none.py:make", Unavailable),
        (f"{file.parent}/none", Unavailable),
        (f"{file.parent}", Unavailable),  # a folder without a model
    ):
        with pytest.raises(error):
            defend(plain, f"purify:{text}")
    with pytest.raises(ModelFailed, match="16, 16"):
        defend(plain, f"purify:{file}:wide")(images)
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingLibrary, match=r"davylamp\[hf\]"):
        defend(plain, f"purify:{file.parent}")


def unet(**settings):
    from diffusers import UNet2DModel

    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        made = UNet2DModel(
            sample_size=8,
            block_out_channels=(8,),
            down_block_types=("DownBlock2D",),
            up_block_types=("UpBlock2D",),
            norm_num_groups=4,
            layers_per_block=1,
            **settings,
        )
        return made.eval()


@pytest.mark.parametrize("kind", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("out_channels", [3, 6])  # six: with a learned variance
def test_the_steps_of_diffusers_own_scheduler(kind, out_channels, images, tmp_path):
    from diffusers import DDIMScheduler, DDPMScheduler

    network, config = unet(out_channels=out_channels), {"prediction_type": kind, "beta_schedule": "squaredcos_cap_v2"}
    apart = kind == "sample"  # both in one folder, as in older repositories
    network.save_pretrained(tmp_path if apart else tmp_path / "unet")
    DDPMScheduler(**config).save_pretrained(tmp_path if apart else tmp_path / "scheduler")
    model = defend(Classifier(Pixels()), f"purify:{tmp_path}:t=80,steps=4")
    ddim = DDIMScheduler(**config, clip_sample=False)
    ddim.set_timesteps(50)  # steps of 20
    noise = noise_like(images)
    given, x = images.clone().requires_grad_(), None
    x = ddim.add_noise(2 * given - 1, noise, torch.tensor([80]))
    for t in (80, 60, 40, 20):
        stepped = ddim.step(network(x, t).sample[:, :3], t, x)
        x = stepped.prev_sample
    wanted = ((stepped.pred_original_sample + 1) / 2).clamp(0, 1)
    point = images.clone().requires_grad_()
    with seeded(3):
        got = model(point).view_as(images)
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
    weights = torch.rand_like(got)
    ours, theirs = (torch.autograd.grad((x * weights).sum(), at)[0] for x, at in ((got, point), (wanted, given)))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    level = float((1 / ddim.alphas_cumprod[80] - 1).sqrt() / 2)
    near = defend(Classifier(Pixels()), f"purify:{tmp_path}:noise={level * 1.001},steps=4")
    assert near.model.transform.levels == model.model.transform.levels


def test_diffusers_models_that_cannot_purify_are_refused(tmp_path):
    from diffusers import DDPMScheduler

    unet(num_class_embeds=3).save_pretrained(tmp_path / "unet")
    DDPMScheduler().save_pretrained(tmp_path / "scheduler")
    with pytest.raises(Unsupported):
        defend(Classifier(Pixels()), f"purify:{tmp_path}")
    unet().save_pretrained(tmp_path / "unet")
    for settings in ("t=1000", "t=3,steps=4"):
        with pytest.raises(InvalidInput):
            defend(Classifier(Pixels()), f"purify:{tmp_path}:{settings}")
    (tmp_path / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(b"none")
    with pytest.raises(Unavailable):
        defend(Classifier(Pixels()), f"purify:{tmp_path}")
