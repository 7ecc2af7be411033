"""The verbs in Python: the numbers of the command's `--json`, from modules and tensors too; a refusal is one line."""

import json
import math

import numpy as np
import pytest
import torch

import davylamp
from davylamp.engine.finding import plain
from davylamp.errors import DavylampError, UnknownName

from ..golden import corpus

MODEL, DATA = "models.py:cnn", "npz:images.npz"
DEMO, WITH = "demo:digits-cnn", {"attacks": ["foolbox:fgsm"], "data": "demo:digits", "limit": 1}
SMOOTHED = f"{MODEL}+smoothing:sigma=0.1"
WHERE = f"--data {DATA} --limit 4 --isolate no --json"
SAME = {  # a call, and the command that prints the same document
    "check": (lambda: davylamp.check("plain"), "check plain --json"),
    "detect": (lambda: davylamp.detect("detector", "detector.pt"), "detect detector --detector detector.pt --json"),
    "certify": (lambda: davylamp.certify(SMOOTHED, data=DATA, limit=4), f"certify {SMOOTHED} {WHERE}"),
    "saturation": (
        lambda: davylamp.saturation("foolbox:fgsm", MODEL, data=DATA, limit=4),
        f"saturation foolbox:fgsm --model {MODEL} {WHERE}",
    ),
    "fit": (
        lambda: davylamp.fit("feature-squeezing", MODEL, DATA),
        f"train feature-squeezing --model {MODEL} --data {DATA} --isolate no --json",
    ),
    "reproduce": (lambda: davylamp.reproduce("checks"), "reproduce checks --json"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the models, the images and two stored results folders; the working folder."""
    corpus.copy_inputs(tmp_path)
    for name in ("plain", "detector"):
        corpus.unpack(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", SAME)
def test_a_verb_has_the_numbers_of_its_command_and_shows_them(verb, place):
    call, command = SAME[verb]
    result = call()
    code, out, said = corpus.run(command)
    assert code == 0, said
    documents = [json.loads(json.dumps(plain(result.to_dict()))), plain(json.loads(out))]
    for document in documents:
        document.pop("seconds", None)
    assert documents[0] == documents[1]
    assert len(result.to_frame()) > 0
    assert repr(result).startswith(result.headline)
    assert len(repr(result).splitlines()) <= 13 + len(result.notes) + result.headline.count("\n")
    assert "<table" in result._repr_html_()


@pytest.mark.parametrize("against", ["epsilon", "queries"])
def test_curves_are_those_of_the_command(against, place):
    curves = davylamp.curves("plain", x_axis=against)
    stored = json.loads(corpus.run(f"curve plain --against {against} --json")[1])["curves"]
    assert [curve.n for curve in curves.curves] == [each["n"] for each in stored]
    for curve, each in zip(curves.curves, stored, strict=True):
        assert curve.accuracy.tolist() == each["accuracy"]
        value = each["metrics"]["D_half"]["value"]
        assert curve.half_distortion.value == value or (value is None and math.isnan(curve.half_distortion.value))
    assert set(curves.to_frame()["implementation"]) == {each["implementation"] for each in stored}
    assert f"Curves of accuracy against {against}" in repr(curves)
    assert "foolbox:pgd" in repr(curves)


def test_what_was_exported_is_imported(place):
    bundle = davylamp.export("plain", "plain.zip", licence="CC-BY-4.0")
    back = davylamp.import_results("plain.zip", "again")
    assert back.to_dict()["records"] == bundle.to_dict()["records"]
    code, out, _ = corpus.run("import plain.zip -o third --json")
    assert code == 0
    assert json.loads(out)["records"] == back.to_dict()["records"]
    assert davylamp.curves("again").to_frame().equals(davylamp.curves("plain").to_frame())


def test_verbs_take_modules_and_tensors(digits, tmp_path):
    """A module is afterwards as it was, and what is learned from tensors is what is learned from a file of them."""
    inputs, labels = digits.inputs, digits.labels
    certified = davylamp.certify(digits.module, inputs, labels, sigma=0.05, limit=4, n=100)
    assert len(certified.made.predicted) == 4
    assert certified.to_frame()["accuracy"].iloc[0] > 0
    saturated = davylamp.saturation("foolbox:fgsm", digits.module, inputs, labels, norm="linf", epsilon=["1/255", 0.3])
    (row,) = saturated.to_frame().to_dict("records")
    assert row["attacked"] == len(labels)
    np.savez(tmp_path / "images.npz", inputs=inputs.numpy(), labels=labels.numpy())
    first = davylamp.fit("feature-squeezing", digits.module, (inputs, labels), out=tmp_path / "a.pt")
    again = davylamp.fit("feature-squeezing", digits.module, f"npz:{tmp_path}/images.npz", out=tmp_path / "b.pt")
    assert first.made.calibration.tolist() == again.made.calibration.tolist()
    davylamp.evaluate(
        {"net": digits.module},
        inputs,
        labels,
        attacks="foolbox:fgsm",
        epsilon=0.2,
        keep_images=True,
        out=tmp_path / "r",
    )
    detector = davylamp.fit("feature-squeezing", digits.module, (inputs.flip(3), labels), out=tmp_path / "c.pt")
    models, data = {"net": digits.module}, (inputs, labels)
    measured = davylamp.detect(tmp_path / "r", tmp_path / "c.pt", model=models, data=data)
    assert measured.to_frame()["rate"].tolist() == [0.01, 0.05]
    assert detector.to_dict()["trained_on"]["clean"] == 11
    checked = davylamp.check(tmp_path / "r", probe=True, model=models, data=data, limit=2)
    assert not checked.notes
    assert {"pass"} <= set(checked.to_frame()["state"])
    assert not any(parameter.requires_grad for parameter in digits.module.parameters())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda net: davylamp.certify(net, torch.rand(1, 3, 16, 16), [0]), "a module needs `sigma`"),
        (lambda net: davylamp.certify("m+smoothing:sigma=0.1", sigma=0.2), "the noise is given twice, in the name"),
        (
            lambda net: davylamp.certify(net, torch.rand(1, 3, 16, 16), [0], sigma=0.1, data="d"),
            "images or the name of",
        ),
        (lambda net: davylamp.curves("none", x_axis="passes", out="a.svg"), "combined with `out` or `budget`"),
        (lambda net: davylamp.curves("none", budget="x"), "expected `budget` as a number"),
        (lambda net: davylamp.check("none", probe=True), "none"),
        (lambda net: davylamp.detect("none", "none.pt"), "no such file: none.pt"),
        (lambda net: davylamp.export("none", "x.zip", data="d"), "`data` needs form='attackbench'"),
        (lambda net: davylamp.export("none", "x", form="croissant"), "unknown format 'croissant'"),
        (
            lambda net: davylamp.export("none", "x", form="attackbench", creator="me"),
            "cannot be combined with `creator`",
        ),
        (lambda net: davylamp.import_results("none.zip", "x", model="m"), "`model` and `data` need form='attackbench'"),
        (lambda net: davylamp.fit("art:uap@fixed", net, attack="pgd"), "`out` as a folder, without `attack`"),
        (lambda net: davylamp.fit("feature-squeezing", net, isolated="no"), "unknown keyword 'isolated'"),
        (lambda net: davylamp.saturation("foolbox:ddn", net), "which has no saturation radius"),
        (lambda net: davylamp.reproduce("checks", limit=2), "checks cannot be combined with `limit`"),
        (
            lambda net: davylamp.reproduce("canary-table4", quick=True, full=True),
            "`quick` and `full` cannot be combined",
        ),
        (
            lambda net: davylamp.corrupt_table(net, clean="demo:imagenet"),
            "`clean` needs corrupted data (imagenet-c:PATH",
        ),
        (lambda _: davylamp.evaluate(DEMO, address="x", **WITH), "`address` needs `executor=ray`"),
        (
            lambda _: davylamp.evaluate(DEMO, neuron_profile="demo:digits", **WITH),
            "`neuron_profile` needs `measures=coverage`",
        ),
        (
            lambda _: davylamp.evaluate(DEMO, isolate="strict", fit_data="a.py:b", **WITH),
            "a.py:b would run in this process",
        ),
        (lambda _: davylamp.evaluate(DEMO, stop_when_fooled=True, **WITH), "`stop_when_fooled` needs several attacks"),
        (lambda net: davylamp.fit("art:binary-input", net, "demo:digits"), "; give `attack`"),
        (lambda net: davylamp.corrupt_table(net, data=([], [])), "expected the name of data as text, got tuple"),
        (lambda net: davylamp.corrupt_table(net, limit="3"), "expected `limit` as a whole number >= 1, got '3'"),
        (lambda net: davylamp.corrupt_table(net, by="foo"), "unknown rows of the table 'foo'; known: corruptions"),
        (lambda net: davylamp.corrupt_table("demo:xyz*", data="demo:digits"), "unknown model 'demo:xyz*'"),
    ],
)
def test_a_refusal_is_a_line_with_keywords(call, words, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DavylampError) as caught:
        call(digits.module)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


REFUSED = {  # a call on the digits, and what its line says
    "certify limit": (lambda net, x, y: davylamp.certify(net, x, y, sigma=0.1, limit=0), "`limit` as a whole"),
    "challenge limit": (lambda net, x, y: davylamp.challenge(net, x, y, limit=-1), "`limit` as a whole number from 1"),
    "saturation limit": (lambda net, x, y: davylamp.saturation("foolbox:fgsm", net, x, y, limit=-3), "`limit` as a"),
    "robust_accuracy limit": (lambda net, x, y: davylamp.robust_accuracy(net, x, y, limit=0), "`limit` as a whole"),
    "train limit": (lambda net, x, y: davylamp.fit("feature-squeezing", net, (x, y), limit=-1), "`limit` as a"),
    "harden limit": (lambda net, x, y: davylamp.harden(net, (x, y), limit=0), "`limit` as a whole number from 1"),
    "certify sigma": (lambda net, x, y: davylamp.certify(net, x, y, sigma=-1), "`sigma` above 0 and finite, got -1"),
    "certify seed": (lambda net, x, y: davylamp.certify(net, x, y, sigma=1, seed="a"), "a seed from 0"),
    "certify radius": (lambda net, x, y: davylamp.certify(net, x, y, sigma=1, radius=[]), "got an empty list"),
    "certify keyword": (lambda net, x, y: davylamp.certify(net, x, y, sgma=1), "did you mean sigma?"),
    "challenge keyword": (lambda net, x, y: davylamp.challenge(net, x, y, efort={}), "did you mean effort"),
    "saturation keyword": (lambda net, x, y: davylamp.saturation("pgd", net, x, y, treshold=1), "mean threshold?"),
    "robust_accuracy keyword": (lambda net, x, y: davylamp.robust_accuracy(net, x, y, epsilom=1), "mean epsilon?"),
    "corrupt_table keyword": (lambda net, x, y: davylamp.corrupt_table(net, bogus=3), "unknown keyword 'bogus'"),
    "challenge both": (
        lambda net, x, y: davylamp.challenge(net, x, y, data="demo:mnist"),
        "images or the name of data",
    ),
    "effort name": (lambda net, x, y: davylamp.challenge(net, x, y, effort={"foo": 3}), "unknown effort 'foo'"),
    "effort value": (lambda net, x, y: davylamp.challenge(net, x, y, effort={"steps": 0}), "`steps` as a whole number"),
    "effort": (lambda net, x, y: davylamp.challenge(net, x, y, effort=3), "expected effort as whole numbers by name"),
    "steps": (lambda net, x, y: davylamp.challenge(net, x, y, steps=0), "`steps` as a whole number"),
    "steps twice": (
        lambda net, x, y: davylamp.challenge(net, x, y, steps=2, effort={"steps": 2}),
        "`steps` is given twice",
    ),
    "surrogates": (lambda net, x, y: davylamp.challenge(net, x, y, surrogates=net), "expected surrogates as modules"),
    "original": (lambda net, x, y: davylamp.challenge(net, x, y, original=3), "expected a model as a torch.nn.Module"),
    "parameters": (
        lambda net, x, y: davylamp.saturation("foolbox:fgsm", net, x, y, parameters=3),
        "parameters by name",
    ),
    "threshold": (lambda net, x, y: davylamp.saturation("foolbox:fgsm", net, x, y, threshold="a"), "`threshold` as a"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_are_checked_before_anything_runs(case, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, words = REFUSED[case]
    with pytest.raises(DavylampError) as caught:
        call(digits.module, digits.inputs, digits.labels)
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_arguments_about_a_folder_are_checked(place, digits):
    pair = digits.inputs, digits.labels
    cases = [
        (lambda: davylamp.check("plain", model=[]), "`model` as one name or several, got an empty list"),
        (lambda: davylamp.check("plain", bogus=3), "unknown keyword 'bogus'"),
        (lambda: davylamp.check("plain", data=pair), "`data` needs `probe`"),
        (lambda: davylamp.check("plain", version="2"), "`version` applies only to modules in `model`, with `probe`"),
        (lambda: davylamp.curves("plain", model=[]), "got an empty list"),
        (lambda: davylamp.curves("plain", budget=[None]), "expected `budget` as a number"),
        (lambda: davylamp.curves("plain", x_axis="foo"), "queries, passes, got 'foo'"),
        (lambda: davylamp.curves("plain", seed="a"), "a seed from 0"),
        (lambda: davylamp.curves("plain", bootstrap="a"), "`bootstrap` as a whole number from 0"),
        (lambda: davylamp.detect("detector", []), "expected detectors as files, got an empty list"),
        (lambda: davylamp.detect("detector", "detector.pt", model={}), "got an empty dict"),
        (
            lambda: davylamp.detect("detector", "detector.pt", version="2"),
            "`version` applies only to modules in `model`",
        ),
        (lambda: davylamp.detect("detector", "detector.pt", model=["m"]), "`model` as modules by name"),
        (lambda: davylamp.detect("detector", "d.pt", false_positive_rate=0.1), "did you mean false_positive_rates?"),
    ]
    for call, words in cases:
        with pytest.raises(DavylampError) as caught:
            call()
        assert words in str(caught.value)


def test_a_challenge_reads_its_surrogates_once(place):
    """One name, and a generator, are the list of the command."""
    how = {"data": DATA, "limit": 2, "quick": True, "effort": {"steps": 2, "queries": 4}}
    makes = {"list": ["models.py:mlp"], "one": "models.py:mlp", "generator": (name for name in ["models.py:mlp"])}
    made_on = {}
    for name, surrogates in makes.items():
        done = davylamp.challenge(MODEL, surrogates=surrogates, out=f"c-{name}", **how)
        made_on[name] = [(attempt.attack, attempt.made_on) for attempt in done.attempts]
    assert made_on["list"] == made_on["one"] == made_on["generator"]
    assert "models.py:mlp" in {model for _, model in made_on["list"]}


def test_rounded_images_are_said(digits, tmp_path):
    images, labels = digits.inputs[:3].double() * (1 - 1e-12), digits.labels[:3]
    rounded = "images rounded from float64 to float32"
    assert rounded in davylamp.robust_accuracy(digits.module, images, labels, epsilon=0.5).warnings
    effort = {"steps": 2, "queries": 4}
    done = davylamp.challenge(digits.module, images, labels, quick=True, effort=effort, out=tmp_path / "c")
    assert done.notes[0] == rounded
    assert ["3 images, 2 steps, 4 queries" in note for note in done.notes[1:]] == [True]
    assert rounded in repr(done)


def test_a_classifier_has_its_name_and_a_version(digits, tmp_path):
    inputs, labels = digits.inputs, digits.labels
    named = davylamp.Classifier(digits.module, name="digits")
    certified = davylamp.certify(named, inputs, labels, sigma="1/20", limit=2, n=20)
    assert certified.headline.startswith("digits on given: certified accuracy ")
    assert "noise 0.05" in certified.headline
    budgets = [np.float32(0.1), 0.3]
    saturated = davylamp.saturation("foolbox:fgsm", named, inputs, labels, epsilon=budgets, version="2")
    assert saturated.headline == "foolbox:fgsm on digits, given"
    made = {"parameters": {"steps": 1}, "norm": "linf", "epsilon": 0.3}
    keys = []
    for version in ("", "2"):
        learned = davylamp.fit("art:uap@fixed", named, (inputs, labels), out=tmp_path / "u", version=version, **made)
        called = "digits+version:2" if version else "digits"
        assert learned.to_frame()["name"].tolist() == [f"art:uap@fixed on {called}"]
        keys += learned.to_frame()["key"].tolist()
    assert keys[0] != keys[1]


def test_a_version_of_a_name_is_that_of_the_command(place):
    certified = davylamp.certify(SMOOTHED, data=DATA, limit=2, n=20, version="2")
    assert certified.document["model"] == f"{MODEL}+version:2+smoothing:sigma=0.1"
    saturated = davylamp.saturation("foolbox:fgsm", MODEL, data=DATA, limit=2, version="2")
    assert saturated.headline.startswith(f"foolbox:fgsm on {MODEL}+version:2")


def test_modules_of_a_version_are_those_that_were_evaluated(digits, tmp_path):
    models, data = {"net": digits.module}, (digits.inputs, digits.labels)
    davylamp.evaluate(models, *data, attacks="foolbox:fgsm", epsilon=0.2, out=tmp_path / "r", version="2")
    again = {"probe": True, "model": models, "data": data, "limit": 2}
    with pytest.raises(UnknownName):
        davylamp.check(tmp_path / "r", **again)
    assert not davylamp.check(tmp_path / "r", **again, version="2").notes


def test_compare_says_of_defences_and_draws_what_the_command_says(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs, labels, _ = davylamp.load_data("demo:digits", limit=2)
    for part, note in (
        ("bit-depth:bits=3", "gradients pass through art:bit-depth as if it were the identity (BPDA)"),
        ("noise:sigma=0.1", "judged on 20 samples; the attack treats the model as deterministic: `eot=20`"),
    ):
        name = f"demo:digits-cnn+{part}"
        options = ("--model", name, "--data", "demo:digits", "--limit", "2", "--epsilon", "0.1", "--library", "foolbox")
        code, _, err = run("compare", "fgsm", *options)
        assert code == 0, err
        assert note.replace("`eot=20`", "--eot 20") in err
        model = davylamp.load_model(name)
        for made in (
            davylamp.compare("fgsm", model, inputs, labels, epsilon=0.1, libraries=["foolbox"]),
            davylamp.run_attack("foolbox:fgsm", model, inputs, labels, epsilon=0.1),
        ):
            assert any(note in each for each in made.notes)


def test_corrupt_table_expands_patterns_before_the_input_is_said_and_measures_the_baseline(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = ("--data", "demo:digits", "--limit", "2", "--corruption", "contrast", "--severity", "1", "--isolate", "no")
    both = ("demo:digits-cnn", "demo:digits-cnn-robust")
    code, out, err = run(
        *("corruptions", "run", "demo:digits-cnn*", "--model-version", "2", "--baseline", both[0], *where, "--json")
    )
    assert code == 0, err
    assert [row["model"] for row in json.loads(out)["rows"]] == [f"{name}+version:2" for name in both]
    code, _, err = run("corruptions", "run", "demo:xyz*", *where)  # into the folder that there is now
    assert (code, err.startswith("davylamp: unknown model 'demo:xyz*'")) == (1, True)
    asked = {"data": "demo:digits", "limit": 2, "corruption": "contrast", "severity": 1, "baseline": both[1]}
    for name, models in (("name", both[0]), ("module", {both[0]: davylamp.load_model(both[0])})):
        table = davylamp.corrupt_table(models, **asked, out=name, isolate="no")
        assert [row.labels["model"] for row in table.rows] == [*both]


class Shaken(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        return self.net(inputs + 0.2 * torch.randn_like(inputs))


class SevenAlways(Shaken):
    def forward(self, inputs):
        logits = self.net(inputs)
        return 1e-3 * logits + 5 * torch.eye(logits.shape[1])[7]


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (Shaken, "random=True"),
        (lambda net: torch.nn.Sequential(net, torch.nn.Softmax(1)), "returns probabilities"),
        (SevenAlways, "check the normalisation"),
        (lambda net: net, "the digits"),
    ],
)
def test_saturation_says_in_its_first_line_what_is_doubtful(wrap, words, digits):
    inputs, labels = digits.inputs[:8], digits.labels[:8]
    radii = {"norm": "linf", "epsilon": [0.05, 0.1]}
    result = davylamp.saturation("foolbox:fgsm", wrap(digits.module), inputs, labels, limit=9, **radii)
    first = repr(result).splitlines()[0]
    assert first.startswith("given has 8 images, fewer than the requested 9; ")
    assert (words in first) == (words != "the digits")
    assert len(result.document["notes"]) == 1 + (words != "the digits")
