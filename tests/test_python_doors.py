"""What a script gives the verbs: read where one meaning is clear, one line where it is not, and what they say back."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, ThreatModel
from davylamp.errors import DavylampError, InvalidInput, UnknownName, WrongType
from davylamp.report.page.build import build_report

SEVEN = 7
BAD = (
    *(None, "8/255", "zzz", b"x", [], [0.1, 0.2], ["a"], {"a": 1}, object(), lambda images: images),
    *(math.nan, math.inf, -1, SEVEN, 1.5, True, torch.tensor([1.0, 2.0])),
)
VERBS = {
    "run_attack": (
        *("attack", "model", "inputs", "labels", "threat_model", "norm", "epsilon", "target", "surrogate", "steps"),
        *(
            "step_size",
            "seed",
            "judge_samples",
            "eot",
            "fitted",
            "first",
            "attacked",
            "logits",
            "spent",
            "targets",
            "radii",
        ),
    ),
    "compare": (
        *("attack", "model", "inputs", "labels", "threat_model", "norm", "epsilon", "target", "libraries", "also"),
        *("steps", "seed", "judge_samples", "eot"),
    ),
    "evaluate": (
        *("models", "inputs", "labels", "attacks", "norm", "epsilon", "target", "parameters", "names", "workers"),
        *("part", "surrogate", "limit", "seeds", "libraries", "measures", "fit_data", "device", "steps", "out"),
    ),
}
MODEL = ("model", "num_classes", "mean", "std", "device", "resize", "crop", "interpolation", "outputs")


@pytest.fixture(scope="module")
def small():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net, images = nn.Sequential(nn.Flatten(), nn.Linear(48, 5)), torch.rand(4, 3, 4, 4)
    return net, images, net(images).argmax(1)


def given(verb, small, tmp_path):
    """Keywords with which the verb works."""
    shared = {"inputs": small[1], "labels": small[2], "epsilon": 0.1}
    if verb == "evaluate":
        return {**shared, "models": small[0], "attacks": "foolbox:fgsm", "out": tmp_path / "out"}
    only = {"libraries": ["foolbox"]} if verb == "compare" else {}
    return {**shared, **only, "attack": "foolbox:pgd", "model": small[0], "steps": 1}


def complaint(call):
    """The text of davylamp's own error, if there is one; any other goes through."""
    try:
        call()
    except DavylampError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("verb", "argument"), [(verb, name) for verb, names in VERBS.items() for name in names])
def test_whatever_an_argument_is_given_the_verb_works_or_says_in_a_line_what_it_expected(
    verb, argument, small, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for value in BAD:
        if argument == "workers" and value is SEVEN:  # which are started
            continue
        keywords = {**given(verb, small, tmp_path), argument: value}
        if argument == "threat_model":
            del keywords["epsilon"]
        assert "\n" not in complaint(lambda keywords=keywords: getattr(davylamp, verb)(**keywords)), value


@pytest.mark.parametrize("argument", MODEL)
def test_so_does_a_classifier(argument, small):
    for value in BAD:
        keywords = {"model": small[0], "device": "cpu", argument: value}
        if argument in ("mean", "std"):
            keywords = {"mean": [0.5] * 3, "std": [0.5] * 3, **keywords}
        complaint(
            lambda keywords=keywords: davylamp.run_attack(
                "foolbox:fgsm", Classifier(**keywords), *small[1:], epsilon=0.1
            )
        )


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"labels": None}, r"labels as class indices, a tensor or an array of shape \(4,\), got None"),
        ({"labels": ["cat"] * 4}, "labels as class indices, .*, got 'cat'"),
        ({"norm": math.inf}, "a norm of linf, .*, got inf; did you mean 'linf'"),
        ({"norm": 2}, "got 2; did you mean 'l2'"),
        ({"epsilon": [0.1, 0.2]}, "epsilon as a number or a fraction such as '8/255', got list; .*evaluate"),
        ({"epsilon": None, "threat_model": 0.1}, "a ThreatModel, or norm and epsilon by keyword, got 0.1"),
        ({"model": None}, r"a model as a torch\.nn\.Module, got NoneType"),
        ({"model": lambda images: images}, r"a model as a torch\.nn\.Module, got function"),
        ({"model": "demo:mnist-lenet5"}, "got str; load_model loads one by name"),
        ({"seed": None}, r"a seed from 0 to 2\*\*32 - 1, got None"),
    ],
)
@pytest.mark.parametrize("verb", ["run_attack", "compare"])
def test_a_wrong_type_is_an_error_of_davylamp_and_python(verb, keywords, words, small, tmp_path):
    if verb == "compare" and isinstance(keywords.get("model"), str):
        pytest.skip("compare loads a model by its name")
    with pytest.raises(WrongType, match=words) as caught:
        getattr(davylamp, verb)(**{**given(verb, small, tmp_path), **keywords})
    assert isinstance(caught.value, (InvalidInput, TypeError, ValueError))


def test_a_classifier_names_what_is_wrong(small):
    for keywords, kind, words in (
        ({"mean": 0.5, "std": 0.5}, WrongType, "mean as a list of one number for each channel, got 0.5"),
        ({"mean": [0.5] * 3, "std": [0.5] * 2}, InvalidInput, "number of channels, got 3 and 2"),
        ({"mean": [math.nan], "std": [1.0]}, InvalidInput, "finite, got"),
        ({"num_classes": "ten"}, WrongType, "num_classes as a whole number from 1, got 'ten'"),
        ({"device": "gpu"}, DavylampError, "a device that torch can use here, got 'gpu'"),
    ):
        with pytest.raises(kind, match=words):
            Classifier(small[0], **keywords)
    with pytest.raises(WrongType, match=r"torch\.nn\.Module, got NoneType"):
        Classifier(None)


def test_a_radius_may_be_a_fraction_as_text(small, tmp_path):
    assert ThreatModel("linf", "8/255") == ThreatModel("linf", 8 / 255)
    case = (*small, None)
    assert davylamp.run_attack("foolbox:fgsm", *case, epsilon="8/255").threat_model.epsilon == 8 / 255
    assert davylamp.compare("foolbox:fgsm", *case, epsilon="8/255").threat_model.epsilon == 8 / 255
    choice = davylamp.AttackChoice("foolbox:fgsm", "linf", "8/255")
    assert choice == davylamp.AttackChoice("foolbox:fgsm", "linf", 8 / 255)
    frame = davylamp.evaluate(*small, attacks=[choice], out=tmp_path).to_frame()
    assert set(frame["epsilon"]) == {8 / 255}
    net, images, labels = small
    trained = davylamp.harden(net, (images, labels), validation=(images.flip(3), labels), epsilon="8/255", epochs=1)
    assert trained.card["settings"]["epsilon"] == 8 / 255
    with pytest.raises(InvalidInput, match="expected epsilon as a number or a fraction"):
        davylamp.challenge(*small, original=net, epsilon="eight", out=tmp_path / "no")


def test_several_radii_are_a_cell_each(small, tmp_path):
    attacks = ["foolbox:fgsm", "torchattacks:fgsm"]
    evaluation = davylamp.evaluate(*small, attacks=attacks, epsilon=[0.1, "8/255"], out=tmp_path)
    assert evaluation.summary.done == 4
    assert set(evaluation.to_frame()["epsilon"]) == {0.1, 8 / 255}
    with pytest.raises(InvalidInput, match="one radius or several, got an empty list"):
        davylamp.evaluate(*small, attacks=attacks, epsilon=[], out=tmp_path / "no")
    with pytest.raises(UnknownName, match="unknown setting 'epsilons'; did you mean epsilon"):
        davylamp.evaluate(*small, attacks=attacks, epsilons=[0.1], out=tmp_path / "no")


def test_parameters_are_keywords_of_an_evaluation_too(small, tmp_path):
    by_keyword = davylamp.evaluate(*small, attacks="foolbox:pgd", epsilon=0.1, steps=3, out=tmp_path)
    again = davylamp.evaluate(*small, attacks="foolbox:pgd", epsilon=0.1, parameters={"steps": 3}, out=tmp_path)
    assert (by_keyword.summary.done, again.summary.kept) == (1, 1)
    shared = {"attacks": "foolbox:pgd", "epsilon": 0.1, "out": tmp_path / "no"}
    with pytest.raises(InvalidInput, match="steps is given twice"):
        davylamp.evaluate(*small, steps=3, parameters={"steps": 3}, **shared)
    with pytest.raises(UnknownName, match="unknown setting 'alpha'; did you mean step_size"):
        davylamp.evaluate(*small, alpha=0.1, **shared)


def test_labels_out_of_range_are_refused_before_anything_is_written(small, tmp_path, run, monkeypatch):
    net, images, labels = small
    with pytest.raises(InvalidInput, match="expected labels from 0 to 4, got values from"):
        davylamp.evaluate(net, images, labels + 5, attacks="foolbox:fgsm", epsilon=0.1, out=tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    torch.save((images, labels + 5), "data.pt")
    (tmp_path / "few.py").write_text(
        "import torch\nfrom torch import nn\n\ndef net():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(48, 5))\n\ndef load():\n    return torch.load('data.pt')\n"
    )
    words = ("--models", "few.py:net", "--data", "few.py:load", "--attacks", "foolbox:fgsm", "--epsilon", "0.1")
    code, _, errors = run("evaluate", *words, "--isolate", "no", "-o", "results")
    assert code == 1
    assert errors.count("expected labels from 0 to 4") == 1
    assert not (tmp_path / "results").exists()


def test_steps_that_cannot_reach_the_edge_are_said_and_what_is_advised_works(small, tmp_path):
    warned = "foolbox:pgd: its steps together reach 0.17 of the radius"
    short = davylamp.run_attack("foolbox:pgd", *small, norm="linf", epsilon=0.1, steps=5)
    assert any(note.startswith(warned) for note in short.notes)
    advised = davylamp.run_attack(
        "foolbox:pgd", *small, norm="linf", epsilon=0.1, steps=5, step_size="2.5 epsilon / steps"
    )
    assert advised.notes == ()
    assert advised.parameters["step_size"] == pytest.approx(0.05)
    case = {"norm": "linf", "epsilon": 0.1, "steps": 5, "libraries": ["foolbox"]}
    assert not any(
        "steps together reach" in note for note in davylamp.compare("pgd", *small, **case).notes
    )  # they are matched
    assert warned in repr(davylamp.compare("pgd", *small, **case, defaults=True))
    choice = davylamp.AttackChoice("foolbox:pgd", "linf", 0.1, parameters={"steps": 5}, defaults=True)
    assert warned in repr(davylamp.evaluate(*small, attacks=choice, out=tmp_path))


class Pair(nn.Module):
    """Logits and something else."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        return self.net(inputs), inputs.mean((1, 2, 3))


def test_how_the_outputs_of_a_model_were_read_is_said(small, tmp_path):
    net, *images = small
    for module, words in (
        (nn.Sequential(net, nn.Softmax(1)), "returns probabilities"),
        (Pair(net), "of the tuple that the model Pair returns"),
    ):
        settings = {"norm": "linf", "epsilon": 0.1}
        results = [
            davylamp.run_attack("foolbox:fgsm", module, *images, **settings),
            davylamp.compare("foolbox:fgsm", module, *images, **settings),
            davylamp.evaluate({"net": module}, *images, attacks="foolbox:fgsm", **settings, out=tmp_path / words[:5]),
        ]
        for result in results:
            assert sum(words in note for note in result.notes) == 1, result.notes
            assert words in repr(result)


def test_why_a_model_may_get_nothing_right_is_said(small):
    net, images, labels = small
    result = davylamp.run_attack("foolbox:fgsm", net, images, (labels + 1) % 5, norm="linf", epsilon=0.1)
    assert any("0 of 4 images are classified correctly" in note for note in result.notes)


def test_a_model_that_is_left_out_is_said(small, tmp_path):
    """Labels of four classes fit one of two models; the page does not call the folder complete."""
    model, images, labels = small
    wider = nn.Sequential(nn.Flatten(), nn.Linear(images[0].numel(), 9))
    labels = torch.full_like(labels, 8)
    done = davylamp.evaluate(
        {"few": model, "many": wider}, images, labels, attacks="foolbox:fgsm", norm="linf", epsilon=0.1, out=tmp_path
    )
    said = [note for note in done.notes if note.startswith("omitted: few: expected labels")]
    assert len(said) == 1
    page = build_report(tmp_path)
    assert "No run is missing" not in page
    assert "Omitted: few: expected labels" in page


@pytest.mark.parametrize("change", [lambda y: y.numpy()[::-1].copy()[::-1], lambda y: y.numpy().astype(">i8")])
def test_labels_of_any_layout_are_taken(small, change):
    model, images, labels = small
    plain = davylamp.run_attack("foolbox:fgsm", model, images, labels, norm="linf", epsilon=0.1)
    other = davylamp.run_attack("foolbox:fgsm", model, images, change(labels), norm="linf", epsilon=0.1)
    assert torch.equal(plain.adv_inputs, other.adv_inputs)


def test_radii_may_be_an_array(small, tmp_path):
    model, images, labels = small
    for place, radii in enumerate((np.array([0.1, 0.2]), torch.tensor([0.1, 0.2], dtype=torch.double))):
        done = davylamp.evaluate(
            model, images, labels, attacks="foolbox:fgsm", norm="linf", epsilon=radii, out=tmp_path / str(place)
        )
        assert sorted(davylamp.load(done.folder)["epsilon"].unique()) == [0.1, 0.2]


@pytest.mark.parametrize("verb", ["run_attack", "compare"])
def test_a_file_without_its_function_is_told_what_to_say(verb, small):
    with pytest.raises(InvalidInput, match=r"FILE.py:FUNCTION, got 'att.py'; .*att.py:FUNCTION"):
        getattr(davylamp, verb)("att.py", *small, epsilon=0.1)
