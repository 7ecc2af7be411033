"""A user's own attack: what is read off it, that it runs as a library's row of the same algorithm does, and that it is
judged, counted and stored like any other."""

import copy
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from davylamp.adapters import Classifier, ThreatModel, as_implementation, find_implementation, run_attack
from davylamp.adapters.catalogue.default_threat_model import choose_threat_model
from davylamp.adapters.catalogue.lookup import accepted_parameters, library_defaults
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, compare, evaluate, load, make_plan, search_radius
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.plan.choices import chosen_of_cell
from davylamp.engine.store.plan_records import list_cells
from davylamp.errors import AttackFailed, InvalidInput, Unavailable, UnknownName, Unsupported
from davylamp.report.citations.usage import items_used_in

with warnings.catch_warnings():  # what the libraries' own imports have to say is not the user's business
    warnings.simplefilter("ignore")
    import art.attacks.evasion
    import foolbox
    import torchattacks

LINF = ThreatModel("linf", 0.05)
FILE = """
import numpy as np
import torch
import torchattacks
from art.attacks.evasion import ProjectedGradientDescentPyTorch
from foolbox.attacks import LinfPGD
from torch.nn.functional import cross_entropy

import helper

def fgsm(model, inputs, labels, epsilon):
    return helper.ascend(model, inputs, labels, epsilon)

class OfTorchattacks(torchattacks.PGD): ...

class OfFoolbox(LinfPGD): ...

class OfART(ProjectedGradientDescentPyTorch): ...
"""
HELPER = """
from torch.nn.functional import cross_entropy

def ascend(model, inputs, labels, epsilon):
    inputs.requires_grad_(True)
    cross_entropy(model(inputs), labels).backward()
    return (inputs + epsilon * inputs.grad.sign()).clamp(0, 1).detach()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "helper.py").write_text(HELPER)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


def fgsm(model, inputs, labels, epsilon):
    inputs.requires_grad_(True)
    cross_entropy(model(inputs), labels).backward()
    return (inputs + epsilon * inputs.grad.sign()).clamp(0, 1).detach()


def same(a, b):
    assert torch.equal(a.adv_inputs, b.adv_inputs)
    assert torch.equal(a.success, b.success)
    assert torch.equal(a.forwards, b.forwards)
    assert torch.equal(a.backwards, b.backwards)
    assert a.violations == b.violations


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("fgsm", "torchattacks:fgsm"),
        ("OfTorchattacks", "torchattacks:pgd"),
        ("OfFoolbox", "foolbox:pgd"),
        ("OfART", "art:pgd"),
    ],
)
def test_a_file_gives_what_the_library_gives_bit_for_bit(file, digits, name, row):
    settings = {} if name == "fgsm" else {"steps": 5}
    mine = run_attack(f"mine.py:{name}", digits.classifier, digits.inputs, digits.labels, LINF, seed=3, **settings)
    theirs = run_attack(row, digits.classifier, digits.inputs, digits.labels, LINF, seed=3, **settings)
    assert mine.implementation == f"mine.py:{name}"
    assert (theirs.distances.linf > 0.049).all()
    same(mine, theirs)


def art_instance(module):
    from art.estimators.classification import PyTorchClassifier

    loss = torch.nn.CrossEntropyLoss()
    estimator = PyTorchClassifier(module, loss, (3, 16, 16), 10, clip_values=(0, 1), device_type="cpu")
    return art.attacks.evasion.ProjectedGradientDescentPyTorch(estimator, max_iter=5, verbose=False)


def torchattacks_instance(module):
    return torchattacks.PGD(module, eps=0.9, steps=5)


def foolbox_instance(_):
    return foolbox.attacks.LinfPGD(steps=5)


@pytest.mark.parametrize(
    ("make", "row"),
    [(torchattacks_instance, "torchattacks:pgd"), (foolbox_instance, "foolbox:pgd"), (art_instance, "art:pgd")],
)
def test_an_instance_is_run_as_a_copy_and_stays_as_it_is(make, row, digits):
    instance = make(copy.deepcopy(digits.module))
    before = dict(vars(instance))
    mine = run_attack(instance, digits.classifier, digits.inputs, digits.labels, LINF, seed=3)
    same(mine, run_attack(row, digits.classifier, digits.inputs, digits.labels, LINF, seed=3, steps=5))
    fewer = run_attack(instance, digits.classifier, digits.inputs, digits.labels, LINF, steps=2)
    assert int(fewer.backwards.max()) == 2
    assert vars(instance).keys() == before.keys()
    assert all(vars(instance)[word] is before[word] for word in before)


def test_the_radius_of_an_instance_is_its_own_unless_another_is_given(digits):
    row = as_implementation(torchattacks_instance(digits.module))
    assert choose_threat_model("PGD", [row], 768, norm="linf").epsilon == 0.9
    assert choose_threat_model("PGD", [row], 768, norm="linf", epsilon=0.1).epsilon == 0.1


def test_what_can_be_known_is_read_off():
    row = as_implementation(torchattacks.PGDL2)
    assert (row.name, list(row.classes), row.targeted, row.described.kind) == (
        "user:PGDL2",
        ["l2"],
        "yes",
        "fixed-budget",
    )
    assert library_defaults(row, "l2")["steps"] == 10
    assert {"steps", "step_size", "random_start", "eps_for_division"} <= set(accepted_parameters(row))
    row = as_implementation(foolbox.attacks.L2DeepFoolAttack)
    assert (list(row.classes), row.described.kind, row.failure) == (["l2"], "minimum-norm", "input")
    row = as_implementation(fgsm)
    assert not row.says_norm
    assert len(row.assumed) == 2
    with pytest.raises(InvalidInput, match=r"user:fgsm declares no norm.*`norm='linf'`"):
        choose_threat_model("fgsm", [row], 768)


def wobble(model, inputs, labels, epsilon, n_iter=3, beta=0.5, *, seed=0, loud=False):
    """Moves every pixel by beta times the radius, several times."""
    for _ in range(n_iter):
        model(inputs)
    return (inputs + beta * epsilon).clamp(0, 1)


wobble.norm, wobble.knowledge, wobble.random = "linf", "score-based", ()


def test_words_of_other_libraries_and_parameters_of_its_own(digits):
    row = as_implementation(wobble)
    assert row.params == {"steps": "n_iter", "beta": "beta", "seed": "seed", "loud": "loud"}
    assert (row.described.knowledge, row.assumed, row.random) == ("score-based", (), ())
    assert row.described.source.startswith("Moves every pixel")
    result = run_attack(wobble, digits.classifier, digits.inputs, digits.labels, LINF, steps=4, beta=0.25)
    assert result.parameters == {"steps": 4, "beta": 0.25}
    assert result.forwards.tolist() == [4] * 16
    assert torch.allclose(result.distances.linf, torch.tensor(0.25 * 0.05, dtype=torch.double), atol=1e-6)
    with pytest.raises(UnknownName, match="did you mean steps"):
        run_attack(wobble, digits.classifier, digits.inputs, digits.labels, LINF, n_iter=4)
    with pytest.raises(InvalidInput, match="beta as float"):
        run_attack(wobble, digits.classifier, digits.inputs, digits.labels, LINF, beta="much")


class Corner:
    """Called like a function, set up like a class."""

    norm = "linf"

    def __init__(self, steps=2):
        self.steps = steps

    def __call__(self, model, inputs, labels, epsilon, targets=None):
        for _ in range(self.steps):
            model(inputs)
        return ((inputs + epsilon).clamp(0, 1)).numpy()


def test_a_class_that_is_called_like_a_function(digits):
    row = as_implementation(Corner)
    assert (row.params, row.targeted) == ({"steps": "steps"}, "yes")
    for thing, count in ((Corner, 3), (Corner(steps=5), 5)):
        settings = {"steps": 3} if thing is Corner else {}
        result = run_attack(thing, digits.classifier, digits.inputs, digits.labels, LINF, **settings)
        assert result.forwards.tolist() == [count] * 16


def test_keywords_win_over_what_was_read():
    row = as_implementation(fgsm, name="mine", norm=2, knowledge="decision-based", kind="minimum-norm", targeted=False)
    assert (row.name, list(row.classes)) == ("user:mine", ["l2"])
    assert (row.described.knowledge, row.described.kind) == ("decision-based", "minimum-norm")
    for wrong in ({"norm": "l7"}, {"kind": "quick"}, {"knowledge": "all"}, {"speed": 1}):
        with pytest.raises(InvalidInput, match=r"expected|unknown property"):
            as_implementation(fgsm, **wrong)


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (3, "expected a function"),
        (lambda model: model, r"arguments \(model, inputs, labels, epsilon"),
        (lambda model, inputs, labels, epsilon, secret: inputs, "a default for parameter secret"),
        (
            lambda x, y, model, epsilon: x,
            r"got \(x, y, model, epsilon\); .*move model",
        ),
        (lambda model, labels, inputs: inputs, r"got \(model, labels, inputs\); .*move inputs"),
    ],
)
def test_what_is_no_attack_is_refused_with_what_was_expected(thing, words):
    with pytest.raises(InvalidInput, match=words):
        as_implementation(thing)


def test_files_that_hold_none(file):
    with pytest.raises(UnknownName, match=r"unknown attack in .*mine\.py 'fgms'; did you mean fgsm"):
        find_implementation("mine.py:fgms")
    with pytest.raises(Unavailable, match="expected a Python file with an attack"):
        find_implementation("nothing.py:fgsm")
    file.write_text("attack = 3")
    with pytest.raises(InvalidInput, match="expected a function"):
        find_implementation("mine.py:attack")


def _clean(model, inputs, labels, epsilon):
    model(inputs)
    return inputs


def _far(model, inputs, labels, epsilon):
    return (inputs + 0.5).clamp(0, 1)


def _nan(model, inputs, labels, epsilon):
    return inputs * float("nan")


def _changes(model, inputs, labels, epsilon):
    next(model.classifier.model.parameters()).data.zero_()
    return (inputs + epsilon).clamp(0, 1)


LIARS = {_clean: "unchanged", _far: "out-of-ball", _nan: "nan", _changes: "model-changed"}


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.__name__)
def test_liars_are_judged_like_any_library(liar, digits):
    module = copy.deepcopy(digits.module)
    weights = [parameter.clone() for parameter in module.parameters()]
    row = as_implementation(liar, norm="linf")
    result = run_attack(row, Classifier(module), digits.inputs, digits.labels, LINF)
    assert all(LIARS[liar] in kinds for kinds in result.violations)
    assert not result.robust.any()
    assert all(torch.equal(a, b) for a, b in zip(weights, module.parameters(), strict=True))


def _nothing(model, inputs, labels, epsilon):
    return None


def _one_image(model, inputs, labels, epsilon):
    return inputs[:1]


def _asks_with_an_array(model, inputs, labels, epsilon):
    return model(inputs.numpy())


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (_nothing, "to return the adversarial images"),
        (_one_image, r"expected images of shape \(16, 3, 16, 16\) from user:_one_image, got \(1, 3, 16, 16\)"),
        (_asks_with_an_array, r"for the model, got a NumPy array; convert it with torch.from_numpy"),
    ],
)
def test_one_that_ends_badly_has_failed(broken, words, digits):
    with pytest.raises(AttackFailed, match=words):
        run_attack(broken, digits.classifier, digits.inputs, digits.labels, LINF)


def test_budget_restarts_and_best_effort_hold(digits):
    case = (digits.classifier, digits.inputs, digits.labels)
    spent = run_attack(torchattacks.PGD, *case, LINF, steps=20, max_queries=6)
    assert int((spent.forwards + spent.backwards).max()) <= 6
    mine = search_radius(as_implementation(torchattacks.PGD), *case, ThreatModel("linf"), steps=5, random_start=False)
    theirs = search_radius("torchattacks:pgd", *case, ThreatModel("linf"), steps=5, random_start=False)
    assert torch.allclose(mine.budget, theirs.budget, rtol=0.1)
    with pytest.raises(Unsupported, match="no targeted mode"):
        run_attack(fgsm, *case, ThreatModel("linf", 0.1, targeted=True), targets=(digits.labels + 1) % 10)


def test_compared_beside_a_library_it_is_identical(digits):
    rows = [find_implementation("torchattacks:pgd"), as_implementation(torchattacks.PGD)]
    case = (digits.classifier, digits.inputs, digits.labels, LINF)
    comparison = compare("pgd", *case, rows=rows, parameters={"steps": 5})
    assert [pair.verdict for pair in comparison.pairs] == ["identical"]
    assert compare(fgsm, *case).rows[0].implementation.name == "user:fgsm"


def test_an_edit_of_the_code_runs_the_cell_again_and_the_folder_stays_readable(file, digits):
    config = Config(attacks=("foolbox:fgsm", AttackChoice("mine.py:fgsm", "linf", 0.05)), limit=4)
    store, models = ResultsStore(file.parent / "results"), {"net": digits.classifier}

    def again():
        images = Data(digits.inputs, digits.labels, [str(i) for i in range(16)])
        return evaluate(make_plan(config, models=models, data=images), store)

    assert again().done == 2
    assert again().done == 0
    (file.parent / "helper.py").write_text(HELPER.replace("epsilon *", "0.5 * epsilon *"))
    file.write_text(FILE + "\n# saved again")
    assert again().done == 1
    file.unlink()
    table = load(store.folder)
    mine = table[table["implementation"] == "mine.py:fgsm"]
    assert sorted(mine.groupby("cell")["linf"].max().round(4)) == [0.025, 0.05]
    assert set(mine["library"]) == {"mine.py"}
    assert table.attrs["unknown"] == {}


def test_functions_of_one_name_are_attacks_of_their_own_unless_they_say_which_they_are(file, digits):
    """Two files' `pgd` were one attack, and one with PGD: ranked together, said to disagree, and cited as it."""
    weak = "def pgd(model, inputs, labels, epsilon):\n    model(inputs)\n    return (inputs + epsilon).clamp(0, 1)\n"
    for name, more in (("m1", ""), ("m2", "# another\n"), ("m3", "pgd.canonical = 'pgd'\n")):
        (file.parent / f"{name}.py").write_text(f"{weak}pgd.norm = 'linf'\n{more}")
    undeclared = ("m1.py:pgd", "m2.py:pgd", "best(m1.py:pgd)")
    attacks = [AttackChoice(name, "linf", None if "best" in name else 0.05) for name in undeclared]
    store, images = ResultsStore(file.parent / "results"), Data(digits.inputs, digits.labels, [*map(str, range(16))])

    def attacks_after(*more):
        plan = make_plan(Config(attacks=(*attacks, *more)), models={"net": digits.classifier}, data=images)
        mine = [cell for cell in plan.cells if cell.attack in undeclared]
        assert not any("parameters" in chosen_of_cell(plan.config, cell) for cell in mine)
        evaluate(plan, store)
        return set(load(store.folder)["attack"])

    assert attacks_after() == set(undeclared)
    assert {each.name for each in items_used_in(store.folder) if each.kind == "attack"} == {"m1.py:pgd", "m2.py:pgd"}
    library = AttackChoice("foolbox:pgd", "linf", 0.05)
    assert attacks_after(library, AttackChoice("m3.py:pgd", "linf", 0.05)) == {*undeclared, "pgd"}
    for path in file.parent.glob("m*.py"):
        path.unlink()
    states = {state.cell.attack: state.cell.attack_title for state in list_cells(store.folder)}
    assert states == {**dict(zip(undeclared, undeclared, strict=True)), "foolbox:pgd": "pgd", "m3.py:pgd": "pgd"}
    compared = [check.subject for check in check_folder(store.folder) if check.name == "libraries"]
    assert compared == ["pgd (linf 0.05) on net"]


def test_the_canonical_attack_has_to_be_in_the_catalogue(digits):
    assert (as_implementation(fgsm).canonical_name, find_implementation("foolbox:pgd").canonical_name) == (
        "user:fgsm",
        "pgd",
    )
    assert as_implementation(fgsm, canonical="pgd").canonical_name == "pgd"
    with pytest.raises(UnknownName, match="unknown canonical attack of user:fgsm 'pdg'; did you mean"):
        run_attack(as_implementation(fgsm, canonical="pdg"), digits.classifier, digits.inputs, digits.labels, LINF)
    with pytest.raises(InvalidInput, match="`canonical` of user:fgsm as the name of a canonical attack, got 3"):
        as_implementation(fgsm, canonical=3)


def test_objects_take_part_in_an_evaluation(digits, tmp_path):
    images = Data(digits.inputs, digits.labels, [str(i) for i in range(16)])
    config = Config(attacks=(AttackChoice(wobble, "linf", 0.05, parameters={"beta": 0.75}),), limit=4)
    plan = make_plan(config, models={"net": digits.classifier}, data=images)
    evaluate(plan, ResultsStore(tmp_path))
    table = load(tmp_path)
    assert set(table["implementation"]) == {"user:wobble"}
    assert np.allclose(table["linf"], 0.75 * 0.05, atol=1e-6)
    assert set(table["knowledge"]) == {"score-based"}


def test_a_cell_can_be_sent_to_another_process(file, digits):
    row = pickle.loads(pickle.dumps(find_implementation("mine.py:fgsm")))
    assert row == find_implementation("mine.py:fgsm")
    same(
        run_attack(row, digits.classifier, digits.inputs, digits.labels, LINF),
        run_attack(fgsm, digits.classifier, digits.inputs, digits.labels, LINF),
    )


@pytest.fixture
def project(file, run, digits):
    """Beside the attacks a file with the model, and images."""
    np.savez("images.npz", inputs=digits.inputs.numpy(), labels=digits.labels.numpy())
    torch.save(digits.module, "net.pt")
    Path("net.py").write_text("import torch\n\ndef net():\n    return torch.load('net.pt', weights_only=False)\n")
    return run


def test_the_command_line_from_the_attack_to_the_report(project):
    run = project
    common = ("--data", "npz:images.npz", "--norm", "linf", "--epsilon", "0.05")
    code, out, _ = run("attacks", "mine.py:OfFoolbox")
    assert code == 0
    assert "rel_stepsize" in out
    code, out, err = run("compare", "mine.py:fgsm", "--model", "net.py:net", *common, "--also", "foolbox:fgsm")
    assert code == 0, err
    assert "identical" in out
    assert "assumed white-box" in err
    attacks = "foolbox:pgd,mine.py:fgsm,best(mine.py:OfFoolbox)"
    code, _, err = run("evaluate", "--models", "net.py:net", "--attacks", attacks, *common, "--param", "steps=5")
    assert code == 0, err
    for command in (("table", "results"), ("rank", "results", "--subjects", "attacks"), ("status", "results")):
        code, out, err = run(*command)
        assert code == 0, err
        assert "fgsm" in out
    code, _, err = run("report", "results", "-o", "report.html")
    assert code == 0, err
    assert "mine.py:fgsm" in Path("report.html").read_text()


def test_it_is_described_in_toml_too(project):
    run = project
    Path("run.toml").write_text(
        'models = ["net.py:net"]\ndata = "npz:images.npz"\nlimit = 2\n[[attacks]]\nattack = "mine.py:OfFoolbox"\n'
        "epsilon = 0.05\n[attacks.parameters]\nrel_stepsize = 0.1\nsteps = 3\n"
    )
    code, _, err = run("evaluate", "run.toml")
    assert code == 0, err
    assert set(load("results")["parameters"]) == {'{"rel_stepsize": 0.1, "steps": 3}'}
    code, _, err = run("evaluate", "run.toml", "--attacks", "mine.py:OfFoolbox", "--param", "eps=3", "--norm", "linf")
    assert code == 1
    assert "did you mean epsilon?" in err


class Odd(BaseException): ...


class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")


def ends(model, inputs, labels, epsilon, way="interrupt"):
    attacked = fgsm(model, inputs, labels, epsilon)
    if way == "complex":
        return attacked.to(torch.complex64)
    if way == "sparse":
        return attacked.to_sparse()
    if way == "exit":
        os._exit(0)
    raise {"interrupt": KeyboardInterrupt, "odd": Odd, "mute": Mute, "lines": ValueError}[way](*["a\nb\n" * 999])


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("interrupt", "KeyboardInterrupt"),
        ("odd", "Odd: a b "),
        ("mute", "Mute (line "),
        ("lines", "ValueError: a b "),
        ("exit", "os._exit: 0 (line "),
        ("complex", "TypeError: expected images of real numbers"),
        ("sparse", "TypeError: expected images of real numbers"),
    ],
)
@pytest.mark.usefixtures("protected")
def test_whatever_ends_it_is_one_line_and_a_failed_attack(digits, way, reason):
    with pytest.raises(AttackFailed) as error:
        run_attack(ends, digits.classifier, digits.inputs, digits.labels, LINF, way=way)
    line = str(error.value)
    assert line.startswith(f"user:ends crashed: {reason}")
    assert "\n" not in line
    assert len(line) < 400


def roams(model, inputs, labels, epsilon):
    attacked = fgsm(model, inputs, labels, epsilon)
    print("from Python")
    os.system("echo from a program")
    os.chdir("/")
    np.seterr(all="raise")
    torch.set_default_dtype(torch.float64)
    return attacked


@pytest.mark.usefixtures("protected")
def test_what_it_does_to_the_process_is_put_back(digits, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    before = np.geterr()
    result = run_attack(roams, digits.classifier, digits.inputs, digits.labels, LINF)
    same(result, run_attack(fgsm, digits.classifier, digits.inputs, digits.labels, LINF))
    assert Path.cwd() == tmp_path
    assert np.geterr() == before
    assert torch.get_default_dtype() == torch.float32
    out, err = capfd.readouterr()
    assert out == ""
    assert "from Python" in err
    assert "from a program" in err


class OneHot(art.attacks.attack.EvasionAttack):
    """ART's own `loss_gradient` takes one-hot labels only."""

    attack_params = (*art.attacks.attack.EvasionAttack.attack_params, "eps")
    _estimator_requirements = ()
    norm = "linf"

    def __init__(self, estimator, eps=0.3):
        super().__init__(estimator=estimator)
        self.eps = eps

    def generate(self, x, y=None, **_):
        return np.clip(x + self.eps * np.sign(self.estimator.loss_gradient(x, y)), 0, 1)


def test_an_art_class_may_ask_for_loss_gradients(digits):
    result = run_attack(OneHot, digits.classifier, digits.inputs, digits.labels, LINF)
    expected = run_attack(fgsm, digits.classifier, digits.inputs, digits.labels, LINF)
    assert torch.allclose(result.adv_inputs, expected.adv_inputs, atol=1e-6)


def test_the_identity_of_an_object_is_what_it_does_and_holds_whatever_model_it_is_bound_to():
    def identity(thing):
        return as_implementation(thing).given.identity.digest

    assert identity(fgsm) == identity(fgsm) != identity(wobble)
    assert identity(Corner(2)) == identity(Corner(2)) != identity(Corner(3))
    first, second = (identity(torchattacks_instance(torch.nn.Linear(2, classes))) for classes in (2, 3))
    assert first == second


def test_an_edited_neighbour_is_noticed_in_the_same_process(file, digits):
    before = find_implementation("mine.py:fgsm")
    assert find_implementation("mine.py:fgsm") is before
    file.with_name("helper.py").write_text(HELPER.replace("epsilon * inputs", "0.5 * epsilon * inputs"))
    after = find_implementation("mine.py:fgsm")
    assert before.given.identity.digest != after.given.identity.digest
    moved = [
        run_attack(row, digits.classifier, digits.inputs, digits.labels, LINF).distances.linf.max().item()
        for row in (before, after)
    ]
    assert moved[1] == pytest.approx(moved[0] / 2, rel=1e-4)  # each runs the code that its identity is of
