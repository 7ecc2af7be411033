"""Defences by name: each is its library's own code, gradients pass it as is said, and a mistake is one line."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import median_filter
from torch import nn

import davylamp
from davylamp.adapters import Classifier, defend
from davylamp.adapters.models.clamp import clamp_with_edge_gradient
from davylamp.adapters.models.defences.catalogue import DEFENCES, LEFT_OUT
from davylamp.adapters.models.defences.defend import Defended
from davylamp.adapters.models.defences.names import is_defence, parse_defence
from davylamp.adapters.models.defences.transforms import ArtTransform
from davylamp.adapters.models.ensemble import mean_logit_ensemble
from davylamp.adapters.models.identity.digest import identify_model
from davylamp.adapters.running.seeding import seeded
from davylamp.errors import InvalidInput, ModelFailed, UnknownName

# Those of images; for the ones that change the model see test_model_changes.py
OF_IMAGES = [name for name, row in DEFENCES.items() if not row.changes_weights and not row.takes]
EXACT = [name for name in OF_IMAGES if DEFENCES[name].gradients[0] == "exact"]
FACTORY = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
"""
DEFENCE_FILE = """
import torch
from torch import nn
from davylamp import Classifier

class Before(nn.Module):
    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, inputs):
        return self.model(self.change(inputs))

def grey_levels(model): return Before(model, lambda images: images * 255)
def centred(model): return Classifier(Before(model, lambda images: images - 0.5))
def mirrored(model): return Before(model, lambda images: images.flip(3))
def noisy(model): return Classifier(Before(model, lambda images: images + torch.randn_like(images)), random=True)
def three(model): return Classifier(nn.Sequential(model, nn.Linear(10, 3)), num_classes=3)
def fewer(model): return nn.Sequential(model, nn.Linear(10, 3))
def more(model): return Classifier(nn.Sequential(model, nn.Linear(10, 20)))
"""


@pytest.fixture(scope="module")
def images():
    """Smooth photos' like: shape (2, 3, 32, 48)."""
    noise = torch.rand(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))
    return nn.functional.interpolate(noise, size=(32, 48), mode="bilinear").clamp(0, 1)


class Pixels(nn.Module):
    """Logits that are the pixels: what a defence makes of an image can be read off."""

    def forward(self, inputs):
        return inputs.flatten(1)


def transformed(defence, images):
    return defend(Classifier(Pixels()), defence)(images).view_as(images)


def by_pillow(images, kind, convert, **options):
    """Compressed and read again by Pillow, after the conversion to 8 bits."""
    changed = []
    for image in convert(images.permute(0, 2, 3, 1).numpy() * np.float32(255)).astype("uint8"):
        file = io.BytesIO()
        Image.fromarray(image).save(file, kind, **options)
        changed.append(np.array(Image.open(file).convert("RGB")))
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2).float() / 255


def by_kornia_jpeg(images, quality):
    from kornia.enhance import jpeg_codec_differentiable

    return jpeg_codec_differentiable(images, torch.full((len(images),), float(quality)))


def blurred(images, window, sigma):
    """The convolution with a Gaussian's weights, edges reflected."""
    places = torch.arange(window) - window // 2
    weights = torch.exp(-(places**2) / (2 * sigma**2))
    kernel = torch.outer(weights, weights) / weights.sum() ** 2
    padded = nn.functional.pad(images, (window // 2,) * 4, mode="reflect")
    return nn.functional.conv2d(padded, kernel.expand(3, 1, -1, -1), groups=3)


TRUTHS = {
    "art:jpeg:quality=40": lambda x: by_pillow(x, "JPEG", np.trunc, quality=40),
    "pillow:jpeg:quality=40": lambda x: by_pillow(x, "JPEG", np.rint, quality=40),
    "kornia:jpeg:quality=40": lambda x: by_kornia_jpeg(x, 40),
    "pillow:webp:quality=60": lambda x: by_pillow(x, "WEBP", np.rint, quality=60),
    "art:bit-depth:bits=3": lambda x: (x * 7).round() / 7,
    "art:median:window=5": lambda x: torch.from_numpy(median_filter(x.numpy(), size=(1, 1, 5, 5), mode="reflect")),
    "kornia:median:window=5": lambda x: torch.from_numpy(median_filter(x.numpy(), size=(1, 1, 5, 5), mode="mirror")),
    "torchvision:blur:window=5,sigma=1.5": lambda x: blurred(x, 5, 1.5),
    "torchvision:rescale:scale=0.5": lambda x: nn.functional.interpolate(
        nn.functional.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
        scale_factor=2,
        mode="bilinear",
        antialias=True,
    ),
}


def by_art_tv(images):
    """Of each channel, what L-BFGS-B makes of ART's loss: the kept pixels are drawn with the channels last."""
    from art.defences.preprocessor import TotalVarMin

    made = TotalVarMin(prob=0.6, lamb=0.2, max_iter=3, clip_values=(0.0, 1.0))
    return torch.from_numpy(made(images.permute(0, 2, 3, 1).numpy())[0]).permute(0, 3, 1, 2)


# With every generator seeded alike; None: see the test of its name
DRAWN = {
    "torchvision:resize-pad:smallest=0.7": None,
    "torchvision:crop-rescale:scale=0.7": None,
    "torchvision:noise:sigma=0.2": lambda x: (x + 0.2 * torch.randn_like(x)).clamp(0, 1),
    "art:noise:sigma=0.2": lambda x: torch.from_numpy(np.random.normal(x.numpy(), 0.2)).float().clamp(0, 1),
    "art:tv-min:kept=0.6,weight=0.2,steps=3": by_art_tv,
    "davylamp:smoothing:sigma=0.2,draws=3": lambda x: (
        torch.stack([(x + 0.2 * torch.randn_like(x)).flatten(1).softmax(1) for _ in range(3)]).mean(0).log().view_as(x)
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_draws_is_the_librarys_seeded_alike(name, images):
    small = images[..., :16, :20].contiguous()
    with seeded(5):
        changed = transformed(name, small)
    assert defend(Classifier(Pixels()), name).random
    with seeded(6):
        assert not torch.equal(changed, transformed(name, small))
    with seeded(5):
        assert torch.equal(changed, transformed(name, small))
        if DRAWN[name] is not None:
            np.random.seed(5), torch.manual_seed(5)
            torch.testing.assert_close(changed, DRAWN[name](small), atol=2e-6, rtol=1e-5)
    if "smoothing" not in name:
        assert 0 <= changed.min() <= changed.max() <= 1
        assert transformed(name, small[:, :1]).shape == (2, 1, 16, 20)


def test_resize_pad_is_a_nearest_copy_somewhere_on_black():
    images = torch.rand(40, 3, 20, 24, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.1
    with seeded(0):
        changed = transformed("resize-pad:smallest=0.5", images)
    sizes, corners = set(), set()
    for image, made in zip(images, changed, strict=True):
        rows, columns = (made.amax((0, axis)).nonzero()[:, 0] for axis in (2, 1))
        size = len(rows), len(columns)
        part = made[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert torch.equal(part, nn.functional.interpolate(image[None], size, mode="nearest")[0])
        assert float(made.sum()) == pytest.approx(float(part.sum()))  # all else is black
        sizes.add(size)
        corners.add((int(rows[0]), int(columns[0])))
    assert min(sizes)[0] == 10
    assert max(sizes)[0] == 20
    assert len(corners) > 20


def test_crop_rescale_is_a_crop_made_larger():
    ramp = torch.arange(32.0).expand(1, 1, 32, 32) / 32
    with seeded(0):
        changed = [transformed("crop-rescale:scale=0.5", ramp) for _ in range(40)]
    starts = {round(float(made[0, 0, 0, 0]) * 32) for made in changed}
    assert starts == set(range(17))  # every place that there is
    for made in changed:
        assert float(made.amax() - made.amin()) * 32 == pytest.approx(15)


def test_a_chain_with_a_random_one_is_random(digits):
    assert not defend(digits.classifier, "jpeg").random
    assert defend(defend(digits.classifier, "noise"), "jpeg").random
    assert mean_logit_ensemble([digits.classifier, defend(digits.classifier, "noise")]).random


def test_every_defence_has_a_truth():
    assert {parse_defence(name).defence.full_name for name in {**TRUTHS, **DRAWN}} == {*OF_IMAGES}
    drawn = {name for name, row in DEFENCES.items() if row.random and not row.takes}  # see test_purify.py
    assert {parse_defence(name).defence.full_name for name in DRAWN} == drawn


@pytest.mark.parametrize("name", TRUTHS)
def test_the_images_are_those_of_the_library(name, images):
    changed = transformed(name, images)
    torch.testing.assert_close(changed, TRUTHS[name](images), atol=2e-6, rtol=0)
    assert not torch.equal(changed, images)
    assert 0 <= changed.min() <= changed.max() <= 1
    torch.testing.assert_close(transformed(name, images[1:]), changed[1:])  # one by one as together
    grey = transformed(name, images[:, :1])
    assert grey.shape == (2, 1, 32, 48)
    assert (grey - images[:, :1]).abs().mean() < 0.1


def test_kornias_jpeg_is_near_pillows_also_where_blocks_do_not_fit(images):
    odd = images[..., :27, :41]
    assert (transformed("kornia:jpeg", odd) - transformed("pillow:jpeg", odd)).abs().mean() < 0.02


def test_findings_are_so():
    white = torch.ones(1, 3, 8, 8)
    for name in ("art:median", "kornia:median", "blur", "rescale"):
        torch.testing.assert_close(transformed(name, white), white)  # nothing dark comes in from beyond the edge
    almost = white * 200.9 / 255
    levels = [
        float(transformed(name, almost).mean() * 255) for name in ("art:jpeg:quality=100", "pillow:jpeg:quality=100")
    ]
    assert levels == pytest.approx([200, 201], abs=0.01)  # cut off, rounded


@pytest.mark.parametrize("name", EXACT)
def test_exact_gradients_are_finite_differences(name):
    row = parse_defence(name)
    if row.defence.wraps:
        pytest.skip("its logits are compared with the formula, above")

    def transform(images):
        with seeded(1):
            return defend(Classifier(Pixels()), name).model.transform.double()(images)

    point = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(3), dtype=torch.double) * 0.8 + 0.1
    direction = torch.randn(point.shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    weights = torch.randn(point.shape, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    asked = point.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((weights * transform(asked)).sum(), asked)
    step = 1e-6
    ahead, behind = ((weights * transform(point + sign * step * direction)).sum() for sign in (1, -1))
    assert row.gradients == "exact"
    assert float((gradient * direction).sum()) == pytest.approx(float((ahead - behind) / (2 * step)), rel=1e-3)


@pytest.mark.parametrize("name", ["art:jpeg", "pillow:jpeg:gradients=straight-through", "bit-depth:bits=2"])
def test_straight_through_is_the_gradient_at_the_transformed_image(name, images, digits):
    defended, point = defend(digits.classifier, name), digits.inputs[:2].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(defended(point)[:, 3].sum(), point)
    moved = transformed(name, digits.inputs[:2]).requires_grad_()
    (expected,) = torch.autograd.grad(digits.classifier(moved)[:, 3].sum(), moved)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(defended(point), digits.classifier(moved))


def test_without_gradients_an_attack_is_told_so_and_is_not_robustness(digits):
    inputs, labels = digits.inputs[:6], digits.labels[:6]
    options = {"epsilon": 0.3, "steps": 5, "step_size": 0.15}
    masked = defend(digits.classifier, "bit-depth:bits=6,gradients=none")
    result = davylamp.run_attack("foolbox:pgd", masked, inputs, labels, **options)
    assert not result.success.any()
    assert all("no-gradient" in kinds for kinds in result.violations)
    passing = defend(digits.classifier, "bit-depth:bits=6")
    broken = davylamp.run_attack("foolbox:pgd", passing, inputs, labels, **options)
    assert broken.success.all()
    assert broken.forwards.tolist() == result.forwards.tolist()  # a pass is a pass through the original


def test_a_chain_is_from_left_to_right(images):
    both = defend(defend(Classifier(Pixels()), "bit-depth:bits=2"), "art:jpeg:quality=10")(images).view_as(images)
    inner = transformed("art:jpeg:quality=10", images)
    assert torch.equal(both, transformed("bit-depth:bits=2", inner))  # the last one is the first that an image meets
    assert not torch.equal(both, transformed("art:jpeg:quality=10", transformed("bit-depth:bits=2", images)))


def test_what_is_outside_of_the_box_or_no_number(images):
    far = images * 3 - 1
    torch.testing.assert_close(transformed("art:jpeg", far), transformed("art:jpeg", far.clamp(0, 1)))
    hole = images.clone()
    hole[0, 1, 2, 3] = torch.nan
    changed = transformed("pillow:jpeg", hole)
    assert changed.isnan().sum() == 1
    assert changed[0, 1, 2, 3].isnan()


def test_what_is_left_out_is_no_row():
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), num_classes=4)
    parts = [part for name in DEFENCES if name.startswith("art:") for part in defend(model, name).modules()]
    run = {type(part.preprocessor).__name__ for part in parts if isinstance(part, ArtTransform)}
    assert {"JpegCompression", "TotalVarMin"} <= run
    assert not run & {name for left in LEFT_OUT for name in left.partition(": ")[2].split(", ")}


class Levels(nn.Module):
    def forward(self, images):
        return 255 * images


@pytest.mark.parametrize(
    ("transform", "gradients", "said"),
    [
        (nn.AvgPool2d(2), "exact", "keep the shape of the images, but changed it from (1, 3, 8, 8) to"),
        (Levels(), "exact", "return images in [0, 1], got values from 0 to 255"),
        (Levels(), "straight-through", "return images in [0, 1], got values from 0 to 255"),
    ],
)
def test_a_transformation_that_changes_shape_or_range_is_named(transform, gradients, said):
    defended = Classifier(Defended(Classifier(Pixels()), transform, "art:mine", gradients))
    with pytest.raises(ModelFailed) as caught:
        defended(torch.eye(8).expand(1, 3, 8, 8))
    assert "art:mine" in str(caught.value)
    assert said in str(caught.value)


@pytest.fixture
def handed(tmp_path):
    """Models by the functions of a file, none of which says how many classes it has, before a linear model of ten."""
    (tmp_path / "net.py").write_text(FACTORY, encoding="utf-8")
    (tmp_path / "own.py").write_text(DEFENCE_FILE, encoding="utf-8")
    return lambda function: davylamp.load_model(f"{tmp_path}/net.py:build+{tmp_path}/own.py:{function}")


@pytest.mark.parametrize(("function", "got"), [("three", 3), ("fewer", 3), ("more", 20)])
def test_a_function_that_changes_the_number_of_classes_is_caught_at_its_first_answer(handed, function, got):
    with pytest.raises(InvalidInput, match=rf"own\.py:{function} returned {got} classes; .* 10"):
        handed(function).check(torch.rand(2, 3, 32, 32))


def test_a_function_that_says_another_number_of_classes_than_the_model_is_refused_before_it_is_asked(handed, tmp_path):
    (tmp_path / "ten.py").write_text(
        "import own\nfrom davylamp import Classifier\n"
        "def ten(model): return Classifier(model, num_classes=10)\ndef three(model): return own.three(model)\n"
    )
    with pytest.raises(InvalidInput, match=r"ten\.py:three returned 3 classes; .* 10"):
        davylamp.load_model(f"{tmp_path}/net.py:build+{tmp_path}/ten.py:ten+{tmp_path}/ten.py:three")


@pytest.mark.parametrize(("function", "reach"), [("grey_levels", "from 0 to 255"), ("centred", "from -0.5 to 0.5")])
def test_a_function_that_changes_the_range_is_named(handed, function, reach):
    model, images = handed(function), torch.linspace(0, 1, 3072).view(1, 3, 32, 32)
    digest = identify_model(model).digest
    for _ in range(2):  # said of every answer, though only the first is looked at
        model.check(images)
        assert model.output_note.endswith(
            f"own.py:{function} passes images to the model with values {reach}, outside [0, 1]: scale or clip them"
        )
    assert identify_model(model).digest == digest == identify_model(handed(function)).digest


@pytest.mark.parametrize(("function", "asked"), [("mirrored", 1), ("noisy", 1), ("mirrored", 2)])
def test_a_function_is_not_blamed_for_noise_nor_for_what_an_attack_asks_outside_the_range(handed, function, asked):
    model = handed(function)
    model(asked * torch.rand(2, 3, 32, 32))
    assert model.output_note == ""


def test_the_identity_has_the_parameters_and_hides_nothing(digits):
    names = ("jpeg", "art:jpeg:quality=50", "jpeg:quality=51", "jpeg:gradients=none", "pillow:jpeg")
    identities = [identify_model(defend(digits.classifier, name)) for name in names]
    assert all(identity.reasons == () for identity in identities)
    digests = [identity.digest for identity in identities]
    assert digests[0] == digests[1]
    assert len(set(digests)) == len(names) - 1
    for name in OF_IMAGES:
        assert identify_model(defend(digits.classifier, name)).reasons == ()


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("jpg", UnknownName, "unknown defence 'jpg'; did you mean jpeg"),
        ("foolbox:jpeg", UnknownName, "unknown defence 'foolbox:jpeg'"),
        ("jpeg:quality=0", InvalidInput, "expected quality from 1 to 100, got 0"),
        ("jpeg:quality=high", InvalidInput, "expected quality as a number or a fraction"),
        ("jpeg:bits=3", UnknownName, "unknown parameter of art:jpeg 'bits'; known: gradients, quality"),
        (
            "jpeg:gradients=exact",
            InvalidInput,
            "expected gradients as straight-through or none, got exact; art:jpeg has",
        ),
        ("blur:gradients=guess", InvalidInput, "expected gradients as exact or straight-through or none, got guess"),
        ("median:window=4", InvalidInput, "expected window as an odd number, got 4"),
        ("jpeg:quality=50,,", InvalidInput, ""),
        ("jpeg:50", InvalidInput, "expected jpeg:KEY=VALUE, got '50' without a value"),
        ("art:jpeg:quality", InvalidInput, "expected art:jpeg:KEY=VALUE, got 'quality' without a value"),
    ],
)
def test_a_mistake_is_one_line(text, error, said):
    if text == "jpeg:quality=50,,":  # empty settings are no settings
        assert parse_defence(text).parameters == {"quality": 50}
        return
    with pytest.raises(error) as caught:
        parse_defence(text)
    assert said in str(caught.value)


def test_models_by_name(tmp_path, images):
    file = tmp_path / "model.py"
    file.write_text(FACTORY, encoding="utf-8")
    name, inputs = f"{file}:build", images[..., :32]
    plain = davylamp.load_model(name)
    chained = davylamp.load_model(f"{name}+bit-depth:bits=2+art:jpeg:quality=20,gradients=none")
    by_hand = defend(defend(plain, "bit-depth:bits=2"), "art:jpeg:quality=20,gradients=none")
    assert torch.equal(chained(inputs), by_hand(inputs))
    assert chained.name == f"{name}+bit-depth:bits=2+art:jpeg:quality=20,gradients=none"
    for wrong in (f"{name}+jpg", "demo:efficientnet-lite0+jpg:quality=3"):
        with pytest.raises(UnknownName, match="unknown defence 'jpg"):
            davylamp.load_model(wrong)
    assert is_defence("art:jpeg:quality=3")
    assert not is_defence("art:pgd")


def test_the_commands(run, tmp_path):
    (tmp_path / "model.py").write_text(FACTORY, encoding="utf-8")
    code, out, _ = run("defences", "--json")
    assert (code, {row["defence"] for row in json.loads(out)["defences"]}) == (0, set(DEFENCES))
    code, out, _ = run("defences", "jpeg")
    assert code == 0
    assert "quality of the compression" in out
    assert "truncates pixels to 8 bits" in out
    code, _, err = run("defences", "jpg")
    assert (code, "did you mean jpeg" in err) == (1, True)
    code, out, err = run("defences")
    assert "not available: art: ThermometerEncoding: changes the number of channels" in out
    models = "model.py:build+jpeg:quality=30,gradients=none,model.py:build"
    attacks = ("--attacks", "foolbox:fgsm", "--epsilon", "0.01", "--data", "foolbox:cifar10", "--limit", "8")
    code, _, err = run("evaluate", "--models", models, "--defence", "bit-depth:bits=3", *attacks, "-o", "out")
    assert code == 0, err
    assert "+bit-depth:bits=3: gradients pass through art:bit-depth as if" in err
    assert "quality=30,gradients=none: art:jpeg blocks gradients" in err
    assert "build: gradients" not in err
    code, _, err = run("compare", "fgsm", "--model", "model.py:build+jpeg", "--library", "foolbox", *attacks[2:])
    assert "- gradients pass through art:jpeg as if it were the identity" in err
    code, out, _ = run("table", "out", "--by", "pairs", "--metric", "CA", "--json")
    names = {row["model"] for row in json.loads(out)["rows"]}
    plain, jpeg = "model.py:build", "model.py:build+jpeg:quality=30,gradients=none"
    assert names == {plain, jpeg, f"{plain}+bit-depth:bits=3", f"{jpeg}+bit-depth:bits=3"}


@pytest.mark.parametrize("name", [name for name in EXACT if not parse_defence(name).defence.wraps])
def test_black_and_white_pixels_have_gradients(name):
    """Of images that are black or white everywhere: torch's clamp has none there since 2.15."""
    for value in (0.0, 1.0) if name != "kornia:jpeg" else (0.0,):  # which saturates at white by a clip of its own
        point = torch.full((1, 3, 16, 16), value, requires_grad=True)
        with seeded(1):
            changed = defend(Classifier(Pixels()), name)(point)
        (gradient,) = torch.autograd.grad(changed.sum(), point)
        assert float((gradient != 0).double().mean()) > 0.4, (name, value)  # noise cuts off half of them


def test_the_box_is_clamp_with_gradients_on_its_edge():
    point = torch.tensor([-0.5, 0.0, 0.3, 1.0, 1.5], requires_grad=True)
    cut = clamp_with_edge_gradient(point)
    assert torch.equal(cut, point.clamp(0, 1))
    (gradient,) = torch.autograd.grad((cut * torch.arange(1.0, 6)).sum(), point)
    assert gradient.tolist() == [0, 2, 3, 4, 0]
