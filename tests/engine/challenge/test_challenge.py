"""Whole challenges of the digits CNN: what hides its gradients falls, and a killed run goes on."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier
from davylamp.adapters.result import UNSTEADY
from davylamp.engine import load
from davylamp.engine.challenge.attempts import BLACK, WHITE
from davylamp.engine.challenge.challenge_result import lead_of, read_documents
from davylamp.engine.challenge.challenger import ChallengeRunner
from davylamp.engine.challenge.gradient_variants import OF_PROBABILITIES, gradient_variants, split_original
from davylamp.errors import InvalidInput
from davylamp.report.page.build import build_report
from davylamp.report.text.challenge import print_challenge
from davylamp.report.text.console import make_console

TINY = {"steps": 5, "candidates": 2, "queries": 12, "eot": 2, "judge_samples": 4}
FACTORY = """
import torch
from torch import nn


def build():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 10),
    )
    net.load_state_dict(torch.load({weights!r}))
    return net
"""


@pytest.fixture(scope="module")
def files(digits, tmp_path_factory):
    """The digits CNN as a factory in a file, and its images."""
    folder = tmp_path_factory.mktemp("files")
    torch.save(digits.module.state_dict(), folder / "net.pt")
    (folder / "net.py").write_text(FACTORY.format(weights=str(folder / "net.pt")))
    np.savez(folder / "digits.npz", images=digits.inputs.numpy(), labels=digits.labels.numpy())
    return folder


@pytest.fixture(scope="module")
def hidden(files, tmp_path_factory):
    """A challenge of bit depth reduction that gives no gradients."""
    name, out = f"{files}/net.py:build+bit-depth:bits=5,gradients=none", tmp_path_factory.mktemp("out")
    done = davylamp.challenge(name, data=f"npz:{files}/digits.npz", epsilon=0.2, effort=TINY, limit=12, out=out)
    return done, out, name


def test_the_stand_ins_of_a_name():
    assert split_original("demo:a+b.py:f+jpeg:quality=3+bit-depth") == (
        "demo:a",
        ("b.py:f", "jpeg:quality=3", "bit-depth"),
    )
    assert split_original("demo:x") == ("demo:x", ())
    assert gradient_variants("m+jpeg:quality=30") == {"m+kornia:jpeg:quality=30,gradients=exact": "exact"}
    assert gradient_variants("m+bit-depth") == {}  # BPDA is what its name has, and nobody has a derivative
    assert set(gradient_variants("m+jpeg:gradients=none").values()) == {"straight-through", "exact"}
    assert gradient_variants("m+blur") == {
        "m+torchvision:blur:window=3,sigma=1.0,gradients=straight-through": "straight-through"
    }
    both = gradient_variants("m+art:jpeg+median")
    assert list(both) == ["m+kornia:jpeg:quality=50,gradients=exact+kornia:median:window=3,gradients=exact"]


def test_what_hides_its_gradients_falls_to_who_knows_it(hidden):
    done, _, name = hidden
    named = [each for each in done.attempts if each.part == "white-box" and not each.gradients]
    assert all(not each.fooled.any() for each in named[:2])  # no gradient, no example
    assert done.verdict == "falls"
    assert "its gradients are zero on 12 of 12 images" in done.ruling.masking
    assert any("miss images that pyautoattack" in line for line in done.ruling.masking)
    assert (done.model, done.original) == (name, name.partition("+")[0])
    assert done.undefended is not None
    assert done.worst.value <= done.undefended.value + 0.05
    assert {each.part for each in done.attempts} >= {"undefended", *WHITE, *BLACK}
    assert done.radii[-1][1].value == 0
    assert "falls to" in repr(done)


def test_the_worst_case_is_that_of_the_records(hidden):
    done, out, name = hidden
    assert done.clean.value == 1.0
    frame = load(out)
    of_model = frame[(frame["model"] == name) & np.isclose(frame["epsilon"], 0.2)]
    fooled = of_model.groupby("image")["success"].any()
    attacked = of_model.groupby("image")["attacked"].all()
    assert done.worst.value == pytest.approx(float((attacked & ~fooled).sum()) / 12)


def test_it_goes_on_where_it_was(hidden, files, monkeypatch):
    _, out, name = hidden
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    (document,) = read_documents(out)
    victim = next(iter(before))
    victim.unlink()
    calls = []
    original = ChallengeRunner._attack
    monkeypatch.setattr(ChallengeRunner, "_attack", lambda self, *given: calls.append(given) or original(self, *given))
    again = davylamp.challenge(name, data=f"npz:{files}/digits.npz", epsilon=0.2, effort=TINY, limit=12, out=out)
    after = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert after.keys() == before.keys()
    assert [path for path in after if after[path] != before[path]] == [victim]
    assert read_documents(out) == [document]
    assert again.to_dict() == document
    assert calls


def test_the_command_and_its_page(hidden, files, run):
    name = hidden[2]
    effort = ("--steps", "5", "--queries", "12", "--eot", "2", "--judge-samples", "4")
    options = ("--data", f"npz:{files}/digits.npz", "--epsilon", "0.2", "--limit", "4", "-o", str(files / "small"))
    surrogate = f"{files}/net.py:build+bit-depth:bits=6,gradients=straight-through"  # a comma of its defence
    code, text, err = run("challenge", name, *options, *effort, "--json", "--surrogate", surrogate)
    assert code == 0, err
    document = json.loads(text)
    assert surrogate in {attempt["made_on"] for attempt in document["attempts"]}
    assert document["worst"]["n"] == 4
    assert document["verdict"] in ("falls", "masks", "unknown")
    assert "- by scores alone: pyautoattack:square, radius 0.2: accuracy" in err
    page = (files / "small" / "challenge.html").read_text()
    assert "Challenge: adaptive attacks on a defence" in page
    assert "Attacks on" in page
    code, text, _ = run("challenge", name, *options, *effort)
    where = {"data": f"npz:{files}/digits.npz", "epsilon": 0.2, "out": files / "small"}
    given = where | {"effort": {"steps": 5, "queries": 12, "eot": 2, "judge_samples": 4}}
    fewer = davylamp.challenge(name, limit=4, **given)
    assert "worst-case accuracy over all attacks up to each radius, 4 images" in text
    assert "no attack was designed for this particular defence" not in text  # it falls without one

    other = [*options[:4], "--limit", "5", *options[6:]]  # in the same folder
    code, text, err = run("challenge", name, *other, *effort)
    assert code == 0, err
    assert "worst-case accuracy over all attacks up to each radius, 5 images" in text
    more = davylamp.challenge(name, limit=5, **given)
    assert len(more.checks) == len(fewer.checks)  # of its own cells alone
    page = (files / "small" / "challenge.html").read_text()
    assert f"on 4 images of npz:{files}/digits.npz: these are among its 5 images, which count once" in page


class Shaken(nn.Module):
    """A model that sees its images through noise."""

    def __init__(self, inside, sigma):
        super().__init__()
        self.inside, self.sigma = inside, sigma

    def forward(self, inputs):
        return self.inside(inputs + self.sigma * torch.randn_like(inputs))


def test_a_random_module_that_is_handed_over(digits, tmp_path):
    model = Classifier(Shaken(digits.module, 0.05), num_classes=10, random=True, name="shaken")
    case = (model, digits.inputs[:6], digits.labels[:6])
    done = davylamp.challenge(*case, original=digits.module, epsilon=0.2, effort=TINY, out=tmp_path)
    assert (done.model, done.original) == ("shaken", "undefended")
    assert sum("new samples" in note for note in done.notes) == 1
    assert any(each.attack.endswith(":pgd") for each in done.attempts)
    frame = load(tmp_path)
    assert set(frame[frame["model"] == "shaken"]["draws_fooled"].dropna() * 4 % 1) == {0.0}
    assert done.verdict == "falls"


def test_a_draw_of_large_margins_does_not_hide_the_others(tmp_path):
    """Of three draws one is right by far whatever the attacker does, two are fooled where the mean of logits rises."""

    class Draws(nn.Module):
        def forward(self, inputs):
            brighter = inputs.flatten(1).mean(1) - 0.5
            far = torch.rand(len(inputs)) < 1 / 3
            margin = (30 - 90 * brighter).where(far, 0.5 + 10 * brighter)
            rest = torch.tensor([0.0, -1.0, -2.0]).expand(len(inputs), 3)
            return torch.cat([margin[:, None], rest], 1)

    model = Classifier(Draws(), num_classes=4, random=True, name="draws")
    images, labels = torch.full((4, 1, 8, 8), 0.5), torch.zeros(4, dtype=torch.long)
    effort = {**TINY, "eot": 20, "judge_samples": 30}
    done = davylamp.challenge(model, images, labels, epsilon=0.2, effort=effort, out=tmp_path)
    white = [each for each in done.attempts if each.part == "white-box"]
    averaged = [each for each in white if each.gradients == OF_PROBABILITIES]
    assert {each.made_on for each in averaged} == {"draws (probabilities)"}
    assert {each.attack for each in averaged} == {each.attack for each in white if not each.gradients} - {
        "pyautoattack:apgd-t"
    }
    assert max(each.fooled.max() for each in white if not each.gradients) == 0
    assert all(0.4 < each.fooled.mean() < 0.9 for each in averaged)
    assert all(each.passes == of_logits.passes for each, of_logits in zip(averaged, white, strict=False))
    assert not any("the defence's default gradients" in line for line in done.ruling.masking)


def test_a_failed_attack_begins_with_what_the_defended_model_gets_right(digits, tmp_path):
    """Where all attacks by gradients fail, so that none of their records says which images those are."""
    asked = []

    class Barred(nn.Module):
        def __init__(self, inside, spoilt):
            super().__init__()
            self.inside, self.spoilt = inside, nn.Parameter(spoilt, requires_grad=False)

        def forward(self, inputs):
            if inputs.requires_grad:
                asked.append(len(inputs))  # the first question is whether there are any
                if len(asked) > 1:
                    raise RuntimeError("no gradients here")
            near = (inputs[:, None] - self.spoilt[None]).abs().flatten(2).amax(2).amin(1) < 1e-6
            return self.inside(inputs).roll(1, 1).where(near[:, None], self.inside(inputs))

    inputs, labels = digits.inputs[:6], digits.labels[:6]
    model = Classifier(Barred(digits.module, inputs[:2]), num_classes=10)
    done = davylamp.challenge(model, inputs, labels, original=digits.module, epsilon=0.1, effort=TINY, out=tmp_path)
    failed = [attempt for attempt in done.attempts if attempt.part == "white-box"]
    assert failed
    assert all(attempt.outcome is None for attempt in failed)
    assert {tuple(attempt.attacked) for attempt in failed} == {(False, False, True, True, True, True)}
    fooled = np.maximum.reduce([each.fooled for each in done.attempts if each.part in (*WHITE, *BLACK)])
    assert done.clean.value == pytest.approx(4 / 6)
    assert done.worst.value == pytest.approx(float((1 - fooled)[2:].sum()) / 6)
    assert done.verdict != "holds"


def test_bad_input_is_refused_before_anything_is_attacked(digits, tmp_path):
    case = (digits.classifier, digits.inputs[:2], digits.labels[:2])
    three_classes = nn.Sequential(nn.Flatten(), nn.Linear(768, 3))
    for wrong, named in (
        ({"norm": "l1"}, "got l1"),
        ({"epsilon": 0.5}, "got 0.5"),
        ({"original": three_classes}, "got 3 of undefended"),
        ({"original": digits.classifier}, "must differ from the defended model"),
    ):
        with pytest.raises(InvalidInput, match=named):
            davylamp.challenge(*case, out=tmp_path, effort=TINY, **wrong)
    assert not (tmp_path / "cells").exists()


def test_a_quick_trial_says_how_many_images_it_has(digits, tmp_path):
    case = (Classifier(digits.module, num_classes=10), digits.inputs[:14], digits.labels[:14])
    given = {"epsilon": 0.2, "quick": True, "effort": {**TINY, "steps": 3}}
    (note,) = davylamp.challenge(*case, **given, out=tmp_path / "default").notes
    assert "10 of 14 images, 3 steps, 12 queries" in note
    (note,) = davylamp.challenge(*case, **given, limit=14, out=tmp_path / "all").notes
    assert ": 14 images, 3 steps" in note


def test_attacks_that_are_left_out_do_not_let_a_model_hold(digits, tmp_path, monkeypatch):
    """What no cell is planned for is an attack that failed; the same challenge with all of them says more."""
    from davylamp.engine.challenge import challenger
    from davylamp.engine.plan.build_plan import make_plan

    def plan_without(config, **given):
        plan = make_plan(config, **given)
        cells = tuple(cell for cell in plan.cells if not cell.attack.endswith((":square", ":rays")))
        left = {cell.key for cell in cells}
        choices = {key: places for key, places in plan.choices.items() if key in left}
        return replace(plan, cells=cells, choices=choices, failed={"square": "it gives no scores"})

    monkeypatch.setattr(challenger, "make_plan", plan_without)
    model = Classifier(digits.module, num_classes=10)
    case, given = (model, digits.inputs[:4], digits.labels[:4]), {"effort": TINY, "out": tmp_path, "limit": 9}
    done = davylamp.challenge(*case, epsilon=0.005, **given)
    assert "given has 4 images" in done.notes[0]
    assert read_documents(tmp_path)[0]["notes"] == list(done.notes)
    left_out = [attempt for attempt in done.attempts if attempt.error]
    assert [attempt.part for attempt in left_out] == ["scores", "decisions"]
    assert all(attempt.error == "left out: it gives no scores" for attempt in left_out)
    assert done.verdict != "holds"
    assert not done.ruling.sentence.startswith("holds")


def test_below_four_classes_the_margin_stands_for_the_ratio_and_it_is_said(tmp_path, capsys):
    """A linear model of two classes whose logits saturate the cross-entropy: what is left follows from its weights."""
    weight = torch.randn(64, generator=torch.Generator().manual_seed(0))
    inputs = 0.3 + 0.4 * torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    z = inputs.flatten(1) @ weight
    bias = -z.median() - 0.01

    class Linear(nn.Module):
        def forward(self, images):
            return 1000 * (images.flatten(1) @ weight + bias)

    model = Classifier(Linear(), outputs="logit", name="linear")
    least = (z + bias).abs() / weight.abs().sum()
    radius = float(least.sort().values[13:15].mean())
    case = (model, inputs, ((z + bias) > 0).long())
    done = davylamp.challenge(*case, epsilon=radius, effort={**TINY, "steps": 20}, out=tmp_path)
    names = [each.attack for each in done.attempts if each.part == "white-box"]
    assert names == ["pyautoattack:apgd-ce", "pyautoattack:apgd-margin", "pyautoattack:fab"]
    left = float((least > radius).float().mean())
    assert done.worst.value == pytest.approx(left)
    assert done.attempts[0].accuracy.value > left + 0.3  # by the cross-entropy alone
    assert done.attempts[1].accuracy.value == pytest.approx(left)
    (line,) = lead_of(done.to_dict())
    assert "margin ensemble" in line
    assert "replaces AutoAttack" in line
    print_challenge(done.to_dict(), "page", make_console())
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("linear, linf")
    assert second.startswith("a margin ensemble")
    assert "margin ensemble" in build_report(tmp_path)


def test_a_model_that_is_random_and_does_not_say_so_is_not_judged(digits, tmp_path, monkeypatch):
    """Asked once more without an attack, it is luckier than under any of them."""
    monkeypatch.setattr(ChallengeRunner, "_right_when_clean", lambda self, _: np.ones(len(self.data.labels), bool))

    shaken = Classifier(Shaken(digits.module, 0.8), num_classes=10, name="shaken")
    case = (shaken, digits.inputs[:20], digits.labels[:20])
    done = davylamp.challenge(*case, epsilon=0.005, effort=TINY, out=tmp_path)
    assert done.ruling.sentence.startswith(UNSTEADY)
    assert done.verdict == "unknown"
    assert lead_of(done.to_dict()) == []
    shares = [
        each.accuracy.value for each in done.attempts if each.outcome is not None and each.epsilon == done.epsilon
    ]
    assert done.worst.value <= min([*shares, done.clean.value])


def test_the_worst_case_of_a_random_model_is_not_above_one_of_its_attacks(tmp_path, monkeypatch):
    """Where the draws that judge the chosen examples once more are unlucky for the attacker."""

    class Coin(nn.Module):
        def forward(self, inputs):
            chance = inputs.mean((1, 2, 3))
            heads = (torch.rand(len(inputs)) < chance).float()
            return torch.stack([1 - 2 * heads, 2 * heads - 1], 1) + 0 * inputs.flatten(1)[:, :1]

    inputs = torch.linspace(0.3, 0.5, 12)[:, None, None, None].expand(12, 1, 8, 8).clone()
    case = (Classifier(Coin(), num_classes=2, random=True, name="coin"), inputs, torch.zeros(12, dtype=torch.long))
    monkeypatch.setattr("davylamp.engine.challenge.challenger._FRESH", 17)
    done = davylamp.challenge(*case, epsilon=0.02, effort={**TINY, "judge_samples": 5}, out=tmp_path)
    kept = [each for each in done.attempts if each.epsilon == done.epsilon and each.outcome is not None]
    assert done.worst.value <= min(each.accuracy.value for each in kept) + 1e-12
