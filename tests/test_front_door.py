"""`import davylamp`: verbs that take a plain module and leave it as it was, short reprs, frames, other words."""

import copy
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import davylamp
from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.catalogue.lookup import implementations_of
from davylamp.adapters.models.temporary_classifier import as_classifier
from davylamp.engine import compare
from davylamp.engine.comparison.compare import verdict_groups
from davylamp.errors import InvalidInput, ModelFailed, UnknownName


def test_importing_loads_nothing_and_every_name_is_there():
    script = (
        "import sys, davylamp\n"
        "heavy = [n for n in ('torch', 'numpy', 'pandas', 'typer', 'davylamp.adapters') if n in sys.modules]\n"
        "assert heavy == [], heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert [name for name in davylamp.__all__ if not hasattr(davylamp, name)] == []
    assert set(davylamp.__all__) <= set(dir(davylamp))
    for module, name in (("metrics", "METRICS"), ("engine", "evaluate"), ("scoring", "rank_responses")):
        assert hasattr(getattr(davylamp, module), name)
    with pytest.raises(AttributeError, match="no attribute 'atack'"):
        davylamp.atack  # noqa: B018


class Mixed(nn.Module):
    """Dropout, batch statistics, a frozen layer, a part in evaluation mode, a gradient: all of it the user's."""

    def __init__(self, trained: nn.Module):
        super().__init__()
        self.trained, self.norm, self.drop = trained, nn.BatchNorm1d(10), nn.Dropout(0.1)
        next(self.trained.parameters()).requires_grad_(False)
        self.norm.weight.grad = torch.ones(10)
        self.train()
        self.drop.eval()

    def forward(self, inputs):
        return self.drop(self.norm(self.trained(inputs)))


def snapshot(module):
    tensors = {name: tensor.clone() for name, tensor in module.state_dict(keep_vars=False).items()}
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}
    modes = {name: part.training for name, part in module.named_modules()}
    required = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    hooks = {name: (len(part._forward_hooks), len(part._backward_hooks)) for name, part in module.named_modules()}
    return tensors, gradients, modes, required, hooks, set(vars(module))


def unchanged(before, module):
    after = snapshot(module)
    for had, has in zip(before[:2], after[:2], strict=True):
        assert had.keys() == has.keys()
        for name in had:
            assert (had[name] is None and has[name] is None) or torch.equal(had[name], has[name])
    return before[2:] == after[2:]


@pytest.fixture
def mixed(digits):
    return Mixed(copy.deepcopy(digits.module))


def test_a_module_is_as_it_was(mixed, digits, tmp_path):
    before = snapshot(mixed)
    case = (mixed, digits.inputs, digits.labels)
    davylamp.run_attack("torchattacks:pgd", *case, norm="linf", epsilon=0.1, steps=3)
    assert unchanged(before, mixed)
    davylamp.compare("fgsm", *case, epsilon=0.1)
    assert unchanged(before, mixed)
    davylamp.evaluate({"net": mixed}, *case[1:], attacks="foolbox:fgsm", epsilon=0.1, out=tmp_path, limit=4)
    assert unchanged(before, mixed)


def test_it_is_as_it_was_after_an_error_too(mixed, digits):
    before = snapshot(mixed)
    with pytest.raises(ModelFailed):
        davylamp.run_attack("foolbox:pgd", mixed, torch.rand(2, 3, 5, 5), [1, 2], epsilon=0.1)
    assert unchanged(before, mixed)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"), as_classifier(lambda images: images):
        pass


def test_the_numbers_are_those_of_the_parts(digits):
    case = (digits.inputs, digits.labels)
    classifier, rules = Classifier(copy.deepcopy(digits.module)), ThreatModel("linf", 8 / 255)
    ours = davylamp.run_attack("foolbox:pgd", digits.module, *case, epsilon=8 / 255, steps=5, seed=2)
    assert torch.equal(ours.adv_inputs, run_attack("foolbox:pgd", classifier, *case, rules, steps=5, seed=2).adv_inputs)
    ours = davylamp.compare("pgd", digits.module, *case, epsilon=8 / 255, steps=5, libraries=["foolbox", "art"])
    theirs = compare(
        "pgd", classifier, *case, rules, parameters={"steps": 5}, rows=[row.implementation for row in ours.rows]
    )
    assert [row.metrics["MR"] for row in ours.rows] == [row.metrics["MR"] for row in theirs.rows]
    assert ours.threat_model == rules
    targeted = davylamp.run_attack("foolbox:pgd", digits.module, *case, epsilon=0.3, target="least-likely")
    assert torch.equal(targeted.targets, classifier.predict_logits(case[0]).argmin(1))


def test_a_radius_without_a_norm_is_one_of_linf_at_every_door_and_said_so(digits, run, tmp_path):
    case = (digits.module, digits.inputs, digits.labels)
    result = davylamp.run_attack("foolbox:pgd", *case, epsilon=8 / 255, steps=1, step_size=8 / 255)
    comparison = davylamp.compare("pgd", *case, epsilon=8 / 255, steps=1, step_size=8 / 255, random_start=False)
    evaluation = davylamp.evaluate(*case, attacks="foolbox:pgd", epsilon=8 / 255, parameters={"steps": 1}, out=tmp_path)
    for threat_model in (result.threat_model, comparison.threat_model):
        assert threat_model == ThreatModel("linf", 8 / 255)
    assert repr(result).endswith("; chosen: norm linf")
    assert repr(comparison).startswith("Comparison: pgd, linf 8/255\n")
    assert repr(comparison).endswith("\n- chosen: norm linf")
    assert "foolbox:pgd: norm linf" in repr(evaluation)
    assert set(evaluation.to_frame()["norm"]) == {"linf"}
    said = davylamp.run_attack("foolbox:pgd", *case, norm="linf", epsilon=8 / 255, steps=1)
    assert "chosen" not in repr(said)
    words = ("--epsilon", "8/255", "--limit", "1", "--param", "steps=1", "--data", "foolbox:imagenet")
    assert "chosen: norm linf" in run("compare", "pgd", "--library", "foolbox", *words)[2]
    for attack, epsilon in (("pgd", 8), ("deepfool", 8 / 255)):
        doors = (
            lambda attack=attack, epsilon=epsilon: davylamp.run_attack(f"foolbox:{attack}", *case, epsilon=epsilon),
            lambda attack=attack, epsilon=epsilon: davylamp.compare(attack, *case, epsilon=epsilon),
            lambda attack=attack, epsilon=epsilon: davylamp.evaluate(
                *case, attacks=attack, epsilon=epsilon, out=tmp_path / "no"
            ),
        )
        for door in doors:
            with pytest.raises(InvalidInput, match=f"epsilon .* for {attack} needs a norm"):
                door()
        code, _, err = run("compare", attack, "--epsilon", epsilon)
        assert code == 1
        assert f"for {attack}" in err


def test_double_precision_is_said_to_be_rounded(digits, tmp_path):
    """Libraries attack in float32: images that are not, and a model that is not, are taken and named."""
    images, labels = digits.inputs.double() / 3, digits.labels
    module = copy.deepcopy(digits.module).double()
    result = davylamp.run_attack("foolbox:fgsm", module, images, labels, norm="linf", epsilon=0.1)
    rounded, attacked = (
        "images rounded from float64 to float32",
        "the model computes in float64; attacks compute in float32",
    )
    assert result.adv_inputs.dtype == torch.float32
    assert rounded in repr(result)
    assert attacked in repr(result)
    assert all(parameter.dtype == torch.float64 for parameter in module.parameters())
    case = (module, images, labels)
    assert rounded in repr(davylamp.compare("foolbox:fgsm", *case, norm="linf", epsilon=0.1))
    evaluation = davylamp.evaluate(*case, attacks="foolbox:fgsm", norm="linf", epsilon=0.1, out=tmp_path)
    assert rounded in repr(evaluation)
    assert attacked in repr(evaluation)
    exact = davylamp.run_attack("foolbox:fgsm", digits.module, digits.inputs.double(), labels, norm="linf", epsilon=0.1)
    assert exact.notes == ()
    plain = davylamp.run_attack("foolbox:fgsm", digits.module, digits.inputs, labels, norm="linf", epsilon=0.1)
    assert torch.equal(exact.adv_inputs, plain.adv_inputs)


def test_arrays_and_lists_are_taken_and_wrong_ones_named(digits):
    arrays = (digits.inputs.numpy(), digits.labels.tolist())
    ours = davylamp.run_attack("foolbox:fgsm", digits.module, *arrays, epsilon=0.1)
    assert torch.equal(ours.labels, digits.labels)
    case = (digits.module, (digits.inputs * 255).byte(), digits.labels)
    with pytest.raises(InvalidInput, match="expected floating point images"):
        davylamp.run_attack("foolbox:fgsm", *case, epsilon=0.1)
    for odd in (
        [torch.zeros(1, 4, 4).numpy(), torch.zeros(1, 5, 5).numpy()],
        "demo:imagenet",
        {"images": digits.inputs},
    ):
        with pytest.raises(InvalidInput, match=rf"an array of shape \(N, C, H, W\), got {type(odd).__name__}"):
            davylamp.run_attack("foolbox:fgsm", digits.module, odd, digits.labels, epsilon=0.1)
    with pytest.raises(InvalidInput, match="cannot be combined"):
        davylamp.run_attack("foolbox:fgsm", digits.module, *arrays, ThreatModel("linf", 0.1), epsilon=0.2)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("eps", "epsilon"), ("alpha", "step_size"), ("eps_iter", "step_size"), ("n_iter", "steps"),
        ("nb_iter", "steps"), ("max_iter", "steps"), ("iterations", "steps"), ("n_queries", "max_queries"),
        ("kappa", "confidence"), ("rand_init", "random_start"), ("lr", "learning_rate"),
    ],
)  # fmt: skip
def test_words_of_other_libraries(word, meant, digits, run, tmp_path):
    case = (digits.module, digits.inputs, digits.labels)
    for call in (
        lambda: davylamp.run_attack("foolbox:pgd", *case, epsilon=0.1, **{word: 1}),
        lambda: davylamp.compare("pgd", *case, epsilon=0.1, **{word: 1}),
        lambda: davylamp.evaluate(*case, attacks="pgd", parameters={word: 1}, epsilon=0.1, out=tmp_path / "r"),
    ):
        with pytest.raises(UnknownName, match=f"did you mean {meant}"):
            call()
    code, _, errors = run("compare", "pgd", "--param", f"{word}=1")
    assert code == 1
    assert f"did you mean {meant}?" in errors


@pytest.mark.usefixtures("few_draws")
def test_results_are_short_in_words_and_whole_in_frames(digits, tmp_path):
    case = (digits.module, digits.inputs, digits.labels)
    result = davylamp.run_attack("foolbox:pgd", *case, epsilon=0.1, steps=5)
    assert repr(result).startswith("AttackResult: foolbox:pgd, linf 0.1: ")
    assert f"{int(result.success.sum())} of {int(result.attacked.sum())} attacked images fooled" in repr(result)
    frame = result.to_frame()
    assert len(frame) == 16
    assert frame["success"].tolist() == result.success.tolist()
    assert np.allclose(frame["linf"], result.distances.linf)
    assert (frame["adv_predicted"] == result.adv_logits.argmax(1).numpy()).all()
    comparison = davylamp.compare("fgsm", *case, epsilon=0.1)
    frame = comparison.to_frame().set_index("implementation")
    names = [row.name for row in implementations_of("fgsm")]
    assert list(frame.index) == names
    assert frame.loc["foolbox:fgsm", "MR"] == comparison.rows[1].metrics["MR"]
    groups = verdict_groups(comparison)
    assert len(groups) < len(comparison.pairs)
    assert repr(comparison).splitlines()[1 : 1 + len(groups)] == groups
    models = {"a": digits.module, "b": nn.Sequential(nn.Flatten(), nn.Linear(768, 10))}
    attacks = ["foolbox:pgd", "foolbox:gaussian-noise"]
    evaluation = davylamp.evaluate(models, *case[1:], attacks=attacks, norm="l2", epsilon=1.5, out=tmp_path / "r")
    assert "4 runs done" in repr(evaluation)
    again = davylamp.evaluate(models, *case[1:], attacks=attacks, norm="l2", epsilon=1.5, out=tmp_path / "r")
    assert "0 runs done, 4 reused" in repr(again)
    table = evaluation.table()
    pd.testing.assert_frame_equal(table.to_frame(), table.frame())
    assert repr(table).startswith("Table by attacks: 2 rows")
    pd.testing.assert_frame_equal(evaluation.to_frame(), davylamp.load(tmp_path / "r"))
    ranking = davylamp.rank(tmp_path / "r", "attacks")
    assert repr(ranking).startswith("Ranking: ")
    assert len(repr(ranking)) < 1500
    assert ranking.to_frame()["subject"].iloc[0] == "pgd"
    for options, words in (
        ({"knowledge": "score"}, "expected score attacks, got .*white-box only"),
        ({"norm": "linf"}, "expected results in norm linf, got l2 only"),
        ({"unequal": "keep", "scoring": "mean"}, "scoring='mean' .* unequal='common'"),
        ({"examples": "defended", "scoring": "canary"}, "`examples` needs subjects='defences'"),
        ({"subjects": "defences", "examples": "defended", "budget": 1.0}, "`budget` and `examples` cannot be combined"),
    ):
        with pytest.raises(InvalidInput, match=words):
            davylamp.rank(tmp_path / "r", **options)
    for each in (result, comparison, table, ranking):
        page = each._repr_html_()
        assert "<table" in page
        assert "tensor(" not in repr(each) + page


def test_a_version_is_a_part_of_the_name_of_a_module(digits, tmp_path):
    for version in ("", "2", "2"):
        done = davylamp.evaluate(
            digits.module, digits.inputs, digits.labels, attacks="foolbox:fgsm", norm="linf", epsilon=0.1,
            out=tmp_path, version=version,
        )  # fmt: skip
    assert (done.summary.done, done.summary.kept) == (0, 1)
    assert {row.labels["model"] for row in done.table("models").rows} == {"Sequential+version:2"}
    folder = davylamp.Evaluation(tmp_path)
    assert {row.labels["model"] for row in folder.table("models").rows} == {"Sequential", "Sequential+version:2"}


def test_html_of_a_hostile_name_is_escaped(digits):
    def evil(model, inputs, labels, epsilon):
        return inputs + 0

    evil.__name__ = "<script>x</script>"
    evil.norm = "linf"
    case = (digits.module, digits.inputs, digits.labels)
    for each in (davylamp.run_attack(evil, *case, epsilon=0.1), davylamp.compare(evil, *case, epsilon=0.1)):
        assert "<script>" not in each._repr_html_()


def test_report_is_a_package_and_a_verb(digits, tmp_path):
    case = (digits.module, digits.inputs, digits.labels)
    evaluation = davylamp.evaluate(*case, attacks=["foolbox:fgsm"], epsilon=0.1, out=tmp_path / "r", limit=4)
    path = davylamp.report(tmp_path / "r", tmp_path / "a.html")
    assert path.read_text().startswith("<!doctype html>")
    assert evaluation.report(tmp_path / "b.html").is_file()
    from davylamp.report.page import build

    assert davylamp.report.page.build is build


def test_models_by_name_and_settings_of_a_config(tmp_path, monkeypatch, digits):
    monkeypatch.chdir(tmp_path)
    torch.save(digits.module, "net.pt")
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef net():\n    return torch.load('net.pt', weights_only=False)\n"
    )
    case = (digits.inputs, digits.labels)
    one = davylamp.evaluate("net.py:net", *case, attacks="foolbox:pgd", epsilon=0.1, seeds=[0, 1], limit=3)
    assert one.summary.done == 2
    assert set(one.to_frame()["seed"]) == {0, 1}
    assert len(one.to_frame()) == 6


def test_what_is_asked_for_is_done_or_refused(digits, tmp_path):
    case = (digits.module, digits.inputs, digits.labels)
    for libraries in (["foolbox"], "foolbox"):
        rows = davylamp.compare("fgsm", *case, epsilon=0.1, libraries=libraries).rows
        assert [row.implementation.name for row in rows] == ["foolbox:fgsm"]
    with pytest.raises(InvalidInput, match=r"expected a library that implements foolbox:fgsm \(foolbox\), got art"):
        davylamp.compare("foolbox:fgsm", *case, epsilon=0.1, libraries=["art"])
    with pytest.raises(UnknownName, match="unknown library 'foolbax'; did you mean foolbox"):
        davylamp.compare("fgsm", *case, epsilon=0.1, libraries=["art", "foolbax"])
    for verb in (davylamp.run_attack, davylamp.compare):
        with pytest.raises(InvalidInput, match="target='1' needs a targeted threat model"):
            verb("foolbox:pgd", *case, ThreatModel("linf", 0.1), target="1")
    choice = davylamp.AttackChoice("foolbox:pgd", "linf", 0.1)
    with pytest.raises(InvalidInput, match="with an AttackChoice"):
        davylamp.evaluate(*case, attacks=[choice], epsilon=0.2, out=tmp_path)
    for models in ([digits.module], davylamp.Config(), []):
        with pytest.raises(InvalidInput, match=r"expected modules by name as \{name: module\}"):
            davylamp.evaluate(models, *case[1:], attacks="foolbox:fgsm", epsilon=0.1, out=tmp_path)
    with pytest.raises(InvalidInput, match="divide 8-bit images by 255"):
        davylamp.run_attack("foolbox:fgsm", digits.module, (digits.inputs * 255).byte(), digits.labels, epsilon=0.1)


def test_hooks_gradients_and_layout_are_put_back(digits):
    """Whatever is done in between: hooks, gradients written over, another layout or dtype, a new layer, Ctrl-C."""
    module = copy.deepcopy(digits.module).requires_grad_().train()
    module.register_forward_hook(lambda *_: None)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    before, strides = snapshot(module), [parameter.stride() for parameter in module.parameters()]
    places = [parameter.data_ptr() for parameter in module.parameters()]
    first = module[0]
    with suppress(KeyboardInterrupt), as_classifier(module) as classifier:
        module.register_forward_hook(lambda *_: None)
        module[0].register_full_backward_hook(lambda *_: None)
        next(module.parameters()).grad.zero_()
        module[2].weight.grad = None
        classifier.to(memory_format=torch.channels_last)
        classifier.double()
        module[0] = nn.Identity()
        raise KeyboardInterrupt
    assert unchanged(before, module)
    assert module[0] is first
    assert [parameter.stride() for parameter in module.parameters()] == strides
    assert [parameter.data_ptr() for parameter in module.parameters()] == places


@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.rand(1, 3, 16, 16))])
@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_a_compiled_module_is_taken_too(digits, make):
    """TorchScript keeps its sub-modules in tables of its own."""
    compiled = make(copy.deepcopy(digits.module)).train()
    case = (digits.inputs, digits.labels)
    result = davylamp.run_attack("torchattacks:fgsm", compiled, *case, norm="linf", epsilon=0.1)
    expected = davylamp.run_attack("torchattacks:fgsm", digits.module, *case, norm="linf", epsilon=0.1)
    assert torch.equal(result.success, expected.success)
    assert compiled.training


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_a_compiled_module_that_is_frozen_is_taken_too(digits):
    """It has no mode: `training` is not there."""
    frozen = torch.jit.freeze(torch.jit.script(copy.deepcopy(digits.module).eval()))
    case = (digits.inputs, digits.labels)
    for name in ("torchattacks:fgsm", "art:square", "foolbox:ddn"):
        settings = {"norm": "linf", "epsilon": 0.1} if name != "foolbox:ddn" else {"norm": "l2", "steps": 10}
        result = davylamp.run_attack(name, frozen, *case, **settings)
        expected = davylamp.run_attack(name, digits.module, *case, **settings)
        assert torch.equal(result.success, expected.success)


def test_an_interrupted_attack_leaves_the_module_as_it_was(digits, tmp_path):
    def spoil(model, inputs, labels, epsilon):
        module[0].weight.data.zero_()
        module[0].register_forward_hook(lambda *_: None)
        signal.raise_signal(signal.SIGINT)  # as typed: a bare KeyboardInterrupt is an error of the attack
        return inputs

    module = copy.deepcopy(digits.module).train()
    before = snapshot(module)
    case = (ThreatModel("linf", 0.1), digits.inputs, digits.labels)
    for model in (module, Classifier(module)):
        with pytest.raises(KeyboardInterrupt):
            davylamp.run_attack(davylamp.as_implementation(spoil, norm="linf"), model, *case[1:], case[0])
        assert unchanged(before, module)


def test_the_layout_and_device_of_a_module_stay(digits):
    module = copy.deepcopy(digits.module).to(memory_format=torch.channels_last)
    strides = [parameter.stride() for parameter in module.parameters()]
    places = [parameter.data_ptr() for parameter in module.parameters()]
    davylamp.run_attack("foolbox:fgsm", module, digits.inputs, digits.labels, epsilon=0.1)
    assert [parameter.stride() for parameter in module.parameters()] == strides
    assert [parameter.data_ptr() for parameter in module.parameters()] == places


def test_a_setting_that_is_none_is_named_with_what_was_meant(digits, tmp_path):
    case = (digits.module, digits.inputs, digits.labels)
    with pytest.raises(UnknownName, match="unknown setting 'metrics'; did you mean measures"):
        davylamp.evaluate(*case, attacks="foolbox:fgsm", epsilon=0.05, metrics=["my.py:f"], out=tmp_path / "r")
    with pytest.raises(UnknownName, match="did you mean limit"):
        davylamp.evaluate(*case, attacks="foolbox:fgsm", epsilon=0.05, limt=2, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
