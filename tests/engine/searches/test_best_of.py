"""Best effort of several attacks: exact costs, the nearest of everything, and honest failures."""

import pytest
import torch
from torch import nn

from davylamp.adapters import Classifier, ThreatModel, run_attack
from davylamp.adapters.libraries.foolbox import driver as foolbox
from davylamp.adapters.libraries.torchattacks import driver as torchattacks
from davylamp.adapters.running.judge import perturbation_distances
from davylamp.engine.searches import portfolio_schedule, radius_search
from davylamp.engine.searches.portfolio import default_names, search_portfolio
from davylamp.errors import AttackFailed, InvalidInput, ModelDied, Unavailable, UnknownName, Unsupported

PAIR = ("adv-lib:fmn", "foolbox:pgd")
LINF = ThreatModel("linf")


class Shaken(nn.Module):
    """Images with a little noise, other noise each time."""

    def forward(self, inputs):
        return inputs + 0.01 * torch.randn_like(inputs)


def search(case, attacks=PAIR, threat_model=LINF, **parameters):
    return search_portfolio(attacks, case.classifier, case.inputs, case.labels, threat_model, **parameters)


@pytest.fixture
def watched(monkeypatch):
    """Every run of a search: its row, the places of its images, and its result."""
    runs = []

    def watch(row, classifier, inputs, labels, threat_model, **words):
        result = run_attack(row, classifier, inputs, labels, threat_model, **words)
        runs.append((row, words["first"], result))
        return result

    monkeypatch.setattr(portfolio_schedule, "run_attack", watch)
    monkeypatch.setattr(radius_search, "run_attack", watch)
    return runs


@pytest.mark.parametrize("limit", [10, 50, 133])
def test_costs_are_those_of_all_runs_and_end_at_the_limit(digits, watched, limit):
    result = search(digits.first(5), max_queries=limit)
    forwards, backwards, runs = (torch.zeros(5, dtype=torch.long) for _ in range(3))
    least = torch.full((5,), torch.inf, dtype=torch.double)
    for _, places, run in watched:
        forwards[places] += run.forwards
        backwards[places] += run.backwards
        runs[places] += 1
        least[places] = least[places].minimum(run.distance.masked_fill(~run.success, torch.inf))
    assert torch.equal(result.forwards, forwards)
    assert torch.equal(result.backwards, backwards)
    assert torch.equal(result.runs, runs)
    assert (forwards + backwards <= limit).all()
    assert (forwards + backwards > 0.9 * limit - 8).all()
    assert (result.distance.masked_fill(~result.success, torch.inf) <= least).all()
    assert {row.name for row, *_ in watched} - {"user:line"} == ({"adv-lib:fmn"} if limit < 100 else set(PAIR))
    assert result.implementation == "best(adv-lib:fmn,foolbox:pgd)"
    assert result.parameters == {"max_queries": limit}


@pytest.mark.parametrize(("limit", "early"), [(150, 0), (250, 204), (270, 200)])
def test_what_comes_from_far_outside_gets_its_passes_at_once_if_they_suffice(digits, watched, limit, early):
    search(digits.first(3), ("adv-lib:ddn@fixed", "adv-lib:pdgd"), ThreatModel("l2"), max_queries=limit)
    (first, _, opening), (second, _, run) = watched[:2]
    assert first.name == "adv-lib:ddn@fixed"
    assert (opening.forwards + opening.backwards <= 40).all()
    if early:
        assert second.name == "adv-lib:pdgd"
        cost = run.forwards + run.backwards
        assert (cost == early).all()  # its schedule is longer and is cut off
    else:
        assert "adv-lib:pdgd" not in {row.name for row, *_ in watched}


@pytest.mark.parametrize(("limit", "opening", "steps"), [(87, 40, 0), (88, 32, 1), (200, 32, 1)])
def test_deepfool_has_one_step_for_the_nearest_class_after_the_opening(digits, watched, limit, opening, steps):
    case, names = digits.first(4), default_names("l2")
    result = search(case, names, ThreatModel("l2"), max_queries=limit)
    costs = torch.zeros(4, dtype=torch.long)
    for _, places, run in watched:
        costs[places] += run.forwards + run.backwards
    assert torch.equal(result.forwards + result.backwards, costs)
    assert (costs <= limit).all()
    assert (watched[0][2].forwards + watched[0][2].backwards == opening).all()
    taken = [(places, run) for row, places, run in watched if row.name == "adv-lib:deepfool"]
    assert sorted(image for places, _ in taken for image in places.tolist()) == sorted([*range(4)] * steps)
    for _, run in taken:
        assert (run.backwards == 9).all()  # for each other class
        assert (run.forwards == 2).all()
    assert [row.name for row, *_ in watched[1:][: len(taken)]] == ["adv-lib:deepfool"] * len(taken)
    assert (limit >= 200) == any(row.name == "adv-lib:pdgd" for row, *_ in watched)  # it leaves PDGD its passes


def test_the_nearest_class_is_found_though_another_is_likelier(watched):
    class Slopes(nn.Module):
        """Class 1 is likely and its slope gentle: 1.0 away. Class 2 is unlikely and its slope steep: 0.5 away."""

        def forward(self, inputs):
            left, right = (inputs[..., half].flatten(1).sum(1) / 96**0.5 for half in (slice(4), slice(4, 8)))
            start = 0.5 * 96**0.5
            rest = torch.zeros_like(left)
            return torch.stack([rest, 2 * (left - start - 1), 20 * (right - start - 0.5), rest - 100], 1)

    model = Classifier(Slopes(), num_classes=4)
    case = model, torch.full((2, 3, 8, 8), 0.5), torch.zeros(2, dtype=torch.long), ThreatModel("l2")
    names = default_names("l2")
    result = search_portfolio(names, *case, max_queries=100)
    assert result.distance.tolist() == pytest.approx([0.5] * 2, rel=0.01)
    assert (result.distance >= 0.5 * (1 - 1e-4)).all()
    assert any(row.name == "adv-lib:deepfool" for row, *_ in watched)
    without = search_portfolio(tuple(name for name in names if name != "adv-lib:deepfool"), *case, max_queries=100)
    assert (without.distance > 0.98).all()


def test_of_two_classes_too_deepfool_looks_at_where_its_step_led(watched):
    """Three passes: a forward, the gradient of the other class, and the point on the other side of the boundary."""
    linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    nn.init.constant_(linear[1].bias, 0.0)
    with torch.no_grad():
        linear[1].weight.copy_(torch.stack([torch.zeros(192), torch.where(torch.arange(192) < 100, -1.0, 1.0)]))
    case = Classifier(linear, num_classes=2), torch.full((2, 3, 8, 8), 0.5), torch.zeros(2, dtype=torch.long)
    search_portfolio(default_names("l2"), *case, ThreatModel("l2"), max_queries=80)
    (run,) = (run for row, _, run in watched if row.name == "adv-lib:deepfool")
    assert run.forwards.tolist() == [2, 2]
    assert run.backwards.tolist() == [1, 1]
    assert run.success.all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize(("limit", "eot"), [(30, 3), (100, 10), (300, 3)])
def test_draws_that_an_attack_sees_the_mean_of_end_at_the_limit_too(digits, watched, norm, limit, eot):
    """Each draw of an answer is a pass, on the line at the end and in DeepFool's step, which is whole or not made."""
    model = Classifier(nn.Sequential(Shaken(), digits.module), random=True, num_classes=10)
    model.draws, model.eot = 3, eot
    result = search_portfolio(
        default_names(norm), model, digits.inputs[:3], digits.labels[:3], ThreatModel(norm), max_queries=limit
    )
    assert (result.forwards + result.backwards <= limit).all()
    taken = [run for row, _, run in watched if row.name == "adv-lib:deepfool"]
    assert bool(taken) == (norm == "l2" and limit == 300)
    for run in taken:
        assert (run.forwards == 2 * eot).all()
        assert (run.backwards == 9 * eot).all()


def test_deepfool_as_the_opener_takes_turns_and_in_linf_too(digits, watched):
    for names, norm in (
        (("adv-lib:deepfool", "adv-lib:fmn@fixed"), "l2"),
        (("adv-lib:fmn", "adv-lib:deepfool"), "linf"),
    ):
        watched.clear()
        search(digits.first(2), names, ThreatModel(norm), max_queries=200)
        turns_of = [places.tolist() for row, places, _ in watched if row.name == "adv-lib:deepfool"]
        assert sum(map(len, turns_of)) > 2


@pytest.mark.parametrize(("norm", "limit"), [("l2", 50), ("l2", 200), ("linf", 200)])
def test_the_last_run_goes_on_from_the_nearest_examples_and_comes_nearer(digits, watched, monkeypatch, norm, limit):
    case, names = digits.first(6), default_names(norm)
    result = search(case, names, ThreatModel(norm), max_queries=limit)
    least = torch.full((6,), torch.inf, dtype=torch.double)
    begun = []
    for row, images, run in watched[:-1]:
        examples = row.fixed.get("starting_points")
        if examples is not None:
            begun += images.tolist()
            assert row.name.startswith("adv-lib:fmn")
            assert (digits.module(examples).argmax(1) != case.labels[images]).all()
            start = getattr(perturbation_distances(case.inputs[images], examples), norm)
            assert (start <= least[images] + 1e-6).all()  # what was asked about may be nearer than what was returned
            assert (run.forwards + run.backwards <= 48).all()
        least[images] = least[images].minimum(run.distance.masked_fill(~run.success, torch.inf))
    assert watched[-1][0].name == "user:line"
    assert sorted(begun) == sorted([*range(6)] * (2 if norm == "linf" else 1))  # in linf the first turn, too
    watched.clear()
    monkeypatch.setattr(portfolio_schedule, "last_passes", lambda *_: 0)
    monkeypatch.setattr(portfolio_schedule, "starts_from_best", lambda *_: False)
    without = search(case, names, ThreatModel(norm), max_queries=limit)
    assert not any("starting_points" in row.fixed for row, *_ in watched)
    assert result.distance.log().mean() < without.distance.log().mean() - 0.002


def test_where_examples_may_not_hold_no_run_begins_at_them(digits, watched):
    search(digits.first(3), ("adv-lib:fmn", "foolbox:pgd"), ThreatModel("l1"), max_queries=80)
    search(digits.first(3), ("foolbox:ddn", "foolbox:pgd"), ThreatModel("l2"), max_queries=80)
    drawn = digits.first(2)._replace(module=nn.Sequential(Shaken(), digits.module))
    model = Classifier(drawn.module, num_classes=10, random=True)
    search_portfolio(PAIR, model, drawn.inputs, drawn.labels, LINF, max_queries=200)
    assert not any("starting_points" in row.fixed for row, *_ in watched)


def test_a_model_counts_the_same(digits):
    asked = []

    class Counting(nn.Module):
        def forward(self, inputs):
            if inputs.requires_grad:
                asked.append(len(inputs))
            return digits.module(inputs)

    classifier = Classifier(Counting())
    classifier.answers.note_gradients(there=True)  # else one image is asked whether there are any
    result = search_portfolio(PAIR, classifier, digits.inputs[:3], digits.labels[:3], LINF, max_queries=100)
    assert sum(asked) == int(result.backwards.sum())


def test_curves_fall_from_the_first_success_to_the_distance_returned(digits):
    result = search(digits.first(6), max_queries=120)
    assert result.success.all()
    assert torch.equal(digits.module(result.adv_inputs).argmax(1) != digits.labels[:6], result.success)
    assert torch.equal(result.budget, result.distance)
    for curve, distance, cost in zip(
        result.curves, result.distance.tolist(), (result.forwards + result.backwards).tolist(), strict=True
    ):
        passes, sizes = zip(*curve, strict=True)
        assert list(passes) == sorted(passes)
        assert list(sizes) == sorted(set(sizes), reverse=True)
        assert sizes[-1] == pytest.approx(distance, abs=1e-12)
        assert 1 <= passes[0] <= passes[-1] <= cost


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_default_attacks_together_are_nearer_than_each_with_all_the_passes(digits, norm):
    limit, case = 200, digits.first(6)
    together = search(case, default_names(norm), ThreatModel(norm), max_queries=limit).distance.log().mean()
    for name in {"linf": default_names(norm)[:3], "l2": default_names(norm)[:4]}[norm]:
        rules, words = ThreatModel(norm), {"steps": limit // 2, "max_queries": limit}
        alone = run_attack(name, case.classifier, case.inputs, case.labels, rules, **words)
        assert together <= alone.distance.masked_fill(~alone.success, torch.inf).log().mean() + 0.005, name


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("names", [("adv-lib:fmn@fixed", "foolbox:pgd"), None])
def test_a_linear_model_is_fooled_at_its_least_perturbation(linear, norm, names):
    """FMN as shipped stops on the boundary, on its inner side, where the last bit of a product has it there."""
    result = search(linear, names or default_names(norm), ThreatModel(norm), max_queries=200)
    assert result.success.all()
    assert (result.distance >= linear.least[norm] * (1 - 1e-4)).all()
    assert (result.distance <= linear.least[norm] * 1.02).all()


def test_attacks_with_a_fixed_budget_alone_find_it_by_bisection(linear, watched):
    pair = ("foolbox:pgd", "art:fgsm")
    result = search(linear, pair, max_queries=250, random_start=False)
    assert (result.distance <= linear.least["linf"] * 1.02).all()
    assert (result.searched >= linear.least["linf"]).all()
    assert result.searched.isfinite().all()
    assert {row.name for row, *_ in watched} == {*pair, "user:line"}


def test_a_radius_is_the_limit_of_what_counts(digits):
    free = search(digits.first(6), max_queries=120)
    radius = float(free.distance.median())
    result = search(digits.first(6), threat_model=ThreatModel("linf", radius), max_queries=120)
    assert (result.distance[result.success] <= radius * 1.0001 + 1e-6).all()
    assert 1 <= result.success.sum() < 6
    assert torch.equal(result.robust, ~result.success)
    assert result.budget[~result.success].isinf().all()


@pytest.mark.parametrize("norm", ["linf", "l2"])  # in l2 with DeepFool, which is given its passes
def test_an_image_gets_what_it_would_get_alone(digits, norm):
    rules, names = ThreatModel(norm), PAIR if norm == "linf" else default_names("l2")
    words = {"max_queries": 120, "random_start": False} if norm == "linf" else {"max_queries": 100}
    together = search(digits.first(3), names, rules, **words)
    for image in range(3):
        one = digits._replace(inputs=digits.inputs[image : image + 1], labels=digits.labels[image : image + 1])
        alone = search(one, names, rules, first=image, **words)
        assert alone.distance[0] == pytest.approx(float(together.distance[image]), rel=1e-3)
        if norm == "l2":
            assert alone.forwards[0] == together.forwards[image]
            assert alone.backwards[0] == together.backwards[image]


def test_a_seed_gives_the_same_search_and_another_seed_another(digits):
    seen = []
    a, b, c = (search(digits.first(4), max_queries=80, seed=seed, progress=seen.append) for seed in (3, 3, 4))
    assert sum(seen) == 3 * 4
    assert min(seen) >= 0
    assert torch.equal(a.adv_inputs, b.adv_inputs)
    assert a.curves == b.curves
    assert not torch.equal(a.adv_inputs, c.adv_inputs)


def test_on_pixels_success_and_distance_are_those_of_the_8_bit_image(digits):
    result = search(digits.first(6), max_queries=150, eight_bit=True)
    levels = result.adv_inputs * 255
    assert torch.allclose(levels, levels.round(), atol=1e-4)
    assert torch.equal(digits.module(result.adv_inputs).argmax(1) != result.labels, result.success)
    assert result.success.all()
    assert [curve[-1][1] for curve in result.curves] == pytest.approx(result.distance.tolist())


def test_a_targeted_search_ends_at_the_target(digits):
    targets = (digits.labels[:4] + 1) % 10
    aim = ThreatModel("linf", targeted=True)
    result = search(digits.first(4), threat_model=aim, targets=targets, max_queries=120)
    assert result.success.all()
    assert torch.equal(digits.module(result.adv_inputs).argmax(1), targets)


def test_wrong_images_cost_nothing_and_what_nothing_fools_stays_robust(digits):
    labels = digits.labels[:3].clone()
    labels[1] = (labels[1] + 1) % 10
    case = digits.first(3)._replace(labels=labels)
    result = search(case, threat_model=ThreatModel("linf", 1e-4), max_queries=150)
    assert result.attacked.tolist() == [True, False, True]
    assert result.forwards[1] == result.runs[1] == result.budget[1] == 0
    assert result.robust.tolist() == [True, False, True]


@pytest.fixture
def broken(monkeypatch):
    """Make torchattacks do something else."""

    def breaker(function):
        monkeypatch.setattr(torchattacks, "run", lambda kind, model, inputs, *_, **__: function(model, inputs))

    return breaker


def raising(*_):
    raise RuntimeError("never")


def test_a_crash_of_one_attack_leaves_the_others_at_work(digits, broken):
    broken(raising)
    result = search(digits.first(4), ("adv-lib:fmn", "torchattacks:pgd"), max_queries=100)
    assert result.success.all()
    assert not result.invalid.any()
    assert "never" in " ".join(result.errors)
    assert result.winner.tolist() == [0] * 4


def test_what_a_crashed_run_asked_counts(digits, broken, watched):
    def two_questions(model, inputs):
        model(inputs)
        model(inputs)
        raise RuntimeError("after two questions")

    broken(two_questions)
    result = search(digits.first(4), ("adv-lib:fmn", "torchattacks:pgd"), max_queries=100)
    completed = torch.zeros(4, dtype=torch.long)
    for _, images, run in watched:
        completed[images] += run.forwards
    assert "after two questions" in " ".join(result.errors)
    assert torch.equal(result.forwards, completed + 2)
    assert (result.forwards + result.backwards <= 100).all()


def test_a_crash_of_all_is_an_error_and_an_unfooled_image_with_a_crash_proves_nothing(digits, broken):
    broken(raising)
    with pytest.raises(AttackFailed, match="never"):
        search(digits.first(2), ("torchattacks:pgd", "torchattacks:fgsm"), max_queries=100)
    tiny = ThreatModel("linf", 1e-4)
    result = search(digits.first(2), ("adv-lib:fmn", "torchattacks:pgd"), tiny, max_queries=100)
    assert not result.success.any()


def test_what_proves_nothing_is_neither_fooled_nor_robust(digits, broken):
    broken(lambda model, inputs: inputs * torch.nan)
    result = search(digits.first(2), ("torchattacks:pgd", "torchattacks:fgsm"), max_queries=100)
    assert result.invalid.all()
    assert not (result.success | result.robust).any()
    assert result.winner.tolist() == [-1, -1]


def test_what_an_attack_asked_about_counts_though_it_returns_something_else(linear, broken):
    case = linear.classifier, linear.inputs, linear.labels
    near = run_attack("foolbox:fgsm", *case, ThreatModel("linf", 0.9)).adv_inputs

    def asks(model, inputs):
        for share in (1.0, 0.5, 1.0):
            model(inputs + share * (near - linear.inputs)[: len(inputs)])
        return near[: len(inputs)]

    broken(asks)
    radius = float(linear.least["linf"].max()) * 2.2
    near = linear.inputs + (near - linear.inputs).sign() * radius
    near = near.clamp(0, 1)
    result = search(linear, ("torchattacks:fgsm", "torchattacks:bim"), ThreatModel("linf", radius), max_queries=8)
    assert result.success.all()
    assert result.distance.tolist() == pytest.approx([radius / 2] * len(linear.labels), rel=0.02)


def test_logits_that_are_not_finite_are_no_success(digits):
    class Spoiled(nn.Module):
        def forward(self, inputs):
            logits = digits.module(inputs)
            return logits.where(logits.argmax(1, keepdim=True) == digits.labels[:1], torch.nan)

    result = search_portfolio(PAIR, Classifier(Spoiled()), digits.inputs[:1], digits.labels[:1], LINF, max_queries=80)
    assert not result.success.any()
    assert result.invalid.all()


def test_a_grid_is_gone_through_turn_by_turn(digits, watched):
    search(digits.first(2), max_queries=300, grid={"learning_rate": [0.5, 2.0], "steps": [5]})
    rates = [run.parameters["learning_rate"] for row, _, run in watched if row.name == "adv-lib:fmn"]
    assert rates[:3] == [0.5, 2.0, 0.5]
    assert {run.parameters.get("steps", 5) for *_, run in watched} == {5}


@pytest.mark.parametrize(
    ("attacks", "change", "error", "message"),
    [
        (("adv-lib:fmn",), {}, InvalidInput, "expected at least two attacks"),
        (("adv-lib:fmn", "adv-lib:fmn"), {}, InvalidInput, "expected different attacks"),
        (("adv-lib:fmn", "pgd"), {}, InvalidInput, "LIBRARY:NAME"),
        (("adv-lib:fmn", "art:nothing"), {}, UnknownName, "nothing"),
        (("adv-lib:fmn", "art:uap"), {}, Unsupported, "one perturbation for all images"),
        (("adv-lib:fmn", "my.py:attack"), {}, Unavailable, "expected a Python file"),
        (("adv-lib:sigma-zero", "foolbox:pgd"), {}, Unsupported, "no norm in common"),
        (("adv-lib:ddn", "foolbox:pgd"), {}, Unsupported, "does not support the norm linf"),
        (PAIR, {"overshoot": 0.1}, Unsupported, "none of adv-lib:fmn,foolbox:pgd has parameter overshoot"),
        (PAIR, {"max_queries": 7}, InvalidInput, ">= 8, got 7"),
        (PAIR, {"steps": 0}, InvalidInput, "steps"),
        (PAIR, {"grid": {"steps": []}}, InvalidInput, "at least one value of steps"),
    ],
)
def test_misuse_is_refused_before_anything_is_computed(digits, watched, attacks, change, error, message):
    with pytest.raises(error, match=message):
        search(digits, attacks, **change)
    assert watched == []


def test_what_was_asked_before_a_model_died_counts_for_the_images_that_were_asked_about(digits, monkeypatch, watched):
    """The first start fools two of four images; the second, which ends it, is for the other two alone."""
    case, batches = digits.first(4), []
    spent = {name: torch.zeros(4, dtype=torch.long) for name in ("forwards", "backwards")}

    def fools_some_then_dies(_, model, inputs, labels, threat_model, **__):
        images = [next(i for i in range(4) if torch.equal(one, case.inputs[i])) for one in inputs]
        batches.append(images)
        leaf = inputs.clone().requires_grad_()
        try:
            (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(leaf), labels), leaf)
            if len(batches) > 1:
                raise ModelDied("it is gone")
        finally:
            for name, counts in spent.items():
                counts[images] += getattr(model, name)
        moved = (inputs + threat_model.epsilon * gradient.sign()).clamp(0, 1)
        return torch.cat([moved[:2], inputs[2:]])

    monkeypatch.setattr(foolbox, "run", fools_some_then_dies)
    result = search(case, ("foolbox:pgd", "adv-lib:fmn"), max_queries=100, restarts=2, random_start=False)
    assert batches == [[0, 1, 2, 3], [2, 3]]
    assert spent["forwards"].tolist() == [1, 1, 2, 2]
    for name, counts in spent.items():
        for _, images, run in watched:
            counts[images] += getattr(run, name)
        assert torch.equal(getattr(result, name), counts), name
