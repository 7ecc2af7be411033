"""One comparison has one verdict: in the terminal, in JSON, on the page and in the failure indicators of its folder."""

import json

import pytest

from davylamp.adapters import ThreatModel, find_implementation
from davylamp.adapters.data.datasets import Data
from davylamp.engine import AttackChoice, Config, ResultsStore, evaluate, make_plan
from davylamp.engine.checks.check_folder import check_folder
from davylamp.engine.checks.verdicts import verdicts_of
from davylamp.engine.comparison.compare import compare
from davylamp.engine.store.results import read_outcomes
from davylamp.errors import AttackFailed
from davylamp.report.page.build import build_report
from davylamp.report.text.comparison import comparison_json

TRIALS = (
    ("pgd", ThreatModel("linf", 0.1), {"steps": 5}, ("art:pgd", "foolbox:pgd", "torchattacks:pgd")),
    ("cw", ThreatModel("l2"), {"steps": 5, "initial_const": 1.0}, ("art:cw", "foolbox:cw", "torchattacks:cw")),
)
NUMBERS = ("verdict", "weaker", "images", "left_out", "only_a", "only_b", "p_success", "p_counts_below", "reason")


@pytest.fixture(scope="module")
def digits(digits):
    """Eight images, enough for a difference to be seen."""
    return digits.first(8)


@pytest.fixture(scope="module")
def compared(digits, tmp_path_factory):
    """Two attacks through three libraries each: compared, and evaluated into one folder."""
    folder = tmp_path_factory.mktemp("compared") / "results"
    data = Data(digits.inputs, digits.labels, [f"{place}.png" for place in range(8)])
    comparisons = []
    for attack, rules, parameters, names in TRIALS:
        rows = [find_implementation(name) for name in names]
        arguments = (attack, digits.classifier, digits.inputs, digits.labels, rules)
        comparisons.append(compare(*arguments, rows=rows, parameters=parameters))
    fill(folder, digits.classifier, data, TRIALS)
    return folder, comparisons


def fill(folder, classifier, data, trials):
    """Evaluate the same rows with the same parameters into a folder."""
    choices = [
        AttackChoice(name, rules.norm, epsilon=rules.epsilon, parameters=parameters)
        for _, rules, parameters, names in trials
        for name in names
    ]
    config = Config(attacks=tuple(choices), data="eight", measures=("effect", "cost", "distance"))
    evaluate(make_plan(config, models={"digits": classifier}, data=data), ResultsStore(folder))


def test_page_terminal_and_indicator_say_the_same_of_every_pair(compared, tmp_path):
    folder, comparisons = compared
    ours = {(pair.a, pair.b): pair.judgement for each in comparisons for pair in each.pairs}
    theirs = {(pair.a, pair.b): pair.judgement for pair in verdicts_of(read_outcomes(folder))}
    assert len(ours) == 6
    assert {pair: vars(one) for pair, one in theirs.items()} == {pair: vars(one) for pair, one in ours.items()}
    page = build_report(folder)
    for (a, b), judgement in ours.items():
        assert f"{a}</" in page
        assert judgement.text.replace("'", "&#39;") in page, (a, b)
    documents = [json.loads(comparison_json(each)) for each in comparisons]
    said = {(pair["a"], pair["b"]): pair["verdict"] for each in documents for pair in each["pairs"]}
    assert said == {pair: judgement.verdict for pair, judgement in ours.items()}
    for check in (check for check in check_folder(folder) if check.name == "libraries"):
        texts = [
            judgement.text for (a, _), judgement in ours.items() if a.partition(":")[2] == check.subject.split()[0]
        ]
        assert any(check.detail.endswith(text) or text in check.detail for text in texts)
        guilty = any(text.startswith(("weaker", "broken")) for text in texts)
        assert (check.state == "fail") == guilty


def test_a_library_that_crashed_is_broken_on_the_page_too(digits, tmp_path, monkeypatch):
    arguments = ("pgd", digits.classifier, digits.inputs, digits.labels, ThreatModel("linf", 0.1))

    def crash(row, *given, **options):
        if row.library == "foolbox":
            raise AttackFailed("foolbox:pgd crashed: no")
        return run(row, *given, **options)

    from davylamp.engine.comparison import compare as module
    from davylamp.engine.searches import single

    run = module.run_attack
    monkeypatch.setattr(module, "run_attack", crash)
    monkeypatch.setattr(single, "run_attack", crash)
    _, _, parameters, names = TRIALS[0]
    comparison = compare(*arguments, rows=[find_implementation(name) for name in names], parameters=parameters)
    data = Data(digits.inputs, digits.labels, [f"{place}.png" for place in range(8)])
    fill(tmp_path, digits.classifier, data, TRIALS[:1])
    ours = {(pair.a, pair.b): (pair.verdict, pair.weaker) for pair in comparison.pairs}
    theirs = [(pair.a, pair.b, pair.judgement) for pair in verdicts_of(read_outcomes(tmp_path))]
    assert {frozenset(pair): said for pair, said in ours.items()} == {
        frozenset((a, b)): (judgement.verdict, judgement.weaker) for a, b, judgement in theirs
    }
    assert [said[0] for said in ours.values()].count("broken") == 2
    (check,) = [check for check in check_folder(tmp_path) if check.name == "libraries"]
    assert check.state == "fail"


def test_other_parameters_are_another_comparison(digits, tmp_path):
    """1 step of one library beside 20 of another are no pair; nor are a library's defaults beside matched ones."""
    data = Data(digits.inputs, digits.labels, [f"{place}.png" for place in range(8)])
    few, many = ({"parameters": {"steps": steps}} for steps in (1, 20))
    choices = [
        AttackChoice(f"{library}:pgd", "linf", epsilon=0.1, **more)
        for library, more in (("foolbox", few), ("foolbox", many), ("torchattacks", few), ("torchattacks", many))
    ]
    choices += [AttackChoice("art:pgd", "linf", epsilon=0.1, defaults=True)]
    config = Config(attacks=tuple(choices), data="digits", measures=("effect",))
    evaluate(make_plan(config, models={"net": digits.classifier}, data=data), ResultsStore(tmp_path))
    pairs = verdicts_of(read_outcomes(tmp_path))
    assert len(pairs) == 2
    assert {pair.judgement.pairs for pair in pairs} == {1}
    for pair in pairs:
        assert len({each.cell.parameters["steps"] for each in pair.contenders}) == 1
