"""Best effort against exhaustive search and against the formula of a linear model."""

import math

import pytest
import torch

from davylamp.adapters import Classifier, ThreatModel, find_implementation, run_attack
from davylamp.engine import search_radius
from davylamp.engine.searches import radius_search as search
from davylamp.errors import InvalidInput, UnknownName, Unsupported

PGD = {"steps": 5, "step_size": "2.5 epsilon / steps", "random_start": False}
LINF = ThreatModel("linf", 0.16)


def effort(case, name="foolbox:pgd", threat_model=LINF, **parameters):
    return search_radius(name, case.classifier, case.inputs, case.labels, threat_model, **parameters)


@pytest.fixture
def watched(monkeypatch):
    """Every call of the attack that a search makes: its radii, its parameters, the places of its images."""
    calls = []

    def watch(row, classifier, inputs, labels, threat_model, **words):
        first = words["first"]
        places = first.tolist() if isinstance(first, torch.Tensor) else [first + i for i in range(len(inputs))]
        radii = torch.full((len(inputs),), threat_model.epsilon, dtype=torch.double)
        calls.append((words.get("radii", radii), words, places))
        return run_attack(row, classifier, inputs, labels, threat_model, **words)

    monkeypatch.setattr(search, "run_attack", watch)
    return calls


def outcomes(case, name, norm, radii, flag="success", **parameters):
    """Whether the attack succeeds at each radius, (radii, N) bool: exhaustive search."""
    rows = []
    for radius in radii:
        settings = (
            {**parameters, "step_size": 2.5 * radius / parameters["steps"]} if "steps" in parameters else parameters
        )
        result = run_attack(name, case.classifier, case.inputs, case.labels, ThreatModel(norm, radius), **settings)
        rows.append(getattr(result, flag))
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("name", "norm", "upper", "parameters"),
    [("foolbox:pgd", "linf", 0.16, PGD), ("art:fgsm", "linf", 0.32, {}), ("foolbox:fgm", "l2", 4.0, {})],
)
def test_bisection_finds_the_minimum_of_exhaustive_search_in_few_runs(digits, watched, name, norm, upper, parameters):
    radii = [k * upper / 32 for k in range(1, 33)]
    hits = outcomes(digits, name, norm, radii, **parameters)
    result = effort(digits, name, ThreatModel(norm, upper), rounds=5, **parameters)
    monotone = (hits.long().diff(dim=0) >= 0).all(0)
    assert monotone.sum() >= 12
    least = torch.tensor([*radii, math.inf], dtype=torch.double)
    expected = least[torch.where(hits.any(0), hits.long().argmax(0), 32)]
    assert torch.equal(result.budget[monotone], expected[monotone])
    counts = torch.bincount(torch.tensor([place for *_, places in watched for place in places]))
    assert counts.max() == 6
    assert torch.equal(counts, result.runs)
    for image, budget in enumerate(result.budget.tolist()):  # monotone or not: it fails one step below
        if math.isfinite(budget):
            node = round(budget / upper * 32)
            assert hits[node - 1, image]
            assert node == 1 or not hits[node - 2, image]


@pytest.mark.parametrize(("name", "norm"), [("art:fgsm", "linf"), ("foolbox:pgd", "l2"), ("art:pgd", "l2")])
def test_the_budget_of_a_linear_model_is_the_formula_rounded_up_to_the_grid(linear, name, norm):
    upper = 1.5 * float(linear.least[norm].max())
    parameters = {"steps": 10, "step_size": "2 epsilon", "random_start": False} if "pgd" in name else {}
    result = effort(linear, name, ThreatModel(norm, upper), **parameters)
    step = upper / 256
    assert result.success.all()
    assert (result.budget >= linear.least[norm] - 1e-6).all()
    assert (result.budget <= linear.least[norm] * 1.001 + step).all()
    assert (result.distance <= result.budget * 1.0001 + 1e-6).all()


def test_queries_seconds_and_examples_are_those_of_the_whole_search(digits, watched):
    result = effort(digits.first(6), rounds=4, **PGD)
    assert result.implementation == "best(foolbox:pgd)"
    assert result.threat_model == LINF
    assert result.parameters == PGD
    assert result.forwards.tolist() == [5 * 6] * 6  # 5 steps and Foolbox's own check, 5 runs
    assert result.backwards.tolist() == [5 * 5] * 6
    assert result.runs.tolist() == [5] * 6
    assert result.upper == 0.16
    assert result.rounds == 4
    assert min(float(radii.min()) for radii, *_ in watched) <= float(result.budget.min())
    delta = (result.adv_inputs - digits.inputs[:6]).flatten(1)
    assert torch.allclose(delta.abs().amax(1).double(), result.distance)
    assert torch.equal(result.adv_logits.argmax(1) != result.labels, result.success)
    assert torch.allclose(result.adv_logits, digits.module(result.adv_inputs), atol=1e-5)
    assert (result.seconds > 0).all()


def test_an_image_gets_what_it_would_get_alone(digits):
    together = effort(digits.first(8), rounds=5, **PGD)
    for image in range(0, 8, 2):
        one = digits._replace(inputs=digits.inputs[image : image + 1], labels=digits.labels[image : image + 1])
        alone = effort(one, rounds=5, **PGD)
        assert alone.budget == together.budget[image]
        assert torch.allclose(alone.adv_inputs[0], together.adv_inputs[image], atol=1e-6)


@pytest.mark.parametrize(("name", "parameters"), [("foolbox:pgd", PGD), ("art:fgsm", {}), ("torchattacks:pgd", PGD)])
def test_a_round_is_one_call_where_the_library_takes_radii_and_finds_the_same(
    digits, watched, monkeypatch, name, parameters
):
    mixed = effort(digits, name, rounds=5, **parameters)
    assert len(watched) == 6
    watched.clear()
    monkeypatch.setattr(search, "supports_per_image_radii", lambda *_: False)
    apart = effort(digits, name, rounds=5, **parameters)
    assert len(watched) > 12
    assert all(len(radii.unique()) == 1 for radii, *_ in watched)
    assert torch.equal(mixed.budget, apart.budget)
    assert torch.equal(mixed.runs, apart.runs)
    assert torch.allclose(mixed.adv_inputs, apart.adv_inputs, atol=1e-6)


def test_a_crash_at_one_radius_costs_the_images_of_other_radii_nothing(digits, monkeypatch):
    clean = digits.inputs

    class Fragile(torch.nn.Module):
        def forward(self, inputs):
            change = (inputs[:, None] - clean).abs().flatten(2).amax(2).amin(1)
            if bool(((change > 1e-6) & (change < 0.02)).any()):
                raise RuntimeError("too near")
            return digits.module(inputs)

    case, settings = (Classifier(Fragile()), digits.inputs, digits.labels, ThreatModel("linf", 0.2)), {"rounds": 5}
    mixed = search_radius("foolbox:fgsm", *case, **settings)
    monkeypatch.setattr(search, "supports_per_image_radii", lambda *_: False)
    apart = search_radius("foolbox:fgsm", *case, **settings)
    assert mixed.errors
    assert torch.equal(mixed.budget, apart.budget)
    assert torch.equal(mixed.runs, apart.runs)


def test_settings_of_a_grid_that_start_at_random_are_searched_radius_by_radius(digits, watched):
    grid = {"random_start": [False, True, False]}
    result = effort(digits.first(6), rounds=4, steps=3, step_size="2.5 epsilon / steps", grid=grid)
    assert result.success.all()
    assert all("radii" not in words for _, words, _ in watched if words["random_start"])
    assert any("radii" in words for _, words, _ in watched)


@pytest.mark.parametrize("limit", [8, 20, 37, 61])
def test_a_query_limit_holds_for_the_whole_search(digits, limit):
    free = effort(digits.first(6), rounds=5, **PGD)
    result = effort(digits.first(6), rounds=5, max_queries=limit, **PGD)
    cost = result.forwards + result.backwards
    assert (cost <= limit).all()
    assert (cost == min(limit, 66)).all()
    assert (result.budget >= free.budget).all()


@pytest.mark.parametrize(("text", "factor"), [("2.5 epsilon / steps", 0.5), ("2 epsilon", 2.0), ("0.25 epsilon", 0.25)])
def test_a_relative_step_follows_the_radius_and_a_number_stays(digits, watched, text, factor):
    effort(digits.first(4), rounds=3, steps=5, step_size=text, random_start=False)
    assert len(torch.cat([radii for radii, *_ in watched]).unique()) > 2
    for radii, words, _ in watched:
        steps = torch.as_tensor(words["step_size"], dtype=torch.double).expand(len(radii))
        assert torch.allclose(steps, factor * radii)
    watched.clear()
    effort(digits.first(4), rounds=3, steps=5, step_size=0.01, random_start=False)
    assert {words["step_size"] for _, words, _ in watched} == {0.01}


def test_a_grid_is_as_good_as_each_of_its_combinations(digits):
    sizes = [0.02, "2.5 epsilon / steps", 0.05]
    rest = {"steps": 5, "random_start": False, "rounds": 6}
    single = [effort(digits, step_size=size, **rest) for size in sizes]
    result = effort(digits, grid={"step_size": sizes}, **rest)
    least = torch.stack([each.budget for each in single]).amin(0)
    assert torch.equal(result.budget, least)
    assert not any(torch.equal(each.budget, least) for each in single)
    for image, won in enumerate(result.chosen):
        assert single[sizes.index(won["step_size"])].budget[image] == least[image]
    assert (result.runs <= 3 * 7).all()
    assert result.runs.sum() < sum(each.runs.sum() for each in single)


def test_an_image_that_a_combination_cannot_better_costs_it_one_run(digits):
    good = "2.5 epsilon / steps"
    result = effort(
        digits.first(6), grid={"step_size": [good, 1e-4]}, steps=5, random_start=False, rounds=4, max_queries=1000
    )
    assert result.runs.tolist() == [6] * 6
    assert all(won == {"step_size": good} for won in result.chosen)


def test_on_pixels_success_and_distance_are_those_of_the_8_bit_image(digits):
    radii = [k * 0.16 / 32 for k in range(1, 33)]
    hits = outcomes(digits, "foolbox:pgd", "linf", radii, flag="success_8bit", **PGD)
    result = effort(digits, rounds=5, eight_bit=True, **PGD)
    monotone = (hits.long().diff(dim=0) >= 0).all(0)
    expected = torch.tensor(radii, dtype=torch.double)[hits.long().argmax(0)]
    assert torch.equal(result.budget[monotone], expected[monotone])
    levels = result.adv_inputs * 255
    assert torch.allclose(levels, levels.round(), atol=1e-4)
    assert torch.equal(result.success, digits.module(result.adv_inputs).argmax(1) != digits.labels)
    assert torch.equal(result.success_8bit, result.success)
    clean = torch.floor(digits.inputs * 255 + 0.5)
    rms = (levels - clean).flatten(1).square().mean(1).sqrt()
    assert torch.allclose(result.distances.l2 / math.sqrt(768) * 255, rms.double(), atol=1e-3)


def test_changes_below_half_a_level_are_no_success_on_pixels(linear):
    case = linear._replace(inputs=(linear.inputs * 255).round() / 255)
    case = case._replace(labels=case.module(case.inputs).argmax(1))
    small = ThreatModel("linf", 0.4 / 255)
    assert effort(case, "art:fgsm", small, rounds=3).success.all()
    result = effort(case, "art:fgsm", small, rounds=3, eight_bit=True)
    assert not result.success.any()
    assert result.robust.all()
    assert result.budget.isinf().all()
    assert result.runs.tolist() == [1] * 4
    assert torch.equal(result.adv_inputs, case.inputs)
    assert result.distance.max() == 0


def test_logits_that_are_not_finite_on_8_bits_are_a_violation_there(digits):
    class Spoiled(torch.nn.Module):
        def forward(self, x):
            on_grid = ((x * 255 - (x * 255).round()).abs() < 1e-3).flatten(1).all(1)
            return digits.module(x).where(~on_grid[:, None], torch.nan)

    settings = PGD | {"step_size": 0.01}
    result = run_attack(
        "foolbox:pgd", digits.classifier, digits.inputs, digits.labels, ThreatModel("linf", 0.02), **settings
    )
    assert result.robust.any()
    rounded = search.round_to_8bit(result, Classifier(Spoiled()), digits.inputs)
    assert rounded.invalid.all()
    assert not (rounded.success | rounded.robust).any()


@pytest.mark.parametrize("name", ["foolbox:pgd", "art:square"])
def test_a_seed_gives_the_same_search_and_another_seed_another(digits, name):
    settings = {"steps": 5, "rounds": 4, "threat_model": ThreatModel("linf", 0.3)}
    case = digits.first(4)
    a, b, c = (effort(case, name, seed=seed, **settings) for seed in (3, 3, 4))
    assert torch.equal(a.adv_inputs, b.adv_inputs)
    assert torch.equal(a.budget, b.budget)
    assert not torch.equal(a.adv_inputs, c.adv_inputs)


def test_a_row_that_gets_one_image_at_a_time_does_not_depend_on_the_shard(digits):
    settings = {"name": "art:square", "threat_model": ThreatModel("linf", 0.4)}
    settings |= {"steps": 20, "rounds": 4, "batch_size": 1}
    whole = effort(digits.first(4), **settings)
    later = digits._replace(inputs=digits.inputs[2:4], labels=digits.labels[2:4])
    part = effort(later, first=2, **settings)
    assert torch.equal(part.adv_inputs, whole.adv_inputs[2:])
    assert torch.equal(part.budget, whole.budget[2:])
    swapped = digits._replace(inputs=digits.inputs[[3, 1]], labels=digits.labels[[3, 1]])
    assert torch.equal(effort(swapped, first=torch.tensor([3, 1]), **settings).budget, whole.budget[[3, 1]])


def test_clean_wrong_images_have_budget_0_and_never_fooled_ones_infinity(digits):
    labels = digits.labels[:6].clone()
    labels[2] = (labels[2] + 1) % 10
    case = digits.first(6)._replace(labels=labels)
    result = effort(case, rounds=4, **PGD)
    assert result.attacked.tolist() == [True, True, False, True, True, True]
    assert result.budget[2] == 0
    assert result.runs[2] == result.forwards[2] == 0
    assert not result.success[2]
    assert torch.equal(result.adv_inputs[2], case.inputs[2])
    weak = effort(case, threat_model=ThreatModel("linf", 1e-4), rounds=4, **PGD)
    assert weak.budget.tolist() == [math.inf, math.inf, 0, math.inf, math.inf, math.inf]
    assert torch.equal(weak.robust, weak.attacked)
    assert weak.chosen == (None,) * 6
    assert weak.runs.tolist() == [1, 1, 0, 1, 1, 1]


def test_a_targeted_search_ends_at_the_target(digits):
    targets = (digits.labels[:6] + 1) % 10
    result = effort(digits.first(6), threat_model=ThreatModel("linf", 0.4, True), targets=targets, rounds=4, **PGD)
    assert result.success.any()
    assert torch.equal(digits.module(result.adv_inputs).argmax(1) == targets, result.success)
    plain = effort(digits.first(6), threat_model=ThreatModel("linf", 0.4), rounds=4, **PGD)
    assert (result.budget >= plain.budget).all()


def test_l0_radii_are_whole_numbers(digits, watched):
    result = effort(digits.first(2), "art:jsma", ThreatModel("l0", 40), rounds=3)
    assert set(torch.cat([radii for radii, *_ in watched]).tolist()) <= {5.0, 10, 15, 20, 25, 30, 35, 40}
    assert (result.runs <= 4).all()
    assert (result.distance[result.success] <= result.budget[result.success]).all()
    row = find_implementation("art:jsma")
    for upper, rounds in ((40, 8), (300, 8), (37, 3)):
        radii = search.radius_grid(row, ThreatModel("l0", upper), 768, rounds)
        nodes = [radii.at(node) for node in range(1, radii.count + 1)]
        assert all(node == int(node) for node in nodes)
        assert len(set(nodes)) == len(nodes) == min(upper, 2**rounds)
        assert nodes[-1] == upper
        assert nodes == [math.ceil(k * upper / len(nodes)) for k in range(1, len(nodes) + 1)]


@pytest.mark.parametrize(
    ("name", "norm", "components", "upper"),
    [
        ("foolbox:pgd", "linf", 150528, 64 / 255),
        ("foolbox:pgd", "l2", 150528, 32 / 255 * math.sqrt(150528)),
        ("foolbox:pgd", "l1", 3072, 192),
        ("foolbox:pgd", "l1", 3, 3),
        ("art:jsma", "l0", 768, 112),
        ("art:jsma", "l0", 12, 12),
    ],
)
def test_without_epsilon_the_largest_radius_is_16_customary_ones(name, norm, components, upper):
    radii = search.radius_grid(find_implementation(name), ThreatModel(norm), components, 8)
    assert radii.upper == pytest.approx(upper)
    assert radii.at(radii.count) == pytest.approx(upper)


def test_progress_adds_up_to_the_images_attacked(digits):
    seen = []
    labels = digits.labels[:5].clone()
    labels[0] = (labels[0] + 1) % 10
    case = digits.first(5)._replace(labels=labels)
    effort(case, rounds=3, grid={"steps": [2, 4]}, step_size=0.02, progress=seen.append)
    assert sum(seen) == 4
    assert len(seen) > 1
    assert min(seen) > 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "foolbox:deepfool"}, Unsupported, "foolbox:deepfool"),
        ({"name": "foolbox:spatial", "threat_model": ThreatModel("unrestricted")}, Unsupported, "norm"),
        ({"name": "art:uap"}, Unsupported, "art:uap"),
        ({"name": "foolbox:pgdd"}, UnknownName, "pgdd"),
        ({"threat_model": ThreatModel("l0", 4)}, Unsupported, "l0"),
        ({"rounds": 0}, InvalidInput, "rounds .* got 0"),
        ({"rounds": 2.5}, InvalidInput, r"rounds .* got 2\.5"),
        ({"step_size": "3 radii"}, InvalidInput, "step_size"),
        ({"step_size": "2.5 epsilon / steps"}, InvalidInput, "steps"),
        ({"grid": {"step_size": []}}, InvalidInput, "step_size"),
        ({"grid": {"step_size": "2 epsilon"}}, InvalidInput, "step_size"),
        ({"grid": {"steps": [2, 0]}}, InvalidInput, "steps"),
        ({"grid": {"confidence": [1.0]}}, Unsupported, "confidence"),
    ],
)
def test_misuse_is_refused_before_anything_is_computed(digits, watched, change, error, message):
    with pytest.raises(error, match=message) as caught:
        effort(digits, **change)
    assert "\n" not in str(caught.value)
    assert not watched
